package flush

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	iouring "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"

	"github.com/ringmq/ringmq/internal/vfs"
)

// forbidRing makes io_uring_setup fail with errno for this whole process, as a
// container's seccomp profile does.
func forbidRing(errno syscall.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: iouring.SYS_IO_URING_SETUP, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return e
	}
	return nil
}

// Where io_uring is forbidden, auto runs on system calls and says why, and
// io_uring itself refuses.
func TestRingForbidden(t *testing.T) {
	const env = "FLUSH_TEST_FORBID"
	tests := map[string]struct {
		errno syscall.Errno
		want  string
	}{
		"EPERM":  {syscall.EPERM, "not permitted"},
		"ENOSYS": {syscall.ENOSYS, "no io_uring"},
	}
	if tc, ok := tests[os.Getenv(env)]; ok {
		if err := forbidRing(tc.errno); err != nil {
			t.Fatalf("seccomp: %v", err)
		}
		ringForbidden(t, tc.want)
		return
	}
	for name := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestRingForbidden$")
			cmd.Env = append(os.Environ(), env+"="+name)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

func ringForbidden(t *testing.T, want string) {
	dir := t.TempDir()
	if _, err := Open(EngineConfig{Engine: EngineRing, FS: vfs.OS(), Dir: dir, Logger: discard()}); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("io_uring: %v, want %q in it", err, want)
	}
	chosen := make(chan Choice, 1)
	e, err := Open(EngineConfig{Engine: EngineAuto, FS: vfs.OS(), Dir: dir, Logger: discard(), OnChoice: func(c Choice) { chosen <- c }})
	must(t, err)
	defer e.Close()
	if c := <-chosen; c.Engine != EngineSyscall || !strings.Contains(c.Reason, want) || e.Name() != EngineSyscall {
		t.Fatalf("auto chose %+v and runs %s", c, e.Name())
	}
	f := create(t, vfs.OS(), dir, "f")
	must(t, e.WriteV(f, [][]byte{[]byte("abc")}, 0))
	must(t, e.Sync([]vfs.File{f}))
}
