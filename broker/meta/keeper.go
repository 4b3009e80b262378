package meta

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// ErrClosed is what a commit is told that came after Close.
var ErrClosed = errors.New("tables are closed")

// gatherInterval is how long commits nobody waits for are gathered into one
// write. A killed process loses at most these; each client commits again.
const gatherInterval = 20 * time.Millisecond

// foldRetryInterval paces attempts after a fold failed: the disk is full, say.
const foldRetryInterval = 5 * time.Second

// A keeper is the one goroutine that writes the progress journal, syncs it, and
// folds it into consumerOffset.json, delayOffset.json and timercheck. Only it
// touches the fields below the line after start.
type keeper struct {
	cfg         *Config
	log         *slog.Logger
	offsets     *Offsets
	delay       *Delay
	locks       *Locks
	subscribers *Subscribers
	timer       *Timer

	dirty  chan struct{} // something changed, nobody waits
	urgent chan struct{} // somebody waits for the write
	folds  chan chan error
	stop   chan struct{}
	done   chan struct{}
	closed atomic.Bool
	err    error // of the last fold, for Close

	// ----
	file     vfs.File // nil when there is no journal that may be written to
	size     int64
	unsynced bool
	unfolded bool        // something is only in the journal
	failing  bool        // the last fold failed
	version  DataVersion // of consumerOffset.json
	files    map[byte]*savedFile

	delayVersion DataVersion // of delayOffset.json
	timerCheck   []byte      // timercheck as it was found, nil for none
	timerChecks  int64       // its counter
	scratch      []byte
}

// A savedFile is what the keeper knows of one JSON file it folds into.
type savedFile struct {
	name       string
	main, prev fingerprint // of the file and of its .bak
	next       fingerprint // of what is being written
}

func newKeeper(cfg *Config) *keeper {
	k := &keeper{
		cfg:    cfg,
		log:    cfg.Logger,
		dirty:  make(chan struct{}, 1),
		urgent: make(chan struct{}, 1),
		folds:  make(chan chan error),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		files: map[byte]*savedFile{
			fileOffsets: {name: filepath.Join(cfg.Dir, "consumerOffset.json")},
			fileDelay:   {name: filepath.Join(cfg.Dir, "delayOffset.json")},
			fileTimer:   {name: filepath.Join(cfg.Dir, "timercheck")},
		},
	}
	k.offsets = newOffsets(k)
	k.locks, k.subscribers = newNotes(k, appendLock), newNotes(k, appendSubscriber)
	k.delay = &Delay{keeper: k, p: DelayProgress{ScanFrom: -1}}
	k.timer = &Timer{keeper: k, p: TimerProgress{ScanFrom: -1}}
	return k
}

// kickDirty wakes the keeper for a change nobody waits for. It never blocks.
func (k *keeper) kickDirty() {
	select {
	case k.dirty <- struct{}{}:
	default:
	}
}

// kickUrgent wakes the keeper for a change somebody waits for; false when it
// has stopped.
func (k *keeper) kickUrgent() bool {
	select {
	case k.urgent <- struct{}{}:
	default:
	}
	return !k.closed.Load()
}

// run is the keeper's goroutine. Each timer runs only while it has something to
// do, so that an idle broker sleeps.
func (k *keeper) run() {
	defer close(k.done)
	var gather, sync, fold <-chan time.Time
	for {
		select {
		case <-k.dirty:
			if gather == nil {
				gather = time.After(gatherInterval)
			}
		case <-k.urgent:
			k.write()
		case <-gather:
			gather = nil
			k.write()
		case <-sync:
			sync = nil
			k.sync()
		case <-fold:
			fold = nil
			k.foldLogged()
		case reply := <-k.folds:
			k.write()
			reply <- k.foldLogged()
		case <-k.stop:
			k.write()
			k.err = k.foldLogged()
			k.shut()
			return
		}
		if k.unsynced && sync == nil {
			sync = time.After(k.cfg.SyncInterval)
		}
		if k.unfolded && fold == nil {
			fold = time.After(k.foldPause())
		}
		if k.size > k.cfg.JournalBytesMax && !k.failing {
			k.foldLogged()
		}
	}
}

// foldPause is how long the journal may grow before the next fold.
func (k *keeper) foldPause() time.Duration {
	if k.file == nil || k.failing { // only a fold brings a journal back
		return min(foldRetryInterval, k.cfg.FoldInterval)
	}
	return k.cfg.FoldInterval
}

// write appends all changes to the journal with one write, and tells those who
// wait.
func (k *keeper) write() {
	b, waiters := k.offsets.drain(k.scratch[:0])
	b = k.subscribers.drain(k.locks.drain(k.timer.drain(k.delay.drain(b))))
	k.scratch = b
	err := k.append(b)
	for _, w := range waiters {
		w(err)
	}
}

var errNoJournal = errors.New("progress journal is not writable")

