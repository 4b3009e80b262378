package segment

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ringmq/ringmq/internal/vfs"
)

// allocFS notes what is allocated, as the end of it in each file.
type allocFS struct {
	vfs.FS
	mu  sync.Mutex
	end map[string]int64
	err error
}

func (a *allocFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := a.FS.Open(name, flag)
	return allocFile{f, a}, err
}

type allocFile struct {
	vfs.File
	a *allocFS
}

func (f allocFile) Allocate(off, n int64) error {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	name := f.Name()[strings.LastIndexByte(f.Name(), '/')+1:]
	if f.a.err == nil {
		f.a.end[name] = max(f.a.end[name], off+n)
	}
	return f.a.err
}

func (a *allocFS) setErr(err error) {
	a.mu.Lock()
	a.err = err
	a.mu.Unlock()
}

// A set without zeros keeps room ahead of its writer, a bounded distance, and
// has some in the next segment before anyone needs it.
func TestRoomAhead(t *testing.T) {
	const big, mib = 1 << 30, 1 << 20
	a := &allocFS{FS: vfs.NewMem(), end: map[string]int64{}}
	s, err := OpenSet(a, "log", big, Options{Spare: true})
	must(t, err)
	defer s.Close(false)
	_, err = s.Next(0, 0)
	must(t, err)
	must(t, s.StartAt(0))
	if !s.HasRoom(mib) {
		t.Error("no room at the start")
	}
	resting := func(want int64) func() bool {
		return func() bool { return s.room.Load() >= want && s.claimed.Load() < s.wakeAt.Load() }
	}
	waitFor(t, s, "room of 64 MiB", resting(64*mib))
	a.mu.Lock()
	if end := a.end[Name(0)]; end > 64*mib+16*mib {
		t.Errorf("a start allocated %d bytes", end)
	}
	a.mu.Unlock()
	must(t, s.Reserve(40*mib))
	waitFor(t, s, "room of 104 MiB", resting(104*mib))
	must(t, s.Reserve(900*mib)) // far ahead of the preparer
	waitFor(t, s, "the next segment, with room", func() bool { return s.spare != nil && s.spare.room == big+16*mib })
	must(t, s.Reserve(big))
	before := a.end[Name(big)]
	seg, err := s.Next(big, 5*mib)
	must(t, err)
	if seg.Base != big || !s.HasRoom(big+5*mib) || before != 16*mib {
		t.Errorf("next at %d, room %d, allocated before %d", seg.Base, s.room.Load(), before)
	}
}

// No room: Reserve and Next say so, change nothing, tell the log once, and work
// as soon as there is some.
func TestNoRoom(t *testing.T) {
	for _, zero := range []bool{false, true} {
		a := &allocFS{FS: vfs.NewMem(), end: map[string]int64{}}
		var logged bytes.Buffer
		s, err := OpenSet(a, "log", 4<<20, Options{Zero: zero, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		must(t, err)
		seg, err := s.Next(0, 0)
		must(t, err)
		must(t, s.StartAt(0))
		a.setErr(syscall.ENOSPC)
		start := s.room.Load()
		for range 3 {
			err := s.Reserve(start + 100)
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "log/"+Name(0)) || strings.Contains(err.Error(), preparedDir) {
				t.Errorf("zero %v: %v", zero, err)
			}
		}
		if s.claimed.Load() != 0 || s.room.Load() != start {
			t.Errorf("claimed %d, room %d", s.claimed.Load(), s.room.Load())
		}
		must(t, s.Reserve(start)) // what there is can still be used
		a.setErr(vfs.ErrUnsupported)
		must(t, s.Reserve(start+100)) // sparse, as it was
		if !s.HasRoom(seg.End()) || s.HasRoom(seg.End()+1) {
			t.Errorf("room %d", s.room.Load())
		}
		if n := strings.Count(logged.String(), "appends are refused"); n != 1 || !strings.Contains(logged.String(), "appends go on") {
			t.Errorf("logged: %s", logged.String())
		}
		a.setErr(syscall.ENOSPC)
		if _, err := s.Next(4<<20, 2<<20); !errors.Is(err, syscall.ENOSPC) || s.Last() != seg {
			t.Errorf("next: %v", err)
		}
		a.setErr(nil)
		next, err := s.Next(4<<20, 2<<20)
		must(t, err)
		if next.Base != 4<<20 || !s.HasRoom(6<<20) {
			t.Errorf("next at %d, room %d", next.Base, s.room.Load())
		}
		// What is cut off has no room any more.
		must(t, s.TruncateTo(1000))
		if s.HasRoom(1001) {
			t.Error("room behind a cut")
		}
		must(t, s.StartAt(1000))
		must(t, s.Reserve(3000))
		must(t, s.Close(true))
	}
}
