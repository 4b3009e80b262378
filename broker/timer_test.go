package broker

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
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

// timed stores a message as a SEND with these properties (name, value, …) does,
// and waits until it is durable. It gives the refusal of one that isn't taken.
func (w *scheduleWorld) timed(topic string, queue int32, body string, props ...string) error {
	w.t.Helper()
	var given []byte
	for i := 0; i < len(props); i += 2 {
		given = message.AppendProperty(given, props[i], props[i+1])
	}
	var found sentProps
	to := target{topic: &meta.Topic{Name: topic}, queueID: queue}
	stored, err := w.b.postpone(w.b.appendStoredProps(nil, given, &found), &found, &to, w.b.now().UnixMilli())
	if err != nil {
		return err
	}
	w.store(to.topic.Name, to.queueID, to.tagsCode, stored, body)
	return nil
}

// at is timed for a time from now.
func (w *scheduleWorld) at(in time.Duration, topic string, queue int32, body string, props ...string) {
	w.t.Helper()
	due := strconv.FormatInt(w.b.now().Add(in).UnixMilli(), 10)
	if err := w.timed(topic, queue, body, append(props, message.PropTimerDeliverMs, due)...); err != nil {
		w.t.Fatal(err)
	}
}

// cancel takes back what was sent by at with a UNIQ_KEY.
func (w *scheduleWorld) cancel(in time.Duration, topic, key string) {
	w.t.Helper()
	w.at(in, topic, 0, "0", message.PropTimerDelUniqKey, cancelKey(topic, key), message.PropUniqKey, key)
}

func TestTimerDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, vfs.NewMem(), "1h")
		defer w.close()
		sent := w.b.now().UnixMilli()
		for _, m := range []struct{ body, prop, value string }{
			{"sec", message.PropTimerDelaySec, "3"},
			{"ms", message.PropTimerDelayMs, "1500"},
			{"at", message.PropTimerDeliverMs, fmt.Sprint(sent + 2250)},
			{"year", message.PropTimerDelaySec, fmt.Sprint(365 * 24 * 3600)},
		} {
			if err := w.timed("T", 1, m.body, m.prop, m.value, message.PropTags, "tag"); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			after int64 // ms since sent
			want  []string
		}{{1499, nil}, {1501, []string{"ms"}}, {2249, []string{"ms"}}, {2251, []string{"ms", "at"}}, {2999, []string{"ms", "at"}}, {3001, []string{"ms", "at", "sec"}}} {
			time.Sleep(time.Duration(sent+step.after-w.b.now().UnixMilli()) * time.Millisecond)
			synctest.Wait()
			w.want("T", 1, step.want...)
		}
		// What a consumer sees of it.
		_, m := w.got("T", 1)
		for name, want := range map[string]string{
			message.PropTimerDelaySec: "3", message.PropTimerOutMs: fmt.Sprint(sent + 3000), message.PropTags: "tag",
			message.PropTimerEnqueueMs: fmt.Sprint(m.StoreMillis - 3000), message.PropTimerDequeueMs: fmt.Sprint(m.StoreMillis),
			message.PropRealTopic: "T", message.PropRealQueueID: "1",
		} {
			if v, _ := message.Property(m.Properties, name); string(v) != want {
				t.Errorf("property %s is %q, want %q", name, v, want)
			}
		}
		if m.QueueID != 1 || string(m.Topic) != "T" || m.PreparedTransactionOffset == 0 {
			t.Errorf("delivered %+v", m)
		}
		var res engine.GetResult
		w.b.store.Get(&engine.GetRequest{Queue: w.b.store.FindQueue("T", 1), MaxMsgs: 1, Filter: mustFilter(t, "tag")}, &res)
		if res.Status != engine.Found {
			t.Errorf("a delivered message is not found by its tag: %v", res.Status)
		}
		res.Release()
	})
}

