package engine

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// benchConfig is a store of real size over the system's files.
func benchConfig(tb testing.TB, sync bool) Config {
	return Config{FS: vfs.OS(), Dir: tb.TempDir(), SyncFlush: sync, Logger: quiet, SegmentBytes: 256 << 20}
}

// benchBatch makes a batch of n records of 1 KB bodies over 8 queues, with the
// properties a Java client sends.
func benchBatch(s *Store, n int) *Batch {
	b := &Batch{Wait: true}
	body := strings.Repeat("x", 1024)
	for i := range n {
		addRec(s, b, "BenchmarkTest", int32(i%8), body, message.PropUniqKey, fmt.Sprintf("7F0000010001%020d", i),
			message.PropWait, "true", message.PropTags, "TagA", "MSG_REGION", "DefaultRegion", "TRACE_ON", "true", "CLUSTER", "DefaultCluster")
	}
	return b
}

func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func benchPut(b *testing.B, sync bool, per, flying int, direct bool) {
	s := mustOpen(b, benchConfig(b, sync))
	defer mustClose(b, s)
	free := make(chan *Batch, flying)
	done := freeList(free)
	for range flying {
		batch := benchBatch(s, per)
		batch.MayDirect = direct
		free <- batch
	}
	size := len((<-free).Buf)
	free <- benchBatch(s, per)
	b.SetBytes(int64(size / per))
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	for n := 0; n < b.N; n += per {
		batch := <-free
		if batch.Err != nil {
			b.Fatal(batch.Err)
		}
		batch.Done = done
		s.Put(batch)
	}
	for range flying {
		<-free
	}
	b.StopTimer()
	st := s.Stats()
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/float64(max(1, st.Groups)), "msg/group")
}

type freeList chan *Batch

func (f freeList) PutDone(b *Batch) { f <- b }

func BenchmarkPutBatch32(b *testing.B) { benchPut(b, false, 32, 8, false) }
func BenchmarkPutOne(b *testing.B)     { benchPut(b, false, 1, 1, false) }
func BenchmarkPutDirect(b *testing.B)  { benchPut(b, false, 1, 1, true) }
func BenchmarkPutSync32(b *testing.B)  { benchPut(b, true, 32, 8, false) }
func BenchmarkPutSyncOne(b *testing.B) { benchPut(b, true, 1, 1, true) }

func BenchmarkGet32(b *testing.B) {
	s := mustOpen(b, benchConfig(b, false))
	defer mustClose(b, s)
	w := newWaiter()
	for range 64 {
		w.put(s, benchBatch(s, 128))
	}
	q := s.Queue("BenchmarkTest", 0)
	var res GetResult
	b.ReportAllocs()
	b.ResetTimer()
	off := message.QueueOffset(0)
	for n := 0; n < b.N; n += res.Count {
		if off >= q.Max()-32 {
			off = 0
		}
		s.Get(&GetRequest{Queue: q, Offset: off, MaxMsgs: 32}, &res)
		off = res.Next
		res.Release()
	}
}

// fewestAllocs counts the allocations of fn. What other goroutines allocate in
// the meantime counts too, so the best of a few looks is taken.
func fewestAllocs(fn func()) float64 {
	fewest := testing.AllocsPerRun(200, fn)
	for range 5 {
		if fewest == 0 {
			break
		}
		fewest = min(fewest, testing.AllocsPerRun(200, fn))
	}
	return fewest
}

// TestNoAllocations puts and gets without a heap allocation, in memory and
// over files, both flushes: what is left is less than one in a hundred
// messages (tails that grow, the sweeper).
func TestNoAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	for _, sync := range []bool{false, true} {
		for _, direct := range []bool{false, true} {
			cfg := benchConfig(t, sync)
			cfg.SweepInterval = time.Hour
			s := mustOpen(t, cfg)
			b := benchBatch(s, 32)
			b.MayDirect = direct
			w := newWaiter()
			for range 100 {
				w.put(s, b) // queues and tails exist
			}
			if n := fewestAllocs(func() { w.put(s, b) }); n != 0 {
				t.Errorf("sync=%v direct=%v: %v allocations for a batch of 32", sync, direct, n)
			}
			q := s.Queue("BenchmarkTest", 3)
			req := &GetRequest{Queue: q, Offset: q.Max() - 32, MaxMsgs: 32}
			var res GetResult
			if n := fewestAllocs(func() { s.Get(req, &res); res.Release() }); n != 0 {
				t.Errorf("sync=%v: %v allocations for a Get", sync, n)
			}
			mustClose(t, s)
		}
	}
}
