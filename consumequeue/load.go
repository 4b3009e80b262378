package consumequeue

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// Open loads the queues in cfg.Dir and cfg.BatchDir, many at once. It lists directories and
// reads a few units of each queue's last file. Files and directories that are
// none of a queue are named in the log and left alone. Damaged queues are cut
// at the damage, with a line that names the file and what was done; see
// RedispatchFrom. Files of one other size throughout the store give ErrConfig.
//
// Min of a queue is its first entry; CorrectMin moves it to where the log
// begins.
func Open(cfg Config) (*Set, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &Set{
		cfg:   cfg,
		fs:    cfg.FS,
		log:   cfg.Logger,
		plain: newKind(cfg.Dir, EntryBytes, cfg.FileBytes, "mappedFileSizeConsumeQueue"),
		batch: newKind(cfg.BatchDir, BatchUnitBytes, cfg.BatchFileBytes, "mapperFileSizeBatchConsumeQueue"),
		seed:  maphash.MakeSeed(),
		files: newFiles(cfg.FS, cfg.OpenFilesMax),
		dirs:  map[string]struct{}{},
	}
	for i := range s.shards {
		s.shards[i].topics = map[string]*topicQueues{}
	}
	if err := vfs.MkdirAllSync(s.fs, cfg.Dir); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.files.closeAll())
	}
	return s, nil
}

// found is a queue as its directory shows it.
type found struct {
	q     *Queue
	files []queueFile // sorted by base
}

type queueFile struct {
	name string
	base int64 // offset of its first unit
	size int64 // bytes
}