// Times in any order come in due order, those of equal times as they were sent.
func TestTimerOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, vfs.NewMem(), "1h")
		defer w.close()
		rng := rand.New(rand.NewPCG(7, 7))
		base := w.b.now().UnixMilli() + 10_000
		type sent struct {
			due  int64
			body string
		}
		var all []sent
		for i := range 2000 {
			m := sent{due: base + rng.Int64N(50), body: fmt.Sprint(i)}
			all = append(all, m)
			if err := w.timed("T", 0, m.body, message.PropTimerDeliverMs, fmt.Sprint(m.due)); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortStableFunc(all, func(a, b sent) int { return int(a.due - b.due) })
		var want []string
		for _, m := range all {
			want = append(want, m.body)
		}
		time.Sleep(11 * time.Second)
		w.want("T", 0, want...)
	})
}

func TestTimerCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newScheduleWorld(t, fs, "1h")
		for _, key := range []string{"A", "B", "C", "D"} {
			w.at(10*time.Second, "T", 0, key, message.PropUniqKey, key)
		}
		w.at(10*time.Second, "U", 0, "other topic", message.PropUniqKey, "A")
		w.at(20*time.Second, "T", 0, "other time", message.PropUniqKey, "A")
		w.cancel(10*time.Second, "T", "A")
		w.cancel(10*time.Second, "T", "nobody")
		w.b.topics.PutAbsent(meta.NewTopic("U", 1, 6))
		w.close()
		w = newScheduleWorld(t, fs, "1h") // a cancellation survives
		time.Sleep(9500 * time.Millisecond)
		w.cancel(500*time.Millisecond, "T", "B") // within the second in which it is due
		time.Sleep(2 * time.Second)
		w.want("T", 0, "C", "D")
		w.want("U", 0, "other topic")
		time.Sleep(20 * time.Second)
		w.want("T", 0, "C", "D", "other time")
		if n := w.b.store.FindQueue(meta.TimerTopic, 0).Max(); n != 9 {
			t.Errorf("the timer topic has %d entries, want 9", n)
		}
		w.close()
	})
}

// What has waited for half the time that segments live is copied behind, again
// and again; the copies keep the time and the order, and cost what one costs.
func TestTimerRolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		cfg := DefaultConfig()
		open := func() *scheduleWorld { return openScheduleWorld(t, fs, &cfg, engine.Config{SyncFlush: true}, time.Now) }
		w := open()
		if w.b.timer.window != 36*time.Hour {
			t.Errorf("window %v, want half of fileReservedTime", w.b.timer.window)
		}
		w.close()
		cfg.TimerRollWindowSlot = 600
		w = open()
		start := w.b.now()
		due := 65 * time.Minute
		w.at(due, "T", 0, "hour", message.PropUniqKey, "K")
		w.at(due, "T", 0, "recalled", message.PropUniqKey, "KR")
		w.at(5*time.Minute, "T", 0, "minutes")
		w.cancel(due, "T", "KR")
		w.at(due-time.Second, "T", 0, "a second sooner")
		for d := time.Duration(0); d < due-time.Minute; d += 3 * time.Minute {
			time.Sleep(time.Until(start.Add(d)))
			if rolled := w.b.store.FindQueue(meta.TimerTopic, 0).Max() > 5; rolled != (d > 10*time.Minute) {
				t.Fatalf("after %v: rolled %v", d, rolled)
			}
			switch rand.IntN(4) {
			case 0:
				w.close()
				w = open()
			case 1:
				crashed := fs.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil)
				w.close()
				fs = crashed
				w = open()
			}
		}
		time.Sleep(time.Until(start.Add(due - 100*time.Millisecond)))
		w.want("T", 0, "minutes", "a second sooner")
		time.Sleep(200 * time.Millisecond)
		w.want("T", 0, "minutes", "a second sooner", "hour")
		_, m := w.got("T", 0)
		if times, _ := message.Property(m.Properties, message.PropTimerRollTimes); string(times) != "6" {
			t.Errorf("rolled %q times, want 6: every 10 of 65 minutes", times)
		}
		time.Sleep(20 * time.Minute)
		w.want("T", 0, "minutes", "a second sooner", "hour")
		// Five records, six copies of each but of the first to leave.
		if n := w.b.store.FindQueue(meta.TimerTopic, 0).Max(); n != 5+4*6 {
			t.Errorf("the timer topic has %d entries, want %d", n, 5+4*6)
		}
		w.close()
	})
}

