package consumequeue

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ringmq/ringmq/message"
)

var (
	// ErrBelowMin is returned by a read below Min: what was there is deleted.
	ErrBelowMin = errors.New("queue offset below the queue's minimum")
	// ErrCold is returned by TryRead where it would wait for a disk.
	ErrCold = errors.New("queue entries are not in memory")
	// ErrDamaged is wrapped by the error for a unit that must be valid and is
	// not. The error names file and unit.
	ErrDamaged = errors.New("damaged ConsumeQueue unit")
	// ErrGone is returned by a read of a queue that was deleted.
	ErrGone = errors.New("queue was deleted")
)

// A Queue is the list of the records of one (topic, queueId). It costs less
// than 300 bytes while idle. Queues live as long as their Set; a deleted one
// takes no entries and gives none.
type Queue struct {
	set   *Set
	topic *topicQueues
	id    int32

	lock     uint8 // which of Set.fileLocks; never changes
	gone     bool  // deleted; this and the next two are guarded by mu
	dirty    bool  // on the set's dirty list
	hasFiles bool  // there are files, the first at firstFile

	// Waiters counts pulls parked at this queue; the dispatcher looks at them
	// only when it is positive. Owned by the room that parks.
	Waiters atomic.Int32
	// User belongs to the room above (the parked pulls); not touched here.
	User atomic.Value

	kind  *kind       // never changes
	batch *batchMarks // nil unless it is a batch queue

	// next is the offset the next record will get; owned by the holder of the
	// log's write token.
	next message.QueueOffset

	// All numbers from here on are of units. Unit n of a queue stands for offset
	// n, but in a batch queue, whose offsets are in batch.
	max    atomic.Int64 // next unit of dispatch; written by Put under mu
	min    atomic.Int64 // first unit whose record is still in the log; written under mu
	maxLog atomic.Int64 // log offset behind the last entry's record; written by Put under mu

	mu        sync.Mutex
	tail      *tail // nil while idle
	written   int64 // entries below are in the files; guarded by mu, moved under the file lock
	synced    int64 // entries below are durable; guarded by mu, moved under sweepMu
	firstFile int64 // offset of the first file's first unit; guarded by mu
	firstLog  int64 // log offset of the entry at min, -1 when not known; guarded by mu
}

// A tail holds a queue's newest entries, [low, max): those from written on are
// nowhere else.
type tail struct {
	ring    []Entry     // a power of two; entry n at n & (len-1)
	parts   []batchPart // of the same entries, in a batch queue; else nil
	low     int64       // first entry held; low <= written
	lastPut uint64      // number of the sweep during which the last Put came
}

// Topic is the queue's topic.
func (q *Queue) Topic() string { return q.topic.name }

// Gone says whether the queue was deleted; a new one of the same name may
// exist. Any goroutine.
func (q *Queue) Gone() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.gone
}

// ID is the queue's queueId.
func (q *Queue) ID() int32 { return q.id }

// Next is the offset the next record will get. Only the holder of the log's
// write token may call it.
func (q *Queue) Next() message.QueueOffset { return q.next }

// Assign takes the next n offsets and returns the first. Only the holder of
// the log's write token may call it.
func (q *Queue) Assign(n int32) message.QueueOffset {
	first := q.next
	q.next += message.QueueOffset(n)
	return first
}

// SetNext sets what Next returns: at start, after recovery and truncation, and
// to take back an Assign whose records were not appended. Only the holder of
// the log's write token may call it.
func (q *Queue) SetNext(off message.QueueOffset) { q.next = off }

// Max is the offset behind the last dispatched record. Any goroutine.
func (q *Queue) Max() message.QueueOffset {
	if q.batch != nil {
		return message.QueueOffset(q.batch.max.Load())
	}
	return message.QueueOffset(q.max.Load())
}

// Min is the offset of the first record still in the log, Max when there is
// none. Any goroutine.
func (q *Queue) Min() message.QueueOffset {
	if q.batch != nil {
		return message.QueueOffset(q.batch.min.Load())
	}
	return message.QueueOffset(q.min.Load())
}

