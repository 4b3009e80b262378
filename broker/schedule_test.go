package broker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// scheduleWorld is a store, its tables and a scheduler over a memory that can
// be crashed.
type scheduleWorld struct {
	t  *testing.T
	fs *vfs.Mem // nil where a Fault is before it
	b  *Broker
}

var testAddr = netip.MustParseAddrPort("127.0.0.1:10911")

func newScheduleWorld(t *testing.T, fs vfs.FS, levels string) *scheduleWorld {
	t.Helper()
	return newScheduleWorldOver(t, fs, levels, engine.Config{SyncFlush: true})
}

func newScheduleWorldOver(t *testing.T, fs vfs.FS, levels string, store engine.Config) *scheduleWorld {
	t.Helper()
	cfg := DefaultConfig()
	cfg.MessageDelayLevel = levels
	return openScheduleWorld(t, fs, &cfg, store, time.Now)
}

// openScheduleWorld has a configuration and a clock of its own.
func openScheduleWorld(t *testing.T, fs vfs.FS, cfg *Config, store engine.Config, now func() time.Time) *scheduleWorld {
	t.Helper()
	b := &Broker{cfg: cfg, log: slog.New(slog.DiscardHandler), now: now, fs: fs, addr: testAddr, ids: message.NewIDs(testAddr.Addr())}
	parsed, _ := cfg.DelayLevels()
	b.levels.set(parsed)
	store.FS, store.Dir, store.SegmentBytes, store.NoIndex = fs, "store", 1<<20, true
	store.TagsCode, store.Events, store.Logger = b.entryTagsCode, storeEvents{b}, b.log
	var err error
	if b.store, err = engine.Open(store); err != nil {
		t.Fatal(err)
	}
	if b.tables, err = meta.Open(meta.Config{FS: fs, Dir: "store/config", Logger: b.log,
		System: meta.SystemConfig{BrokerClusterName: "c", BrokerName: "b", DelayLevels: len(parsed)}}); err != nil {
		t.Fatal(err)
	}
	b.topics = b.tables.Topics
	b.topics.PutAbsent(meta.NewTopic("T", 4, 6))
	b.schedule, b.timer = newScheduler(b), newTimer(b)
	b.schedule.start()
	b.timer.start()
	mem, _ := fs.(*vfs.Mem)
	return &scheduleWorld{t: t, fs: mem, b: b}
}

func (w *scheduleWorld) close() {
	w.t.Helper()
	w.b.schedule.close()
	w.b.timer.close()
	if err := w.b.store.Close(context.Background()); err != nil {
		w.t.Error(err)
	}
	if err := w.b.tables.Close(); err != nil {
		w.t.Error(err)
	}
}

// putter is a Completer that waits.
type putter chan struct{}

func (p putter) PutDone(*engine.Batch) { p <- struct{}{} }

// send stores a message with a delay level, as a SEND does, and waits until it
// is durable.
func (w *scheduleWorld) send(level int32, topic string, queue int32, body string) {
	w.t.Helper()
	props := message.AppendProperty(nil, message.PropDelay, strconv.Itoa(int(level)))
	props = message.AppendProperty(props, message.PropTags, "tag")
	props = message.AppendProperty(props, message.PropRealTopic, topic)
	props = message.AppendProperty(props, message.PropRealQueueID, strconv.Itoa(int(queue)))
	t, id, due := w.b.schedule.target(level, time.Now().UnixMilli())
	w.store(t.Name, id, due, props, body)
}

func (w *scheduleWorld) store(topic string, id int32, tagsCode int64, props []byte, body string) {
	w.t.Helper()
	rec, err := message.Append(nil, &message.Message{Topic: []byte(topic), QueueID: id, Properties: props, Body: []byte(body), BornHost: testAddr, StoreHost: testAddr})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(putter, 1)
	batch := &engine.Batch{Buf: rec, Wait: true, Done: done,
		Items: []engine.Item{{Len: int32(len(rec)), Count: 1, Queue: w.b.store.Queue(topic, id), TagsCode: tagsCode}}}
	w.b.store.Put(batch)
	<-done
	if batch.Err != nil {
		w.t.Fatal(batch.Err)
	}
}