// A year's timers leave no items behind at their rolls.
func TestTimerMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.TimerRollWindowSlot = 60
		w := openScheduleWorld(t, vfs.NewMem(), &cfg, engine.Config{SyncFlush: true}, time.Now)
		const n = 5000
		for i := range n {
			w.at(300*24*time.Hour, "T", 0, fmt.Sprint(i))
		}
		time.Sleep(15*time.Minute + 30*time.Second)
		w.close()
		if got := len(w.b.timer.pending); got > 2*n+2048 || got < n {
			t.Errorf("%d items for %d pending timers after 14 rolls", got, n)
		}
		if len(w.b.timer.ahead) > 0 {
			t.Errorf("%d items are remembered as done", len(w.b.timer.ahead))
		}
	})
}

// Bad records in the timer topic are passed over, whoever put them there.
func TestTimerUndeliverable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, vfs.NewMem(), "1h")
		defer w.close()
		due := fmt.Sprint(w.b.now().UnixMilli() + 1000)
		bad := func(tagsCode int64, props ...string) {
			var p []byte
			for i := 0; i < len(props); i += 2 {
				p = message.AppendProperty(p, props[i], props[i+1])
			}
			w.store(meta.TimerTopic, 0, tagsCode, p, "bad")
		}
		bad(0)
		bad(77, message.PropTimerOutMs, "soon", message.PropRealTopic, "T", message.PropRealQueueID, "0")
		bad(77, message.PropTimerOutMs, "-5", message.PropRealTopic, "T", message.PropRealQueueID, "0")
		bad(w.b.now().UnixMilli(), message.PropTimerOutMs, due)
		bad(77, message.PropTimerOutMs, due, message.PropRealTopic, "Deleted", message.PropRealQueueID, "0")
		bad(77, message.PropTimerOutMs, due, message.PropRealTopic, "../T", message.PropRealQueueID, "0")
		bad(77, message.PropTimerOutMs, due, message.PropRealTopic, "T", message.PropRealQueueID, "-1")
		w.at(time.Second, "T", 0, "good")
		time.Sleep(2 * time.Second)
		w.want("T", 0, "good")
	})
}

// Crashes at random moments, with all unsynced bytes lost, kept or torn, rolls
// and recalls among them: in the end each message is there once, in due order.
func TestTimerIsExactlyOnceAcrossCrashes(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) { timerCrashes(t, seed) })
	}
}

