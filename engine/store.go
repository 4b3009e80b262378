// Package engine answers one question: how do records get into the store and
// out of it again, so that none that was acknowledged is ever lost?
//
// It joins the rooms below it: the CommitLog (package commitlog) holds the
// records, the ConsumeQueues (package consumequeue) and the index (package
// engine/index) say where in the log they are, package flush makes the log
// durable. One idea carries it: one log, and marks that only move forward.
//
//	Min ............ Dispatched ... Durable ... Written
//	the oldest byte  visible to     survives    can be
//	                 consumers      a crash     read
//
// Written moves when a group of batches was written, Durable when a sync
// ended, Dispatched when entries were made. Dispatched never passes the visible
// mark: Written under ASYNC_FLUSH, Durable under SYNC_FLUSH. (So it may be
// ahead of Durable under ASYNC_FLUSH.) A batch is done when its end is below
// the mark it waits for and below Dispatched.
//
// Goroutines, all ended by Close:
//
//	callers    of Put hand batches to the appender through a lock-free queue, or
//	           append themselves under the writer's token when nothing waits
//	appender   takes all that waits, gives offsets and store time, writes it as
//	           one group; under ASYNC_FLUSH it dispatches and completes the group
//	flusher    (package flush) syncs; under SYNC_FLUSH it dispatches and completes
//	ticker     every 100 ms: batches that wait too long, the commit rate
//	sweeper    every second: makes entries durable, then moves the dispatch mark
//	cleaner    every 10 s: deletes what is expired, watches the disk
//	scrubber   at lowest priority: reads stored records again and checks them
//
// Files in the store's directory beside those of the rooms: lock, abort and
// checkpoint (Apache's), dispatch.mark (ours, see mark).
package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/commitlog"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine/index"
	"github.com/ringmq/ringmq/flush"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// Configuration keys of Config.MaxBytesInFlight and Config.DirtyBytesMax.
const (
	keyInFlight = "maxBytesInFlight"
	keyDirty    = "dirtyBytesMax"
)

// dirtyHard times DirtyBytesMax is the hard bound of unsynced bytes under
// ASYNC_FLUSH: the flusher only looks every 20 ms, and a disk may stand still.
const dirtyHard = 4

// Store is an open store. All methods may be called from any goroutine.
type Store struct {
	cfg    Config
	fs     vfs.FS
	logger *slog.Logger
	epoch  time.Time // the store's zero of durations

	lock    io.Closer
	log     *commitlog.Log
	queues  *consumequeue.Set
	index   *index.Index // nil with Config.NoIndex
	flusher *flush.Flusher

	puts      putQueue
	queued    atomic.Int64 // batches in puts or taken from it and not appended
	inFlight  atomic.Int64 // bytes given to Put and not done
	doneBytes atomic.Int64 // bytes done so far
	rate      atomic.Int64 // bytes done a second while busy; 0 when not known; the ticker's
	overDirty atomic.Int64 // unsynced bytes while beyond the hard bound, else 0; see noteDirty

	// The writer's, guarded by the log's token.
	storeMillis int64 // of the last record: it never goes back
	stopping    bool

	ring       pendingRing
	dispatchMu sync.Mutex
	// Guarded by dispatchMu.
	last        point // the last record dispatched
	queuesSeen  int64 // queues that have had an entry
	dispatchErr error
	readBack    *commitlog.Scanner
	dispatched  atomic.Int64 // log offset; written under dispatchMu

	failed     atomic.Pointer[failure] // the log is closed for writes
	syncDead   atomic.Bool             // nothing will become durable any more
	wasStopped bool                    // see WasStopped; fixed by Open
	disk       atomic.Pointer[diskState]
	reserve    *reserve
	trend      diskTrend // the cleaner's, once the store is open
	scrub      *scrubber

	markMu sync.Mutex
	marks  *markFile // guarded by markMu
	swept  point     // entries are durable up to here; guarded by markMu
	due    bool      // swept is not in the mark yet; guarded by markMu

	stop      chan struct{}
	running   sync.WaitGroup
	appending sync.WaitGroup
	closeOnce sync.Once
	closed    chan struct{} // Close is through
	closeErr  error

	counters
}

// counters are figures for Stats.
type counters struct {
	appendLast, appendMean, appendMax   atomic.Int64 // ns; written by the token's holder
	groups, groupBytes, directs         atomic.Int64
	refusals, createFails, timeouts     atomic.Int64
	sweeps, sweepFails, segmentsDeleted atomic.Int64
	indexFails                          atomic.Int64
}

// WasStopped says whether the run before this one stopped cleanly, so that the
// log has all that was ever read of it. False after a crash, which under
// ASYNC_FLUSH may have taken what consumers had already read.
func (s *Store) WasStopped() bool { return s.wasStopped }

// failure is why the log is closed for writes.
type failure struct{ err error }

// Marks are the places the log's workers have reached.
type Marks struct{ Min, Written, Durable, Dispatched message.LogOffset }

// Marks reads the marks; each of them may have moved on by the time it returns.
func (s *Store) Marks() Marks {
	return Marks{
		Min:        s.log.Min(),
		Durable:    message.LogOffset(s.flusher.Durable()),
		Dispatched: message.LogOffset(s.dispatched.Load()),
		Written:    message.LogOffset(s.log.Written()),
	}
}

