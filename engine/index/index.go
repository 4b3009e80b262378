package index

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

const (
	headerBytes = 40
	slotBytes   = 4
	entryBytes  = 20

	// ringEntries is how many of the newest entries are in memory.
	ringEntries = 1 << 14
	// pageSlots is the piece of the slot table that is written at once.
	pageSlots = 1024
	// retiredMax is how many full files may wait for a Sweep.
	retiredMax = 2
)

// A Config says where the index is and how large its files are. Zero values
// mean the defaults named with each field.
type Config struct {
	FS  vfs.FS // default vfs.OS()
	Dir string // <storePathRootDir>/index; required; made when missing

	HashSlots int // maxHashSlotNum; buckets of a file; default 5,000,000
	Entries   int // maxIndexNum; entries of a file plus 1; default 20,000,000

	// Clean says that the store was stopped cleanly. Otherwise Ours says that
	// ringmq wrote it last, so that headers can be trusted; and if neither is
	// true, files with records stored after SafeMillis (the checkpoint's
	// indexMsgTimestamp) are removed, as Apache's broker does.
	Clean, Ours bool
	SafeMillis  int64

	SlotEvery    int // slots are written after so many entries; default 1<<20
	OpenFilesMax int // descriptors of older files held open; default 16

	Now    func() time.Time // names new files, in local time; default time.Now
	Logger *slog.Logger     // default slog.Default()
}

// ErrConfig is wrapped by the error for a Config that makes no sense, a store
// with files of another size among them.
var ErrConfig = errors.New("bad index configuration")

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c *Config) complete() error {
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	orDefault(&c.HashSlots, 5_000_000)
	orDefault(&c.Entries, 20_000_000)
	orDefault(&c.SlotEvery, 1<<20)
	orDefault(&c.OpenFilesMax, 16)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Dir == "":
		return fmt.Errorf("%w: Dir is empty", ErrConfig)
	case c.HashSlots < 1 || c.HashSlots > math.MaxInt32/slotBytes:
		return fmt.Errorf("%w: HashSlots (maxHashSlotNum) is %d, want 1 to %d", ErrConfig, c.HashSlots, math.MaxInt32/slotBytes)
	case c.Entries < 2 || c.Entries > math.MaxInt32-1:
		return fmt.Errorf("%w: Entries (maxIndexNum) is %d, want 2 to %d", ErrConfig, c.Entries, math.MaxInt32-1)
	case c.SlotEvery < 1 || c.OpenFilesMax < 1:
		return fmt.Errorf("%w: SlotEvery is %d and OpenFilesMax %d, want 1 or more", ErrConfig, c.SlotEvery, c.OpenFilesMax)
	}
	return nil
}

func (c *Config) fileBytes() int64 {
	return headerBytes + slotBytes*int64(c.HashSlots) + entryBytes*int64(c.Entries)
}

// An Index is the key index of a store.
type Index struct {
	cfg Config
	fs  vfs.FS
	log *slog.Logger

	sweepMu  sync.Mutex // sweeps and structural changes
	failed   error      // a failed sync; owned by sweepMu
	dirDirty bool       // names changed since the last sync of the directory; guarded by mu

	writeMu sync.Mutex // who writes entries of the newest file

	mu      sync.Mutex // guards what follows, and file's fields that say so
	cur     *file      // takes entries; nil before the first Put of a file
	retired []*file    // full, their slots and headers not yet written
	endLog  int64      // log offset of the newest indexed record

	files atomic.Pointer[[]*file] // oldest first, cur last; changed under mu
	safe  atomic.Int64            // see SafeMillis

	fdMu sync.Mutex
	uses uint64 // clock of the least recently used; guarded by fdMu

	rebuildFrom message.LogOffset // written by Open and TruncateAbove
	rebuild     bool
}

// A file is one index file.
type file struct {
	path string

	header         // guarded by mu while the file is Index.cur
	table  []int32 // the slots; nil when they are in the file; guarded by mu
	dirty  []uint64
	// dirty has a bit for each page of table that the file does not have; guarded by mu

	ring    []byte // entries [max(ringLow, count-ringEntries), count); nil when not cur; guarded by mu
	ringLow int32  // first entry put into ring; guarded by mu
	written int32  // entries below are in the file; guarded by mu, moved under writeMu
	durable int32  // count of the header as it is on disk; owned by sweepMu

	f       vfs.File // guarded by fdMu
	users   int      // guarded by fdMu
	lastUse uint64   // guarded by fdMu
	dead    bool     // deleted; guarded by fdMu
}

