package engine

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmq/ringmq/internal/filter"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

func TestGetStatus(t *testing.T) {
	s := mustOpen(t, testConfig(vfs.NewMem()))
	defer mustClose(t, s)
	for i := range 5 {
		send(t, s, "T", 0, fmt.Sprint(i), message.PropTags, fmt.Sprint("t", i%2))
	}
	none, err := filter.ParseTags("other")
	if err != nil {
		t.Fatal(err)
	}
	even, err := filter.ParseTags("t0")
	if err != nil {
		t.Fatal(err)
	}
	collides := collidingTags("t0")
	type want struct {
		Status GetStatus
		Next   message.QueueOffset
		Count  int
	}
	for _, tc := range []struct {
		name   string
		topic  string
		offset message.QueueOffset
		max    int
		bytes  int
		filter filter.Filter
		want   want
	}{
		{"all", "T", 0, 32, 0, nil, want{Found, 5, 5}},
		{"some", "T", 1, 2, 0, nil, want{Found, 3, 2}},
		{"zero messages is one", "T", 1, 0, 0, nil, want{Found, 2, 1}},
		{"negative messages is one", "T", 1, -7, 0, nil, want{Found, 2, 1}},
		{"at least one of any size", "T", 0, 32, 1, nil, want{Found, 1, 1}},
		{"two by bytes", "T", 0, 32, 250, nil, want{Found, 2, 2}},
		{"tag", "T", 0, 32, 0, even, want{Found, 5, 3}},
		{"tag, limited", "T", 0, 2, 0, even, want{Found, 4, 2}},
		{"no such tag", "T", 0, 32, 0, none, want{NoMatched, 5, 0}},
		{"a tag of the same hash", "T", 0, 32, 0, collides, want{NoMatched, 5, 0}},
		{"at the end", "T", 5, 32, 0, nil, want{OverflowOne, 5, 0}},
		{"past the end", "T", 7, 32, 0, nil, want{OverflowBadly, 5, 0}},
		{"before the start", "T", -1, 32, 0, nil, want{TooSmall, 0, 0}},
		{"nothing there", "U", 0, 32, 0, nil, want{Empty, 0, 0}},
		{"nothing there, past it", "U", 9, 32, 0, nil, want{Empty, 0, 0}},
	} {
		var res GetResult
		s.Get(&GetRequest{Queue: s.Queue(tc.topic, 0), Offset: tc.offset, MaxMsgs: tc.max, MaxBytes: tc.bytes, Filter: tc.filter}, &res)
		if d := cmp.Diff(tc.want, want{res.Status, res.Next, res.Count}); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
		messages(t, &res)
		res.Release()
		res.Release()
	}
	var res GetResult
	if s.Get(&GetRequest{}, &res); res.Status != NoQueue {
		t.Errorf("no queue: %v", res.Status)
	}
}

// collidingTags is a filter whose codes are those of tag and whose tag is
// another: it stands for two tags of one hash.
func collidingTags(tag string) filter.Filter { return collision{message.TagsCode([]byte(tag))} }

type collision struct{ code int64 }

func (c collision) MatchCode(code int64) bool   { return code == c.code }
func (c collision) NeedsProperties() bool       { return true }
func (c collision) MatchProperties([]byte) bool { return false }

// TestGetMerges reads a queue alone in the log and one that shares it.
func TestGetMerges(t *testing.T) {
	s := mustOpen(t, testConfig(vfs.NewMem()))
	defer mustClose(t, s)
	for i := range 6 {
		send(t, s, "A", 0, fmt.Sprint(i))
	}
	for i := range 3 {
		send(t, s, "B", 0, fmt.Sprint(i))
		send(t, s, "C", 0, fmt.Sprint(i))
	}
	for topic, want := range map[string]int{"A": 1, "B": 3} {
		var res GetResult
		s.Get(&GetRequest{Queue: s.Queue(topic, 0), MaxMsgs: 32}, &res)
		if len(res.Ranges) != want {
			t.Errorf("%s: %d ranges, want %d", topic, len(res.Ranges), want)
		}
		messages(t, &res)
		res.Release()
	}
}

