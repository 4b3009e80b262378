package meta

import (
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// Each operation on the disk fails once: either Open refuses and says so, or
// everything is durable in the end, since a later attempt makes up for it.
func TestEachFailureOnce(t *testing.T) {
	for i := range 1000 {
		var failed bool
		synctest.Test(t, func(t *testing.T) { failed = failOnce(t, i) })
		if !failed {
			t.Logf("%d operations", i)
			if i < 20 {
				t.Errorf("only %d operations", i)
			}
			return
		}
	}
	t.Error("there is no end of operations")
}

// failOnce runs tables whose disk operation i fails; false when there were
// fewer.
func failOnce(t *testing.T, i int) bool {
	mem := vfs.NewMem()
	disk := vfs.NewFault(mem)
	disk.FailAt(vfs.OpAll, i, syscall.EIO)
	open := func(fs vfs.FS) (*Tables, error) {
		return Open(Config{FS: fs, Dir: "store/config", System: system, Logger: slog.New(slog.DiscardHandler)})
	}
	tables, err := open(disk)
	if err != nil {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("operation %d fails: open says %v", i, err)
		}
		again, err := open(mem)
		if err != nil {
			t.Fatalf("operation %d failed: next open says %v", i, err)
		}
		closeTables(t, again)
		return true
	}
	commit(tables, "T", "g", 0, 5)
	// An error is for a failed save; the topic is in the table, and saved later.
	_, _, _ = tables.Topics.Ensure(NewTopic("T", 4, 6))
	time.Sleep(2 * time.Second)
	_ = tables.Fold()
	commit(tables, "T", "g", 0, 6)
	tables.Delay.SetProgress(DelayProgress{ScanFrom: 3, Next: map[int32]int64{1: 2}})
	time.Sleep(time.Minute)
	done := disk.Count(vfs.OpAll) > int64(i)
	closeErr := tables.Close()
	if closeErr != nil && !errors.Is(closeErr, syscall.EIO) {
		t.Errorf("operation %d fails: close says %v", i, closeErr)
	}
	again, err := open(mem.CrashClone(vfs.CrashPolicy{}, nil))
	if err != nil {
		t.Fatalf("operation %d failed: next open says %v", i, err)
	}
	if got := offsetOf(again, "T", "g", 0); got != 6 {
		t.Errorf("operation %d failed: offset %d, want 6", i, got)
	}
	if again.Topics.Find("T") == nil {
		t.Errorf("operation %d failed: the topic is lost", i)
	}
	if p := again.Delay.Progress(); p.Next[1] != 2 || p.ScanFrom != 3 {
		t.Errorf("operation %d failed: delay %+v", i, p)
	}
	closeTables(t, again)
	return done || disk.Count(vfs.OpAll) > int64(i)
}

// A full disk is said, and made up for when there is room again.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		disk := vfs.NewFault(mem)
		tables := openTables(t, disk)
		time.Sleep(time.Second)
		disk.Add(vfs.Rule{Ops: vfs.OpWrite, Err: syscall.ENOSPC})
		said := make(chan error, 1)
		tables.Offsets.CommitWritten([]byte("T"), []byte("g"), 0, 5, func(err error) { said <- err })
		if err := <-said; !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a commit that isn't written says %v", err)
		}
		if _, _, err := tables.Topics.Ensure(NewTopic("T", 4, 6)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a topic that isn't saved says %v", err)
		}
		time.Sleep(time.Minute)
		disk.Clear()
		time.Sleep(10 * time.Second)
		again := openTables(t, mem.CrashClone(vfs.CrashPolicy{}, nil))
		if offsetOf(again, "T", "g", 0) != 5 || again.Topics.Find("T") == nil {
			t.Error("what a full disk held up isn't saved after it")
		}
		closeTables(t, again)
		commitWritten(t, tables, "T", "g", 0, 6)
		closeTables(t, tables)
	})
}
