package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/ringmq/ringmq/message"
)

// cleaner is the goroutine that deletes what is expired and watches the disk.
func (s *Store) cleaner() {
	t := time.NewTicker(s.cfg.CleanInterval)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		s.clean(s.cfg.Now())
	}
}

// clean is one round at the time now.
func (s *Store) clean(now time.Time) {
	disk := s.lookAtDisk()
	n, err := s.deleteExpired(now, &disk)
	if err != nil {
		s.logger.Warn("expired CommitLog segments cannot be deleted", "dir", s.cfg.CommitLogDir, "err", err)
	}
	if n == 0 {
		return
	}
	s.logger.Info("CommitLog segments deleted", "dir", s.cfg.CommitLogDir, "segments", n, "min", int64(s.log.Min()), "diskUsed", disk.used)
	s.lookAtDisk() // writes resume as soon as there is room
	if err := s.deleteEntries(s.log.Min()); err != nil {
		s.logger.Warn("ConsumeQueue or index files cannot be deleted", "dir", s.cfg.Dir, "err", err)
	}
}

// deleteEntries deletes the files of queues and index that only know of records
// below lo.
func (s *Store) deleteEntries(lo message.LogOffset) error {
	_, err := s.queues.DeleteBelow(lo)
	if s.index != nil {
		_, ierr := s.index.DeleteBelow(lo)
		err = errors.Join(err, ierr)
	}
	return err
}

// deleteExpired deletes the oldest segments as far as age, hour and disk allow:
// at most DeleteBatchMax, DeletePause apart, never the last one and none that
// is not durable or has records without durable entries.
func (s *Store) deleteExpired(now time.Time, disk *diskState) (n int, err error) {
	c := &s.cfg
	forced := disk.low && !c.KeepFilesForced
	if !forced && disk.used <= c.DiskMaxUsed && !slices.Contains(c.DeleteWhen, now.Hour()) {
		return 0, nil
	}
	for n < c.DeleteBatchMax {
		changed, deletable, err := s.log.OldestChanged()
		if err != nil || !deletable || !forced && now.Sub(changed) < c.FileReservedTime {
			return n, err
		}
		s.markMu.Lock()
		safe := s.marks.last.end
		s.markMu.Unlock()
		if ok, err := s.log.DeleteOldest(safe); err != nil || !ok {
			return n, err
		}
		n++
		s.segmentsDeleted.Add(1)
		select {
		case <-s.stop:
			return n, nil
		case <-time.After(c.DeletePause):
		}
	}
	return n, nil
}
