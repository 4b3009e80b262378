// Package netloop answers: how do frames come in and answers go out?
//
// It runs connections on a few event loops (gnet), cuts what arrives into
// remoting frames, hands each to a Handler on one of two lanes, gathers the
// answers and writes them once. It knows frames, not topics or requests.
//
//	peer ──bytes──▶ [Transform, e.g. TLS] ──▶ frames ──▶ Handler.Serve
//	peer ◀──write, sendfile── gather buffer of the connection ◀── answers
//
// # Goroutines
//
//   - loops, one goroutine each (gnet's). A connection lives on one loop from
//     Open to Closed; everything of it that is not said to be free for any
//     goroutine belongs to that loop.
//   - one acceptor for each address. The listeners are ours, not gnet's: gnet
//     stops its whole engine when accept fails once (a full descriptor table),
//     cannot stop accepting before it stops serving, leaks the first listener
//     when the second cannot bind, and hides a bind error when keep-alive is
//     set. Accepted sockets are enrolled in gnet's loops.
//   - PoolWorkers pool goroutines for requests of the pool lane.
//   - one keeper: idle connections once in a while, and stalled ones every
//     10 ms, only while there are any.
//   - one reader for each connection under a Transform.
//
// Server.Close waits for all of them.
//
// # One event
//
// gnet reads up to 64 KiB of one connection and calls us. Whole frames in it
// are decoded in place, one after another, into the loop's one Command, and
// served; a rest shorter than a frame is copied into a buffer of the
// connection. Nothing is ever left in gnet's own inbound buffer, which has no
// bound. Then the loop ends its round: Handler.ReadEnd, the tasks that other
// goroutines posted, one write for each connection that has gathered answers.
// With many connections on the loop the round is ended once after all of them
// have been read (see Loop.readDone); a lone client never waits for that.
//
// # The end of a connection
//
// What a peer sent before it closed is served, to the last whole frame: a write
// that fails only silences the connection, which is then read to its end, and
// frames that are held back are served when they may be. Handler.Closed comes
// after them. A connection that we close (a bound, a bad frame, Conn.Close)
// ends at once.
//
// # Bounds
//
// gnet can neither pause reading nor tell when a socket has become writable,
// so the bounds are held by not decoding and by closing:
//
//   - a peer that does not read: above half of ConnOutboundBytesMax its later
//     frames are not decoded; above the whole it is closed;
//   - frames not decoded (a suspended or stalled connection, a frame not whole
//     yet): at most ConnInboundBytesMax, then it is closed;
//   - all of that over all connections: TotalBytesMax; the connection that
//     passes it is closed.
//
// Each of these closes writes one log line that names the bound and its key.
package netloop

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// Lane says where a request is served.
type Lane uint8

const (
	// OnLoop serves on the connection's loop, in the order of arrival. For
	// work of microseconds that never waits.
	OnLoop Lane = iota
	// OnPool serves on a pool goroutine, in no promised order. For work that
	// may wait: disks, other machines, large tables.
	OnPool
)

// Handler is what serves the frames. Its methods run on c's loop unless they
// say otherwise, never two at once for one loop, and must not block there.
type Handler interface {
	// Open is the first call for a connection. Set c.User here.
	Open(c *Conn)
	// Closed is the last call for a connection; nothing can be sent any more,
	// since Conn.Closed has been true. Requests of a peer that has closed it are
	// served before, their answers dropped.
	// It is never called from inside another Handler method. cause says why,
	// never nil.
	Closed(c *Conn, cause error)
	// Lane chooses the lane of a request code.
	Lane(code int32) Lane
	// Serve serves one request. On the loop lane req and all its slices are
	// valid until Serve returns. On the pool lane (a pool goroutine) req is an
	// owned copy, and of c only what is free for any goroutine may be used.
	Serve(c *Conn, req *remoting.Command)
	// Response is an answer (flag bit 0) to a request that we sent to the
	// peer. resp is valid until Response returns.
	Response(c *Conn, resp *remoting.Command)
	// ReadEnd follows the last Serve of a round: submit what Serve gathered.
	// A round is one read event, or several on a loop with many connections.
	ReadEnd(l *Loop)
}

