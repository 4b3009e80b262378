package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// killed is what a killed process leaves: all that was written, an abort file,
// no lock.
func killed(s *Store) *vfs.Mem {
	return s.fs.(*vfs.Mem).CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil)
}

// crashReopen opens what a kill of s leaves.
func crashReopen(t *testing.T, s *Store, cfg Config) *Store {
	t.Helper()
	cfg.FS = killed(s)
	mustClose(t, s)
	return mustOpen(t, cfg)
}

// edit opens a file of the log and lets fn change it.
func edit(t *testing.T, fs vfs.FS, off message.LogOffset, segmentBytes int64, b []byte) {
	t.Helper()
	base := int64(off) / segmentBytes * segmentBytes
	f, err := fs.Open(filepath.Join("/store/commitlog", segment.Name(base)), vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, int64(off)-base); err != nil {
		t.Fatal(err)
	}
}

func readLog(t *testing.T, fs vfs.FS, off message.LogOffset, segmentBytes int64, n int) []byte {
	t.Helper()
	base := int64(off) / segmentBytes * segmentBytes
	f, err := fs.Open(filepath.Join("/store/commitlog", segment.Name(base)), vfs.Read)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, int64(off)-base); err != nil {
		t.Fatal(err)
	}
	return b
}

func removeAll(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	des, err := fs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range des {
		if name := filepath.Join(dir, d.Name); d.IsDir {
			removeAll(t, fs, name)
		} else if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := fs.Remove(dir); err != nil {
		t.Fatal(err)
	}
}

// TestRecoverMissing takes parts of a store away, after a clean stop and after
// a kill: what can be made again from the log is.
func TestRecoverMissing(t *testing.T) {
	const n = 120
	for _, clean := range []bool{true, false} {
		for _, swept := range []bool{true, false} {
			for _, missing := range []string{"", "consumequeue", "consumequeue/T/1", "index", "checkpoint", markName, "checkpoint " + markName, "consumequeue index checkpoint " + markName} {
				t.Run(fmt.Sprintf("clean=%v/swept=%v/%s", clean, swept, missing), func(t *testing.T) {
					cfg := testConfig(vfs.NewMem())
					cfg.SegmentBytes = 8 << 10
					s := mustOpen(t, cfg)
					for i := range n {
						send(t, s, "T", int32(i%2), fmt.Sprint(i/2), message.PropUniqKey, fmt.Sprint("u", i), message.PropKeys, fmt.Sprint("k", i, " all"))
						if swept && i == n/2 {
							if err := s.sweep(); err != nil {
								t.Fatal(err)
							}
						}
					}
					mem := cfg.FS.(*vfs.Mem)
					if !clean {
						mem = killed(s)
					}
					end := s.Marks().Written
					mustClose(t, s)
					for _, name := range strings.Fields(missing) {
						name = filepath.Join("/store", name)
						if info, err := mem.Stat(name); err != nil {
							continue // never made
						} else if info.IsDir {
							removeAll(t, mem, name)
						} else if err := mem.Remove(name); err != nil {
							t.Fatal(err)
						}
					}
					cfg.FS = mem
					for range 2 { // what was recovered opens cleanly
						s = mustOpen(t, cfg)
						if got := s.Marks(); got.Written != end || got.Dispatched != end {
							t.Errorf("%+v, want end %d", got, end)
						}
						for q := range int32(2) {
							if d := cmp.Diff(numbered(0, n/2), bodies(t, s, "T", q)); d != "" {
								t.Errorf("queue %d: %s", q, d)
							}
						}
						for _, key := range []string{"u3", "u110", "k3", "k119"} {
							if recs, _, _, err := s.QueryByKey("T", key, 10, 1<<30, 0, 1<<62); err != nil || len(recs) != 1 {
								t.Errorf("key %s: %d records, %v", key, len(recs), err)
							}
						}
						if recs, _, _, err := s.QueryByKey("T", "all", 1000, 1<<30, 0, 1<<62); err != nil || len(recs) != n {
							t.Errorf("key all: %d records, %v", len(recs), err)
						}
						mustClose(t, s)
					}
				})
			}
		}
	}
}

// TestRecoverTorn damages the log's end after a kill: the log is cut there, and
// stays good when it is written and killed again.
func TestRecoverTorn(t *testing.T) {
	const seg = 64 << 10
	for name, damage := range map[string]func(t *testing.T, fs vfs.FS, last Item){
		"body":  func(t *testing.T, fs vfs.FS, last Item) { edit(t, fs, last.LogOffset+90, seg, []byte{'?'}) },
		"size":  func(t *testing.T, fs vfs.FS, last Item) { edit(t, fs, last.LogOffset, seg, []byte{0x7f}) },
		"magic": func(t *testing.T, fs vfs.FS, last Item) { edit(t, fs, last.LogOffset+4, seg, []byte{1}) },
		"zeros": func(t *testing.T, fs vfs.FS, last Item) { edit(t, fs, last.LogOffset, seg, make([]byte, last.Len)) },
		"half": func(t *testing.T, fs vfs.FS, last Item) {
			edit(t, fs, last.LogOffset+40, seg, make([]byte, last.Len-40))
		},
		"physicalOffset": func(t *testing.T, fs vfs.FS, last Item) { edit(t, fs, last.LogOffset+28, seg, make([]byte, 8)) },
		"queueOffset": func(t *testing.T, fs vfs.FS, last Item) {
			edit(t, fs, last.LogOffset+20, seg, []byte{0, 0, 0, 0, 0, 0, 0, 77})
		},
		"storeTimestamp": func(t *testing.T, fs vfs.FS, last Item) { edit(t, fs, last.LogOffset+56, seg, make([]byte, 8)) },
		"properties": func(t *testing.T, fs vfs.FS, last Item) { // a sector of them
			edit(t, fs, (last.LogOffset+200+511)/512*512, seg, make([]byte, 512))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(vfs.NewMem())
			s := mustOpen(t, cfg)
			for i := range 10 {
				send(t, s, "T", 0, fmt.Sprint(i))
			}
			if err := s.sweep(); err != nil {
				t.Fatal(err)
			}
			for i := 10; i < 20; i++ {
				send(t, s, "T", 0, fmt.Sprint(i))
			}
			keys := []string{message.PropKeys, strings.Repeat("k", 1500)}
			last := send(t, s, "T", 0, "the torn one", keys...)
			behind := send(t, s, "U", 0, "intact, behind the torn one")
			cfg.FS = killed(s)
			mustClose(t, s)
			damage(t, cfg.FS, last)

			s = mustOpen(t, cfg)
			if got := s.Marks().Written; got != last.LogOffset {
				t.Errorf("the log ends at %d, want %d", got, last.LogOffset)
			}
			if d := cmp.Diff(numbered(0, 20), bodies(t, s, "T", 0)); d != "" {
				t.Error(d)
			}
			for i, b := range readLog(t, cfg.FS, behind.LogOffset, seg, int(behind.Len)) {
				if b != 0 {
					t.Fatalf("byte %d behind the cut is %d", i, b)
				}
			}
			// Written anew up to exactly where the intact one stood.
			if again := send(t, s, "T", 0, "the whole one"[:12], keys...); again.LogOffset != last.LogOffset || again.Len != last.Len {
				t.Fatalf("the next record is at %d, +%d", again.LogOffset, again.Len)
			}
			s = crashReopen(t, s, cfg)
			if d := cmp.Diff(append(numbered(0, 20), "the whole on"), bodies(t, s, "T", 0)); d != "" {
				t.Error(d)
			}
			if got := bodies(t, s, "U", 0); len(got) != 0 {
				t.Errorf("the record behind the cut came back: %q", got)
			}
			mustClose(t, s)
		})
	}
}

