//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringmq/ringmq/remoting"
)

// conn is one connection. It belongs to the loop's goroutine.
type conn struct {
	fd  int
	id  int
	in  []byte // in[r:w] is read and not yet consumed
	r   int
	w   int
	out []byte // out[o:] is to be written
	o   int

	dirty   bool // in loop.dirty
	waiting bool // EPOLLOUT is armed
	slots   slots
}

// driver decides what a load does. Its methods run on the loop's goroutine.
type driver interface {
	// tick may append frames (loop.send) and returns when it wants to run again
	// at the latest, in nanoseconds since the loop's start.
	tick(l *loop, now int64) (next int64)
	// frame gets one whole answer, valid until it returns.
	frame(l *loop, c *conn, f []byte, now int64) error
}

// loop owns the connections of one load.
type loop struct {
	ep     int
	conns  []*conn
	dirty  []*conn
	start  time.Time
	events [128]unix.EpollEvent
}

// readBytes is the size of a connection's read buffer at first; it grows to hold
// the largest answer.
const readBytes = 128 << 10

func newLoop() (*loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("bench: epoll: %w", err)
	}
	return &loop{ep: ep, start: time.Now()}, nil
}

// now is nanoseconds since the loop's start.
func (l *loop) now() int64 { return int64(time.Since(l.start)) }

// dial adds a connection.
func (l *loop) dial(addr netip.AddrPort) (*conn, error) {
	family, sa := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(addr.Port()), Addr: as4(addr.Addr())})
	if addr.Addr().Is6() && !addr.Addr().Is4In6() {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("bench: socket: %w", err)
	}
	c := &conn{fd: fd, id: len(l.conns), in: make([]byte, readBytes)}
	err = unix.Connect(fd, sa)
	if err == nil {
		err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetNonblock(fd, true),
			unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.id)}))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: connect to %v: %w", addr, err), unix.Close(fd))
	}
	l.conns = append(l.conns, c)
	return c, nil
}

func as4(a netip.Addr) [4]byte {
	if a.Is4() || a.Is4In6() {
		return a.Unmap().As4()
	}
	return [4]byte{}
}

// send marks c as having frames in c.out.
func (l *loop) send(c *conn) {
	if !c.dirty {
		c.dirty = true
		l.dirty = append(l.dirty, c)
	}
}

// run drives d until it asks for the end (tick returns a negative time), an error
// comes, or ctx is done.
func (l *loop) run(ctx context.Context, d driver) error {
	for round := 0; ; round++ {
		if round&1023 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		now := l.now()
		next := d.tick(l, now)
		if next < 0 {
			return nil
		}
		if err := l.flush(); err != nil {
			return err
		}
		n, err := l.wait(max(next-now, 0))
		if err != nil {
			return err
		}
		for i := range l.events[:n] {
			e := &l.events[i]
			c := l.conns[e.Fd]
			if e.Events&unix.EPOLLOUT != 0 {
				l.send(c)
			}
			if e.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
				if err := l.read(c, d); err != nil {
					return fmt.Errorf("bench: connection %d: %w", c.id, err)
				}
			}
		}
		if err := l.flush(); err != nil {
			return err
		}
	}
}

// wait is epoll_pwait2: the millisecond of epoll_wait is too coarse for an open
// loop.
func (l *loop) wait(nanos int64) (int, error) {
	ts := unix.NsecToTimespec(min(nanos, int64(100*time.Millisecond)))
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.ep), uintptr(unsafe.Pointer(&l.events[0])),
		uintptr(len(l.events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno == unix.EINTR {
		return 0, nil
	}
	if errno != 0 {
		return 0, fmt.Errorf("bench: epoll_pwait2: %w", errno)
	}
	return int(n), nil
}

// read reads once and hands every whole frame to d.
func (l *loop) read(c *conn, d driver) error {
	n, err := unix.Read(c.fd, c.in[c.w:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("closed by the peer: %w", io.EOF)
	}
	c.w += n
	now := l.now()
	for c.r < c.w {
		total, ok, err := remoting.FrameSize(c.in[c.r:c.w], remoting.MaxFrameBytes)
		if err != nil {
			return err
		}
		if !ok || c.w-c.r < total {
			c.makeRoom(total)
			return nil
		}
		if err := d.frame(l, c, c.in[c.r:c.r+total], now); err != nil {
			return err
		}
		c.r += total
	}
	c.r, c.w = 0, 0
	return nil
}

// makeRoom moves the start of an unfinished frame to the front and sees that
// total bytes fit behind it.
func (c *conn) makeRoom(total int) {
	if total > len(c.in) {
		in := make([]byte, total+readBytes)
		c.w = copy(in, c.in[c.r:c.w])
		c.in, c.r = in, 0
		return
	}
	if c.r > 0 && len(c.in)-c.r < max(total, len(c.in)/2) {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
}

// flush writes what the dirty connections have, one write each.
func (l *loop) flush() error {
	for _, c := range l.dirty {
		c.dirty = false
		for c.o < len(c.out) {
			n, err := unix.Write(c.fd, c.out[c.o:])
			if err == unix.EINTR {
				continue
			}
			if err != nil && err != unix.EAGAIN {
				return fmt.Errorf("bench: connection %d: write: %w", c.id, err)
			}
			if n <= 0 {
				break
			}
			c.o += n
		}
		if c.o == len(c.out) {
			c.out, c.o = c.out[:0], 0
		}
		if full := len(c.out) > 0; full != c.waiting {
			c.waiting = full
			e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.id)}
			if full {
				e.Events |= unix.EPOLLOUT
			}
			if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_MOD, c.fd, &e); err != nil {
				return fmt.Errorf("bench: epoll_ctl: %w", err)
			}
		}
	}
	l.dirty = l.dirty[:0]
	return nil
}

func (l *loop) close() error {
	var errs []error
	for _, c := range l.conns {
		errs = append(errs, unix.Close(c.fd))
	}
	return errors.Join(append(errs, unix.Close(l.ep))...)
}

// slots gives each request in flight on a connection a number, which is its
// opaque, and keeps its start time.
type slots struct {
	from []int64 // start time, -1 when free
	free []int32
}

// take returns a free slot with its start time set.
func (s *slots) take(start int64) int32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		s.from[i] = start
		return i
	}
	s.from = append(s.from, start)
	return int32(len(s.from) - 1)
}

// done frees a slot and returns its start time.
func (s *slots) done(i int32) (start int64, err error) {
	if i < 0 || int(i) >= len(s.from) || s.from[i] < 0 {
		return 0, fmt.Errorf("answer to a request that is not in flight: %d", i)
	}
	start = s.from[i]
	s.from[i] = -1
	s.free = append(s.free, i)
	return start, nil
}

// inFlight counts the slots taken.
func (s *slots) inFlight() int { return len(s.from) - len(s.free) }
