package netloop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"
)

// Conn is one connection. Its methods belong to its loop's goroutine, except
// those that say "any goroutine".
type Conn struct {
	// User is the handler's own state of this connection, set in Open.
	User any

	srv           *Server
	loop          *Loop
	gc            gnet.Conn
	fd            int
	id            uint64
	remote, local netip.AddrPort

	place   int // in loop.all
	mode    mode
	tunnel  *tunnel // not nil: the bytes go through a Transform
	isDirty bool    // in loop.dirty
	isReady bool    // in loop.ready or loop.later
	isSlow  bool    // in loop.slow
	// why frames are held back
	suspended bool // by the handler
	stalled   bool // by a peer that does not read

	mute    bool // a write found the peer gone: nothing is written any more
	leaving bool // the peer has closed it; what it sent before is still served
	parted  bool // closed, and the handler told or about to be

	in       []byte // received, not decoded: a piece of a frame, or held back frames
	inOff    int    // how much of in has been decoded
	out      []byte // gathered answers
	outbound int64  // bytes that gnet had to keep, as last seen
	counted  int64  // what of this connection is in srv.total
	replies  int    // frames in out

	lastTick atomic.Uint32 // keeper's tick of the last read or write

	// What TrySend needs (now.go): quiet while the loop has nothing to write,
	// direct held for the one write, rest what that left over.
	quiet  atomic.Bool
	direct sync.Mutex
	rest   []byte // guarded by direct while quiet, the loop's otherwise

	posted atomic.Int64               // bytes of Send that have not reached the loop
	unread atomic.Int64               // outbound, for others than the loop
	closed atomic.Bool                // gnet has closed it; gc must not be touched
	cause  atomic.Pointer[closeCause] // the first one counts
	closer closeTask
}

// mode is what the first bytes of a connection have made of it.
type mode uint8

const (
	modeUnknown mode = iota // no byte yet, or a Transform wants more
	modePlain
	modeTransform
)

// ID is unique in the server's life. Any goroutine.
func (c *Conn) ID() uint64 { return c.id }

// Loop is the loop that the connection lives on. Any goroutine.
func (c *Conn) Loop() *Loop { return c.loop }

// Remote is the peer's address; an IPv4 peer of a dual-stack listener has a
// plain IPv4 address. Any goroutine.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// Local is the address the peer connected to. Any goroutine.
func (c *Conn) Local() netip.AddrPort { return c.local }

// Closed tells whether the connection is gone; what is sent to it is dropped.
// Any goroutine.
func (c *Conn) Closed() bool { return c.closed.Load() }

// Backlog is how many bytes wait to be written to the peer, about. Any goroutine.
func (c *Conn) Backlog() int64 { return c.posted.Load() + c.unread.Load() }

// Close closes the connection after what has been gathered for it is written,
// as far as the socket takes it at once. cause reaches Handler.Closed; nil
// means ErrClosed. Any goroutine; it does not wait.
func (c *Conn) Close(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	if c.setCause(cause) {
		c.loop.Post(&c.closer)
	}
}

type closeCause struct{ err error }

func (c *Conn) setCause(err error) bool {
	return c.cause.CompareAndSwap(nil, &closeCause{err})
}

// closeTask carries Close to the loop; each connection has its own.
type closeTask struct{ c *Conn }

func (t *closeTask) RunOnLoop(l *Loop) { l.closing = append(l.closing, t.c) }

// fail is Close for the loop's own use.
func (c *Conn) fail(cause error) {
	c.leaving = false
	if c.setCause(cause) {
		c.loop.closing = append(c.loop.closing, c)
	}
}

// failing tells whether the connection is closed or about to be.
func (c *Conn) failing() bool { return c.cause.Load() != nil }

// deaf tells whether what the peer sent is not served any more: we close the
// connection, or have served all of one that the peer has closed.
func (c *Conn) deaf() bool { return c.failing() && !c.leaving }

// silent tells whether what is sent is dropped.
func (c *Conn) silent() bool { return c.mute || c.closed.Load() }

// Suspend holds back the later frames of this connection, in their order,
// until Resume. They are bounded by ConnInboundBytesMax. The frame being
// served is not affected.
func (c *Conn) Suspend() { c.suspended = true }

// Resume lets the connection go on; the frames held back are served at the end
// of the current callback, never inside Resume.
func (c *Conn) Resume() {
	if c.suspended {
		c.suspended = false
		c.makeReady()
	}
}