// Queue finds the queue, making it when it is missing; nil for a topic that
// cannot be the name of a directory and for a negative id.
func (s *Store) Queue(topic string, id int32) *consumequeue.Queue {
	return s.queues.Queue(topic, id, true)
}

// FindQueue finds the queue; nil when there is none. It does not allocate.
func (s *Store) FindQueue(topic string, id int32) *consumequeue.Queue {
	return s.queues.Queue(topic, id, false)
}

// Queues gives the ConsumeQueues, for listing them.
func (s *Store) Queues() *consumequeue.Set { return s.queues }

// Err is why the log is closed for writes; nil while it is open.
func (s *Store) Err() error {
	if f := s.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

// DeleteTopic removes the queues of topic; their records stay in the log until
// they expire. Queues found before take no entries any more: find them anew.
// Blocks on the disk.
func (s *Store) DeleteTopic(topic string) error {
	s.markMu.Lock()
	defer s.markMu.Unlock()
	// The mark must not expect queues that a crash in the middle of this finds
	// gone.
	gone := int64(0)
	s.dispatchMu.Lock()
	for _, q := range s.queues.Of(topic) {
		if q.MaxLogOffset() > 0 {
			gone++
		}
	}
	s.queuesSeen -= gone
	s.last.queues = s.queuesSeen
	s.dispatchMu.Unlock()
	s.swept.queues -= gone
	if m := s.marks.last; s.marks.ok && gone > 0 {
		m.queues = max(0, m.queues-gone)
		if err := s.marks.advance(m.point, m.recCRC, m.indexEnd, s.marks.cp); err != nil {
			return err
		}
	}
	return s.queues.DeleteTopic(topic)
}

// fail closes the log for writes, once.
func (s *Store) fail(err error) {
	f := &failure{err: errors.Join(ErrLogClosed, err)}
	if !s.failed.CompareAndSwap(nil, f) {
		return
	}
	s.logger.Error("log closed for writes: a write or sync failed; restart the broker when the disk is well", "dir", s.cfg.Dir, "err", err)
	s.cfg.Events.Closed(f.err)
}

// onDurable is the flusher's word that the log is durable up to off, or that a
// sync failed and nothing more will be.
func (s *Store) onDurable(off int64, err error) {
	if err != nil {
		s.fail(err)
		s.syncDead.Store(true)
		s.dropPending()
		return
	}
	if !s.cfg.SyncFlush {
		s.noteDirty()
		return
	}
	var done batchList
	s.dispatch(message.LogOffset(off), &done)
	s.completeAll(&done)
}

// noteDirty keeps for Admit whether too many bytes are unsynced. Called under
// ASYNC_FLUSH after each move of Written, with the token, and of Durable, by the
// flusher. Who moves one mark after the other side has looked at it looks again,
// so a bound that no longer holds is never left standing; one that has just
// begun to may be missed until the next move.
func (s *Store) noteDirty() {
	for {
		dirty := s.dirty()
		if dirty <= dirtyHard*s.cfg.DirtyBytesMax {
			if s.overDirty.Load() != 0 {
				s.overDirty.Store(0)
			}
			return
		}
		s.overDirty.Store(dirty)
		if s.dirty() >= dirty { // Durable has not moved meanwhile
			return
		}
	}
}

// dirty is how many bytes are written and not synced.
func (s *Store) dirty() int64 {
	durable := s.flusher.Durable() // first: the difference is never negative
	return s.log.Written() - durable
}

// dropPending answers the batches that will never be durable.
func (s *Store) dropPending() {
	var done batchList
	s.ring.takeBatches(-1, &done)
	err := s.Err()
	for b := done.first; b != nil; b = b.next {
		failBatch(b, ServiceNotAvailable, err)
	}
	s.completeAll(&done)
}

// Close takes no more puts, completes those under way, makes everything
// durable, and leaves a store that Apache's broker opens as cleanly stopped. It
// waits for all of the store's goroutines. When ctx ends first its error is
// returned and the rest goes on in the background. After a failed log the
// store is left as unclean.
func (s *Store) Close(ctx context.Context) error {
	s.closeOnce.Do(func() {
		go func() {
			s.closeErr = s.shutDown()
			close(s.closed)
		}()
	})
	select {
	case <-s.closed:
		return s.closeErr
	case <-ctx.Done():
		select {
		case <-s.closed:
			return s.closeErr
		default:
			return ctx.Err()
		}
	}
}

func (s *Store) shutDown() error {
	s.log.Lock()
	s.stopping = true
	s.log.Unlock()
	close(s.stop)
	s.appending.Wait()
	// The final sync: what was appended becomes durable, visible, and done.
	err := s.flusher.Close()
	s.dropPending()
	s.running.Wait()
	clean := s.failed.Load() == nil && err == nil
	if clean {
		if err = s.withReserve(s.finalMark); err != nil {
			clean = false
		}
	}
	err = errors.Join(err, s.closeRooms(clean))
	if clean && err == nil {
		err = s.removeAbort()
	}
	return errors.Join(err, s.lock.Close())
}

// closeRooms closes the rooms below, what is open of them.
func (s *Store) closeRooms(clean bool) error {
	var errs []error
	if s.queues != nil {
		errs = append(errs, s.queues.Close())
	}
	if s.index != nil {
		errs = append(errs, s.index.Close())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close(clean))
	}
	if s.marks != nil {
		errs = append(errs, s.marks.close())
	}
	errs = append(errs, s.cfg.Device.Close())
	return errors.Join(errs...)
}
