// Package vfs answers one question: how does the store reach files?
//
// Everything of a store is opened through an FS, so that the same code runs
// over the operating system (OS), over memory that can be crashed (Mem), and
// over either of them with faults put in (Fault).
//
// The package has no goroutines. All three implementations may be used from
// any number of goroutines; a File must not be used during or after its Close,
// which its owner sees to (package segment counts references).
//
// What is durable when is the same everywhere, and Mem takes it literally:
//
//   - bytes of a file, and its length, after File.SyncData or File.Sync;
//   - a name in a directory (created, renamed, removed) after FS.SyncDir of
//     that directory. A rename is one step: it is durable as a whole after a
//     SyncDir of either directory, except that after a SyncDir of the new
//     directory alone a crash may leave the old name beside the new one.
package vfs

import (
	"errors"
	"io"
	"path/filepath"
	"time"
)

// Flag says how Open opens a file.
type Flag uint8

// Flags of Open. Create and Excl need ReadWrite.
const (
	Read      Flag = 0      // for reading; the file must exist
	ReadWrite Flag = 1 << 0 // for reading and writing
	Create    Flag = 1 << 1 // made when it is missing
	Excl      Flag = 1 << 2 // with Create: an error when it is there
)

var (
	// ErrLocked is returned by FS.Lock when another holder, in this or another
	// process, has the lock.
	ErrLocked = errors.New("locked by another holder")
	// ErrUnsupported is returned where a file system or a platform lacks an
	// operation that callers can do without.
	ErrUnsupported = errors.New("not supported here")
)

// DirEntry describes a file or a directory.
type DirEntry struct {
	Name    string // last element of the path
	IsDir   bool
	Size    int64 // bytes; 0 for directories
	ModTime time.Time
}

// Info is what Stat returns.
type Info = DirEntry

// FS is a tree of files. Names are paths as of path/filepath. All methods may
// block on the disk and may be called from any goroutine. Errors wrap the
// system's, so errors.Is(err, fs.ErrNotExist) and errors.Is(err, syscall.ENOSPC)
// work on every implementation.
type FS interface {
	// Open opens a regular file.
	Open(name string, flag Flag) (File, error)
	// Remove removes a file or an empty directory. Open files stay usable.
	Remove(name string) error
	// Rename moves a file or a directory; an existing file of the new name is
	// replaced.
	Rename(oldName, newName string) error
	// MkdirAll makes a directory and its missing parents. They are durable
	// after SyncDir of each parent; MkdirAllSync does that.
	MkdirAll(dir string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(dir string) ([]DirEntry, error)
	Stat(name string) (Info, error)
	// SyncDir makes the names in a directory durable. Never retried.
	SyncDir(dir string) error
	// Lock takes the exclusive lock of a file, made when it is missing with
	// the text "lock" in it, without waiting: ErrLocked when another holder
	// has it. On Linux it is an open-file-description lock on byte 0, length
	// 1, which excludes a Java broker's lock and a second holder in this
	// process. Close releases it.
	Lock(name string) (io.Closer, error)
	// Usage gives the bytes of the file system that dir is on, and those of
	// them that this process may still fill. ErrUnsupported off Linux.
	Usage(dir string) (total, free int64, err error)
	// ReadFile reads a whole file.
	ReadFile(name string) ([]byte, error)
	// WriteFileAtomic replaces a small file as a whole and durably: name.tmp
	// is written, synced and renamed, and the directory synced. Calls for one
	// name must not overlap.
	WriteFileAtomic(name string, data []byte) error
}

// File is an open regular file. Offsets and lengths are bytes. Methods other
// than Close may be called from any goroutine at once; slices are the caller's
// again when a call returns.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteVAt writes bufs back to back at off: all of it, or an error. It
	// does not change bufs.
	WriteVAt(bufs [][]byte, off int64) error
	// SyncData makes the bytes and the length durable (fdatasync). A failed
	// sync says nothing about which bytes are on disk and is never retried.
	SyncData() error
	// Sync is SyncData and the file's other attributes (fsync).
	Sync() error
	// Truncate sets the length. Bytes it adds read as zero and take no room.
	Truncate(size int64) error
	// Allocate reserves room for [off, off+n) without changing the length;
	// ErrUnsupported where that is not possible.
	Allocate(off, n int64) error
	// Size is the length now.
	Size() (int64, error)
	// Name is the path the file was opened with.
	Name() string
	// Fd is the descriptor for system calls made elsewhere (sendfile, the
	// ring); ok is false where there is none, and callers then use the
	// methods. The File stays its owner.
	Fd() (fd int, ok bool)
	// Map is the file in memory, read-only, to be handed to system calls that
	// write it elsewhere (writev): no read per piece. nil where there is none.
	// It covers the size the file had at the first call, and is gone after
	// Close. Never read through it: where the disk fails, or the file was cut,
	// that kills the process, while a system call answers EFAULT.
	Map() []byte
	// StartWriteback asks the system to begin writing dirty bytes of
	// [off, off+n), or from off to the end when n is 0, and does not wait for
	// them (sync_file_range). Nothing is durable by it. A no-op off Linux.
	StartWriteback(off, n int64) error
	// Resident tells whether a read of [off, off+n) would not wait for a disk
	// (cachestat, Linux 6.5). known is false where the system cannot say.
	Resident(off, n int64) (resident bool, known bool)
	// Forget tells the system that [off, off+n) will not be read soon: clean
	// pages of it make room in memory (posix_fadvise). A no-op off Linux.
	Forget(off, n int64) error
	// ZeroRange makes [off, off+n) read as zero, in place and without changing
	// the length. It needs no room: whole blocks are given back where that is
	// possible, and Allocate gets them again. Durable after a sync.
	ZeroRange(off, n int64) error
	// NextHole is the first offset at or after off whose bytes were never
	// written, or the length when there is none before it (SEEK_HOLE). A file
	// system that cannot tell gives the length.
	NextHole(off int64) (int64, error)
}

// Range is a piece of a file: [Off, Off+Len).
type Range struct {
	File File
	Off  int64
	Len  int
}

// IdleThread ties the calling goroutine to a thread of its own that reads the
// disk, and computes, only when nobody else wants to (ioprio idle, nice 19),
// where the system permits it. The goroutine must end as it is: the thread ends
// with it.
func IdleThread() { idleThread() }

// MkdirAllSync makes dir and its missing parents, and each made name durable.
func MkdirAllSync(fs FS, dir string) error {
	var made []string // parents of what is missing, the deepest first
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := fs.Stat(d); err == nil {
			break
		}
		parent := filepath.Dir(d)
		made = append(made, parent)
		if parent == d {
			break
		}
	}
	if err := fs.MkdirAll(dir); err != nil {
		return err
	}
	for _, d := range made {
		if err := fs.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// writeFileAtomic is FS.WriteFileAtomic over the other methods.
func writeFileAtomic(fs FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fs.Open(tmp, ReadWrite|Create)
	if err != nil {
		return err
	}
	err = f.Truncate(0)
	if err == nil && len(data) > 0 {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fs.Rename(tmp, name)
	}
	if err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(name))
}
