//go:build !linux

package vfs

import (
	"io"
	"os"
	"runtime"
)

func (o *osFile) SyncData() error { return o.f.Sync() }

func (o *osFile) Size() (int64, error) {
	fi, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (o *osFile) WriteVAt(bufs [][]byte, off int64) error {
	for _, b := range bufs {
		if _, err := o.f.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

func (o *osFile) Allocate(off, n int64) error { return o.err("allocate", ErrUnsupported) }

func (o *osFile) ZeroRange(off, n int64) error {
	size, err := o.Size()
	if err != nil {
		return err
	}
	return writeZeros(o, off, min(n, size-off))
}

func (o *osFile) StartWriteback(off, n int64) error { return nil }
func (o *osFile) Forget(off, n int64) error         { return nil }

func idleThread() {}

func (o *osFile) Resident(off, n int64) (resident, known bool) { return false, false }
func (o *osFile) NextHole(off int64) (int64, error)            { return o.Size() }
func usage(dir string) (total, free int64, err error)          { return 0, 0, ErrUnsupported }

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a directory cannot be synced there
	}
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

// lockFile keeps other holders of this process out by a table, and other
// processes by what the platform has (see lock_unix.go).
func lockFile(f *os.File, abs string) (io.Closer, error) {
	if !held.take(abs) {
		return nil, ErrLocked
	}
	if err := lockProcess(f); err != nil {
		held.drop(abs)
		return nil, err
	}
	return &heldLock{f: f, name: abs}, nil
}
