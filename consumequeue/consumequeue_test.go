package consumequeue

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// small is a Config whose files and tails are full soon.
func small(fs vfs.FS) Config {
	return Config{FS: fs, Dir: "store/consumequeue", FileBytes: 10 * EntryBytes, TailEntriesMax: 16, OpenFilesMax: 16, Trust: TrustAll, Logger: slog.New(slog.DiscardHandler)}
}

func mustOpen(t testing.TB, cfg Config) *Set {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSweep(t testing.TB, s *Set) {
	t.Helper()
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
}

// testSize is the size of the test's records, and testEntry the n-th of them
// in a log that holds nothing else.
const testSize = 100

func testEntry(n int64) Entry {
	return Entry{LogOffset: message.LogOffset(n * testSize), Size: testSize, TagsCode: n*7 - 3}
}

func putN(q *Queue, from, to int64) {
	for n := from; n < to; n++ {
		q.Put(testEntry(n), message.QueueOffset(n), 0)
	}
}

// wantEntries reads [from, to) in pieces of some length and compares.
func wantEntries(t testing.TB, q *Queue, from, to int64) {
	t.Helper()
	got := make([]Entry, to-from+5)
	n, err := q.Read(got, message.QueueOffset(from))
	if err != nil || int64(n) != to-from {
		t.Fatalf("Read of [%d, %d) gave %d entries, %v", from, to, n, err)
	}
	for i, e := range got[:n] {
		if e != testEntry(from+int64(i)) {
			t.Fatalf("entry %d is %+v, want %+v", from+int64(i), e, testEntry(from+int64(i)))
		}
	}
}

func fileBytes(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	b, err := fs.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes are those of Apache's ConsumeQueue: putLong(offset) putInt(size)
// putLong(tagsCode), and fillPreBlank's units before a first message whose
// offset is not 0.
func TestBytes(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem))
	q := s.Queue("TopicTest", 3, true)
	q.Put(Entry{LogOffset: 1243, Size: 231, TagsCode: message.TagsCode([]byte("TagA"))}, 0, 0) // 2598919
	q.Put(Entry{LogOffset: 1 << 40, Size: 100, TagsCode: -5}, 1, 0)
	late := s.Queue("Late", 0, true)
	late.Put(Entry{LogOffset: 1 << 41, Size: 7, TagsCode: 1}, 12, 0)
	mustSweep(t, s)

	want := "00000000000004db" + "000000e7" + "000000000027a807" +
		"0000010000000000" + "00000064" + "fffffffffffffffb" + strings.Repeat("00", 8*EntryBytes)
	if got := hex.EncodeToString(fileBytes(t, mem, "store/consumequeue/TopicTest/3/00000000000000000000")); got != want {
		t.Errorf("file is\n%s, want\n%s", got, want)
	}
	want = strings.Repeat("00000000000000007fffffff0000000000000000", 2) + "0000020000000000" + "00000007" + "0000000000000001" + strings.Repeat("00", 7*EntryBytes)
	if got := hex.EncodeToString(fileBytes(t, mem, "store/consumequeue/Late/0/00000000000000000200")); got != want {
		t.Errorf("file of a late first message is\n%s, want\n%s", got, want)
	}
	if late.Min() != 12 || late.Max() != 13 {
		t.Errorf("late queue is [%d, %d), want [12, 13)", late.Min(), late.Max())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, small(mem))
	late = s.Queue("Late", 0, false)
	if late.Min() != 12 || late.Max() != 13 || late.Next() != 13 || late.MaxLogOffset() != 1<<41+7 {
		t.Errorf("late queue reopened is [%d, %d), next %d, log %d", late.Min(), late.Max(), late.Next(), late.MaxLogOffset())
	}
}

