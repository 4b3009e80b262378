package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

func TestAdmit(t *testing.T) {
	dev := &heldDevice{gate: make(chan struct{})}
	cfg := testConfig(vfs.NewMem())
	cfg.SyncFlush, cfg.Device, cfg.MaxBytesInFlight = true, dev, 1000
	s := mustOpen(t, cfg)
	if err := s.Admit(5000); err != nil {
		t.Errorf("one large message in an idle store: %v", err)
	}
	var waits []waiter
	put := func(n int) *Batch {
		b := one(s, "T", 0, strings.Repeat("x", n))
		w := newWaiter()
		b.Done = w
		waits = append(waits, w)
		s.Put(b)
		return b
	}
	put(700)
	err := s.Admit(400)
	var r *Refusal
	if !errors.As(err, &r) || r.Key != "maxBytesInFlight" || r.Limit != 1000 || r.Got < 1100 || !strings.Contains(err.Error(), "maxBytesInFlight") {
		t.Errorf("beyond the bound: %v", err)
	}
	if err := s.Admit(100); err != nil {
		t.Errorf("within the bound: %v", err)
	}
	put(900)
	b := newWaiter().put(s, one(s, "T", 0, strings.Repeat("x", 900)))
	if b.Items[0].Status != Busy || !errors.As(b.Err, &r) {
		t.Errorf("beyond twice the bound: %v, %v", b.Items[0].Status, b.Err)
	}
	close(dev.gate)
	for _, w := range waits {
		if b := w.wait(); b.Items[0].Status != OK {
			t.Error(b.Items[0].Status, b.Err)
		}
	}
	if err := s.Admit(900); err != nil {
		t.Errorf("after all were done: %v", err)
	}
	s.inFlight.Add(5 << 20)
	s.cfg.MaxBytesInFlight = 1 << 30
	s.rate.Store(1 << 20)
	if err := s.Admit(1); !errors.As(err, &r) || r.Unit != "ms" || r.Got < 4900 {
		t.Errorf("a backlog of 5 s: %v", err)
	}
	s.rate.Store(0)
	s.inFlight.Add(-5 << 20)
	mustClose(t, s)
}

