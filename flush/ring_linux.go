package flush

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	iouring "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"

	"github.com/ringmq/ringmq/internal/vfs"
)

// iovMax is IOV_MAX, the most buffers one write takes.
const iovMax = 1024

// ringDevice is the Device over io_uring: a ring for the writer and one for the
// flusher, so that neither waits for the other's completions and each ring has
// one owner at a time.
//
// iouring-go's root package does not link with this Go (it reaches into package
// syscall by linkname); its sub-package of calls and types does, and the few
// lines of ring that a single owner needs are here.
type ringDevice struct {
	write ring
	sync  ring
	// iov is the writer's: the kernel reads it while a write runs.
	iov []unix.Iovec
	// owed are the flusher's: the files whose sync the ring did not do.
	owed []vfs.File
}

// NewRing opens the io_uring Device, with entries submissions a ring at most;
// 0 is DefaultRingEntries. The error wraps ErrRingUnavailable and says why.
func NewRing(entries int) (Device, error) {
	if entries <= 0 {
		entries = DefaultRingEntries
	}
	d := &ringDevice{}
	if err := d.write.open(uint(entries)); err != nil {
		return nil, err
	}
	if err := d.sync.open(uint(entries)); err != nil {
		d.write.close()
		return nil, err
	}
	return d, nil
}

func (d *ringDevice) Name() string { return EngineRing }

func (d *ringDevice) Close() error {
	return errors.Join(d.write.close(), d.sync.close())
}

// WriteV implements Device. What the ring leaves undone, because an operation
// ended short, was cancelled, interrupted or found no memory, plain system
// calls finish before it returns.
func (d *ringDevice) WriteV(f vfs.File, bufs [][]byte, off int64) error {
	fd, ok := f.Fd()
	if !ok || len(bufs) == 0 || len(bufs) > iovMax {
		return f.WriteVAt(bufs, off)
	}
	d.iov = d.iov[:0]
	total := 0
	for _, b := range bufs {
		if len(b) > 0 {
			v := unix.Iovec{Base: &b[0]}
			v.SetLen(len(b))
			d.iov = append(d.iov, v)
			total += len(b)
		}
	}
	if total == 0 {
		return nil
	}
	d.write.mu.Lock()
	sqe := d.write.next()
	sqe.PrepOperation(iouring.IORING_OP_WRITEV, int32(fd),
		uint64(uintptr(unsafe.Pointer(&d.iov[0]))), uint32(len(d.iov)), uint64(off))
	d.write.run(1)
	res := d.write.res[0]
	d.write.mu.Unlock()
	runtime.KeepAlive(bufs)
	clear(d.iov)
	switch {
	case res == int32(total):
		return nil
	case res >= 0:
		return f.WriteVAt(skip(bufs, int(res)), off+int64(res))
	case undone(res):
		return f.WriteVAt(bufs, off)
	}
	return fmt.Errorf("flush: write %s at %d: %w", f.Name(), off, syscall.Errno(-res))
}

// Sync implements Device: all files at once.
func (d *ringDevice) Sync(files []vfs.File) error {
	d.owed = d.owed[:0]
	var first error
	for len(files) > 0 && first == nil {
		n := min(len(files), d.sync.entries)
		first = d.syncSome(files[:n])
		files = files[n:]
	}
	for _, f := range d.owed {
		if first != nil {
			break
		}
		first = f.SyncData()
	}
	clear(d.owed)
	if first != nil {
		return fmt.Errorf("flush: %w", first)
	}
	return nil
}