func TestPutReadAcrossTailAndFiles(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem))
	q := s.Queue("T", 0, true)
	const n = 137 // 14 files; the tail holds 16
	putN(q, 0, n)
	for _, swept := range []bool{false, true} {
		for from := int64(0); from <= n; from++ {
			wantEntries(t, q, from, n)
		}
		if m, err := q.Read(make([]Entry, 3), n+5); m != 0 || err != nil {
			t.Errorf("read behind the end (swept %t): %d, %v", swept, m, err)
		}
		mustSweep(t, s)
	}
	if got := s.Stats().Spills; got == 0 {
		t.Error("no tail was written by Put, so the bound did not hold")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, trust := range []message.LogOffset{TrustAll, 0, n * testSize, 55 * testSize} {
		cfg := small(mem.CrashClone(vfs.CrashPolicy{}, nil))
		cfg.Trust = trust
		s := mustOpen(t, cfg)
		q := s.Queue("T", 0, false)
		end := int64(min(n, trust/testSize))
		if trust == 0 {
			end = n
		}
		wantEntries(t, q, 0, end)
		if q.Max() != message.QueueOffset(end) || q.Next() != q.Max() || q.MaxLogOffset() != message.LogOffset(end*testSize) {
			t.Errorf("trust %d: max %d, next %d, log %d, want %d", trust, q.Max(), q.Next(), q.MaxLogOffset(), end)
		}
		putN(q, 0, n+20) // again from the start, as a re-dispatch
		wantEntries(t, q, 0, n+20)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDedupeAndGaps(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem))
	q := s.Queue("T", 0, true)
	putN(q, 0, 5)
	putN(q, 0, 5)                                 // log offsets seen before
	q.Put(Entry{LogOffset: 900, Size: 100}, 3, 0) // offset taken
	if q.Max() != 5 {
		t.Fatalf("max is %d after repeats, want 5", q.Max())
	}
	q.Put(testEntry(30), 30, 0)
	q.Put(testEntry(2000), 2000, 0) // more than 8 files ahead: not believed
	if q.Max() != 31 {
		t.Fatalf("max is %d after a gap, want 31", q.Max())
	}
	got := make([]Entry, 31)
	if n, err := q.Read(got, 0); n != 31 || err != nil {
		t.Fatal(n, err)
	}
	for i, e := range got {
		if want := i >= 5 && i < 30; e.Filler() != want || !want && e != testEntry(int64(i)) {
			t.Errorf("entry %d is %+v", i, e)
		}
	}
	mustSweep(t, s)
	if st := s.Stats(); st.Filled != 1 || st.Dropped != 1 || st.Repeated != 1 {
		t.Errorf("stats are %+v", st)
	}
	// Searches pass over fillers.
	if err := s.CorrectMin(5 * testSize); err != nil || q.Min() != 30 {
		t.Errorf("min is %d (%v), want 30", q.Min(), err)
	}
	if err := s.TruncateAbove(30 * testSize); err != nil || q.Max() != 30 || q.MaxLogOffset() != 5*testSize {
		t.Errorf("cut to [.., %d) (%v), log %d; want 30 and 500", q.Max(), err, q.MaxLogOffset())
	}
	// Now it holds nothing, and begins anew where the log goes on.
	q.Put(testEntry(70), 70, 0)
	if q.Min() != 70 || q.Max() != 71 {
		t.Errorf("restarted at [%d, %d), want [70, 71)", q.Min(), q.Max())
	}
	mustSweep(t, s)
	wantEntries(t, q, 70, 71)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, small(mem))
	q = s.Queue("T", 0, false)
	if q.Min() != 70 || q.Max() != 71 {
		t.Errorf("reopened at [%d, %d), want [70, 71)", q.Min(), q.Max())
	}
}

