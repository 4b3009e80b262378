package broker

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringmq/ringmq/message"
)

// Whatever is pushed, popped and dropped, items leave in their order.
func TestTimerHeapAgainstSorted(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 3))
	t.Logf("seed %d", seed)
	order := func(a, b timerItem) int {
		switch {
		case a.before(b):
			return -1
		case b.before(a):
			return 1
		}
		return 0
	}
	for range 200 {
		var h timerHeap
		var model []timerItem
		for n := range 300 {
			switch rng.IntN(8) {
			case 0:
				floor := rng.Int64N(5000)
				keep := func(i timerItem) bool { return i.at >= floor }
				if rng.IntN(10) == 0 {
					h.keep(keep)
					model = slices.DeleteFunc(model, func(i timerItem) bool { return !keep(i) })
				}
			case 1, 2, 3:
				if len(h) > 0 {
					want := model[0]
					model = model[1:]
					if got := h.pop(); got != want {
						t.Fatalf("seed %d: popped %+v, want %+v", seed, got, want)
					}
				}
			default:
				item := timerDue(rng.Int64N(10_000), message.LogOffset(n), rng.IntN(4) == 0)
				h.push(item)
				model = append(model, item)
				slices.SortFunc(model, order)
			}
			if len(h) != len(model) || len(h) > 0 && h[0] != model[0] {
				t.Fatalf("seed %d: %d items, first %+v, want %d, %+v", seed, len(h), h[:min(1, len(h))], len(model), model[:min(1, len(model))])
			}
		}
	}
}

// Thousands of equal times leave as they came, whatever the heap's shape.
func TestTimerHeapKeepsOrder(t *testing.T) {
	for _, n := range []int{1, 2, 5, 21, 85, 341, 1000, 3000, 5461} {
		var h timerHeap
		for i := range n {
			h.push(timerDue(1, message.LogOffset(i), false))
		}
		if n%2 == 0 {
			h.keep(func(timerItem) bool { return true })
		}
		for i := range n {
			if got := h.pop(); got.off != message.LogOffset(i) {
				t.Fatalf("of %d: item %d left as number %d", n, got.off, i)
			}
		}
	}
}

func TestTimerItem(t *testing.T) {
	// A cancellation acts before every message of its slot, whatever its own
	// millisecond; Apache's handles name one millisecond more than the message.
	cancel := timerDue(5_001, 900, true)
	for _, ms := range []int64{5_000, 5_001, 5_999} {
		if m := timerDue(ms, 10, false); !cancel.before(m) || m.before(cancel) || m.slot() != cancel.slot() {
			t.Errorf("a cancellation for 5001 doesn't reach a message for %d", ms)
		}
	}
	for _, ms := range []int64{4_999, 6_000} {
		if m := timerDue(ms, 10, false); m.slot() == cancel.slot() {
			t.Errorf("a cancellation for 5001 reaches a message for %d", ms)
		}
	}
	if !cancel.cancels() || cancel.origin() != 900 || timerDue(1, 0, true).origin() != 0 || !timerDue(1, 0, true).cancels() {
		t.Errorf("%+v: cancels %v, origin %d", cancel, cancel.cancels(), cancel.origin())
	}
}
