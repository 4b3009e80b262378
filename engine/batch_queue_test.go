package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

func batchConfig(fs vfs.FS) Config {
	cfg := testConfig(fs)
	cfg.BatchQueueBytes, cfg.BatchTopic = 46*10, batchTopicD
	return cfg
}

// inner makes a batch of one inner batch of n messages to D-queueID.
func inner(s *Store, queueID int32, body string, n int) *Batch {
	b := &Batch{Wait: true, Buf: innerRec(nil, "D", queueID, body, n)}
	b.Items = []Item{{Len: int32(len(b.Buf)), Inner: int32(n), Queue: s.Queue("D", queueID)}}
	return b
}

func sendInner(t *testing.T, s *Store, queueID int32, body string, n int) Item {
	t.Helper()
	b := newWaiter().put(s, inner(s, queueID, body, n))
	if b.Items[0].Status != OK || b.Err != nil {
		t.Fatalf("send %.20q: %v, %v", body, b.Items[0].Status, b.Err)
	}
	return b.Items[0]
}

// got is what one Get of a batch queue brings: bodies with their offsets, and
// where it goes on.
func got(t *testing.T, s *Store, offset message.QueueOffset, msgs int) string {
	t.Helper()
	var res GetResult
	defer res.Release()
	s.Get(&GetRequest{Queue: s.FindQueue("D", 0), Offset: offset, MaxMsgs: msgs, Cold: true}, &res)
	out := fmt.Sprint(res.Status, " ", res.Count)
	for _, r := range res.Ranges {
		b := make([]byte, r.Len)
		if _, err := r.File.ReadAt(b, r.Off); err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 {
			base, _ := message.Property(message.PropertiesOf(b), message.PropInnerBase)
			out += fmt.Sprintf(" %d:%s[%s]", message.QueueOffsetOf(b), message.BodyOf(b), base)
			b = b[message.Size(b):]
		}
	}
	return fmt.Sprint(out, " ", res.Next)
}

// A batch queue counts messages, and a Get brings whole batches, also when its
// files are lost, the log is dispatched again, or it is killed.
func TestBatchQueue(t *testing.T) {
	for _, missing := range []string{"", "/store/batchconsumequeue"} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("clean=%v%s", clean, missing), func(t *testing.T) {
				cfg := batchConfig(vfs.NewMem())
				s := mustOpen(t, cfg)
				sendInner(t, s, 0, "a", 3)
				send(t, s, "D", 0, "b")
				if err := s.sweep(); err != nil {
					t.Fatal(err)
				}
				if it := sendInner(t, s, 0, "c", 40); it.QueueOffset != 4 {
					t.Errorf("offset of c is %d", it.QueueOffset)
				}
				sendInner(t, s, 0, "d", 1)
				send(t, s, "D", 0, "e")
				sendInner(t, s, 1, "other", 5)
				mem := cfg.FS.(*vfs.Mem)
				if !clean {
					mem = killed(s)
				}
				mustClose(t, s)
				if missing != "" {
					removeAll(t, mem, missing)
				}
				cfg.FS = mem
				for range 2 {
					s = mustOpen(t, cfg)
					for _, tc := range []struct {
						offset message.QueueOffset
						msgs   int
						want   string
					}{
						{0, 100, "FOUND 44 0:a[0] 3:b[] 4:c[4] 44"}, // 32 is the most, and a batch comes whole
						{2, 32, "FOUND 4 0:a[0] 3:b[] 4"},
						{1, 1, "FOUND 3 0:a[0] 3"},
						{3, 1, "FOUND 1 3:b[] 4"},
						{5, 1, "FOUND 40 4:c[4] 44"},
						{43, 42, "FOUND 40 4:c[4] 44"},
						{44, 9, "FOUND 2 44:d[44] 45:e[] 46"},
						{46, 9, "OFFSET_OVERFLOW_ONE 0 46"},
						{47, 9, "OFFSET_OVERFLOW_BADLY 0 46"},
						{-1, 9, "OFFSET_TOO_SMALL 0 0"},
					} {
						if g := got(t, s, tc.offset, tc.msgs); g != tc.want {
							t.Errorf("%d messages from %d on: %s, want %s", tc.msgs, tc.offset, g, tc.want)
						}
					}
					if q := s.FindQueue("D", 0); q.Next() != 46 || !q.Batch() {
						t.Errorf("next offset %d, batch %t", q.Next(), q.Batch())
					}
					mustClose(t, s)
				}
				s = mustOpen(t, cfg)
				if it := sendInner(t, s, 0, "f", 2); it.QueueOffset != 46 {
					t.Errorf("offset of the next is %d, want 46", it.QueueOffset)
				}
				mustClose(t, s)
			})
		}
	}
}

