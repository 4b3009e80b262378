package broker

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// BenchmarkTimerBacklog has a million timers of 1 KiB pending on a disk, lets all
// of them be due at once, and says what they cost in memory, how long a start
// takes that finds them, and how many are delivered a second.
func BenchmarkTimerBacklog(b *testing.B) {
	for _, flush := range []bool{false, true} {
		for _, spread := range []time.Duration{0, 24 * time.Hour} {
			b.Run(fmt.Sprintf("sync=%v/spread=%v", flush, spread), func(b *testing.B) { benchmarkTimerBacklog(b, flush, spread) })
		}
	}
}

func benchmarkTimerBacklog(b *testing.B, sync bool, spread time.Duration) {
	const count = 1_000_000
	for range b.N {
		var skew atomic.Int64 // of the timer's clock, nanoseconds
		cfg := DefaultConfig()
		fs, dir := vfs.OS(), b.TempDir()
		br := &Broker{cfg: &cfg, log: slog.New(slog.DiscardHandler), fs: fs, addr: testAddr, ids: message.NewIDs(testAddr.Addr()),
			now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }}
		var err error
		if br.store, err = engine.Open(engine.Config{FS: fs, Dir: dir, SegmentBytes: 256 << 20, NoIndex: true, SyncFlush: sync,
			TagsCode: br.entryTagsCode, Events: storeEvents{br}, Logger: br.log}); err != nil {
			b.Fatal(err)
		}
		if br.tables, err = meta.Open(meta.Config{FS: fs, Dir: dir + "/config", Logger: br.log,
			System: meta.SystemConfig{BrokerClusterName: "c", BrokerName: "b"}}); err != nil {
			b.Fatal(err)
		}
		br.topics = br.tables.Topics
		br.topics.PutAbsent(meta.NewTopic("T", 4, 6))
		br.schedule, br.timer = newScheduler(br), newTimer(br)
		putTimers(b, br, count, spread)

		before := heapBytes()
		started := time.Now()
		br.timer.start()
		for br.tables.Timer.Progress().Loaded < count { // durable: loaded, and looked at
			time.Sleep(5 * time.Millisecond)
		}
		b.ReportMetric(time.Since(started).Seconds(), "load-s")
		b.ReportMetric(float64(heapBytes()-before)/1e6, "MB-pending")

		skew.Store(int64(spread + 2*time.Hour))
		began := time.Now()
		for br.deliveredTo("T") < count {
			time.Sleep(5 * time.Millisecond)
		}
		b.ReportMetric(count/time.Since(began).Seconds(), "delivered/s")
		br.timer.close()
		if err := br.store.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := br.tables.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *Broker) deliveredTo(topic string) (n int64) {
	for id := range int32(4) {
		if q := b.store.FindQueue(topic, id); q != nil {
			n += int64(q.Max())
		}
	}
	return n
}

// putTimers stores timers as sends do, a thousand at a time.
func putTimers(b *testing.B, br *Broker, count int, spread time.Duration) {
	b.Helper()
	body := make([]byte, 1024)
	queue := br.store.Queue(meta.TimerTopic, 0)
	base := br.now().Add(time.Hour).UnixMilli()
	done := make(putter, 1)
	for i := 0; i < count; {
		batch := &engine.Batch{Done: done, Wait: true}
		for range 1000 {
			due := base
			if spread > 0 {
				due += int64(i) * 7919 % spread.Milliseconds()
			}
			props := message.AppendProperty(nil, message.PropUniqKey, fmt.Sprintf("7F00000100002A139A5512D5%08X", i))
			props = message.AppendProperty(props, message.PropTimerDeliverMs, fmt.Sprint(due))
			props = message.AppendProperty(props, message.PropRealTopic, "T")
			props = message.AppendProperty(props, message.PropRealQueueID, fmt.Sprint(i%4))
			props = message.AppendProperty(props, message.PropTimerOutMs, fmt.Sprint(due))
			pos := len(batch.Buf)
			var err error
			if batch.Buf, err = message.Append(batch.Buf, &message.Message{Topic: []byte(meta.TimerTopic), Body: body, Properties: props, BornHost: testAddr, StoreHost: testAddr}); err != nil {
				b.Fatal(err)
			}
			batch.Items = append(batch.Items, engine.Item{Pos: int32(pos), Len: int32(len(batch.Buf) - pos), Count: 1, Queue: queue, TagsCode: due})
			i++
		}
		br.store.Put(batch)
		if <-done; batch.Err != nil {
			b.Fatal(batch.Err)
		}
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A million pending timers cost less than 100 MB, while they come, stay and go,
// and nothing when they are gone.
func TestMillionTimersInMemory(t *testing.T) {
	timer := &timer{}
	const count, itemBytes = 1_000_000, int(unsafe.Sizeof(timerItem{}))
	largest := 0
	for i := range count {
		timer.pending.push(timerDue(int64(i*7919%count), message.LogOffset(i), false))
		largest = max(largest, cap(timer.pending))
	}
	if bytes := largest * itemBytes; bytes >= 100e6/2 { // growing holds the old ones beside the new
		t.Errorf("a million items take %d bytes, %d each", bytes, itemBytes)
	}
	for len(timer.pending) > 0 {
		timer.pending.pop()
		timer.dropStale()
		if left := len(timer.pending); cap(timer.pending) > 4*left+4096 {
			t.Fatalf("room for %d items is kept for %d", cap(timer.pending), left)
		}
	}
}
