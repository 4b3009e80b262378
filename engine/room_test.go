package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	stdsync "sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringmq/ringmq/commitlog"
	"github.com/ringmq/ringmq/internal/vfs"
)

// A tightFS is a disk of so many blocks for the files of the CommitLog: what is
// allocated or written to the first time takes blocks, what is removed or zeroed
// gives them back.
type tightFS struct {
	vfs.FS
	mu     stdsync.Mutex
	free   int                           // blocks
	used   map[string]map[int64]struct{} // blocks by the file's last element
	sparse int                           // writes that took blocks, none allocated for them
}

const tightBlock = 512

func newTight(blocks int) *tightFS {
	return &tightFS{FS: vfs.NewMem(), free: blocks, used: map[string]map[int64]struct{}{}}
}

func (t *tightFS) give(blocks int) {
	t.mu.Lock()
	t.free += blocks
	t.mu.Unlock()
}

func (t *tightFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := t.FS.Open(name, flag)
	if err != nil || !strings.Contains(name, "commitlog/") {
		return f, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := filepath.Base(name)
	if t.used[key] == nil {
		t.used[key] = map[int64]struct{}{}
	}
	return &tightFile{File: f, t: t, used: t.used[key]}, nil
}

func (t *tightFS) Remove(name string) error {
	err := t.FS.Remove(name)
	if key := filepath.Base(name); err == nil && strings.Contains(name, "commitlog/") {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.free += len(t.used[key])
		delete(t.used, key)
	}
	return err
}

type tightFile struct {
	vfs.File
	t    *tightFS
	used map[int64]struct{}
}

// take takes the blocks of [off, off+n), all or none, and says how many.
func (f *tightFile) take(op string, off, n int64) (int, error) {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	var fresh []int64
	for i := off / tightBlock; i*tightBlock < off+n; i++ {
		if _, ok := f.used[i]; !ok {
			fresh = append(fresh, i)
		}
	}
	if len(fresh) > f.t.free {
		return 0, fmt.Errorf("%s %s: %w", op, f.Name(), syscall.ENOSPC)
	}
	for _, i := range fresh {
		f.used[i] = struct{}{}
	}
	f.t.free -= len(fresh)
	return len(fresh), nil
}

func (f *tightFile) Allocate(off, n int64) error {
	if _, err := f.take("allocate", off, n); err != nil {
		return err
	}
	return f.File.Allocate(off, n)
}

func (f *tightFile) WriteAt(p []byte, off int64) (int, error) {
	if _, err := f.take("write", off, int64(len(p))); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *tightFile) WriteVAt(bufs [][]byte, off int64) error { // the log's way
	n := int64(0)
	for _, b := range bufs {
		n += int64(len(b))
	}
	took, err := f.take("write", off, n)
	if err != nil {
		return err
	}
	if took > 0 {
		f.t.mu.Lock()
		f.t.sparse++
		f.t.mu.Unlock()
	}
	return f.File.WriteVAt(bufs, off)
}

func (f *tightFile) ZeroRange(off, n int64) error {
	f.t.mu.Lock()
	for i := range f.used {
		if i*tightBlock >= off && (i+1)*tightBlock <= off+n {
			delete(f.used, i)
			f.t.free++
		}
	}
	f.t.mu.Unlock()
	return f.File.ZeroRange(off, n)
}

// TestDiskFull fills a disk, and again after it was given some more room.
func TestDiskFull(t *testing.T) {
	for _, sync := range []bool{false, true} {
		for _, segment := range []int64{4096, 64 << 10} {
			t.Run(fmt.Sprintf("sync=%v/%d", sync, segment), func(t *testing.T) {
				tight := newTight(140)
				cfg := testConfig(tight)
				cfg.SyncFlush, cfg.SegmentBytes = sync, segment
				diskFull(t, cfg, func() { tight.give(140) })
				if tight.sparse > 0 {
					t.Errorf("%d writes to where no room was allocated", tight.sparse)
				}
			})
		}
	}
}

// diskFull puts until the disk of cfg is full, three times, with more room in
// between: what finds no room is refused with the cause and the remedy, what is
// smaller is taken while there is some, reads go on, the log stays open, and
// sends succeed again by themselves. What was acknowledged is there after a
// reopening on the full disk.
func diskFull(t *testing.T, cfg Config, more func()) {
	t.Helper()
	s := mustOpen(t, cfg)
	defer func() { _ = s.Close(context.Background()) }() // where a check failed
	var acked []string
	for round := range 3 {
		if round > 0 {
			more()
			acked = append(acked, mustGoOn(t, s))
		}
		got, refused := fillUp(t, s)
		if acked = append(acked, got...); len(got) < 5 || refused < 20 {
			t.Fatalf("round %d: %d taken, %d refused", round, len(got), refused)
		}
		if !slices.Equal(bodies(t, s, "T", 0), acked) {
			t.Fatalf("round %d: the queue holds other messages than were acknowledged", round)
		}
		if ok, why := s.Writable(); !ok || s.Err() != nil {
			t.Fatalf("round %d: the log was closed: %s, %v", round, why, s.Err())
		}
	}
	if n := s.Stats().CreateFails; n < 60 {
		t.Errorf("%d items counted as refused", n)
	}
	mustClose(t, s)
	s = mustOpen(t, cfg)
	if !slices.Equal(bodies(t, s, "T", 0), acked) {
		t.Error("reopened on a full disk, the queue holds other messages than were acknowledged")
	}
	more()
	mustGoOn(t, s)
	mustClose(t, s)
}

// mustGoOn puts until one is taken.
func mustGoOn(t *testing.T, s *Store) string {
	t.Helper()
	for range 5000 {
		b := newWaiter().put(s, one(s, "T", 0, "room again"))
		if b.Items[0].Status == OK {
			return "room again"
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("there is room again, and sends are still refused")
	return ""
}

// fillUp puts records of many sizes, alone and several in a batch, until 20
// batches on end have found no room for anything.
func fillUp(t *testing.T, s *Store) (acked []string, refused int) {
	t.Helper()
	for i, idle := 0, 0; idle < 20; i++ {
		b := &Batch{Wait: true, MayDirect: i%2 == 0}
		sizes := []int{2500, 100 + i*37%900, 10}[:1+i%3]
		var sent []string
		for j, size := range sizes {
			sent = append(sent, fmt.Sprintf("%d.%d %s", i, j, strings.Repeat("x", size)))
			addRec(s, b, "T", 0, sent[j])
		}
		newWaiter().put(s, b)
		idle++
		for j := range b.Items {
			switch st := b.Items[j].Status; st {
			case OK:
				acked, idle = append(acked, sent[j]), 0
			case ServiceNotAvailable, CreateFailed:
				refused++
				want := commitlog.ErrNoSpace
				if st == CreateFailed {
					want = commitlog.ErrNoSegment
				}
				text := b.Err.Error()
				if !errors.Is(b.Err, syscall.ENOSPC) || j == 0 && !errors.Is(b.Err, want) || errors.Is(b.Err, ErrLogClosed) ||
					!strings.Contains(text, s.cfg.CommitLogDir) || !strings.Contains(text, "fileReservedTime") {
					t.Fatalf("refused with %v: %s", st, text)
				}
			default:
				t.Fatalf("%v, %v", st, b.Err)
			}
		}
	}
	return acked, refused
}

// TestDiskFullConcurrent fills a disk from several goroutines while room comes
// back in small pieces; a crash loses nothing that was acknowledged.
func TestDiskFullConcurrent(t *testing.T) {
	for _, sync := range []bool{false, true} {
		tight := newTight(40)
		cfg := testConfig(tight)
		cfg.SyncFlush, cfg.SegmentBytes = sync, 8<<10
		s := mustOpen(t, cfg)
		acked := make([][]string, 4)
		var senders stdsync.WaitGroup
		for g := range acked {
			senders.Go(func() {
				for i := range 80 {
					b := one(s, "T", int32(g), fmt.Sprintf("%03d%0300d", i, 0))
					b.MayDirect = g%2 == 0
					if newWaiter().put(s, b); b.Items[0].Status == OK {
						acked[g] = append(acked[g], fmt.Sprintf("%03d%0300d", i, 0))
					} else if b.Err == nil || !errors.Is(b.Err, syscall.ENOSPC) {
						t.Errorf("%v, %v", b.Items[0].Status, b.Err)
					}
					if i%8 == 0 {
						tight.give(2)
					}
				}
			})
		}
		senders.Wait()
		if err := s.Err(); err != nil || tight.sparse > 0 {
			t.Errorf("%v, %d writes to where no room was allocated", err, tight.sparse)
		}
		policy := vfs.CrashPolicy{}
		if !sync {
			policy = vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}
		}
		clone := tight.FS.(*vfs.Mem).CrashClone(policy, nil)
		_ = s.Close(context.Background())
		cfg.FS = clone
		s = mustOpen(t, cfg)
		total := 0
		for g, want := range acked {
			total += len(want)
			if got := bodies(t, s, "T", int32(g)); !slices.Equal(got, want) {
				t.Errorf("sync=%v: queue %d has %d messages, acknowledged were %d", sync, g, len(got), len(want))
			}
		}
		if total == 0 || total == 4*80 {
			t.Errorf("sync=%v: %d of 320 were taken", sync, total)
		}
		mustClose(t, s)
	}
}

// noAllocate is a file system whose files cannot be allocated.
type noAllocate struct{ vfs.FS }

func (n noAllocate) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := n.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return noAllocateFile{f}, nil
}

type noAllocateFile struct{ vfs.File }

func (noAllocateFile) Allocate(_, _ int64) error { return vfs.ErrUnsupported }

// TestNoAllocate runs where files cannot be allocated: sparse, and never asked
// again in a segment.
func TestNoAllocate(t *testing.T) {
	cfg := testConfig(noAllocate{vfs.NewMem()})
	cfg.SegmentBytes = 4096
	s := mustOpen(t, cfg)
	want := numbered(0, 100)
	for _, body := range want {
		send(t, s, "T", 0, body)
	}
	if got := bodies(t, s, "T", 0); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	mustClose(t, s)
}
