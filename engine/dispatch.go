package engine

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/message"
)

// A pending is a piece of the log that was written and is not visible yet:
// from the end of the pending before it up to end.
type pending struct {
	end message.LogOffset
	b   *Batch // whose bytes these are; nil: its owner has it back, dispatch reads the log
}

// pendingRing is the queue of pendings, in log order. The token's holder adds
// them; dispatch takes them; the ticker takes their batches when they wait too
// long. It is bounded by the bytes in flight, except for pendings without a
// batch, which are 16 bytes each.
type pendingRing struct {
	mu   sync.Mutex
	ring []pending // a power of two
	head int       // index of the first
	n    int
}

func (r *pendingRing) push(p pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n > 0 && p.b == nil {
		if last := &r.ring[(r.head+r.n-1)&(len(r.ring)-1)]; last.b == nil {
			last.end = p.end
			return
		}
	}
	if r.n == len(r.ring) {
		bigger := make([]pending, max(64, 2*len(r.ring)))
		for i := range r.n {
			bigger[i] = r.ring[(r.head+i)&(len(r.ring)-1)]
		}
		r.ring, r.head = bigger, 0
	}
	r.ring[(r.head+r.n)&(len(r.ring)-1)] = p
	r.n++
}

// popUpTo takes the first pending if it ends at or below visible.
func (r *pendingRing) popUpTo(visible message.LogOffset) (pending, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 || r.ring[r.head].end > visible {
		return pending{}, false
	}
	p := r.ring[r.head]
	r.ring[r.head].b = nil
	r.head = (r.head + 1) & (len(r.ring) - 1)
	r.n--
	return p, true
}

// takeBatches takes the batches that were appended before, leaving their
// pendings to be read back; all of them when before is negative.
func (r *pendingRing) takeBatches(before time.Duration, to *batchList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.n {
		p := &r.ring[(r.head+i)&(len(r.ring)-1)]
		if p.b == nil {
			continue
		}
		if before >= 0 && p.b.at >= before {
			return
		}
		to.add(p.b)
		p.b = nil
	}
}

// handOver passes a group that was written on to who moves the visible mark,
// and gives the writer's token back. Batches that wait for nothing more are
// added to done. at is when the group was written, since the store's epoch.
func (s *Store) handOver(first, end *Batch, at time.Duration, done *batchList) {
	for b := first; b != end; {
		next := b.next
		b.next, b.at = nil, at
		switch stored := b.end > 0; {
		case !stored:
			done.add(b)
		case s.cfg.SyncFlush && !b.Wait:
			// Answered now, visible when durable: by then its owner has the
			// bytes back, so dispatch reads the log.
			s.ring.push(pending{end: b.end})
			done.add(b)
		default:
			s.ring.push(pending{end: b.end, b: b})
		}
		b = next
	}
	// Only now: the flusher may be quicker than this goroutine, and must find
	// the batches of what it makes durable.
	s.log.Publish()
	if s.cfg.SyncFlush {
		s.log.Unlock()
		s.flusher.Kick()
		if s.syncDead.Load() { // it failed before it could see these
			s.dropPending()
		}
		return
	}
	// Under the token, so that a direct append never waits here for another
	// group's dispatch: it finds the token taken and queues instead.
	s.noteDirty()
	s.dispatch(s.log.End(), done)
	s.log.Unlock()
	s.flusher.Kick()
}

// dispatch makes what is below visible, the visible mark, known: ConsumeQueue
// and index entries, held pulls, then the batches it came from, which are added
// to done. It runs on whichever goroutine moved the mark.
func (s *Store) dispatch(visible message.LogOffset, done *batchList) {
	s.dispatchMu.Lock()
	defer s.dispatchMu.Unlock()
	for s.dispatchErr == nil {
		p, ok := s.ring.popUpTo(visible)
		if !ok {
			return
		}
		if p.b == nil {
			if err := s.dispatchLog(p.end); err != nil {
				s.dispatchErr = err
				s.fail(err)
				return
			}
			continue
		}
		for i := range p.b.Items {
			if it := &p.b.Items[i]; it.Status == OK {
				s.dispatchItem(p.b.Buf[it.Pos:it.Pos+it.Len], it)
			}
		}
		s.dispatched.Store(int64(p.end))
		done.add(p.b)
	}
}

