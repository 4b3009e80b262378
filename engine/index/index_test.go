package index

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// small is a Config whose files are full after 99 entries, 7 buckets each.
func small(fs vfs.FS) Config {
	return Config{FS: fs, Dir: "store/index", HashSlots: 7, Entries: 100, SlotEvery: 16, Clean: true, OpenFilesMax: 2, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Date(2026, 11, 30, 9, 8, 7, 65e6, time.Local) }}
}

func mustOpen(t testing.TB, cfg Config) *Index {
	t.Helper()
	x, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestKeyHash(t *testing.T) {
	check := func(topic, key string) {
		t.Helper()
		want := message.JavaHash([]byte(topic + "#" + key))
		if want == math.MinInt32 {
			want = 0
		} else if want < 0 {
			want = -want
		}
		if got := keyHash(topic, key); got != want {
			t.Errorf("hash of %q and %q is %d, want %d", topic, key, got, want)
		}
		if got := keyHash([]byte(topic), []byte(key)); got != want {
			t.Errorf("hash of the bytes %q and %q is %d, want %d", topic, key, got, want)
		}
	}
	for text, want := range map[string]int32{ // Math.abs(text.hashCode()), from a JVM
		"TopicTest#OrderID001": 1231272886,
		"订单#键":                 1085449374,
		"a😀b#k":                241017722,
		"#":                    35,
		"%RETRY%g#7F0000010001000000000000000000A1": 920998817,
	} {
		topic, key, _ := strings.Cut(text, "#")
		if got := keyHash(topic, key); got != want {
			t.Errorf("hash of %s is %d, want %d", text, got, want)
		}
	}
	for _, topic := range []string{"", "T", "TopicTest", "订单", "a\U0001F600b"} {
		for _, key := range []string{"", "k", "OrderID001", "键", "\U0001F600", "abc键def", "abcdefgé"} {
			check(topic, key)
		}
	}
	// "polygenelubricants" is a known text with Java hash Integer.MIN_VALUE.
	if h := javaHash(0, "polygenelubricants"); h != math.MinInt32 {
		t.Errorf("hash of polygenelubricants is %d", h)
	}
	if h := javaHash(0, "TagA"); h != 2598919 {
		t.Errorf("hash of TagA is %d", h)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var s []rune
		for range rng.IntN(40) {
			s = append(s, rune(rng.IntN([]int{0x80, 0x800, 0xD800, 0x10FFFF}[rng.IntN(4)])))
		}
		check(string(s[:len(s)/2]), string(s[len(s)/2:]))
	}
}

// The bytes are those of Apache's IndexFile.putKey, entry by entry.
func TestBytes(t *testing.T) {
	mem := vfs.NewMem()
	cfg := small(mem)
	cfg.HashSlots, cfg.Entries = 3, 5
	x := mustOpen(t, cfg)
	const base = 1_700_000_000_000
	must(t, x.Put([]byte("T"), []byte("a"), 1000, base))
	must(t, x.Put([]byte("T"), []byte("d"), 2000, base+1999)) // same bucket: the hashes differ by 3
	must(t, x.Put([]byte("T"), []byte("b"), 2000, base+61_000))
	must(t, x.Close())
	hash := func(key string) string { return fmt.Sprintf("%08x", uint32(keyHash("T", key))) }
	slot := [3]string{"00000000", "00000000", "00000000"}
	slot[keyHash("T", "a")%3] = "00000002"
	slot[keyHash("T", "b")%3] = "00000003"
	want := "0000018bcfe56800" + "0000018bcfe65648" + "00000000000003e8" + "00000000000007d0" + "00000002" + "00000004" + // header
		strings.Join(slot[:], "") +
		strings.Repeat("00", 20) + // entry 0
		hash("a") + "00000000000003e8" + "00000000" + "00000000" +
		hash("d") + "00000000000007d0" + "00000001" + "00000001" +
		hash("b") + "00000000000007d0" + "0000003d" + "00000000" +
		strings.Repeat("00", 20)
	b, err := mem.ReadFile("store/index/20261130090807065")
	must(t, err)
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("file is\n%s, want\n%s", got, want)
	}
}

func query(t testing.TB, x *Index, key string, begin, end int64) []message.LogOffset {
	t.Helper()
	got, err := queryFirst(x, "T", key, 64, begin, end)
	must(t, err)
	return got
}

