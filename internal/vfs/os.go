package vfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// OS is the operating system's file system. On Linux every operation is the
// system call that the interface names; elsewhere package os stands in.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Open(name string, flag Flag) (File, error) {
	mode := os.O_RDONLY
	if flag&ReadWrite != 0 {
		mode = os.O_RDWR
	}
	if flag&Create != 0 {
		mode |= os.O_CREATE
	}
	if flag&Excl != 0 {
		mode |= os.O_EXCL
	}
	f, err := os.OpenFile(name, mode, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f, fd: int(f.Fd())}, nil
}

func (osFS) Remove(name string) error        { return os.Remove(name) }
func (osFS) Rename(oldName, to string) error { return os.Rename(oldName, to) }
func (osFS) MkdirAll(dir string) error       { return os.MkdirAll(dir, 0o755) }

func (osFS) ReadDir(dir string) ([]DirEntry, error) {
	des, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]DirEntry, 0, len(des))
	for _, de := range des {
		fi, err := de.Info()
		if os.IsNotExist(err) {
			continue // removed since the listing
		}
		if err != nil {
			return nil, err
		}
		out = append(out, infoOf(fi))
	}
	return out, nil
}

func (osFS) Stat(name string) (Info, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

func infoOf(fi os.FileInfo) DirEntry {
	e := DirEntry{Name: fi.Name(), IsDir: fi.IsDir(), ModTime: fi.ModTime()}
	if !e.IsDir {
		e.Size = fi.Size()
	}
	return e
}

func (osFS) SyncDir(dir string) error { return syncDir(dir) }

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		abs = name
	}
	l, err := lockFile(f, abs)
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: name, Err: err}
	}
	if _, err := f.WriteAt([]byte("lock"), 0); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (osFS) Usage(dir string) (total, free int64, err error) { return usage(dir) }
func (osFS) ReadFile(name string) ([]byte, error)            { return os.ReadFile(name) }

func (fs osFS) WriteFileAtomic(name string, data []byte) error {
	return writeFileAtomic(fs, name, data)
}

// osFile keeps the descriptor beside the os.File, because os.File.Fd is not
// meant for hot paths. The os.File owns it.
type osFile struct {
	f       *os.File
	fd      int
	mapping mapping
}

func (o *osFile) ReadAt(p []byte, off int64) (int, error)  { return o.f.ReadAt(p, off) }
func (o *osFile) WriteAt(p []byte, off int64) (int, error) { return o.f.WriteAt(p, off) }
func (o *osFile) Close() error                             { return errors.Join(o.mapping.close(), o.f.Close()) }
func (o *osFile) Map() []byte                              { return o.mapping.of(o) }
func (o *osFile) Sync() error                              { return o.f.Sync() }
func (o *osFile) Truncate(size int64) error                { return o.f.Truncate(size) }
func (o *osFile) Name() string                             { return o.f.Name() }
func (o *osFile) Fd() (int, bool)                          { return o.fd, true }

// err gives a bare errno the operation and the path.
func (o *osFile) err(op string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: o.f.Name(), Err: err}
}

// zeros is what zero-filling writes, a megabyte at a time.
var zeros [1 << 20]byte

// writeZeros fills [off, off+n) with written zeros.
func writeZeros(w io.WriterAt, off, n int64) error {
	for n > 0 {
		c := min(n, int64(len(zeros)))
		if _, err := w.WriteAt(zeros[:c], off); err != nil {
			return err
		}
		off += c
		n -= c
	}
	return nil
}
