package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// eachFS runs a test over every implementation, in a directory of its own.
func eachFS(t *testing.T, fn func(t *testing.T, fs FS, dir string)) {
	t.Run("OS", func(t *testing.T) { fn(t, OS(), t.TempDir()) })
	t.Run("Mem", func(t *testing.T) { fn(t, NewMem(), "/") })
	t.Run("FaultOverOS", func(t *testing.T) { fn(t, NewFault(OS()), t.TempDir()) })
	t.Run("FaultOverMem", func(t *testing.T) { fn(t, NewFault(NewMem()), ".") })
}

func open(t testing.TB, fs FS, name string, flag Flag) File {
	t.Helper()
	f, err := fs.Open(name, flag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, f File, off int64, s string) {
	t.Helper()
	if n, err := f.WriteAt([]byte(s), off); err != nil || n != len(s) {
		t.Fatalf("write %d bytes at %d: %d, %v", len(s), off, n, err)
	}
}

func content(t testing.TB, fs FS, name string) string {
	t.Helper()
	b, err := fs.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOpenFlags(t *testing.T) {
	eachFS(t, func(t *testing.T, vf FS, dir string) {
		name := filepath.Join(dir, "f")
		_, err := vf.Open(name, ReadWrite)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("open of a missing file: %v", err)
		}
		f := open(t, vf, name, ReadWrite|Create|Excl)
		write(t, f, 0, "abc")
		if _, err := vf.Open(name, ReadWrite|Create|Excl); !errors.Is(err, fs.ErrExist) {
			t.Fatalf("exclusive open of an existing file: %v", err)
		}
		if g := open(t, vf, name, ReadWrite|Create); content(t, vf, name) != "abc" {
			t.Fatalf("Create emptied %s", g.Name())
		}
		if _, err := open(t, vf, name, Read).WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EBADF) {
			t.Fatalf("write to a file opened for reading: %v", err)
		}
		if f.Name() != name {
			t.Fatalf("name %q, want %q", f.Name(), name)
		}
	})
}

func TestReadWrite(t *testing.T) {
	eachFS(t, func(t *testing.T, vf FS, dir string) {
		f := open(t, vf, filepath.Join(dir, "f"), ReadWrite|Create)
		write(t, f, 4094, "abcd") // over a page border, behind a hole
		if size, _ := f.Size(); size != 4098 {
			t.Fatalf("size %d, want 4098", size)
		}
		b := make([]byte, 6)
		if n, err := f.ReadAt(b, 4092); n != 6 || err != nil || string(b) != "\x00\x00abcd" {
			t.Fatalf("read %d %q %v", n, b, err)
		}
		if n, err := f.ReadAt(b, 4095); n != 3 || err != io.EOF || string(b[:n]) != "bcd" {
			t.Fatalf("short read %d %q %v", n, b[:n], err)
		}
		if n, err := f.ReadAt(b, 9999); n != 0 || err != io.EOF {
			t.Fatalf("read behind the end %d %v", n, err)
		}
	})
}

func TestWriteVAt(t *testing.T) {
	many := make([][]byte, 2500) // more than one pwritev takes
	var joined []byte
	for i := range many {
		many[i] = []byte(strings.Repeat(string(rune('a'+i%26)), i%7))
		joined = append(joined, many[i]...)
	}
	tests := map[string]struct {
		bufs [][]byte
		want string
	}{
		"none":  {nil, ""},
		"one":   {[][]byte{[]byte("abc")}, "abc"},
		"empty": {[][]byte{{}, []byte("ab"), {}, []byte("c"), {}}, "abc"},
		"many":  {many, string(joined)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachFS(t, func(t *testing.T, vf FS, dir string) {
				name := filepath.Join(dir, "f")
				f := open(t, vf, name, ReadWrite|Create)
				var before int
				for _, b := range tc.bufs {
					before += len(b)
				}
				must(t, f.WriteVAt(tc.bufs, 5))
				got := content(t, vf, name)
				if tc.want != "" && got != "\x00\x00\x00\x00\x00"+tc.want {
					t.Fatalf("got %d bytes %.40q…, want %d", len(got), got, len(tc.want)+5)
				}
				for _, b := range tc.bufs {
					before -= len(b)
				}
				if before != 0 {
					t.Fatal("bufs were changed")
				}
			})
		})
	}
}