// TestRecoverStale puts an intact record of an earlier life right behind the
// log's end, as a cut without zeroing would leave it.
func TestRecoverStale(t *testing.T) {
	const seg = 64 << 10
	cfg := testConfig(vfs.NewMem())
	s := mustOpen(t, cfg)
	send(t, s, "T", 0, "first")
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	gone := send(t, s, "T", 0, "gone")
	stale := send(t, s, "T", 0, "stale")
	staleBytes := readLog(t, cfg.FS, stale.LogOffset, seg, int(stale.Len))
	cfg.FS = killed(s)
	mustClose(t, s)
	edit(t, cfg.FS, gone.LogOffset, seg, make([]byte, gone.Len))
	s = mustOpen(t, cfg)
	// Its queue offset continues, so only its store time can betray it.
	s.storeMillis += 10_000
	again := send(t, s, "T", 0, "gon!")
	end := s.Marks().Written
	cfg.FS = killed(s)
	mustClose(t, s)
	if again.LogOffset != gone.LogOffset || end != stale.LogOffset {
		t.Fatalf("records do not line up: %d %d, %d %d", again.LogOffset, gone.LogOffset, end, stale.LogOffset)
	}
	edit(t, cfg.FS, stale.LogOffset, seg, staleBytes)
	s = mustOpen(t, cfg)
	defer mustClose(t, s)
	if d := cmp.Diff([]string{"first", "gon!"}, bodies(t, s, "T", 0)); d != "" {
		t.Error(d)
	}
}

