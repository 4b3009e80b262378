package commitlog

import (
	"fmt"

	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// A group is what the token's holder is about to write: the bytes
// [start, at) of the log, in pieces, all in the segment seg.
type group struct {
	seg   *segment.Segment
	start int64
	at    int64
	bufs  [][]byte
	blank [message.BlankBytes]byte

	// What the disk has refused since the last Write, which it is not asked for
	// again before the next: a group may hold hundreds of records.
	noSpace   error // the bytes up to noSpaceTo
	noSpaceTo int64
	noSegment error
}

// Lock takes the writer's token; it waits for its holder.
func (l *Log) Lock() { l.token.Lock() }

// TryLock takes the writer's token if nobody has it.
func (l *Log) TryLock() bool { return l.token.TryLock() }

// Unlock gives the token back.
func (l *Log) Unlock() { l.token.Unlock() }

// Fits says whether n more bytes stay in the segment being written and have
// their room there, so that appending them waits for neither. Token's holder.
func (l *Log) Fits(n int) bool {
	end := l.group.at + int64(n)
	return end+message.BlankBytes <= l.group.seg.End() && l.set.HasRoom(end)
}

// Reserve gives the offset where the next n bytes will stand, which must then
// be passed to Add. Their space on the disk is allocated by then. Where they do
// not fit the segment with room for a blank, the rest of it becomes a blank,
// what was added is written, and the next segment is taken, which may wait until
// it is made. On ErrNoSpace, ErrNoSegment and ErrTooLarge nothing has changed
// and the log can go on; any other error is a failed write, after which the log
// must not be appended to. Token's holder.
func (l *Log) Reserve(n int) (message.LogOffset, error) {
	g := &l.group
	if g.at+int64(n)+message.BlankBytes > g.seg.End() {
		if int64(n)+message.BlankBytes > l.cfg.SegmentBytes {
			return 0, fmt.Errorf("%w: got %d bytes, want at most %d", ErrTooLarge, n, l.cfg.SegmentBytes-message.BlankBytes)
		}
		if err := l.roll(int64(n)); err != nil {
			return 0, err
		}
	}
	if err := l.space(g.at + int64(n)); err != nil {
		return 0, err
	}
	return message.LogOffset(g.at), nil
}

// space makes sure of the room up to the log offset to, in the segment being
// written.
func (l *Log) space(to int64) error {
	g := &l.group
	if g.noSpace != nil && to >= g.noSpaceTo {
		return g.noSpace
	}
	if err := l.set.Reserve(to); err != nil {
		g.noSpace, g.noSpaceTo = fmt.Errorf("%w: %w", ErrNoSpace, err), to
		return g.noSpace
	}
	return nil
}

// roll ends the segment and goes on in the next, with n bytes. Space comes
// first, for the blank and in the next segment: until then nothing is changed.
func (l *Log) roll(n int64) error {
	g := &l.group
	if g.noSegment != nil {
		return g.noSegment
	}
	if err := l.space(g.at + message.BlankBytes); err != nil {
		return err
	}
	next, err := l.set.Next(g.seg.End(), n)
	if err != nil {
		g.noSegment = fmt.Errorf("%w: %w", ErrNoSegment, err)
		return g.noSegment
	}
	message.AppendBlank(g.blank[:0], int32(g.seg.End()-g.at))
	l.Add(g.blank[:])
	if err := l.Write(); err != nil {
		return err
	}
	g.seg, g.start, g.at = next, next.Base, next.Base
	return nil
}

// Add puts b, whose place Reserve has given, behind what was added before. It
// is not copied: it must stay as it is until Write. Token's holder.
func (l *Log) Add(b []byte) {
	g := &l.group
	g.at += int64(len(b))
	if i := len(g.bufs) - 1; i >= 0 {
		// Records of one batch stand back to back in memory too: one piece.
		last := g.bufs[i]
		if n := len(last); cap(last)-n >= len(b) && &last[:n+1][n] == &b[0] {
			g.bufs[i] = last[:n+len(b)]
			return
		}
	}
	g.bufs = append(g.bufs, b)
}

// Pending is how many bytes were added and not written.
func (l *Log) Pending() int64 { return l.group.at - l.group.start }

// Write writes all that was added, whose room Reserve has made sure of; Publish
// then moves Written behind it. After
// an error the log must not be appended to: some of the bytes may be in the
// file, but nothing of them is below Written. Token's holder.
func (l *Log) Write() error {
	g := &l.group
	g.noSpace, g.noSegment = nil, nil
	if len(g.bufs) == 0 {
		return nil
	}
	err := l.cfg.Device.WriteV(g.seg.File(), g.bufs, g.start-g.seg.Base)
	clear(g.bufs)
	g.bufs = g.bufs[:0]
	if err != nil {
		return fmt.Errorf("write CommitLog [%d, %d): %w", g.start, g.at, err)
	}
	g.start = g.at
	return nil
}

// Publish moves Written behind what Write wrote. It is a step of its own so that
// whoever follows Written finds what the writer says about these bytes.
// Token's holder.
func (l *Log) Publish() { l.written.Store(l.group.start) }

// RangesIn is FilesIn for who needs to know where in the files [from, to) lies;
// the ranges are appended to dst.
func (l *Log) RangesIn(from, to int64, dst []vfs.Range) (ranges []vfs.Range, release func()) {
	for at := from; at < to; at = l.segmentEnd(at) {
		if s := l.set.Find(at); s != nil {
			l.syncing = append(l.syncing, s)
			l.files = append(l.files, s.File())
			dst = append(dst, vfs.Range{File: s.File(), Off: at - s.Base, Len: int(min(to, s.End()) - at)})
		}
	}
	return dst, l.doneSync
}

// FilesIn gives the files with the log's bytes [from, to), and a func that
// gives them back. For the flusher's goroutine alone: the slice is used again
// by the next call.
func (l *Log) FilesIn(from, to int64) (files []vfs.File, release func()) {
	for at := from; at < to; at = l.segmentEnd(at) {
		s := l.set.Find(at)
		if s == nil {
			continue // deleted: nothing of it needs to be durable any more
		}
		l.syncing = append(l.syncing, s)
		l.files = append(l.files, s.File())
	}
	return l.files, l.doneSync
}

func (l *Log) releaseSynced() {
	for i, s := range l.syncing {
		s.Release()
		l.syncing[i], l.files[i] = nil, nil
	}
	l.syncing, l.files = l.syncing[:0], l.files[:0]
}
