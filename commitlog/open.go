package commitlog

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// Open opens the segments in cfg.Dir. Until Start is called, nothing may be
// appended and all bytes of all segments count as written, so that recovery
// can read them. Blocks on the disk.
func Open(cfg Config) (*Log, error) {
	set, err := segment.OpenSet(cfg.FS, cfg.Dir, cfg.SegmentBytes, segment.Options{Zero: cfg.Sync, Spare: true, Logger: cfg.Logger})
	if err != nil {
		return nil, fmt.Errorf("open CommitLog: %w", err)
	}
	l := &Log{cfg: cfg, set: set}
	l.doneSync = l.releaseSynced
	l.written.Store(set.End())
	return l, nil
}

// TruncateTo cuts the log at end: later segments are removed, the bytes behind
// it in its own are zeroed, and what is below is made durable. Before Start
// only. Blocks on the disk.
func (l *Log) TruncateTo(end message.LogOffset) error {
	if err := l.set.TruncateTo(int64(end)); err != nil {
		return fmt.Errorf("cut CommitLog at %d: %w", end, err)
	}
	return nil
}

// Start makes end the place where the next record goes. It makes the first
// segment of an empty log. Blocks on the disk.
func (l *Log) Start(end message.LogOffset) error {
	l.Lock()
	defer l.Unlock()
	at := int64(end)
	seg := l.set.Last()
	if seg == nil || seg.End() == at {
		var err error
		if seg, err = l.set.Next(at, 0); err != nil {
			return fmt.Errorf("start CommitLog at %d: %w", end, err)
		}
	}
	if err := l.set.StartAt(at); err != nil {
		return fmt.Errorf("start CommitLog at %d: %w", end, err)
	}
	l.group = group{seg: seg, start: at, at: at}
	l.written.Store(at)
	return nil
}

// Min is the offset of the first byte there is.
func (l *Log) Min() message.LogOffset { return message.LogOffset(l.set.Min()) }

// End is where the next byte goes. Token's holder; all others want Written.
func (l *Log) End() message.LogOffset { return message.LogOffset(l.group.at) }

// SegmentsEnd is the offset behind the last segment, written or not.
func (l *Log) SegmentsEnd() message.LogOffset { return message.LogOffset(l.set.End()) }

// Bases gives the first offsets of all segments, in order.
func (l *Log) Bases() []message.LogOffset {
	segs := l.set.Segments()
	bases := make([]message.LogOffset, len(segs))
	for i, s := range segs {
		bases[i] = message.LogOffset(s.Base)
	}
	return bases
}

// SegmentBase is the first offset of the segment that holds off.
func (l *Log) SegmentBase(off message.LogOffset) message.LogOffset {
	return message.LogOffset(l.segmentBase(int64(off)))
}

// OldestChanged gives when the oldest segment was last written to, and whether
// it may be deleted at all: the last segment never is.
func (l *Log) OldestChanged() (at time.Time, deletable bool, err error) {
	segs := l.set.Segments()
	if len(segs) < 2 {
		return time.Time{}, false, nil
	}
	info, err := l.cfg.FS.Stat(filepath.Join(l.cfg.Dir, segment.Name(segs[0].Base)))
	if err != nil {
		return time.Time{}, false, fmt.Errorf("age of oldest CommitLog segment: %w", err)
	}
	return info.ModTime, true, nil
}

// DeleteOldest removes the oldest segment if it ends at or before before.
// Readers that hold it can go on. Blocks on the disk.
func (l *Log) DeleteOldest(before message.LogOffset) (bool, error) {
	n, err := l.set.DeleteBefore(int64(before), 1)
	return n > 0, err
}

// SyncRange makes [from, to) durable. Blocks on the disk; recovery's.
func (l *Log) SyncRange(from, to message.LogOffset) error {
	files, release := l.FilesIn(int64(from), int64(to))
	defer release()
	for _, f := range files {
		if err := f.SyncData(); err != nil {
			return fmt.Errorf("sync CommitLog: %w", err)
		}
	}
	return nil
}

// Resident asks whether reading a range would not wait for a disk.
func Resident(r vfs.Range) (resident, known bool) {
	return r.File.Resident(r.Off, int64(r.Len))
}

// Close closes the files, those that readers hold when they let go. clean also
// removes a segment made ahead and never used. No appends may be under way or
// follow; the device is the caller's to close.
func (l *Log) Close(clean bool) error {
	if err := l.set.Close(clean); err != nil {
		return fmt.Errorf("close CommitLog: %w", err)
	}
	return nil
}