// got reads all messages of a queue.
func (w *scheduleWorld) got(topic string, queue int32) (bodies []string, last message.Message) {
	w.t.Helper()
	var res engine.GetResult
	defer res.Release()
	for at := message.QueueOffset(0); ; at = res.Next {
		w.b.store.Get(&engine.GetRequest{Queue: w.b.store.FindQueue(topic, queue), Offset: at, MaxMsgs: 32, Cold: true}, &res)
		if res.Status != engine.Found {
			return bodies, last
		}
		for _, r := range res.Ranges {
			b := make([]byte, r.Len)
			if _, err := r.File.ReadAt(b, r.Off); err != nil {
				w.t.Fatal(err)
			}
			for len(b) > 0 {
				n, err := message.Decode(b, &last)
				if err != nil {
					w.t.Fatal(err)
				}
				bodies = append(bodies, string(last.Body))
				b = b[n:]
			}
		}
	}
}

func (w *scheduleWorld) want(topic string, queue int32, bodies ...string) {
	w.t.Helper()
	if got, _ := w.got(topic, queue); !slices.Equal(got, bodies) {
		w.t.Errorf("%s queue %d holds %q, want %q", topic, queue, got, bodies)
	}
}

func TestDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, vfs.NewMem(), "1s 5s 1h")
		defer w.close()
		w.send(2, "T", 1, "five")
		w.send(1, "T", 1, "one")
		w.send(3, "T", 1, "hour")
		w.want("T", 1)
		time.Sleep(1100 * time.Millisecond)
		w.want("T", 1, "one")
		time.Sleep(3800 * time.Millisecond)
		w.want("T", 1, "one")
		time.Sleep(200 * time.Millisecond)
		w.want("T", 1, "one", "five")
		// What a consumer sees of it.
		_, m := w.got("T", 1)
		for name, want := range map[string]string{message.PropDelay: "2", message.PropRealTopic: "T", message.PropRealQueueID: "1", message.PropTags: "tag"} {
			if v, _ := message.Property(m.Properties, name); string(v) != want {
				t.Errorf("property %s is %q, want %q", name, v, want)
			}
		}
		if m.QueueID != 1 || m.QueueOffset != 1 || string(m.Topic) != "T" || m.PreparedTransactionOffset == 0 {
			t.Errorf("delivered %+v", m)
		}
		var res engine.GetResult
		w.b.store.Get(&engine.GetRequest{Queue: w.b.store.FindQueue("T", 1), MaxMsgs: 1, Filter: mustFilter(t, "tag")}, &res)
		if res.Status != engine.Found {
			t.Errorf("a delivered message is not found by its tag: %v", res.Status)
		}
		res.Release()
		time.Sleep(time.Hour)
		w.want("T", 1, "one", "five", "hour")
	})
}

func mustFilter(t *testing.T, expr string) interface {
	MatchCode(int64) bool
	NeedsProperties() bool
	MatchProperties([]byte) bool
} {
	t.Helper()
	f, err := compileExpression("TAG", expr)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Thousands that are due together come in their order, and one level doesn't
// keep another waiting.
func TestDeliveryOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, vfs.NewMem(), "1s 2s")
		defer w.close()
		var want []string
		for i := range 1000 {
			w.send(1, "T", 0, fmt.Sprint(i))
			want = append(want, fmt.Sprint(i))
		}
		w.send(2, "T", 1, "other")
		time.Sleep(3 * time.Second)
		w.want("T", 0, want...)
		w.want("T", 1, "other")
	})
}

