package segment

import (
	"fmt"
	"path/filepath"

	"github.com/ringmq/ringmq/internal/vfs"
)

// Next appends the segment that starts at base: the end of the last one, or any
// position when the Set is empty. It is durable, name included, when Next
// returns, and has room for its first need bytes. With Options.Spare it is
// normally there already and Next does no I/O; otherwise it blocks while the
// segment is made. After an error the last segment is the one it was. Owner
// only.
func (s *Set) Next(base, need int64) (*Segment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.Last(); last != nil && last.End() != base {
		return nil, fmt.Errorf("segment: next of %s asked at %d, want %d", last.name, base, last.End())
	}
	if s.closed {
		return nil, fmt.Errorf("segment: next at %d: %w", base, errClosed)
	}
	seg, err := s.takeSpare(base, need)
	if err != nil {
		return nil, err
	}
	list := append(append([]*Segment(nil), s.Segments()...), seg)
	s.list.Store(&list)
	s.room.Store(seg.room)
	s.wakeAt.Store(base)
	s.wake()
	return seg, nil
}

// takeSpare gives the segment at base, made where the preparer has not, with
// room for need bytes; without that it stays the spare. mu is held.
func (s *Set) takeSpare(base, need int64) (*Segment, error) {
	if s.spare != nil && s.spare.Base != base || s.making != nil && s.making.base != base {
		if err := s.dropSpare(); err != nil {
			return nil, err
		}
	}
	if s.spare == nil {
		seg, err := s.makeNow(base)
		if err != nil {
			return nil, err
		}
		s.spare = seg
	}
	seg := s.spare
	zeroed := seg.room // with Options.Zero all the room it has is zeros
	if err := s.needRoom(seg, base+need); err != nil {
		return nil, err
	}
	s.spare = nil
	s.zeroed, s.warmed, s.probed = zeroed, base, true
	return seg, nil
}

// makeNow makes the segment at base for a writer that waits for it, or finishes
// what the preparer has begun; mu is held.
func (s *Set) makeNow(base int64) (*Segment, error) {
	m := s.making
	if m == nil {
		var err error
		if m, err = s.startMaking(base); err != nil {
			return nil, err
		}
		if s.opt.Zero {
			if err := m.zeroTo(min(firstZeroBytes, s.size)); err != nil {
				return nil, s.abandon(m, err)
			}
		}
	}
	return s.finishMaking(m)
}

// TruncateTo cuts the address space at off: later segments are removed, the
// bytes from off to the end of the segment that holds it become zero, and when
// it returns everything below off, that segment's zeros and all names are
// durable. It is what recovery calls before the first append, and a replica
// that must go back. off may be the end of the last segment; below the first
// one it removes everything. Owner only, with no writer and no flusher at
// work; blocks on the disk.
func (s *Set) TruncateTo(off int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeZeroing()
	if err := s.dropSpare(); err != nil {
		return err
	}
	for {
		last := s.Last()
		if last == nil || last.Base <= off {
			break
		}
		// From the end backwards and each one durably, so that no crash leaves
		// a gap in the middle.
		if err := s.removeSegment(last, s.Segments()[:len(s.Segments())-1]); err != nil {
			return err
		}
	}
	last := s.Last()
	if last == nil {
		s.claimed.Store(0)
		s.room.Store(0)
		return nil
	}
	last.room = min(off, last.End())
	s.room.Store(last.room)
	if off < last.End() {
		if err := last.file.ZeroRange(off-last.Base, last.End()-off); err != nil {
			return fmt.Errorf("segment: zeroing behind the cut: %w", err)
		}
	}
	for _, seg := range s.Segments() {
		if err := seg.file.SyncData(); err != nil {
			return fmt.Errorf("segment: %w", err)
		}
	}
	s.zeroed, s.warmed, s.probed = off, off, false
	s.claimed.Store(off)
	s.wakeAt.Store(off)
	return nil
}

// removeSegment takes seg out of the list, leaving rest, and removes its file.
// Readers that hold it can go on. mu is held.
func (s *Set) removeSegment(seg *Segment, rest []*Segment) error {
	list := append([]*Segment(nil), rest...)
	s.list.Store(&list)
	err := s.removeFile(seg.name)
	seg.Release()
	return err
}