// Batch says whether q is a batch queue.
func (q *Queue) Batch() bool { return q.batch != nil }

// MaxLogOffset is the log offset behind the last dispatched record, 0 before
// the first. Any goroutine.
func (q *Queue) MaxLogOffset() message.LogOffset { return message.LogOffset(q.maxLog.Load()) }

// Put adds the entry of the record with queue offset off and moves Max past
// it. stored is the record's store time in milliseconds, kept by batch queues,
// where the record may hold e.Count messages. (A plain queue, where such a record
// comes only when its topic was made again as another kind, gets fillers for the
// others.) Only the dispatcher may call it, in the order of the log. It does not
// block, except that a tail full of unwritten entries is first written to the
// queue's file. A failed write there is not lost: the tail grows, and the next
// Sweep tries again and reports it.
//
// As Apache's ConsumeQueue: an entry whose record ends at or below
// MaxLogOffset, or whose offset is below Max, was dispatched before and is
// passed over; so a range of the log may be dispatched again. An offset above
// Max leaves a gap, filled with fillers (Apache's broker would number all later
// messages wrongly); a queue that holds nothing begins anew at off, also below
// Max when it has no files. A gap larger than eight files is not believed: that
// entry is dropped. Gaps and drops are counted and logged by Sweep.
func (q *Queue) Put(e Entry, off message.QueueOffset, stored int64) {
	end := int64(e.End())
	q.mu.Lock()
	if end <= q.maxLog.Load() || q.gone {
		q.mu.Unlock()
		return
	}
	if q.batch != nil {
		if q.putBatch(e, batchPart{base: int64(off), stored: stored}) {
			q.maxLog.Store(end)
		}
		q.mu.Unlock()
		return
	}
	if int64(off) != q.max.Load() && !q.place(int64(off)) {
		q.mu.Unlock()
		return
	}
	if int64(off) == q.min.Load() {
		q.firstLog = int64(e.LogOffset)
	}
	count := e.Count
	e.Count = 0
	if q.append(e) {
		q.maxLog.Store(end)
		for ; count > 1 && q.append(filler); count-- {
		}
	}
	q.mu.Unlock()
}

// gapFilesMax is how many files' worth of missing entries are filled.
const gapFilesMax = 8

// place makes off the next offset to append, where that is sensible. Holds mu,
// but not all the time.
func (q *Queue) place(off int64) bool {
	max := q.max.Load()
	gap := off - max
	switch holdsNothing := max == q.min.Load(); {
	case holdsNothing && (gap > 0 || !q.hasFiles && q.written == max):
		return q.restart(off)
	case gap < 0:
		q.set.stats.repeated.Add(1)
		return false
	case gap > gapFilesMax*q.kind.units:
		q.set.note(&q.set.stats.dropped, q, off)
		return false
	}
	q.set.note(&q.set.stats.filled, q, off)
	for range gap {
		if !q.append(filler) {
			return false
		}
	}
	return true
}

// append puts e at max. It says false when the queue was deleted. Holds mu, but
// not all the time.
func (q *Queue) append(e Entry) bool {
	for q.tail == nil || q.full() {
		if q.gone {
			return false
		}
		if q.tail == nil {
			q.tail = &tail{low: q.max.Load()}
			q.tail.ring, q.tail.parts = q.newRing(tailEntriesMin)
			q.set.activate(q)
		} else {
			q.makeRoom()
		}
	}
	t, max := q.tail, q.max.Load()
	t.ring[max&int64(len(t.ring)-1)] = e
	t.lastPut = q.set.sweeps.Load()
	if !q.dirty {
		q.dirty = true
		q.set.markDirty(q)
	}
	q.max.Store(max + 1)
	return true
}

func (q *Queue) full() bool { return q.max.Load()-q.tail.low == int64(len(q.tail.ring)) }

