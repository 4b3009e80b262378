package flush

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"
	"unsafe"

	iouring "github.com/iceber/iouring-go/syscall"

	"github.com/ringmq/ringmq/internal/vfs"
)

func newRing(t *testing.T) *ringDevice {
	t.Helper()
	d, err := NewRing(0)
	if errors.Is(err, ErrRingUnavailable) {
		t.Skip(err) // the reason is the answer here
	}
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d.(*ringDevice)
}

// setResult overwrites the result of completion i behind the ring's head, as
// if the kernel had said so.
func setResult(r *ring, i uint32, res int32) {
	cqe := &r.cqes[(r.cqHead.Load()+i)&r.cqMask]
	*(*int32)(unsafe.Add(unsafe.Pointer(cqe), 8)) = res
}

type enterFunc = func(fd int, toSubmit, minComplete, flags uint32) (int, error)

// What the kernel leaves undone is done by plain calls before the return.
func TestRingCompletesWhatIsUndone(t *testing.T) {
	tests := map[string]func(r *ring) enterFunc{
		"interrupted before submitting": func(r *ring) enterFunc {
			calls := 0
			return func(fd int, s, m, f uint32) (int, error) {
				if calls++; calls < 4 {
					return 0, os.NewSyscallError("iouring_enter", syscall.EINTR)
				}
				return enter(fd, s, m, f)
			}
		},
		"interrupted after submitting": func(r *ring) enterFunc {
			return func(fd int, s, m, f uint32) (int, error) {
				if s > 0 {
					return enter(fd, s, 0, f) // returns the count, waits for none
				}
				return enter(fd, s, m, f)
			}
		},
		"one at a time": func(r *ring) enterFunc {
			return func(fd int, s, m, f uint32) (int, error) { return enter(fd, min(s, 1), 0, f) }
		},
		"no memory for any": func(r *ring) enterFunc {
			return func(fd int, s, m, f uint32) (int, error) {
				return 0, os.NewSyscallError("iouring_enter", syscall.EAGAIN)
			}
		},
		"no memory for the second": func(r *ring) enterFunc {
			calls := 0
			return func(fd int, s, m, f uint32) (int, error) {
				if calls++; calls == 1 {
					return enter(fd, 1, 0, f)
				}
				if s > 0 {
					return 0, os.NewSyscallError("iouring_enter", syscall.EBUSY)
				}
				return enter(fd, s, m, f)
			}
		},
		"cancelled":   withResult(-int32(syscall.ECANCELED)),
		"interrupted": withResult(-int32(syscall.EINTR)),
		"try again":   withResult(-int32(syscall.EAGAIN)),
		"short":       withResult(1),
		"short by one": func(r *ring) enterFunc {
			return func(fd int, s, m, f uint32) (int, error) {
				n, err := enter(fd, s, m, f)
				for i := uint32(0); i < m; i++ {
					setResult(r, i, 299)
				}
				return n, err
			}
		},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			d := newRing(t)
			d.write.enter, d.sync.enter = fault(&d.write), fault(&d.sync)
			dir := t.TempDir()
			f := create(t, vfs.OS(), dir, "f")
			g := create(t, vfs.OS(), dir, "g")
			want := bytes.Repeat([]byte("0123456789"), 30)
			for i := range 20 {
				bufs := [][]byte{want[:7], want[7:8], want[8:200], want[200:]}
				must(t, d.WriteV(f, bufs, int64(i*len(want))))
				must(t, d.Sync([]vfs.File{f, g, f}))
			}
			if got := content(t, vfs.OS(), dir, "f"); !bytes.Equal(got, bytes.Repeat(want, 20)) {
				t.Fatalf("%d bytes, want %d", len(got), 20*len(want))
			}
			if d.write.sqTail.Load() != d.write.sqHead.Load() || d.write.cqTail.Load() != d.write.cqHead.Load() {
				t.Fatal("the ring is not empty after a run")
			}
		})
	}
}

// withResult gives every completion the result res.
func withResult(res int32) func(r *ring) enterFunc {
	return func(r *ring) enterFunc {
		return func(fd int, s, m, f uint32) (int, error) {
			n, err := enter(fd, s, m, f)
			for i := uint32(0); i < m; i++ {
				setResult(r, i, res)
			}
			return n, err
		}
	}
}

// A failed sync of the ring's is an error, and no plain call follows it.
func TestRingFailedSyncIsFinal(t *testing.T) {
	d := newRing(t)
	d.sync.enter = withResult(-int32(syscall.EIO))(&d.sync)
	d.write.enter = withResult(-int32(syscall.ENOSPC))(&d.write)
	f := create(t, vfs.OS(), t.TempDir(), "f")
	if err := d.Sync([]vfs.File{f, f}); !errors.Is(err, syscall.EIO) {
		t.Fatalf("failed sync: %v", err)
	}
	if len(d.owed) != 0 {
		t.Fatal("a failed sync was to be tried again")
	}
	if err := d.WriteV(f, [][]byte{[]byte("x")}, 0); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("failed write: %v", err)
	}
}

func TestRingUnavailableSaysWhy(t *testing.T) {
	tests := map[syscall.Errno]string{
		syscall.ENOSYS: "this kernel has no io_uring",
		syscall.EPERM:  "not permitted",
		syscall.ENOMEM: "RLIMIT_MEMLOCK",
		syscall.EMFILE: "io_uring_setup failed",
	}
	for errno, want := range tests {
		err := unavailable(os.NewSyscallError("iouring_setup", errno))
		if !errors.Is(err, ErrRingUnavailable) || !errors.Is(err, errno) || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("%v: %v, want %q in it", errno, err, want)
		}
	}
}

// The kernel's structs are these sizes for ever; the package must agree.
func TestRingStructSizes(t *testing.T) {
	if n := unsafe.Sizeof(iouring.SubmissionQueueEntry64{}); n != 64 {
		t.Errorf("a submission is %d bytes, want 64", n)
	}
	if n := unsafe.Sizeof(iouring.CompletionQueueEvent16{}); n != 16 {
		t.Errorf("a completion is %d bytes, want 16", n)
	}
	if n := unsafe.Sizeof(iouring.IOURingParams{}); n != 120 {
		t.Errorf("the parameters are %d bytes, want 120", n)
	}
}