// putN puts records [from, to): record n is at log offset 10·n, stored in
// second n, with a key of its own and one that every fifth record shares.
func putN(t testing.TB, x *Index, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		must(t, x.Put([]byte("T"), fmt.Appendf(nil, "own%d", n), message.LogOffset(10*n), int64(1000*n)))
		must(t, x.Put([]byte("T"), fmt.Appendf(nil, "shared%d", n%5), message.LogOffset(10*n), int64(1000*n)))
	}
}

func wantKeys(t testing.TB, x *Index, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if got := query(t, x, fmt.Sprintf("own%d", n), 0, math.MaxInt64); !slices.Equal(got, []message.LogOffset{message.LogOffset(10 * n)}) {
			t.Fatalf("records of own%d are %v", n, got)
		}
	}
	for key := range 5 {
		var want []message.LogOffset
		for n := to - 1; n >= from; n-- {
			if n%5 == key && len(want) < 64 {
				want = append(want, message.LogOffset(10*n))
			}
		}
		if got := query(t, x, fmt.Sprintf("shared%d", key), 0, math.MaxInt64); !slices.Equal(got, want) {
			t.Fatalf("records of shared%d are %v, want %v", key, got, want)
		}
	}
}

func TestPutQuery(t *testing.T) {
	mem := vfs.NewMem()
	x := mustOpen(t, small(mem))
	const n = 230 // 460 entries, 5 files of 99 at most
	putN(t, x, 0, n)
	wantKeys(t, x, 0, n)
	must(t, x.Sweep())
	wantKeys(t, x, 0, n)
	if st := x.Stats(); st.Files != 5 || st.Entries != 2*n {
		t.Errorf("stats are %+v", st)
	}
	putN(t, x, 0, n-1) // dispatched again
	wantKeys(t, x, 0, n)
	if st := x.Stats(); st.Entries != 2*n {
		t.Errorf("stats after a second dispatch are %+v", st)
	}
	if got := query(t, x, "shared3", 100_500, 120_999); !slices.Equal(got, []message.LogOffset{1180, 1130, 1080, 1030}) {
		t.Errorf("in [100.5 s, 121 s): %v", got)
	}
	if got := query(t, x, "none", 0, math.MaxInt64); len(got) != 0 {
		t.Errorf("records of an unknown key: %v", got)
	}
	if got, err := queryFirst(x, "T", "shared0", 3, 0, math.MaxInt64); err != nil || !slices.Equal(got, []message.LogOffset{2250, 2200, 2150}) {
		t.Errorf("at most 3: %v, %v", got, err)
	}
	must(t, x.Close())

	x = mustOpen(t, small(mem))
	wantKeys(t, x, 0, n)
	if x.EndLog() != 10*(n-1) || x.SafeMillis() == 0 {
		t.Errorf("reopened: end %d, safe %d", x.EndLog(), x.SafeMillis())
	}
	putN(t, x, n, n+100)
	wantKeys(t, x, 0, n+100)
	must(t, x.Close())

	entries, err := mem.ReadDir("store/index")
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
		if e.Size != 40+7*4+100*20 {
			t.Errorf("%s has %d bytes", e.Name, e.Size)
		}
	}
	if want := "[20261130090807065 20261130090807066 20261130090807067 20261130090807068 20261130090807069 20261130090807070 20261130090807071]"; fmt.Sprint(names) != want {
		t.Errorf("files are %v, want %v", names, want)
	}
	x = mustOpen(t, small(mem))
	open := 0
	wantKeys(t, x, 0, n+100)
	for _, f := range *x.files.Load() {
		if f.f != nil {
			open++
		}
	}
	if open > 2 {
		t.Errorf("%d files are open, want at most 2", open)
	}
	must(t, x.Close())
}

