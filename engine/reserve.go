package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/ringmq/ringmq/internal/vfs"
)

// reserveName is a file of our own that only takes room. When the disk is full
// it is given up, so that what must be written to stay consistent (entries, the
// dispatch mark, tables, what a deletion leaves) still can be; sends are refused
// long before. It is made again when there is room.
const reserveName = "ringmq.reserve"

// refillFactor times the reserve must be free before it is made again.
const refillFactor = 8

type reserve struct {
	fs    vfs.FS
	name  string
	bytes int64

	mu   sync.Mutex
	have bool // guarded by mu
}

func newReserve(fsys vfs.FS, dir string, bytes int64) *reserve {
	r := &reserve{fs: fsys, name: filepath.Join(dir, reserveName), bytes: bytes}
	info, err := fsys.Stat(r.name)
	r.have = err == nil && info.Size > 0
	return r
}

// spend gives the room back to the disk, and says whether there was any.
func (r *reserve) spend() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.have {
		return false
	}
	r.have = false
	return r.fs.Remove(r.name) == nil
}

// withReserve does what must be written to stay consistent, with the room of the
// reserve where the disk has none.
func (s *Store) withReserve(do func() error) error {
	err := do()
	if errors.Is(err, syscall.ENOSPC) && s.reserve.spend() {
		s.logger.Warn("disk full: what was kept in reserve is used", "dir", s.cfg.Dir)
		err = do()
	}
	return err
}

// look keeps the reserve in step with what is free on its disk: given up when
// nearly nothing is, made again when there is plenty.
func (r *reserve) look(free int64) error {
	r.mu.Lock()
	have := r.have
	r.mu.Unlock()
	switch {
	case have && free < r.bytes/4:
		r.spend()
	case !have && r.bytes > 0 && free > refillFactor*r.bytes:
		return r.fill()
	}
	return nil
}

// fill takes the room.
func (r *reserve) fill() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := r.fs.Open(r.name, vfs.ReadWrite|vfs.Create)
	if err != nil {
		return fmt.Errorf("make %s: %w", r.name, err)
	}
	err = f.Truncate(r.bytes)
	if err == nil {
		if err = f.Allocate(0, r.bytes); errors.Is(err, vfs.ErrUnsupported) {
			_, err = f.WriteAt(make([]byte, r.bytes), 0)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("make %s: %w", r.name, err), r.fs.Remove(r.name))
	}
	r.have = true
	return nil
}
