package pop

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

func openTable(t *testing.T, fs vfs.FS, change func(*Config)) *Table {
	t.Helper()
	cfg := Config{FS: fs, Dir: "config", SyncInterval: time.Millisecond, Commit: func(string, string, int32, int64) {}}
	if change != nil {
		change(&cfg)
	}
	if err := vfs.MkdirAllSync(fs, "config"); err != nil {
		t.Fatal(err)
	}
	table, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return table
}

type waiter chan struct{}

func (w waiter) Written() { close(w) }

func (t *Table) written() {
	w := make(waiter)
	t.AfterWrite(w)
	<-w
}

// text says all there is to know of a table.
func (t *Table) text() string {
	var lines []string
	t.each(func(q *Queue) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.st.next == NoOffset && len(q.st.checks) == 0 {
			return // as if it were not there
		}
		var checks []string
		for h, c := range q.st.checks {
			checks = append(checks, fmt.Sprint(h, c.until, c.diffs, c.n, c.live))
		}
		slices.Sort(checks)
		line := fmt.Sprint(q.g.Topic, "@", q.g.Name, " ", q.ID, ": next ", q.st.next, " floor ", q.st.floor, checks)
		if b := q.st.order; b != nil {
			line += fmt.Sprint(*b)
		}
		lines = append(lines, line)
	})
	slices.Sort(lines)
	return fmt.Sprint(t.Cursor(), "\n", strings.Join(lines, "\n"))
}

// mutate does one random thing to one of a few queues.
func mutate(rng *rand.Rand, t *Table, now int64) {
	topic, group := fmt.Sprint("T", rng.IntN(3)), fmt.Sprint("g", rng.IntN(3))
	q := t.Group(topic, group).Queue(int32(rng.IntN(3)))
	var live []Flight
	q.mu.Lock()
	for h, c := range q.st.checks {
		for i := range int(c.n) {
			if c.live&(1<<i) != 0 {
				live = append(live, Flight{h, c.offset(i)})
			}
		}
	}
	q.mu.Unlock()
	switch k := rng.IntN(100); {
	case k < 30:
		q.Lock()
		start := max(q.Next(), 0)
		var offsets []int64
		next := start
		for range 1 + rng.IntN(MsgsMax) {
			next += int64(rng.IntN(2))
			offsets = append(offsets, next)
			next++
		}
		q.Take(start, next, now, rng.Int64N(1000), offsets)
		q.Unlock()
	case k < 65 && len(live) > 0:
		f := live[rng.IntN(len(live))]
		q.Ack(f.Handle, f.Offset)
	case k < 75 && len(live) > 0:
		f := live[rng.IntN(len(live))]
		q.Change(f.Handle, f.Offset, now, rng.Int64N(1000))
	case k < 80:
		for _, f := range q.TakeDue(nil, now, rng.IntN(8)) {
			q.Done(f)
		}
	case k < 85:
		q.Lock()
		q.Skip(max(q.Next(), 0) + rng.Int64N(3))
		q.Unlock()
	case k < 88:
		t.Reset(topic, group, q.ID, rng.Int64N(100))
	case k < 94:
		q.Lock()
		at := max(q.Next(), 0)
		q.Begin(at)
		q.TakeOrdered(fmt.Sprint("a", rng.IntN(2)), now, 100, []int64{at, at + 1, at + 3})
		q.Unlock()
		if rng.IntN(2) == 0 {
			q.AckOrdered(now, at, now)
			q.ChangeOrdered(now, at+1, now+50)
		}
	case k < 98:
		t.SetCursor(rng.Int64N(1 << 40))
	default:
		t.Drop(topic, group)
	}
}

