package meta

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// saveRetryInterval paces attempts after a table could not be saved.
const saveRetryInterval = 5 * time.Second

// A saver is the goroutine that writes rarely changed tables whole. Changes
// made while it writes are in the next write; nobody waits for the disk unless
// it asks to be told.
type saver struct {
	fs     vfs.FS
	log    *slog.Logger
	tables []*savedTable // fixed before run

	mu      sync.Mutex
	waiters []func(error) // told after a save that began after they came
	closed  bool

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
	err  error // of the last round; the saver's, then close's
}

// A savedTable is one file and how to write it.
type savedTable struct {
	name    string
	version func() DataVersion
	encode  func() ([]byte, DataVersion) // content and the version it is
	saved   DataVersion                  // what the file holds; the saver's
}

func newSaver(fs vfs.FS, log *slog.Logger) *saver {
	return &saver{fs: fs, log: log, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

// kick says that a table has changed. It never blocks.
func (s *saver) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// after calls done once every change made before is durable, or could not be
// saved.
func (s *saver) after(done func(error)) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		done(ErrClosed)
		return
	}
	s.waiters = append(s.waiters, done)
	s.mu.Unlock()
	s.kick()
}

// wait blocks until every change made before is durable, or could not be saved.
func (s *saver) wait() error {
	result := make(chan error, 1)
	s.after(func(err error) { result <- err })
	return <-result
}

func (s *saver) run() {
	defer close(s.done)
	var retry <-chan time.Time
	for {
		select {
		case <-s.wake:
		case <-retry:
		case <-s.stop:
			s.mu.Lock()
			s.closed = true
			s.mu.Unlock()
			s.round()
			return
		}
		retry = nil
		if s.round(); s.err != nil {
			retry = time.After(saveRetryInterval)
		}
	}
}

// round saves what has changed since it was saved, and tells those who wait.
func (s *saver) round() {
	s.mu.Lock()
	waiters := s.waiters
	s.waiters = nil
	s.mu.Unlock()
	failing := s.err != nil
	s.err = nil
	for _, t := range s.tables {
		s.err = errors.Join(s.err, s.save(t))
	}
	switch {
	case s.err != nil && !failing:
		s.log.Error("tables not saved, trying again", "error", s.err)
	case s.err == nil && failing:
		s.log.Info("tables saved again")
	}
	for _, w := range waiters {
		w(s.err)
	}
}

func (s *saver) save(t *savedTable) error {
	if t.version() == t.saved {
		return nil
	}
	content, version := t.encode()
	if err := saveWithBackup(s.fs, t.name, content); err != nil {
		return fmt.Errorf("save %s: %w", t.name, err)
	}
	t.saved = version
	return nil
}

// close stops the saver after a last round, whose error it gives.
func (s *saver) close() error {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	<-s.done
	return s.err
}
