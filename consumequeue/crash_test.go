package consumequeue

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// What a Sweep reported durable is there after a crash that loses everything
// else, whichever operation of a run fails, and a failed write is made good by
// the next Sweep.
func TestFailedOperations(t *testing.T) {
	for i := 0; ; i++ {
		mem := vfs.NewMem()
		fault := vfs.NewFault(mem)
		s := mustOpen(t, small(fault))
		fault.FailAt(vfs.OpChange|vfs.OpOpen, i, syscall.EIO)
		syncs := vfs.OpSync | vfs.OpSyncDir
		var durable int64
		var n int64
		var failed error
		for range 6 {
			for _, id := range []int32{0, 1} {
				putN(s.Queue("T", id, true), n, n+13)
			}
			n += 13
			before := fault.Count(syncs)
			err := s.Sweep()
			if err == nil {
				durable = n
			} else {
				failed = err
				if fault.Count(syncs) > before && !errors.Is(s.Sweep(), err) && s.failed != nil {
					t.Fatalf("operation %d: a failed sync is forgotten", i)
				}
			}
			for _, id := range []int32{0, 1} {
				wantEntries(t, s.Queue("T", id, false), 0, n)
			}
		}
		if failed != nil && !errors.Is(failed, syscall.EIO) {
			t.Fatalf("operation %d: error is %v", i, failed)
		}
		if s.failed == nil && s.Sweep() == nil {
			durable = n
		}
		if s.failed == nil && durable != n {
			t.Fatalf("operation %d: durable to %d, want %d", i, durable, n)
		}
		if s.failed != nil && durable == n {
			t.Fatalf("operation %d: a sweep after a failed sync succeeded", i)
		}
		cfg := small(mem.CrashClone(vfs.CrashPolicy{}, nil))
		cfg.Trust = max(1, message.LogOffset(durable*testSize))
		re := mustOpen(t, cfg)
		for _, id := range []int32{0, 1} {
			q := re.Queue("T", id, true)
			if got := int64(q.Max()); got != durable && !(durable == 0 && got == 1) { // entry 0 is below any Trust
				t.Fatalf("operation %d: queue %d has %d entries after a crash, want %d; %v", i, id, q.Max(), durable, failed)
			}
			wantEntries(t, q, 0, int64(q.Max()))
		}
		if failed == nil && fault.Count(vfs.OpChange|vfs.OpOpen) <= int64(i) {
			return // the whole run went without meeting operation i
		}
	}
}

// A model of the store: a log of records, each of a queue, and what its
// queues must show.
type model struct {
	log    []modelRec // the n-th is at log offset n·testSize
	minRec int        // records below are deleted
	swept  int        // records below are durable
}

type modelRec struct {
	q   modelQueue
	off int64
	n   int16 // messages; 0 in a queue that is no batch queue
}

// batchTopic says which of the model's topics have batch queues.
func batchTopic(topic string) (batch, known bool) { return topic == "t2", true }

type modelQueue struct {
	topic string
	id    int32
}

func (r modelRec) entry(n int) Entry {
	return Entry{LogOffset: message.LogOffset(n * testSize), Size: testSize, Span: Span{Count: r.n}, TagsCode: int64(n) ^ r.off}
}

// TestRandom does random operations, crashes included, on a Set and on the
// model.
func TestRandom(t *testing.T) {
	seed := rand.Uint64()
	rounds := 30
	if testing.Short() {
		rounds = 15
	}
	if n, err := strconv.Atoi(os.Getenv("RINGMQ_CRASH_SEEDS")); err == nil {
		rounds += n
	}
	for round := range rounds {
		t.Run(fmt.Sprintf("seed=%d", seed+uint64(round)), func(t *testing.T) { runRandom(t, seed+uint64(round)) })
	}
}