func TestTruncateAbove(t *testing.T) {
	const n = 45
	for cut := int64(0); cut <= n+1; cut++ {
		for _, swept := range []int64{0, 5, 10, 33, n} {
			mem := vfs.NewMem()
			s := mustOpen(t, small(mem))
			q := s.Queue("T", 0, true)
			putN(q, 0, swept)
			mustSweep(t, s)
			putN(q, swept, n)
			want := min(cut, n)
			if err := s.TruncateAbove(message.LogOffset(cut * testSize)); err != nil {
				t.Fatal(err)
			}
			if q.Max() != message.QueueOffset(want) || int64(q.MaxLogOffset()) != want*testSize {
				t.Fatalf("cut at %d (swept %d): max %d, log %d", cut, swept, q.Max(), q.MaxLogOffset())
			}
			wantEntries(t, q, 0, want)
			// No entry behind the cut may come back, whatever is trusted.
			cfg := small(mem.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil))
			cfg.Trust = TrustAll
			re := mustOpen(t, cfg)
			if q := re.Queue("T", 0, false); q != nil && int64(q.Max()) > want {
				t.Fatalf("cut at %d (swept %d): reopened with max %d", cut, swept, q.Max())
			}
			putN(q, want, n+3)
			wantEntries(t, q, 0, n+3)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			re = mustOpen(t, small(mem))
			wantEntries(t, re.Queue("T", 0, false), 0, n+3)
		}
	}
}

func TestDeleteBelow(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem))
	q := s.Queue("T", 0, true)
	const n = 45 // files of 10: the last holds 5
	putN(q, 0, n)
	mustSweep(t, s)
	for minLog := int64(0); minLog < (n+2)*testSize; minLog += 30 {
		want := min(n, (minLog+testSize-1)/testSize)
		if _, err := s.DeleteBelow(message.LogOffset(minLog)); err != nil {
			t.Fatal(err)
		}
		if int64(q.Min()) != want {
			t.Fatalf("min is %d with the log at %d, want %d", q.Min(), minLog, want)
		}
		wantEntries(t, q, want, n)
		if _, err := q.Read(make([]Entry, 1), q.Min()-1); want > 0 && want < n && !errors.Is(err, ErrBelowMin) {
			t.Fatalf("read below min: %v", err)
		}
		files, err := mem.ReadDir("store/consumequeue/T/0")
		if wantFiles := 5 - int(min(want/10, 4)); err != nil || len(files) != wantFiles {
			t.Fatalf("%d files with the log at %d, want %d", len(files), minLog, wantFiles)
		}
		// The same from the files alone.
		re := mustOpen(t, small(mem.CrashClone(vfs.CrashPolicy{}, nil)))
		rq := re.Queue("T", 0, false)
		if err := re.CorrectMin(message.LogOffset(minLog)); err != nil || rq.Min() != q.Min() || rq.Max() != q.Max() {
			t.Fatalf("reopened at [%d, %d), want [%d, %d) (%v)", rq.Min(), rq.Max(), q.Min(), q.Max(), err)
		}
	}
	putN(q, n, n+20)
	wantEntries(t, q, n, n+20)
}

func TestDelete(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem))
	for id := range int32(3) {
		putN(s.Queue("A", id, true), 0, 25)
		putN(s.Queue("B", id, true), 0, 25)
	}
	q := s.Queue("A", 1, false)
	if err := s.DeleteQueue("A", 1); err != nil {
		t.Fatal(err)
	}
	mustSweep(t, s)
	if s.Queue("A", 1, false) != nil || !q.Gone() || len(s.Of("A")) != 2 {
		t.Error("the deleted queue is still there")
	}
	putN(q, 25, 60) // what was under way
	if _, err := q.Read(make([]Entry, 1), 0); !errors.Is(err, ErrGone) {
		t.Errorf("read of a deleted queue: %v", err)
	}
	if f, err := mem.Open("store/consumequeue/B/2/readme", vfs.ReadWrite|vfs.Create); err != nil {
		t.Fatal(err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.DeleteTopic("B"), s.DeleteTopic("none")); err != nil {
		t.Fatal(err)
	}
	mustSweep(t, s)
	if got := fmt.Sprint(s.Topics()); got != "[A]" {
		t.Errorf("topics are %s", got)
	}
	re := mustOpen(t, small(mem.CrashClone(vfs.CrashPolicy{}, nil)))
	for _, q := range re.Of("A") {
		wantEntries(t, q, 0, 25)
	}
	if n := len(re.Of("A")); n != 2 || len(re.Of("B")) != 1 { // B/2 stays for its foreign file, empty
		t.Errorf("reopened with %d and %d queues", n, len(re.Of("B")))
	}
	putN(s.Queue("A", 1, true), 7, 30)
	if q := s.Queue("A", 1, false); q.Min() != 7 || q.Max() != 30 {
		t.Errorf("a queue made anew is [%d, %d)", q.Min(), q.Max())
	}
}

