package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringmq/ringmq/internal/vfs"
)

const size = 16 << 10

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openSet(t testing.TB, fs vfs.FS, dir string, opt Options) *Set {
	t.Helper()
	s, err := OpenSet(fs, dir, size, opt)
	must(t, err)
	t.Cleanup(func() { s.Close(false) })
	return s
}

// fill appends data at off as a writer does, taking segments as needed.
func fill(t testing.TB, s *Set, off int64, data []byte) {
	t.Helper()
	for len(data) > 0 {
		if off == s.End() {
			_, err := s.Next(off, 0)
			must(t, err)
		}
		last := s.Last()
		n := min(int64(len(data)), last.End()-off)
		must(t, s.Reserve(off+n))
		_, err := last.File().WriteAt(data[:n], off-last.Base)
		must(t, err)
		must(t, last.File().SyncData())
		data, off = data[n:], off+n
	}
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*3 + byte(i>>8) + seed | 1 // never zero
	}
	return b
}

func names(t testing.TB, fs vfs.FS, dir string) string {
	t.Helper()
	des, err := fs.ReadDir(dir)
	must(t, err)
	var out []string
	for _, de := range des {
		n := strings.TrimLeft(de.Name, "0")
		if de.IsDir {
			n += "/"
		}
		out = append(out, n)
	}
	return strings.Join(out, " ")
}

func TestParseName(t *testing.T) {
	tests := map[string]struct {
		base int64
		ok   bool
	}{
		"00000000000000000000":  {0, true},
		"00000000001073741824":  {1 << 30, true},
		"1073741824":            {0, false},
		"000000000010737418240": {0, false},
		"0000000000107374182x":  {0, false},
		"-0000000000000000001":  {0, false},
		"99999999999999999999":  {0, false},
		"":                      {0, false},
	}
	for name, tc := range tests {
		base, ok := ParseName(name)
		if ok != tc.ok || ok && base != tc.base {
			t.Errorf("%q: %d %v, want %d %v", name, base, ok, tc.base, tc.ok)
		}
		if ok && Name(base) != name {
			t.Errorf("Name(%d) = %q, want %q", base, Name(base), name)
		}
	}
}

func TestReadAcrossSegments(t *testing.T) {
	for i, opt := range []Options{{}, {Spare: true}, {Zero: true, Spare: true}, {}, {Zero: true, Spare: true}} {
		t.Run(fmt.Sprintf("zero %v spare %v", opt.Zero, opt.Spare), func(t *testing.T) {
			fs, dir := vfs.FS(vfs.NewMem()), "log"
			if i > 2 {
				fs, dir = vfs.OS(), filepath.Join(t.TempDir(), "log")
			}
			s := openSet(t, fs, dir, opt)
			if s.Find(0) != nil || s.Min() != 0 || s.End() != 0 {
				t.Fatal("an empty set has something")
			}
			want := pattern(3*size+100, 0)
			fill(t, s, 0, want)
			got := make([]byte, len(want))
			if n, err := s.ReadAt(got, 0); err != nil || n != len(want) || !bytes.Equal(got, want) {
				t.Fatalf("read %d: %v", n, err)
			}
			if n, err := s.ReadAt(got[:200], 4*size-100); err != io.EOF || n != 100 {
				t.Fatalf("read over the end: %d %v", n, err)
			}
			seg := s.Find(2*size + 5)
			if seg == nil || seg.Base != 2*size {
				t.Fatalf("found %+v", seg)
			}
			seg.Release()
			must(t, s.Close(true))
			if got := names(t, fs, dir); got != fmt.Sprintf(" %d %d %d", size, 2*size, 3*size) {
				t.Fatalf("after a clean close: %q", got)
			}
		})
	}
}