func TestDeleteBelow(t *testing.T) {
	mem := vfs.NewMem()
	x := mustOpen(t, small(mem))
	putN(t, x, 0, 230)
	must(t, x.Sweep())
	// Files hold 49.5 records each.
	for _, tt := range []struct{ minRec, files int }{{0, 5}, {49, 5}, {50, 4}, {100, 3}, {99, 3}, {1000, 1}} {
		_, err := x.DeleteBelow(message.LogOffset(10 * tt.minRec))
		must(t, err)
		if st := x.Stats(); st.Files != tt.files {
			t.Errorf("%d files with the log at record %d, want %d", st.Files, tt.minRec, tt.files)
		}
	}
	if got := query(t, x, "own229", 0, math.MaxInt64); len(got) != 1 {
		t.Errorf("the newest file lost a key: %v", got)
	}
	re := mustOpen(t, small(mem.CrashClone(vfs.CrashPolicy{}, nil)))
	if st := re.Stats(); st.Files != 1 {
		t.Errorf("%d files after a crash, want 1", st.Files)
	}
}

func TestTruncateAbove(t *testing.T) {
	const n = 130
	for _, cut := range []int{0, 1, 2, 30, 48, 49, 50, 51, 98, 99, 100, 129, n, n + 1} { // a file holds 49.5 records
		for _, loaded := range []bool{true, false} {
			mem := vfs.NewMem()
			x := mustOpen(t, small(mem))
			putN(t, x, 0, n)
			if !loaded {
				must(t, x.Close())
				x = mustOpen(t, small(mem))
			}
			must(t, x.TruncateAbove(message.LogOffset(10*cut)))
			wantKeys(t, x, 0, min(cut, n))
			crash := mem.CrashClone(vfs.CrashPolicy{}, nil)
			for _, clean := range []bool{true, false} {
				cfg := small(crash)
				cfg.Clean, cfg.Ours = clean, true
				re := mustOpen(t, cfg)
				wantKeys(t, re, 0, min(cut, n))
				if want := max(0, min(cut, n)-1) * 10; int(re.EndLog()) != want {
					t.Fatalf("cut at %d: reopened with end %d, want %d", cut, re.EndLog(), want)
				}
			}
			putN(t, x, min(cut, n), n+60)
			wantKeys(t, x, 0, n+60)
			must(t, x.Close())
			x = mustOpen(t, small(mem))
			wantKeys(t, x, 0, n+60)
		}
	}
}

// After a crash, whichever operation failed before it, every swept record is
// found, and dispatching the log again from the last swept one finds all.
func TestFailedOperations(t *testing.T) {
	for _, policy := range []vfs.CrashPolicy{{}, {Data: vfs.Torn, Entries: vfs.Torn}} {
		rng := rand.New(rand.NewPCG(3, 4))
		for i := 0; ; i++ {
			mem := vfs.NewMem()
			fault := vfs.NewFault(mem)
			x := mustOpen(t, small(fault))
			fault.FailAt(vfs.OpChange|vfs.OpOpen, i, syscall.EIO)
			swept, n := 0, 0
			var failed error
			for range 8 {
				for ; n < 23*8; n++ {
					err := errors.Join(
						x.Put([]byte("T"), fmt.Appendf(nil, "own%d", n), message.LogOffset(10*n), int64(1000*n)),
						x.Put([]byte("T"), fmt.Appendf(nil, "shared%d", n%5), message.LogOffset(10*n), int64(1000*n)))
					if err != nil {
						failed = err
						break
					}
					if n%23 == 22 {
						n++
						break
					}
				}
				if failed != nil {
					break
				}
				if err := x.Sweep(); err != nil {
					failed = err
				} else {
					swept = n
				}
			}
			if failed != nil && !errors.Is(failed, syscall.EIO) {
				t.Fatalf("operation %d: %v", i, failed)
			}
			cfg := small(mem.CrashClone(policy, rng))
			cfg.Clean, cfg.Ours = false, true
			re := mustOpen(t, cfg)
			if end := int(re.EndLog()); swept > 0 && end < 10*(swept-1) {
				t.Fatalf("operation %d: end is %d after a crash, want %d at least", i, end, 10*(swept-1))
			}
			putN(t, re, swept, n)
			wantKeys(t, re, 0, n)
			must(t, re.Close())
			re = mustOpen(t, small(cfg.FS))
			wantKeys(t, re, 0, n)
			if failed == nil && fault.Count(vfs.OpChange|vfs.OpOpen) <= int64(i) {
				break
			}
		}
	}
}

