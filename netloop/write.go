package netloop

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/ringmq/ringmq/internal/vfs"
)

const (
	// gatherBytes: answers gathered beyond it are written before the next
	// frame is served.
	gatherBytes = 64 << 10
	// chunkBytes is the most that gnet is given at once: it keeps what the
	// socket does not take in pieces whose size is a power of two.
	chunkBytes = 64 << 10
	// copyBytes is the piece by which ranges of files are copied.
	copyBytes = 64 << 10
)

// Out returns the connection's gather buffer, for a whole frame to be appended
// and the result given to SetOut:
//
//	c.SetOut(remoting.AppendReply(c.Out(), to, code, remark, fields, body))
//
// What has been gathered is written once, at the end of the current callback,
// or when gatherBytes are passed.
func (c *Conn) Out() []byte {
	c.claim()
	if c.out == nil {
		c.out = c.loop.buffers.get()
	}
	return c.out
}

// SetOut takes back the buffer of Out with one frame appended.
func (c *Conn) SetOut(buf []byte) {
	if c.silent() {
		c.loop.buffers.put(buf)
		c.out = nil
		return
	}
	c.out = buf
	c.replies++
	if !c.isDirty {
		c.isDirty = true
		c.loop.dirty = append(c.loop.dirty, c)
		if c.loop.nested == 0 {
			c.loop.wake()
		}
	}
}

// flush writes what has been gathered.
func (c *Conn) flush() {
	c.isDirty = false
	out := c.takeOut()
	if len(out) > 0 {
		c.write(out)
	}
	c.loop.buffers.put(out)
}

// takeOut takes the gather buffer and counts its frames.
func (c *Conn) takeOut() []byte {
	out := c.out
	c.out = nil
	if c.replies > 0 {
		c.loop.stats.replies.Add(int64(c.replies))
		c.replies = 0
	}
	return out
}

// write hands bytes to the socket, in order, through the Transform if there is
// one; what the socket does not take is copied. It may close the connection.
func (c *Conn) write(b []byte) {
	if c.silent() {
		return
	}
	if c.tunnel != nil {
		c.tunnel.send(b)
		return
	}
	c.writeRaw(b)
}

func (c *Conn) writeRaw(b []byte) {
	if c.silent() || !c.mayAdd(len(b)) {
		return
	}
	c.wrote(len(b))
	c.lastTick.Store(c.srv.tick.Load())
	if c.outbound > 0 {
		c.sawOutbound()
	}
	// gnet is given only what the socket does not take: it would close the
	// connection where a write fails (see lose).
	if c.outbound == 0 && c.fd >= 0 {
		n, err := writeNow(c.fd, b, false)
		if err != nil {
			c.lose("write", err)
			return
		}
		b = b[n:]
	}
	for len(b) > 0 {
		n := min(len(b), chunkBytes)
		if _, err := c.gc.Write(b[:n]); err != nil {
			return // gnet has closed the connection: OnClose was called
		}
		b = b[n:]
	}
	c.sawOutbound()
}

// lose follows a write that failed. The peer has closed the connection, and may
// have sent something before it did: a consumer commits its offsets, one-way,
// and leaves. That stands in the socket, and closing it now would throw it
// away. So the connection falls silent, and ends when it is read to its end.
func (c *Conn) lose(op string, err error) {
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		c.fail(fmt.Errorf("%w: %s: %w", ErrPeerClosed, op, err))
		return
	}
	c.claim()
	c.mute = true
	c.loop.buffers.put(c.takeOut())
}

// wrote counts bytes that are on their way.
func (c *Conn) wrote(n int) {
	c.loop.written += n
	c.loop.stats.bytesOut.Add(int64(n))
}

// SendBytes sends head and body as one frame behind what has been gathered,
// without gathering them: for large bodies that are in memory already. Both
// are the caller's again when it returns.
func (c *Conn) SendBytes(head, body []byte) {
	if c.silent() {
		return
	}
	c.SetOut(append(c.Out(), head...))
	if len(body) < gatherBytes {
		c.out = append(c.out, body...)
		c.pace()
		return
	}
	c.flush()
	c.write(body)
	c.pace()
}