func TestTruncateAndZero(t *testing.T) {
	eachFS(t, func(t *testing.T, vf FS, dir string) {
		name := filepath.Join(dir, "f")
		f := open(t, vf, name, ReadWrite|Create)
		const size = 64 << 10
		must(t, f.Truncate(size))
		full := bytes.Repeat([]byte("x"), size)
		write(t, f, 0, string(full))
		must(t, f.ZeroRange(5000, 30000))
		clear(full[5000:35000])
		if got := content(t, vf, name); got != string(full) {
			t.Fatal("ZeroRange of [5000, 35000) left something else")
		}
		must(t, f.ZeroRange(60000, 1<<20)) // over the end: the length stays
		clear(full[60000:])
		if got := content(t, vf, name); got != string(full) {
			t.Fatalf("ZeroRange over the end: %d bytes", len(got))
		}
		must(t, f.Truncate(4000))
		must(t, f.Truncate(9000))
		want := string(full[:4000]) + strings.Repeat("\x00", 5000)
		if got := content(t, vf, name); got != want {
			t.Fatal("bytes came back behind a truncation")
		}
		if err := f.Allocate(0, 1<<20); err != nil && !errors.Is(err, ErrUnsupported) {
			t.Fatal(err)
		}
		if got, _ := f.Size(); got != 9000 {
			t.Fatalf("Allocate changed the length to %d", got)
		}
		must(t, f.StartWriteback(0, 4096))
		must(t, f.StartWriteback(0, 0))
		must(t, f.SyncData())
		must(t, f.Sync())
		if res, known := f.Resident(0, 9000); known && !res {
			t.Fatal("just written and not resident")
		}
	})
}

func TestNextHole(t *testing.T) {
	eachFS(t, func(t *testing.T, vf FS, dir string) {
		f := open(t, vf, filepath.Join(dir, "f"), ReadWrite|Create)
		const size = 1 << 20
		must(t, f.Truncate(size))
		hole, err := f.NextHole(0)
		must(t, err)
		if hole == size {
			t.Skip("this file system cannot tell holes")
		}
		if hole != 0 {
			t.Fatalf("hole of a sparse file at %d", hole)
		}
		write(t, f, 0, strings.Repeat("x", 100<<10))
		must(t, f.Sync())
		hole, err = f.NextHole(1000)
		must(t, err)
		if hole < 100<<10 || hole > 128<<10 {
			t.Fatalf("hole at %d, want just behind %d", hole, 100<<10)
		}
		must(t, f.ZeroRange(64<<10, size-64<<10))
		must(t, f.Sync())
		hole, err = f.NextHole(0)
		must(t, err)
		if hole < 64<<10 || hole > 68<<10 {
			t.Fatalf("hole at %d after zeroing from %d", hole, 64<<10)
		}
	})
}

