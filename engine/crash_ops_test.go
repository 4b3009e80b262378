package engine

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ringmq/ringmq/flush"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// A crash doesn't wait for an acknowledgement: here the tree is taken before
// every k-th operation that changes a file or a name, with what was not synced
// kept, dropped or torn, under both ways of flushing. What was acknowledged
// (SYNC_FLUSH), or was durable by the flusher's word (ASYNC_FLUSH), must be in
// it.

// momentsMax bounds the trees of one life.
const momentsMax = 60

// opsFS tells of each changing operation, before it.
type opsFS struct {
	vfs.FS
	before func()
}

func (w opsFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	if flag&vfs.Create != 0 {
		w.before()
	}
	f, err := w.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return opsFile{f, w.before}, nil
}

func (w opsFS) Remove(name string) error     { w.before(); return w.FS.Remove(name) }
func (w opsFS) Rename(from, to string) error { w.before(); return w.FS.Rename(from, to) }
func (w opsFS) SyncDir(dir string) error     { w.before(); return w.FS.SyncDir(dir) }
func (w opsFS) MkdirAll(dir string) error    { w.before(); return w.FS.MkdirAll(dir) }
func (w opsFS) WriteFileAtomic(name string, b []byte) error {
	w.before()
	return w.FS.WriteFileAtomic(name, b)
}

type opsFile struct {
	vfs.File
	before func()
}

func (f opsFile) WriteAt(b []byte, off int64) (int, error) { f.before(); return f.File.WriteAt(b, off) }
func (f opsFile) WriteVAt(bufs [][]byte, off int64) error {
	f.before()
	return f.File.WriteVAt(bufs, off)
}
func (f opsFile) SyncData() error              { f.before(); return f.File.SyncData() }
func (f opsFile) Sync() error                  { f.before(); return f.File.Sync() }
func (f opsFile) Truncate(size int64) error    { f.before(); return f.File.Truncate(size) }
func (f opsFile) ZeroRange(off, n int64) error { f.before(); return f.File.ZeroRange(off, n) }

// eachOp makes the wrap of a life that takes a moment before every k-th
// operation. opened is the store once it is open; operations of its opening are
// crashed at too.
func (c *crasher) eachOp(k int64, opened *atomic.Pointer[Store]) func(vfs.FS) vfs.FS {
	var ops atomic.Int64
	return func(fs vfs.FS) vfs.FS {
		return opsFS{fs, func() {
			if ops.Add(1)%k != 0 {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.moments) >= momentsMax {
				return
			}
			must := c.mustHave(opened.Load())
			c.take(vfs.CrashPolicy{Data: vfs.Fate(c.rng.IntN(3)), Entries: vfs.Fate(c.rng.IntN(3))})
			c.moments[len(c.moments)-1].must = must
		}}
	}
}

// mustHave is what no crash may take any more; mu is held.
func (c *crasher) mustHave(s *Store) []ack {
	if c.cfg.SyncFlush {
		return c.acks[:len(c.acks):len(c.acks)]
	}
	must := c.acks[:c.before:c.before] // found after the crash before
	if s == nil {
		return must
	}
	durable := message.LogOffset(s.flusher.Durable())
	for _, a := range c.acks[c.before:] {
		if a.end <= durable {
			must = append(must, a)
		}
	}
	return must
}

func TestCrashAtEachOperation(t *testing.T) {
	for _, sync := range []bool{true, false} {
		for _, seed := range crashSeeds(t) {
			t.Run(fmt.Sprintf("sync=%v/%d", sync, seed), func(t *testing.T) {
				t.Parallel()
				cfg := crashConfig()
				cfg.SyncFlush = sync
				c := newCrasher(seed, cfg)
				for life := range 4 {
					var opened atomic.Pointer[Store]
					k := 1 + c.rng.Int64N(7)
					c.before = len(c.acks)
					err := c.life(c.eachOp(k, &opened), flush.NewSyscall(), func(s *Store) {
						opened.Store(s)
						c.random(s)
					})
					if err != nil {
						t.Fatalf("seed %d, life %d, every %d operations: %v", seed, life, k, err)
					}
				}
			})
		}
	}
}
