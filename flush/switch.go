package flush

import (
	"sync"

	"github.com/ringmq/ringmq/internal/vfs"
)

// Switch is a Device that stands for another one, which can be changed while
// the log runs. Its locks are free but for that moment: the writer has one, the
// flusher the other.
type Switch struct {
	writeMu, syncMu sync.Mutex
	dev             Device // changed with both held
}

// NewSwitch starts with dev, which it owns from then on.
func NewSwitch(dev Device) *Switch { return &Switch{dev: dev} }

// Use changes to dev when the calls that run have returned, and closes the
// device before it. Any goroutine; blocks for a sync.
func (s *Switch) Use(dev Device) error {
	s.writeMu.Lock()
	s.syncMu.Lock()
	old := s.dev
	s.dev = dev
	s.syncMu.Unlock()
	s.writeMu.Unlock()
	return old.Close()
}

// WriteV implements Device.
func (s *Switch) WriteV(f vfs.File, bufs [][]byte, off int64) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	return s.dev.WriteV(f, bufs, off)
}

// Sync implements Device.
func (s *Switch) Sync(files []vfs.File) error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	return s.dev.Sync(files)
}

// Name implements Device: the name of the one in use.
func (s *Switch) Name() string {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	return s.dev.Name()
}

// Close implements Device.
func (s *Switch) Close() error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	return s.dev.Close()
}
