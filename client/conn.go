// Package client answers: how does a program of ours talk to a RocketMQ
// server?
//
// Conn is one connection that many goroutines share: requests and answers are
// paired by opaque, writes of many callers leave together, and requests of the
// server come to a handler. Conns keeps one Conn for each address.
//
// Goroutines: each Conn has a reader and a writer, Conns one more for each
// address while it dials. Close waits for them.
//
//	Call, Go, Oneway ─append─▶ out ─writer─▶ socket
//	     done(resp)  ◀─pending[opaque]─ reader ◀─ socket
//	     OnRequest   ◀──────────────────┘
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

var (
	// ErrClosed: the connection was closed by this side.
	ErrClosed = errors.New("client: connection is closed")
	// ErrLost: the connection broke or the server closed it. It wraps the cause.
	ErrLost = errors.New("client: connection is lost")
	// ErrBusy: too many bytes or requests wait on the connection already.
	ErrBusy = errors.New("client: connection is busy")
)

// Options of a Conn. Zero values mean the default.
type Options struct {
	// ConnectTimeout bounds Dial, besides its context. Default 3 s.
	ConnectTimeout time.Duration
	// FrameBytesMax bounds a frame in either direction. Default and upper
	// bound: remoting.MaxFrameBytes.
	FrameBytesMax int
	// WriteBytesMax bounds the bytes that wait to be written; beyond it a
	// request is refused with ErrBusy. Default 64 MiB.
	WriteBytesMax int
	// PendingMax bounds the requests without an answer. Default 65,536.
	PendingMax int
	// OnRequest gets the server's requests, on the reader's goroutine: it must
	// not wait for an answer on this connection. req and its slices are valid
	// until it returns. Answer with Send. Default: they are ignored.
	OnRequest func(c *Conn, req *remoting.Command)
	// OnClose is called once, when the connection has ended, after the last
	// pending request was told; on the reader's goroutine. cause is never nil.
	OnClose func(c *Conn, cause error)
}

// Defaults of Options.
const (
	DefaultConnectTimeout = 3 * time.Second
	DefaultWriteBytesMax  = 64 << 20
	DefaultPendingMax     = 65_536
)

func (o *Options) setDefaults() {
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = DefaultConnectTimeout
	}
	if o.FrameBytesMax <= 0 || o.FrameBytesMax > remoting.MaxFrameBytes {
		o.FrameBytesMax = remoting.MaxFrameBytes
	}
	if o.WriteBytesMax <= 0 {
		o.WriteBytesMax = DefaultWriteBytesMax
	}
	if o.PendingMax <= 0 {
		o.PendingMax = DefaultPendingMax
	}
}

// Done is told how a request of Go ended: resp, valid until it returns, or err.
// It runs on the reader's goroutine and must not block.
type Done func(resp *remoting.Command, err error)

// Conn is one connection to a server. Its methods may be called from any
// goroutine.
type Conn struct {
	opt  Options
	nc   net.Conn
	wg   sync.WaitGroup // reader and writer
	done chan struct{}  // closed when the connection has ended

	mu      sync.Mutex
	opaque  int32
	pending map[int32]Done
	out     []byte    // whole frames, to be written
	more    sync.Cond // out has grown, or the connection has ended
	cause   error     // why it ended; nil while it lives
}

// Dial connects to addr, host:port.
func Dial(ctx context.Context, addr string, opt Options) (*Conn, error) {
	opt.setDefaults()
	d := net.Dialer{Timeout: opt.ConnectTimeout, KeepAlive: -1} // heartbeats are the protocol's own matter
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("client: cannot connect: %w", err)
	}
	return NewConn(nc, opt), nil
}

// NewConn speaks over a connection made elsewhere, which it owns from here on.
func NewConn(nc net.Conn, opt Options) *Conn {
	opt.setDefaults()
	c := &Conn{opt: opt, nc: nc, done: make(chan struct{}), pending: make(map[int32]Done)}
	c.more.L = &c.mu
	c.wg.Go(c.read)
	c.wg.Go(c.write)
	return c
}

// RemoteAddr is the server's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// LocalAddr is this side's address, as the server sees it where no one
// translates addresses.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// Ended is closed once the connection has ended.
func (c *Conn) Ended() <-chan struct{} { return c.done }

