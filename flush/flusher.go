package flush

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// Defaults of Config.
const (
	DefaultInterval      = 500 * time.Millisecond
	DefaultDirtyBytesMax = 64 << 20
	// writebackBytes must be new before ASYNC_FLUSH asks the system to write
	// between syncs: asked more often, the page being filled is written again
	// and again.
	writebackBytes = 4 << 20
	// looks is how often in an interval ASYNC_FLUSH looks at the log. At the
	// default interval and 500 MB/s the dirty bytes pass their bound by 10 MB.
	looks = 25
)

// Log is what a Flusher needs of the log.
type Log interface {
	// Written is the mark up to which every byte was handed to the system. Any
	// goroutine.
	Written() int64
	// FilesIn gives the files that hold [from, to), open until release is
	// called. Called by the flusher's goroutine alone, one at a time.
	FilesIn(from, to int64) (files []vfs.File, release func())
}

// Clock is where a Flusher gets time from: time.NewTimer's in production.
type Clock interface {
	// NewTimer gives a channel that receives once after d, and its stop.
	NewTimer(d time.Duration) (c <-chan time.Time, stop func())
}

type systemClock struct{}

func (systemClock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// Config of a Flusher. Log and Device are required.
type Config struct {
	// Sync is flushDiskType=SYNC_FLUSH.
	Sync bool
	// Interval is the longest a written byte stays unsynced under ASYNC_FLUSH
	// (flushIntervalCommitLog); default 500 ms.
	Interval time.Duration
	// DirtyBytesMax starts a sync early under ASYNC_FLUSH; default 64 MiB.
	DirtyBytesMax int64
	Log           Log
	Device        Device
	// Durable is the durable mark to start from: what recovery has synced.
	Durable int64
	// OnDurable is told of every advance, and of the failed sync that ends all
	// of them, at the mark it failed to pass. On the flusher's goroutine; the
	// next sync waits for its return.
	OnDurable func(off int64, err error)
	// Clock; default the system's.
	Clock Clock
}

// Flusher follows Log.Written with the durable mark.
type Flusher struct {
	cfg     Config
	durable atomic.Int64
	syncs   atomic.Int64
	failed  atomic.Pointer[error]

	// parked is 1 while the goroutine sleeps, so that Kick costs one load
	// while it does not.
	parked atomic.Int32
	wake   chan struct{}
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once
	end    error

	writeback int64 // goroutine's: up to here the system was asked to write
}

// Start starts the goroutine; Close ends it.
func Start(cfg Config) *Flusher {
	if cfg.Log == nil || cfg.Device == nil {
		panic("BUG: flush.Start without a Log or a Device")
	}
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.DirtyBytesMax <= 0 {
		cfg.DirtyBytesMax = DefaultDirtyBytesMax
	}
	if cfg.OnDurable == nil {
		cfg.OnDurable = func(int64, error) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = systemClock{}
	}
	f := &Flusher{cfg: cfg, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}), writeback: cfg.Durable}
	f.durable.Store(cfg.Durable)
	go f.run()
	return f
}

// Kick says that Written has moved: under SYNC_FLUSH that a sync is wanted. Any
// goroutine; does not block, and costs one atomic load while a sync runs.
func (f *Flusher) Kick() {
	if f.parked.Load() == 1 && f.parked.CompareAndSwap(1, 0) {
		f.wake <- struct{}{} // room for one, and only the winner sends
	}
}

// Durable is the mark up to which every byte is durable. Any goroutine.
func (f *Flusher) Durable() int64 { return f.durable.Load() }

// Syncs counts the syncs that succeeded. Any goroutine.
func (f *Flusher) Syncs() int64 { return f.syncs.Load() }

// Err is the error of the sync that failed, or nil. Any goroutine.
func (f *Flusher) Err() error {
	if p := f.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Close syncs what is written and ends the goroutine. It gives the error of
// that sync, or of the one that failed before. The log's writer must have
// ended. Any goroutine; blocks.
func (f *Flusher) Close() error {
	f.once.Do(func() { close(f.stop) })
	<-f.done
	return f.end
}

// run is the goroutine. It is a plain one, and parks as soon as nothing is
// written: for a lone durable append beside a bare pwrite and fdatasync (p50
// 230-280 µs on two cores) that costs 10-30 µs; a locked thread costs the same,
// spinning for 50 µs before parking 50-90 µs, and for 200 µs 110-180 µs, because
// it takes the core that the producer needs.
func (f *Flusher) run() {
	defer close(f.done)
	if f.cfg.Sync {
		f.runSync()
	} else {
		f.runAsync()
	}
	if f.Err() == nil {
		f.syncTo(f.cfg.Log.Written()) // the final one
	}
	f.end = f.Err()
}

func (f *Flusher) stopping() bool {
	select {
	case <-f.stop:
		return true
	default:
		return false
	}
}

func (f *Flusher) runSync() {
	for f.Err() == nil && !f.stopping() {
		if w := f.cfg.Log.Written(); w > f.durable.Load() {
			f.syncTo(w)
			continue
		}
		f.parked.Store(1)
		// A writer that moved Written before it could see parked did not send.
		if f.cfg.Log.Written() > f.durable.Load() && f.parked.CompareAndSwap(1, 0) {
			continue
		}
		select {
		case <-f.wake:
		case <-f.stop:
			return
		}
	}
}

// syncTo makes [durable, to) durable and tells.
func (f *Flusher) syncTo(to int64) {
	from := f.durable.Load()
	if to <= from {
		return
	}
	files, release := f.cfg.Log.FilesIn(from, to)
	err := f.cfg.Device.Sync(files)
	release()
	if err != nil {
		f.fail(from, fmt.Errorf("log bytes [%d, %d) not durable: %w", from, to, err))
		return
	}
	f.syncs.Add(1)
	f.durable.Store(to)
	f.writeback = max(f.writeback, to)
	f.cfg.OnDurable(to, nil)
}

// fail ends all syncs. On its own, so that a sync that succeeds puts no error
// on the heap.
func (f *Flusher) fail(at int64, err error) {
	f.failed.Store(&err)
	f.cfg.OnDurable(at, err)
}

// runAsync looks at the log a few times an interval: writing is asked for each
// time, the sync when the interval is over or too much is dirty.
func (f *Flusher) runAsync() {
	tick := max(f.cfg.Interval/looks, time.Millisecond)
	// An idle log needs no timer: the first Kick after a sync starts the next
	// interval.
	for f.Err() == nil {
		if f.cfg.Log.Written() <= f.durable.Load() {
			f.parked.Store(1)
			if f.cfg.Log.Written() > f.durable.Load() && f.parked.CompareAndSwap(1, 0) {
				continue
			}
			select {
			case <-f.wake:
			case <-f.stop:
				return
			}
		}
		for i := 0; i < looks && f.cfg.Log.Written()-f.durable.Load() < f.cfg.DirtyBytesMax; i++ {
			c, stop := f.cfg.Clock.NewTimer(tick)
			select {
			case <-c:
			case <-f.stop:
				stop()
				return
			}
			f.startWriteback()
		}
		f.syncTo(f.cfg.Log.Written())
	}
}

// startWriteback asks the system to write what is new.
func (f *Flusher) startWriteback() {
	w := f.cfg.Log.Written()
	if w-f.writeback < writebackBytes {
		return
	}
	files, release := f.cfg.Log.FilesIn(f.writeback, w)
	for _, file := range files {
		// Only advice: an error here is the sync's to find.
		_ = file.StartWriteback(0, 0)
	}
	release()
	f.writeback = w
}
