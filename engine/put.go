package engine

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ringmq/ringmq/commitlog"
	"github.com/ringmq/ringmq/message"
)

// ErrClosed is Batch.Err after Close has begun.
var ErrClosed = errors.New("store is closed")

// ErrLogClosed is wrapped by Batch.Err once a failed write or sync has closed
// the log for writes; the error names the cause.
var ErrLogClosed = errors.New("log is closed for writes")

const (
	// groupBytesMax bounds what is written by one call, so that a deep queue
	// does not make its head wait for its end.
	groupBytesMax = 1 << 20
	// groupBatchesMax bounds the pieces of one write likewise.
	groupBatchesMax = 512

	// A direct append is taken only while appends take less than this on
	// average and the last one took less than directLastMax: the caller is a
	// network loop, which may not wait.
	directMeanMax = 100 * time.Microsecond
	directLastMax = time.Millisecond
)

// Put appends b's records to the log and tells b.Done when they are as durable
// as asked for. Any goroutine; it does not block, unless b.MayDirect: then the
// append itself, one pwrite, may happen here. Batches of one goroutine are
// appended in the order of its calls.
func (s *Store) Put(b *Batch) {
	b.Err, b.bytes = nil, int64(len(b.Buf))
	flying := s.inFlight.Add(b.bytes)
	if flying > 2*s.cfg.MaxBytesInFlight && flying > b.bytes {
		// Admit refuses from one times the bound on. What callers had gathered
		// by then may overshoot; twice is where even that ends.
		s.refusals.Add(1)
		s.refuse(b, Busy, &Refusal{What: "bytes in flight to the log", Got: flying, Limit: 2 * s.cfg.MaxBytesInFlight, Unit: "bytes", Key: keyInFlight})
		return
	}
	if b.MayDirect && s.putDirect(b) {
		return
	}
	s.queued.Add(1)
	if !s.puts.push(b) {
		s.queued.Add(-1)
		s.refuse(b, ServiceNotAvailable, ErrClosed)
	}
}

// putDirect appends b here when nothing is before it and appends are quick.
func (s *Store) putDirect(b *Batch) bool {
	if s.queued.Load() != 0 || !s.quick() || !s.log.TryLock() {
		return false
	}
	if s.stopping || !s.log.Fits(len(b.Buf)) {
		s.log.Unlock()
		return false
	}
	s.directs.Add(1)
	b.next = nil
	s.appendGroup(b, nil)
	return true
}

func (s *Store) quick() bool {
	return s.appendMean.Load() < int64(directMeanMax) && s.appendLast.Load() < int64(directLastMax)
}

// refuse completes a batch that never came near the log.
func (s *Store) refuse(b *Batch, st Status, err error) {
	b.Err = err
	for i := range b.Items {
		b.Items[i].Status = st
	}
	s.complete(b)
}

// complete gives b back to its owner.
func (s *Store) complete(b *Batch) {
	b.next = nil
	s.inFlight.Add(-b.bytes)
	s.doneBytes.Add(b.bytes)
	b.Done.PutDone(b)
}

func (s *Store) completeAll(l *batchList) {
	for b := l.first; b != nil; {
		next := b.next
		s.complete(b)
		b = next
	}
}

// appender is the goroutine that appends all that direct appends do not.
func (s *Store) appender() {
	for {
		list := s.puts.takeAll()
		if list == nil {
			select {
			case <-s.puts.wake:
				continue
			case <-s.stop:
			}
			s.appendList(s.puts.shutDown())
			return
		}
		s.appendList(list)
	}
}

func (s *Store) appendList(list *Batch) {
	for list != nil {
		first, n, bytes := list, int64(1), list.bytes
		last := list
		for last.next != nil && n < groupBatchesMax && bytes+last.next.bytes <= groupBytesMax {
			last = last.next
			n, bytes = n+1, bytes+last.bytes
		}
		list = last.next
		s.log.Lock()
		s.appendGroup(first, list)
		// Not earlier: a batch put after these must not overtake them by a
		// direct append.
		s.queued.Add(-n)
	}
}

// appendGroup appends the batches from first up to end as one group: one clock
// reading, one write a segment. It takes over the writer's token, gives it
// back, and completes what is through. Results are in the batches.
func (s *Store) appendGroup(first, end *Batch) {
	var done batchList
	if f := s.failed.Load(); f != nil {
		for b := first; b != end; {
			next := b.next
			failBatch(b, ServiceNotAvailable, f.err)
			done.add(b)
			b = next
		}
		s.log.Unlock()
		s.completeAll(&done)
		return
	}
	began := s.cfg.Now()
	s.storeMillis = max(s.storeMillis, began.UnixMilli())
	from := s.log.End()
	var err error
	for b := first; b != end && err == nil; b = b.next {
		err = s.place(b)
	}
	if err == nil {
		err = s.log.Write()
	}
	if err != nil {
		for b := first; b != end; {
			next := b.next
			failBatch(b, ServiceNotAvailable, fmt.Errorf("%w: %w", ErrLogClosed, err))
			done.add(b)
			b = next
		}
		s.fail(err) // under the token: nobody appends behind what is half written
		s.log.Unlock()
		s.completeAll(&done)
		return
	}
	took := s.cfg.Now().Sub(began)
	s.noteAppend(took, int64(s.log.End()-from))
	s.handOver(first, end, began.Add(took).Sub(s.epoch), &done)
	s.completeAll(&done)
}