func (d *ringDevice) syncSome(files []vfs.File) error {
	d.sync.mu.Lock()
	defer d.sync.mu.Unlock()
	n := 0
	for _, f := range files {
		fd, ok := f.Fd()
		if !ok {
			d.owed = append(d.owed, f)
			continue
		}
		sqe := d.sync.next()
		sqe.PrepOperation(iouring.IORING_OP_FSYNC, int32(fd), 0, 0, 0)
		sqe.SetOpFlags(iouring.IORING_FSYNC_DATASYNC)
		sqe.SetUserData(uint64(n))
		n++
	}
	if n == 0 {
		return nil
	}
	d.sync.run(n)
	var first error
	i := 0
	for _, f := range files {
		if _, ok := f.Fd(); !ok {
			continue
		}
		switch res := d.sync.res[i]; {
		case res < 0 && undone(res):
			d.owed = append(d.owed, f) // it never ran: this is no second try
		case res < 0 && first == nil:
			first = fmt.Errorf("fdatasync %s: %w", f.Name(), syscall.Errno(-res))
		}
		i++
	}
	return first
}

// undone says whether a result means that the operation did not take place.
func undone(res int32) bool {
	switch syscall.Errno(-res) {
	case syscall.ECANCELED, syscall.EINTR, syscall.EAGAIN:
		return true
	}
	return false
}

// skip gives bufs without their first n bytes, as a new slice.
func skip(bufs [][]byte, n int) [][]byte {
	i := 0
	for n >= len(bufs[i]) {
		n -= len(bufs[i])
		i++
	}
	rest := append([][]byte(nil), bufs[i:]...)
	rest[0] = rest[0][n:]
	return rest
}

// ring is one io_uring with one owner at a time: it prepares up to entries
// operations, submits them and waits for all of them. Between runs it is empty.
//
//	sqHead  kernel's: what it has consumed     sqTail  ours: what we have put
//	cqHead  ours: what we have taken           cqTail  kernel's: what is complete
type ring struct {
	mu      sync.Mutex
	fd      int
	entries int
	// res are the results of the last run, by user data.
	res []int32

	sqMem, sqeMem []byte // mapped; the completions lie in sqMem too
	sqHead        *atomic.Uint32
	sqTail        *atomic.Uint32
	sqMask        uint32
	sqArray       []uint32
	sqes          []iouring.SubmissionQueueEntry64
	cqHead        *atomic.Uint32
	cqTail        *atomic.Uint32
	cqMask        uint32
	cqes          []iouring.CompletionQueueEvent16

	// enter is io_uring_enter; tests put faults in.
	enter func(fd int, toSubmit, minComplete, flags uint32) (int, error)
}

func enter(fd int, toSubmit, minComplete, flags uint32) (int, error) {
	return iouring.IOURingEnter(fd, toSubmit, minComplete, flags, nil)
}

func (r *ring) open(entries uint) error {
	var p iouring.IOURingParams
	fd, err := iouring.IOURingSetup(entries, &p)
	if err != nil {
		return unavailable(err)
	}
	r.fd, r.entries, r.enter = fd, int(p.SQEntries), enter
	r.res = make([]int32, p.SQEntries)
	if p.Features&iouring.IORING_FEAT_SINGLE_MMAP == 0 {
		r.close()
		return fmt.Errorf("%w: this kernel is older than 5.4", ErrRingUnavailable)
	}
	if err := r.mmap(&p); err != nil {
		r.close()
		return fmt.Errorf("%w: mapping the ring: %w", ErrRingUnavailable, err)
	}
	return nil
}

// disabledSysctl says who may use io_uring: 0 all, 1 a group, 2 nobody.
const disabledSysctl = "/proc/sys/kernel/io_uring_disabled"

// unavailable says why io_uring_setup failed.
func unavailable(err error) error {
	why := "io_uring_setup failed"
	switch {
	case errors.Is(err, syscall.ENOSYS):
		why = "this kernel has no io_uring, or a seccomp filter hides it"
	case errors.Is(err, syscall.EPERM):
		why = "not permitted by the container's seccomp profile"
		if b, err := os.ReadFile(disabledSysctl); err == nil && len(b) > 0 && b[0] != '0' {
			why = "not permitted: sysctl kernel.io_uring_disabled is " + string(b[:1])
		}
	case errors.Is(err, syscall.ENOMEM):
		why = "no memory for it (RLIMIT_MEMLOCK on kernels before 5.12)"
	}
	return fmt.Errorf("%w: %s: %w", ErrRingUnavailable, why, err)
}

