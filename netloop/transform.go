package netloop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Transform stands between the socket and the frames of a connection whose
// first bytes it knows, such as TLS. It runs in a goroutine of its own over a
// pipe in memory, so that nothing it waits for stops a loop.
type Transform interface {
	// Name is for log lines.
	Name() string
	// Match judges the first bytes of a connection, at least one. Any loop.
	Match(first []byte) Verdict
	// Wrap returns the connection as the frames see it. raw is the peer's
	// side: its reads wait for the peer, its writes never block, and its
	// deadlines are not supported. The result is read by one goroutine, which
	// also called Wrap and may wait there for a handshake; its Write is
	// called on the loop, so it must not block once a first read has returned
	// (crypto/tls does not); its Close may write a farewell.
	Wrap(raw net.Conn) (net.Conn, error)
}

// Verdict is what a Transform says to the first bytes of a connection.
type Verdict uint8

// Verdicts of Match.
const (
	NotMine  Verdict = iota
	NeedMore         // more bytes are needed to tell
	Mine
)

// firstBytesMax bounds what a Transform may wait for before it decides.
const firstBytesMax = 512

// raw takes bytes as they come from the socket.
func (c *Conn) raw(data []byte) {
	switch c.mode {
	case modePlain:
		c.receive(data)
	case modeTransform:
		c.tunnel.feed(data)
	default:
		c.choose(data)
	}
}

// choose decides what the connection is. A frame begins with a zero byte as
// long as frames are smaller than 16 MiB, which no other protocol does.
func (c *Conn) choose(data []byte) {
	if len(c.in) > 0 { // a Transform wanted more
		c.in = append(c.in, data...)
		data = c.in
		c.in = nil
	}
	if data[0] != 0 {
		for _, t := range c.srv.cfg.Transforms {
			switch v := t.Match(data); {
			case v == Mine:
				c.mode = modeTransform
				c.tunnel = newTunnel(c, t)
				c.tunnel.feed(data)
				return
			case v == NeedMore && len(data) < firstBytesMax:
				c.in = append([]byte(nil), data...)
				return
			}
		}
	}
	c.mode = modePlain
	c.receive(data)
}

// tunnel is a connection under a Transform:
//
//	socket ─feed─▶ in ─Read─▶ Transform ─▶ plain ─pass─▶ Conn.receive
//	socket ◀─RunOnLoop─ out ◀─Write─ Transform ◀─ send ─ Conn.write
//
// It is the raw net.Conn that the Transform sees, and the task that takes to
// the loop what the goroutine has made. The loop feeds and sends; the
// goroutine reads the plain side and hands one chunk at a time to the loop,
// waiting until it is taken, so that what is not decoded piles up in in, where
// it is bounded.
type tunnel struct {
	c    *Conn
	t    Transform
	once sync.Once // ends it

	mu     sync.Mutex
	moved  sync.Cond // something below has changed
	in     []byte    // from the peer, for Read
	out    []byte    // from Write, for the peer
	chunk  []byte    // plain bytes for the frames; nil: none wait
	plain  net.Conn  // nil until Wrap has returned
	posted bool      // the task is on its way
	ended  bool
}

func newTunnel(c *Conn, t Transform) *tunnel {
	x := &tunnel{c: c, t: t}
	x.moved.L = &x.mu
	c.srv.tunnels.Add(1)
	go x.run()
	return x
}

// run is the tunnel's goroutine.
func (x *tunnel) run() {
	defer x.c.srv.tunnels.Done()
	plain, err := x.t.Wrap(x)
	if err == nil {
		x.mu.Lock()
		x.plain = plain
		x.mu.Unlock()
		err = x.pump(plain)
	}
	switch {
	case errors.Is(err, io.EOF):
		err = ErrPeerClosed
	case errors.Is(err, net.ErrClosed):
		err = ErrClosed // the loop has ended it
	default:
		err = fmt.Errorf("%w: %s: %w", ErrProtocol, x.t.Name(), err)
	}
	x.c.Close(err)
}