// After the end of the process all is there that was written; after a power
// cut, a state it once was in, at least as new as the last sync.
func TestCrashes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 12 {
		mem := vfs.NewMem()
		small := func(c *Config) { c.CompactBytes = 1 + rng.Int64N(4096) } // compacts all the time
		table := openTable(t, mem, small)
		history := map[string]int{table.text(): 0}
		now, synced := int64(1_000_000), 0
		for step := 1; step <= 300; step++ {
			now += rng.Int64N(100)
			mutate(rng, table, now)
			history[table.text()] = step
			if rng.IntN(50) == 0 {
				if err := table.Close(); err != nil {
					t.Fatal(err)
				}
				want := table.text()
				table = openTable(t, mem, small)
				if got := table.text(); got != want {
					t.Fatalf("seed %d round %d: after a clean stop got %s\nwant %s", seed, round, got, want)
				}
				synced = step
			}
			if rng.IntN(20) != 0 {
				continue
			}
			table.written()
			killed := openTable(t, mem.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil), nil)
			if got, want := killed.text(), table.text(); got != want {
				t.Fatalf("seed %d round %d step %d: after kill -9 got %s\nwant %s", seed, round, step, got, want)
			}
			for _, policy := range []vfs.CrashPolicy{{}, {Data: vfs.Torn, Entries: vfs.Torn}} {
				cut := openTable(t, mem.CrashClone(policy, rng), nil)
				at, ok := history[cut.text()]
				if !ok || at < synced {
					t.Fatalf("seed %d round %d step %d: after a power cut a state of step %d (known %v), last synced %d:\n%s",
						seed, round, step, at, ok, synced, cut.text())
				}
			}
		}
	}
}

// A disk that refuses the journal stops nobody, and what it takes again is
// whole.
func TestJournalRefused(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpWrite, vfs.OpSync} {
		mem := vfs.NewMem()
		fault := vfs.NewFault(mem)
		table := openTable(t, fault, nil)
		rng := rand.New(rand.NewPCG(1, uint64(op)))
		fault.Add(vfs.Rule{Ops: op, Times: 1, Err: errors.New("no more")})
		for i := range 300 {
			mutate(rng, table, int64(i))
			if i%10 == 0 {
				table.written() // answered all the same
				time.Sleep(time.Millisecond)
			}
		}
		if err := table.Close(); err != nil {
			t.Fatalf("close after the disk is well again: %v", err)
		}
		again := openTable(t, mem, nil)
		if got, want := again.text(), table.text(); got != want {
			t.Errorf("after a refused operation %v: got %s\nwant %s", op, got, want)
		}
	}
}