// Task is work for a loop. Tasks are intrusive: the poster owns the value and
// may reuse it once RunOnLoop has begun.
type Task interface {
	// RunOnLoop runs on l's goroutine and must not block.
	RunOnLoop(l *Loop)
}

// Keys are the names of the configuration properties behind Config's bounds,
// as the user knows them; log lines and refusals name them. All optional.
type Keys struct {
	FrameBytesMax, ConnInboundBytesMax, ConnOutboundBytesMax string
	TotalBytesMax, ConnsMax, PoolQueueMax                    string
}

// Config is what a Server is made of. Zero values mean the default.
type Config struct {
	// Addrs are host:port to listen on; an empty or unspecified host listens
	// on IPv4 and IPv6. Port 0 takes a free port (Server.Addr tells it).
	Addrs []string
	// Loops is the number of event loops. Default: see DefaultLoops.
	Loops int
	// FrameBytesMax bounds a whole frame, its length field included. Default
	// and upper bound: remoting.MaxFrameBytes.
	FrameBytesMax int
	// ConnInboundBytesMax bounds what one connection may have sent without it
	// being decoded. Default 32 MiB; must admit a whole frame and one read.
	ConnInboundBytesMax int64
	// ConnOutboundBytesMax bounds what one connection may have waiting to be
	// read by its peer. Default 64 MiB.
	ConnOutboundBytesMax int64
	// TotalBytesMax bounds the sum of both over all connections. Default
	// 512 MiB.
	TotalBytesMax int64
	// ConnsMax bounds the open connections: one more is closed at once, with
	// a rate-limited log line. Default 65,536.
	ConnsMax int
	// IdleTimeout closes a connection that has been neither read nor written
	// for so long, give or take a sixteenth. Default 120 s; negative: never.
	IdleTimeout time.Duration
	// PoolWorkers are the goroutines of the pool lane. Default 16.
	PoolWorkers int
	// PoolQueueMax bounds the requests that wait for one of them; a request
	// more is answered SYSTEM_BUSY. Default 10,000.
	PoolQueueMax int
	// SampleEvery: of so many rounds one is timed, for Stats.Blocked*. 1 times
	// all. Default 64.
	SampleEvery int
	// Transforms are asked in order when a connection's first byte is not the
	// first byte of a frame.
	Transforms []Transform
	// ServiceName and PortHint go into the log line for a foreign protocol:
	// who listens here, and which port the peer may have wanted.
	ServiceName, PortHint string
	Keys                  Keys
	Handler               Handler
	// Logger gets state changes and closed connections. Default slog.Default.
	Logger *slog.Logger
}

// Defaults of Config.
const (
	DefaultConnInboundBytesMax  = 32 << 20
	DefaultConnOutboundBytesMax = 64 << 20
	DefaultTotalBytesMax        = 512 << 20
	DefaultConnsMax             = 65_536
	DefaultIdleTimeout          = 120 * time.Second
	DefaultPoolWorkers          = 16
	DefaultPoolQueueMax         = 10_000
	DefaultSampleEvery          = 64
)

// readBytes is gnet's read buffer: the most that one read event brings.
const readBytes = 64 << 10

// DefaultLoops is half of the processors that Go may use, at least one: the
// other half does what the loops hand over. On two processors a second loop made
// a message a third dearer (BenchmarkEcho, 8 connections of 32 in flight).
func DefaultLoops() int { return max(1, runtime.GOMAXPROCS(0)/2) }