func timerCrashes(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	fs := vfs.NewMem()
	cfg := DefaultConfig()
	cfg.TimerRollWindowSlot = 60 // many rolls
	open := func() *scheduleWorld {
		return openScheduleWorld(t, fs, &cfg, engine.Config{SyncFlush: true}, time.Now)
	}
	w := open()
	type sent struct {
		due  int64
		body string
	}
	var all []sent
	recalled := map[string]bool{}
	for n := 0; n < 400; {
		for range rng.IntN(20) {
			body := fmt.Sprint(n)
			n++
			in := time.Duration(rng.IntN(5000)) * time.Millisecond
			if rng.IntN(3) == 0 {
				in = time.Duration(rng.IntN(500)) * time.Second
			}
			due := w.b.now().Add(in).UnixMilli()
			w.at(in, "T", 0, body, message.PropUniqKey, body)
			if in > 2*time.Second && rng.IntN(5) == 0 {
				w.cancel(in, "T", body)
				recalled[body] = true
				continue
			}
			all = append(all, sent{due, body})
		}
		if rng.IntN(5) == 0 {
			time.Sleep(time.Duration(rng.IntN(40)) * time.Second)
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
		w = open()
	}
	time.Sleep(510 * time.Second)
	bodies, _ := w.got("T", 0)
	slices.SortStableFunc(all, func(a, b sent) int { return int(a.due - b.due) })
	due := map[string]int64{}
	for _, m := range all {
		due[m.body] = m.due
	}
	seen := map[string]bool{}
	last, late := int64(0), 0
	for _, body := range bodies {
		switch {
		case seen[body]:
			t.Errorf("seed %d: %s was delivered twice", seed, body)
		case recalled[body]:
			t.Errorf("seed %d: %s was recalled and delivered", seed, body)
		}
		seen[body] = true
		if due[body] < last {
			late++
		}
		last = max(last, due[body])
	}
	for _, m := range all {
		if !seen[m.body] {
			t.Errorf("seed %d: %s was lost", seed, m.body)
		}
	}
	if late > 0 {
		t.Errorf("seed %d: %d deliveries came after a later one", seed, late)
	}
	w.close()
}

// A store that a Java broker leaves: its checkpoint says what it delivered, its
// entries carry no time, its rolled messages lie there beside their copies.
func TestTimerTakesOverFromJava(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		cfg := DefaultConfig()
		cfg.TimerRollWindowSlot = 100 // Java's, too
		w := openScheduleWorld(t, fs, &cfg, engine.Config{SyncFlush: true}, time.Now)
		now := w.b.now().UnixMilli()
		java := func(body string, due int64, more ...string) {
			props := message.AppendProperty(nil, message.PropTimerOutMs, fmt.Sprint(due/1000*1000))
			props = message.AppendProperty(props, message.PropUniqKey, body)
			props = message.AppendProperty(props, message.PropRealTopic, "T")
			props = message.AppendProperty(props, message.PropRealQueueID, "0")
			for i := 0; i < len(more); i += 2 {
				props = message.AppendProperty(props, more[i], more[i+1])
			}
			w.store(meta.TimerTopic, 0, message.TagsCode([]byte(body)), props, body)
		}
		w.b.timer.close() // Java's turn
		java("delivered", now+5_000)
		java("pending", now+60_000)
		java("rolled", now+300_000)
		java("rolled", now+300_000, message.PropTimerRollTimes, "1")
		java("unrolled", now+300_000)
		java("late", now+1_000) // behind Java's queue offset: it had not seen it
		w.b.timer = newTimer(w.b)
		time.Sleep(20 * time.Second)
		w.b.timer.start()
		w.close()

		check := make([]byte, 4096)
		binary.BigEndian.PutUint64(check, uint64(now+10_000))
		binary.BigEndian.PutUint64(check[16:], 5)
		binary.BigEndian.PutUint64(check[24:], 5)
		fs2 := fs.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil)
		if err := fs2.WriteFileAtomic("store/config/timercheck", check); err != nil {
			t.Fatal(err)
		}
		w = openScheduleWorld(t, fs2, &cfg, engine.Config{SyncFlush: true}, time.Now)
		before, _ := w.got("T", 0) // what the first broker delivered, which Java's file says nothing of
		for range 3 {
			time.Sleep(30 * time.Second)
			w.close()
			w = openScheduleWorld(t, fs2, &cfg, engine.Config{SyncFlush: true}, time.Now)
		}
		time.Sleep(10 * time.Minute)
		got, _ := w.got("T", 0)
		if want := []string{"late", "pending", "rolled", "unrolled"}; !slices.Equal(got[len(before):], want) {
			t.Errorf("delivered %q after taking over, want %q", got[len(before):], want)
		}
		w.close()
		// And a Java broker may follow: it looks at nothing again.
		b, err := fs2.ReadFile("store/config/timercheck")
		if err != nil || len(b) != 4096 {
			t.Fatalf("timercheck of %d bytes, %v", len(b), err)
		}
		max := uint64(w.b.store.FindQueue(meta.TimerTopic, 0).Max())
		if got := binary.BigEndian.Uint64(b[16:]); got != max || binary.BigEndian.Uint64(b[24:]) != max {
			t.Errorf("timercheck says %d, %d, want %d", got, binary.BigEndian.Uint64(b[24:]), max)
		}
	})
}

// Without a progress the log tells what was delivered.
func TestTimerWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newScheduleWorld(t, fs, "1h")
		w.at(time.Second, "T", 0, "before")
		w.at(time.Hour, "T", 0, "after")
		time.Sleep(2 * time.Second)
		w.close()
		for _, name := range []string{"timercheck", "timercheck.bak", "ringmq-progress.journal"} {
			_ = fs.Remove("store/config/" + name)
		}
		w = newScheduleWorld(t, fs, "1h")
		time.Sleep(time.Hour)
		w.want("T", 0, "before", "after")
		w.close()
	})
}

// Progress never leads what is durable: a delivery lost with the page cache is
// made again.
func TestTimerLostDeliveryIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		async := engine.Config{FlushInterval: time.Minute}
		w := newScheduleWorldOver(t, fs, "1h", async)
		w.at(time.Hour, "T", 0, "x")
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
