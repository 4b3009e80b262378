package engine

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// diskState is what the last look at the disk found.
type diskState struct {
	path        string
	total, free int64
	used        float64       // 0..1, rounded up to whole percents, as Apache's
	full        bool          // beyond DiskFull, or less than DiskFreeMin is free: no writes
	low         bool          // beyond DiskForceClean, or close to DiskFreeMin
	fullIn      time.Duration // until it is full at the rate of late; -1 when it is not filling, or not known
}

// usedRatio is Apache's: whole percents, rounded up.
func usedRatio(total, free int64) float64 {
	if total <= 0 {
		return 0
	}
	return math.Ceil(100*float64(total-free)/float64(total)) / 100
}

// lookAtDisk notes how full the disk is: of the file systems of the log and of
// the rest, the one that is fuller.
func (s *Store) lookAtDisk() diskState {
	worst := diskState{fullIn: -1}
	for _, dir := range [...]string{s.cfg.CommitLogDir, s.cfg.Dir} {
		total, free, err := s.fs.Usage(dir)
		if errors.Is(err, vfs.ErrUnsupported) {
			return worst
		}
		if err != nil {
			s.logger.Warn("disk usage unknown", "dir", dir, "err", err)
			continue
		}
		if used := usedRatio(total, free); used > worst.used || worst.path == "" {
			worst = diskState{path: dir, total: total, free: free, used: used,
				full: used > s.cfg.DiskFull || free < s.cfg.DiskFreeMin, low: used > s.cfg.DiskForceClean || free < 2*s.cfg.DiskFreeMin}
		}
		if dir == s.cfg.Dir {
			if err := s.reserve.look(free); err != nil {
				s.logger.Warn("no room is kept for when the disk is full", "err", err)
			}
		}
	}
	worst.fullIn = s.trend.add(s.cfg.Now(), worst.free, worst.free-s.floor(&worst))
	was := s.disk.Swap(&worst)
	switch wasFull := was != nil && was.full; {
	case worst.full && !wasFull:
		s.logger.Error("disk full: no writes until there is room", "dir", worst.path, "used", worst.used, "limit", s.cfg.DiskFull,
			"free", worst.free, "want", s.floor(&worst), "keys", "diskSpaceWarningLevelRatio, diskFreeBytesMin")
	case !worst.full && wasFull:
		s.logger.Info("disk has room again: writes resume", "dir", worst.path, "used", worst.used, "free", worst.free)
	}
	return worst
}

// floor is how much of the disk must stay free for writes to be taken.
func (s *Store) floor(d *diskState) int64 {
	return max(s.cfg.DiskFreeMin, int64((1-s.cfg.DiskFull)*float64(d.total)))
}

const (
	// trendSpan is how far back a forecast looks, trendMin how much it must have
	// seen.
	trendSpan = time.Hour
	trendMin  = 2 * time.Minute
)

// A diskTrend is what the room on a disk was of late. The cleaner's.
type diskTrend struct {
	seen []diskSample // oldest first, a minute apart or more
}

type diskSample struct {
	at   time.Time
	free int64
}

// add notes what is free now and gives how long left bytes last at the rate of
// the last hour; -1 when the disk does not fill, or too little has been seen.
func (t *diskTrend) add(now time.Time, free, left int64) time.Duration {
	if n := len(t.seen); n == 0 || now.Sub(t.seen[n-1].at) >= trendSpan/60 {
		t.seen = append(t.seen, diskSample{now, free})
	}
	for len(t.seen) > 1 && now.Sub(t.seen[0].at) > trendSpan {
		t.seen = t.seen[1:]
	}
	span, gone := now.Sub(t.seen[0].at), t.seen[0].free-free
	switch {
	case left <= 0:
		return 0
	case span < trendMin || gone <= 0:
		return -1
	}
	if d := float64(left) / float64(gone) * float64(span); d < math.MaxInt64 {
		return time.Duration(d)
	}
	return -1
}

// Writable says whether the store takes puts, and if not why, in words for the
// producer: what, where, how much, and what to do.
func (s *Store) Writable() (bool, string) {
	if err := s.Err(); err != nil {
		return false, err.Error()
	}
	d := s.disk.Load()
	if d == nil || !d.full {
		return true, ""
	}
	limit := fmt.Sprintf("limit %.0f %%", s.cfg.DiskFull*100)
	key := "diskSpaceWarningLevelRatio"
	if d.used <= s.cfg.DiskFull {
		limit, key = fmt.Sprintf("at least %d bytes must stay free", s.cfg.DiskFreeMin), "diskFreeBytesMin"
	}
	return false, fmt.Sprintf("disk full: %s is used to %.0f %% (%d of %d bytes free), %s; free room there, shorten fileReservedTime, or change %s; writes resume by themselves",
		d.path, d.used*100, d.free, d.total, limit, key)
}