// Bad messages are passed over; what comes behind them is delivered.
func TestUndeliverable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, vfs.NewMem(), "1s")
		defer w.close()
		w.send(1, "Deleted", 0, "x")
		w.send(1, "../../etc", 0, "x")
		w.send(1, "T", -1, "x")
		w.send(1, "T", meta.QueueIDMax+1, "x")
		w.store(meta.ScheduleTopic, 0, time.Now().UnixMilli()+1000, nil, "without a target")
		w.send(1, "%RETRY%g", 0, "retry")
		w.send(1, "T", 0, "good")
		time.Sleep(2 * time.Second)
		w.want("T", 0, "good")
		w.want("%RETRY%g", 0, "retry")
		if w.b.topics.Find("%RETRY%g") == nil {
			t.Error("a retry topic lost by its table isn't made again")
		}
		if w.b.topics.Find("Deleted") != nil || w.b.store.FindQueue("Deleted", 0) != nil {
			t.Error("a deleted topic came back")
		}
	})
}

func TestDeliveryGoesOnAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newScheduleWorld(t, fs, "1s 1h")
		w.send(1, "T", 0, "before")
		w.send(2, "T", 0, "long")
		time.Sleep(2 * time.Second)
		w.send(1, "T", 0, "over")
		w.close()
		if p := read(t, fs, "store/config/delayOffset.json"); p == "" {
			t.Error("no delayOffset.json after a clean stop")
		}
		time.Sleep(10 * time.Second)
		w = newScheduleWorld(t, fs, "1s 1h")
		time.Sleep(time.Second)
		w.want("T", 0, "before", "over")
		time.Sleep(time.Hour)
		w.want("T", 0, "before", "over", "long")
		w.close()
		// A Java broker that follows goes by delayOffset.json alone.
		w = newScheduleWorld(t, fs, "1s 1h")
		p := w.b.tables.Delay.Progress()
		if p.Next[1] != 2 || p.Next[2] != 1 {
			t.Errorf("saved progress %v, want 2 and 1", p.Next)
		}
		w.close()
	})
}

func read(t *testing.T, fs vfs.FS, name string) string {
	t.Helper()
	b, err := fs.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Crashes at random moments, with all unsynced bytes lost, kept or torn: in the
// end each message is there once, and each level's in order.
func TestDeliveryIsExactlyOnceAcrossCrashes(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 2))
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		const levels = "1s 2s 3s"
		fs := vfs.NewMem()
		w := newScheduleWorld(t, fs, levels)
		want := make([][]string, 3)
		n := 0
		for range 40 {
			for range rng.IntN(30) {
				level := rng.Int32N(3)
				body := fmt.Sprint(n)
				n++
				w.send(level+1, "T", level, body)
				want[level] = append(want[level], body)
				if rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				}
			}
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			if rng.IntN(2) == 0 {
				policies := []vfs.CrashPolicy{{}, {Data: vfs.Kept, Entries: vfs.Kept}, {Data: vfs.Torn, Entries: vfs.Torn}}
				crashed := fs.CrashClone(policies[rng.IntN(len(policies))], rng)
				w.close()
				fs = crashed
			} else {
				w.close()
			}
			w = newScheduleWorld(t, fs, levels)
		}
		time.Sleep(10 * time.Second)
		for level := range int32(3) {
			if got, _ := w.got("T", level); !slices.Equal(got, want[level]) {
				t.Errorf("seed %d: level %d delivered\n%v, want\n%v", seed, level+1, got, want[level])
			}
		}
		w.close()
	})
}

// Progress never leads what is durable: a delivery lost with the page cache is
// made again.
func TestLostDeliveryIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		async := engine.Config{FlushInterval: time.Minute}
		w := newScheduleWorldOver(t, fs, "1h", async)
		w.send(1, "T", 0, "x")
		time.Sleep(time.Hour + 5*time.Second)
		w.want("T", 0, "x")
		crashed := fs.CrashClone(vfs.CrashPolicy{}, nil)
		w.close()
		w = newScheduleWorldOver(t, crashed, "1h", async)
		time.Sleep(5 * time.Second)
		w.want("T", 0, "x")
		w.close()
	})
}

