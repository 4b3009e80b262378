package vfs

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size does not allocate, as os.File.Stat does.
func (o *osFile) Size() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(o.fd, &st); err != nil {
		return 0, o.err("stat", err)
	}
	return st.Size, nil
}

func (o *osFile) SyncData() error {
	for {
		err := unix.Fdatasync(o.fd)
		if err != unix.EINTR { // interrupted is not failed: nothing was reported yet
			return o.err("fdatasync", err)
		}
	}
}

// iovMax is IOV_MAX, the most buffers one pwritev takes.
const iovMax = 1024

var iovPool = sync.Pool{New: func() any { s := make([]unix.Iovec, 0, 64); return &s }}

// WriteVAt is pwritev, continued where a call ends short.
func (o *osFile) WriteVAt(bufs [][]byte, off int64) error {
	if len(bufs) == 1 {
		_, err := o.f.WriteAt(bufs[0], off)
		return err
	}
	scratch := iovPool.Get().(*[]unix.Iovec)
	iov := (*scratch)[:0]
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		v := unix.Iovec{Base: &b[0]}
		v.SetLen(len(b))
		iov = append(iov, v)
	}
	rest := iov
	var err error
	for len(rest) > 0 && err == nil {
		var n int
		n, err = pwritev(o.fd, rest[:min(len(rest), iovMax)], off)
		if err == unix.EINTR {
			err = nil
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		off += int64(n)
		rest = advanceIovecs(rest, n)
	}
	clear(iov) // the pool must not keep the caller's buffers alive
	*scratch = iov[:0]
	iovPool.Put(scratch)
	return o.err("pwritev", err)
}

func pwritev(fd int, iov []unix.Iovec, off int64) (int, error) {
	// The offset travels as two words, low first; on 64-bit systems the
	// first holds all of it and the second is shifted out by the kernel.
	n, _, e := unix.Syscall6(unix.SYS_PWRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])),
		uintptr(len(iov)), uintptr(off), uintptr(uint64(off)>>32), 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// advanceIovecs drops the first n bytes. It changes iov.
func advanceIovecs(iov []unix.Iovec, n int) []unix.Iovec {
	for n > 0 {
		l := int(iov[0].Len)
		if n < l {
			iov[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(iov[0].Base), n))
			iov[0].SetLen(l - n)
			return iov
		}
		n -= l
		iov = iov[1:]
	}
	return iov
}

func (o *osFile) Allocate(off, n int64) error {
	return o.fallocate("allocate", unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func (o *osFile) fallocate(op string, mode uint32, off, n int64) error {
	for {
		err := unix.Fallocate(o.fd, mode, off, n)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EOPNOTSUPP, err == unix.ENOSYS:
			err = ErrUnsupported
		}
		return o.err(op, err)
	}
}

// ZeroRange gives the blocks back: unlike turning them into unwritten ones
// (FALLOC_FL_ZERO_RANGE) that takes no room where there was none, so a store
// whose disk is full still recovers, and one of a few megabytes does not take a
// whole segment. On a file system that cannot, zeros are written.
func (o *osFile) ZeroRange(off, n int64) error {
	if n <= 0 {
		return nil
	}
	err := o.fallocate("zero", unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if !errors.Is(err, ErrUnsupported) {
		return err
	}
	size, err := o.Size()
	if err != nil {
		return err
	}
	return writeZeros(o, off, min(n, size-off))
}

func (o *osFile) StartWriteback(off, n int64) error {
	return o.err("sync_file_range", unix.SyncFileRange(o.fd, off, n, unix.SYNC_FILE_RANGE_WRITE))
}

// noCachestat is set at the first answer that says the kernel has none.
var noCachestat atomic.Bool

func (o *osFile) Forget(off, n int64) error {
	return o.err("fadvise", unix.Fadvise(o.fd, off, n, unix.FADV_DONTNEED))
}

// ioprioIdle is class 3 of ioprio_set(2), in its upper three bits.
const (
	ioprioProcess = 1
	ioprioIdle    = 3 << 13
	niceLeast     = 19
)

func idleThread() {
	runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
	tid := unix.Gettid()
	// Where either is refused the pace alone has to do.
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioProcess, uintptr(tid), ioprioIdle)
	_ = unix.Setpriority(unix.PRIO_PROCESS, tid, niceLeast)
}

func (o *osFile) Resident(off, n int64) (resident, known bool) {
	if n <= 0 {
		return true, true
	}
	if noCachestat.Load() {
		return false, false
	}
	first, last := off>>12, (off+n-1)>>12 // the kernel counts pages
	cr := unix.CachestatRange{Off: uint64(off), Len: uint64(n)}
	var cs unix.Cachestat_t
	if err := unix.Cachestat(uint(o.fd), &cr, &cs, 0); err != nil {
		if err == unix.ENOSYS || err == unix.EPERM {
			noCachestat.Store(true)
		}
		return false, false
	}
	pages := uint64(last - first + 1)
	if ps := int64(os.Getpagesize()); ps != 4096 {
		pages = uint64((off+n-1)/ps - off/ps + 1)
	}
	return cs.Cache >= pages, true
}

func (o *osFile) NextHole(off int64) (int64, error) {
	size, err := o.Size()
	if err != nil || off >= size {
		return size, err
	}
	h, err := unix.Seek(o.fd, off, unix.SEEK_HOLE)
	if err == unix.EINVAL || err == unix.EOPNOTSUPP {
		return size, nil
	}
	return h, o.err("seek hole", err)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// lockFile takes an open-file-description lock: unlike a classic fcntl lock it
// belongs to this opening of the file, so a second Open in the same process
// fails too, and closing an unrelated descriptor of the file does not drop it.
// Classic locks (a Java broker's) and it exclude each other.
func lockFile(f *os.File, _ string) (io.Closer, error) {
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk)
	if err == unix.EAGAIN || err == unix.EACCES {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	return f, nil // closing the last descriptor of the description unlocks
}

func usage(dir string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := int64(st.Bsize) // narrower on 32-bit systems
	return int64(st.Blocks) * block, int64(st.Bavail) * block, nil
}
