package engine

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

func byKey(t *testing.T, s *Store, topic, key string, most int) string {
	t.Helper()
	recs, _, _, err := s.QueryByKey(topic, key, most, math.MaxInt, 0, math.MaxInt64)
	if err != nil {
		t.Errorf("by key %s: %v", key, err)
	}
	var out []string
	for _, r := range recs {
		out = append(out, string(message.BodyOf(r)))
	}
	return strings.Join(out, " ")
}

// Keys whose hash is the asked one's, in this topic or another, neither come
// through nor take the place of what is asked for.
func TestQueryByCollidingKeys(t *testing.T) {
	s := mustOpen(t, testConfig(vfs.NewMem()))
	defer mustClose(t, s)
	for _, pair := range [][2]string{{"T#Aa", "T#BB"}, {"T#C#Aa", "T#C#BB"}, {"Aa#k", "BB#k"}} {
		if message.JavaHash([]byte(pair[0])) != message.JavaHash([]byte(pair[1])) {
			t.Fatalf("%q have not one hash", pair)
		}
	}
	send(t, s, "T", 0, "a1", message.PropKeys, "Aa x", message.PropUniqKey, "u1")
	send(t, s, "T", 0, "a2", message.PropKeys, "Aa", message.PropUniqKey, "Aa")
	send(t, s, "T", 0, "a3", message.PropKeys, "y Aa Aa", message.PropUniqKey, "u3")
	for i := range 100 {
		send(t, s, "T", 0, fmt.Sprint("b", i), message.PropKeys, "BB", message.PropUniqKey, "BB")
	}
	send(t, s, "T", 0, "hash", message.PropKeys, "C#Aa")
	send(t, s, "T", 0, "other hash", message.PropKeys, "C#BB")
	send(t, s, "Aa", 0, "topic Aa", message.PropKeys, "k")
	send(t, s, "BB", 0, "topic BB", message.PropKeys, "k")
	for _, tc := range []struct {
		topic, key string
		most       int
		want       string
	}{
		{"T", "Aa", 64, "a1 a2 a3"},
		{"T", "Aa", 3, "a1 a2 a3"},
		{"T", "Aa", 2, "a2 a3"},
		{"T", "Aa", 1, "a3"},
		{"T", "BB", 2, "b98 b99"},
		{"T", "x", 64, "a1"},
		{"T", "u3", 64, "a3"},
		{"T", "C#Aa", 64, "hash"},
		{"T#C", "Aa", 64, ""},
		{"Aa", "k", 64, "topic Aa"},
		{"BB", "k", 64, "topic BB"},
		{"T", "Aa x", 64, ""},
		{"T", "A", 64, ""},
	} {
		if got := byKey(t, s, tc.topic, tc.key, tc.most); got != tc.want {
			t.Errorf("%+v: got %q", tc, got)
		}
	}
}

// An answer has room for so many bytes: the oldest stay out.
func TestQueryBytes(t *testing.T) {
	s := mustOpen(t, testConfig(vfs.NewMem()))
	defer mustClose(t, s)
	size := 0
	for i := range 5 {
		size = int(send(t, s, "T", 0, fmt.Sprint("m", i), message.PropKeys, "k").Len)
	}
	for bytes, want := range map[int]int{0: 1, size - 1: 1, size: 1, 2*size - 1: 1, 2 * size: 2, 4 * size: 4, 9 * size: 5} {
		recs, _, _, err := s.QueryByKey("T", "k", 64, bytes, 0, math.MaxInt64)
		if err != nil || len(recs) != want || string(message.BodyOf(recs[len(recs)-1])) != "m4" {
			t.Errorf("%d bytes of %d each: %d records, %v; want the newest %d", bytes, size, len(recs), err, want)
		}
	}
}

