package consumequeue

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ringmq/ringmq/message"
)

// queues lists all queues.
func (s *Set) queues() []*Queue {
	var all []*Queue
	s.Each(func(q *Queue) bool {
		all = append(all, q)
		return true
	})
	return all
}

// TruncateAbove drops, durably, the entries of records at or above log and
// sets Next of the queues concerned to their Max: recovery, and a replica that
// follows its master back. Nothing else may be going on but reads. Blocks on
// the disk.
func (s *Set) TruncateAbove(log message.LogOffset) error {
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	err := parallel(s.cfg.LoadParallel, s.queues(), func(q *Queue) error {
		if q.MaxLogOffset() <= log {
			return nil
		}
		n, _, err := q.search(q.min.Load(), q.max.Load(), func(u unit) bool { return u.LogOffset >= log })
		if err != nil {
			return err
		}
		return s.cutTo(q, n)
	})
	if err != nil {
		return err
	}
	return s.syncDirs()
}

// cutTo drops the entries of q from offset n on, n being in [min, max].
func (s *Set) cutTo(q *Queue, n int64) error {
	lk := s.queueLock(q)
	lk.Lock()
	defer lk.Unlock()
	batchEnd := int64(0)
	if b := q.batch; b != nil {
		batchEnd = b.min.Load()
		if n > q.min.Load() {
			var last [1]unit
			if err := q.readAll(last[:], n-1); err != nil {
				return err
			}
			batchEnd = last[0].end()
		}
	}
	q.mu.Lock()
	written, first, hasFiles := q.written, q.firstFile, q.hasFiles
	q.max.Store(n)
	if q.batch != nil {
		q.batch.max.Store(batchEnd)
	}
	q.mu.Unlock()
	if n < written && hasFiles {
		if err := s.cutFiles(q, first, n, written); err != nil {
			return err
		}
		hasFiles = n > first
	}
	end, err := q.lastEnd(first, n, hasFiles)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hasFiles = hasFiles
	q.written, q.synced = min(q.written, n), min(q.synced, n)
	q.maxLog.Store(end)
	if n <= q.min.Load() {
		q.min.Store(n)
		q.firstLog = -1
	}
	if q.tail != nil && q.tail.low > n {
		q.dropTail()
	}
	q.next = q.Max()
	return nil
}

// cutFiles removes the files behind offset n and zeroes the rest of the one
// that ends with it. Holds the file lock.
func (s *Set) cutFiles(q *Queue, first, n, written int64) error {
	units := q.kind.units
	keep := (n - 1 - first + units) / units * units // units of the files that stay
	for base := (written - 1) / units * units; base >= first+keep; base -= units {
		if err := s.removeFile(fileKey{q, base}); err != nil {
			return err
		}
	}
	if n <= first {
		return nil
	}
	base := (n - 1) / units * units
	h, err := s.files.acquire(fileKey{q, base}, 0)
	if err != nil {
		return err
	}
	defer s.files.release(h)
	if err := resize(h, (n-base)*q.kind.unitBytes, q.kind.fileBytes); err != nil {
		return err
	}
	return h.SyncData()
}