// Err is nil while the connection lives, then why it ended.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// Call sends a request and waits for its answer, which the caller owns. An
// answer of any code is an answer: see remoting.ResponseCode. req is changed
// (Opaque, Flag) and read only until the call has queued it. When ctx ends
// first, the connection stays and a later answer is dropped.
func (c *Conn) Call(ctx context.Context, req *remoting.Command) (*remoting.Command, error) {
	w := waiters.Get().(*waiter)
	opaque, err := c.Go(req, w.done)
	if err != nil {
		waiters.Put(w)
		return nil, err
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		if c.Forget(opaque) {
			waiters.Put(w)
			return nil, fmt.Errorf("client: no answer of %s to request %d: %w", c.nc.RemoteAddr(), req.Code, ctx.Err())
		}
		<-w.ready // it is just being delivered
	}
	resp, err := w.resp, w.err
	w.resp, w.err = nil, nil
	waiters.Put(w)
	return resp, err
}

// waiter is what a Call waits on.
type waiter struct {
	ready chan struct{} // one token when resp and err are set
	done  Done
	resp  *remoting.Command
	err   error
}

var waiters = sync.Pool{New: func() any {
	w := &waiter{ready: make(chan struct{}, 1)}
	w.done = func(resp *remoting.Command, err error) {
		if w.err = err; resp != nil {
			w.resp = resp.Clone()
		}
		w.ready <- struct{}{}
	}
	return w
}}

// Go sends a request and returns at once; done is called exactly once, unless
// Forget was faster or Go itself returns an error. It gives req an Opaque and
// is finished with req when it returns.
func (c *Conn) Go(req *remoting.Command, done Done) (opaque int32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) >= c.opt.PendingMax {
		return 0, fmt.Errorf("%w: requests without an answer: got %d, limit %d", ErrBusy, len(c.pending), c.opt.PendingMax)
	}
	for taken := true; taken; _, taken = c.pending[c.opaque] {
		c.opaque++ // may wrap to the one of a request that is still open
	}
	req.Opaque = c.opaque
	req.Flag &^= remoting.FlagResponse | remoting.FlagOneway
	if err := c.queueLocked(req, nil); err != nil {
		return 0, err
	}
	c.pending[req.Opaque] = done
	return req.Opaque, nil
}

// Forget drops the interest in an answer. False: done was or is being called.
func (c *Conn) Forget(opaque int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pending[opaque]
	delete(c.pending, opaque)
	return ok
}

// Oneway sends a request that the server does not answer. It does not wait for
// it to be written.
func (c *Conn) Oneway(req *remoting.Command) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opaque++
	req.Opaque = c.opaque
	req.Flag = req.Flag&^remoting.FlagResponse | remoting.FlagOneway
	return c.queueLocked(req, nil)
}

// Send sends a whole frame as it is, such as an answer to a request of the
// server's. The frame is the caller's again when it returns.
func (c *Conn) Send(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queueLocked(nil, frame)
}

// queueLocked appends a command, or a frame, for the writer.
func (c *Conn) queueLocked(cmd *remoting.Command, frame []byte) error {
	if c.cause != nil {
		return c.cause
	}
	at := len(c.out)
	if at >= c.opt.WriteBytesMax {
		return fmt.Errorf("%w: bytes to be written to %s: got %d, limit %d", ErrBusy, c.nc.RemoteAddr(), at, c.opt.WriteBytesMax)
	}
	if cmd != nil {
		c.out = remoting.Append(c.out, cmd)
	} else {
		c.out = append(c.out, frame...)
	}
	if n := len(c.out) - at; n > c.opt.FrameBytesMax {
		c.out = c.out[:at]
		return fmt.Errorf("client: frame too large: got %d bytes, limit %d", n, c.opt.FrameBytesMax)
	}
	if at == 0 {
		c.more.Signal()
	}
	return nil
}

// Close ends the connection: requests without an answer end with ErrClosed.
// It waits for the goroutines, so it must not be called from OnRequest,
// OnClose or a Done; those use CloseLater.
func (c *Conn) Close() {
	c.end(ErrClosed)
	c.wg.Wait()
}

// CloseLater is Close without the waiting.
func (c *Conn) CloseLater() { c.end(ErrClosed) }

// end gives the connection its cause, once, and stops both goroutines.
func (c *Conn) end(cause error) {
	c.mu.Lock()
	first := c.cause == nil
	if first {
		c.cause = cause
		c.more.Signal()
	}
	c.mu.Unlock()
	if first {
		_ = c.nc.Close() // the reader returns
	}
}

// lost is end for an error of the socket.
func (c *Conn) lost(err error) {
	c.end(fmt.Errorf("%w: %s: %w", ErrLost, c.nc.RemoteAddr(), err))
}
