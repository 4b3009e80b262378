package consumequeue

import (
	"encoding/hex"
	"errors"
	"log/slog"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

const batchDir = "store/batchconsumequeue"

// smallBatch is small with topic B's queues being batch queues of 5 units a file.
func smallBatch(fs vfs.FS) Config {
	cfg := small(fs)
	cfg.BatchFileBytes = 5 * BatchUnitBytes
	cfg.BatchTopic = func(topic string) (batch, known bool) { return topic == "B", topic == "B" || topic == "P" }
	return cfg
}

// batchEntry is the n-th record of a log of batches of 3 messages each.
func batchEntry(n int64) Entry {
	e := testEntry(n)
	e.Count = 3
	return e
}

func putBatches(q *Queue, from, to int64) {
	for n := from; n < to; n++ {
		q.Put(batchEntry(n), message.QueueOffset(3*n), 1000+n)
	}
}

// The bytes are those of Apache's BatchConsumeQueue#putBatchMessagePositionInfo.
func TestBatchBytes(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, smallBatch(mem))
	q := s.Queue("B", 3, true)
	q.Put(Entry{LogOffset: 1243, Size: 231, TagsCode: message.TagsCode([]byte("TagA")), Span: Span{Count: 300}}, 1<<33, 0x18BCFE56800)
	q.Put(Entry{LogOffset: 1 << 40, Size: 100, TagsCode: -5}, 1<<33+300, 0x18BCFE56801)
	mustSweep(t, s)
	want := "00000000000004db" + "000000e7" + "000000000027a807" + "0000018bcfe56800" + "0000000200000000" + "012c" + "ffffffff" + "00000000" +
		"0000010000000000" + "00000064" + "fffffffffffffffb" + "0000018bcfe56801" + "000000020000012c" + "0001" + "ffffffff" + "00000000" +
		strings.Repeat("00", 3*BatchUnitBytes)
	if got := hex.EncodeToString(fileBytes(t, mem, batchDir+"/B/3/00000000000000000000")); got != want {
		t.Errorf("file is\n%s, want\n%s", got, want)
	}
	if _, err := mem.Stat("store/consumequeue/B"); err == nil {
		t.Error("there is a plain queue's directory too")
	}
	for life := range 2 {
		q := s.Queue("B", 3, false)
		if q.Min() != 1<<33 || q.Max() != 1<<33+301 || life > 0 && q.Next() != q.Max() || q.MaxLogOffset() != 1<<40+100 {
			t.Errorf("queue is [%d, %d), next %d, log %d", q.Min(), q.Max(), q.Next(), q.MaxLogOffset())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, smallBatch(mem))
	}
}

// Every offset, from the tail and from files, gives the batch that holds it;
// what is not in the tail is cold.
func TestBatchRead(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, smallBatch(mem))
	const n = 50 // the tail holds 16 at most
	putBatches(s.Queue("B", 0, true), 0, n)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, smallBatch(mem))
	q := s.Queue("B", 0, false)
	putBatches(q, n, n+10)
	check := func() {
		t.Helper()
		for off := int64(0); off < 3*(n+10); off++ {
			got := make([]Entry, 7)
			want := min(7, int(n+10-off/3))
			if m, err := q.Read(got, message.QueueOffset(off)); err != nil || m != want {
				t.Fatalf("read at %d: %d entries, %v, want %d", off, m, err, want)
			}
			for i, e := range got[:want] {
				w := batchEntry(off/3 + int64(i))
				if i == 0 {
					w.Into = int16(off % 3)
				}
				if e != w {
					t.Fatalf("read at %d: entry %d is %+v, want %+v", off, i, e, w)
				}
			}
			m, err := q.TryRead(got, message.QueueOffset(off))
			if off >= 3*n && (m != want || err != nil) || off < 3*n && !errors.Is(err, ErrCold) {
				t.Fatalf("read at %d without waiting: %d entries, %v", off, m, err)
			}
		}
		for _, off := range []message.QueueOffset{3 * (n + 10), 1 << 40} {
			if m, err := q.Read(make([]Entry, 3), off); m != 0 || err != nil {
				t.Errorf("read at %d, behind the end: %d, %v", off, m, err)
			}
		}
	}
	check()
	mustSweep(t, s)
	check()
	if _, err := s.DeleteBelow(20 * testSize); err != nil {
		t.Fatal(err)
	}
	if q.Min() != 60 || q.Max() != 3*(n+10) {
		t.Errorf("queue is [%d, %d) after a deletion", q.Min(), q.Max())
	}
	if _, err := q.Read(make([]Entry, 3), 59); !errors.Is(err, ErrBelowMin) {
		t.Errorf("read below the minimum: %v", err)
	}
	if _, err := mem.Stat(batchDir + "/B/0/" + "00000000000000000000"); err == nil {
		t.Error("the first file is still there")
	}
	if err := s.DeleteTopic("B"); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Stat(batchDir + "/B"); err == nil {
		t.Error("a deleted topic's directory is still there")
	}
	if _, err := q.Read(make([]Entry, 3), 90); !errors.Is(err, ErrGone) {
		t.Errorf("read of a deleted queue: %v", err)
	}
}

