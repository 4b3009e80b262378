package segment

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringmq/ringmq/internal/vfs"
)

// roomBytes is allocated at a time by a writer that the preparer is behind of.
// fallocate of 1 or 64 MiB takes 7 to 22 µs on ext4 (p99 0.1 to 0.5 ms), and 10
// to 40 µs to say that the disk is full.
const roomBytes = 1 << 20

// StartAt says where the writer begins, inside the last segment: after OpenSet,
// TruncateTo or the first Next, before the first Reserve. That there is no room
// behind it is for Reserve to say. Owner only; may block on the disk.
func (s *Set) StartAt(at int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.Last()
	if last == nil || at < last.Base || at >= last.End() {
		return fmt.Errorf("segment: start of %s at %d: the last segment ends at %d", s.dir, at, s.End())
	}
	s.setRoom(last, at) // what is written has its room
	_ = s.allocate(last, at+roomBytes)
	s.claimed.Store(at)
	s.wakeAt.Store(at)
	s.wake()
	return nil
}

// Reserve tells the Set that the writer is about to write up to position to of
// the last segment, and makes sure that there is room for it. The writer must
// call it before every write: it is what keeps the preparer's zeros off bytes
// being written, and what drives the preparer. After an error, which wraps the
// system's (syscall.ENOSPC) and names the file, nothing has changed, and a
// later call may succeed. Normally a few atomic operations; it waits, for one
// step of the preparer at most, when the writer has caught up with it. Writer
// only.
func (s *Set) Reserve(to int64) error {
	if to > s.room.Load() {
		if err := s.makeRoom(to); err != nil {
			return err
		}
	}
	s.claimed.Store(to)
	if to > s.fence.Load() {
		s.mu.Lock() // the step ends; the next one sees the claim
		s.overtaken++
		s.mu.Unlock()
	}
	if to >= s.wakeAt.Load() {
		s.wake()
	}
	return nil
}

// HasRoom says whether Reserve(to) would not have to ask the disk. Writer only;
// does not block.
func (s *Set) HasRoom(to int64) bool { return to <= s.room.Load() }

// makeRoom allocates for a writer that has used up what was ahead of it.
func (s *Set) makeRoom(to int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.Last()
	if last == nil || to > last.End() {
		return fmt.Errorf("segment: room of %s up to %d: the last segment ends at %d", s.dir, to, s.End())
	}
	if to <= last.room { // the preparer was about to
		return nil
	}
	return s.needRoom(last, to)
}

// needRoom allocates up to position to, and more while it is at it; mu is held.
func (s *Set) needRoom(seg *Segment, to int64) error {
	err := s.allocate(seg, to)
	switch {
	case err != nil && !s.lacking:
		s.opt.Logger.Error("no room on the disk: appends are refused until there is", "file", seg.name, "err", err)
	case err == nil && s.lacking:
		s.opt.Logger.Info("there is room on the disk again: appends go on", "file", seg.name)
	}
	s.lacking = err != nil
	if err == nil {
		// Not before: what is left of a disk may be less than this.
		_ = s.allocate(seg, to+roomBytes)
	}
	return err
}

// allocate makes room in seg up to position to, or its end; mu is held. Where
// files cannot be allocated they are written as they are, sparse.
func (s *Set) allocate(seg *Segment, to int64) error {
	to = min(to, seg.End())
	if to <= seg.room {
		return nil
	}
	err := seg.file.Allocate(seg.room-seg.Base, to-seg.room)
	if errors.Is(err, vfs.ErrUnsupported) {
		to, err = seg.End(), nil
	}
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err // its path is the one from before the renaming
		}
		return fmt.Errorf("segment: room for %d bytes at %d of %s: %w", to-seg.room, seg.room-seg.Base, seg.name, err)
	}
	s.setRoom(seg, to)
	return nil
}

// setRoom notes that there is room in seg up to position to; mu is held.
func (s *Set) setRoom(seg *Segment, to int64) {
	seg.room = max(seg.room, to)
	if seg == s.Last() {
		s.room.Store(seg.room)
	}
}
