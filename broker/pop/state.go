package pop

import (
	"container/heap"
	"math/bits"
)

// MsgsMax is the most messages of one delivery.
const MsgsMax = 32

// A Handle names one delivery of a queue: where its pop began and when it was.
// No two deliveries of a queue that are in flight have the same.
type Handle struct {
	Start     int64 // queue offset
	PopMillis int64
}

// state is what a group has consumed of one queue, without locks, clock or
// disk: offsets below next have been popped; of those, the ones in a check are
// in flight, all others done.
type state struct {
	next   int64 // where the next pop begins
	checks map[Handle]*check
	byLow  lowHeap // the lowest message in flight first
	byDue  dueHeap // the next to become visible first
	flying int     // messages in flight
	floor  int64   // committed is never below: where the last reset said to begin
	order  *Batch  // the last batch popped in order; nil: none yet
}

// A check is one delivery in flight: the messages of one pop, or one message
// whose invisible time was changed.
type check struct {
	handle Handle
	until  int64    // unix milliseconds; then what is live is delivered anew
	due    int64    // when to look at it: until, or later while it is taken
	diffs  []uint32 // message i is at handle.Start+diffs[i]; nil: at handle.Start+i
	n      uint8    // messages
	live   uint32   // bit i: message i is neither acknowledged nor on its retry topic
	taken  uint32   // of these: being put there; no acknowledgement counts any more
	low    int64    // offset of the lowest live message
	lowAt  int32    // places in the two heaps
	dueAt  int32
}

func (c *check) offset(i int) int64 {
	if c.diffs == nil {
		return c.handle.Start + int64(i)
	}
	return c.handle.Start + int64(c.diffs[i])
}

// bit finds the message at an offset; 0 when it is not of this delivery.
func (c *check) bit(offset int64) uint32 {
	for i := range int(c.n) {
		if c.offset(i) == offset {
			return 1 << i
		}
	}
	return 0
}

// setLow finds the lowest live message again; live is not 0.
func (c *check) setLow() { c.low = c.offset(bits.TrailingZeros32(c.live)) }

// take notes a delivery of the messages at offsets, 1 to MsgsMax of them in
// order, and moves next on.
func (s *state) take(h Handle, until, next int64, offsets []int64) {
	c := &check{handle: h, until: until, n: uint8(len(offsets)), live: uint32(1<<len(offsets) - 1)}
	if offsets[len(offsets)-1] != h.Start+int64(len(offsets)-1) {
		c.diffs = make([]uint32, len(offsets))
		for i, off := range offsets {
			c.diffs[i] = uint32(off - h.Start)
		}
	}
	s.add(c)
	s.next = next
}

// add puts a check in; one of the same handle, which only a replay brings, is
// replaced.
func (s *state) add(c *check) {
	if old := s.checks[c.handle]; old != nil {
		s.remove(old)
	}
	if c.live == 0 {
		return
	}
	if s.checks == nil {
		s.checks = map[Handle]*check{}
	}
	c.setLow()
	c.due = c.until
	s.checks[c.handle] = c
	heap.Push(&s.byLow, c)
	heap.Push(&s.byDue, c)
	s.flying += bits.OnesCount32(c.live)
}

func (s *state) remove(c *check) {
	delete(s.checks, c.handle)
	heap.Remove(&s.byLow, int(c.lowAt))
	heap.Remove(&s.byDue, int(c.dueAt))
	s.flying -= bits.OnesCount32(c.live)
}

// clear takes live bits off a check, and the check out with the last of them.
func (s *state) clear(c *check, mask uint32) {
	mask &= c.live
	if c.live == mask {
		s.remove(c)
		return
	}
	c.live &^= mask
	c.taken &^= mask
	s.flying -= bits.OnesCount32(mask)
	c.setLow()
	heap.Fix(&s.byLow, int(c.lowAt))
}

// find gives the message of a delivery that is still in flight.
func (s *state) find(h Handle, offset int64) (c *check, bit uint32) {
	if c = s.checks[h]; c == nil {
		return nil, 0
	}
	return c, c.bit(offset) & c.live
}

