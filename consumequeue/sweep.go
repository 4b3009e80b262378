package consumequeue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ringmq/ringmq/internal/vfs"
)

// Sweep writes the tails of all queues that changed and syncs their files.
// When it returns nil, every entry Put before the call is durable. It blocks
// on the disk; calls wait for each other; Put and Read go on meanwhile.
//
// After a failed write or open, nothing is lost: the entries stay in memory
// and the next Sweep tries again. After a failed sync it is unknown what is on
// disk; that Sweep and all later ones return the error, and the dispatch mark
// must not move until the store was opened anew.
func (s *Set) Sweep() error {
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	now := s.sweeps.Add(1)
	s.dirtyMu.Lock()
	list := s.dirty
	s.dirty = nil
	s.active = append(s.active, s.activated...)
	s.activated = nil
	s.dirtyMu.Unlock()
	for _, q := range list {
		q.mu.Lock()
		q.dirty = false // before the write: what is put from now on marks it again
		q.mu.Unlock()
	}

	err := s.sweepAll(list)
	if err == nil {
		err = s.syncDirs()
	}
	s.retireTails(now)
	s.tellGaps()
	return err
}

// sweepAll sweeps list in portions, whose files stay open from write to sync.
func (s *Set) sweepAll(list []*Queue) error {
	portion := max(1, s.cfg.OpenFilesMax/2)
	for len(list) > 0 {
		n := min(portion, len(list))
		if err := s.sweepSome(list[:n]); err != nil {
			for _, q := range list {
				q.mu.Lock()
				if !q.dirty {
					q.dirty = true
					s.markDirty(q)
				}
				q.mu.Unlock()
			}
			return err
		}
		list = list[n:]
	}
	return nil
}

