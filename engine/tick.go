package engine

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ringmq/ringmq/message"
)

// tickEvery is how coarsely time is looked at.
const tickEvery = 100 * time.Millisecond

// ticker is the goroutine that ends waits and measures the commit rate.
func (s *Store) ticker() {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	m := rateMeter{doneBefore: s.doneBytes.Load()}
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		s.endWaits(s.cfg.Now().Sub(s.epoch) - s.cfg.SyncFlushTimeout)
		s.rate.Store(m.tick(s.doneBytes.Load(), s.inFlight.Load(), tickEvery))
	}
}

// endWaits completes batches that were appended before and are still not
// durable: they are in the log, so they count as stored.
func (s *Store) endWaits(before time.Duration) {
	if before < 0 {
		return
	}
	var done batchList
	s.ring.takeBatches(before, &done)
	for b := done.first; b != nil; b = b.next {
		b.Err = fmt.Errorf("not durable after syncFlushTimeout (%v)", s.cfg.SyncFlushTimeout)
		s.timeouts.Add(1)
		for i := range b.Items {
			if b.Items[i].Status == OK {
				b.Items[i].Status = FlushDiskTimeout
			}
		}
	}
	s.completeAll(&done)
}

// A rateMeter measures how fast bytes in flight are done while there are plenty
// of them: at least drainFloor at both ends of an interval. What a lighter load
// gets done is its own pace and says nothing of the disk's, since a sync takes
// much the same time for one small message as for a megabyte.
type rateMeter struct {
	doneBefore int64
	busyBefore bool
	rate       float64 // bytes a second; 0 when not known
}

// tick is told the bytes done so far and those in flight now, every d, and
// gives the rate, 0 when it is not known.
func (m *rateMeter) tick(done, inFlight int64, d time.Duration) int64 {
	delta := done - m.doneBefore
	m.doneBefore = done
	busy := inFlight >= drainFloor
	switch {
	case !busy:
		m.rate = 0
	case m.busyBefore:
		now := float64(delta) / d.Seconds()
		if m.rate == 0 {
			m.rate = now
		} else {
			m.rate += 0.3 * (now - m.rate)
		}
		m.rate = max(m.rate, 1) // a standstill is known, and slow
	}
	m.busyBefore = busy
	return int64(m.rate)
}

// Admit says whether bytes more may be given to Put: nil or a *Refusal. It
// refuses when the bytes in flight would pass MaxBytesInFlight, when they could
// not be done within DrainMax at the rate measured, and under ASYNC_FLUSH when
// the bytes not synced yet have passed 4 times DirtyBytesMax: what was admitted
// before may still add the bytes in flight to them.
func (s *Store) Admit(bytes int) error {
	backlog := s.inFlight.Load() + int64(bytes)
	if backlog > s.cfg.MaxBytesInFlight && backlog > int64(bytes) {
		s.refusals.Add(1)
		return &Refusal{What: "bytes in flight to the log", Got: backlog, Limit: s.cfg.MaxBytesInFlight, Unit: "bytes", Key: keyInFlight}
	}
	if dirty := s.overDirty.Load(); dirty > 0 {
		s.refusals.Add(1)
		return &Refusal{What: "the disk is too slow: written bytes that are not on it yet", Got: dirty, Limit: dirtyHard * s.cfg.DirtyBytesMax, Unit: "bytes", Key: keyDirty}
	}
	rate := s.rate.Load()
	if rate <= 0 || backlog < drainFloor {
		return nil
	}
	if ms := backlog * 1000 / rate; ms > s.cfg.DrainMax.Milliseconds() {
		s.refusals.Add(1)
		return &Refusal{What: "the disk is too slow for the bytes in flight: time to write them", Got: ms, Limit: s.cfg.DrainMax.Milliseconds(), Unit: "ms"}
	}
	return nil
}

// drainFloor is a backlog that is always admitted: a few messages on a standing
// disk are better answered by the disk's own fate.
const drainFloor = 1 << 20

// sweeper is the goroutine that makes entries durable and moves the dispatch
// mark.
func (s *Store) sweeper() {
	t := time.NewTicker(s.cfg.SweepInterval)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		err := s.withReserve(s.sweep)
		switch {
		case err == nil:
			failing = false
		case errors.Is(err, syscall.ENOSPC):
			if !failing {
				s.logger.Warn("ConsumeQueue or index cannot be written, disk full; retried every second", "dir", s.cfg.Dir, "err", err)
			}
			failing = true
			s.sweepFails.Add(1)
		default:
			s.sweepFails.Add(1)
			s.fail(err)
			return
		}
	}
}

// sweep makes the entries of all dispatched records durable, then moves the
// mark as far as the log is durable too.
func (s *Store) sweep() error {
	s.markMu.Lock()
	defer s.markMu.Unlock()
	if err := s.moveMark(); err != nil {
		return err
	}
	s.dispatchMu.Lock()
	to := s.last
	s.dispatchMu.Unlock()
	if to.end == s.swept.end && to.queues == s.swept.queues {
		return nil
	}
	if err := s.sweepRooms(); err != nil {
		return err
	}
	s.sweeps.Add(1)
	s.swept, s.due = to, true
	return s.moveMark()
}

func (s *Store) sweepRooms() error {
	if err := s.queues.Sweep(); err != nil {
		return fmt.Errorf("sweep of ConsumeQueues: %w", err)
	}
	if s.index != nil {
		if err := s.index.Sweep(); err != nil {
			return fmt.Errorf("sweep of the index: %w", err)
		}
	}
	return nil
}

// moveMark writes the mark for what was swept, if the log is durable that far;
// else a later sweep does. Holds markMu.
func (s *Store) moveMark() error {
	if !s.due || int64(s.swept.end) > s.flusher.Durable() {
		return nil
	}
	return s.writeMark(s.swept)
}

// writeMark writes p and the checkpoint that goes with it. Holds markMu.
func (s *Store) writeMark(p point) error {
	crc, err := s.recordCRC(p)
	if err != nil {
		return err
	}
	var indexEnd message.LogOffset
	if s.index != nil {
		indexEnd = min(s.index.EndLog(), p.end)
	}
	cp := s.marks.cp
	if p.recAt >= 0 {
		cp.PhysicMillis, cp.LogicsMillis = p.storeMillis, p.storeMillis
		if s.index != nil {
			cp.IndexMillis = max(cp.IndexMillis, s.index.SafeMillis())
		}
	}
	if err := s.marks.advance(p, crc, indexEnd, cp); err != nil {
		return err
	}
	s.due = false
	return nil
}

// finalMark is the last sweep, with nothing else going on.
func (s *Store) finalMark() error {
	if err := s.sweep(); err != nil {
		return err
	}
	s.markMu.Lock()
	defer s.markMu.Unlock()
	return s.writeMark(s.swept)
}