// append writes b at the journal's end. After a failure the file's end is
// unknown, so nothing more is written to it: the next fold starts another.
func (k *keeper) append(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	k.unfolded = true
	if k.file == nil {
		return errNoJournal
	}
	if _, err := k.file.WriteAt(b, k.size); err != nil {
		k.abandon("write", err)
		return fmt.Errorf("progress journal: %w", err)
	}
	k.size += int64(len(b))
	k.unsynced = true
	return nil
}

// sync makes the journal durable.
func (k *keeper) sync() {
	if k.file == nil || !k.unsynced {
		return
	}
	k.unsynced = false
	if err := k.file.SyncData(); err != nil {
		k.abandon("sync", err)
	}
}

// abandon gives the journal's file up. Its whole records stay readable at the
// next start.
func (k *keeper) abandon(op string, err error) {
	k.log.Error("progress journal failed, folding into the JSON files instead", "op", op, "file", k.file.Name(), "error", err)
	k.file.Close()
	k.file, k.unsynced, k.unfolded = nil, false, true
}

func (k *keeper) foldLogged() error {
	if !k.unfolded {
		return nil
	}
	err := k.fold()
	switch {
	case err != nil && !k.failing:
		k.log.Error("consumer offsets and delay progress not saved, trying again", "dir", k.cfg.Dir, "error", err)
	case err == nil && k.failing:
		k.log.Info("consumer offsets and delay progress saved again", "dir", k.cfg.Dir)
	}
	k.failing = err != nil
	return err
}

// fold writes the whole tables to the JSON files and starts a new journal. A
// crash between any two of its steps is safe: the old journal is told the
// fingerprints of what will be written before it is written, so it continues
// either version of each file, and replaying records a file already holds
// changes nothing.
func (k *keeper) fold() error {
	contents := map[byte][]byte{fileOffsets: k.encodeOffsets(), fileDelay: k.encodeDelay(), fileTimer: k.encodeTimerCheck()}
	var bases []byte
	for _, file := range sortedKeys(k.files) {
		f := k.files[file]
		f.next = fingerprintOf(contents[file])
		bases = appendBase(bases, file, f.next)
	}
	// Where even this can't be written, the files below hold more than the
	// journal does, and not being known to it they win at the next start.
	if k.append(bases) == nil {
		k.sync()
	}
	for _, file := range sortedKeys(k.files) {
		f := k.files[file]
		if contents[file] == nil {
			continue
		}
		if err := saveWithBackup(k.cfg.FS, f.name, contents[file]); err != nil {
			return err
		}
		f.prev, f.main = f.main, f.next
	}
	return k.startJournal()
}

// startJournal replaces the journal by an empty one that continues the files as
// they are now, and opens it.
func (k *keeper) startJournal() error {
	b := []byte(journalMagic)
	for _, file := range sortedKeys(k.files) {
		f := k.files[file]
		b = appendBase(b, file, f.main)
		if f.prev.bytes > 0 { // its .bak, should the file itself get broken
			b = appendBase(b, file, f.prev)
		}
	}
	if p := k.delay.Progress(); p.ScanFrom >= 0 {
		b = appendDelay(b, p)
	}
	if p := k.timer.Progress(); p.ScanFrom >= 0 {
		b = appendTimer(b, p)
	}
	b = k.subscribers.appendAll(k.locks.appendAll(k.offsets.appendResets(b)))
	if k.file != nil {
		k.file.Close()
		k.file = nil
	}
	if err := k.cfg.FS.WriteFileAtomic(k.journalPath(), b); err != nil {
		return err
	}
	return k.openJournal(int64(len(b)))
}

func (k *keeper) journalPath() string { return filepath.Join(k.cfg.Dir, journalName) }

// openJournal opens the journal for appending behind its first size bytes;
// what follows them is torn and cut.
func (k *keeper) openJournal(size int64) error {
	f, err := k.cfg.FS.Open(k.journalPath(), vfs.ReadWrite)
	if err != nil {
		return err
	}
	if have, err := f.Size(); err != nil || have != size {
		if err == nil {
			err = f.Truncate(size)
		}
		if err != nil {
			f.Close()
			return err
		}
	}
	k.file, k.size, k.unsynced, k.unfolded = f, size, false, false
	return nil
}

func (k *keeper) shut() {
	if k.file != nil {
		k.sync()
	}
	if k.file != nil {
		k.file.Close()
	}
}

// close stops the keeper after a last fold, whose error it gives.
func (k *keeper) close() error {
	if k.closed.Swap(true) {
		<-k.done
		return k.err
	}
	close(k.stop)
	<-k.done
	return k.err
}

// saveWithBackup replaces a file as Apache does: what it held before is in
// name.bak. Unlike Apache's, each of the two steps is atomic.
func saveWithBackup(fsys vfs.FS, name string, content []byte) error {
	switch old, err := fsys.ReadFile(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := fsys.WriteFileAtomic(name+".bak", old); err != nil {
			return err
		}
	}
	return fsys.WriteFileAtomic(name, content)
}
