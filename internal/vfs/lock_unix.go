//go:build unix && !linux

package vfs

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockProcess takes the classic fcntl lock on byte 0, length 1.
func lockProcess(f *os.File) error {
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lk)
	if err == unix.EAGAIN || err == unix.EACCES {
		return ErrLocked
	}
	return err
}
