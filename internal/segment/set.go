package segment

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ringmq/ringmq/internal/vfs"
)

// Defaults of Options.
const (
	DefaultAheadBytes = 64 << 20
	preparedDir       = "prepared"
)

// Options of a Set.
type Options struct {
	// Zero fills segments with written zeros, ahead of the writer: a durable
	// append then changes no block map, and its sync no journal (2,950 against
	// 1,730 syncs a second). Without it room is allocated ahead of the writer
	// and the rest of a segment is sparse, as Apache's is.
	Zero bool
	// Spare makes the next segment in the background, ahead of need, and
	// starts the preparer goroutine. Zero needs it for anything but the first
	// megabyte.
	Spare bool
	// AheadBytes is how far zeros, or room, are kept ahead of the writer inside
	// the segment being written; default 64 MiB.
	AheadBytes int64
	// Logger takes what was skipped or removed; default slog.Default.
	Logger *slog.Logger
}

// Set is a directory of adjacent segments. See the package comment for who may
// call what.
type Set struct {
	fs   vfs.FS
	dir  string
	size int64
	opt  Options

	list atomic.Pointer[[]*Segment] // by Base, adjacent; replaced, never changed

	// claimed is the end of what the writer may have written (Reserve).
	// fence is where the preparer is writing zeros now, or MaxInt64. Each side
	// stores its own before it loads the other's, so one of them sees both.
	claimed atomic.Int64
	fence   atomic.Int64
	// wakeAt is the claim at which the preparer has work again.
	wakeAt atomic.Int64
	// room is that of the last segment, for the writer; set under mu.
	room atomic.Int64

	// mu is held by every structural change, and by the preparer for one step
	// at a time, I/O included: waiting for mu is waiting for that step.
	mu      sync.Mutex
	spare   *Segment // made and in place, not yet in list
	making  *making  // being made, in prepared
	zeroed  int64    // zeros are written up to here in the last segment
	warmed  int64    // and are known to be in the page cache up to here
	zeroing vfs.File // the last segment, opened once more for that; may be nil
	probed  bool     // zeroed counts what an earlier run has written
	warming []byte   // what warm reads into; made when it is first needed
	closed  bool
	lacking bool // the last time the writer needed room there was none

	overtaken int64 // times the writer waited for a step

	kick chan struct{}
	done chan struct{} // closed when the preparer has ended
	stop chan struct{}
}

