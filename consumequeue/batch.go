package consumequeue

import (
	"math"
	"sort"
	"sync/atomic"
)

// batchMarks are the offsets of a batch queue: of its messages, where Queue's
// own numbers are of its units. Both are written under Queue.mu.
type batchMarks struct {
	max atomic.Int64 // offset behind the last unit's record
	min atomic.Int64 // offset of the first message still in the log; max when there is none
}

// putBatch adds the unit of a record of a batch queue. It says false for one
// that is passed over, or when the queue was deleted. Holds mu, but not all
// the time.
func (q *Queue) putBatch(e Entry, part batchPart) bool {
	b := q.batch
	e.Count = int16(e.Messages())
	holdsNothing := q.max.Load() == q.min.Load()
	if gap := part.base - b.max.Load(); gap != 0 {
		switch {
		case holdsNothing && (gap > 0 || !q.hasFiles && q.written == q.max.Load()):
			// It begins anew there. Its files may stay: offsets are in the units.
		case gap < 0:
			q.set.stats.repeated.Add(1)
			return false
		case gap > gapFilesMax*q.kind.units:
			q.set.note(&q.set.stats.dropped, q, part.base)
			return false
		default: // nothing to fill: the next unit says where it stands
			q.set.note(&q.set.stats.filled, q, part.base)
		}
	}
	if holdsNothing {
		b.min.Store(part.base)
		b.max.Store(part.base)
		q.firstLog = int64(e.LogOffset)
	}
	if !q.append(e) {
		return false
	}
	q.tail.parts[(q.max.Load()-1)&int64(len(q.tail.parts)-1)] = part
	b.max.Store(part.base + int64(e.Count))
	return true
}

// A batchRead is a read of a batch queue under way: it has filled n entries
// and comes to offset from next.
type batchRead struct {
	dst  []Entry
	n    int
	from int64
}

// add takes the queue's next unit, with fillers for offsets missing before it;
// false when there is no room for it.
func (r *batchRead) add(u unit) bool {
	for ; u.base > r.from; r.n++ {
		if r.n == len(r.dst) {
			return false
		}
		r.dst[r.n] = filler
		r.dst[r.n].Count = int16(min(u.base-r.from, math.MaxInt16))
		r.from += int64(r.dst[r.n].Count)
	}
	if u.end() <= r.from { // before a gap in which the read begins
		return true
	}
	if r.n == len(r.dst) {
		return false
	}
	u.Into = int16(r.from - u.base)
	r.dst[r.n] = u.Entry
	r.n++
	r.from = u.end()
	return true
}

// readBatch is Read and TryRead of a batch queue. Only what is in the tail
// counts as in memory: to find a unit in the files takes many reads.
func (q *Queue) readBatch(dst []Entry, from int64, wait bool) (int, error) {
	r := batchRead{dst: dst, from: from}
	for r.n < len(dst) {
		before := r.from
		if err := q.readBatchSome(&r, wait); err != nil || r.from == before {
			return r.n, err
		}
	}
	return r.n, nil
}

// readBatchSome reads what one place, the tail or the files, holds.
func (q *Queue) readBatchSome(r *batchRead, wait bool) error {
	q.mu.Lock()
	lo, hi := q.min.Load(), q.max.Load()
	var err error
	switch t := q.tail; {
	case q.gone:
		err = ErrGone
	case r.from < q.batch.min.Load():
		err = ErrBelowMin
	case r.from >= q.batch.max.Load():
	case t != nil && t.low < hi && r.from >= t.unit(t.low).base:
		first := t.low + int64(sort.Search(int(hi-t.low), func(i int) bool { return t.unit(t.low+int64(i)).base > r.from })) - 1
		for n := first; n < hi && r.add(t.unit(n)); n++ {
		}
	case wait:
		q.mu.Unlock()
		return q.readBatchFiles(r, lo, hi)
	default:
		err = ErrCold
	}
	q.mu.Unlock()
	return err
}

// readBatchFiles reads from the files, where the units [lo, hi) may be.
func (q *Queue) readBatchFiles(r *batchRead, lo, hi int64) error {
	at, _, err := q.search(lo, hi, func(u unit) bool { return u.base > r.from })
	if err != nil {
		return q.readError(lo, err)
	}
	at = max(lo, at-1)
	var some [32]unit
	part := some[:min(int64(len(some)), hi-at, int64(len(r.dst)-r.n)+1)]
	if err := q.readAll(part, at); err != nil {
		return q.readError(at, err)
	}
	for _, u := range part {
		if !r.add(u) {
			break
		}
	}
	return nil
}