// makeRoom makes room for an entry in a full tail, or at least tries: the tail
// may be given up meanwhile. Holds mu, but not while it writes.
func (q *Queue) makeRoom() {
	t, s := q.tail, q.set
	switch {
	case len(t.ring) < s.cfg.TailEntriesMax && s.tailBytes.Load() < s.cfg.TailBytesMax:
		q.grow()
	case t.low < q.written:
		t.low++
	default:
		q.mu.Unlock()
		err := s.writeOut(q) // a failure is the next Sweep's to report
		q.mu.Lock()
		s.stats.spills.Add(1)
		if err != nil && q.tail == t {
			q.grow()
		}
	}
}

// grow doubles the ring.
func (q *Queue) grow() {
	t := q.tail
	ring, parts := q.newRing(2 * len(t.ring))
	for n := t.low; n < q.max.Load(); n++ {
		ring[n&int64(len(ring)-1)] = t.ring[n&int64(len(t.ring)-1)]
		if parts != nil {
			parts[n&int64(len(ring)-1)] = t.parts[n&int64(len(t.ring)-1)]
		}
	}
	was := t.bytes()
	t.ring, t.parts = ring, parts
	q.set.tailBytes.Add(t.bytes() - was)
}

func (q *Queue) newRing(n int) ([]Entry, []batchPart) {
	if q.batch != nil {
		return make([]Entry, n), make([]batchPart, n)
	}
	return make([]Entry, n), nil
}

// bytes is the memory t takes.
func (t *tail) bytes() int64 {
	return int64(len(t.ring))*entryMemory + int64(len(t.parts))*int64(unsafe.Sizeof(batchPart{}))
}

// unit is entry n of the tail.
func (t *tail) unit(n int64) unit {
	i := n & int64(len(t.ring)-1)
	u := unit{Entry: t.ring[i]}
	if t.parts != nil {
		u.batchPart = t.parts[i]
	}
	return u
}

// Read copies entries from offset from on into dst and returns how many there
// were: fewer than len(dst) only at the end of the queue, 0 at and above Max.
// What is not in the tail is read from the files, one pread a file, so it may
// wait for a disk. In a batch queue the first entry is the one whose record
// holds from, or a filler where none does. Any goroutine. Errors: ErrBelowMin, ErrGone, ErrDamaged, and
// the disk's; n entries are good even then.
func (q *Queue) Read(dst []Entry, from message.QueueOffset) (n int, err error) {
	if q.batch != nil {
		return q.readBatch(dst, int64(from), true)
	}
	return q.read(dst, int64(from), true)
}

// TryRead is Read without waiting for a disk, for loops: ErrCold where entries
// are neither in the tail nor in the page cache, or the system cannot tell, or
// their file is not open.
func (q *Queue) TryRead(dst []Entry, from message.QueueOffset) (n int, err error) {
	if q.batch != nil {
		return q.readBatch(dst, int64(from), false)
	}
	return q.read(dst, int64(from), false)
}

func (q *Queue) read(dst []Entry, from int64, wait bool) (n int, err error) {
	for n < len(dst) {
		m, err := q.readSome(dst[n:], from+int64(n), wait)
		n += m
		if m == 0 || err != nil {
			return n, err
		}
	}
	return n, nil
}

// readSome reads what one place, the tail or a file, holds from from on.
func (q *Queue) readSome(dst []Entry, from int64, wait bool) (int, error) {
	q.mu.Lock()
	max := q.max.Load()
	switch {
	case q.gone:
		q.mu.Unlock()
		return 0, ErrGone
	case from < q.min.Load():
		q.mu.Unlock()
		return 0, ErrBelowMin
	case from >= max:
		q.mu.Unlock()
		return 0, nil
	}
	dst = dst[:min(int64(len(dst)), max-from)]
	if t := q.tail; t != nil && from >= t.low {
		i := from & int64(len(t.ring)-1)
		n := copy(dst, t.ring[i:])
		n += copy(dst[n:], t.ring[:i])
		q.mu.Unlock()
		return n, nil
	}
	dst = dst[:min(int64(len(dst)), q.written-from)]
	q.mu.Unlock()
	return q.set.readFile(q, dst, from, wait)
}
