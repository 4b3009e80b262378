package engine

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ringmq/ringmq/internal/vfs"
)

// TestDiskFullForReal fills a file system of 4 MiB. Where mounting one is not
// permitted it is the model's turn once more, in that size.
func TestDiskFullForReal(t *testing.T) {
	dir := t.TempDir()
	mount := syscall.Mount("ringmq-test", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "size=4m")
	if mount == nil {
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
	} else {
		t.Logf("no tmpfs (%v): over the model", mount)
	}
	for _, sync := range []bool{false, true} {
		cfg := testConfig(vfs.OS())
		cfg.SyncFlush, cfg.SegmentBytes, cfg.Dir = sync, 256<<10, filepath.Join(dir, "store")
		cfg.DiskFull, cfg.DiskForceClean, cfg.DiskMaxUsed = 1, 1, 1
		if mount != nil {
			tight := newTight(6000)
			cfg.FS, cfg.Dir = tight, "/store"
			diskFull(t, cfg, func() { tight.give(2100) })
			continue
		}
		// What others have on the disk, freed piece by piece. What a clean stop
		// has to write finds room in the reserve.
		cfg.ReserveBytes = 200 << 10
		piece := func(name string, size int) (remove func()) {
			name = filepath.Join(dir, name)
			if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		pieces := []func(){piece("a", 500<<10), piece("b", 500<<10), piece("c", 500<<10)}
		diskFull(t, cfg, func() { pieces[0](); pieces = pieces[1:] })
		if err := os.RemoveAll(cfg.Dir); err != nil {
			t.Fatal(err)
		}
	}
}