func TestLoadRules(t *testing.T) {
	tests := map[string]struct {
		files map[string]int // name to length
		dirs  []string
		err   string // part of the error; "" is none
		list  string // bases, where there is none
		left  string // names in the directory afterwards
	}{
		"empty":                      {list: "[]"},
		"in order":                   {files: map[string]int{Name(0): size, Name(size): size}, list: "[0 16384]", left: " 16384"},
		"first is not 0":             {files: map[string]int{Name(3 * size): size}, list: "[49152]", left: "49152"},
		"sub-directories skipped":    {files: map[string]int{Name(0): size}, dirs: []string{"x", Name(size)}, list: "[0]", left: " 16384/ x/"},
		"stray files skipped":        {files: map[string]int{Name(0): size, "core.17": 5, "1": size}, list: "[0]", left: " 1 core.17"},
		"empty last removed":         {files: map[string]int{Name(0): size, Name(size): 0}, list: "[0]", left: ""},
		"empty only removed":         {files: map[string]int{Name(0): 0}, list: "[]", left: ""},
		"empty in the middle":        {files: map[string]int{Name(0): 0, Name(size): size}, err: filepath.Join("log", Name(0)) + " is 0 bytes long, want 16384"},
		"wrong length":               {files: map[string]int{Name(0): size, Name(size): 77}, err: filepath.Join("log", Name(size)) + " is 77 bytes long, want 16384"},
		"missing in the middle":      {files: map[string]int{Name(0): size, Name(2 * size): size}, err: filepath.Join("log", Name(size)) + " is missing"},
		"overlapping":                {files: map[string]int{Name(0): size, Name(100): size}, err: "starts inside"},
		"left in prepared":           {files: map[string]int{Name(0): size, "prepared/" + Name(size): 100}, list: "[0]", left: ""},
		"a stranger in prepared":     {files: map[string]int{Name(0): size, "prepared/notes": 100}, list: "[0]", left: " prepared/"},
		"prepared and nothing in it": {files: map[string]int{Name(0): size}, dirs: []string{"prepared"}, list: "[0]", left: ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			must(t, fs.MkdirAll("log"))
			for _, d := range tc.dirs {
				must(t, fs.MkdirAll(filepath.Join("log", d)))
			}
			for n, l := range tc.files {
				n = filepath.Join("log", n)
				must(t, fs.MkdirAll(filepath.Dir(n)))
				f, err := fs.Open(n, vfs.ReadWrite|vfs.Create)
				must(t, err)
				must(t, f.Truncate(int64(l)))
				must(t, f.Close())
			}
			var logged bytes.Buffer
			s, err := OpenSet(fs, "log", size, Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want %q in it", err, tc.err)
				}
				return
			}
			must(t, err)
			defer s.Close(false)
			var bases []int64
			for _, seg := range s.Segments() {
				bases = append(bases, seg.Base)
			}
			if got := fmt.Sprint(bases); got != tc.list {
				t.Fatalf("loaded %s, want %s", got, tc.list)
			}
			if got := names(t, fs, "log"); got != tc.left {
				t.Fatalf("left %q, want %q", got, tc.left)
			}
			if strings.Contains(name, "stray") && !strings.Contains(logged.String(), "core.17") {
				t.Fatalf("the stray file is not named in the log: %s", logged.String())
			}
		})
	}
}

func TestTruncateTo(t *testing.T) {
	tests := map[string]struct {
		to   int64
		list string
	}{
		"inside the last":       {3*size + 50, "[0 16384 32768 49152]"},
		"inside an earlier":     {size + 7, "[0 16384]"},
		"at a border":           {2 * size, "[0 16384 32768]"},
		"at the end":            {4 * size, "[0 16384 32768 49152]"},
		"to the start":          {0, "[0]"},
		"below the first":       {-1, "[]"},
		"behind what is there":  {3*size + 200, "[0 16384 32768 49152]"},
		"one byte of a segment": {size + 1, "[0 16384]"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			s := openSet(t, fs, "log", Options{Zero: true, Spare: true})
			data := pattern(3*size+100, 0)
			fill(t, s, 0, data)
			must(t, s.TruncateTo(tc.to))
			check := func(s *Set) {
				t.Helper()
				var bases []int64
				for _, seg := range s.Segments() {
					bases = append(bases, seg.Base)
				}
				if got := fmt.Sprint(bases); got != tc.list {
					t.Fatalf("left %s, want %s", got, tc.list)
				}
				if len(bases) == 0 {
					return
				}
				got := make([]byte, s.End())
				_, err := s.ReadAt(got, 0)
				must(t, err)
				want := make([]byte, s.End())
				copy(want, data[:min(int(max(tc.to, 0)), len(data))])
				if !bytes.Equal(got, want) {
					t.Fatal("bytes behind the cut are not zero, or bytes before it are gone")
				}
			}
			check(s)
			// All of it is durable at once.
			c := openSet(t, fs.CrashClone(vfs.CrashPolicy{}, nil), "log", Options{})
			check(c)
			must(t, c.Close(true))
			// And the writer can go on.
			if to := max(tc.to, 0); to <= int64(len(data)) {
				fill(t, s, max(to, s.Min()), pattern(2*size, 9))
			}
		})
	}
}