func (cfg *Config) setDefaults() {
	setInt(&cfg.Loops, DefaultLoops())
	setInt(&cfg.FrameBytesMax, remoting.MaxFrameBytes)
	setInt(&cfg.ConnInboundBytesMax, DefaultConnInboundBytesMax)
	setInt(&cfg.ConnOutboundBytesMax, DefaultConnOutboundBytesMax)
	setInt(&cfg.TotalBytesMax, DefaultTotalBytesMax)
	setInt(&cfg.ConnsMax, DefaultConnsMax)
	setInt(&cfg.IdleTimeout, DefaultIdleTimeout)
	setInt(&cfg.PoolWorkers, DefaultPoolWorkers)
	setInt(&cfg.PoolQueueMax, DefaultPoolQueueMax)
	setInt(&cfg.SampleEvery, DefaultSampleEvery)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	setKey(&cfg.Keys.FrameBytesMax, "FrameBytesMax")
	setKey(&cfg.Keys.ConnInboundBytesMax, "ConnInboundBytesMax")
	setKey(&cfg.Keys.ConnOutboundBytesMax, "ConnOutboundBytesMax")
	setKey(&cfg.Keys.TotalBytesMax, "TotalBytesMax")
	setKey(&cfg.Keys.ConnsMax, "ConnsMax")
	setKey(&cfg.Keys.PoolQueueMax, "PoolQueueMax")
}

func setInt[T ~int | ~int64](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func setKey(v *string, def string) {
	if *v == "" {
		*v = def
	}
}

func (cfg *Config) validate() error {
	switch {
	case cfg.Handler == nil:
		return errors.New("netloop: no Handler")
	case len(cfg.Addrs) == 0:
		return errors.New("netloop: no address to listen on")
	case cfg.Loops < 1 || cfg.Loops > 1024:
		return fmt.Errorf("netloop: Loops: got %d, want 1 to 1024", cfg.Loops)
	case cfg.FrameBytesMax < 64 || cfg.FrameBytesMax > remoting.MaxFrameBytes:
		return fmt.Errorf("netloop: %s: got %d, want 64 to %d", cfg.Keys.FrameBytesMax, cfg.FrameBytesMax, remoting.MaxFrameBytes)
	case cfg.ConnInboundBytesMax < int64(cfg.FrameBytesMax)+readBytes:
		return fmt.Errorf("netloop: %s: got %d, want at least one frame and one read, %d", cfg.Keys.ConnInboundBytesMax,
			cfg.ConnInboundBytesMax, cfg.FrameBytesMax+readBytes)
	case cfg.ConnOutboundBytesMax < 2*readBytes:
		return fmt.Errorf("netloop: %s: got %d, want at least %d", cfg.Keys.ConnOutboundBytesMax, cfg.ConnOutboundBytesMax, 2*readBytes)
	case cfg.TotalBytesMax < cfg.ConnInboundBytesMax || cfg.TotalBytesMax < cfg.ConnOutboundBytesMax:
		return fmt.Errorf("netloop: %s: got %d, want at least the bounds of one connection, %d", cfg.Keys.TotalBytesMax,
			cfg.TotalBytesMax, max(cfg.ConnInboundBytesMax, cfg.ConnOutboundBytesMax))
	case cfg.ConnsMax < 1:
		return fmt.Errorf("netloop: %s: got %d, want at least 1", cfg.Keys.ConnsMax, cfg.ConnsMax)
	case cfg.PoolWorkers < 1 || cfg.PoolQueueMax < 1 || cfg.SampleEvery < 1:
		return fmt.Errorf("netloop: PoolWorkers, %s, SampleEvery: got %d, %d, %d, want at least 1", cfg.Keys.PoolQueueMax,
			cfg.PoolWorkers, cfg.PoolQueueMax, cfg.SampleEvery)
	}
	return nil
}

// Causes of a close, for Handler.Closed; they come wrapped with what was seen.
var (
	// ErrPeerClosed: the peer ended the connection.
	ErrPeerClosed = errors.New("closed by the peer")
	// ErrIdle: neither read nor written for IdleTimeout.
	ErrIdle = errors.New("idle")
	// ErrProtocol: a bad frame or a foreign protocol.
	ErrProtocol = errors.New("bad frame")
	// ErrBound: ConnInboundBytesMax, ConnOutboundBytesMax or TotalBytesMax.
	ErrBound = errors.New("over its bound")
	// ErrShutdown: the server is closing.
	ErrShutdown = errors.New("server is closing")
	// ErrClosed is returned by Listen's Server once it is closed, and is the
	// cause where Conn.Close was called without one.
	ErrClosed = errors.New("closed")
)