// TestGetLimits has the store's own limits at work, in memory and on disk.
func TestGetLimits(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	resident := true
	fault.SetResident(func(name string, off, n int64) (bool, bool) {
		return resident || !strings.Contains(name, "commitlog"), true
	})
	cfg := testConfig(fault)
	cfg.SegmentBytes = 4 << 20
	cfg.HotBytes = 1000 // everything is asked for
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	for i := range 100 {
		send(t, s, "small", 0, fmt.Sprint(i))
	}
	for range 40 {
		send(t, s, "large", 0, strings.Repeat("x", 20000))
	}
	for i := range 100 {
		send(t, s, "behind", 0, fmt.Sprint(i))
	}
	type want struct {
		Status GetStatus
		Count  int
		Disk   bool
	}
	for _, tc := range []struct {
		topic    string
		resident bool
		cold     bool
		want     want
	}{
		{"small", true, false, want{Found, 32, false}},
		{"large", true, false, want{Found, 13, false}}, // 262144 bytes
		{"small", false, false, want{NeedCold, 0, false}},
		{"small", false, true, want{Found, 8, true}},
		{"large", false, true, want{Found, 3, true}}, // 65536 bytes
		{"large", true, true, want{Found, 13, false}},
	} {
		resident = tc.resident
		var res GetResult
		s.Get(&GetRequest{Queue: s.Queue(tc.topic, 0), MaxMsgs: 1000, Cold: tc.cold}, &res)
		if d := cmp.Diff(tc.want, want{res.Status, res.Count, res.Disk}); d != "" {
			t.Errorf("%+v: %s", tc, d)
		}
		if tc.want.Status == NeedCold && res.Next != 0 {
			t.Errorf("%+v: next %d", tc, res.Next)
		}
		res.Release()
	}
}

// TestGetDrops has a filter that reads many records and lets few through: what
// one Get reads is bounded by number and by bytes, and the next goes on from
// there to the last.
func TestGetDrops(t *testing.T) {
	s := mustOpen(t, testConfig(vfs.NewMem()))
	defer mustClose(t, s)
	put := func(topic, size string, n int) {
		body := strings.Repeat("b", map[string]int{"small": 10, "medium": 12_000, "large": 50_000}[size])
		for i := range n {
			want := "no"
			if i == n-1 {
				want = "yes"
			}
			send(t, s, topic, 0, body, "want", want, "pad", strings.Repeat("p", 100))
		}
	}
	put("small", "small", 1000)
	put("medium", "medium", 200)
	put("large", "large", 600)
	f, err := filter.ParseSQL("want = 'yes'")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		topic string
		next  []message.QueueOffset // of each Get
	}{
		{"small", []message.QueueOffset{256, 512, 768, 1000}},
		{"medium", []message.QueueOffset{86, 172, 200}}, // 1 MiB of records read whole
		{"large", []message.QueueOffset{256, 512, 600}}, // bodies aren't read
	} {
		var res GetResult
		var next message.QueueOffset
		for i, want := range tc.next {
			s.Get(&GetRequest{Queue: s.Queue(tc.topic, 0), Offset: next, MaxMsgs: 32, Filter: f}, &res)
			status, count := NoMatched, 0
			if i == len(tc.next)-1 {
				status, count = Found, 1
			}
			if res.Next != want || res.Status != status || res.Count != count {
				t.Errorf("%s from %d: next %d, %v, %d found; want %d, %v, %d", tc.topic, next, res.Next, res.Status, res.Count, want, status, count)
			}
			next = res.Next
			res.Release()
		}
	}
	for _, topic := range []string{"small", "large"} {
		q := s.Queue(topic, 0)
		req := &GetRequest{Queue: q, Offset: q.Max() - 50, MaxMsgs: 32, Filter: f} // entries in memory
		var res GetResult
		s.Get(req, &res) // its buffers are there
		if n := fewestAllocs(func() { s.Get(req, &res); res.Release() }); n != 0 {
			t.Errorf("%s: %v allocations a Get", topic, n)
		}
	}
}

// TestGetFilterCold has records that only the disk holds: a loop is sent away
// before it reads one for its filter.
func TestGetFilterCold(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	fault.SetResident(func(name string, off, n int64) (bool, bool) { return !strings.Contains(name, "commitlog"), true })
	cfg := testConfig(fault)
	cfg.HotBytes = 1000
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	for i := range 50 {
		send(t, s, "T", 0, "x", "a", fmt.Sprint(i))
	}
	f, err := filter.ParseSQL("a = 10")
	if err != nil {
		t.Fatal(err)
	}
	var res GetResult
	defer res.Release()
	fault.Add(vfs.Rule{Ops: vfs.OpRead, Path: "commitlog", Err: errors.New("read")})
	s.Get(&GetRequest{Queue: s.Queue("T", 0), MaxMsgs: 32, Filter: f}, &res)
	if res.Status != NeedCold || res.Next != 0 {
		t.Errorf("on a loop: %v, next %d, %v", res.Status, res.Next, res.Err)
	}
	s.Get(&GetRequest{Queue: s.Queue("T", 0), MaxMsgs: 32, Filter: f, Cold: true}, &res)
	if res.Status != FoundNull || res.Next != 0 || res.Err == nil {
		t.Errorf("unreadable: %v, next %d, %v", res.Status, res.Next, res.Err)
	}
	fault.Clear()
	s.Get(&GetRequest{Queue: s.Queue("T", 0), MaxMsgs: 32, Filter: f, Cold: true}, &res)
	if res.Status != Found || res.Count != 1 {
		t.Errorf("where it may wait: %v, %d found", res.Status, res.Count)
	}
}

