package pop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// journalNames are the two files that take turns; see the package comment.
var journalNames = [2]string{"ringmq-pop-a.journal", "ringmq-pop-b.journal"}

const (
	journalMagic = "RMQP\x00\x00\x00\x01"
	journalStart = len(journalMagic) + 8 // behind magic and turn
	frameHead    = 8                     // length and CRC
	frameMax     = 64 << 20              // a longer one is damage
	snapshotMax  = 1 << 20               // bytes of a snapshot's frame, about
	// retryInterval paces attempts at a new journal while the disk refuses one.
	retryInterval = 5 * time.Second
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Waiter is told when the journal holds what it waits for, on the journal's
// goroutine; it must not block.
type Waiter interface{ Written() }

// A journal writes a table's operations. Its goroutine owns everything below
// the line; helper goroutines of it sync and write snapshots, so that nobody
// who waits for a write waits for the disk.
type journal struct {
	t       *Table
	running atomic.Bool // loaded: changes are journaled
	wake    chan struct{}
	syncs   chan chan error // who waits for a sync
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once
	err     error // for close

	mu      sync.Mutex
	buf     []byte   // operations not yet written, behind room for a frame's head
	waiters []Waiter // told when buf is written
	shut    bool

	// ----
	spare    []byte // buf and waiters before, emptied: they take turns
	spareW   []Waiter
	file     vfs.File // nil when there is none that may be written to
	turn     uint64   // of file; the name is journalNames[turn%2]
	size     int64
	least    int64 // size to compact at
	unsynced bool
	firm     bool // its snapshot's end is durable: the other file may be written over
	failing  bool

	synced  chan error // a helper's word; nil when no sync is under way
	fresh   chan fresh // a helper's word; nil when no snapshot is under way
	tail    []byte     // what was written since the snapshot under way began
	tailing bool
}

// fresh is a new journal with a snapshot in it, synced and not yet in use.
type fresh struct {
	file vfs.File
	turn uint64
	size int64
	err  error
}

func newJournal(t *Table) *journal {
	return &journal{t: t, wake: make(chan struct{}, 1), syncs: make(chan chan error), stop: make(chan struct{}), done: make(chan struct{}),
		buf: make([]byte, frameHead), spare: make([]byte, frameHead)}
}

func (j *journal) kick() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// add journals what fn appends.
func (j *journal) add(fn func(b []byte) []byte) {
	j.mu.Lock()
	j.buf = fn(j.buf)
	j.mu.Unlock()
	j.kick()
}

func (j *journal) after(w Waiter) {
	j.mu.Lock()
	if j.shut {
		j.mu.Unlock()
		w.Written()
		return
	}
	j.waiters = append(j.waiters, w)
	j.mu.Unlock()
	j.kick()
}

func (j *journal) path(turn uint64) string {
	return filepath.Join(j.t.cfg.Dir, journalNames[turn%2])
}

// run is the journal's goroutine. The timers run only while they have something
// to do.
func (j *journal) run() {
	defer close(j.done)
	var sync, retry <-chan time.Time
	for {
		select {
		case <-j.wake:
			j.write()
		case <-sync:
			sync = nil
			j.startSync()
		case err := <-j.synced:
			j.synced = nil
			if j.firm = err == nil; err != nil {
				j.abandon("sync", err)
			}
		case reply := <-j.syncs:
			reply <- j.syncNow()
		case <-retry:
			retry = nil
			j.compact()
		case f := <-j.fresh:
			j.fresh = nil
			j.change(f)
		case <-j.stop:
			j.finish()
			return
		}
		if j.unsynced && sync == nil {
			sync = time.After(j.t.cfg.SyncInterval)
		}
		if j.file == nil && j.fresh == nil && retry == nil {
			retry = time.After(retryInterval)
		}
		if j.size > j.least && j.firm {
			j.compact()
		}
	}
}

// write appends what has gathered as one frame, and tells those who wait.
func (j *journal) write() {
	j.mu.Lock()
	b, waiters := j.buf, j.waiters
	j.buf, j.waiters = j.spare[:frameHead], j.spareW[:0]
	j.mu.Unlock()
	if len(b) > frameHead {
		j.append(endFrame(b, 0))
	}
	for i, w := range waiters {
		w.Written()
		waiters[i] = nil
	}
	if cap(b) > 4*snapshotMax {
		b = make([]byte, frameHead)
	}
	j.spare, j.spareW = b[:frameHead], waiters[:0]
}

// endFrame fills in the head of the frame that begins at start.
func endFrame(b []byte, start int) []byte {
	payload := b[start+frameHead:]
	binary.BigEndian.PutUint32(b[start:], uint32(len(payload)))
	binary.BigEndian.PutUint32(b[start+4:], crc32.Checksum(payload, castagnoli))
	return b
}

// append writes a frame at the end. After a failure the file's end is unknown,
// so nothing more is written to it: a snapshot begins another.
func (j *journal) append(b []byte) {
	if j.tailing {
		j.tail = append(j.tail, b...)
	}
	if j.file == nil {
		return
	}
	if _, err := j.file.WriteAt(b, j.size); err != nil {
		j.abandon("write", err)
		return
	}
	j.size += int64(len(b))
	j.unsynced = true
}

func (j *journal) startSync() {
	if j.file == nil || j.synced != nil {
		return
	}
	j.unsynced = false
	file, synced := j.file, make(chan error, 1)
	j.synced = synced
	go func() { synced <- file.SyncData() }()
}

// sync blocks until all operations added before the call are durable.
func (j *journal) sync() error {
	reply := make(chan error)
	select {
	case j.syncs <- reply:
		return <-reply
	case <-j.done:
		return errClosed
	}
}

var (
	errClosed    = errors.New("pop journal is closed")
	errNoJournal = errors.New("pop journal is not writable")
)

// syncNow writes and syncs, on the journal's goroutine: who waits for a write
// waits for this disk too, which is why it is for rare occasions.
func (j *journal) syncNow() error {
	j.write()
	if j.file == nil {
		return errNoJournal
	}
	j.unsynced = false
	if err := j.file.SyncData(); err != nil {
		j.abandon("sync", err)
		return fmt.Errorf("pop journal: %w", err)
	}
	return nil
}

// abandon gives the file up; what is whole in it stays readable at the next
// start.
func (j *journal) abandon(op string, err error) {
	if j.file == nil {
		return
	}
	j.t.cfg.Logger.Error("pop journal failed, a new one is begun; a crash until then has messages delivered again",
		"op", op, "file", j.file.Name(), "error", err)
	if j.synced != nil {
		<-j.synced
		j.synced = nil
	}
	j.file.Close()
	j.file, j.unsynced, j.failing = nil, false, true
}

// compact has a helper write the table as it is into the other file. Queues
// are copied one after another while they change: what is written from here on
// is kept in tail and goes behind the snapshot, and operations say what is, not
// what is different, so it does no harm that the snapshot knows some of them.
func (j *journal) compact() {
	if j.fresh != nil {
		return
	}
	j.tail, j.tailing = j.tail[:0], true
	ready, turn := make(chan fresh, 1), j.turn+1
	j.fresh = ready
	go func() { ready <- j.snapshot(turn) }()
}

func (j *journal) snapshot(turn uint64) (f fresh) {
	f.turn = turn
	if f.file, f.err = j.t.cfg.FS.Open(j.path(turn), vfs.ReadWrite|vfs.Create); f.err != nil {
		return f
	}
	if f.err = f.file.Truncate(0); f.err == nil {
		f.size, f.err = j.writeSnapshot(f.file, turn)
	}
	if f.err == nil {
		f.err = f.file.Sync()
	}
	if f.err == nil {
		f.err = j.t.cfg.FS.SyncDir(j.t.cfg.Dir)
	}
	if f.err != nil {
		f.file.Close()
	}
	return f
}

func (j *journal) writeSnapshot(file vfs.File, turn uint64) (size int64, err error) {
	b := binary.BigEndian.AppendUint64([]byte(journalMagic), turn)
	start := len(b)
	b = append(b, make([]byte, frameHead)...)
	flush := func() {
		if err == nil {
			_, err = file.WriteAt(endFrame(b, start), size)
		}
		size += int64(len(b))
		b, start = b[:frameHead], 0
	}
	if at := j.t.Cursor(); at >= 0 {
		b = appendOp(b, opCursor, at)
	}
	j.t.each(func(q *Queue) {
		q.mu.Lock()
		if !q.gone {
			b = appendState(b, q)
		}
		q.mu.Unlock()
		if len(b) > snapshotMax {
			flush()
		}
	})
	if len(b) > start+frameHead {
		flush()
	} else if start > 0 { // nothing but the head
		_, err = file.WriteAt(b[:start], 0)
		size = int64(start)
	}
	return size, err
}

// change goes over to a new file: with the tail and the mark of its end in it,
// it says all that the old one does.
func (j *journal) change(f fresh) {
	j.tailing = false
	if f.err == nil {
		end := endFrame(append(make([]byte, frameHead), opEnd), 0)
		if _, f.err = f.file.WriteAt(append(j.tail, end...), f.size); f.err != nil {
			f.file.Close()
		}
		f.size += int64(len(j.tail) + len(end))
	}
	if cap(j.tail) > 4*snapshotMax {
		j.tail = nil
	}
	if f.err != nil {
		if !j.failing {
			j.t.cfg.Logger.Error("no new pop journal can be begun, trying again", "dir", j.t.cfg.Dir, "error", f.err)
		}
		j.failing = true
		j.least = 2 * max(j.size, j.t.cfg.CompactBytes) // not again at once
		return
	}
	if j.failing {
		j.t.cfg.Logger.Info("pop journal is written again", "file", f.file.Name())
	}
	if j.synced != nil { // of the old file, which counts no more
		<-j.synced
		j.synced = nil
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.turn, j.size, j.failing = f.file, f.turn, f.size, false
	j.unsynced, j.firm = true, false
	j.least = max(j.t.cfg.CompactBytes, 4*f.size)
}

// finish writes and syncs what is left.
func (j *journal) finish() {
	if j.fresh != nil {
		j.change(<-j.fresh)
	}
	j.mu.Lock()
	j.shut = true
	j.mu.Unlock()
	j.write()
	if j.file == nil { // one last attempt
		j.compact()
		j.change(<-j.fresh)
	}
	if j.synced != nil {
		<-j.synced
		j.synced = nil
	}
	if j.file == nil {
		j.err = errors.New("pop journal could not be written")
		return
	}
	if j.err = j.file.SyncData(); j.err != nil {
		j.err = fmt.Errorf("pop journal: %w", j.err)
	}
	j.file.Close()
}

func (j *journal) close() error {
	j.once.Do(func() { close(j.stop) })
	<-j.done
	return j.err
}

// load reads the newer of the two files that is whole, or begins the first, and
// starts the goroutine.
func (j *journal) load() error {
	type candidate struct {
		turn  uint64
		bytes []byte
	}
	var found []candidate
	there := 0
	for turn := range uint64(2) {
		b, err := j.t.cfg.FS.ReadFile(j.path(turn))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(b) > 0 {
			there++
		}
		if len(b) >= journalStart && string(b[:len(journalMagic)]) == journalMagic {
			found = append(found, candidate{binary.BigEndian.Uint64(b[len(journalMagic):]), b})
		}
	}
	if len(found) == 2 && found[1].turn > found[0].turn {
		found[0], found[1] = found[1], found[0]
	}
	for _, c := range found {
		whole, ended := j.read(c.bytes)
		if !ended {
			continue // its snapshot was never finished: the other one goes on
		}
		j.turn = c.turn
		if whole < len(c.bytes) {
			j.t.cfg.Logger.Warn("pop journal has a torn tail, cut", "file", j.path(c.turn), "bytes", len(c.bytes)-whole)
		}
		if err := j.reopen(int64(whole)); err != nil {
			return err
		}
		break
	}
	if j.file == nil {
		if there > 0 {
			j.t.cfg.Logger.Error("pop journals can't be read: groups pop again from their committed offsets on", "dir", j.t.cfg.Dir)
		}
		j.reset()
		f := j.snapshot(j.turn + 1)
		if f.err != nil {
			return fmt.Errorf("pop journal: %w", f.err)
		}
		j.change(f)
	}
	j.running.Store(true)
	go j.run()
	return nil
}

// reset empties the table before another file is read.
func (j *journal) reset() {
	j.t.groups, j.t.ids = map[string]*Group{}, 0
	j.t.cursor.Store(-1)
}

// read builds the table from a file; whole is how much of it is intact.
func (j *journal) read(b []byte) (whole int, ended bool) {
	j.reset()
	p := replay{t: j.t, byID: map[int64]*Queue{}}
	at := journalStart
	for len(b)-at >= frameHead {
		n := int(binary.BigEndian.Uint32(b[at:]))
		if n < 1 || n > frameMax || n > len(b)-at-frameHead {
			break
		}
		payload := b[at+frameHead : at+frameHead+n]
		if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(b[at+4:]) {
			break
		}
		if err := p.frame(payload); err != nil {
			j.t.cfg.Logger.Error("pop journal: a whole frame can't be read; what follows it is left out", "at", at, "error", err)
			break
		}
		at += frameHead + n
	}
	return at, p.ended
}

// reopen opens the file of j.turn for appending behind its first size bytes.
func (j *journal) reopen(size int64) error {
	f, err := j.t.cfg.FS.Open(j.path(j.turn), vfs.ReadWrite)
	if err != nil {
		return err
	}
	have, err := f.Size()
	if err == nil && have > size {
		// Durably: whole frames of the tail must not come back behind new ones.
		if err = f.Truncate(size); err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		f.Close()
		return err
	}
	j.file, j.size, j.unsynced = f, size, true
	j.least = max(j.t.cfg.CompactBytes, 2*size)
	return nil
}