// Offsets that the log skips are read as fillers, from the tail and from files;
// as many as 16 bits count in each.
func TestBatchGaps(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, Config{FS: mem, Dir: "store/consumequeue", Trust: TrustAll, Logger: slog.New(slog.DiscardHandler),
		BatchTopic: func(string) (bool, bool) { return true, true }})
	q := s.Queue("B", 0, true)
	const far = 10 + 2*math.MaxInt16 + 5
	q.Put(Entry{LogOffset: 0, Size: 100, Span: Span{Count: 4}}, 6, 1)     // [6, 10)
	q.Put(Entry{LogOffset: 100, Size: 100, Span: Span{Count: 2}}, far, 2) // [far, far+2)
	q.Put(Entry{LogOffset: 200, Size: 100, Span: Span{Count: 1}}, 11, 3)  // offset taken
	q.Put(Entry{LogOffset: 300, Size: 100, Span: Span{Count: 1}}, 1<<40, 3)
	for life := range 2 {
		if q.Min() != 6 || q.Max() != far+2 {
			t.Fatalf("queue is [%d, %d)", q.Min(), q.Max())
		}
		for _, tc := range []struct {
			from message.QueueOffset
			want []Entry
		}{
			{6, []Entry{{Size: 100, Span: Span{Count: 4}}, {Size: math.MaxInt32, Span: Span{Count: math.MaxInt16}}}},
			{8, []Entry{{Size: 100, Span: Span{Count: 4, Into: 2}}, {Size: math.MaxInt32, Span: Span{Count: math.MaxInt16}}}},
			{10, []Entry{{Size: math.MaxInt32, Span: Span{Count: math.MaxInt16}}, {Size: math.MaxInt32, Span: Span{Count: math.MaxInt16}}}},
			{far - 3, []Entry{{Size: math.MaxInt32, Span: Span{Count: 3}}, {LogOffset: 100, Size: 100, Span: Span{Count: 2}}}},
			{far + 1, []Entry{{LogOffset: 100, Size: 100, Span: Span{Count: 2, Into: 1}}}},
		} {
			got := make([]Entry, 2)
			n, err := q.Read(got, tc.from)
			if err != nil || n != len(tc.want) {
				t.Fatalf("read at %d: %d, %v", tc.from, n, err)
			}
			next := tc.from
			for i, e := range got[:n] {
				if e != tc.want[i] {
					t.Errorf("read at %d: entry %d is %+v, want %+v", tc.from, i, e, tc.want[i])
				}
				if e.Filler() != (e.Size == math.MaxInt32) {
					t.Errorf("filler: %+v", e)
				}
				next += e.Messages() - message.QueueOffset(e.Into)
			}
			if next <= tc.from {
				t.Errorf("read at %d goes on at %d", tc.from, next)
			}
		}
		if st := s.Stats(); life == 0 && (st.Filled != 1 || st.Repeated != 1 || st.Dropped != 1) {
			t.Errorf("stats: %+v", st)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, Config{FS: mem, Dir: "store/consumequeue", Trust: TrustAll})
		q = s.Queue("B", 0, false)
	}
}

