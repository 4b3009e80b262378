package pop

import "slices"

// A Batch is what was last popped of a queue in order. While any of its
// messages is neither acknowledged nor visible again, nothing more is popped;
// then all from the lowest unacknowledged one on are popped anew, in order.
// (As ConsumerOrderInfoManager.OrderInfo, 5.3.3.)
type Batch struct {
	AttemptID string // of the request that popped it; it may ask again
	PopMillis int64
	Invisible int64   // milliseconds
	Offsets   []int64 // 1 to MsgsMax, rising
	Counts    []int32 // times each was popped before
	Visible   []int64 // unix milliseconds each becomes visible, where that was changed; else 0
	acked     uint32  // bit i: message i is acknowledged
}

// blocks says whether a pop must wait.
func (b *Batch) blocks(attemptID string, now int64) bool {
	if b == nil || b.AttemptID != "" && b.AttemptID == attemptID {
		return false
	}
	return b.freeAt() > now
}

// freeAt is when the last unacknowledged message becomes visible; 0 when all
// are acknowledged.
func (b *Batch) freeAt() (at int64) {
	for i := range b.Offsets {
		if b.acked&(1<<i) != 0 {
			continue
		}
		visible := b.Visible[i]
		if visible == 0 {
			visible = until(b.PopMillis, b.Invisible)
		}
		at = max(at, visible)
	}
	return at
}

// next is where the queue goes on: at the lowest unacknowledged message, or
// behind the last.
func (b *Batch) next() int64 {
	for i, off := range b.Offsets {
		if b.acked&(1<<i) == 0 {
			return off
		}
	}
	return b.Offsets[len(b.Offsets)-1] + 1
}

// takeOrdered notes a batch popped in order. The same attempt counts once.
func (s *state) takeOrdered(attemptID string, popMillis, invisible int64, offsets []int64) *Batch {
	b := &Batch{AttemptID: attemptID, PopMillis: popMillis, Invisible: invisible, Offsets: slices.Clone(offsets),
		Counts: make([]int32, len(offsets)), Visible: make([]int64, len(offsets))}
	if old := s.order; old != nil {
		again := int32(1)
		if old.AttemptID != "" && old.AttemptID == attemptID {
			again = 0
		}
		for i, off := range offsets {
			if at, ok := slices.BinarySearch(old.Offsets, off); ok {
				b.Counts[i] = old.Counts[at] + again
			}
		}
	}
	s.order = b
	return b
}

// How an acknowledgement in order ended.
const (
	orderAcked   = iota // taken
	orderExpired        // of an earlier delivery: nothing to do
	orderUnknown        // the batch has no such message
)

// ackOrdered acknowledges a message of the batch and moves next on.
func (s *state) ackOrdered(popMillis, offset int64) int {
	b := s.order
	if b == nil || offset < s.next || b.PopMillis != popMillis {
		return orderExpired
	}
	i, ok := slices.BinarySearch(b.Offsets, offset)
	if !ok {
		return orderUnknown
	}
	b.acked |= 1 << i
	s.next = max(s.next, b.next())
	return orderAcked
}

// changeOrdered has a message of the batch become visible at another time.
func (s *state) changeOrdered(popMillis, offset, visible int64) bool {
	b := s.order
	if b == nil || offset < s.next || b.PopMillis != popMillis {
		return false
	}
	i, ok := slices.BinarySearch(b.Offsets, offset)
	if ok {
		b.Visible[i] = max(visible, 1)
	}
	return ok
}