func TestNames(t *testing.T) {
	s := mustOpen(t, small(vfs.NewMem()))
	for _, bad := range []string{"", ".", "..", "a/b", "../x", "a\x00b", strings.Repeat("x", 256)} {
		if s.Queue(bad, 0, true) != nil {
			t.Errorf("topic %q was taken", bad)
		}
	}
	if s.Queue("T", -1, true) != nil {
		t.Error("queueId -1 was taken")
	}
	for _, id := range []int32{5, 0, 999, 2, 1, 1 << 30} {
		q := s.Queue("T", id, true)
		if q != s.Queue("T", id, true) || q != s.Find([]byte("T"), id) || q.ID() != id || q.Topic() != "T" {
			t.Errorf("queue %d is not found again", id)
		}
	}
	if s.Find([]byte("T"), 3) != nil || s.Find([]byte("U"), 0) != nil || s.Queue("T", 3, false) != nil {
		t.Error("found a queue that was not made")
	}
	var ids []int32
	for _, q := range s.Of("T") {
		ids = append(ids, q.ID())
	}
	if fmt.Sprint(ids) != "[0 1 2 5 999 1073741824]" {
		t.Errorf("queues are %v", ids)
	}
	topic := []byte("T")
	if n := testing.AllocsPerRun(100, func() { s.Find(topic, 5) }); n != 0 {
		t.Errorf("Find allocates %v times", n)
	}
}