// What can be no inner batch is refused, alone.
func TestInnerRefused(t *testing.T) {
	s := mustOpen(t, batchConfig(vfs.NewMem()))
	defer mustClose(t, s)
	for name, change := range map[string]func(b *Batch){
		"a plain queue":      func(b *Batch) { b.Items[0].Queue = s.Queue("T", 0) },
		"no queue":           func(b *Batch) { b.Items[0].Queue, b.Items[0].NoQueue = nil, true },
		"another number":     func(b *Batch) { b.Items[0].Inner = 4 },
		"several records":    func(b *Batch) { b.Buf = append(b.Buf, b.Buf...); b.Items[0].Len *= 2; b.Items[0].Count = 2 },
		"no room for a base": func(b *Batch) { b.Buf = rec(nil, "D", 0, "x"); b.Items[0].Len = int32(len(b.Buf)) },
	} {
		b := inner(s, 0, "x", 3)
		change(b)
		addRec(s, b, "D", 0, "beside it")
		before := s.Queue("D", 0).Max()
		newWaiter().put(s, b)
		if b.Items[0].Status != Illegal || !errors.Is(b.Err, errNoInner) || b.Items[1].Status != OK || s.Queue("D", 0).Max() != before+1 {
			t.Errorf("%s: %v, %v; beside it %v", name, b.Items[0].Status, b.Err, b.Items[1].Status)
		}
	}
}

// A copy of an inner batch that is put as one message counts as one, wherever
// it goes: the offsets behind it are as they were given.
func TestCopyOfInnerBatch(t *testing.T) {
	cfg := batchConfig(vfs.NewMem())
	s := mustOpen(t, cfg)
	for _, topic := range []string{"T", "D"} {
		b := &Batch{Wait: true, Buf: innerRec(nil, topic, 0, "copy", 5)}
		b.Items = []Item{{Len: int32(len(b.Buf)), Queue: s.Queue(topic, 0)}}
		if newWaiter().put(s, b); b.Items[0].Status != OK {
			t.Fatalf("%v, %v", b.Items[0].Status, b.Err)
		}
		send(t, s, topic, 0, "behind")
	}
	for range 2 {
		for _, topic := range []string{"T", "D"} {
			if d := cmp.Diff([]string{"copy", "behind"}, bodies(t, s, topic, 0)); d != "" || s.Queue(topic, 0).Max() != 2 {
				t.Errorf("%s ends at %d: %s", topic, s.Queue(topic, 0).Max(), d)
			}
		}
		s = crashReopen(t, s, cfg)
	}
	mustClose(t, s)
}

// Times find batches, by their first message.
func TestBatchOffsetByTime(t *testing.T) {
	s := mustOpen(t, batchConfig(vfs.NewMem()))
	defer mustClose(t, s)
	base := s.cfg.Now().UnixMilli() + 1_000_000
	for i, at := range []int64{10, 10, 20, 40} { // [0, 3) [3, 7) [7, 12) [12, 18)
		s.log.Lock()
		s.storeMillis = base + at
		s.log.Unlock()
		sendInner(t, s, 0, fmt.Sprint(at), 3+i)
	}
	q := s.Queue("D", 0)
	for _, tc := range []struct {
		at           int64
		lower, upper message.QueueOffset
	}{
		{0, 0, 0}, {10, 0, 3}, {11, 7, 3}, {20, 7, 7}, {30, 12, 7}, {40, 12, 12}, {41, 18, 12},
	} {
		lower, err1 := s.OffsetByTime(q, base+tc.at, false)
		upper, err2 := s.OffsetByTime(q, base+tc.at, true)
		if err := errors.Join(err1, err2); err != nil || lower != tc.lower || upper != tc.upper {
			t.Errorf("at +%d: %d and %d, %v; want %d and %d", tc.at, lower, upper, err, tc.lower, tc.upper)
		}
	}
	if ms, err := s.EarliestMillis(q); ms != base+10 || err != nil {
		t.Errorf("earliest: %d, %v", ms, err)
	}
	if ms, err := s.StoreMillisAt(q, 9); ms != base+20 || err != nil {
		t.Errorf("store time of a message inside a batch: %d, %v", ms, err)
	}
}

