package consumequeue

import (
	"container/list"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/ringmq/ringmq/internal/vfs"
)

// files keeps descriptors of queue files open, the least recently used ones
// going first when there are more than max. Files in use do not count against
// the bound, so it is a soft one: at most max plus those in use.
type files struct {
	fs  vfs.FS
	max int

	mu   sync.Mutex
	open map[fileKey]*handle
	lru  list.List // of *handle not in use, the newest in front
}

type fileKey struct {
	q    *Queue
	base int64 // offset of the file's first unit
}

// A handle is an open file, counted. Between acquire and release it is the
// caller's to read and write.
type handle struct {
	vfs.File
	key  fileKey
	refs int           // guarded by files.mu
	dead bool          // close at the last release; guarded by files.mu
	idle *list.Element // in files.lru while refs is 0; guarded by files.mu
}

func newFiles(fs vfs.FS, max int) *files {
	return &files{fs: fs, max: max, open: map[fileKey]*handle{}}
}

// peek is acquire for a file that is open already; nil otherwise.
func (c *files) peek(k fileKey) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.open[k]
	if h != nil {
		c.use(h)
	}
	return h
}

// use holds mu.
func (c *files) use(h *handle) {
	h.refs++
	if h.idle != nil {
		c.lru.Remove(h.idle)
		h.idle = nil
	}
}

// acquire opens the file of k, for reading and writing; flag may add
// vfs.Create. It may wait for a disk.
func (c *files) acquire(k fileKey, flag vfs.Flag) (*handle, error) {
	if h := c.peek(k); h != nil {
		return h, nil
	}
	f, err := c.fs.Open(k.name(), vfs.ReadWrite|flag)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if h := c.open[k]; h != nil { // another goroutine was faster
		c.use(h)
		c.mu.Unlock()
		f.Close() // nothing was written through it
		return h, nil
	}
	h := &handle{File: f, key: k, refs: 1}
	c.open[k] = h
	old := c.evict()
	c.mu.Unlock()
	return h, closeHandles(old)
}

// release gives h back. A failed close of a file that is no longer needed has
// nothing to tell: what was written was synced, or is still dirty and synced
// through the next descriptor.
func (c *files) release(h *handle) {
	c.mu.Lock()
	h.refs--
	var old []*handle
	switch {
	case h.refs > 0:
	case h.dead:
		old = append(old, h)
	default:
		h.idle = c.lru.PushFront(h)
		old = c.evict()
	}
	c.mu.Unlock()
	_ = closeHandles(old)
}

// evict takes out what is too much; the caller closes it. Holds mu.
func (c *files) evict() []*handle {
	var old []*handle
	for len(c.open) > c.max && c.lru.Len() > 0 {
		h := c.lru.Remove(c.lru.Back()).(*handle)
		h.idle = nil
		delete(c.open, h.key)
		old = append(old, h)
	}
	return old
}

// drop closes the files of q from the one at from on, those in use at their
// release.
func (c *files) drop(q *Queue, from, to int64) {
	c.mu.Lock()
	var old []*handle
	for k, h := range c.open {
		if k.q != q || k.base < from || k.base >= to {
			continue
		}
		delete(c.open, k)
		if h.refs > 0 {
			h.dead = true
			continue
		}
		c.lru.Remove(h.idle)
		h.idle = nil
		old = append(old, h)
	}
	c.mu.Unlock()
	_ = closeHandles(old)
}

func (c *files) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

func (c *files) closeAll() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*handle
	for k, h := range c.open {
		delete(c.open, k)
		all = append(all, h)
	}
	c.lru.Init()
	return closeHandles(all)
}

func closeHandles(hs []*handle) (err error) {
	for _, h := range hs {
		if cerr := h.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

func (k fileKey) name() string {
	return filepath.Join(k.q.dir(), fmt.Sprintf("%020d", k.base*k.q.kind.unitBytes))
}