// write makes a file of a hand-made store.
func write(t testing.TB, fs vfs.FS, name string, size int64, b []byte) {
	t.Helper()
	if err := fs.MkdirAll(filepath.Dir(name)); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open(name, vfs.ReadWrite|vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func units(from, to int64) []byte {
	var b []byte
	for n := from; n < to; n++ {
		b = appendEntry(b, testEntry(n))
	}
	return b
}

func TestDamage(t *testing.T) {
	const dir = "store/consumequeue/T/0/"
	name := func(i int) string { return dir + fmt.Sprintf("%020d", i*10*EntryBytes) }
	full := int64(10 * EntryBytes)
	good := func(fs vfs.FS) {
		write(t, fs, "store/consumequeue/Good/0/00000000000000000000", full, units(0, 4))
		write(t, fs, name(0), full, units(0, 10))
	}
	type want struct {
		max    int64
		repair bool   // RedispatchFrom is ok
		log    string // what the log must say
	}
	tests := map[string]struct {
		make func(fs vfs.FS)
		want want
	}{
		"untouched":     {func(fs vfs.FS) { write(t, fs, name(1), full, units(10, 13)) }, want{13, false, ""}},
		"empty last":    {func(fs vfs.FS) { write(t, fs, name(1), 0, nil) }, want{10, false, "removing empty last"}},
		"blank last":    {func(fs vfs.FS) { write(t, fs, name(1), full, nil) }, want{10, false, ""}},
		"gap":           {func(fs vfs.FS) { write(t, fs, name(2), full, units(20, 23)) }, want{10, true, "a file before it is missing"}},
		"short last":    {func(fs vfs.FS) { write(t, fs, name(1), 70, units(10, 14)) }, want{13, true, "wrong size"}},
		"long last":     {func(fs vfs.FS) { write(t, fs, name(1), full+7, units(10, 14)) }, want{14, false, "wrong size"}},
		"odd name":      {func(fs vfs.FS) { write(t, fs, dir+"00000000000000000220", full, units(11, 14)) }, want{10, true, "no multiple"}},
		"torn unit":     {func(fs vfs.FS) { write(t, fs, name(1), full, append(units(10, 12), make([]byte, 12)...)) }, want{12, false, ""}},
		"half unit":     {func(fs vfs.FS) { write(t, fs, name(1), full, units(10, 13)[:2*EntryBytes+8]) }, want{12, true, "damaged ConsumeQueue cut"}},
		"stray file":    {func(fs vfs.FS) { write(t, fs, dir+"x.bak", 5, nil) }, want{10, false, "x.bak"}},
		"stray topic":   {func(fs vfs.FS) { write(t, fs, "store/consumequeue/file", 5, nil) }, want{10, false, "file"}},
		"stray queueId": {func(fs vfs.FS) { write(t, fs, "store/consumequeue/T/07/x", 5, nil) }, want{10, false, "07"}},
		"directory":     {func(fs vfs.FS) { write(t, fs, name(9)+"/x", 5, nil) }, want{10, false, "left alone"}},
		"negative sizes": {func(fs vfs.FS) {
			write(t, fs, name(1), full, appendEntry(units(10, 11), Entry{LogOffset: 1, Size: -1}))
		}, want{11, true, "damaged"}},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			mem := vfs.NewMem()
			good(mem)
			tt.make(mem)
			var logged bytes.Buffer
			cfg := small(mem)
			cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			s := mustOpen(t, cfg)
			q := s.Queue("T", 0, false)
			wantEntries(t, q, 0, tt.want.max)
			if int64(q.Max()) != tt.want.max {
				t.Errorf("max is %d, want %d", q.Max(), tt.want.max)
			}
			from, ok := s.RedispatchFrom()
			if ok != tt.want.repair || ok && int64(from) != tt.want.max*testSize {
				t.Errorf("redispatch from %d (%t), want %d (%t)", from, ok, tt.want.max*testSize, tt.want.repair)
			}
			if !strings.Contains(logged.String(), tt.want.log) || tt.want.log == "" && logged.Len() > 0 {
				t.Errorf("logged %q, want %q in it", logged.String(), tt.want.log)
			}
			putN(q, 0, 37)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			re := mustOpen(t, small(mem))
			wantEntries(t, re.Queue("T", 0, false), 0, 37)
			wantEntries(t, re.Queue("Good", 0, false), 0, 4)
			if _, ok := re.RedispatchFrom(); ok {
				t.Error("the repaired store is repaired again")
			}
		})
	}
}

func TestOtherFileSize(t *testing.T) {
	mem := vfs.NewMem()
	write(t, mem, "store/consumequeue/T/0/00000000000000000000", 400, units(0, 20))
	write(t, mem, "store/consumequeue/T/0/00000000000000000400", 400, units(20, 23))
	_, err := Open(small(mem))
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "mappedFileSizeConsumeQueue=400") {
		t.Errorf("error is %v", err)
	}
}

func TestTails(t *testing.T) {
	cfg := small(vfs.NewMem())
	cfg.IdleSweeps = 3
	cfg.TailEntriesMax = 100 // 128
	s := mustOpen(t, cfg)
	q := s.Queue("T", 0, true)
	putN(q, 0, 1000)
	if got := s.Stats().TailBytes; got != 128*entryMemory {
		t.Errorf("the tail has %d bytes, want %d", got, 128*entryMemory)
	}
	for i := range 5 {
		mustSweep(t, s)
		if got := s.Stats().TailBytes; (got > 0) != (i < 3) {
			t.Errorf("after sweep %d the tail has %d bytes", i, got)
		}
	}
	wantEntries(t, q, 0, 1000)
	putN(q, 1000, 1001)
	wantEntries(t, q, 0, 1001)
	if got := s.Stats().TailBytes; got != tailEntriesMin*entryMemory {
		t.Errorf("a new tail has %d bytes", got)
	}
}