func (s *Set) sweepSome(list []*Queue) error {
	type job struct {
		h  *handle
		q  *Queue
		to int64 // q is durable up to here when h and the jobs of q before it are synced
	}
	var mu sync.Mutex
	var jobs []job
	defer func() {
		for _, j := range jobs {
			s.files.release(j.h)
		}
	}()
	err := parallel(min(4, s.cfg.SyncParallel), list, func(q *Queue) error {
		if err := s.writeOut(q); err != nil {
			return err
		}
		q.mu.Lock()
		from, to, gone := q.synced, q.written, q.gone
		q.mu.Unlock()
		for base := from - from%q.kind.units; !gone && from < to; base += q.kind.units {
			h, err := s.files.acquire(fileKey{q, base}, 0)
			if err != nil {
				return err
			}
			from = base + q.kind.units
			mu.Lock()
			jobs = append(jobs, job{h, q, min(from, to)})
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = parallel(s.cfg.SyncParallel, jobs, func(j job) error { return j.h.SyncData() })
	if err != nil {
		s.failed = fmt.Errorf("sync of a ConsumeQueue file: %w", err)
		return s.failed
	}
	for _, j := range jobs {
		j.q.mu.Lock()
		j.q.synced = max(j.q.synced, j.to)
		j.q.mu.Unlock()
	}
	return nil
}

// parallel calls fn for each item on up to n goroutines, waits for them, and
// returns the first error; after it no new calls begin.
func parallel[T any](n int, items []T, fn func(T) error) error {
	n = min(n, len(items))
	var (
		wg    sync.WaitGroup
		next  atomic.Int64
		once  sync.Once
		first error
		stop  atomic.Bool
	)
	run := func() {
		for !stop.Load() {
			i := int(next.Add(1)) - 1
			if i >= len(items) {
				return
			}
			if err := fn(items[i]); err != nil {
				once.Do(func() { first = err })
				stop.Store(true)
			}
		}
	}
	for range n - 1 {
		wg.Go(run)
	}
	run()
	wg.Wait()
	return first
}

// bytesPool holds buffers for encoding and reading, *[]byte.
var bytesPool = sync.Pool{New: func() any { b := make([]byte, 0, 512*EntryBytes); return &b }}

// pooledMax is the capacity up to which a buffer goes back to the pool.
const pooledMax = 64 << 10

func putBytes(p *[]byte, b []byte) {
	if cap(b) <= pooledMax {
		*p = b[:0]
		bytesPool.Put(p)
	}
}

// writeOut writes the tail's unwritten entries to the files, without a sync.
// The queue's mu must not be held.
func (s *Set) writeOut(q *Queue) error {
	lk := s.queueLock(q)
	lk.Lock()
	defer lk.Unlock()
	q.mu.Lock()
	if q.gone || q.tail == nil {
		q.mu.Unlock()
		return nil
	}
	// The dispatcher does not touch entries in [written, max) of this ring: it
	// fills others, or goes on in a larger copy. So they are read without mu.
	t, from, to, isFirst := *q.tail, q.written, q.max.Load(), !q.hasFiles
	q.mu.Unlock()

	p := bytesPool.Get().(*[]byte)
	buf := (*p)[:0]
	defer func() { putBytes(p, buf) }()
	for from < to {
		base := from - from%q.kind.units
		end := min(to, base+q.kind.units)
		buf = buf[:0]
		for n := from; n < end; n++ {
			if t.parts == nil { // the common case, by itself for its speed
				buf = appendEntry(buf, t.ring[n&int64(len(t.ring)-1)])
			} else {
				buf = appendUnit(buf, t.unit(n))
			}
		}
		if err := s.writeUnits(fileKey{q, base}, from, buf, isFirst); err != nil {
			return err
		}
		q.mu.Lock()
		if isFirst {
			q.hasFiles, q.firstFile, isFirst = true, base, false
		}
		q.written = end
		q.mu.Unlock()
		from = end
	}
	return nil
}

// writeUnits writes the units b at offset from into the file of k, which is
// made when from is its first unit or it isFirst of its queue.
func (s *Set) writeUnits(k fileKey, from int64, b []byte, isFirst bool) error {
	if !isFirst && from != k.base {
		h, err := s.files.acquire(k, 0)
		if err != nil {
			return err
		}
		defer s.files.release(h)
		_, err = h.WriteAt(b, (from-k.base)*k.q.kind.unitBytes)
		return err
	}
	if isFirst {
		if err := s.fs.MkdirAll(k.q.dir()); err != nil {
			return err
		}
		s.dirtyDirs(k.q)
	} else {
		s.dirtyDir(k.q.dir())
	}
	h, err := s.files.acquire(k, vfs.Create)
	if err != nil {
		return err
	}
	defer s.files.release(h)
	// An earlier try, or a file whose removal a crash undid, may have left bytes.
	if err := resize(h, 0, k.q.kind.fileBytes); err != nil {
		return err
	}
	if err := writeFillers(h, from-k.base); err != nil {
		return err
	}
	_, err = h.WriteAt(b, (from-k.base)*k.q.kind.unitBytes)
	return err
}

// resize cuts f to keep bytes and gives it its full size again, the rest being
// zeros that take no room.
func resize(f vfs.File, keep, size int64) error {
	if err := f.Truncate(keep); err != nil {
		return err
	}
	return f.Truncate(size)
}

// writeFillers writes the first n units of f.
func writeFillers(f vfs.File, n int64) error {
	if n == 0 {
		return nil
	}
	buf := make([]byte, 0, min(n, 2048)*EntryBytes)
	for range cap(buf) / EntryBytes {
		buf = appendEntry(buf, filler)
	}
	for off, end := int64(0), n*EntryBytes; off < end; {
		part := buf[:min(int64(len(buf)), end-off)]
		if _, err := f.WriteAt(part, off); err != nil {
			return err
		}
		off += int64(len(part))
	}
	return nil
}

// dirtyDir has the names in dir synced by the next syncDirs.
func (s *Set) dirtyDir(dirs ...string) {
	s.dirMu.Lock()
	for _, d := range dirs {
		s.dirs[d] = struct{}{}
	}
	s.dirMu.Unlock()
}

func (s *Set) dirtyDirs(q *Queue) {
	s.dirtyDir(q.kind.dir, filepath.Join(q.kind.dir, q.topic.name), q.dir())
	if q.batch != nil { // its directory came with the first of them
		s.dirtyDir(filepath.Dir(q.kind.dir))
	}
}

// syncDirs makes new and removed names durable. Holds sweepMu.
func (s *Set) syncDirs() error {
	s.dirMu.Lock()
	dirs := make([]string, 0, len(s.dirs))
	for d := range s.dirs {
		dirs = append(dirs, d)
	}
	clear(s.dirs)
	s.dirMu.Unlock()
	err := parallel(s.cfg.SyncParallel, dirs, func(d string) error {
		err := s.fs.SyncDir(d)
		if errors.Is(err, fs.ErrNotExist) { // deleted since; its parent is in the list
			return nil
		}
		return err
	})
	if err != nil {
		s.failed = fmt.Errorf("sync of a ConsumeQueue directory: %w", err)
		return s.failed
	}
	return nil
}

// retireTails gives up the tails of queues that had no Put for a while. Holds
// sweepMu.
func (s *Set) retireTails(now uint64) {
	idle := uint64(s.cfg.IdleSweeps)
	if s.tailBytes.Load() >= s.cfg.TailBytesMax {
		idle = 1
	}
	keep := s.active[:0]
	for _, q := range s.active {
		q.mu.Lock()
		switch t := q.tail; {
		case t == nil:
		case q.written == q.max.Load() && now-t.lastPut > idle:
			q.dropTail()
		default:
			keep = append(keep, q)
		}
		q.mu.Unlock()
	}
	clear(s.active[len(keep):])
	s.active = keep
}

// dropTail holds mu.
func (q *Queue) dropTail() {
	if q.tail != nil {
		q.set.tailBytes.Add(-q.tail.bytes())
		q.tail = nil
	}
}

// tellGaps logs gaps met since the last sweep, in one line. Holds sweepMu.
func (s *Set) tellGaps() {
	filled, dropped := s.stats.filled.Load(), s.stats.dropped.Load()
	if filled+dropped == s.stats.told {
		return
	}
	s.stats.told = filled + dropped
	s.stats.mu.Lock()
	where := s.stats.where
	s.stats.mu.Unlock()
	s.log.Error("gaps in ConsumeQueues: the log skips queue offsets", "filled", filled, "dropped", dropped, "last", where)
}

// readFile reads entries of q from the file that holds offset from, at most to
// its end. With wait false it gives ErrCold rather than wait for a disk.
func (s *Set) readFile(q *Queue, dst []Entry, from int64, wait bool) (int, error) {
	p, buf, err := s.readBytes(q, len(dst), from, wait)
	if err != nil {
		return 0, q.readError(from, err)
	}
	defer putBytes(p, buf)
	for i := range len(buf) / EntryBytes {
		dst[i] = DecodeEntry(buf[i*EntryBytes:])
		if !dst[i].Valid() {
			return i, q.damaged(i, from, dst[0])
		}
	}
	return len(buf) / EntryBytes, nil
}

// readUnits is readFile for units of either kind; it waits.
func (s *Set) readUnits(q *Queue, dst []unit, from int64) (int, error) {
	p, buf, err := s.readBytes(q, len(dst), from, true)
	if err != nil {
		return 0, q.readError(from, err)
	}
	defer putBytes(p, buf)
	size := int(q.kind.unitBytes)
	for i := range len(buf) / size {
		dst[i] = q.kind.decode(buf[i*size:])
		if !dst[i].Valid() {
			return i, q.damaged(i, from, dst[0].Entry)
		}
	}
	return len(buf) / size, nil
}

// damaged is the error of a read from unit from on whose i-th unit, e when it
// is the first, is none: units before it are good.
func (q *Queue) damaged(i int, from int64, e Entry) error {
	if i > 0 {
		return nil
	}
	k := fileKey{q, from - from%q.kind.units}
	return q.readError(from, fmt.Errorf("%w: %s, unit %d: offset %d, size %d", ErrDamaged, k.name(), from-k.base, e.LogOffset, e.Size))
}

// readBytes reads up to n units from from on, at most to the end of their file.
// The bytes go back with putBytes.
func (s *Set) readBytes(q *Queue, n int, from int64, wait bool) (p *[]byte, buf []byte, err error) {
	base := from - from%q.kind.units
	size := min(int64(n), base+q.kind.units-from) * q.kind.unitBytes
	k := fileKey{q, base}
	h := s.files.peek(k)
	if h == nil {
		if !wait {
			return nil, nil, ErrCold
		}
		if h, err = s.files.acquire(k, 0); err != nil {
			return nil, nil, err
		}
	}
	defer s.files.release(h)
	off := (from - base) * q.kind.unitBytes
	if !wait {
		if resident, known := h.Resident(off, size); !resident || !known {
			return nil, nil, ErrCold
		}
	}
	p = bytesPool.Get().(*[]byte)
	buf = *p
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if m, err := h.ReadAt(buf, off); err != nil {
		if !errors.Is(err, io.EOF) {
			putBytes(p, buf)
			return nil, nil, err
		}
		clear(buf[m:]) // a file cut short reads as one never written
	}
	return p, buf, nil
}

// readError says why entry from could not be read: it may have been deleted
// while the read was under way.
func (q *Queue) readError(from int64, err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.gone:
		return ErrGone
	case from < q.min.Load():
		return ErrBelowMin
	case from >= q.max.Load():
		return nil
	}
	return err
}