// makeReady has held back frames decoded in this round, if they may be.
func (c *Conn) makeReady() {
	if !c.isReady && (c.leaving || !c.held() && len(c.in) > c.inOff) {
		c.isReady = true
		c.loop.ready = append(c.loop.ready, c)
		if c.loop.nested == 0 {
			c.loop.wake()
		}
	}
}

// takeTurns has the rest of c.in decoded in the next round.
func (c *Conn) takeTurns() {
	if !c.isReady && !c.held() && !c.deaf() {
		c.isReady = true
		c.loop.later = append(c.loop.later, c)
	}
}

// held tells whether frames must wait.
func (c *Conn) held() bool {
	return c.suspended || c.stalled || c.srv.draining.Load()
}

// newConn makes the connection of an accepted socket; open completes it.
func (s *Server) newConn(nc net.Conn) *Conn {
	c := &Conn{srv: s, id: s.ids.Add(1), remote: addrPort(nc.RemoteAddr()), local: addrPort(nc.LocalAddr())}
	c.closer.c = c
	return c
}

// addrPort takes the address out of a, zone included.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	// gnet gives a zone's memory to a pool of byte slices when the connection
	// ends, although the string is package net's. Let it not see one.
	t.Zone = ""
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// events is gnet's side of a Server.
type events struct {
	gnet.BuiltinEventEngine
	s *Server
}

func (e *events) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	c := gc.Context().(*Conn)
	l := e.s.loopOf(gc.EventLoop())
	l.enter()
	c.loop, c.gc, c.fd = l, gc, gc.Fd()
	c.lastTick.Store(e.s.tick.Load())
	l.add(c)
	e.s.conns.Add(1)
	l.stats.accepted.Add(1)
	e.s.cfg.Handler.Open(c)
	l.round()
	l.leave()
	return nil, gnet.None
}

func (e *events) OnTraffic(gc gnet.Conn) gnet.Action {
	c := gc.Context().(*Conn)
	data, err := gc.Next(-1)
	if err != nil || len(data) == 0 {
		return gnet.None
	}
	l := c.loop
	l.enter()
	l.stats.bytesIn.Add(int64(len(data)))
	c.lastTick.Store(e.s.tick.Load())
	c.raw(data)
	if l.reads > 0 || l.pending() {
		l.readDone(c)
	}
	l.leave()
	return gnet.None
}

func (e *events) OnClose(gc gnet.Conn, err error) gnet.Action {
	c := gc.Context().(*Conn)
	l := c.loop
	l.enter()
	c.claim() // the descriptor is about to be closed
	c.closed.Store(true)
	c.leaving = err != nil && !c.failing() && c.mode == modePlain && !e.s.draining.Load()
	switch {
	case err == nil:
		err = ErrShutdown
	case errors.Is(err, io.EOF):
		err = ErrPeerClosed
	default:
		err = fmt.Errorf("%w: %w", ErrPeerClosed, err)
	}
	c.setCause(err)
	c.stalled = false
	if l.nested == 1 { // else a frame is being served: what is behind it comes first
		c.readRest()
	}
	c.release()
	if !c.isReady {
		c.isReady = true
		l.ready = append(l.ready, c)
	}
	if l.nested == 1 {
		l.round()
	}
	l.leave()
	return gnet.None
}

// readRest takes what the peer sent before it closed the connection, where
// gnet has met its end by a write and not by a read.
func (c *Conn) readRest() {
	for buf := make([]byte, readBytes); c.leaving; {
		n := readNow(c.fd, buf)
		if n <= 0 {
			return
		}
		c.loop.stats.bytesIn.Add(int64(n))
		c.raw(buf[:n])
	}
}

// release gives back what the connection holds for its socket, which is closed.
func (c *Conn) release() {
	l := c.loop
	c.endTransform()
	l.remove(c)
	l.buffers.put(c.out)
	c.out, c.outbound = nil, 0
	c.account()
	c.srv.conns.Add(-1)
	l.stats.closedBy(c.cause.Load().err)
}

// part has the handler told that a closed connection is gone, once all that its
// peer sent is served. It follows each turn of its held back frames.
func (c *Conn) part() {
	if !c.closed.Load() || c.parted || c.leaving && (c.isReady || c.suspended) {
		return
	}
	c.parted, c.leaving = true, false
	// c.in is left to the collector: it may hold the request being served.
	c.in, c.inOff = nil, 0
	c.account()
	c.loop.gone = append(c.loop.gone, c)
}
