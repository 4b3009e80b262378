package flush

import (
	"bytes"
	"errors"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringmq/ringmq/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, fs vfs.FS, dir, name string) vfs.File {
	t.Helper()
	f, err := fs.Open(filepath.Join(dir, name), vfs.ReadWrite|vfs.Create)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func content(t testing.TB, fs vfs.FS, dir, name string) []byte {
	t.Helper()
	b, err := fs.ReadFile(filepath.Join(dir, name))
	must(t, err)
	return b
}

// pieces makes n buffers of differing lengths and their joined bytes.
func pieces(n int) (bufs [][]byte, joined []byte) {
	for i := range n {
		b := bytes.Repeat([]byte{byte(i)}, i%50)
		bufs = append(bufs, b)
		joined = append(joined, b...)
	}
	return bufs, joined
}

// Both engines pass the same tests, over files with descriptors and without.
func eachDevice(t *testing.T, fn func(t *testing.T, d Device, fs vfs.FS, dir string)) {
	for name, d := range devices(t) {
		t.Run(name+"/OS", func(t *testing.T) { fn(t, d, vfs.OS(), t.TempDir()) })
		t.Run(name+"/Mem", func(t *testing.T) { fn(t, d, vfs.NewMem(), ".") })
		t.Run(name+"/Fault", func(t *testing.T) { fn(t, d, vfs.NewFault(vfs.OS()), t.TempDir()) })
		t.Run(name+"/Switch", func(t *testing.T) { fn(t, &Switch{dev: d}, vfs.OS(), t.TempDir()) })
	}
}

func TestDeviceWrites(t *testing.T) {
	eachDevice(t, func(t *testing.T, d Device, fs vfs.FS, dir string) {
		for _, n := range []int{0, 1, 2, 64, 1024, 3000} {
			bufs, want := pieces(n)
			f := create(t, fs, dir, "f")
			must(t, f.Truncate(0))
			must(t, d.WriteV(f, bufs, 0))
			must(t, d.WriteV(f, [][]byte{[]byte("behind")}, int64(len(want))))
			must(t, d.Sync([]vfs.File{f}))
			if got := content(t, fs, dir, "f"); !bytes.Equal(got, append(want, "behind"...)) {
				t.Fatalf("%d buffers: %d bytes, want %d", n, len(got), len(want)+6)
			}
			if again, _ := pieces(n); len(again) != len(bufs) || n > 0 && !bytes.Equal(again[n-1], bufs[n-1]) {
				t.Fatal("bufs were changed")
			}
		}
	})
}

func TestDeviceSyncsManyFiles(t *testing.T) {
	eachDevice(t, func(t *testing.T, d Device, fs vfs.FS, dir string) {
		var files []vfs.File
		for i := range 3*DefaultRingEntries + 1 {
			f := create(t, fs, dir, string(rune('A'+i)))
			must(t, d.WriteV(f, [][]byte{[]byte("abc")}, 0))
			files = append(files, f)
		}
		must(t, fs.SyncDir(dir))
		must(t, d.Sync(files))
		must(t, d.Sync(nil))
		m, ok := fs.(*vfs.Mem)
		if !ok {
			return
		}
		c := m.CrashClone(vfs.CrashPolicy{}, nil)
		for i := range files {
			if got := content(t, c, dir, string(rune('A'+i))); string(got) != "abc" {
				t.Fatalf("file %d was not synced: %q", i, got)
			}
		}
	})
}

// One goroutine writes while another syncs, as the log's do.
func TestDeviceOverlap(t *testing.T) {
	eachDevice(t, func(t *testing.T, d Device, fs vfs.FS, dir string) {
		f := create(t, fs, dir, "f")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := d.Sync([]vfs.File{f}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		var want []byte
		for range 300 {
			bufs, joined := pieces(20)
			if err := d.WriteV(f, bufs, int64(len(want))); err != nil {
				t.Error(err)
			}
			want = append(want, joined...)
		}
		close(stop)
		wg.Wait()
		if !bytes.Equal(content(t, fs, dir, "f"), want) {
			t.Fatal("the file holds something else")
		}
	})
}

func TestDeviceErrors(t *testing.T) {
	eachDevice(t, func(t *testing.T, d Device, fs vfs.FS, dir string) {
		create(t, fs, dir, "f")
		ro, err := fs.Open(filepath.Join(dir, "f"), vfs.Read)
		must(t, err)
		defer ro.Close()
		if err := d.WriteV(ro, [][]byte{[]byte("x"), []byte("y")}, 0); !errors.Is(err, syscall.EBADF) {
			t.Fatalf("write to a file opened for reading: %v", err)
		}
		f, ok := fs.(*vfs.Fault)
		if !ok {
			return
		}
		f.FailAt(vfs.OpWrite, 0, syscall.ENOSPC)
		f.FailAt(vfs.OpSync, 1, syscall.EIO)
		g := create(t, fs, dir, "g")
		if err := d.WriteV(g, [][]byte{[]byte("x")}, 0); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("write to a full disk: %v", err)
		}
		before := f.Count(vfs.OpSync)
		if err := d.Sync([]vfs.File{g, g, g}); !errors.Is(err, syscall.EIO) {
			t.Fatalf("failed sync: %v", err)
		}
		if n := f.Count(vfs.OpSync) - before; n != 2 {
			t.Fatalf("%d syncs were asked for, want 2: the failed one is not tried again", n)
		}
	})
}

func TestSwitchUnderLoad(t *testing.T) {
	ds := devices(t)
	s := &Switch{dev: keepOpen{ds[EngineSyscall]}}
	dir := t.TempDir()
	f := create(t, vfs.OS(), dir, "f")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Sync([]vfs.File{f}); err != nil {
				t.Error(err)
			}
		}
	})
	var want []byte
	for i := range 60 {
		bufs, joined := pieces(9)
		must(t, s.WriteV(f, bufs, int64(len(want))))
		want = append(want, joined...)
		if i%10 == 0 {
			for _, d := range ds {
				must(t, s.Use(keepOpen{d}))
				if s.Name() != d.Name() {
					t.Errorf("in use %s, want %s", s.Name(), d.Name())
				}
			}
		}
	}
	close(stop)
	wg.Wait()
	if !bytes.Equal(content(t, vfs.OS(), dir, "f"), want) {
		t.Fatal("bytes were lost in a switch")
	}
}

type keepOpen struct{ Device }

func (keepOpen) Close() error { return nil }

func TestDeviceAllocates(t *testing.T) {
	for name, d := range devices(t) {
		f := create(t, vfs.OS(), t.TempDir(), "f")
		bufs, _ := pieces(40)
		files := []vfs.File{f}
		if n := testing.AllocsPerRun(50, func() {
			if d.WriteV(f, bufs, 0) != nil || d.Sync(files) != nil {
				t.Fail()
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a group, want 0", name, n)
		}
	}
}
