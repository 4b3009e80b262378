package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// diskState is what the last look at the disk found.
type diskState struct {
	path        string
	total, free int64
	used        float64 // 0..1, rounded up to whole percents, as Apache's
	full        bool    // beyond DiskFull: no writes
}

// usedRatio is Apache's: whole percents, rounded up.
func usedRatio(total, free int64) float64 {
	if total <= 0 {
		return 0
	}
	return math.Ceil(100*float64(total-free)/float64(total)) / 100
}

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
	used := s.lookAtDisk()
	n, err := s.deleteExpired(now, used)
	if err != nil {
		s.logger.Warn("expired CommitLog segments cannot be deleted", "dir", s.cfg.CommitLogDir, "err", err)
	}
	if n == 0 {
		return
	}
	s.logger.Info("CommitLog segments deleted", "dir", s.cfg.CommitLogDir, "segments", n, "min", int64(s.log.Min()), "diskUsed", used)
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

// lookAtDisk notes how full the disk is and gives the higher used ratio of the
// log's and the queues' file systems.
func (s *Store) lookAtDisk() float64 {
	worst := diskState{}
	for _, dir := range [...]string{s.cfg.CommitLogDir, s.cfg.Dir} {
		total, free, err := s.fs.Usage(dir)
		if errors.Is(err, vfs.ErrUnsupported) {
			return 0
		}
		if err != nil {
			s.logger.Warn("disk usage unknown", "dir", dir, "err", err)
			continue
		}
		if used := usedRatio(total, free); used > worst.used || worst.path == "" {
			worst = diskState{path: dir, total: total, free: free, used: used, full: used > s.cfg.DiskFull}
		}
	}
	was := s.disk.Swap(&worst)
	switch wasFull := was != nil && was.full; {
	case worst.full && !wasFull:
		s.logger.Error("disk full: no writes until there is room", "dir", worst.path, "used", worst.used, "limit", s.cfg.DiskFull, "key", "diskSpaceWarningLevelRatio")
	case !worst.full && wasFull:
		s.logger.Info("disk has room again: writes resume", "dir", worst.path, "used", worst.used)
	}
	return worst.used
}

// deleteExpired deletes the oldest segments as far as age, hour and disk allow:
// at most DeleteBatchMax, DeletePause apart, never the last one and none that
// is not durable or has records without durable entries.
func (s *Store) deleteExpired(now time.Time, used float64) (n int, err error) {
	c := &s.cfg
	forced := used > c.DiskForceClean && !c.KeepFilesForced
	if !forced && used <= c.DiskMaxUsed && !slices.Contains(c.DeleteWhen, now.Hour()) {
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

// Writable says whether the store takes puts, and if not why, in words for the
// producer: what, where, how much, and what to do.
func (s *Store) Writable() (bool, string) {
	if err := s.Err(); err != nil {
		return false, err.Error()
	}
	if d := s.disk.Load(); d != nil && d.full {
		return false, fmt.Sprintf("disk full: %s is used to %.0f %% (%d of %d bytes free), limit %.0f %%; free room there, shorten fileReservedTime, or raise diskSpaceWarningLevelRatio; writes resume by themselves",
			d.path, d.used*100, d.free, d.total, s.cfg.DiskFull*100)
	}
	return true, ""
}