// place gives each item of b its place and stamps it. Items that have none
// keep the reason; the error is of a write that failed.
func (s *Store) place(b *Batch) error {
	b.end = 0
	for i := range b.Items {
		it := &b.Items[i]
		it.Status = OK
		it.StoreMillis = s.storeMillis
		recs := b.Buf[it.Pos : it.Pos+it.Len]
		n := max(it.Count, 1)
		if (it.Queue == nil && !it.NoQueue) || !whole(recs, n) {
			failItem(b, it, Illegal, errNoRecord)
			continue
		}
		if it.Inner > 0 {
			if recs = stampInner(recs, it); recs == nil {
				failItem(b, it, Illegal, errNoInner)
				continue
			}
			n = it.Inner
		} else {
			message.ClearInner(recs)
		}
		off, err := s.log.Reserve(len(recs))
		switch {
		case errors.Is(err, commitlog.ErrNoSegment):
			s.createFails.Add(1)
			failItem(b, it, CreateFailed, s.noRoom(err))
			continue
		case errors.Is(err, commitlog.ErrNoSpace):
			// Apache's code for a full disk; its clients try another broker.
			s.createFails.Add(1)
			failItem(b, it, ServiceNotAvailable, s.noRoom(err))
			continue
		case errors.Is(err, commitlog.ErrTooLarge):
			failItem(b, it, Illegal, err)
			continue
		case err != nil:
			return err
		}
		it.LogOffset = off
		it.QueueOffset = 0
		if !it.NoQueue {
			it.QueueOffset = it.Queue.Assign(n)
		}
		stamp(recs, it, s.storeMillis)
		s.log.Add(recs)
		b.end = s.log.End()
	}
	return nil
}

// noRoom adds what to do to an error of a disk that is full.
func (s *Store) noRoom(err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return fmt.Errorf("%w; free room on the disk of %s or shorten fileReservedTime: sends succeed again by themselves", err, s.cfg.CommitLogDir)
}

var errNoRecord = errors.New("item whose bytes are not its records, or without a queue")

var errNoInner = errors.New("inner batch without room for INNER_BASE, of another INNER_NUM than the item's, or of a queue that is no batch queue")

// stampInner writes the offset that an inner batch is about to get into it and
// gives its bytes, fewer than before; nil where it can be none.
func stampInner(rec []byte, it *Item) []byte {
	if it.Count > 1 || it.NoQueue || !it.Queue.Batch() || int32(message.InnerNum(rec)) != it.Inner || !message.HasInnerBase(rec) {
		return nil
	}
	rec = rec[:message.StampInnerBase(rec, it.Queue.Next())]
	it.Len = int32(len(rec))
	return rec
}

// whole says whether recs is n records by their sizes, so that nothing of an
// item can be read or stamped outside of it.
func whole(recs []byte, n int32) bool {
	for ; n > 0; n-- {
		if len(recs) < message.MinBytes {
			return false
		}
		size := int(message.Size(recs))
		if size < message.MinBytes || size > len(recs) {
			return false
		}
		recs = recs[size:]
	}
	return len(recs) == 0
}

// stamp fills in what the records of one item were waiting for.
func stamp(recs []byte, it *Item, storeMillis int64) {
	off, q := it.LogOffset, it.QueueOffset
	for len(recs) > 0 {
		size := message.Size(recs)
		message.Stamp(recs, q, off, storeMillis)
		recs = recs[size:]
		off += message.LogOffset(size)
		if !it.NoQueue {
			q++
		}
	}
}

func failItem(b *Batch, it *Item, st Status, err error) {
	it.Status = st
	if b.Err == nil {
		b.Err = err
	}
}

func failBatch(b *Batch, st Status, err error) {
	b.Err = err
	for i := range b.Items {
		b.Items[i].Status = st
	}
}

// noteAppend keeps the figures of appends. Token's holder.
func (s *Store) noteAppend(took time.Duration, bytes int64) {
	s.appendLast.Store(int64(took))
	s.appendMean.Store((7*s.appendMean.Load() + int64(took)) / 8)
	if int64(took) > s.appendMax.Load() {
		s.appendMax.Store(int64(took))
	}
	s.groups.Add(1)
	s.groupBytes.Add(bytes)
}
