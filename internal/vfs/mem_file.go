package vfs

import (
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const pageBytes = 4096

type memPage [pageBytes]byte

var zeroPage memPage

// memNode is the content of one file. A page is looked up in dirty first, then
// in synced; where neither has it, it is zero.
type memNode struct {
	mu         sync.RWMutex
	size       int64
	syncedSize int64
	// synced are the pages a crash is sure to leave. They are never changed in
	// place, so crash clones share them.
	synced map[int64]*memPage
	// dirty are the pages written since the last sync; nil means all zero.
	dirty   map[int64]*memPage
	modTime time.Time
}

func newMemNode(now time.Time) *memNode {
	return &memNode{synced: map[int64]*memPage{}, dirty: map[int64]*memPage{}, modTime: now}
}

// page is for reading; mu is held.
func (n *memNode) page(i int64) *memPage {
	p, ok := n.dirty[i]
	if !ok {
		p = n.synced[i]
	}
	if p == nil {
		return &zeroPage
	}
	return p
}

// pageForWrite is a private copy of page i; mu is held.
func (n *memNode) pageForWrite(i int64) *memPage {
	if p := n.dirty[i]; p != nil {
		return p
	}
	p := new(memPage)
	*p = *n.page(i)
	n.dirty[i] = p
	return p
}

// zeroWhole makes page i zero; mu is held.
func (n *memNode) zeroWhole(i int64) {
	if n.synced[i] != nil {
		n.dirty[i] = nil
	} else {
		delete(n.dirty, i)
	}
}

func (n *memNode) readAt(p []byte, off int64) (int, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if off >= n.size {
		return 0, io.EOF
	}
	want := len(p)
	p = p[:min(int64(want), n.size-off)]
	done := 0
	for done < len(p) {
		i, at := off/pageBytes, off%pageBytes
		c := copy(p[done:], n.page(i)[at:])
		done += c
		off += int64(c)
	}
	if done < want {
		return done, io.EOF
	}
	return done, nil
}

// writeAt copies p in; mu is held.
func (n *memNode) writeAt(p []byte, off int64) {
	for len(p) > 0 {
		i, at := off/pageBytes, off%pageBytes
		var c int
		if at == 0 && len(p) >= pageBytes && [pageBytes]byte(p) == zeroPage {
			n.zeroWhole(i)
			c = pageBytes
		} else {
			c = copy(n.pageForWrite(i)[at:], p)
		}
		p = p[c:]
		off += int64(c)
	}
	n.size = max(n.size, off)
}

// zeroRange makes [off, end) zero without changing the size; mu is held.
func (n *memNode) zeroRange(off, end int64) {
	for off < end {
		i, at := off/pageBytes, off%pageBytes
		c := min(pageBytes-at, end-off)
		if c == pageBytes {
			n.zeroWhole(i)
		} else if n.page(i) != &zeroPage {
			clear(n.pageForWrite(i)[at : at+c])
		}
		off += c
	}
}

// truncate sets the size; mu is held.
func (n *memNode) truncate(size int64) {
	if size < n.size {
		last := (size + pageBytes - 1) / pageBytes // first page wholly behind
		n.zeroRange(size, min(n.size, last*pageBytes))
		for i := range n.dirty {
			if i >= last {
				n.zeroWhole(i)
			}
		}
		for i := range n.synced {
			if i >= last {
				n.dirty[i] = nil
			}
		}
	}
	n.size = size
}

func (n *memNode) sync() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, p := range n.dirty {
		if p == nil || *p == zeroPage {
			delete(n.synced, i)
		} else {
			n.synced[i] = p
		}
	}
	clear(n.dirty)
	n.syncedSize = n.size
}

// used is the room the pages take.
func (n *memNode) used() int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	pages := len(n.synced)
	for i, p := range n.dirty {
		_, both := n.synced[i]
		switch {
		case p != nil && !both:
			pages++
		case p == nil && both:
			pages--
		}
	}
	return int64(pages) * pageBytes
}

// memFile is one opening of a node.
type memFile struct {
	m      *Mem
	n      *memNode
	name   string
	write  bool
	closed atomic.Bool
}

func (f *memFile) check(op string, write bool) error {
	if f.closed.Load() {
		return pathErr(op, f.name, fs.ErrClosed)
	}
	if write && !f.write {
		return pathErr(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", f.name, syscall.EINVAL)
	}
	return f.n.readAt(p, off)
}

// change runs fn with the tree's and the node's lock held.
func (f *memFile) change(op string, off int64, fn func()) error {
	if err := f.check(op, true); err != nil {
		return err
	}
	if off < 0 {
		return pathErr(op, f.name, syscall.EINVAL)
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	fn()
	f.n.modTime = f.m.now()
	return nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.change("write", off, func() { f.n.writeAt(p, off) }); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memFile) WriteVAt(bufs [][]byte, off int64) error {
	return f.change("write", off, func() {
		for _, b := range bufs {
			f.n.writeAt(b, off)
			off += int64(len(b))
		}
	})
}

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathErr("close", f.name, fs.ErrClosed)
	}
	return nil
}

func (f *memFile) SyncData() error { return f.Sync() }

func (f *memFile) Sync() error {
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	f.n.sync()
	return nil
}

func (f *memFile) Truncate(size int64) error {
	return f.change("truncate", size, func() { f.n.truncate(size) })
}

func (f *memFile) Allocate(off, n int64) error { return f.change("allocate", off, func() {}) }

func (f *memFile) ZeroRange(off, n int64) error {
	return f.change("zero", off, func() { f.n.zeroRange(off, min(off+n, f.n.size)) })
}

func (f *memFile) Size() (int64, error) {
	if err := f.check("stat", false); err != nil {
		return 0, err
	}
	f.n.mu.RLock()
	defer f.n.mu.RUnlock()
	return f.n.size, nil
}

func (f *memFile) Name() string                    { return f.name }
func (f *memFile) Fd() (int, bool)                 { return -1, false }
func (f *memFile) Map() []byte                     { return nil }
func (f *memFile) StartWriteback(_, _ int64) error { return f.check("writeback", true) }

// Forget implements File.
func (f *memFile) Forget(_, _ int64) error { return nil }

// Resident is always true: nothing here waits for a disk. Fault can say otherwise.
func (f *memFile) Resident(_, _ int64) (resident, known bool) { return true, true }

// NextHole counts zero pages as never written.
func (f *memFile) NextHole(off int64) (int64, error) {
	if err := f.check("seek", false); err != nil {
		return 0, err
	}
	f.n.mu.RLock()
	defer f.n.mu.RUnlock()
	for off < f.n.size && f.n.page(off/pageBytes) != &zeroPage {
		off = (off/pageBytes + 1) * pageBytes
	}
	return min(off, f.n.size), nil
}