// TestStoreTimeNeverGoesBack starts with a clock that is behind the log.
func TestStoreTimeNeverGoesBack(t *testing.T) {
	for _, clean := range []bool{true, false} {
		cfg := testConfig(vfs.NewMem())
		s := mustOpen(t, cfg)
		s.storeMillis = 1 << 50
		first := send(t, s, "T", 0, "from the future")
		if clean {
			mustClose(t, s)
			s = mustOpen(t, cfg)
		} else {
			s = crashReopen(t, s, cfg)
		}
		if next := send(t, s, "T", 0, "now"); next.StoreMillis < first.StoreMillis {
			t.Errorf("clean=%v: store time %d after %d", clean, next.StoreMillis, first.StoreMillis)
		}
		mustClose(t, s)
	}
}

func TestDeleteTopic(t *testing.T) {
	for _, again := range []bool{false, true} {
		cfg := testConfig(vfs.NewMem())
		s := mustOpen(t, cfg)
		for i := range 20 {
			send(t, s, "T", int32(i%2), fmt.Sprint(i/2))
			send(t, s, "U", 0, fmt.Sprint(i))
			if i == 10 {
				if err := s.sweep(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.DeleteTopic("T"); err != nil {
			t.Fatal(err)
		}
		if got := s.FindQueue("T", 0); got != nil {
			t.Error("the queue is still found")
		}
		if again {
			if it := send(t, s, "T", 0, "new"); it.QueueOffset != 0 {
				t.Errorf("a topic made again starts at %d", it.QueueOffset)
			}
		}
		for i := 20; i < 25; i++ {
			send(t, s, "U", 0, fmt.Sprint(i))
		}
		s = crashReopen(t, s, cfg)
		if d := cmp.Diff(numbered(0, 25), bodies(t, s, "U", 0)); d != "" {
			t.Errorf("again=%v: %s", again, d)
		}
		if got := bodies(t, s, "T", 0); again && (len(got) != 1 || got[0] != "new") {
			t.Errorf("topic made again: %q", got)
		}
		mustClose(t, s)
	}
}

// TestRecoverJava opens what Apache's broker leaves: no mark of ours, a
// checkpoint of its own, bytes behind the end that were never zeroed.
func TestRecoverJava(t *testing.T) {
	for _, abort := range []bool{false, true} {
		cfg := testConfig(vfs.NewMem())
		cfg.SegmentBytes = 8 << 10
		s := mustOpen(t, cfg)
		for i := range 100 {
			send(t, s, "T", 0, fmt.Sprint(i))
		}
		fs := cfg.FS.(*vfs.Mem)
		if abort {
			fs = killed(s)
		}
		mustClose(t, s)
		if err := fs.Remove("/store/" + markName); err != nil {
			t.Fatal(err)
		}
		f, err := fs.Open("/store/checkpoint", vfs.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		cp := checkpoint{PhysicMillis: s.storeMillis, LogicsMillis: s.storeMillis}
		b := cp.encode()
		if _, err := f.WriteAt(b[:], 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		cfg.FS = fs
		s = mustOpen(t, cfg)
		if d := cmp.Diff(numbered(0, 100), bodies(t, s, "T", 0)); d != "" {
			t.Errorf("abort=%v: %s", abort, d)
		}
		if it := send(t, s, "T", 0, "next"); it.QueueOffset != 100 {
			t.Errorf("abort=%v: next queue offset %d", abort, it.QueueOffset)
		}
		mustClose(t, s)
	}
}

// TestMalformedRecord opens a cleanly stopped Java store with a record that
// Java itself wrote wrongly: only that one is lost.
func TestMalformedRecord(t *testing.T) {
	const seg = 64 << 10
	cfg := testConfig(vfs.NewMem())
	s := mustOpen(t, cfg)
	send(t, s, "T", 0, "0")
	bad := send(t, s, "U", 0, "bad")
	send(t, s, "T", 0, "1")
	mustClose(t, s)
	if err := cfg.FS.Remove("/store/" + markName); err != nil {
		t.Fatal(err)
	}
	edit(t, cfg.FS, bad.LogOffset+message.LogOffset(bad.Len)-2, seg, []byte{0x80, 0})
	s = mustOpen(t, cfg)
	defer mustClose(t, s)
	if d := cmp.Diff(numbered(0, 2), bodies(t, s, "T", 0)); d != "" {
		t.Error(d)
	}
}

// TestCrashes kills the power at random moments of random work: what was
// acknowledged as durable is there, in order, and nothing else appears twice.
func TestCrashes(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := testConfig(vfs.NewMem())
	cfg.SyncFlush, cfg.SegmentBytes = true, 8<<10
	acked := map[int32]int{}
	for round := range 15 {
		s := mustOpen(t, cfg)
		for q := range int32(3) {
			got := bodies(t, s, "T", q)
			if len(got) < acked[q] {
				t.Fatalf("round %d: queue %d has %d messages, %d were acknowledged", round, q, len(got), acked[q])
			}
			if d := cmp.Diff(numbered(0, len(got)), got); d != "" {
				t.Fatalf("round %d: queue %d: %s", round, q, d)
			}
			acked[q] = len(got)
		}
		for range rng.IntN(60) {
			q := rng.Int32N(3)
			send(t, s, "T", q, fmt.Sprint(acked[q]))
			acked[q]++
			if rng.IntN(10) == 0 {
				if err := s.sweep(); err != nil {
					t.Fatal(err)
				}
			}
		}
		// One that is not waited for may or may not be there.
		q := rng.Int32N(3)
		w := newWaiter()
		b := one(s, "T", q, fmt.Sprint(acked[q]))
		b.Done = w
		s.Put(b)
		fate := []vfs.Fate{vfs.Dropped, vfs.Kept, vfs.Torn}
		clone := s.fs.(*vfs.Mem).CrashClone(vfs.CrashPolicy{Data: fate[rng.IntN(3)], Entries: fate[rng.IntN(2)]}, rng)
		w.wait()
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		cfg.FS = clone
	}
}

// TestRebuildBelowMark holds that nothing below the dispatch mark is taken for
// a remnant, whatever it says of itself: a rebuild of lost queues from a log
// with a record that enters no queue, stored later than those behind it, must
// not end the log there.
func TestRebuildBelowMark(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, testConfig(fs))
	var items []Item
	for i := range 20 {
		items = append(items, send(t, s, "T", 0, fmt.Sprint("m", i)))
	}
	mustClose(t, s)
	f, err := fs.Open("/store/commitlog/00000000000000000000", vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	rollback := []byte{0, 0, 0, byte(message.SysFlagTransactionRollback)}
	future := binary.BigEndian.AppendUint64(nil, uint64(items[5].StoreMillis+time.Hour.Milliseconds()))
	_, err1 := f.WriteAt(rollback, int64(items[5].LogOffset)+36)
	_, err2 := f.WriteAt(future, int64(items[5].LogOffset)+56)
	if err := errors.Join(err1, err2, f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/store/consumequeue/T/0/00000000000000000000", "/store/consumequeue/T/0", "/store/consumequeue/T"} {
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	s = mustOpen(t, testConfig(fs))
	defer mustClose(t, s)
	if q := s.FindQueue("T", 0); q == nil || q.Max() != 20 {
		t.Fatalf("queue after the rebuild: %+v, want 20 messages", q)
	}
	got := bodies(t, s, "T", 0)
	if len(got) != 19 || got[4] != "m4" || got[5] != "m6" || got[18] != "m19" {
		t.Errorf("messages after the rebuild: %v", got)
	}
}

// TestUnsyncedEntriesAreNotBelieved crashes a store whose first dispatch mark
// hasn't moved yet: of a queue's files, written and not synced, the later ones
// are there and the first is zeros. All is built again from the log.
func TestUnsyncedEntriesAreNotBelieved(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.ConsumeQueueBytes = 20 * 5
	s := mustOpen(t, cfg)
	for i := range 40 {
		send(t, s, "T", 0, fmt.Sprint(i))
	}
	if err := s.queues.Sweep(); err != nil {
		t.Fatal(err)
	}
	cfg.FS = killed(s)
	mustClose(t, s)
	f, err := cfg.FS.Open("/store/consumequeue/T/0/00000000000000000000", vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, cfg.ConsumeQueueBytes), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, cfg)
	defer mustClose(t, s)
	if d := cmp.Diff(numbered(0, 40), bodies(t, s, "T", 0)); d != "" {
		t.Error(d)
	}
}
