package pop

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is the plainest account of a queue: every message in flight by itself.
type model struct {
	next, floor int64
	flying      map[int64]modelFlight // by offset
}

type modelFlight struct {
	h     Handle
	until int64
	taken bool
}

func (m *model) committed() int64 {
	if len(m.flying) == 0 {
		return m.next
	}
	return max(m.floor, min(m.next, slices.Min(slices.Collect(maps.Keys(m.flying)))))
}

// Random operations on a queue, checked against the model after each.
func TestStateAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		s, m, now := state{}, model{flying: map[int64]modelFlight{}}, int64(1_000_000)
		var handles []Flight // some live, most expired
		for step := range 400 {
			now += rng.Int64N(50)
			what := ""
			switch k := rng.IntN(20); {
			case k < 7:
				what = randomTake(rng, &s, &m, now, &handles)
			case k < 14 && len(handles) > 0:
				f := handles[rng.IntN(len(handles))]
				if rng.IntN(8) == 0 {
					f.PopMillis++
				}
				what = fmt.Sprint("ack ", f)
				was, ok := m.flying[f.Offset]
				live := ok && was.h == f.Handle && !was.taken
				if live {
					delete(m.flying, f.Offset)
				}
				if got := s.ack(f.Handle, f.Offset); got != live {
					t.Fatalf("seed %d step %d: %s: got %v, want %v", seed, step, what, got, live)
				}
			case k < 16 && len(handles) > 0:
				f := handles[rng.IntN(len(handles))]
				what = fmt.Sprint("change ", f)
				was, ok := m.flying[f.Offset]
				live := ok && was.h == f.Handle && !was.taken
				invisible := rng.Int64N(300)
				h, got := s.change(f.Handle, f.Offset, now, invisible)
				if got != live {
					t.Fatalf("seed %d step %d: %s: got %v, want %v", seed, step, what, got, live)
				}
				if live {
					m.flying[f.Offset] = modelFlight{h: h, until: h.PopMillis + invisible}
					handles = append(handles, Flight{h, f.Offset})
				}
			case k < 19:
				what = randomDue(t, rng, &s, &m, now)
			default:
				next := rng.Int64N(m.next + 5)
				what = fmt.Sprint("reset ", next)
				s.reset(next)
				m.next, m.floor = next, next
				maps.DeleteFunc(m.flying, func(off int64, _ modelFlight) bool { return off >= next })
			}
			if s.next != m.next || s.flying != len(m.flying) || s.committed() != m.committed() {
				t.Fatalf("seed %d step %d after %s: got next %d flying %d committed %d, want %d %d %d", seed, step, what,
					s.next, s.flying, s.committed(), m.next, len(m.flying), m.committed())
			}
		}
	}
}

func randomTake(rng *rand.Rand, s *state, m *model, now int64, handles *[]Flight) string {
	start := m.next
	var offsets []int64
	next := start
	for range 1 + rng.IntN(MsgsMax) {
		next += int64(rng.IntN(3) / 2 * rng.IntN(3)) // what a filter drops
		offsets = append(offsets, next)
		next++
	}
	next += int64(rng.IntN(2))
	h, invisible := Handle{start, now}, rng.Int64N(500)
	for s.checks[h] != nil {
		h.PopMillis++
	}
	s.take(h, h.PopMillis+invisible, next, offsets)
	m.next = next
	for _, off := range offsets {
		m.flying[off] = modelFlight{h: h, until: h.PopMillis + invisible}
		*handles = append(*handles, Flight{h, off})
	}
	return fmt.Sprint("take ", h, offsets)
}

