package broker

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/broker/pop"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// openPopBroker opens a broker over a memory that can be crashed; nothing
// listens, its reviver runs.
func openPopBroker(t *testing.T, fs vfs.FS, flush string) *Broker {
	t.Helper()
	cfg := DefaultConfig()
	cfg.StorePathRootDir, cfg.StorePathCommitLog, cfg.BrokerName, cfg.BrokerIP1, cfg.BrokerIP2 = "store", "", "broker-t", "127.0.0.1", "127.0.0.1"
	cfg.MappedFileSizeCommitLog, cfg.MaxMessageSize, cfg.FlushDiskType, cfg.FlushEngine = 1<<20, 64<<10, flush, "syscall"
	cfg.MessageIndexEnable, cfg.NamesrvAddr = false, ""
	cfg.PopResponseReturnActualRetryTopic = true // the topic tells where a message was popped
	cfg.Complete()
	b, err := newBroker(cfg, fs, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.reviver.start()
	return b
}

func closePopBroker(t *testing.T, b *Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	b.schedule.start() // Close ends it
	b.transactions.start()
	b.registrar.start()
	if err := b.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// A popWorld pops and acknowledges without a wire.
type popWorld struct {
	*testing.T
	b     *Broker
	state *loopState
}

func newPopWorld(t *testing.T, b *Broker) *popWorld {
	return &popWorld{T: t, b: b, state: &loopState{}}
}

// A taken is a popped message.
type taken struct {
	topic string
	queue int32
	h     pop.Handle
	off   int64
	body  string
	times int32
}

// pop pops once, from topic and retry topic.
func (w *popWorld) pop(most int, invisible int64) (all []taken) {
	w.Helper()
	t, g := w.b.topics.Find("T"), w.b.groups.Find("g")
	p := &popRequest{conn: &netloop.Conn{}, topic: t, group: g, queueID: -1, maxMsgs: most, invisible: invisible}
	r := &w.state.popping
	r.begin(w.b, p, w.state, time.Now().UnixMilli())
	r.cold = true
	r.run()
	starts := map[string]int64{}
	for record := range strings.SplitSeq(string(r.start), ";") {
		var flag string
		var id, start int64
		if _, err := fmt.Sscan(record, &flag, &id, &start); err == nil {
			starts[fmt.Sprint(flag, "@", id)] = start
		}
	}
	for _, rg := range r.ranges {
		b, err := appendRange(nil, rg)
		if err != nil {
			w.Fatal(err)
		}
		for len(b) > 0 {
			var m message.Message
			n, err := message.Decode(b, &m)
			if err != nil {
				w.Fatal(err)
			}
			b = b[n:]
			topic := string(m.Topic)
			start := starts[fmt.Sprintf("%c@%d", popRetryFlag(topic), m.QueueID)]
			all = append(all, taken{topic, m.QueueID, pop.Handle{Start: start, PopMillis: r.popMillis}, int64(m.QueueOffset), string(m.Body), m.ReconsumeTimes})
		}
	}
	for _, g := range r.gots {
		g.Release()
	}
	return all
}

func (w *popWorld) ack(m taken) bool {
	q := w.b.findPopQueue(m.topic, "g", m.queue)
	return q != nil && q.Ack(m.h, m.off)
}

// written waits until what was popped and acknowledged is in the journal.
func (w *popWorld) written() {
	done := make(popWritten)
	w.b.pops.AfterWrite(done)
	<-done
}

type popWritten chan struct{}

func (p popWritten) Written() { close(p) }

// Crashes at random moments, the process's and the machine's. Whatever is lost,
// each message is popped until it is acknowledged. After the end of the process
// nothing acknowledged comes again, and nothing stands twice on the retry topic.
func TestPopsAcrossCrashes(t *testing.T) {
	for _, flush := range []string{"SYNC_FLUSH", "ASYNC_FLUSH"} {
		for _, kind := range []string{"kill", "power"} {
			t.Run(flush+" "+kind, func(t *testing.T) {
				seed := uint64(time.Now().UnixNano())
				rng := rand.New(rand.NewPCG(seed, 0))
				fs := vfs.NewMem()
				b := openPopBroker(t, fs, flush)
				b.topics.PutAbsent(meta.NewTopic("T", 2, 6))
				if _, err := b.groups.GetOrCreate("g"); err != nil {
					t.Fatal(err)
				}
				if err := b.tables.Save(); err != nil {
					t.Fatal(err)
				}
				acked, sent := map[string]int{}, 0
				for round := range 4 {
					w := newPopWorld(t, b)
					for range 30 {
						storeMessage(t, b, "T", int32(sent%2), fmt.Sprint("m", sent))
						sent++
					}
					if flush == "ASYNC_FLUSH" && kind == "power" { // what producers must not rely on is not the matter here
						waitFor(t, "messages are durable", func() bool { m := b.store.Marks(); return m.Durable == m.Written })
					}
					for range 10 {
						for _, m := range w.pop(1+rng.IntN(8), rng.Int64N(60)) {
							if rng.IntN(3) > 0 && w.ack(m) {
								acked[m.body]++
								if acked[m.body] > 1 && kind == "kill" {
									t.Fatalf("seed %d round %d: %s was acknowledged and came again", seed, round, m.body)
								}
							}
						}
						time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
					}
					w.written()
					policy := vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}
					if kind == "power" {
						policy = []vfs.CrashPolicy{{}, {Data: vfs.Torn, Entries: vfs.Torn}}[rng.IntN(2)]
					}
					crashed := fs.CrashClone(policy, rng)
					closePopBroker(t, b)
					fs = crashed
					b = openPopBroker(t, fs, flush)
				}
				w := newPopWorld(t, b)
				waitFor(t, fmt.Sprintf("all %d are acknowledged (seed %d)", sent, seed), func() bool {
					for _, m := range w.pop(32, 200) {
						if w.ack(m) {
							acked[m.body]++
							if acked[m.body] > 1 && kind == "kill" {
								t.Fatalf("seed %d: %s was acknowledged and came again", seed, m.body)
							}
						}
					}
					return len(acked) == sent && b.pops.Flying() == 0
				})
				if kind == "kill" {
					onceOnRetry(t, b, seed)
				}
				closePopBroker(t, b)
			})
		}
	}
}

// onceOnRetry checks that no delivery was put on the retry topic twice: a
// message stands there once for each count of deliveries.
func onceOnRetry(t *testing.T, b *Broker, seed uint64) {
	t.Helper()
	seen := map[string]bool{}
	for _, m := range readQueue(t, b, "%RETRY%g_T", 0) {
		key := fmt.Sprintf("%s %d", m.Body, m.ReconsumeTimes)
		if seen[key] {
			t.Errorf("seed %d: %s was put on the retry topic twice for delivery %d", seed, m.Body, m.ReconsumeTimes)
		}
		seen[key] = true
	}
	if len(seen) == 0 {
		t.Error("nothing ever failed: the test shows nothing")
	}
}

// storeMessage stores a message as a SEND does, and waits until it is as durable
// as one.
func storeMessage(t *testing.T, b *Broker, topic string, queue int32, body string) {
	t.Helper()
	rec, err := message.Append(nil, &message.Message{Topic: []byte(topic), QueueID: queue, Body: []byte(body), BornHost: b.addr, StoreHost: b.addr})
	if err != nil {
		t.Fatal(err)
	}
	done := make(putter, 1)
	batch := &engine.Batch{Buf: rec, Wait: true, Done: done, Items: []engine.Item{{Len: int32(len(rec)), Count: 1, Queue: b.store.Queue(topic, queue)}}}
	b.store.Put(batch)
	<-done
	if batch.Err != nil {
		t.Fatal(batch.Err)
	}
}

// readQueue reads all messages of a queue.
func readQueue(t *testing.T, b *Broker, topic string, queue int32) (all []message.Message) {
	t.Helper()
	var res engine.GetResult
	defer res.Release()
	for at := message.QueueOffset(0); ; at = res.Next {
		b.store.Get(&engine.GetRequest{Queue: b.store.FindQueue(topic, queue), Offset: at, MaxMsgs: 32, Cold: true}, &res)
		if res.Status != engine.Found {
			return all
		}
		for _, rg := range res.Ranges {
			buf, err := appendRange(nil, rg)
			for err == nil && len(buf) > 0 {
				var m message.Message
				var n int
				if n, err = message.Decode(buf, &m); err == nil {
					all, buf = append(all, m), buf[n:]
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A pop whose messages are only on a disk waits for it on the pool; meanwhile the
// loop serves others, and other pops of the group pass the queue by.
func TestColdPop(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	b := startOver(t, fault, "ASYNC_FLUSH")
	want := sendOld(t, dial(t, b))
	stopBroker(t, b)
	b = startOver(t, fault, "ASYNC_FLUSH")
	t.Cleanup(func() { stopBroker(t, b) })
	t.Cleanup(fault.Clear)
	cold, hot := dial(t, b), dial(t, b)
	sendTo(t, hot, "Hot", 0, "hot")
	ack(t, hot, "Hot", popUntil(t, hot, "Hot", 1, 60_000)...)
	fault.SetResident(func(string, int64, int64) (bool, bool) { return false, true })
	fault.Add(vfs.Rule{Ops: vfs.OpSync, Delay: diskDelay})
	fault.Add(vfs.Rule{Ops: vfs.OpRead, Path: segment.Name(0), Delay: diskDelay})
	began := time.Now()
	answer := later(t, cold, remoting.ReqPopMessage, popFields("Old", 0, 32, 60_000, 10_000)...)
	var slowest time.Duration
	for i := 0; len(answer) == 0; i++ {
		at := time.Now()
		sendTo(t, hot, "Hot", 0, fmt.Sprint("hot", i))
		ack(t, hot, "Hot", popUntil(t, hot, "Hot", 1, 60_000)...)
		slowest = max(slowest, time.Since(at))
		if i == 1 { // the queue is being read: it is passed by
			call(t, hot, remoting.ReqPopMessage, remoting.PollingTimeout, nil, popFields("Old", 0, 32, 60_000, 0)...)
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("the cold pop is not answered")
		}
	}
	got := pops(t, <-answer)
	if s := bodiesOf(got); s != strings.Join(want, " ") {
		t.Errorf("the cold pop: got %q, want %q", s, want)
	}
	if took := time.Since(began); took < diskDelay {
		t.Errorf("the cold pop took %v: it was not cold", took)
	}
	if slowest > diskDelay {
		t.Errorf("a send, a pop and an acknowledgement beside it took %v", slowest)
	}
	ack(t, hot, "Old", got...)
}

// A pop of 32 messages and their acknowledgements cost a few allocations
// together: the check, and what maps and buffers grow by.
func TestPopPathHardlyAllocates(t *testing.T) {
	b := openPopBroker(t, vfs.NewMem(), "ASYNC_FLUSH")
	defer closePopBroker(t, b)
	topic, _ := b.topics.PutAbsent(meta.NewTopic("T", 1, 6))
	group, err := b.groups.GetOrCreate("g")
	if err != nil {
		t.Fatal(err)
	}
	const runs, most = 60, 32
	for i := range (runs + 2) * most {
		storeMessage(t, b, "T", 0, fmt.Sprint(i))
	}
	state := &loopState{}
	p := &popRequest{conn: &netloop.Conn{}, topic: topic, group: group, queueID: -1, maxMsgs: most, invisible: 60_000}
	batch := &popBatch{b: b}
	got := testing.AllocsPerRun(runs, func() {
		r := &state.popping
		r.begin(b, p, state, time.Now().UnixMilli())
		r.run()
		if r.count != most {
			t.Fatalf("popped %d messages", r.count)
		}
		batch.found(r)
		q := b.findPopQueue("T", "g", 0)
		h := pop.Handle{Start: r.taken[0], PopMillis: r.popMillis}
		for _, off := range r.taken {
			if !q.Ack(h, off) {
				t.Fatal("not acknowledged")
			}
		}
		for _, g := range batch.gots {
			state.giveGot(g)
		}
		batch.buf, batch.answers, batch.ranges, batch.gots = batch.buf[:0], batch.answers[:0], batch.ranges[:0], batch.gots[:0]
	})
	if got > 8 {
		t.Errorf("allocations of a pop of %d messages and their acknowledgements: got %.1f, want at most 8", most, got)
	}
	t.Logf("%.1f allocations", got)
}