func TestDeleteUnderReaders(t *testing.T) {
	fs := vfs.NewMem()
	s := openSet(t, fs, "log", Options{})
	data := pattern(5*size, 0)
	fill(t, s, 0, data)
	held := s.Find(10)
	for _, step := range []struct {
		off        int64
		max, wants int
	}{{size - 1, 9, 0}, {size, 9, 1}, {4 * size, 2, 2}, {99 * size, 9, 1}} {
		n, err := s.DeleteBefore(step.off, step.max)
		if err != nil || n != step.wants {
			t.Fatalf("DeleteBefore(%d, %d) = %d, %v, want %d", step.off, step.max, n, err, step.wants)
		}
	}
	if s.Min() != 4*size || s.Find(10) != nil {
		t.Fatalf("min %d", s.Min())
	}
	got := make([]byte, 100)
	if _, err := held.File().ReadAt(got, 10); err != nil || !bytes.Equal(got, data[10:110]) {
		t.Fatalf("a held segment cannot be read: %v", err)
	}
	if _, err := s.ReadAt(got, 10); !errors.Is(err, ErrGone) {
		t.Fatalf("read of what is gone: %v", err)
	}
	held.Release()
	if held.Acquire() {
		t.Fatal("acquired after the last release")
	}
	if _, err := held.File().ReadAt(got, 0); err == nil {
		t.Fatal("the file is open after the last release")
	}
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "BUG: ") {
			t.Fatalf("released too often: %v", r)
		}
	}()
	held.Release()
}

// The writer runs as fast as it can against the preparer's zeros: no byte of
// its own may become zero, whoever is ahead.
func TestZerosNeverHitTheWriter(t *testing.T) {
	t.Run("Mem", func(t *testing.T) { zerosAndWriter(t, vfs.NewMem(), "log") })
	t.Run("OS", func(t *testing.T) { zerosAndWriter(t, vfs.OS(), t.TempDir()) })
}