// Files that are no journals are as none: a new one is begun.
func TestNoJournal(t *testing.T) {
	for _, content := range []string{"", "x", journalMagic, journalMagic + "12345678", journalMagic + "12345678" + strings.Repeat("\xff", 100)} {
		mem := vfs.NewMem()
		if err := vfs.MkdirAllSync(mem, "config"); err != nil {
			t.Fatal(err)
		}
		for _, name := range journalNames {
			if err := mem.WriteFileAtomic("config/"+name, []byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		table := openTable(t, mem, nil)
		rng := rand.New(rand.NewPCG(7, 7))
		for i := range 50 {
			mutate(rng, table, int64(i))
		}
		if err := table.Close(); err != nil {
			t.Fatal(err)
		}
		if got, want := openTable(t, mem, nil).text(), table.text(); got != want {
			t.Errorf("after files of %q: got %s\nwant %s", content, got, want)
		}
	}
}

// Whatever stands in the files, Open gives a table or an error, and never
// panics.
func FuzzReplay(f *testing.F) {
	table := &Table{cfg: Config{Commit: func(string, string, int32, int64) {}}, groups: map[string]*Group{}}
	table.cfg.setDefaults()
	table.journal = newJournal(table)
	q := table.Group("T", "g").Queue(3)
	q.st.take(Handle{5, 1000}, 2000, 40, []int64{5, 7, 9})
	q.st.takeOrdered("a", 1, 2, []int64{1, 2})
	f.Add(appendState(nil, q))
	f.Add(appendOp(appendState(nil, q), opChange, q.id, 5, 1000, 7, 1100, 50))
	f.Fuzz(func(t *testing.T, b []byte) {
		table := &Table{cfg: table.cfg, groups: map[string]*Group{}}
		table.journal = newJournal(table)
		p := replay{t: table, byID: map[int64]*Queue{}}
		if p.frame(b) == nil {
			table.text()
		}
	})
}

// What is committed follows what is done, and others' commits move the queue.
func TestCommitsAndResets(t *testing.T) {
	var said []string
	table := openTable(t, vfs.NewMem(), func(c *Config) {
		c.Commit = func(topic, group string, id int32, offset int64) {
			said = append(said, fmt.Sprint(topic, group, id, " ", offset))
		}
	})
	q := table.Group("T", "g").Queue(1)
	q.Lock()
	q.Begin(10)
	q.Take(10, 13, 1000, 100, []int64{10, 11, 12})
	q.Unlock()
	h := Handle{10, 1000}
	q.Ack(h, 11)
	q.Ack(h, 10)
	q.Ack(h, 12)
	if got := fmt.Sprint(said); got != "[Tg1 10 Tg1 12 Tg1 13]" {
		t.Errorf("committed: got %s", got)
	}
	q.Lock()
	q.Take(13, 15, 2000, 100, []int64{13, 14})
	q.Unlock()
	table.Reset("T", "g", 1, 14)
	if q.Ack(Handle{13, 2000}, 14) {
		t.Error("a handle at or behind a reset still counts")
	}
	if !q.Ack(Handle{13, 2000}, 13) {
		t.Error("a handle below a reset counts no more")
	}
	if q.PeekNext() != 14 {
		t.Errorf("after a reset: next %d, want 14", q.PeekNext())
	}
	table.Drop("T", "g")
	if table.Flying() != 0 || q.Lock() {
		t.Error("a dropped queue can be popped")
	}
}

// Fit gives up what the store has lost, so that new messages at those offsets
// are popped.
func TestFit(t *testing.T) {
	mem := vfs.NewMem()
	table := openTable(t, mem, nil)
	for _, topic := range []string{"T", "Gone"} {
		q := table.Group(topic, "g").Queue(0)
		q.Lock()
		q.Take(0, 32, 1000, 100, []int64{3, 30, 31})
		q.Unlock()
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	table = openTable(t, mem, nil)
	if err := table.Fit(func(topic, _ string) bool { return topic == "T" }, func(string, int32) int64 { return 31 }); err != nil {
		t.Fatal(err)
	}
	q := table.Group("T", "g").Queue(0)
	if q.PeekNext() != 31 || q.Flying() != 2 || table.Flying() != 2 {
		t.Errorf("got next %d, %d and %d in flight, want 31, 2 and 2", q.PeekNext(), q.Flying(), table.Flying())
	}
	if table.FindGroup("Gone", "g") != nil {
		t.Error("a deleted topic's group is still there")
	}
}

// A hundred thousand messages in flight, popped one by one, and their journal
// stay small.
func TestMemoryInFlight(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	table := openTable(t, vfs.NewMem(), nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	q := table.Group("T", "g").Queue(0)
	const n = 100_000
	for i := range int64(n) {
		q.Lock()
		q.Take(i, i+1, 1_700_000_000_000+i, 60_000, []int64{i})
		q.Unlock()
	}
	table.written()
	size := table.journal.size
	runtime.GC()
	runtime.ReadMemStats(&after)
	if per := float64(size) / n; per > 40 {
		t.Errorf("journal bytes a pop: got %.1f, want at most 40", per)
	}
	if per := float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)-size) / n; per > 250 {
		t.Errorf("memory of a message popped alone: got %.0f bytes, want at most 250", per)
	}
	runtime.KeepAlive(table)
}

func BenchmarkPopAndAck(b *testing.B) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("config"); err != nil {
		b.Fatal(err)
	}
	table, err := Open(Config{FS: fs, Dir: "config", Commit: func(string, string, int32, int64) {}})
	if err != nil {
		b.Fatal(err)
	}
	defer table.Close()
	q := table.Group("T", "g").Queue(0)
	var written atomic.Int64
	offsets := make([]int64, MsgsMax)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		start := int64(i * MsgsMax)
		for k := range offsets {
			offsets[k] = start + int64(k)
		}
		q.Lock()
		q.Take(start, start+MsgsMax, 1_700_000_000_000+int64(i), 60_000, offsets)
		q.Unlock()
		for _, off := range offsets {
			q.Ack(Handle{start, 1_700_000_000_000 + int64(i)}, off)
		}
		if i%64 == 0 {
			table.written()
		}
		written.Add(1)
	}
}
