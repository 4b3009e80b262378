package segment

import (
	"errors"
	"math"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

var errClosed = errors.New("set is closed")

const (
	// firstZeroBytes are zeroed before a segment that is needed at once is
	// used; the preparer goes on from there.
	firstZeroBytes = 1 << 20
	// stepBytes are zeroed in one step, with mu held and the writer fenced off
	// from just these bytes, and synced at once: a sync of the writer's that
	// meets the step then carries little that is not its own. Buffered writes
	// of this size, larger ones, O_DIRECT and fallocate first were measured
	// beside a loop of pwrite and fdatasync: p50 and p99 do not differ beyond
	// noise, and only the buffered ones leave the pages cached.
	stepBytes = 256 << 10
	// syncEvery is how much of a segment nobody uses yet is synced at a time.
	syncEvery = 1 << 20
	// pause is the rest between steps while there is no hurry: 50 MiB/s.
	pause = 5 * time.Millisecond
	// retryPause follows a failed step (a full disk): the writer meets the
	// same error itself if it lasts.
	retryPause = 5 * time.Second
)

// Overtaken counts how often Reserve had to wait for the preparer. Any
// goroutine; it may wait for one step itself.
func (s *Set) Overtaken() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overtaken
}

func (s *Set) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// prepare is the preparer goroutine.
func (s *Set) prepare() {
	defer close(s.done)
	var timer *time.Timer
	failing := false
	for {
		wait, err := s.step()
		if err != nil {
			if !failing { // one line for as long as it lasts
				s.opt.Logger.Warn("preparing segments ahead failed; tried again until it works", "dir", s.dir, "err", err)
			}
			wait = retryPause
		} else if failing {
			s.opt.Logger.Info("preparing segments ahead works again", "dir", s.dir)
		}
		failing = err != nil
		if wait == 0 {
			select {
			case <-s.stop:
				return
			default:
				continue
			}
		}
		if wait == forever {
			select {
			case <-s.stop:
				return
			case <-s.kick:
			}
			continue
		}
		if timer == nil {
			timer = time.NewTimer(wait)
		} else {
			timer.Reset(wait)
		}
		select {
		case <-s.stop:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

const forever = time.Duration(math.MaxInt64)

// step does the most urgent piece of work and says how long to rest: zeros or
// room just ahead of the writer, then the next segment once the writer has
// passed the middle of its own, and the first room in that.
func (s *Set) step() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.Last()
	if last == nil || s.closed {
		s.wakeAt.Store(math.MinInt64)
		return forever, nil
	}
	at := max(s.claimed.Load(), last.Base)
	if s.opt.Zero && s.zeroed < last.End() && s.zeroed < at+s.opt.AheadBytes {
		err := s.zeroAhead(last, at)
		if s.zeroed-at < s.opt.AheadBytes/2 {
			return 0, err
		}
		return pause, err
	}
	if !s.opt.Zero && last.room < min(last.End(), at+s.opt.AheadBytes) {
		return 0, s.allocate(last, last.room+s.opt.AheadBytes/4)
	}
	if s.opt.Zero && s.warmed < min(s.zeroed, at+warmAheadBytes) {
		return 0, s.warm(last, at)
	}
	middle := last.Base + s.size/2
	if s.spare == nil && at >= middle {
		return s.makeSpare(last, at)
	}
	if first := s.opt.AheadBytes / 4; s.spare != nil && s.spare.room < min(s.spare.End(), s.spare.Base+first) {
		return 0, s.allocate(s.spare, s.spare.Base+first)
	}
	s.park(last, at, middle)
	if s.claimed.Load() != at && s.claimed.Load() >= s.wakeAt.Load() {
		return 0, nil // the claim moved while wakeAt was being set
	}
	return forever, nil
}

// park sets the claim that has work for the preparer again.
func (s *Set) park(last *Segment, at, middle int64) {
	next := int64(math.MaxInt64)
	if s.spare == nil {
		next = middle
	}
	if s.opt.Zero && s.zeroed < last.End() || !s.opt.Zero && last.room < last.End() {
		// A quarter at a time: waking for every write would be no rest.
		next = min(next, at+s.opt.AheadBytes/4)
	}
	if s.opt.Zero && s.warmed < last.End() {
		next = min(next, at+warmAheadBytes/4)
	}
	s.wakeAt.Store(next)
}

// zeroAhead writes zeros into the segment being written, behind the claim; mu
// is held.
func (s *Set) zeroAhead(last *Segment, at int64) error {
	from := s.zeroed
	if from <= at { // overtaken: what was skipped is only allocated
		from = at/stepBytes*stepBytes + stepBytes
	}
	if !s.probed && from < last.End() { // what an earlier run zeroed is zero still
		hole, err := last.file.NextHole(from - last.Base)
		if err != nil {
			return err
		}
		s.probed = true
		from = max(from, last.Base+hole)
	}
	if err := s.allocate(last, from); err != nil { // no hole in the room
		return err
	}
	end := min(from+stepBytes, last.End())
	if from >= end {
		s.zeroed = last.End()
		return nil
	}
	if err := s.openZeroing(last); err != nil {
		return err
	}
	s.fence.Store(from)
	defer s.fence.Store(math.MaxInt64)
	if s.claimed.Load() > from {
		return nil // the writer came closer meanwhile; the next step sees it
	}
	if err := zeroChunk(s.zeroing, from-last.Base, end-last.Base); err != nil {
		return err
	}
	s.zeroed = end
	s.setRoom(last, end)
	return s.zeroing.SyncData()
}

// openZeroing opens the last segment a second time. The preparer must not sync
// the descriptor that the flusher syncs: the system reports a failed writeback
// once for each opening, and the flusher is the one that must hear of it.
func (s *Set) openZeroing(last *Segment) error {
	if s.zeroing != nil && s.zeroing.Name() == last.name {
		return nil
	}
	s.closeZeroing()
	f, err := s.fs.Open(last.name, vfs.ReadWrite)
	if err != nil {
		return err
	}
	s.zeroing = f
	return nil
}

// closeZeroing closes it; mu is held.
func (s *Set) closeZeroing() {
	if s.zeroing != nil {
		_ = s.zeroing.Close() // its writes were synced, or their failure told
		s.zeroing = nil
	}
}

// warmAheadBytes are kept in the page cache ahead of the writer: an append to
// a page of a zero-filled file that is no longer cached would wait for a read.
const warmAheadBytes = 8 << 20

// warm reads zeros that may have left the page cache; mu is held.
func (s *Set) warm(last *Segment, at int64) error {
	from := max(s.warmed, at)
	end := min(from+stepBytes, s.zeroed)
	if from < end {
		if res, known := last.file.Resident(from-last.Base, end-from); known && !res {
			if s.warming == nil {
				s.warming = make([]byte, stepBytes)
			}
			if _, err := last.file.ReadAt(s.warming[:end-from], from-last.Base); err != nil {
				return err
			}
		}
	}
	s.warmed = max(end, from)
	return nil
}

// makeSpare does one step of making the next segment; mu is held.
func (s *Set) makeSpare(last *Segment, at int64) (time.Duration, error) {
	m := s.making
	if m == nil {
		var err error
		if m, err = s.startMaking(last.End()); err != nil {
			return 0, err
		}
	}
	if s.opt.Zero && m.zeroed < s.size {
		if err := m.zeroTo(min(m.zeroed+stepBytes, s.size)); err != nil {
			return 0, s.abandon(m, err)
		}
		// The share of the new segment that is done is to stay ahead of the
		// share of the second half that is used.
		if left := last.End() - at; (s.size-m.zeroed)/2 > left {
			return 0, nil
		}
		return pause, nil
	}
	seg, err := s.finishMaking(m)
	if err != nil {
		return 0, err
	}
	s.spare = seg
	return 0, nil
}

// zeroTo writes zeros up to end (from the start of the file) and syncs now and
// then, so that the last sync is short.
func (m *making) zeroTo(end int64) error {
	if err := zeroChunk(m.file, m.zeroed, end); err != nil {
		return err
	}
	m.zeroed = end
	if m.zeroed-m.synced >= syncEvery {
		m.synced = m.zeroed
		return m.file.SyncData()
	}
	return nil
}

// zeros is what is written; never changed.
var zeros [stepBytes]byte

// zeroChunk writes zeros to [from, end) of a file.
func zeroChunk(f vfs.File, from, end int64) error {
	for from < end {
		n := min(end-from, stepBytes)
		if _, err := f.WriteAt(zeros[:n], from); err != nil {
			return err
		}
		from += n
	}
	return nil
}