// ack ends a message in flight; false when the handle has expired.
func (s *state) ack(h Handle, offset int64) bool {
	c, bit := s.find(h, offset)
	if bit&^c.takenOrNone() == 0 {
		return false
	}
	s.clear(c, bit)
	return true
}

func (c *check) takenOrNone() uint32 {
	if c == nil {
		return 0
	}
	return c.taken
}

// done ends a message that is on its retry topic.
func (s *state) done(h Handle, offset int64) {
	if c, bit := s.find(h, offset); bit != 0 {
		s.clear(c, bit)
	}
}

// change gives a message in flight another invisible time, and with it a
// delivery of its own. popMillis is moved on where its handle is in use.
func (s *state) change(h Handle, offset, popMillis, invisible int64) (Handle, bool) {
	c, bit := s.find(h, offset)
	if bit&^c.takenOrNone() == 0 {
		return h, false
	}
	changed := Handle{Start: offset, PopMillis: popMillis}
	for s.checks[changed] != nil {
		changed.PopMillis++
	}
	s.clear(c, bit)
	s.add(&check{handle: changed, until: until(changed.PopMillis, invisible), n: 1, live: 1})
	return changed, true
}

// until is when a message popped now becomes visible again.
func until(popMillis, invisible int64) int64 {
	const never = 1 << 60 // leaves room for sums
	return popMillis + min(max(invisible, 0), never)
}

// due marks messages whose invisible time is over as taken and hands them to
// fn, until it says that it takes no more.
func (s *state) due(now int64, fn func(h Handle, offset int64) bool) {
	for len(s.byDue) > 0 && s.byDue[0].due <= now {
		c := s.byDue[0]
		for left := c.live &^ c.taken; left != 0; left &= left - 1 {
			if !fn(c.handle, c.offset(bits.TrailingZeros32(left))) {
				return
			}
			c.taken |= left & -left
		}
		// What is taken is its taker's until it says done or release.
		c.due = until(now, takenMillis)
		heap.Fix(&s.byDue, int(c.dueAt))
	}
}

// takenMillis is how long a taker has for what due gave it; longer than a put
// can take.
const takenMillis = 3600_000

// release gives back a message that could not be put on its retry topic: it is
// due again at a later time.
func (s *state) release(h Handle, offset, at int64) {
	if c, bit := s.find(h, offset); bit != 0 {
		c.taken &^= bit
		c.due = at
		heap.Fix(&s.byDue, int(c.dueAt))
	}
}

// reset has the next pop begin at an offset. Messages in flight from there on
// will be delivered again, so their handles expire now; those below stay.
func (s *state) reset(next int64) {
	s.next, s.floor, s.order = next, next, nil
	for _, c := range s.checks {
		mask := uint32(0)
		for i := range int(c.n) {
			if c.offset(i) >= next {
				mask |= 1 << i
			}
		}
		if mask &= c.live; mask != 0 {
			s.clear(c, mask)
		}
	}
}

// committed is the place below which all is done: where a pull consumer of the
// group goes on without losing anything. Whoever skips messages by a reset does
// not want to see the ones in flight below it.
func (s *state) committed() int64 {
	if len(s.byLow) > 0 {
		return max(s.floor, min(s.byLow[0].low, s.next))
	}
	return s.next
}

// nextDue is when due has something to do; never is answered with 1<<62.
func (s *state) nextDue() int64 {
	if len(s.byDue) == 0 {
		return neverMillis
	}
	return s.byDue[0].due
}

const neverMillis = 1 << 62

// lowHeap orders checks by their lowest live message (container/heap).
type lowHeap []*check

func (h lowHeap) Len() int           { return len(h) }
func (h lowHeap) Less(i, j int) bool { return h[i].low < h[j].low }
func (h lowHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].lowAt, h[j].lowAt = int32(i), int32(j)
}
func (h *lowHeap) Push(x any) {
	c := x.(*check)
	c.lowAt = int32(len(*h))
	*h = append(*h, c)
}
func (h *lowHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return c
}

// dueHeap orders checks by when they become visible (container/heap).
type dueHeap []*check

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dueAt, h[j].dueAt = int32(i), int32(j)
}
func (h *dueHeap) Push(x any) {
	c := x.(*check)
	c.dueAt = int32(len(*h))
	*h = append(*h, c)
}
func (h *dueHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return c
}