// OpenSet opens the segments in dir, made when missing, each size bytes long.
// Sub-directories are skipped; so are files whose names are no segment's, each
// with a log line; a last file of length 0 is removed (a crash while it was
// made), and so is what a crash left in "prepared". A file of another length
// and a missing segment in the middle are errors that name it. Blocks on the
// disk.
func OpenSet(fs vfs.FS, dir string, size int64, opt Options) (*Set, error) {
	if size <= 0 {
		return nil, fmt.Errorf("segment: size %d of %s: want more than 0", size, dir)
	}
	if opt.AheadBytes <= 0 {
		opt.AheadBytes = DefaultAheadBytes
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	s := &Set{fs: fs, dir: dir, size: size, opt: opt,
		kick: make(chan struct{}, 1), done: make(chan struct{}), stop: make(chan struct{})}
	s.fence.Store(math.MaxInt64)
	s.wakeAt.Store(math.MinInt64)
	if err := vfs.MkdirAllSync(fs, dir); err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	if err := s.clearPrepared(); err != nil {
		return nil, err
	}
	list, err := s.load()
	if err != nil {
		for _, seg := range list {
			seg.Release()
		}
		return nil, err
	}
	s.list.Store(&list)
	if opt.Spare {
		go s.prepare()
	} else {
		close(s.done)
	}
	return s, nil
}

// load opens every segment file of the directory.
func (s *Set) load() ([]*Segment, error) {
	des, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	files := des[:0]
	for _, de := range des {
		if de.IsDir {
			continue
		}
		if _, ok := ParseName(de.Name); !ok {
			s.opt.Logger.Warn("file skipped: its name is no segment's", "file", filepath.Join(s.dir, de.Name))
			continue
		}
		files = append(files, de) // ReadDir sorts, and 20 digits sort as numbers
	}
	if n := len(files); n > 0 && files[n-1].Size == 0 {
		name := filepath.Join(s.dir, files[n-1].Name)
		s.opt.Logger.Warn("empty last segment removed", "file", name)
		if err := s.removeFile(name); err != nil {
			return nil, err
		}
		files = files[:n-1]
	}
	var list []*Segment
	for _, de := range files {
		name := filepath.Join(s.dir, de.Name)
		base, _ := ParseName(de.Name)
		if de.Size != s.size {
			return list, fmt.Errorf("segment: %s is %d bytes long, want %d", name, de.Size, s.size)
		}
		if n := len(list); n > 0 && list[n-1].End() != base {
			want := list[n-1].End()
			if base < want {
				return list, fmt.Errorf("segment: %s starts inside %s", name, list[n-1].name)
			}
			return list, fmt.Errorf("segment: %s is missing between %s and %s",
				filepath.Join(s.dir, Name(want)), list[n-1].name, name)
		}
		f, err := s.fs.Open(name, vfs.ReadWrite)
		if err != nil {
			return list, fmt.Errorf("segment: %w", err)
		}
		list = append(list, newSegment(f, name, base, s.size))
	}
	return list, nil
}

// removeFile removes a name for good.
func (s *Set) removeFile(name string) error {
	if err := s.fs.Remove(name); err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	if err := s.fs.SyncDir(filepath.Dir(name)); err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	return nil
}

// Segments is the list now, by Base. It must not be changed, and a segment of
// it may be used only after Acquire. Any goroutine.
func (s *Set) Segments() []*Segment { return *s.list.Load() }

// SegmentBytes is the size of every segment.
func (s *Set) SegmentBytes() int64 { return s.size }

// First is the oldest segment, not acquired, or nil when the Set is empty.
func (s *Set) First() *Segment {
	if l := s.Segments(); len(l) > 0 {
		return l[0]
	}
	return nil
}

// Last is the newest segment, not acquired, or nil when the Set is empty.
func (s *Set) Last() *Segment {
	if l := s.Segments(); len(l) > 0 {
		return l[len(l)-1]
	}
	return nil
}

// Min is the position of the first byte there is; 0 when the Set is empty.
func (s *Set) Min() int64 {
	if seg := s.First(); seg != nil {
		return seg.Base
	}
	return 0
}

// End is the position behind the last segment; 0 when the Set is empty. It says
// nothing about how much is written.
func (s *Set) End() int64 {
	if seg := s.Last(); seg != nil {
		return seg.End()
	}
	return 0
}

// Find gives the segment that holds off, acquired: the caller releases it. nil
// when there is none. Any goroutine; does not block.
func (s *Set) Find(off int64) *Segment {
	l := s.Segments()
	if len(l) == 0 || off < l[0].Base {
		return nil
	}
	i := (off - l[0].Base) / s.size
	if i >= int64(len(l)) || !l[i].Acquire() {
		return nil
	}
	return l[i]
}

// ReadAt reads the bytes at position off, over segment borders. At the end of
// the last segment it gives what there is and io.EOF; ErrGone when off lies
// before the first. Any goroutine; blocks on the disk.
func (s *Set) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		seg := s.Find(off)
		if seg == nil {
			if off >= s.End() && off >= s.Min() {
				return done, io.EOF
			}
			return done, fmt.Errorf("%w: %d, the first is %d", ErrGone, off, s.Min())
		}
		at := off - seg.Base
		want := min(int64(len(p)-done), s.size-at)
		n, err := seg.file.ReadAt(p[done:done+int(want)], at)
		seg.Release()
		done += n
		off += int64(n)
		if err != nil && !(err == io.EOF && int64(n) == want) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF // the file is shorter than a segment
			}
			return done, fmt.Errorf("segment: read %s at %d: %w", seg.name, at, err)
		}
	}
	return done, nil
}

// ErrGone is returned for positions below the first segment.
var ErrGone = errors.New("segment: position is no longer there")