func TestNames(t *testing.T) {
	eachFS(t, func(t *testing.T, vf FS, dir string) {
		sub := filepath.Join(dir, "a", "b")
		must(t, MkdirAllSync(vf, sub))
		must(t, vf.MkdirAll(sub))
		for _, n := range []string{"2", "10", "1"} {
			write(t, open(t, vf, filepath.Join(sub, n), ReadWrite|Create), 0, n)
		}
		must(t, vf.MkdirAll(filepath.Join(sub, "d")))
		des, err := vf.ReadDir(sub)
		must(t, err)
		got := ""
		for _, de := range des {
			got += fmt.Sprintf("%s %v %d;", de.Name, de.IsDir, de.Size)
		}
		if want := "1 false 1;10 false 2;2 false 1;d true 0;"; got != want {
			t.Fatalf("ReadDir %q, want %q", got, want)
		}
		if err := vf.Remove(sub); err == nil {
			t.Fatal("a directory that is not empty was removed")
		}
		f := open(t, vf, filepath.Join(sub, "2"), ReadWrite)
		must(t, vf.Rename(filepath.Join(sub, "1"), filepath.Join(sub, "2")))
		must(t, vf.SyncDir(sub))
		if got := content(t, vf, filepath.Join(sub, "2")); got != "1" {
			t.Fatalf("renamed file holds %q", got)
		}
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, 0); err != nil || b[0] != '2' {
			t.Fatalf("an open file changed when its name was taken: %q %v", b, err)
		}
		must(t, vf.Rename(filepath.Join(sub, "10"), filepath.Join(sub, "d", "x")))
		if _, err := vf.Stat(filepath.Join(sub, "10")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("old name after rename: %v", err)
		}
		must(t, vf.Remove(filepath.Join(sub, "2")))
		if err := vf.Remove(filepath.Join(sub, "2")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("removed twice: %v", err)
		}
		in, err := vf.Stat(filepath.Join(sub, "d", "x"))
		if err != nil || in.Size != 2 || in.IsDir || in.Name != "x" {
			t.Fatalf("stat %+v %v", in, err)
		}
		must(t, vf.Remove(filepath.Join(sub, "d", "x")))
		must(t, vf.Remove(filepath.Join(sub, "d")))
	})
}

func TestWriteFileAtomic(t *testing.T) {
	eachFS(t, func(t *testing.T, vf FS, dir string) {
		name := filepath.Join(dir, "t.json")
		for _, data := range []string{"a long first version", "short", ""} {
			must(t, vf.WriteFileAtomic(name, []byte(data)))
			if got := content(t, vf, name); got != data {
				t.Fatalf("got %q, want %q", got, data)
			}
		}
		if _, err := vf.Stat(name + ".tmp"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the temporary file is left: %v", err)
		}
	})
}

func TestLock(t *testing.T) {
	eachFS(t, func(t *testing.T, vf FS, dir string) {
		name := filepath.Join(dir, "lock")
		l, err := vf.Lock(name)
		must(t, err)
		if _, err := vf.Lock(name); !errors.Is(err, ErrLocked) {
			t.Fatalf("second lock in one process: %v", err)
		}
		// Opening and closing the file does not drop it, as it would a classic one.
		f, err := vf.Open(name, ReadWrite)
		must(t, err)
		must(t, f.Close())
		if _, err := vf.Lock(name); !errors.Is(err, ErrLocked) {
			t.Fatalf("lock lost by closing another descriptor: %v", err)
		}
		must(t, l.Close())
		l, err = vf.Lock(name)
		must(t, err)
		if got := content(t, vf, name); got != "lock" {
			t.Fatalf("lock file holds %q", got)
		}
		must(t, l.Close())
	})
}

func TestUsage(t *testing.T) {
	eachFS(t, func(t *testing.T, vf FS, dir string) {
		total, free, err := vf.Usage(dir)
		if errors.Is(err, ErrUnsupported) {
			return
		}
		if err != nil || total <= 0 || free <= 0 || free > total {
			t.Fatalf("total %d free %d: %v", total, free, err)
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	eachFS(t, func(t *testing.T, vf FS, dir string) {
		f := open(t, vf, filepath.Join(dir, "f"), ReadWrite|Create)
		must(t, f.Truncate(1<<20))
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				b := bytes.Repeat([]byte{byte('a' + g)}, 3000)
				for i := range 20 {
					off := int64(g*200_000 + i*3000)
					if _, err := f.WriteAt(b, off); err != nil {
						t.Error(err)
					}
					got := make([]byte, 3000)
					if _, err := f.ReadAt(got, off); err != nil || !bytes.Equal(got, b) {
						t.Errorf("goroutine %d read back something else: %v", g, err)
					}
					if i%5 == 0 {
						if err := f.SyncData(); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
	})
}