func runRandom(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	mem := vfs.NewMem()
	cfg := func(fs vfs.FS, trust message.LogOffset) Config {
		return Config{FS: fs, Dir: "cq", FileBytes: EntryBytes * []int64{1, 3, 10, 100}[seed%4], BatchFileBytes: BatchUnitBytes * []int64{2, 1, 100, 7}[seed%4], BatchTopic: batchTopic, TailEntriesMax: 1 << (seed % 7), OpenFilesMax: 16, IdleSweeps: 2,
			TailBytesMax: entryMemory * 100, Trust: trust, Logger: slog.New(slog.DiscardHandler)}
	}
	s := mustOpen(t, cfg(mem, TrustAll))
	m := &model{}
	for range 150 {
		switch op := rng.IntN(100); {
		case op < 50:
			m.put(s, rng, 1+rng.IntN(40))
		case op < 65:
			mustSweep(t, s)
			m.swept = len(m.log)
		case op < 75:
			m.minRec += rng.IntN(m.swept - m.minRec + 1) // a log keeps what its queues do not know yet
			if _, err := s.DeleteBelow(message.LogOffset(m.minRec * testSize)); err != nil {
				t.Fatal(err)
			}
		case op < 80:
			keep := m.minRec + rng.IntN(len(m.log)-m.minRec+1)
			if err := s.TruncateAbove(message.LogOffset(keep * testSize)); err != nil {
				t.Fatal(err)
			}
			m.log = m.log[:keep]
			m.swept = min(m.swept, keep)
		case op < 86:
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			m.swept = len(m.log)
			s = mustOpen(t, cfg(mem, TrustAll))
			if err := s.CorrectMin(message.LogOffset(m.minRec * testSize)); err != nil {
				t.Fatal(err)
			}
		case op < 94:
			fates := []vfs.Fate{vfs.Dropped, vfs.Kept, vfs.Torn}
			mem = mem.CrashClone(vfs.CrashPolicy{Data: fates[rng.IntN(3)], Entries: fates[rng.IntN(3)]}, rng)
			m.log = m.log[:max(m.minRec, m.swept+rng.IntN(len(m.log)-m.swept+1))] // what the log itself lost
			s = mustOpen(t, cfg(mem, max(1, message.LogOffset(m.swept*testSize))))
			m.dispatchFrom(s, m.swept)
			if err := s.CorrectMin(message.LogOffset(m.minRec * testSize)); err != nil {
				t.Fatal(err)
			}
			s.ResetNext()
			if rng.IntN(2) == 0 { // and what was dispatched again is swept later or now
				mustSweep(t, s)
				m.swept = len(m.log)
			}
		default:
			m.check(t, s, rng)
		}
	}
	m.check(t, s, rng)
}

func (m *model) put(s *Set, rng *rand.Rand, n int) {
	for range n {
		mq := modelQueue{fmt.Sprintf("t%d", rng.IntN(3)), int32(rng.IntN(3))}
		q := s.Queue(mq.topic, mq.id, true)
		rec := modelRec{q: mq}
		if q.Batch() {
			rec.n = int16(1 + rng.IntN(5))
		}
		rec.off = int64(q.Assign(int32(max(1, rec.n))))
		m.log = append(m.log, rec)
		q.Put(rec.entry(len(m.log)-1), message.QueueOffset(rec.off), int64(len(m.log)))
	}
}

func (m *model) dispatchFrom(s *Set, from int) {
	for n := max(from, m.minRec); n < len(m.log); n++ {
		rec := m.log[n]
		s.Queue(rec.q.topic, rec.q.id, true).Put(rec.entry(n), message.QueueOffset(rec.off), int64(n+1))
	}
}

// check compares every queue with what the log says.
func (m *model) check(t *testing.T, s *Set, rng *rand.Rand) {
	t.Helper()
	want := map[modelQueue][]int{}
	for n := m.minRec; n < len(m.log); n++ {
		want[m.log[n].q] = append(want[m.log[n].q], n)
	}
	s.Each(func(q *Queue) bool {
		recs := want[modelQueue{q.Topic(), q.ID()}]
		if len(recs) == 0 {
			if q.Min() != q.Max() {
				t.Fatalf("%s-%d is [%d, %d), want it to hold nothing", q.Topic(), q.ID(), q.Min(), q.Max())
			}
			return true
		}
		first, last := m.log[recs[0]], m.log[recs[len(recs)-1]]
		if end := last.off + int64(max(1, last.n)); int64(q.Min()) != first.off || int64(q.Max()) != end || q.Next() != q.Max() {
			t.Fatalf("%s-%d is [%d, %d), next %d, want [%d, %d)", q.Topic(), q.ID(), q.Min(), q.Max(), q.Next(), first.off, end)
		}
		from := rng.IntN(len(recs))
		into := rng.Int64N(int64(max(1, m.log[recs[from]].n)))
		got := make([]Entry, 1+rng.IntN(len(recs)))
		n, err := q.Read(got, message.QueueOffset(m.log[recs[from]].off+into))
		if err != nil || n != min(len(got), len(recs)-from) {
			t.Fatalf("%s-%d: read %d of %d: %v", q.Topic(), q.ID(), n, len(got), err)
		}
		for i, e := range got[:n] {
			rec := recs[from+i]
			want := m.log[rec].entry(rec)
			if i == 0 {
				want.Into = int16(into)
			}
			if e != want {
				t.Fatalf("%s-%d: entry of offset %d is %+v, want %+v", q.Topic(), q.ID(), m.log[rec].off, e, want)
			}
		}
		delete(want, modelQueue{q.Topic(), q.ID()})
		return true
	})
	for mq, recs := range want {
		q := s.Queue(mq.topic, mq.id, false)
		if q == nil {
			t.Fatalf("queue %v with %d records is missing", mq, len(recs))
		}
	}
}