// randomDue takes what is due, and says done or release of each at once.
func randomDue(t *testing.T, rng *rand.Rand, s *state, m *model, now int64) string {
	want := map[Flight]bool{}
	for off, f := range m.flying {
		if f.until <= now {
			want[Flight{f.h, off}] = true
		}
	}
	most := rng.IntN(40)
	var got []Flight
	s.due(now, func(h Handle, offset int64) bool {
		if len(got) >= most {
			return false
		}
		got = append(got, Flight{h, offset})
		return true
	})
	for _, f := range got {
		if !want[f] {
			t.Fatalf("due gave %v, which is not", f)
		}
		delete(want, f)
		if s.ack(f.Handle, f.Offset) {
			t.Fatalf("%v was acknowledged while it was taken", f)
		}
	}
	if len(got) < most && len(want) > 0 {
		t.Fatalf("due kept back %v", want)
	}
	for _, f := range got {
		if rng.IntN(4) == 0 {
			was := m.flying[f.Offset]
			s.release(f.Handle, f.Offset, now+100)
			// All of its delivery wait with it.
			for off, other := range m.flying {
				if other.h == was.h {
					other.until = max(other.until, now+100)
					m.flying[off] = other
				}
			}
			continue
		}
		s.done(f.Handle, f.Offset)
		delete(m.flying, f.Offset)
	}
	return fmt.Sprint("due ", got)
}

func TestOrder(t *testing.T) {
	s := state{}
	if s.order.blocks("", 0) {
		t.Error("a queue nobody popped in order is blocked")
	}
	b := s.takeOrdered("a1", 1000, 500, []int64{0, 1, 2})
	if fmt.Sprint(b.Counts) != "[0 0 0]" || s.committed() != 0 {
		t.Errorf("first delivery: got counts %v, committed %d", b.Counts, s.committed())
	}
	if !s.order.blocks("", 1499) || !s.order.blocks("a2", 1499) || s.order.blocks("a1", 1499) || s.order.blocks("", 1500) {
		t.Error("a batch blocks all but its own attempt until it is visible again")
	}
	// The same attempt again: it lost the answer, that was no delivery.
	if b := s.takeOrdered("a1", 1100, 500, []int64{0, 1, 2}); fmt.Sprint(b.Counts) != "[0 0 0]" {
		t.Errorf("the attempt again: got counts %v", b.Counts)
	}
	if got := s.ackOrdered(1000, 0); got != orderExpired {
		t.Errorf("acknowledged by the old time: got %d", got)
	}
	if got := s.ackOrdered(1100, 7); got != orderUnknown {
		t.Errorf("acknowledged what was not popped: got %d", got)
	}
	if got := s.ackOrdered(1100, 1); got != orderAcked || s.next != 0 {
		t.Errorf("the second acknowledged: got %d, next %d", got, s.next)
	}
	if got := s.ackOrdered(1100, 0); got != orderAcked || s.next != 2 {
		t.Errorf("the first acknowledged: got %d, next %d, want 2", got, s.next)
	}
	if !s.changeOrdered(1100, 2, 5000) || !s.order.blocks("", 4999) || s.order.blocks("", 5000) {
		t.Error("a changed invisible time counts")
	}
	b = s.takeOrdered("", 5000, 500, []int64{2, 3})
	if fmt.Sprint(b.Counts) != "[1 0]" {
		t.Errorf("delivered again with a new one: got counts %v, want [1 0]", b.Counts)
	}
	s.ackOrdered(5000, 2)
	s.ackOrdered(5000, 3)
	if s.next != 4 || s.order.blocks("", 5001) {
		t.Errorf("all acknowledged: got next %d, blocked %v", s.next, s.order.blocks("", 5001))
	}
}

// Times at the ends of their range neither overflow nor make a message visible
// at once.
func TestInvisibleTimesOutOfRange(t *testing.T) {
	for _, invisible := range []int64{-1, -1 << 63, 1<<63 - 1} {
		at := until(1000, invisible)
		if invisible < 0 && at != 1000 || invisible > 0 && at < 1<<59 {
			t.Errorf("invisible for %d ms from 1000 on: got until %d", invisible, at)
		}
	}
}