func zerosAndWriter(t *testing.T, fs vfs.FS, dir string) {
	const big = 4 << 20
	s, err := OpenSet(fs, dir, big, Options{Zero: true, Spare: true, AheadBytes: 1 << 20})
	must(t, err)
	defer s.Close(false)
	_, err = s.Next(0, 0)
	must(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	data := pattern(3*big, 0)
	for off := int64(0); off < int64(len(data)); {
		if off == s.End() {
			_, err := s.Next(off, 0)
			must(t, err)
		}
		last := s.Last()
		n := min(int64(1+rng.IntN(20_000)), last.End()-off)
		must(t, s.Reserve(off+n))
		_, err := last.File().WriteAt(data[off:off+n], off-last.Base)
		must(t, err)
		off += n
	}
	got := make([]byte, len(data))
	_, err = s.ReadAt(got, 0)
	must(t, err)
	if !bytes.Equal(got, data) {
		for i := range got {
			if got[i] != data[i] {
				t.Fatalf("byte %d is %d, want %d", i, got[i], data[i])
			}
		}
	}
}

// waitFor waits for the preparer to be at rest.
func waitFor(t testing.TB, s *Set, what string, cond func() bool) {
	t.Helper()
	for range 5000 {
		s.mu.Lock()
		ok := cond()
		s.mu.Unlock()
		if ok {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never seen: %s", what)
}

func TestSpareIsMadeAheadAndZeroed(t *testing.T) {
	const big = 4 << 20
	f := vfs.NewFault(vfs.NewMem())
	s, err := OpenSet(f, "log", big, Options{Zero: true, Spare: true})
	must(t, err)
	defer s.Close(false)
	_, err = s.Next(0, 0)
	must(t, err)
	must(t, s.Reserve(100))
	waitFor(t, s, "the first segment zeroed whole", func() bool { return s.zeroed == big && s.spare == nil })
	must(t, s.Reserve(big/2+1))
	waitFor(t, s, "the next segment made", func() bool { return s.spare != nil })
	if got := names(t, f, "log"); got != fmt.Sprintf(" %d prepared/", big) {
		t.Fatalf("names %q", got)
	}
	before := f.Count(vfs.OpChange)
	seg, err := s.Next(big, 0)
	must(t, err)
	if n := f.Count(vfs.OpChange) - before; n != 0 || seg.Base != big {
		t.Fatalf("taking the spare took %d operations", n)
	}
}

func TestUnusedSpare(t *testing.T) {
	for _, clean := range []bool{true, false} {
		fs := vfs.NewMem()
		s := openSet(t, fs, "log", Options{Spare: true})
		fill(t, s, 0, pattern(size/2+1, 0))
		waitFor(t, s, "the spare", func() bool { return s.spare != nil })
		must(t, s.Close(clean))
		want := ""
		if !clean {
			want = fmt.Sprintf(" %d", size)
		}
		got := names(t, fs, "log")
		if !clean {
			got = strings.TrimSuffix(got, " prepared/")
		}
		if got != want {
			t.Fatalf("clean %v leaves %q, want %q", clean, got, want)
		}
		// What an unclean end leaves is cut off by recovery.
		r := openSet(t, fs, "log", Options{Spare: true})
		must(t, r.TruncateTo(size/2+1))
		if len(r.Segments()) != 1 {
			t.Fatalf("%d segments after recovery", len(r.Segments()))
		}
		fill(t, r, size/2+1, pattern(size, 1))
	}
}

// A crash at any moment of making, cutting and deleting leaves a set that
// opens, with everything that was synced in it.
func TestCrashAnywhere(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		fs := vfs.NewMem()
		f := vfs.NewFault(fs)
		f.FailAt(vfs.OpChange, rng.IntN(120), syscall.EIO) // somewhere the run ends
		min, durable := int64(0), int64(0)
		data := pattern(20*size, byte(seed))
		func() {
			s, err := OpenSet(f, "log", size, Options{Zero: seed%2 == 0, Spare: seed%3 == 0, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return
			}
			defer s.Close(false)
			for durable < int64(len(data)) {
				if durable == s.End() {
					if _, err := s.Next(durable, 0); err != nil {
						return
					}
				}
				last := s.Last()
				n := int64(1 + rng.IntN(size))
				if durable+n > last.End() {
					n = last.End() - durable
				}
				if s.Reserve(durable+n) != nil {
					return
				}
				if _, err := last.File().WriteAt(data[durable:durable+n], durable-last.Base); err != nil {
					return
				}
				if last.File().SyncData() != nil {
					return
				}
				durable += n
				if rng.IntN(8) == 0 {
					if _, err := s.DeleteBefore(durable-2*size, 1); err != nil {
						min = s.Min() // the removal may have come to pass, or not
						return
					}
					min = s.Min()
				}
			}
		}()
		c := fs.CrashClone(vfs.CrashPolicy{Data: vfs.Torn, Entries: vfs.Torn}, rng)
		r, err := OpenSet(c, "log", size, Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, c)
		}
		if durable > 0 {
			if r.Min() > min || r.End() < durable {
				t.Fatalf("seed %d: [%d, %d) is there, want [%d, %d)", seed, r.Min(), r.End(), min, durable)
			}
			got := make([]byte, durable-min)
			if _, err := r.ReadAt(got, min); err != nil || !bytes.Equal(got, data[min:durable]) {
				t.Fatalf("seed %d: synced bytes are gone: %v", seed, err)
			}
			must(t, r.TruncateTo(durable))
		}
		must(t, r.Close(true))
	}
}

// A full disk while a segment is made: the set goes on when there is room, and
// nothing half made stays in the way.
func TestFullDisk(t *testing.T) {
	for i := 0; ; i++ {
		fs := vfs.NewMem()
		f := vfs.NewFault(fs)
		s, err := OpenSet(f, "log", size, Options{Zero: true})
		must(t, err)
		fill(t, s, 0, pattern(size, 0))
		f.FailAt(vfs.OpChange, i, syscall.ENOSPC)
		_, err = s.Next(size, 0)
		if err == nil {
			f.Clear()
			must(t, s.Close(true))
			if i < 6 {
				t.Fatalf("operation %d failing went unnoticed", i)
			}
			return
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		if len(s.Segments()) != 1 {
			t.Fatalf("operation %d failed and left %d segments", i, len(s.Segments()))
		}
		f.Clear()
		if _, err := s.Next(size, 0); err != nil {
			t.Fatalf("after operation %d failed once: %v", i, err)
		}
		fill(t, s, size, pattern(10, 1))
		must(t, s.Close(true))
	}
}

func TestManyReaders(t *testing.T) {
	fs := vfs.NewMem()
	s := openSet(t, fs, "log", Options{Spare: true})
	data := pattern(40*size, 0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, 2))
			buf := make([]byte, 100)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if l := s.Segments(); len(l) > 0 { // one moment: Min and End move apart
					off := l[0].Base + rng.Int64N(int64(len(l))*size)
					if seg := s.Find(off); seg != nil {
						if _, err := seg.File().ReadAt(buf, off-seg.Base); err != nil && err != io.EOF {
							t.Error(err)
						}
						seg.Release()
					}
				}
			}
		})
	}
	for off := int64(0); off < int64(len(data)); off += size / 2 {
		fill(t, s, off, data[off:off+size/2])
		_, err := s.DeleteBefore(off-3*size, 2)
		must(t, err)
	}
	close(stop)
	wg.Wait()
}