// A queue whose records expire begins at the first that is left, and keeps its
// number when none is.
func TestBatchRetention(t *testing.T) {
	cfg := batchConfig(vfs.NewMem())
	cfg.SyncFlush = true
	cfg.SegmentBytes, cfg.DeletePause, cfg.DeleteBatchMax = 4096, time.Nanosecond, 1000
	day := time.Now().AddDate(0, 0, 9)
	expired := time.Date(day.Year(), day.Month(), day.Day(), 4, 0, 0, 0, time.Local)
	s := mustOpen(t, cfg)
	var last Item
	for i := range 200 {
		last = sendInner(t, s, 0, fmt.Sprintf("%0100d", i), 7)
	}
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	s.clean(expired)
	q := s.FindQueue("D", 0)
	if q.Min() == 0 || q.Min()%7 != 0 || q.Max() != 1400 {
		t.Fatalf("queue is [%d, %d) after a deletion", q.Min(), q.Max())
	}
	first, last2 := got(t, s, q.Min(), 1), got(t, s, 1399, 1)
	if want := fmt.Sprintf("FOUND 7 %d:%0100d[%d] %d", q.Min(), int(q.Min())/7, q.Min(), q.Min()+7); first != want {
		t.Errorf("first: %s, want %s", first, want)
	}
	if want := fmt.Sprintf("FOUND 7 1393:%0100d[1393] 1400", 199); last2 != want {
		t.Errorf("last: %s, want %s", last2, want)
	}
	for range 60 { // the others' records push its last out of the log
		send(t, s, "T", 0, fmt.Sprintf("%0100d", 0))
	}
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	s.clean(expired)
	if s.Marks().Min <= last.LogOffset {
		t.Fatalf("the log begins at %d, at or below %d: nothing is tested", s.Marks().Min, last.LogOffset)
	}
	mustClose(t, s)
	s = mustOpen(t, cfg)
	defer mustClose(t, s)
	if q := s.FindQueue("D", 0); q == nil || q.Min() != 1400 || q.Max() != 1400 {
		t.Fatalf("a queue whose records are gone is %+v", q)
	}
	if it := sendInner(t, s, 0, "goes on", 2); it.QueueOffset != 1400 {
		t.Errorf("it goes on at %d, want 1400", it.QueueOffset)
	}
	if d := cmp.Diff("FOUND 2 1400:goes on[1400] 1402", got(t, s, 1401, 9)); d != "" {
		t.Error(d)
	}
}

// A topic that was deleted and made again with the other kind of queues leaves
// its old records in the log: they must not end it at a recovery.
func TestTopicOfAnotherKind(t *testing.T) {
	cfg := batchConfig(vfs.NewMem())
	kinds := map[string]bool{"D": true, "E": false}
	cfg.BatchTopic = func(topic string) (batch, known bool) { batch, known = kinds[topic]; return batch, known }
	s := mustOpen(t, cfg)
	sendInner(t, s, 0, "a", 3)
	send(t, s, "D", 0, "b")
	send(t, s, "E", 0, "c")
	send(t, s, "E", 0, "d")
	sendInner(t, s, 0, "e", 2)
	for topic, batch := range map[string]bool{"D": false, "E": true} {
		if err := s.DeleteTopic(topic); err != nil {
			t.Fatal(err)
		}
		kinds[topic] = batch
	}
	end := send(t, s, "T", 0, "behind")
	s = crashReopen(t, s, cfg)
	if got := s.Marks().Written; got != end.LogOffset+message.LogOffset(end.Len) {
		t.Fatalf("the log ends at %d, want %d", got, end.LogOffset+message.LogOffset(end.Len))
	}
	if q := s.FindQueue("D", 0); q.Batch() || q.Max() != 6 {
		t.Errorf("D is a batch queue: %t, ends at %d, want a plain one to 6", q.Batch(), q.Max())
	}
	if q := s.FindQueue("E", 0); !q.Batch() || q.Max() != 2 {
		t.Errorf("E is a batch queue: %t, ends at %d, want one to 2", q.Batch(), q.Max())
	}
	// And with messages of the new life behind them, killed before a sweep.
	for _, topic := range []string{"D", "E"} {
		if err := s.DeleteTopic(topic); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if it := send(t, s, topic, 0, fmt.Sprint(topic, i)); it.QueueOffset != message.QueueOffset(i) {
				t.Errorf("offset of %s%d is %d", topic, i, it.QueueOffset)
			}
		}
	}
	s = crashReopen(t, s, cfg)
	for _, topic := range []string{"D", "E"} {
		if d := cmp.Diff([]string{topic + "0", topic + "1", topic + "2"}, bodies(t, s, topic, 0)); d != "" {
			t.Errorf("%s: %s", topic, d)
		}
	}
	mustClose(t, s)
}