func TestFailedSyncStays(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	x := mustOpen(t, small(fault))
	putN(t, x, 0, 3)
	fault.FailAt(vfs.OpSync, 0, syscall.EIO)
	for range 2 {
		if err := x.Sweep(); !errors.Is(err, syscall.EIO) {
			t.Errorf("sweep: %v", err)
		}
	}
	wantKeys(t, x, 0, 3)
}

// A ring full of unwritten entries is written by Put, and Put fails where that
// fails, without losing what it took before.
func TestSpill(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	cfg := small(fault)
	cfg.HashSlots, cfg.Entries = 10_007, 100_000
	x := mustOpen(t, cfg)
	put := func(n int) error {
		return x.Put([]byte("T"), fmt.Appendf(nil, "k%d", n), message.LogOffset(n), int64(n))
	}
	for n := range ringEntries {
		must(t, put(n))
	}
	fault.Add(vfs.Rule{Ops: vfs.OpWrite, Times: 2, Err: syscall.ENOSPC})
	for range 2 {
		if err := put(ringEntries); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("put into a full ring: %v", err)
		}
	}
	for n := ringEntries; n < 3*ringEntries; n++ {
		must(t, put(n))
	}
	for n := 0; n < 3*ringEntries; n += 97 {
		if got := query(t, x, fmt.Sprintf("k%d", n), 0, math.MaxInt64); !slices.Equal(got, []message.LogOffset{message.LogOffset(n)}) {
			t.Fatalf("records of k%d are %v", n, got)
		}
	}
}

func TestDamage(t *testing.T) {
	const dir = "store/index/"
	tests := map[string]struct {
		file    int // which of three is changed
		change  func(f vfs.File) error
		rebuild bool
		log     string
	}{
		"short":        {2, func(f vfs.File) error { return f.Truncate(77) }, true, "it has 77 bytes"},
		"count":        {2, func(f vfs.File) error { _, err := f.WriteAt([]byte{0x7f}, 36); return err }, true, "header cannot be"},
		"end offset":   {2, func(f vfs.File) error { _, err := f.WriteAt([]byte{1}, 24); return err }, true, "its last entry"},
		"older, short": {1, func(f vfs.File) error { return f.Truncate(77) }, false, "cannot be found any more"},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			mem := vfs.NewMem()
			x := mustOpen(t, small(mem))
			putN(t, x, 0, 130)
			must(t, x.Close())
			files := *x.files.Load()
			f, err := mem.Open(files[tt.file].path, vfs.ReadWrite)
			must(t, err)
			must(t, errors.Join(tt.change(f), f.Close()))
			f, err = mem.Open(dir+"notes.txt", vfs.ReadWrite|vfs.Create)
			must(t, errors.Join(err, f.Close()))

			var logged bytes.Buffer
			cfg := small(mem)
			cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			x = mustOpen(t, cfg)
			if !strings.Contains(logged.String(), tt.log) || !strings.Contains(logged.String(), "notes.txt") {
				t.Errorf("logged %q, want %q in it", logged.String(), tt.log)
			}
			from, ok := x.RebuildFrom()
			if ok != tt.rebuild || ok && int64(from) != files[1].endLog {
				t.Errorf("rebuild from %d (%t), want %d (%t)", from, ok, files[1].endLog, tt.rebuild)
			}
			if tt.rebuild {
				putN(t, x, int(from)/10, 130)
				wantKeys(t, x, 0, 130)
			}
			if left, err := mem.ReadDir("store/index.damaged"); err != nil || len(left) != 1 {
				t.Errorf("set aside: %v, %v", left, err)
			}
			must(t, x.Close())
		})
	}
}

// Damage that only shows when the slots are made again.
func TestDamagedEntries(t *testing.T) {
	for _, truncate := range []bool{false, true} {
		mem := vfs.NewMem()
		x := mustOpen(t, small(mem))
		putN(t, x, 0, 130)
		must(t, x.Sweep())
		newest := x.newest()
		f, err := mem.Open(newest.path, vfs.ReadWrite)
		must(t, err)
		_, err = f.WriteAt([]byte{0xff}, x.entriesAt(newest.count-5)) // a negative hash
		must(t, errors.Join(err, f.Close()))
		cfg := small(mem)
		if !truncate {
			cfg.Clean, cfg.Ours = false, true
			cfg.SlotEvery = 1 << 20
		}
		x = mustOpen(t, cfg)
		if truncate {
			must(t, x.TruncateAbove(10*120))
		}
		from, ok := x.RebuildFrom()
		if !ok || x.EndLog() != from {
			t.Fatalf("rebuild from %d (%t), end %d", from, ok, x.EndLog())
		}
		putN(t, x, int(from)/10, 130)
		wantKeys(t, x, 0, 130)
		must(t, x.Close())
	}
}