// TestDirtyBound has a disk that stands still under ASYNC_FLUSH: sends are
// refused beyond the bound, and no longer once it has caught up.
func TestDirtyBound(t *testing.T) {
	dev := &heldDevice{gate: make(chan struct{})}
	cfg := testConfig(vfs.NewMem())
	cfg.Device, cfg.DirtyBytesMax = dev, 1000
	s := mustOpen(t, cfg)
	var r *Refusal
	for i := 0; ; i++ {
		err := s.Admit(10)
		dirty := int64(s.Marks().Written - s.Marks().Durable)
		if over := dirty > 4000; over != errors.As(err, &r) {
			t.Fatalf("%d bytes dirty: %v", dirty, err)
		} else if over {
			break
		}
		b := one(s, "T", 0, strings.Repeat("x", 100))
		b.MayDirect = i%2 == 0
		newWaiter().put(s, b)
	}
	if r.Key != "dirtyBytesMax" || r.Limit != 4000 || r.Got <= 4000 || r.Unit != "bytes" || !strings.Contains(r.Error(), "raise dirtyBytesMax") {
		t.Errorf("%+v", r)
	}
	if n := testing.AllocsPerRun(10, func() { s.noteDirty() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	close(dev.gate)
	mustAdmit(t, s)
	mustClose(t, s)
}

// mustAdmit waits for Admit to refuse nothing.
func mustAdmit(t *testing.T, s *Store) {
	t.Helper()
	for range 5000 {
		if s.Admit(10) == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("nothing is dirty any more, and still: %v", s.Admit(10))
}

// TestDirtyBoundEnds races writers against the flusher: whichever is last, no
// refusal is left standing.
func TestDirtyBoundEnds(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.DirtyBytesMax = 100
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	for range 30 {
		var senders sync.WaitGroup
		for g := range 3 {
			senders.Go(func() {
				for range 10 {
					b := one(s, "T", int32(g), "some words")
					b.MayDirect = g == 0
					newWaiter().put(s, b)
				}
			})
		}
		senders.Wait()
		mustAdmit(t, s)
	}
}

func TestRateMeter(t *testing.T) {
	const second = 10
	var m rateMeter
	done := int64(0)
	tick := func(n int, perTick, inFlight int64) (rate int64) {
		for range n {
			done += perTick
			rate = m.tick(done, inFlight, 100*time.Millisecond)
		}
		return rate
	}
	if r := tick(second, 100, 0); r != 0 {
		t.Errorf("idle: %d, want not known", r)
	}
	// Something is in flight at every tick, and yet the disk could do more: a
	// large message then was refused as if this were all it can do.
	if r := tick(3*second, 1000, 50); r != 0 {
		t.Errorf("a trickle: %d, want not known", r)
	}
	if r := tick(3*second, 1<<20, 2<<20); r < 9<<20 || r > 10<<20 {
		t.Errorf("busy: %d, want 10 MiB a second", r)
	}
	if r := tick(6*second, 0, 2<<20); r > 10 {
		t.Errorf("after six seconds of standstill: %d", r)
	}
	if r := tick(1, 0, 0); r != 0 {
		t.Errorf("idle again: %d, want not known", r)
	}
}

// usageFS tells of a disk as full as a test wants it.
type usageFS struct {
	vfs.FS
	used func() float64
}

func (u usageFS) Usage(string) (total, free int64, err error) {
	return 1000, 1000 - int64(1000*u.used()), nil
}

func TestRetention(t *testing.T) {
	used := 0.1
	now := time.Now()
	cfg := testConfig(usageFS{vfs.NewMem(), func() float64 { return used }})
	cfg.SegmentBytes, cfg.ConsumeQueueBytes = 4096, 20*10
	cfg.Now = func() time.Time { return now }
	cfg.DeleteBatchMax, cfg.DeletePause = 3, time.Nanosecond
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	for i := range 100 {
		send(t, s, "T", 0, fmt.Sprintf("%0300d", i))
	}
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	for s.Marks().Durable < s.Marks().Written {
		time.Sleep(time.Millisecond)
	}
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	day := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.Local)
	for _, tc := range []struct {
		name string
		at   time.Time
		used float64
		want int64 // segments deleted
		full bool
	}{
		{"young, at the hour", day.Add(4 * time.Hour), 0.1, 0, false},
		{"young, disk filling", day.Add(12 * time.Hour), 0.8, 0, false},
		{"old, not the hour", day.AddDate(0, 0, 9).Add(12 * time.Hour), 0.1, 0, false},
		{"old, at the hour", day.AddDate(0, 0, 9).Add(4 * time.Hour), 0.1, 3, false},
		{"old, disk filling", day.AddDate(0, 0, 9).Add(12 * time.Hour), 0.8, 3, false},
		{"young, forced", now, 0.86, 2, false},
		{"full", now, 0.95, 1, true},
		{"room again", now, 0.5, 0, false},
	} {
		before := s.segmentsDeleted.Load()
		if tc.name == "young, forced" {
			s.cfg.DeleteBatchMax = 2
		}
		if tc.name == "full" {
			s.cfg.DeleteBatchMax = 1
		}
		now, used = tc.at, tc.used
		s.clean(now)
		if got := s.segmentsDeleted.Load() - before; got != tc.want {
			t.Errorf("%s: %d segments deleted, want %d", tc.name, got, tc.want)
		}
		ok, why := s.Writable()
		if ok == tc.full || tc.full && !strings.Contains(why, "diskSpaceWarningLevelRatio") {
			t.Errorf("%s: writable %v, %s", tc.name, ok, why)
		}
	}
	q := s.Queue("T", 0)
	if q.Min() == 0 || q.Max() != 100 {
		t.Errorf("queue is [%d, %d)", q.Min(), q.Max())
	}
	got := bodies(t, s, "T", 0)
	if len(got) != int(q.Max()-q.Min()) || got[len(got)-1] != fmt.Sprintf("%0300d", 99) {
		t.Errorf("%d messages left of [%d, %d)", len(got), q.Min(), q.Max())
	}
	var res GetResult
	if s.Get(&GetRequest{Queue: q, Offset: 0, MaxMsgs: 1}, &res); res.Status != TooSmall || res.Next != q.Min() {
		t.Errorf("a deleted offset: %v, next %d", res.Status, res.Next)
	}
	// It opens again, and again after a kill.
	mem := s.fs.(usageFS).FS.(*vfs.Mem).CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil)
	cfg.FS = mem
	s2 := mustOpen(t, cfg)
	if d := cmp.Diff(got, bodies(t, s2, "T", 0)); d != "" {
		t.Error(d)
	}
	mustClose(t, s2)
}

// TestDeleteWhileReading keeps a segment's bytes for who holds a result.
func TestDeleteWhileReading(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.SegmentBytes = 4096
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	for i := range 40 {
		send(t, s, "T", 0, fmt.Sprintf("%0300d", i))
	}
	var res GetResult
	s.Get(&GetRequest{Queue: s.Queue("T", 0), MaxMsgs: 3}, &res)
	if _, err := s.log.DeleteOldest(message.LogOffset(4096)); err != nil {
		t.Fatal(err)
	}
	if got := messages(t, &res); len(got) != 3 || string(got[2].Body) != fmt.Sprintf("%0300d", 2) {
		t.Errorf("%d messages", len(got))
	}
	res.Release()
	s.Get(&GetRequest{Queue: s.Queue("T", 0), MaxMsgs: 3}, &res)
	// The queue's minimum has not moved yet: entries that lead nowhere are
	// passed over.
	if got := messages(t, &res); res.Status != Found || len(got) != 3 || got[0].PhysicalOffset != 4096 {
		t.Errorf("after the deletion: %v, %d messages, next %d", res.Status, len(got), res.Next)
	}
	res.Release()
}

// TestSegmentFails cannot make the next segment for a while: puts that need it
// are refused with the cause, smaller ones and reads go on, and it mends.
func TestSegmentFails(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	cfg := testConfig(fault)
	cfg.SegmentBytes = 4096
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	fault.Add(vfs.Rule{Ops: vfs.OpChange, Path: "00000000000000004096", Err: syscall.ENOSPC})
	send(t, s, "T", 0, strings.Repeat("x", 3500))
	b := newWaiter().put(s, one(s, "T", 0, strings.Repeat("y", 1000)))
	if b.Items[0].Status != CreateFailed || !errors.Is(b.Err, syscall.ENOSPC) {
		t.Errorf("%v, %v", b.Items[0].Status, b.Err)
	}
	if it := send(t, s, "T", 0, "small"); it.QueueOffset != 1 {
		t.Errorf("queue offset %d behind a refused record, want 1", it.QueueOffset)
	}
	if ok, why := s.Writable(); !ok {
		t.Error(why)
	}
	fault.Clear()
	if it := send(t, s, "T", 0, strings.Repeat("y", 1000)); it.QueueOffset != 2 || it.LogOffset != 4096 {
		t.Errorf("%+v", it)
	}
	if got := bodies(t, s, "T", 0); len(got) != 3 {
		t.Errorf("%d messages", len(got))
	}
}

// TestQueuesFull cannot write ConsumeQueues for a while: the mark stays, and
// moves when there is room.
func TestQueuesFull(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	cfg := testConfig(fault)
	cfg.SyncFlush = true
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	fault.Add(vfs.Rule{Ops: vfs.OpCreate | vfs.OpWrite, Path: "consumequeue", Err: syscall.ENOSPC})
	send(t, s, "T", 0, "x")
	if err := s.sweep(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("sweep on a full disk: %v", err)
	}
	if end := s.marks.last.end; end != 0 {
		t.Errorf("the mark moved to %d", end)
	}
	send(t, s, "T", 0, "y")
	fault.Clear()
	if err := s.sweep(); err != nil || s.marks.last.end != s.Marks().Written {
		t.Errorf("sweep with room again: %v, mark %d", err, s.marks.last.end)
	}
	if d := cmp.Diff([]string{"x", "y"}, bodies(t, s, "T", 0)); d != "" {
		t.Error(d)
	}
}
