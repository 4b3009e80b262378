package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmq/ringmq/internal/filter"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// eachMode runs a test over memory and the system's files, with both flushes.
func eachMode(t *testing.T, fn func(t *testing.T, cfg Config)) {
	for _, sync := range []bool{false, true} {
		for _, fs := range []string{"mem", "os"} {
			t.Run(fmt.Sprintf("sync=%v/%s", sync, fs), func(t *testing.T) {
				cfg := testConfig(vfs.NewMem())
				if fs == "os" {
					cfg = testConfig(vfs.OS())
					cfg.Dir = t.TempDir()
				}
				cfg.SyncFlush = sync
				fn(t, cfg)
			})
		}
	}
}

func TestPutGetReopen(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		s := mustOpen(t, cfg)
		for i := range 300 {
			it := send(t, s, "T", int32(i%3), fmt.Sprint(i), message.PropTags, "A")
			if got, want := int(it.QueueOffset), i/3; got != want {
				t.Fatalf("message %d: queue offset %d, want %d", i, got, want)
			}
		}
		check := func(s *Store) {
			t.Helper()
			for q := range 3 {
				var want []string
				for i := q; i < 300; i += 3 {
					want = append(want, fmt.Sprint(i))
				}
				if d := cmp.Diff(want, bodies(t, s, "T", int32(q))); d != "" {
					t.Errorf("queue %d: %s", q, d)
				}
			}
		}
		check(s)
		marks := s.Marks()
		if marks.Dispatched != marks.Written {
			t.Errorf("after all puts: %+v", marks)
		}
		mustClose(t, s)
		s = mustOpen(t, cfg)
		check(s)
		if it := send(t, s, "T", 0, "more"); it.QueueOffset != 100 || it.LogOffset != marks.Written {
			t.Errorf("after reopening: %+v, want queue offset 100 at %d", it, marks.Written)
		}
		mustClose(t, s)
	})
}

// TestRolls fills segments with records of all sizes: none may cross, the rest
// of each is a blank.
func TestRolls(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		cfg.SegmentBytes = 4096
		s := mustOpen(t, cfg)
		var want []string
		for i := range 200 {
			body := strings.Repeat(string(rune('a'+i%26)), 1+i*17%900)
			want = append(want, body)
			it := send(t, s, "T", 0, body)
			if seg := int64(it.LogOffset) / 4096; (int64(it.LogOffset)+int64(it.Len)+8-1)/4096 != seg {
				t.Fatalf("record %d [%d, +%d) leaves no room for a blank", i, it.LogOffset, it.Len)
			}
		}
		b := newWaiter().put(s, one(s, "T", 0, strings.Repeat("x", 4096)))
		if b.Items[0].Status != Illegal || b.Err == nil {
			t.Errorf("a record larger than a segment: %v, %v", b.Items[0].Status, b.Err)
		}
		if d := cmp.Diff(want, bodies(t, s, "T", 0)); d != "" {
			t.Error(d)
		}
		mustClose(t, s)
		s = mustOpen(t, cfg)
		defer mustClose(t, s)
		if d := cmp.Diff(want, bodies(t, s, "T", 0)); d != "" {
			t.Error(d)
		}
	})
}

// TestClassicBatch puts several records of one item near the end of a segment:
// they stay together.
func TestClassicBatch(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.SegmentBytes = 4096
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	send(t, s, "T", 0, strings.Repeat("x", 3000))
	b := &Batch{Wait: true}
	var n int32
	for i := range 5 {
		b.Buf = rec(b.Buf, "T", 0, strings.Repeat(fmt.Sprint(i), 100), message.PropTags, fmt.Sprint("t", i))
		n++
	}
	b.Items = []Item{{Len: int32(len(b.Buf)), Count: n, Queue: s.Queue("T", 0)}}
	newWaiter().put(s, b)
	it := b.Items[0]
	if it.Status != OK || it.QueueOffset != 1 || it.LogOffset != 4096 {
		t.Fatalf("%+v, %v; want queue offset 1 at 4096", it, b.Err)
	}
	tag, err := filter.ParseTags("t3")
	if err != nil {
		t.Fatal(err)
	}
	var res GetResult
	defer res.Release()
	s.Get(&GetRequest{Queue: s.Queue("T", 0), Offset: 0, MaxMsgs: 32, Filter: tag}, &res)
	got := messages(t, &res)
	if len(got) != 1 || got[0].QueueOffset != 4 || res.Next != 6 {
		t.Errorf("filtered: %d messages, next %d: %v", len(got), res.Next, res.Status)
	}
	bad := &Batch{Buf: rec(nil, "T", 0, "x"), Wait: true}
	bad.Items = []Item{{Len: int32(len(bad.Buf)), Count: 2, Queue: s.Queue("T", 0)}}
	if newWaiter().put(s, bad); bad.Items[0].Status != Illegal {
		t.Errorf("an item with fewer records than Count: %v", bad.Items[0].Status)
	}
}