// A query reads a bounded number of records, however many keys collide.
func TestQueryLooksAreBounded(t *testing.T) {
	s := mustOpen(t, Config{FS: vfs.NewMem(), Dir: "/store", SegmentBytes: 16 << 20, IndexSlots: 97, IndexEntries: 100_000,
		SweepInterval: time.Hour, CleanInterval: time.Hour, Logger: quiet})
	defer mustClose(t, s)
	send(t, s, "T", 0, "far", message.PropKeys, "Aa")
	for done := 0; done < queryLooksMax; {
		b := &Batch{Wait: true}
		for range 500 {
			addRec(s, b, "T", 0, "b", message.PropKeys, "BB")
			done++
		}
		if done == queryLooksMax {
			addRec(s, b, "T", 0, "near", message.PropKeys, "Aa")
		}
		newWaiter().put(s, b)
	}
	if got := byKey(t, s, "T", "Aa", 64); got != "near" {
		t.Errorf("got %q, want what is found among the newest %d", got, queryLooksMax)
	}
}

// Messages, keys and times of deleted segments are gone for every query.
func TestQueriesAfterRetention(t *testing.T) {
	now := time.Now()
	cfg := testConfig(vfs.NewMem())
	cfg.Now = func() time.Time { return now }
	cfg.SegmentBytes, cfg.ConsumeQueueBytes, cfg.DeletePause = 4096, 20*10, time.Nanosecond
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	first := send(t, s, "T", 0, "m0", message.PropKeys, "all k0")
	send(t, s, "Old", 0, "alone", message.PropKeys, "all")
	for i := 1; i < 100; i++ {
		send(t, s, "T", 0, fmt.Sprintf("m%d%0300d", i, 0), message.PropKeys, fmt.Sprint("all k", i))
	}
	if got := byKey(t, s, "T", "k0", 9); got != "m0" {
		t.Fatalf("k0 before: %q", got)
	}
	for range 2 {
		if err := s.sweep(); err != nil {
			t.Fatal(err)
		}
		for s.Marks().Durable < s.Marks().Written {
			time.Sleep(time.Millisecond)
		}
	}
	now = time.Date(now.Year(), now.Month(), now.Day()+9, 4, 0, 0, 0, time.Local) // deleteWhen
	s.clean(now)
	q, old := s.Queue("T", 0), s.Queue("Old", 0)
	low, high := q.Min(), q.Max()
	if low == 0 || high != 100 {
		t.Fatalf("the queue is [%d, %d): nothing was deleted", low, high)
	}
	if got := byKey(t, s, "T", "k0", 9); got != "" {
		t.Errorf("k0 of a deleted segment: %q", got)
	}
	if got := byKey(t, s, "T", fmt.Sprint("k", low), 9); !strings.HasPrefix(got, fmt.Sprint("m", low)) {
		t.Errorf("the first message that is left: %q", got)
	}
	if recs, _, _, err := s.QueryByKey("T", "all", 1000, 1<<30, 0, math.MaxInt64); len(recs) != int(high-low) || err != nil {
		t.Errorf("%d messages of %d, %v", len(recs), high-low, err)
	}
	if _, err := s.ByOffset(first.LogOffset); err == nil {
		t.Error("a deleted message is found by its offset")
	}
	for _, tc := range []struct {
		name  string
		at    int64
		upper bool
		want  message.QueueOffset
	}{
		{"before the first", 0, false, low},
		{"before the first", 0, true, 0},
		{"after the last", math.MaxInt64, false, high},
		{"after the last", math.MaxInt64, true, high - 1},
	} {
		if got, err := s.OffsetByTime(q, tc.at, tc.upper); got != tc.want || err != nil {
			t.Errorf("%s, upper %v: %d, %v; want %d", tc.name, tc.upper, got, err, tc.want)
		}
	}
	// All of a queue's messages are gone: it has only an end.
	if old.Min() != old.Max() {
		t.Fatalf("queue Old is [%d, %d)", old.Min(), old.Max())
	}
	for _, upper := range []bool{false, true} {
		want := old.Max()
		if upper {
			want = 0
		}
		if got, err := s.OffsetByTime(old, 0, upper); got != want || err != nil {
			t.Errorf("a queue without messages, upper %v: %d, %v; want %d", upper, got, err, want)
		}
	}
	if ms, err := s.EarliestMillis(old); ms != -1 || err != nil {
		t.Errorf("earliest of a queue without messages: %d, %v", ms, err)
	}
}
