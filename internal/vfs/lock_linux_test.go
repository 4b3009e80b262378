package vfs

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Java broker locks byte 0 by a classic fcntl lock. A child process plays it.
func TestLockExcludesClassicLock(t *testing.T) {
	if name := os.Getenv("VFS_TEST_CLASSIC_LOCK"); name != "" {
		classicLocker(name)
		return
	}
	name := filepath.Join(t.TempDir(), "lock")
	child := func() (got string, release func()) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLockExcludesClassicLock$")
		cmd.Env = append(os.Environ(), "VFS_TEST_CLASSIC_LOCK="+name)
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		must(t, err)
		return strings.TrimSpace(line), func() { in.Close(); io.Copy(io.Discard, out); cmd.Wait() }
	}

	l, err := OS().Lock(name)
	must(t, err)
	got, release := child()
	release()
	if got != "refused" {
		t.Fatalf("a classic lock beside ours: %q, want refused", got)
	}
	must(t, l.Close())

	got, release = child()
	if got != "locked" {
		t.Fatalf("a classic lock after ours was given back: %q, want locked", got)
	}
	if _, err := OS().Lock(name); !errors.Is(err, ErrLocked) {
		t.Fatalf("our lock beside a classic one: %v, want ErrLocked", err)
	}
	release()
	l, err = OS().Lock(name)
	must(t, err)
	must(t, l.Close())
}

// classicLocker tells whether it got the lock and holds it until its input ends.
func classicLocker(name string) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1})
	}
	switch err {
	case nil:
		os.Stdout.WriteString("locked\n")
	case unix.EAGAIN, unix.EACCES:
		os.Stdout.WriteString("refused\n")
	default:
		os.Stdout.WriteString(err.Error() + "\n")
	}
	io.Copy(io.Discard, os.Stdin)
}

func TestPwritevContinues(t *testing.T) {
	tests := map[string]struct {
		n    int
		want string
	}{
		"nothing":       {0, "abcdef"},
		"inside one":    {2, "cdef"},
		"a whole one":   {3, "def"},
		"into the next": {4, "ef"},
		"all":           {6, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := []byte("abc"), []byte("def")
			iov := []unix.Iovec{{Base: &a[0], Len: 3}, {Base: &b[0], Len: 3}}
			got := ""
			for _, v := range advanceIovecs(iov, tc.n) {
				got += unix.ByteSliceToString(append(unsafeBytes(v), 0))
			}
			if got != tc.want {
				t.Fatalf("left %q, want %q", got, tc.want)
			}
		})
	}
}

func unsafeBytes(v unix.Iovec) []byte {
	return append([]byte(nil), unsafe.Slice(v.Base, int(v.Len))...)
}