// Directories say the kind of queues nobody knows; of those somebody knows,
// only the right kind is loaded.
func TestKinds(t *testing.T) {
	mem := vfs.NewMem()
	cfg := smallBatch(mem)
	cfg.BatchTopic = nil
	s := mustOpen(t, cfg)
	for _, topic := range []string{"B", "P", "X"} {
		putBatches(s.Make(topic, 0, true), 0, 4)
		putN(s.Make(topic, 1, false), 0, 4)
	}
	if !s.Queue("X", 0, false).Batch() || s.Queue("X", 1, false).Batch() || s.Queue("X", 2, true).Batch() {
		t.Error("kinds are not those asked for")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, smallBatch(mem)) // knows B as batch, P as plain
	for _, tc := range []struct {
		topic string
		id    int32
		want  int // messages; -1: not loaded
	}{{"B", 0, 12}, {"B", 1, -1}, {"P", 0, -1}, {"P", 1, 4}, {"X", 0, 12}, {"X", 1, 4}} {
		q, got := s.Queue(tc.topic, tc.id, false), -1
		if q != nil {
			got = int(q.Max())
		}
		if got != tc.want {
			t.Errorf("%s-%d holds %d messages, want %d", tc.topic, tc.id, got, tc.want)
		}
	}
	if q := s.Make("P", 7, true); q.Batch() {
		t.Error("a known topic's queue is made of the kind the caller thinks")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Files of another size throughout are a configuration error that names the
// key; a damaged unit cuts the queue there.
func TestBatchDamage(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, smallBatch(mem))
	putBatches(s.Queue("B", 0, true), 0, 12)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other := smallBatch(mem)
	other.BatchFileBytes = 7 * BatchUnitBytes
	if _, err := Open(other); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "mapperFileSizeBatchConsumeQueue=230") {
		t.Errorf("another file size: %v", err)
	}
	other.BatchFileBytes = 100
	if _, err := Open(other); !errors.Is(err, ErrConfig) {
		t.Errorf("no multiple of 46: %v", err)
	}
	for name, tc := range map[string]struct {
		at   int64 // byte in the second file, whose units are 5 to 9
		b    []byte
		want message.QueueOffset
	}{
		"no size":       {2*BatchUnitBytes + 8, []byte{0, 0, 0, 0}, 21},
		"no base":       {3*BatchUnitBytes + 28, []byte{0xFF}, 24},
		"no messages":   {1*BatchUnitBytes + 36, []byte{0, 0}, 18},
		"a past record": {4 * BatchUnitBytes, make([]byte, 8), 27},
	} {
		fs := mem.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil)
		f, err := fs.Open(batchDir+"/B/0/"+"00000000000000000230", vfs.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(tc.b, tc.at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		cfg := smallBatch(fs)
		cfg.Trust = 0 // as of a store that Apache left: walked
		s := mustOpen(t, cfg)
		q := s.Queue("B", 0, false)
		if q.Max() != tc.want || q.MaxLogOffset() != message.LogOffset(tc.want/3*testSize) {
			t.Errorf("%s: queue ends at %d, log %d, want %d", name, q.Max(), q.MaxLogOffset(), tc.want)
		}
		putBatches(q, int64(tc.want)/3, 14)
		if q.Max() != 42 {
			t.Errorf("%s: queue ends at %d after it was built again", name, q.Max())
		}
		mustSweep(t, s)
		if n, err := q.Read(make([]Entry, 20), 0); n != 14 || err != nil {
			t.Errorf("%s: %d entries, %v", name, n, err)
		}
	}
}

// Whichever operation fails: a sweep that reported success is there after a
// crash, and nothing of it twice.
func TestBatchFailedOperations(t *testing.T) {
	for i := 0; ; i++ {
		mem := vfs.NewMem()
		fault := vfs.NewFault(mem)
		s := mustOpen(t, smallBatch(fault))
		fault.FailAt(vfs.OpChange|vfs.OpOpen, i, syscall.EIO)
		q := s.Queue("B", 0, true)
		durable, failed := int64(0), false
		for n := int64(0); n < 40; n += 8 {
			putBatches(q, n, n+8)
			if s.Sweep() == nil {
				durable = n + 8
			} else {
				failed = true
			}
			if m, err := q.Read(make([]Entry, 50), 0); err != nil || int64(m) != n+8 {
				t.Fatalf("operation %d: %d entries of %d, %v", i, m, n+8, err)
			}
		}
		cfg := smallBatch(mem.CrashClone(vfs.CrashPolicy{}, nil))
		cfg.Trust = max(1, message.LogOffset(durable*testSize))
		re := mustOpen(t, cfg)
		q = re.Queue("B", 0, true)
		if got := int64(q.Max()); got != 3*durable && !(durable == 0 && got <= 3) {
			t.Fatalf("operation %d: queue ends at %d after a crash, want %d", i, got, 3*durable)
		}
		if err := re.Close(); err != nil {
			t.Fatal(err)
		}
		if !failed && fault.Count(vfs.OpChange|vfs.OpOpen) <= int64(i) {
			return
		}
	}
}