func TestDirectAppend(t *testing.T) {
	for _, sync := range []bool{false, true} {
		cfg := testConfig(vfs.NewMem())
		cfg.SyncFlush = sync
		s := mustOpen(t, cfg)
		for i := range 100 {
			b := one(s, "T", 0, fmt.Sprint(i))
			b.MayDirect = true
			w := newWaiter()
			b.Done = w
			s.Put(b)
			if !sync && len(w.ch) == 0 && s.Stats().Directs == int64(i+1) {
				t.Fatal("a direct append under ASYNC_FLUSH was not done inside Put")
			}
			w.wait()
		}
		if st := s.Stats(); st.Directs == 0 || st.Groups != 100 {
			t.Errorf("sync=%v: %d direct of %d groups", sync, st.Directs, st.Groups)
		}
		if d := cmp.Diff(numbered(0, 100), bodies(t, s, "T", 0)); d != "" {
			t.Error(d)
		}
		mustClose(t, s)
	}
}

// TestNoQueue puts prepared and rolled back records: they enter no queue.
func TestNoQueue(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	s := mustOpen(t, cfg)
	var at []message.LogOffset
	for _, flag := range []int32{message.SysFlagTransactionPrepared, message.SysFlagTransactionRollback, message.SysFlagTransactionCommit} {
		buf, err := message.Append(nil, &message.Message{Topic: []byte("T"), Body: []byte("b"), SysFlag: flag, BornHost: testHost, StoreHost: testHost})
		if err != nil {
			t.Fatal(err)
		}
		it := Item{Len: int32(len(buf)), NoQueue: flag != message.SysFlagTransactionCommit}
		if !it.NoQueue {
			it.Queue = s.Queue("T", 0)
		}
		b := newWaiter().put(s, &Batch{Buf: buf, Items: []Item{it}})
		at = append(at, b.Items[0].LogOffset)
	}
	for range 2 {
		if got := bodies(t, s, "T", 0); len(got) != 1 {
			t.Errorf("got %d messages, want the committed one", len(got))
		}
		for _, off := range at {
			if _, err := s.ByOffset(off); err != nil {
				t.Error(err)
			}
		}
		s = crashReopen(t, s, cfg)
	}
	mustClose(t, s)
}

func TestVisibilityUnderSyncFlush(t *testing.T) {
	mem := vfs.NewMem()
	dev := &heldDevice{gate: make(chan struct{})}
	cfg := testConfig(mem)
	cfg.SyncFlush, cfg.Device = true, dev
	s := mustOpen(t, cfg)
	// Answered before it is durable, and not visible until then.
	b := one(s, "T", 0, "nowait")
	b.Wait = false
	newWaiter().put(s, b)
	clear(b.Buf) // its owner has it back: dispatch must not read it
	w := newWaiter()
	b2 := one(s, "T", 0, "wait")
	b2.Done = w
	s.Put(b2)
	if q := s.Queue("T", 0); q.Max() != 0 {
		t.Errorf("max is %d before the sync", q.Max())
	}
	if _, err := s.ByOffset(b.Items[0].LogOffset); !errors.Is(err, ErrNoRecord) {
		t.Errorf("a record that is not durable can be read: %v", err)
	}
	if len(w.ch) != 0 {
		t.Error("answered before it is durable")
	}
	close(dev.gate)
	w.wait()
	if d := cmp.Diff([]string{"nowait", "wait"}, bodies(t, s, "T", 0)); d != "" {
		t.Error(d)
	}
	mustClose(t, s)
}

// heldDevice syncs only when its gate is open.
type heldDevice struct{ gate chan struct{} }

func (d *heldDevice) Name() string { return "held" }
func (d *heldDevice) Close() error { return nil }
func (d *heldDevice) WriteV(f vfs.File, bufs [][]byte, off int64) error {
	return f.WriteVAt(bufs, off)
}
func (d *heldDevice) Sync(files []vfs.File) error {
	<-d.gate
	for _, f := range files {
		if err := f.SyncData(); err != nil {
			return err
		}
	}
	return nil
}

func TestFlushTimeout(t *testing.T) {
	dev := &heldDevice{gate: make(chan struct{})}
	cfg := testConfig(vfs.NewMem())
	cfg.SyncFlush, cfg.Device, cfg.SyncFlushTimeout = true, dev, 1
	s := mustOpen(t, cfg)
	b := newWaiter().put(s, one(s, "T", 0, "slow"))
	if b.Items[0].Status != FlushDiskTimeout || b.Err == nil {
		t.Errorf("%v, %v", b.Items[0].Status, b.Err)
	}
	clear(b.Buf)
	close(dev.gate)
	mustClose(t, s)
	s = mustOpen(t, cfg)
	if d := cmp.Diff([]string{"slow"}, bodies(t, s, "T", 0)); d != "" {
		t.Error(d)
	}
	mustClose(t, s)
}

