package commitlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// A Device is how bytes reach the disk; package flush has two of them.
type Device interface {
	// WriteV writes bufs back to back at off: all of it, or an error. It does
	// not change bufs. One call at a time, beside Sync.
	WriteV(f vfs.File, bufs [][]byte, off int64) error
	// Sync makes the bytes of files durable. Never retried.
	Sync(files []vfs.File) error
	// Name is what the log and the console call it.
	Name() string
	Close() error
}

// ErrNoSegment is returned by Reserve when there is no segment for the record:
// the next one could not be made, or has no room for it. Nothing was written.
var ErrNoSegment = errors.New("no CommitLog segment to append to")

// ErrNoSpace is returned by Reserve when the disk has no room for the record;
// the error names the file and the cause. Nothing was written, and the log goes
// on by itself when there is room.
var ErrNoSpace = errors.New("no room in the CommitLog")

// ErrTooLarge is returned by Reserve for bytes that no segment can hold.
var ErrTooLarge = errors.New("record does not fit a CommitLog segment")

// ErrGone is returned for offsets that are not, or no longer, in the log.
var ErrGone = errors.New("not in the CommitLog")

// A Config says where a log lives. All fields are required.
type Config struct {
	FS           vfs.FS
	Dir          string // storePathCommitLog
	SegmentBytes int64  // mappedFileSizeCommitLog
	Device       Device // for writes; the caller closes it
	Sync         bool   // SYNC_FLUSH: segments are zero-filled ahead of the writer
	Logger       *slog.Logger
}

// Log is the CommitLog.
type Log struct {
	cfg Config
	set *segment.Set

	written atomic.Int64 // log offset; moved by the token's holder

	token sync.Mutex // its holder is the writer and owns group
	group group

	// The flusher's: files of its last FilesIn, and the func that gives them
	// back, made once so that a sync does not allocate.
	syncing  []*segment.Segment
	files    []vfs.File
	doneSync func()
}

// Written is the end of the log: every byte below it can be read.
func (l *Log) Written() int64 { return l.written.Load() }

// SegmentBytes is the size of a segment.
func (l *Log) SegmentBytes() int64 { return l.cfg.SegmentBytes }

func (l *Log) segmentBase(off int64) int64 { return off - off%l.cfg.SegmentBytes }
func (l *Log) segmentEnd(off int64) int64  { return l.segmentBase(off) + l.cfg.SegmentBytes }

// has says whether the segment with off exists.
func (l *Log) has(off int64) bool {
	s := l.set.Find(off)
	if s == nil {
		return false
	}
	s.Release()
	return true
}

// View finds the bytes [off, off+n) for a reader. The segment is acquired: the
// caller releases it when it no longer needs the range. The bytes must lie in
// one segment, as a record's do, and below Written. nil when they are not in
// the log.
func (l *Log) View(off message.LogOffset, n int) (*segment.Segment, vfs.Range) {
	at := int64(off)
	if at < 0 || n <= 0 || at+int64(n) > l.Written() || at+int64(n) > l.segmentEnd(at) {
		return nil, vfs.Range{}
	}
	s := l.set.Find(at)
	if s == nil {
		return nil, vfs.Range{}
	}
	return s, vfs.Range{File: s.File(), Off: at - s.Base, Len: n}
}

// ReadAt fills p with the log's bytes from off on; they must lie in one segment
// and below Written. It may wait for the disk. The error wraps ErrGone when the
// segment was deleted.
func (l *Log) ReadAt(p []byte, off message.LogOffset) error {
	s, r := l.View(off, len(p))
	if s == nil {
		return fmt.Errorf("%w: %d bytes at %d, log is [%d, %d)", ErrGone, len(p), off, l.Min(), l.Written())
	}
	defer s.Release()
	n, err := s.File().ReadAt(p, r.Off)
	if n < len(p) {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read CommitLog at %d: got %d bytes, want %d: %w", off, n, len(p), err)
	}
	return nil
}