// SendCopy sends a frame whose body is made of ranges of files: for small,
// scattered ranges, and for files without a descriptor. They leave by one
// writev from the files' mappings where there are any, else they are read into
// the gather buffer. head must announce as many bytes as the ranges have. A range
// that cannot be read closes the connection, as the frame is begun by then.
// The ranges are needed until it returns; it may wait for a disk where they
// are not in memory.
func (c *Conn) SendCopy(head []byte, rs []vfs.Range) {
	if c.silent() || c.sendMapped(head, rs) {
		return
	}
	c.SetOut(append(c.Out(), head...))
	for _, r := range rs {
		if !c.copyRange(r) {
			return
		}
	}
	c.pace()
}

// SendFile sends a frame whose body is made of ranges of files, by sendfile:
// for long ranges that are in memory. What has been gathered and head leave
// with the first of them. A rest that the socket does not take is read into
// the outbound buffer, within its bound; under a Transform, behind bytes that
// the peer has not read yet, and for files without a descriptor it does as
// SendCopy, whose other words hold here too.
func (c *Conn) SendFile(head []byte, rs []vfs.Range) {
	if c.silent() {
		return
	}
	if c.outbound > 0 {
		c.sawOutbound()
	}
	if c.tunnel != nil || c.outbound > 0 || !haveSendfile {
		c.SendCopy(head, rs)
		return
	}
	c.SetOut(append(c.Out(), head...))
	for _, r := range rs {
		if fd, ok := r.File.Fd(); ok && c.outbound == 0 {
			if !c.writeMore() || !c.sendRange(&r, fd) {
				return
			}
		}
		if r.Len > 0 && !c.copyRange(r) {
			return
		}
	}
	c.pace()
}

// unreadable closes the connection in the middle of a frame.
func (c *Conn) unreadable(r vfs.Range, err error) {
	c.fail(fmt.Errorf("reading %s at %d, %d bytes: %w", r.File.Name(), r.Off, r.Len, err))
	c.srv.log.warn(logRead, "connection closed: a file could not be read",
		"remote", c.remote, "file", r.File.Name(), "offset", r.Off, "bytes", r.Len, "error", err)
}

// copyRange reads a range into the gather buffer, writing it as it fills.
func (c *Conn) copyRange(r vfs.Range) bool {
	for r.Len > 0 {
		n := min(r.Len, copyBytes)
		out := c.Out()
		at := len(out)
		out = grow(out, n)[:at+n]
		if _, err := r.File.ReadAt(out[at:], r.Off); err != nil {
			c.unreadable(r, err)
			return false
		}
		c.out = out
		r.Off += int64(n)
		r.Len -= n
		if len(out) >= gatherBytes {
			c.flush()
		}
		if c.failing() || c.mute {
			return false
		}
	}
	return true
}

func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	g := make([]byte, len(b), max(2*cap(b), len(b)+n))
	copy(g, b)
	return g
}

// Send copies a whole frame and has it written by the loop, behind what was
// sent before. Any goroutine; it does not block. Frames sent from many
// goroutines to many connections of a loop share one wake-up.
func (c *Conn) Send(frame []byte) {
	if c.closed.Load() {
		return
	}
	n, cfg := int64(len(frame)), &c.srv.cfg
	if waiting := c.posted.Add(n); waiting > cfg.ConnOutboundBytesMax {
		c.overBound("bytes sent and not written", cfg.Keys.ConnOutboundBytesMax, waiting, cfg.ConnOutboundBytesMax)
	}
	if total := c.srv.total.Add(n); total > cfg.TotalBytesMax {
		c.overBound("bytes waiting on all connections", cfg.Keys.TotalBytesMax, total, cfg.TotalBytesMax)
	}
	if c.failing() {
		c.posted.Add(-n)
		c.srv.total.Add(-n)
		return
	}
	t := sendTasks.Get().(*sendTask)
	t.c, t.buf = c, append(t.buf[:0], frame...)
	c.loop.Post(t)
}

// sendTask carries a frame of Send to the loop.
type sendTask struct {
	c   *Conn
	buf []byte
}

var sendTasks = sync.Pool{New: func() any { return new(sendTask) }}

func (t *sendTask) RunOnLoop(*Loop) {
	c, n := t.c, int64(len(t.buf))
	c.posted.Add(-n)
	c.srv.total.Add(-n)
	if !c.closed.Load() {
		c.SendBytes(t.buf, nil)
	}
	t.c = nil
	if cap(t.buf) <= copyBytes {
		sendTasks.Put(t)
	}
}