func TestArrivedBeforeDone(t *testing.T) {
	ev := &recorder{}
	cfg := testConfig(vfs.NewMem())
	cfg.Events = ev
	s := mustOpen(t, cfg)
	send(t, s, "T", 0, "a")
	s.Queue("T", 0).Waiters.Add(1)
	send(t, s, "T", 0, "b")
	if d := cmp.Diff([]string{"T-0:2"}, ev.arrived); d != "" {
		t.Error(d)
	}
	mustClose(t, s)
}

func TestConcurrent(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		cfg.SegmentBytes = 16 << 10
		s := mustOpen(t, cfg)
		const senders, each = 6, 150
		var wg sync.WaitGroup
		for g := range senders {
			wg.Go(func() {
				for i := range each {
					b := one(s, "T", int32(g), fmt.Sprint(i), message.PropKeys, fmt.Sprintf("k%d-%d", g, i))
					b.MayDirect, b.Wait = i%2 == 0, i%3 != 0
					if newWaiter().put(s, b); b.Items[0].Status != OK {
						t.Error(b.Items[0].Status, b.Err)
					}
				}
			})
			wg.Go(func() {
				var res GetResult
				defer res.Release()
				q := s.Queue("T", int32(g))
				for off := message.QueueOffset(0); off < each; off = res.Next {
					s.Get(&GetRequest{Queue: q, Offset: off, MaxMsgs: 8, Cold: true}, &res)
					for i, m := range messages(t, &res) {
						if string(m.Body) != fmt.Sprint(int(off)+i) {
							t.Errorf("queue %d offset %d: body %q", g, int(off)+i, m.Body)
						}
					}
				}
			})
		}
		done := make(chan struct{})
		var sweeps sync.WaitGroup
		sweeps.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if err := s.sweep(); err != nil {
						t.Error(err)
					}
					s.Stats()
				}
			}
		})
		wg.Wait()
		close(done)
		sweeps.Wait()
		mustClose(t, s)
		s = mustOpen(t, cfg)
		for g := range senders {
			if d := cmp.Diff(numbered(0, each), bodies(t, s, "T", int32(g))); d != "" {
				t.Errorf("queue %d: %s", g, d)
			}
		}
		mustClose(t, s)
	})
}

func TestLocked(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, testConfig(mem))
	_, err := Open(testConfig(mem))
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "storePathRootDir") || !strings.Contains(err.Error(), "/store") {
		t.Errorf("second open: %v", err)
	}
	mustClose(t, s)
	mustClose(t, mustOpen(t, testConfig(mem)))
}

func TestPutAfterClose(t *testing.T) {
	s := mustOpen(t, testConfig(vfs.NewMem()))
	mustClose(t, s)
	b := one(s, "T", 0, "late")
	b.MayDirect = true
	if newWaiter().put(s, b); b.Items[0].Status != ServiceNotAvailable || !errors.Is(b.Err, ErrClosed) {
		t.Errorf("%v, %v", b.Items[0].Status, b.Err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error("second Close:", err)
	}
}

// TestJavaFiles looks at what a clean stop leaves, as Apache's broker does.
func TestJavaFiles(t *testing.T) {
	cfg := testConfig(vfs.OS())
	cfg.Dir = t.TempDir()
	s := mustOpen(t, cfg)
	if b, err := os.ReadFile(filepath.Join(cfg.Dir, "abort")); err != nil || string(b) != fmt.Sprint(os.Getpid()) {
		t.Errorf("abort while running: %q, %v", b, err)
	}
	var last Item
	for range 10 {
		last = send(t, s, "T", 1, strings.Repeat("x", 4000), message.PropKeys, "k")
	}
	mustClose(t, s)
	if _, err := os.Stat(filepath.Join(cfg.Dir, "abort")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("abort after a clean stop: %v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(cfg.Dir, "lock")); string(b) != "lock" {
		t.Errorf("lock holds %q", b)
	}
	cp, err := os.ReadFile(filepath.Join(cfg.Dir, "checkpoint"))
	if err != nil || len(cp) != 4096 {
		t.Fatalf("checkpoint: %d bytes, %v", len(cp), err)
	}
	if got := int64(be.Uint64(cp)); got != last.StoreMillis {
		t.Errorf("physicMsgTimestamp %d, want %d", got, last.StoreMillis)
	}
	for dir, want := range map[string]string{"commitlog": "00000000000000000000", "consumequeue/T/1": "00000000000000000000"} {
		des, err := os.ReadDir(filepath.Join(cfg.Dir, dir))
		if err != nil || len(des) != 1 || des[0].Name() != want {
			t.Errorf("%s: %v, %v", dir, des, err)
		}
	}
}