func (x *tunnel) pump(plain net.Conn) error {
	buf := make([]byte, readBytes/2)
	for {
		n, err := plain.Read(buf)
		if n > 0 && !x.pass(buf[:n]) {
			return net.ErrClosed
		}
		if err != nil {
			return err
		}
	}
}

// pass has the loop take plain bytes and waits until it has.
func (x *tunnel) pass(b []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.chunk = b
	x.postLocked()
	for x.chunk != nil && !x.ended {
		x.moved.Wait()
	}
	return !x.ended
}

func (x *tunnel) postLocked() {
	if !x.posted {
		x.posted = true
		x.c.loop.Post(x)
	}
}

// RunOnLoop writes what the Transform wrote and takes the plain bytes it read.
func (x *tunnel) RunOnLoop(*Loop) {
	x.mu.Lock()
	x.posted = false
	out, chunk := x.out, x.chunk
	x.out = nil
	x.mu.Unlock()
	if len(out) > 0 {
		x.c.writeRaw(out)
	}
	if len(chunk) > 0 && !x.c.failing() {
		x.c.receive(chunk)
	}
	x.mu.Lock()
	if len(chunk) > 0 {
		x.chunk = nil
		x.moved.Broadcast()
	}
	x.mu.Unlock()
}

// feed gives the Transform bytes of the peer. On the loop.
func (x *tunnel) feed(data []byte) {
	x.mu.Lock()
	held, limit := int64(len(x.in)+len(data)), x.c.srv.cfg.ConnInboundBytesMax
	if held <= limit && !x.ended {
		x.in = append(x.in, data...)
		x.moved.Broadcast()
	}
	x.mu.Unlock()
	if held > limit {
		x.c.overBound("bytes received and not decoded", x.c.srv.cfg.Keys.ConnInboundBytesMax, held, limit)
	}
}

// send gives the Transform an answer to write. On the loop.
func (x *tunnel) send(b []byte) {
	x.mu.Lock()
	plain := x.plain
	x.mu.Unlock()
	if plain == nil || !x.c.mayAdd(len(b)) {
		return // no frame has come yet, so nobody waits for an answer
	}
	if _, err := plain.Write(b); err != nil {
		x.c.fail(fmt.Errorf("%w: %s: %w", ErrProtocol, x.t.Name(), err))
	}
}

// endTransform lets the Transform say its farewell and its goroutine end. On
// the loop.
func (c *Conn) endTransform() {
	x := c.tunnel
	if x == nil {
		return
	}
	x.once.Do(func() {
		x.mu.Lock()
		plain := x.plain
		x.mu.Unlock()
		if plain != nil && !c.closed.Load() {
			_ = plain.Close()
		}
		x.mu.Lock()
		out := x.out
		x.out, x.in, x.ended = nil, nil, true
		x.moved.Broadcast()
		x.mu.Unlock()
		if len(out) > 0 {
			c.writeRaw(out)
		}
	})
}

// Read, Write and the rest make the tunnel the raw net.Conn of the Transform.

// Read waits for bytes of the peer.
func (x *tunnel) Read(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.in) == 0 {
		if x.ended {
			return 0, net.ErrClosed
		}
		x.moved.Wait()
	}
	n := copy(p, x.in)
	x.in = x.in[:copy(x.in, x.in[n:])]
	if len(x.in) == 0 && cap(x.in) > readBytes {
		x.in = nil
	}
	return n, nil
}

// Write queues bytes for the peer. All of them take this way, also those the
// loop itself writes: their order is the order of the Transform's writes.
func (x *tunnel) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return 0, net.ErrClosed
	}
	x.out = append(x.out, p...)
	x.postLocked()
	return len(p), nil
}

// Close ends nothing by itself: the connection is closed by its loop.
func (x *tunnel) Close() error { return nil }

// LocalAddr is the address the peer connected to.
func (x *tunnel) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(x.c.local) }

// RemoteAddr is the peer's address.
func (x *tunnel) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(x.c.remote) }

// SetDeadline does nothing, as do the other two.
func (x *tunnel) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (x *tunnel) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (x *tunnel) SetWriteDeadline(time.Time) error { return nil }