func (s *Set) load() error {
	var list []found
	for _, k := range []*kind{s.plain, s.batch} {
		some, err := s.list(k)
		if err != nil {
			return err
		}
		if err := s.checkSizes(k, some); err != nil {
			return err
		}
		list = append(list, some...)
	}
	var mu sync.Mutex // guards redispatch
	err := parallel(s.cfg.LoadParallel, list, func(f found) error {
		cut, err := s.repair(&f)
		if err != nil {
			return err
		}
		damaged, err := s.recover(f.q, f.files)
		if err != nil {
			return fmt.Errorf("loading ConsumeQueue %s: %w", f.q.dir(), err)
		}
		if cut || damaged {
			mu.Lock()
			if from := f.q.MaxLogOffset(); s.repairedCuts == 0 || from < s.redispatch {
				s.redispatch = from
			}
			s.repairedCuts++
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.syncDirs()
}

// list reads the directories of one kind: dir/<topic>/<queueId>/<20 digits>.
func (s *Set) list(k *kind) ([]found, error) {
	topics, err := s.fs.ReadDir(k.dir)
	if k.batch && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var list []found
	err = parallel(s.cfg.LoadParallel, topics, func(t vfs.DirEntry) error {
		if !t.IsDir {
			s.stray(k.dir, t.Name)
			return nil
		}
		dir := filepath.Join(k.dir, t.Name)
		if batch, known := s.cfg.BatchTopic(t.Name); known && batch != k.batch {
			s.log.Warn("queues of another kind than the topic's queue.type, left alone", "path", dir)
			return nil
		}
		ids, err := s.fs.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range ids {
			id, err := strconv.ParseInt(e.Name, 10, 32)
			if !e.IsDir || err != nil || id < 0 || strconv.FormatInt(id, 10) != e.Name {
				s.stray(dir, e.Name)
				continue
			}
			files, err := s.listFiles(k, filepath.Join(dir, e.Name))
			if err != nil {
				return err
			}
			f := found{s.Make(t.Name, int32(id), k.batch), files}
			if f.q.kind != k {
				s.stray(dir, e.Name)
				continue
			}
			mu.Lock()
			list = append(list, f)
			mu.Unlock()
		}
		return nil
	})
	return list, err
}

func (s *Set) listFiles(k *kind, dir string) ([]queueFile, error) {
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := make([]queueFile, 0, len(entries))
	for _, e := range entries {
		off, ok := fileOffset(e.Name)
		if e.IsDir || !ok || off%k.unitBytes != 0 {
			s.stray(dir, e.Name)
			continue
		}
		files = append(files, queueFile{e.Name, off / k.unitBytes, e.Size})
	}
	slices.SortFunc(files, func(a, b queueFile) int { return int(min(1, max(-1, a.base-b.base))) })
	return files, nil
}

func (s *Set) stray(dir, name string) {
	s.log.Warn("not a ConsumeQueue file, left alone", "path", filepath.Join(dir, name))
}

// checkSizes tells a store made with another file size (k.key) from a
// damaged one: all its files have one other size, and names that fit it.
func (s *Set) checkSizes(k *kind, list []found) error {
	var other int64
	var name string
	for _, f := range list {
		for _, file := range f.files {
			if file.size == 0 {
				continue
			}
			if other == 0 {
				other, name = file.size, filepath.Join(f.q.dir(), file.name)
			}
			if file.size != other || other%k.unitBytes != 0 || file.base*k.unitBytes%other != 0 {
				return nil
			}
		}
	}
	if other == 0 || other == k.fileBytes {
		return nil
	}
	return fmt.Errorf("%w: ConsumeQueue files such as %s have %d bytes, configured are %d: set %s=%d, or delete the directory %s to have it built again from the log",
		ErrConfig, name, other, k.fileBytes, k.key, other, k.dir)
}

// repair makes f's files a gapless row of full-sized files, dropping what is
// behind a gap. It says whether entries may have been lost by it.
func (s *Set) repair(f *found) (cut bool, err error) {
	if n := len(f.files); n > 0 && f.files[n-1].size == 0 {
		s.log.Info("removing empty last ConsumeQueue file", "path", filepath.Join(f.q.dir(), f.files[n-1].name))
		if err := s.removeFile(fileKey{f.q, f.files[n-1].base}); err != nil {
			return false, err
		}
		f.files = f.files[:n-1]
	}
	k := f.q.kind
	for i, file := range f.files {
		what := ""
		switch {
		case file.base%k.units != 0:
			what = "name is no multiple of the file size"
		case i > 0 && file.base != f.files[i-1].base+k.units:
			what = "a file before it is missing"
		}
		if what != "" {
			return true, s.dropFrom(f, i, what)
		}
		if file.size == k.fileBytes {
			continue
		}
		path := filepath.Join(f.q.dir(), file.name)
		s.log.Warn("ConsumeQueue file has a wrong size, cut to whole units and given its size",
			"path", path, "got", file.size, "want", k.fileBytes)
		h, err := s.files.acquire(fileKey{f.q, file.base}, 0)
		if err != nil {
			return true, err
		}
		err = resize(h, min(file.size-file.size%k.unitBytes, k.fileBytes), k.fileBytes)
		if err == nil {
			err = h.SyncData()
		}
		s.files.release(h)
		if err != nil {
			return true, err
		}
		if file.size > k.fileBytes {
			continue // nothing beyond the size is ever read
		}
		cut = true
		if i+1 < len(f.files) {
			return true, s.dropFrom(f, i+1, "a file before it was cut short")
		}
	}
	return cut, nil
}

// dropFrom removes f's files from number i on.
func (s *Set) dropFrom(f *found, i int, why string) error {
	for _, file := range f.files[i:] {
		s.log.Warn("removing ConsumeQueue file, its entries are built again from the log",
			"path", filepath.Join(f.q.dir(), file.name), "reason", why)
		if err := s.removeFile(fileKey{f.q, file.base}); err != nil {
			return err
		}
	}
	f.files = f.files[:i]
	return nil
}

// A unitReader reads units of one queue at load, keeping one file open.
type unitReader struct {
	s *Set
	q *Queue
	h *handle
}

func (r *unitReader) close() {
	if r.h != nil {
		r.s.files.release(r.h)
		r.h = nil
	}
}

// read reads the units at b's length from offset from, which are in one file.
func (r *unitReader) read(b []byte, from int64) error {
	base := from - from%r.q.kind.units
	if r.h == nil || r.h.key.base != base {
		r.close()
		h, err := r.s.files.acquire(fileKey{r.q, base}, 0)
		if err != nil {
			return err
		}
		r.h = h
	}
	_, err := r.h.ReadAt(b, (from-base)*r.q.kind.unitBytes)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s, unit %d: %w", r.h.key.name(), from-base, io.ErrUnexpectedEOF)
	}
	return err
}

func (r *unitReader) unit(n int64) (unit, error) {
	var b [BatchUnitBytes]byte
	err := r.read(b[:r.q.kind.unitBytes], n)
	return r.q.kind.decode(b[:]), err
}

// recover finds the end of q in its files, cuts what is behind it, and sets
// q's marks. It says whether bytes behind the end show damage.
func (s *Set) recover(q *Queue, files []queueFile) (damaged bool, err error) {
	if len(files) == 0 {
		return false, nil
	}
	r := &unitReader{s: s, q: q}
	defer r.close()
	first := files[0].base
	end := files[len(files)-1].base + q.kind.units
	var n int64
	switch s.cfg.Trust {
	case TrustNothing:
		n = first
	case 0:
		n, err = r.walk(max(first, end-3*q.kind.units), end)
	default:
		n, err = r.lastTrusted(first, end)
	}
	if err != nil {
		return false, err
	}
	if s.cfg.Trust == TrustAll {
		if damaged, err = r.dirtyBehind(n, end); err != nil {
			return false, err
		}
	}
	if q.batch != nil && n > first {
		if err := r.loadMarks(first, n); err != nil {
			return damaged, err
		}
	}
	r.close()
	q.min.Store(first)
	q.max.Store(n)
	q.next = q.Max()
	q.firstFile, q.hasFiles = first, true
	q.written, q.synced = n, n
	if err := s.cutBehind(q, n, end, damaged); err != nil {
		return damaged, err
	}
	return damaged, q.loadEnds(n)
}

// cutBehind removes and zeroes what is behind n. The zeros are synced by the
// next Sweep, before the dispatch mark can pass anything written over them.
func (s *Set) cutBehind(q *Queue, n, end int64, damaged bool) error {
	units := q.kind.units
	keep := (n + units - 1) / units * units // end of the files that stay
	for base := end - units; base >= keep; base -= units {
		if err := s.removeFile(fileKey{q, base}); err != nil {
			return err
		}
	}
	if damaged {
		s.log.Warn("damaged ConsumeQueue cut, later entries are built again from the log", "path", q.dir(), "offset", n)
	}
	if n <= q.firstFile {
		q.hasFiles = false
		return nil
	}
	if n == keep || s.cfg.Trust == TrustAll && !damaged {
		return nil
	}
	h, err := s.files.acquire(fileKey{q, keep - units}, 0)
	if err != nil {
		return err
	}
	defer s.files.release(h)
	if err := resize(h, (n-keep+units)*q.kind.unitBytes, q.kind.fileBytes); err != nil {
		return err
	}
	q.synced = n - 1
	q.dirty = true
	s.markDirty(q)
	return nil
}

// loadMarks sets the offsets of a batch queue whose units are [first, n). One
// of which nothing is trusted takes them from its first record to come.
func (r *unitReader) loadMarks(first, n int64) error {
	u, err := r.unit(first)
	if err != nil {
		return err
	}
	r.q.batch.min.Store(u.base)
	if u, err = r.unit(n - 1); err != nil {
		return err
	}
	r.q.batch.max.Store(u.end())
	return nil
}

// loadEnds sets what q knows of its first and last record.
func (q *Queue) loadEnds(n int64) error {
	if !q.hasFiles {
		q.min.Store(n)
		return nil
	}
	end, err := q.lastEnd(q.firstFile, n, true)
	if err != nil {
		return err
	}
	q.maxLog.Store(end)
	e, pos, err := q.nextRecord(q.firstFile, n)
	if err != nil {
		return err
	}
	q.min.Store(pos)
	if pos < n {
		q.firstLog = int64(e.LogOffset)
	}
	return nil
}

// lastTrusted finds the end of the entries below Trust, which are all there:
// a binary search in the last file that begins with one.
func (r *unitReader) lastTrusted(first, end int64) (int64, error) {
	trusted := func(n int64) (bool, error) {
		e, err := r.unit(n)
		return e.Valid() && e.LogOffset < r.s.cfg.Trust, err
	}
	for base := end - r.q.kind.units; base >= first; base -= r.q.kind.units {
		ok, err := trusted(base)
		if err != nil {
			return 0, err
		}
		if !ok {
			continue
		}
		lo, more, err := r.firstUntrusted(base)
		if err != nil || !more {
			return lo, err
		}
		hi := base + r.q.kind.units // lo-1 is trusted, hi is the next file's
		for lo < hi {
			mid := lo + (hi-lo)/2
			ok, err := trusted(mid)
			if err != nil {
				return 0, err
			}
			if ok {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		return lo, nil
	}
	return first, nil
}

// headUnits is how many units of a file are read first: most queues are short.
const headUnits = 200

// firstUntrusted looks for the end of the trusted units at the beginning of a
// file; more says that it is not there, and lo is where to look on.
func (r *unitReader) firstUntrusted(base int64) (lo int64, more bool, err error) {
	k := r.q.kind
	b := make([]byte, min(headUnits, k.units)*k.unitBytes)
	if err := r.read(b, base); err != nil {
		return 0, false, err
	}
	for lo = base; len(b) > 0; b = b[k.unitBytes:] {
		if e := k.decode(b); !e.Valid() || e.LogOffset >= r.s.cfg.Trust {
			return lo, false, nil
		}
		lo++
	}
	return lo, true, nil
}

// walkUnits is how many units walk reads at once, after a first few: most
// queues end early.
const walkUnits = 3200

// walk finds the first invalid unit in [from, end). A unit whose record begins
// before the end of the one before is invalid too: it is left over from a part
// of the queue that was cut.
func (r *unitReader) walk(from, end int64) (int64, error) {
	k := r.q.kind
	b := make([]byte, headUnits*k.unitBytes)
	var log message.LogOffset
	for from < end {
		n := min(int64(len(b))/k.unitBytes, end-from, k.units-from%k.units)
		part := b[:n*k.unitBytes]
		if err := r.read(part, from); err != nil {
			return 0, err
		}
		for i := range n {
			e := k.decode(part[i*k.unitBytes:])
			if !e.Valid() || !e.Filler() && e.LogOffset < log {
				return from + i, nil
			}
			if !e.Filler() {
				log = e.End()
			}
		}
		from += n
		if len(b) < walkUnits*int(k.unitBytes) {
			b = make([]byte, walkUnits*k.unitBytes)
		}
	}
	return end, nil
}

// dirtyBehind says whether there is anything but zeros right behind n.
func (r *unitReader) dirtyBehind(n, end int64) (bool, error) {
	if n >= end {
		return false, nil
	}
	b := make([]byte, min(headUnits, r.q.kind.units-n%r.q.kind.units)*r.q.kind.unitBytes)
	if err := r.read(b, n); err != nil {
		return false, err
	}
	for _, c := range b {
		if c != 0 {
			return true, nil
		}
	}
	return false, nil
}
