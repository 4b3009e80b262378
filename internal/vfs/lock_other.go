//go:build !linux

package vfs

import (
	"os"
	"sync"
)

// held are the lock files this process holds, by absolute path: a classic
// fcntl lock does not keep its own process out.
var held = lockTable{names: map[string]bool{}}

type lockTable struct {
	mu    sync.Mutex
	names map[string]bool
}

func (t *lockTable) take(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names[name] {
		return false
	}
	t.names[name] = true
	return true
}

func (t *lockTable) drop(name string) {
	t.mu.Lock()
	delete(t.names, name)
	t.mu.Unlock()
}

type heldLock struct {
	f    *os.File
	name string
	once sync.Once
}

func (l *heldLock) Close() error {
	err := os.ErrClosed
	l.once.Do(func() {
		err = l.f.Close()
		held.drop(l.name)
	})
	return err
}
