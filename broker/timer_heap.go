package broker

import "github.com/ringmq/ringmq/message"

// A timerItem is one entry of the timer topic's queue that has not been dealt
// with: 16 bytes, which is all that a pending timer costs in memory.
type timerItem struct {
	at  int64             // when it acts, Unix milliseconds
	off message.LogOffset // of its record; ^off for a cancellation
}

// timerSlotMs is the time within which a cancellation finds its message: both
// name a time of the same slot. Apache's wheel has slots of that length, and
// handles that its brokers gave out are a millisecond beside the message's time.
const timerSlotMs = 1000

// timerDue makes the item of an entry that is due at ms; a cancellation acts
// before all messages of its slot.
func timerDue(ms int64, off message.LogOffset, cancels bool) timerItem {
	if cancels {
		return timerItem{at: ms / timerSlotMs * timerSlotMs, off: ^off}
	}
	return timerItem{at: ms, off: off}
}

// cancels says whether it is a cancellation.
func (i timerItem) cancels() bool { return i.off < 0 }

// origin is the log offset of its record.
func (i timerItem) origin() message.LogOffset { return max(i.off, ^i.off) }

// slot is the slot in which it acts.
func (i timerItem) slot() int64 { return i.at / timerSlotMs }

// before is the order in which items act: by time, cancellations first, then as
// they came.
func (i timerItem) before(j timerItem) bool {
	if i.at != j.at {
		return i.at < j.at
	}
	if i.cancels() != j.cancels() {
		return i.cancels()
	}
	return i.origin() < j.origin()
}

// A timerHeap holds items so that the one to act next is the first. Four
// children a node keep a push short and a pop within few cache lines.
type timerHeap []timerItem

func (h *timerHeap) push(item timerItem) {
	s := append(*h, item)
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !item.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = item
	*h = s
}

// pop takes the first item; the heap isn't empty.
func (h *timerHeap) pop() timerItem {
	s := *h
	first, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	if len(s) > 0 {
		s[0] = last
		s.down(0)
	}
	*h = s
	return first
}

// down moves item i to where it belongs among those below it.
func (h timerHeap) down(i int) {
	item := h[i]
	for {
		first := 4*i + 1
		if first >= len(h) {
			break
		}
		child := first
		for j := first + 1; j < min(first+4, len(h)); j++ {
			if h[j].before(h[child]) {
				child = j
			}
		}
		if !h[child].before(item) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = item
}

// keep drops the items that keep says no to, and gives room back.
func (h *timerHeap) keep(keep func(timerItem) bool) {
	kept := make(timerHeap, 0, len(*h))
	for _, item := range *h {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	for i := (len(kept)+2)/4 - 1; i >= 0; i-- { // the last with a child, and up
		kept.down(i)
	}
	*h = kept
}