// dispatchItem dispatches the records of one item from the bytes just written.
func (s *Store) dispatchItem(recs []byte, it *Item) {
	if it.Count <= 1 {
		s.dispatchRecord(recs, it.Queue, it.LogOffset, it.QueueOffset, it.TagsCode)
		return
	}
	off, q := it.LogOffset, it.QueueOffset
	for len(recs) > 0 {
		size := message.Size(recs)
		rec := recs[:size:size]
		s.dispatchRecord(rec, it.Queue, off, q, s.cfg.TagsCode(rec))
		recs = recs[size:]
		off += message.LogOffset(size)
		q++
	}
}

// dispatchRecord dispatches one record; q is nil for one without a queue entry.
func (s *Store) dispatchRecord(rec []byte, q *consumequeue.Queue, off message.LogOffset, qoff message.QueueOffset, tags int64) {
	size := int32(len(rec))
	stored := message.StoreMillisOf(rec)
	if q != nil {
		if q.MaxLogOffset() == 0 {
			s.queuesSeen++
		}
		e := consumequeue.Entry{LogOffset: off, Size: size, TagsCode: tags}
		if message.SysFlagOf(rec)&message.SysFlagInnerBatch != 0 {
			e.Count = message.InnerNum(rec)
		}
		q.Put(e, qoff, stored)
	}
	if s.index != nil {
		s.indexRecord(rec, off, stored)
	}
	s.last = point{end: off + message.LogOffset(size), recAt: off, recSize: size, storeMillis: stored, queues: s.queuesSeen}
	if q != nil && q.Waiters.Load() > 0 {
		s.cfg.Events.Arrived(q)
	}
}

// dispatchLog dispatches up to end by reading the log: for what was written
// and is no longer in memory. Holds dispatchMu.
func (s *Store) dispatchLog(end message.LogOffset) error {
	if s.readBack == nil {
		s.readBack = s.log.Scan(0, 0, false)
	}
	sc := s.readBack
	sc.Reset(message.LogOffset(s.dispatched.Load()), end)
	for {
		off, rec, err := sc.Next()
		if errors.Is(err, io.EOF) && sc.At() >= end {
			s.dispatched.Store(int64(end))
			return nil
		}
		if err != nil {
			return fmt.Errorf("dispatch of written records [%d, %d): %w", sc.At(), end, err)
		}
		q, qoff := s.queueNow(rec), message.QueueOffsetOf(rec)
		if q != nil && q.Max() != qoff {
			q = nil // the topic was deleted and made again since the record was put
		}
		s.dispatchRecord(rec, q, off, qoff, s.cfg.TagsCode(rec))
		s.dispatched.Store(int64(off) + int64(len(rec)))
	}
}

// queueNow finds the queue of a record as the log holds it; nil for records that
// enter none and where there is no such queue.
func (s *Store) queueNow(rec []byte) *consumequeue.Queue {
	if !message.EntersQueue(rec) {
		return nil
	}
	return s.queues.Find(message.TopicOf(rec), message.QueueIDOf(rec))
}

// queueOf finds or makes the queue of a record as the log holds it; nil for
// records that enter none. Recovery's.
func (s *Store) queueOf(rec []byte) *consumequeue.Queue {
	if !message.EntersQueue(rec) {
		return nil
	}
	if q := s.queueNow(rec); q != nil {
		return q
	}
	return s.queues.Make(string(message.TopicOf(rec)), message.QueueIDOf(rec), message.SysFlagOf(rec)&message.SysFlagInnerBatch != 0)
}
