package vfs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// mapping is a file's Map, made at the first call.
type mapping struct {
	bytes atomic.Pointer[[]byte] // nil: not tried yet; empty: there is none
	mu    sync.Mutex             // held to make and to end it
}

func (m *mapping) of(o *osFile) []byte {
	if b := m.bytes.Load(); b != nil {
		return *b
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.bytes.Load(); b != nil {
		return *b
	}
	var b []byte
	if size, err := o.Size(); err == nil && size > 0 && int64(int(size)) == size {
		if b, err = unix.Mmap(o.fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			b = nil
		}
	}
	m.bytes.Store(&b)
	return b
}

func (m *mapping) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bytes.Swap(new([]byte))
	if b == nil || len(*b) == 0 {
		return nil
	}
	return unix.Munmap(*b)
}