// DeleteBefore removes, the oldest first, at most max segments that end at or
// before off; the last segment always stays. It gives how many went. Readers
// that hold one can go on; its room is free when they let go. Owner only;
// blocks on the disk, a few milliseconds a segment, so that the caller sets
// the pace.
func (s *Set) DeleteBefore(off int64, max int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ; n < max; n++ {
		l := s.Segments()
		if len(l) < 2 || l[0].End() > off {
			break
		}
		if err := s.removeSegment(l[0], l[1:]); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close ends the preparer and closes the files, those that readers hold when
// they let go. clean also removes the segment made ahead that was never used,
// as Apache does; after an unclean one the next OpenSet sees to it. Owner only.
func (s *Set) Close(clean bool) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	if s.opt.Spare {
		close(s.stop)
	}
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeZeroing()
	var err error
	if clean {
		err = s.dropSpare()
		if cerr := s.clearPrepared(); err == nil {
			err = cerr
		}
	} else {
		if s.spare != nil {
			s.spare.Release()
		}
		if s.making != nil {
			s.making.file.Close()
		}
		s.spare, s.making = nil, nil
	}
	for _, seg := range s.Segments() {
		seg.Release()
	}
	list := []*Segment(nil)
	s.list.Store(&list)
	return err
}

// dropSpare removes what was made ahead; mu is held.
func (s *Set) dropSpare() error {
	if m := s.making; m != nil {
		s.making = nil
		m.file.Close()
		if err := s.fs.Remove(m.name); err != nil {
			return fmt.Errorf("segment: %w", err)
		}
	}
	if sp := s.spare; sp != nil {
		s.spare = nil
		sp.Release()
		return s.removeFile(sp.name)
	}
	return nil
}

// clearPrepared removes the sub-directory and what is in it.
func (s *Set) clearPrepared() error {
	dir := filepath.Join(s.dir, preparedDir)
	if _, err := s.fs.Stat(dir); err != nil {
		return nil
	}
	des, err := s.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	for _, de := range des {
		if _, ok := ParseName(de.Name); !ok || de.IsDir {
			s.opt.Logger.Warn("file skipped: its name is no segment's", "file", filepath.Join(dir, de.Name))
			return nil
		}
		if err := s.fs.Remove(filepath.Join(dir, de.Name)); err != nil {
			return fmt.Errorf("segment: %w", err)
		}
	}
	if err := s.fs.SyncDir(dir); err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	return s.removeFile(dir)
}

// making is a segment that is not whole yet, in prepared.
type making struct {
	file   vfs.File
	name   string
	base   int64
	zeroed int64 // written zeros, from the start of the file
	synced int64 // of which durable
}

// startMaking creates the file at its full length; mu is held.
func (s *Set) startMaking(base int64) (*making, error) {
	dir := filepath.Join(s.dir, preparedDir)
	if err := s.fs.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	name := filepath.Join(dir, Name(base))
	f, err := s.fs.Open(name, vfs.ReadWrite|vfs.Create|vfs.Excl)
	if err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	m := &making{file: f, name: name, base: base}
	if err := f.Truncate(s.size); err != nil {
		return nil, s.abandon(m, err)
	}
	s.making = m
	return m, nil
}

// abandon removes a half-made segment, so that a full disk gets its room back,
// and passes the error on; mu is held.
func (s *Set) abandon(m *making, err error) error {
	if s.making == m {
		s.making = nil
	}
	m.file.Close()
	_ = s.fs.Remove(m.name) // the error that matters is the first one
	return fmt.Errorf("segment: making %s: %w", m.name, err)
}

// finishMaking makes the file durable and gives it its place; mu is held.
func (s *Set) finishMaking(m *making) (*Segment, error) {
	if err := m.file.Sync(); err != nil {
		return nil, s.abandon(m, err)
	}
	name := filepath.Join(s.dir, Name(m.base))
	if err := s.fs.Rename(m.name, name); err != nil {
		return nil, s.abandon(m, err)
	}
	s.making = nil
	// Both directories, so that a crash finds neither none nor two of it.
	for _, dir := range []string{s.dir, filepath.Dir(m.name)} {
		if err := s.fs.SyncDir(dir); err != nil {
			m.file.Close()
			return nil, fmt.Errorf("segment: %w", err)
		}
	}
	seg := newSegment(m.file, name, m.base, s.size)
	seg.room = m.base + m.zeroed
	return seg, nil
}