func TestOtherFileSize(t *testing.T) {
	mem := vfs.NewMem()
	x := mustOpen(t, small(mem))
	putN(t, x, 0, 130)
	must(t, x.Close())
	cfg := small(mem)
	cfg.Entries = 200
	if _, err := Open(cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "maxIndexNum") {
		t.Errorf("error is %v", err)
	}
}

// After a crash of Apache's broker only files it had declared safe stay.
func TestUncleanJava(t *testing.T) {
	mem := vfs.NewMem()
	x := mustOpen(t, small(mem))
	putN(t, x, 0, 130)
	must(t, x.Close())
	files := *x.files.Load()
	cfg := small(mem)
	cfg.Clean, cfg.SafeMillis = false, files[0].endMillis
	x = mustOpen(t, cfg)
	from, ok := x.RebuildFrom()
	if st := x.Stats(); st.Files != 1 || !ok || int64(from) != files[1].beginLog {
		t.Errorf("%d files are left, rebuild from %d (%t)", st.Files, from, ok)
	}
	putN(t, x, int(from)/10, 130)
	wantKeys(t, x, 0, 130)
}

// Queries while records are put and swept: for the race detector.
func TestConcurrent(t *testing.T) {
	cfg := small(vfs.NewMem())
	cfg.Entries = 1500
	x := mustOpen(t, cfg)
	var done atomic.Bool
	var put atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for !done.Load() {
			if err := x.Sweep(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range uint64(2) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(i, 5))
			for !done.Load() {
				n := put.Load()
				if n == 0 {
					continue
				}
				n = rng.Int64N(n)
				got, err := queryFirst(x, "T", fmt.Sprintf("own%d", n), 5, 0, math.MaxInt64)
				if err != nil || !slices.Equal(got, []message.LogOffset{message.LogOffset(10 * n)}) {
					t.Errorf("records of own%d are %v, %v", n, got, err)
					return
				}
			}
		})
	}
	for n := range 3_000 {
		putN(t, x, n, n+1)
		put.Store(int64(n + 1))
	}
	done.Store(true)
	wg.Wait()
	must(t, x.Close())
}

func TestPutAllocates(t *testing.T) {
	cfg := small(vfs.NewMem())
	cfg.HashSlots, cfg.Entries = 10_007, 100_000
	x := mustOpen(t, cfg)
	topic, key := []byte("TopicTest"), []byte("7F0000010001000000000000000000A1")
	n := int64(0)
	put := func() {
		n++
		must(t, x.Put(topic, key, message.LogOffset(n), n))
	}
	put()
	if got := testing.AllocsPerRun(1000, put); got != 0 {
		t.Errorf("Put allocates %v times", got)
	}
}

func BenchmarkPut(b *testing.B) {
	x := mustOpen(b, Config{Dir: b.TempDir(), Clean: true})
	topic, key := []byte("BenchmarkTest"), []byte("7F0000010001000000000000000000A1")
	n := int64(0)
	for b.Loop() {
		n++
		for i, v := len(key)-1, n; i > len(key)-9; i, v = i-1, v>>4 {
			key[i] = "0123456789ABCDEF"[v&15]
		}
		if err := x.Put(topic, key, message.LogOffset(n*1000), 1_700_000_000_000+n); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	must(b, x.Close())
}

func BenchmarkKeyHash(b *testing.B) {
	topic, key := []byte("BenchmarkTest"), []byte("7F0000010001000000000000000000A1")
	for b.Loop() {
		keyHash(topic, key)
	}
}

// queryFirst gathers what a Query gives, at most most offsets.
func queryFirst(x *Index, topic, key string, most int, begin, end int64) (found []message.LogOffset, err error) {
	err = x.Query(topic, key, begin, end, func(off message.LogOffset) bool {
		found = append(found, off)
		return len(found) < most
	})
	return found, err
}