// Reads, sweeps, deletions and puts at once: for the race detector, and that a
// reader sees an entry whole or not at all.
func TestConcurrent(t *testing.T) {
	cfg := small(vfs.NewMem())
	s := mustOpen(t, cfg)
	const queues, entries = 4, 6_000
	var done atomic.Bool
	var wg sync.WaitGroup
	for id := range int32(queues) {
		q := s.Queue("T", id, true)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 2))
			var dst [32]Entry
			for !done.Load() {
				from := int64(q.Min())
				if span := int64(q.Max()) - from; span > 0 {
					from += rng.Int64N(span)
				}
				n, err := q.Read(dst[:], message.QueueOffset(from))
				if err != nil && !errors.Is(err, ErrBelowMin) {
					t.Error(err)
					return
				}
				for i, e := range dst[:n] {
					if e != testEntry(from+int64(i)) {
						t.Errorf("entry %d is %+v", from+int64(i), e)
						return
					}
				}
			}
		})
	}
	wg.Go(func() {
		for !done.Load() {
			if err := s.Sweep(); err != nil {
				t.Error(err)
				return
			}
			if min := int64(s.Queue("T", 0, false).Max()) - 500; min > 0 {
				if _, err := s.DeleteBelow(message.LogOffset(min * testSize)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for n := range int64(entries) {
		for id := range int32(queues) {
			s.Find([]byte("T"), id).Put(testEntry(n), message.QueueOffset(n), 0)
		}
	}
	done.Store(true)
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkPut(b *testing.B) {
	s := mustOpen(b, Config{Dir: b.TempDir(), Trust: TrustAll})
	var qs [8]*Queue
	for i := range qs {
		qs[i] = s.Queue("BenchmarkTest", int32(i), true)
	}
	n := int64(0)
	for b.Loop() {
		qs[n&7].Put(testEntry(n), message.QueueOffset(n>>3), 0)
		if n++; n%(1<<20) == 0 {
			b.StopTimer()
			if err := s.Sweep(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
	b.StopTimer()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkReadHot32(b *testing.B) {
	s := mustOpen(b, Config{Dir: b.TempDir(), Trust: TrustAll})
	q := s.Queue("BenchmarkTest", 0, true)
	putN(q, 0, 2000)
	var dst [32]Entry
	for b.Loop() {
		if n, err := q.TryRead(dst[:], 1900); n != 32 || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkReadFile32(b *testing.B) {
	s := mustOpen(b, Config{Dir: b.TempDir(), Trust: TrustAll})
	q := s.Queue("BenchmarkTest", 0, true)
	putN(q, 0, 20000)
	mustSweep(b, s)
	var dst [32]Entry
	for b.Loop() {
		if n, err := q.TryRead(dst[:], 1900); n != 32 || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	s := mustOpen(b, Config{Dir: b.TempDir(), Trust: TrustAll})
	s.Queue("BenchmarkTest", 3, true)
	topic := []byte("BenchmarkTest")
	for b.Loop() {
		if s.Find(topic, 3) == nil {
			b.Fatal("not found")
		}
	}
}

func BenchmarkSweep1000Queues(b *testing.B) {
	s := mustOpen(b, Config{Dir: b.TempDir(), Trust: TrustAll})
	n := int64(0)
	for b.Loop() {
		for id := range int32(1000) {
			s.Queue("BenchmarkTest", id, true).Put(testEntry(n), message.QueueOffset(n), 0)
		}
		n++
		if err := s.Sweep(); err != nil {
			b.Fatal(err)
		}
	}
}