// removeFile removes a file; its name is gone for good after syncDirs.
func (s *Set) removeFile(k fileKey) error {
	s.files.drop(k.q, k.base, k.base+1)
	err := s.fs.Remove(k.name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.dirtyDir(k.q.dir())
	return nil
}

// lastEnd is the log offset behind the last entry in [first, n) that is no
// filler, 0 when there is none.
func (q *Queue) lastEnd(first, n int64, hasFiles bool) (int64, error) {
	if !hasFiles {
		first = q.min.Load()
	}
	var some [256]unit
	for n > first {
		from := max(first, n-int64(len(some)))
		part := some[:n-from]
		if err := q.readAll(part, from); err != nil {
			return 0, err
		}
		for i := len(part) - 1; i >= 0; i-- {
			if !part[i].Filler() {
				return int64(part[i].End()), nil
			}
		}
		n = from
	}
	return 0, nil
}

// readAll fills dst with the units from from on, below Min too.
func (q *Queue) readAll(dst []unit, from int64) error {
	for len(dst) > 0 {
		q.mu.Lock()
		n := 0
		if t := q.tail; t != nil && from >= t.low {
			for n < len(dst) {
				dst[n] = t.unit(from + int64(n))
				n++
			}
		}
		part := dst[:min(int64(len(dst)), max(0, q.written-from))]
		q.mu.Unlock()
		if n == 0 {
			var err error
			if n, err = q.set.readUnits(q, part, from); err != nil {
				return err
			}
		}
		if n == 0 {
			return ErrBelowMin // changed while it was read
		}
		dst, from = dst[n:], from+int64(n)
	}
	return nil
}

// search finds the boundary of a condition that holds for the records from
// some point on. at is the first offset in [lo, hi] from which on no record
// fails it; real is at or, when fillers stand there, the offset of the first
// record behind them; hi when there is none.
func (q *Queue) search(lo, hi int64, past func(unit) bool) (at, real int64, err error) {
	real = hi
	for end := hi; lo < end; {
		mid := lo + (end-lo)/2
		u, pos, err := q.nextRecord(mid, end)
		switch {
		case err != nil:
			return 0, 0, err
		case pos == end: // nothing but fillers in [mid, end)
			end = mid
		case past(u):
			end, real = mid, pos
		default:
			lo = pos + 1
		}
	}
	return lo, real, nil
}

// nextRecord is the first unit in [from, to) that is no filler; pos is to
// when there is none.
func (q *Queue) nextRecord(from, to int64) (u unit, pos int64, err error) {
	var some [64]unit
	for part := some[:1]; from < to; part = some[:] {
		part = part[:min(int64(len(part)), to-from)]
		if err := q.readAll(part, from); err != nil {
			return unit{}, 0, err
		}
		for i, u := range part {
			if !u.Filler() {
				return u, from + int64(i), nil
			}
		}
		from += int64(len(part))
	}
	return unit{}, to, nil
}

// CorrectMin moves Min of every queue to its first record at or above minLog,
// the log's first offset; to Max when there is none. It reads only from queues
// that minLog concerns; Put and Read may go on.
func (s *Set) CorrectMin(minLog message.LogOffset) error {
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	return parallel(s.cfg.LoadParallel, s.queues(), func(q *Queue) error { return q.correctMin(int64(minLog)) })
}

// correctMin holds sweepMu.
func (q *Queue) correctMin(minLog int64) error {
	q.mu.Lock()
	lo, hi, maxLog, firstLog := q.min.Load(), q.max.Load(), q.maxLog.Load(), q.firstLog
	first := unit{Entry: Entry{LogOffset: -1}, batchPart: batchPart{base: int64(q.Max())}}
	q.mu.Unlock()
	if lo == hi || firstLog >= minLog {
		return nil
	}
	at := hi
	if maxLog > minLog {
		var err error
		if _, at, err = q.search(lo, hi, func(u unit) bool { return int64(u.LogOffset) >= minLog }); err != nil {
			return err
		}
	}
	if at < hi {
		var some [1]unit
		if err := q.readAll(some[:], at); err != nil {
			return err
		}
		first = some[0]
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.min.Load() == lo { // else the queue began anew meanwhile
		q.min.Store(at)
		q.firstLog = int64(first.LogOffset)
		if q.batch != nil {
			q.batch.min.Store(first.base)
		}
	}
	return nil
}

// DeleteBelow removes the files that hold nothing but entries of records below
// minLog, the last one of a queue excepted, and corrects Min of every queue. It
// returns how many files went. Put and Read may go on; blocks on the disk. What
// minLog cuts off the log must have been swept: a queue whose records are gone
// from the log and whose entries a crash takes would number again from below.
func (s *Set) DeleteBelow(minLog message.LogOffset) (deleted int, err error) {
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	for _, q := range s.queues() {
		n, err := s.deleteBelow(q, minLog)
		deleted += n
		if err == nil {
			err = q.correctMin(int64(minLog))
		}
		if err != nil {
			return deleted, err
		}
	}
	if deleted > 0 {
		err = s.syncDirs()
	}
	return deleted, err
}

func (s *Set) deleteBelow(q *Queue, minLog message.LogOffset) (deleted int, err error) {
	lk := s.queueLock(q)
	lk.Lock()
	defer lk.Unlock()
	for {
		q.mu.Lock()
		base, hasFiles, written := q.firstFile, q.hasFiles, q.written
		known := q.firstLog >= int64(minLog) && q.firstLog >= 0 && q.min.Load() < base+q.kind.units
		q.mu.Unlock()
		last := base + q.kind.units - 1
		if !hasFiles || known || written <= last+1 {
			return deleted, nil
		}
		var e [1]unit
		if err := q.readAll(e[:], last); err != nil || e[0].LogOffset >= minLog {
			return deleted, err
		}
		q.mu.Lock()
		q.firstFile = last + 1
		q.synced = max(q.synced, last+1) // what a full tail wrote there needs no sync any more
		if q.min.Load() <= last {        // before the file goes, so that readers know why
			q.min.Store(last + 1)
			q.firstLog = -1
			if q.batch != nil {
				q.batch.min.Store(e[0].end())
			}
		}
		q.mu.Unlock()
		if err := s.removeFile(fileKey{q, base}); err != nil {
			return deleted, err
		}
		deleted++
	}
}

// restart makes a queue that holds nothing begin at off. It says false when
// old files could not be removed. Holds mu, but not while it removes.
func (q *Queue) restart(off int64) bool {
	s := q.set
	if q.hasFiles {
		q.mu.Unlock()
		err := s.removeFiles(q)
		q.mu.Lock()
		if err != nil {
			s.note(&s.stats.dropped, q, off)
			return false
		}
	}
	if q.tail != nil {
		q.tail.low = off
	}
	q.written, q.synced = off, off
	q.max.Store(off)
	q.min.Store(off)
	return true
}

// removeFiles removes all of q's files; mu must not be held.
func (s *Set) removeFiles(q *Queue) error {
	lk := s.queueLock(q)
	lk.Lock()
	defer lk.Unlock()
	q.mu.Lock()
	first, written := q.firstFile, q.written
	q.mu.Unlock()
	for base := first; base < written; base += q.kind.units {
		if err := s.removeFile(fileKey{q, base}); err != nil {
			return err
		}
	}
	q.mu.Lock()
	q.hasFiles = false
	q.written = q.max.Load()
	q.mu.Unlock()
	return nil
}

// DeleteTopic removes the queues of topic, durably. Reads and puts of them
// under way end as for a deleted queue. Blocks on the disk.
func (s *Set) DeleteTopic(topic string) error { return s.deleteQueues(topic, s.Of(topic)) }

// DeleteQueue removes one queue, durably; nil when there is none.
func (s *Set) DeleteQueue(topic string, id int32) error {
	if q := s.Queue(topic, id, false); q != nil {
		return s.deleteQueues(topic, []*Queue{q})
	}
	return nil
}

func (s *Set) deleteQueues(topic string, queues []*Queue) error {
	if len(queues) == 0 {
		return nil
	}
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	for _, q := range queues {
		if err := s.deleteQueue(q); err != nil {
			return err
		}
	}
	for _, k := range []*kind{s.plain, s.batch} {
		if !slices.ContainsFunc(queues, func(q *Queue) bool { return q.kind == k }) {
			continue
		}
		topicDir := filepath.Join(k.dir, topic)
		s.dirtyDir(topicDir)
		if !slices.ContainsFunc(s.Of(topic), func(q *Queue) bool { return q.kind == k }) {
			if err := s.removeDir(topicDir); err != nil {
				return err
			}
			s.dirtyDir(k.dir)
		}
	}
	return s.syncDirs()
}

// deleteQueue takes no more entries into q and removes its files; only then can
// a queue of the same name be made, since it would have the same files.
func (s *Set) deleteQueue(q *Queue) error {
	lk := s.queueLock(q)
	lk.Lock()
	defer lk.Unlock()
	q.mu.Lock()
	q.gone = true
	q.dropTail()
	q.mu.Unlock()
	defer s.forget(q)
	s.files.drop(q, 0, math.MaxInt64)
	return s.removeDir(q.dir())
}

// forget takes q off the map.
func (s *Set) forget(q *Queue) {
	sh := s.shardOf(q.topic.name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := q.topic
	found, i := t.find(q.id)
	if found != q {
		return // deleted twice
	}
	t.queues = slices.Delete(t.queues, i, i+1)
	if len(t.queues) == 0 {
		delete(sh.topics, t.name)
	}
}

// removeDir removes queue files in dir and dir itself. What is not ours stays,
// and dir with it.
func (s *Set) removeDir(dir string) error {
	entries, err := s.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	left := 0
	for _, e := range entries {
		if _, ok := fileOffset(e.Name); e.IsDir || !ok {
			left++
			continue
		}
		if err := s.fs.Remove(filepath.Join(dir, e.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if left > 0 {
		s.log.Warn("directory of a deleted queue stays: it holds foreign files", "dir", dir, "count", left)
		s.dirtyDir(dir)
		return nil
	}
	if err := s.fs.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// fileOffset parses the name of a queue file: 20 digits, the byte offset of
// its first unit.
func fileOffset(name string) (int64, bool) {
	if len(name) != 20 {
		return 0, false
	}
	for _, c := range []byte(name) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	off, err := strconv.ParseInt(name, 10, 64)
	return off, err == nil
}