// Put indexes the record at off, stored at storeMillis, under topic and key.
// Only the dispatcher may call it, in the order of the log. A record below the
// newest indexed one is passed over, so a range of the log may be dispatched
// again. It does not block, except to begin a file and, when entries come
// faster than they are swept, to write some (without a sync). After an error
// the key is not indexed, and the same call may be tried again. It keeps
// neither slice and does not allocate.
func (x *Index) Put(topic, key []byte, off message.LogOffset, storeMillis int64) error {
	h := keyHash(topic, key)
	x.mu.Lock()
	defer x.mu.Unlock()
	if int64(off) < x.endLog {
		return nil
	}
	f := x.cur
	if f == nil || int(f.count) >= x.cfg.Entries {
		var err error
		if f, err = x.nextFile(); err != nil {
			return err
		}
	}
	if f.count-f.written >= ringEntries {
		if err := x.spill(f); err != nil {
			return err
		}
	}
	n := f.count
	if n == 1 {
		f.beginMillis, f.beginLog = storeMillis, int64(off)
	}
	secs := min(max(0, (storeMillis-f.beginMillis)/1000), math.MaxInt32)
	slot := uint32(h) % uint32(len(f.table))
	prev := f.table[slot]
	if prev <= 0 || prev >= n {
		prev = 0
		f.slotsUsed++
	}
	entry{h, int64(off), int32(secs), prev}.put(f.ring[n%ringEntries*entryBytes:][:entryBytes])
	f.table[slot] = n
	f.touch(slot)
	f.count = n + 1
	f.endMillis, f.endLog = storeMillis, int64(off)
	x.endLog = int64(off)
	return nil
}

// spill writes the entries of f that only memory has. Holds mu, but not while
// it writes.
func (x *Index) spill(f *file) error {
	x.mu.Unlock()
	defer x.mu.Lock()
	return x.writeEntries(f)
}

// nextFile gives the file that takes the next entry. Holds mu, but not all the
// time.
func (x *Index) nextFile() (*file, error) {
	x.mu.Unlock()
	defer x.mu.Lock()
	if old := x.cur; old != nil { // cur is changed by the dispatcher alone, that is here
		if err := x.writeEntries(old); err != nil {
			return nil, err
		}
		x.mu.Lock()
		x.retired = append(x.retired, old)
		old.ring = nil
		x.cur = nil
		wait := len(x.retired) > retiredMax
		x.mu.Unlock()
		if wait {
			if err := x.Sweep(); err != nil {
				return nil, err
			}
		}
	}
	if f := x.newest(); f != nil && int(f.count) < x.cfg.Entries && f.table == nil {
		return f, x.reopen(f, false)
	}
	return x.create()
}

func (x *Index) newest() *file {
	if fs := *x.files.Load(); len(fs) > 0 {
		return fs[len(fs)-1]
	}
	return nil
}

// create makes the next file.
func (x *Index) create() (*file, error) {
	last := x.newest()
	name := strings.Replace(x.cfg.Now().Local().Format("20060102150405.000"), ".", "", 1)
	f := &file{header: header{count: 1}, written: 1, ringLow: 1, durable: 1}
	if last != nil {
		f.header = header{last.endMillis, last.endMillis, last.endLog, last.endLog, 0, 1}
		if base := filepath.Base(last.path); name <= base { // the clock went back, or two in one millisecond
			t, err := time.Parse("20060102150405.000", base[:14]+"."+base[14:])
			if err != nil {
				return nil, fmt.Errorf("index file %s has no time for a name: %w", last.path, err)
			}
			name = strings.Replace(t.Add(time.Millisecond).Format("20060102150405.000"), ".", "", 1)
		}
	}
	f.path = filepath.Join(x.cfg.Dir, name)
	w, err := x.fs.Open(f.path, vfs.ReadWrite|vfs.Create)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(w.Truncate(0), w.Truncate(x.cfg.fileBytes())); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	x.fdMu.Lock()
	f.f, f.users = w, 1
	x.fdMu.Unlock()
	f.allocate(x.cfg.HashSlots)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dirDirty = true
	x.setFiles(append(slices.Clone(*x.files.Load()), f))
	x.cur = f
	return f, nil
}

// allocate gives f its memory.
func (f *file) allocate(slots int) {
	pages := (slots + pageSlots - 1) / pageSlots
	f.table = make([]int32, slots)
	f.dirty = make([]uint64, (pages+63)/64)
	f.ring = make([]byte, ringEntries*entryBytes)
}

func (x *Index) setFiles(fs []*file) { x.files.Store(&fs) }

// EndLog is the log offset of the newest indexed record, durable or not; 0
// when there is none. Any goroutine.
func (x *Index) EndLog() message.LogOffset {
	x.mu.Lock()
	defer x.mu.Unlock()
	return message.LogOffset(x.endLog)
}

// SafeMillis is the store time of the last record in files that are full and
// durable, for the checkpoint's indexMsgTimestamp: Apache's broker keeps those
// files after a crash. 0 when there is none. Any goroutine.
func (x *Index) SafeMillis() int64 { return x.safe.Load() }

// RebuildFrom says from where the log must be dispatched again because Open or
// TruncateAbove set the newest file aside, or removed it as Apache's broker
// would; ok is false when they did not. To be asked before dispatch begins.
func (x *Index) RebuildFrom() (from message.LogOffset, ok bool) { return x.rebuildFrom, x.rebuild }

// Stats is what an Index holds.
type Stats struct {
	Files   int
	Entries int64
}

// Stats counts files and entries. Any goroutine.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	fs := *x.files.Load()
	st := Stats{Files: len(fs)}
	for _, f := range fs {
		st.Entries += int64(f.count - 1)
	}
	return st
}