func TestEntryTagsCode(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MessageDelayLevel = "1s 5s"
	b := &Broker{cfg: &cfg}
	levels, _ := cfg.DelayLevels()
	b.levels.set(levels)
	rec := func(topic, delay, tags string) []byte {
		props := message.AppendProperty(nil, message.PropDelay, delay)
		props = message.AppendProperty(props, message.PropTags, tags)
		r, err := message.Append(nil, &message.Message{Topic: []byte(topic), Properties: props, Body: []byte("b"), BornHost: testAddr, StoreHost: testAddr})
		if err != nil {
			t.Fatal(err)
		}
		message.Stamp(r, 0, 0, 1000)
		return r
	}
	tag := message.TagsCode([]byte("a"))
	for _, tt := range []struct {
		topic, delay string
		want         int64
	}{
		{"T", "2", tag}, {"T", "", tag}, {meta.ScheduleTopic, "1", 2000}, {meta.ScheduleTopic, "2", 6000},
		{meta.ScheduleTopic, "9", 6000}, {meta.ScheduleTopic, "0", tag}, {meta.ScheduleTopic, "x", tag}, {meta.ScheduleTopic, "", tag},
	} {
		if got := b.entryTagsCode(rec(tt.topic, tt.delay, "a")); got != tt.want {
			t.Errorf("%s with DELAY %q: %d, want %d", tt.topic, tt.delay, got, tt.want)
		}
	}
}

func TestLevel(t *testing.T) {
	var levels delayLevels
	levels.set(make([]time.Duration, 18))
	for _, tt := range []struct {
		in   string
		want int32
		ok   bool
	}{{"1", 1, true}, {"18", 18, true}, {"19", 18, true}, {"0", 0, true}, {"-1", 0, true}, {"x", 0, false}, {"", 0, false},
		{"2147483647", 18, true}, {"-2147483648", 0, true}, {"2147483648", 0, false}, {"99999999999999999999", 0, false}} {
		if got, err := levels.parse([]byte(tt.in)); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("parse(%q) = %d, %v, want %d, ok=%v", tt.in, got, err, tt.want, tt.ok)
		}
	}
}

// A batch of which only a part is stored: the next try begins at the first that
// isn't, and what is stored behind it is remembered.
func TestPartlyStoredBatch(t *testing.T) {
	for _, tt := range []struct {
		name      string
		statuses  []engine.Status
		want      message.QueueOffset
		delivered []message.LogOffset
	}{
		{"nothing", []engine.Status{engine.Busy, engine.Busy}, 10, nil},
		{"the first", []engine.Status{engine.OK, engine.Busy}, 11, nil},
		{"the last", []engine.Status{engine.CreateFailed, engine.OK, engine.OK}, 10, []message.LogOffset{101, 102}},
		{"a hole", []engine.Status{engine.OK, engine.CreateFailed, engine.OK}, 11, []message.LogOffset{102}},
		{"one that never fits", []engine.Status{engine.Illegal, engine.OK}, 12, nil},
		{"one that never fits before one that may", []engine.Status{engine.Illegal, engine.Busy}, 11, nil},
	} {
		s := &scheduler{delivered: map[message.LogOffset]message.LogOffset{}}
		s.batch.Err = engine.ErrLogClosed
		for i, status := range tt.statuses {
			s.batch.Items = append(s.batch.Items, engine.Item{Status: status, LogOffset: message.LogOffset(1000 + i)})
			s.offered = append(s.offered, offer{origin: message.LogOffset(100 + i), offset: message.QueueOffset(10 + i)})
		}
		if got := s.firstUnstored(message.QueueOffset(10 + len(tt.statuses))); got != tt.want {
			t.Errorf("%s: go on at %d, want %d", tt.name, got, tt.want)
		}
		if got := slices.Sorted(maps.Keys(s.delivered)); !slices.Equal(got, tt.delivered) {
			t.Errorf("%s: delivered %v, want %v", tt.name, got, tt.delivered)
		}
	}
}