func (r *ring) mmap(p *iouring.IOURingParams) error {
	sqLen := p.SQOffset.Array + p.SQEntries*4
	cqLen := p.CQOffset.Cqes + p.CQEntries*uint32(unsafe.Sizeof(iouring.CompletionQueueEvent16{}))
	sqeLen := p.SQEntries * uint32(unsafe.Sizeof(iouring.SubmissionQueueEntry64{}))
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	var err error
	if r.sqMem, err = unix.Mmap(r.fd, int64(iouring.IORING_OFF_SQ_RING), int(max(sqLen, cqLen)), prot, flags); err != nil {
		return err
	}
	if r.sqeMem, err = unix.Mmap(r.fd, int64(iouring.IORING_OFF_SQES), int(sqeLen), prot, flags); err != nil {
		return err
	}
	word := func(off uint32) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.sqMem[off])) }
	r.sqHead, r.sqTail = word(p.SQOffset.Head), word(p.SQOffset.Tail)
	r.sqMask = word(p.SQOffset.RingMask).Load()
	r.sqArray = unsafe.Slice((*uint32)(unsafe.Pointer(&r.sqMem[p.SQOffset.Array])), p.SQEntries)
	r.sqes = unsafe.Slice((*iouring.SubmissionQueueEntry64)(unsafe.Pointer(&r.sqeMem[0])), p.SQEntries)
	r.cqHead, r.cqTail = word(p.CQOffset.Head), word(p.CQOffset.Tail)
	r.cqMask = word(p.CQOffset.RingMask).Load()
	r.cqes = unsafe.Slice((*iouring.CompletionQueueEvent16)(unsafe.Pointer(&r.sqMem[p.CQOffset.Cqes])), p.CQEntries)
	return nil
}

func (r *ring) close() error {
	if r.sqMem != nil {
		_ = unix.Munmap(r.sqMem)
	}
	if r.sqeMem != nil {
		_ = unix.Munmap(r.sqeMem)
	}
	r.sqMem, r.sqeMem = nil, nil
	return unix.Close(r.fd)
}

// next is a cleared submission for the owner to fill, put behind the others.
func (r *ring) next() *iouring.SubmissionQueueEntry64 {
	tail := r.sqTail.Load()
	i := tail & r.sqMask
	r.sqArray[i] = i
	sqe := &r.sqes[i]
	sqe.Reset()
	r.sqTail.Store(tail + 1) // without SQPOLL the kernel looks only inside enter
	return sqe
}

// run submits the n operations prepared, whose user data are 0 to n-1, and
// waits until each has its result in res. -EAGAIN stands for what the kernel
// would not take.
func (r *ring) run(n int) {
	// One thread submits and waits: a request belongs to the thread that
	// submitted it, and its workers too.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range r.res[:n] {
		r.res[i] = -int32(syscall.EAGAIN)
	}
	waiting := n
	for {
		waiting -= r.reap()
		if waiting == 0 {
			return
		}
		// Go's preemption signal ends a waiting enter early, with the count
		// submitted or with EINTR; either way what is left is asked again.
		submit := r.sqTail.Load() - r.sqHead.Load()
		_, err := r.enter(r.fd, submit, uint32(waiting), iouring.IORING_ENTER_FLAGS_GETEVENTS)
		if err == nil || errors.Is(err, syscall.EINTR) {
			continue
		}
		// Not taken (EAGAIN, EBUSY, or worse): take back what the kernel has
		// not seen, for plain calls to do. What it has, it must give back
		// before anyone's buffers are touched again.
		left := r.sqTail.Load() - r.sqHead.Load()
		r.sqTail.Store(r.sqHead.Load())
		waiting -= int(left)
		if left == 0 {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// reap takes the completions there are.
func (r *ring) reap() int {
	head, tail := r.cqHead.Load(), r.cqTail.Load()
	n := int(tail - head)
	for ; head != tail; head++ {
		cqe := &r.cqes[head&r.cqMask]
		r.res[cqe.UserData()] = cqe.Result()
	}
	r.cqHead.Store(head)
	return n
}