func TestTryRead(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	s := mustOpen(t, small(fault))
	q := s.Queue("T", 0, true)
	putN(q, 0, 100)
	mustSweep(t, s)
	resident, known := true, true
	fault.SetResident(func(string, int64, int64) (bool, bool) { return resident, known })
	var e [4]Entry
	if n, err := q.TryRead(e[:], 95); n != 4 || err != nil {
		t.Errorf("hot: %d, %v", n, err)
	}
	if n, err := q.TryRead(e[:], 50); n != 4 || err != nil {
		t.Errorf("resident: %d, %v", n, err)
	}
	resident = false
	if n, err := q.TryRead(e[:], 50); n != 0 || !errors.Is(err, ErrCold) {
		t.Errorf("not resident: %d, %v", n, err)
	}
	resident, known = true, false
	if n, err := q.TryRead(e[:], 50); n != 0 || !errors.Is(err, ErrCold) {
		t.Errorf("not known: %d, %v", n, err)
	}
	s.files.drop(q, 0, 1<<40)
	resident, known = true, true
	opens := fault.Count(vfs.OpOpen)
	if n, err := q.TryRead(e[:], 50); n != 0 || !errors.Is(err, ErrCold) || fault.Count(vfs.OpOpen) != opens {
		t.Errorf("not open: %d, %v", n, err)
	}
	if n, err := q.Read(e[:], 50); n != 4 || err != nil {
		t.Errorf("Read: %d, %v", n, err)
	}
}

func TestReadErrors(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	s := mustOpen(t, small(fault))
	q := s.Queue("T", 0, true)
	putN(q, 0, 100)
	mustSweep(t, s)
	f, err := mem.Open("store/consumequeue/T/0/00000000000000000200", vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, EntryBytes), 5*EntryBytes); err != nil {
		t.Fatal(err)
	}
	var e [10]Entry
	n, err := q.Read(e[:], 10)
	if n != 5 || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "T/0/00000000000000000200, unit 5") {
		t.Errorf("damaged unit: %d, %v", n, err)
	}
	bad := errors.New("bad sector")
	fault.Add(vfs.Rule{Ops: vfs.OpRead, Err: bad})
	if n, err := q.Read(e[:], 20); n != 0 || !errors.Is(err, bad) {
		t.Errorf("failed read: %d, %v", n, err)
	}
}

// 80,000 queues that nothing was put to lately must not cost a broker more
// than their entries in maps.
func TestIdleQueueMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 80,000 queues")
	}
	const topics, ids = 10_000, 8
	mem := vfs.NewMem()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for i := range topics {
		for id := range ids {
			if err := mem.MkdirAll(fmt.Sprintf("store/consumequeue/topic-%06d/%d", i, id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := heap()
	cfg := small(mem)
	cfg.IdleSweeps = 1
	s := mustOpen(t, cfg)
	each := float64(heap()-before) / (topics * ids)
	t.Logf("%.0f bytes a queue, its map entry included", each)
	if each >= 300 {
		t.Errorf("an idle queue costs %.0f bytes, want less than 300", each)
	}
	// A queue that was busy once costs no more.
	q := s.Queue("topic-000000", 0, false)
	n := q.Max()
	for range 100 {
		q.Put(testEntry(int64(n)), n, 0)
		n++
	}
	for range 3 {
		mustSweep(t, s)
	}
	if got := s.Stats().TailBytes; got != 0 || len(s.active) != 0 {
		t.Errorf("%d bytes of tails, %d active queues are left", got, len(s.active))
	}
	runtime.KeepAlive(mem)
}

func TestPutAllocates(t *testing.T) {
	s := mustOpen(t, small(vfs.NewMem()))
	q := s.Queue("T", 0, true)
	n := int64(0)
	putN(q, 0, 16)
	mustSweep(t, s)
	n = 16
	dst := make([]Entry, 8)
	if got := testing.AllocsPerRun(10, func() { putN(q, n, n+1); n++ }); got != 0 {
		t.Errorf("Put allocates %v times", got)
	}
	if got := testing.AllocsPerRun(10, func() {
		if m, err := q.Read(dst, q.Max()-8); m != 8 || err != nil {
			t.Fatal(m, err)
		}
	}); got != 0 {
		t.Errorf("hot Read allocates %v times", got)
	}
}