func TestOffsetByTime(t *testing.T) {
	s := mustOpen(t, testConfig(vfs.NewMem()))
	defer mustClose(t, s)
	base := s.cfg.Now().UnixMilli() + 1_000_000
	// Two at +10, one each at +20 and +40.
	for _, at := range []int64{10, 10, 20, 40} {
		s.log.Lock()
		s.storeMillis = base + at
		s.log.Unlock()
		send(t, s, "T", 0, fmt.Sprint(at))
	}
	for _, tc := range []struct {
		at           int64
		lower, upper message.QueueOffset
	}{
		{0, 0, 0}, {10, 0, 1}, {11, 2, 1}, {20, 2, 2}, {30, 3, 2}, {39, 3, 2}, {40, 3, 3}, {41, 4, 3}, {1000, 4, 3},
	} {
		for _, upper := range []bool{false, true} {
			got, err := s.OffsetByTime(s.Queue("T", 0), base+tc.at, upper)
			want := tc.lower
			if upper {
				want = tc.upper
			}
			if err != nil || got != want {
				t.Errorf("at +%d, upper=%v: %d, %v; want %d", tc.at, upper, got, err, want)
			}
		}
	}
	for _, upper := range []bool{false, true} {
		if got, err := s.OffsetByTime(s.Queue("empty", 0), base, upper); got != 0 || err != nil {
			t.Errorf("empty queue: %d, %v", got, err)
		}
	}
	if ms, err := s.EarliestMillis(s.Queue("T", 0)); ms != base+10 || err != nil {
		t.Errorf("earliest: %d, %v; want %d", ms, err, base+10)
	}
	if ms, err := s.EarliestMillis(s.Queue("empty", 0)); ms != -1 || err != nil {
		t.Errorf("earliest of nothing: %d, %v", ms, err)
	}
	if ms, err := s.StoreMillisAt(s.Queue("T", 0), 2); ms != base+20 || err != nil {
		t.Errorf("store time of message 2: %d, %v", ms, err)
	}
	if ms, err := s.StoreMillisAt(s.Queue("T", 0), 4); ms != -1 || err != nil {
		t.Errorf("store time past the end: %d, %v", ms, err)
	}
}

func TestByOffsetAndKey(t *testing.T) {
	s := mustOpen(t, testConfig(vfs.NewMem()))
	defer mustClose(t, s)
	a := send(t, s, "T", 0, "a", message.PropUniqKey, "U1", message.PropKeys, "x  y")
	b := send(t, s, "T", 1, "b", message.PropUniqKey, "U2", message.PropKeys, "y")
	send(t, s, "other", 0, "c", message.PropKeys, "y U1")
	rec, err := s.ByOffset(b.LogOffset)
	if err != nil || string(message.BodyOf(rec)) != "b" {
		t.Errorf("by offset: %q, %v", rec, err)
	}
	for _, off := range []message.LogOffset{-1, a.LogOffset + 1, b.LogOffset - 4, 1 << 40, s.Marks().Written} {
		if rec, err := s.ByOffset(off); err == nil {
			t.Errorf("a record at %d: %q", off, rec)
		}
	}
	for _, tc := range []struct {
		key        string
		max        int
		begin, end int64
		want       string
	}{
		{"U1", 32, 0, 1 << 60, "a"},
		{"x", 32, 0, 1 << 60, "a"},
		{"y", 32, 0, 1 << 60, "ab"},
		{"y", 1, 0, 1 << 60, "b"},
		{"", 32, 0, 1 << 60, ""},
		{"z", 32, 0, 1 << 60, ""},
		{"y", 32, 0, a.StoreMillis - 1, ""},
		{"y", 32, b.StoreMillis + 1, 1 << 60, ""},
		{"y", 0, 0, 1 << 60, ""},
	} {
		recs, last, lastOff, err := s.QueryByKey("T", tc.key, tc.max, math.MaxInt, tc.begin, tc.end)
		got := ""
		for _, r := range recs {
			got += string(message.BodyOf(r))
		}
		if got != tc.want || err != nil || last == 0 || lastOff == 0 {
			t.Errorf("%+v: %q, %v", tc, got, err)
		}
	}
}
