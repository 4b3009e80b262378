package netloop

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/ringmq/ringmq/internal/vfs"
)

const haveSendfile = true

// writeNow writes as much as the socket takes, 0 when it takes nothing now;
// more tells it that more follows at once.
func writeNow(fd int, b []byte, more bool) (n int, err error) {
	for {
		if more {
			n, err = unix.SendmsgN(fd, b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL|unix.MSG_MORE)
		} else {
			n, err = unix.Write(fd, b)
		}
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, nil
		default:
			return max(n, 0), err
		}
	}
}

// writeMore writes what has been gathered and tells the kernel that more
// follows at once, so that a header does not travel in a packet of its own.
// What the socket does not take goes the common way. False: the connection is
// closing.
func (c *Conn) writeMore() bool {
	out := c.takeOut()
	defer c.loop.buffers.put(out)
	if len(out) == 0 {
		return true
	}
	n, err := writeNow(c.fd, out, true)
	if err != nil {
		c.lose("sendmsg", err)
		return false
	}
	c.wrote(n)
	if n < len(out) {
		c.writeRaw(out[n:])
	}
	return !c.failing() && !c.mute
}

// sendRange sends as much of r as the socket takes and leaves in r what it
// does not; nothing when bytes wait in the outbound buffer already.
func (c *Conn) sendRange(r *vfs.Range, fd int) bool {
	for r.Len > 0 && c.outbound == 0 {
		off := r.Off
		n, err := unix.Sendfile(c.fd, fd, &off, r.Len)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return true
		case err != nil:
			c.lose("sendfile", err)
			return false
		case n == 0:
			c.unreadable(*r, io.ErrUnexpectedEOF)
			return false
		}
		c.wrote(n)
		c.loop.stats.sentFile.Add(int64(n))
		r.Off += int64(n)
		r.Len -= n
	}
	c.lastTick.Store(c.srv.tick.Load())
	return true
}
