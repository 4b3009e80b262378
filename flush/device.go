// Package flush answers one question: when do bytes that were written become
// durable, and by which system calls?
//
// A Device moves bytes: the syscall one by pwritev and fdatasync on the calling
// thread, the ring by io_uring. Both do the same and pass the same tests;
// Measure says which is faster on this disk.
//
// A Flusher is one goroutine that follows the log's written mark and advances
// the durable mark. Under SYNC_FLUSH it is natural group commit:
//
//	writer    w1   w2 w3 w4        w5 w6
//	flusher   [sync 1][sync 2..4   ][sync 5..6]
//
// Whatever is written while one sync runs is the next sync's group; no timer
// and no window has any part in it. Under ASYNC_FLUSH it syncs at an interval,
// earlier when too many bytes are dirty, and keeps the system writing back in
// between, so that the sync meets little.
//
// A failed sync is told once and never tried again: the system may have dropped
// the dirty pages with the error, and a second sync would then succeed over a
// hole.
package flush

import (
	"fmt"

	"github.com/ringmq/ringmq/internal/vfs"
)

// Device is how bytes reach the disk. WriteV is called by one goroutine at a
// time, the log's writer, and Sync by one at a time, the flusher; the two
// overlap.
type Device interface {
	// WriteV writes bufs back to back at off: all of it, or an error. It does
	// not change bufs, which are the caller's again when it returns. Blocks.
	WriteV(f vfs.File, bufs [][]byte, off int64) error
	// Sync makes the bytes of files durable, all of them, or gives the first
	// error. Never retried. Blocks.
	Sync(files []vfs.File) error
	// Name is "syscall" or "io_uring".
	Name() string
	// Close gives back what the Device holds. No call may be running.
	Close() error
}

// Names of the engines, as flushEngine, the log and the metrics know them.
const (
	EngineSyscall = "syscall"
	EngineRing    = "io_uring"
	EngineAuto    = "auto"
)

// NewSyscall is the Device of plain system calls. It holds nothing.
func NewSyscall() Device { return syscallDevice{} }

type syscallDevice struct{}

func (syscallDevice) Name() string { return EngineSyscall }
func (syscallDevice) Close() error { return nil }

func (syscallDevice) WriteV(f vfs.File, bufs [][]byte, off int64) error {
	return f.WriteVAt(bufs, off)
}

func (syscallDevice) Sync(files []vfs.File) error {
	for _, f := range files {
		if err := f.SyncData(); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
	}
	return nil
}
