package netloop

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringmq/ringmq/internal/vfs"
)

// iovMax is the most pieces that one writev takes.
const iovMax = 1024

// gather is what sendMapped needs of a loop: the pieces of one write.
type gather struct{ iov []unix.Iovec }

func (g *gather) add(b []byte) {
	if len(b) > 0 {
		g.iov = append(g.iov, unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))})
	}
}

// sendMapped writes what has been gathered, head and the ranges by one writev
// from the files' mappings: small scattered records then cost no read each. It
// says false, with nothing done, where that can't be: the caller copies. What
// the socket does not take is read into the outbound buffer.
func (c *Conn) sendMapped(head []byte, rs []vfs.Range) bool {
	if c.tunnel != nil || c.outbound > 0 || len(rs)+2 > iovMax {
		return false
	}
	c.claim()
	g := &c.loop.gather
	g.iov = g.iov[:0]
	g.add(c.out)
	g.add(head)
	for i := range rs {
		m, r := rs[i].File.Map(), &rs[i]
		if r.Off < 0 || r.Off+int64(r.Len) > int64(len(m)) {
			return false
		}
		g.add(m[r.Off:][:r.Len])
	}
	n, err := writev(c.fd, g.iov)
	clear(g.iov)
	if err == unix.EFAULT { // a page that can't be read: reading the file says why
		return false
	}
	if err != nil {
		c.lose("writev", err)
		return true
	}
	out := c.takeOut()
	c.loop.stats.replies.Add(1)
	c.wrote(n)
	c.lastTick.Store(c.srv.tick.Load())
	c.sendRest(n, out, head, rs)
	c.loop.buffers.put(out)
	c.pace()
	return true
}

// sendRest has what is behind the first n bytes of out, head and rs written the
// common way.
func (c *Conn) sendRest(n int, out, head []byte, rs []vfs.Range) {
	for _, b := range [2][]byte{out, head} {
		if n < len(b) {
			c.SetOut(append(c.Out(), b[n:]...))
			c.replies-- // counted already
		}
		n = max(0, n-len(b))
	}
	for _, r := range rs {
		if n >= r.Len {
			n -= r.Len
			continue
		}
		r.Off, r.Len = r.Off+int64(n), r.Len-n
		n = 0
		c.SetOut(c.Out())
		c.replies--
		if !c.copyRange(r) {
			return
		}
	}
}

// writev writes as much of the pieces as the socket takes, 0 when it takes
// nothing now.
func writev(fd int, iov []unix.Iovec) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, nil
		default:
			return 0, errno
		}
	}
}
