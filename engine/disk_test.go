package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

func TestDiskTrend(t *testing.T) {
	const gb = int64(1) << 30
	start := time.UnixMilli(1_700_000_000_000)
	var d diskTrend
	at := func(minutes int, free int64) time.Duration {
		return d.add(start.Add(time.Duration(minutes)*time.Minute), free, free-10*gb)
	}
	if got := at(0, 100*gb); got != -1 {
		t.Errorf("with one look: %v", got)
	}
	if got := at(1, 99*gb); got != -1 {
		t.Errorf("after a minute: %v", got)
	}
	// 1 GB a minute, 80 GB to go.
	if got := at(10, 90*gb); got != 80*time.Minute {
		t.Errorf("at 1 GB a minute: %v, want 80 min", got)
	}
	if got := at(11, 100*gb); got != -1 {
		t.Errorf("after a deletion, as full as at first: %v", got)
	}
	// What is older than an hour doesn't count: since then nothing has changed.
	for m := 12; m < 100; m++ {
		at(m, 70*gb)
	}
	if got := at(100, 70*gb); got != -1 {
		t.Errorf("standing: %v", got)
	}
	if len(d.seen) > 62 {
		t.Errorf("%d looks are kept", len(d.seen))
	}
	if got := at(101, 9*gb); got != 0 {
		t.Errorf("full: %v", got)
	}
}

// TestDiskFreeMin holds the bound in bytes: writes stop below it, unexpired
// segments go below twice it, and writes resume.
func TestDiskFreeMin(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig(mem)
	cfg.SegmentBytes, cfg.DiskFreeMin, cfg.ReserveBytes, cfg.DeletePause = 16<<10, 1<<20, 64<<10, time.Microsecond
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	for range 100 {
		send(t, s, "T", 0, strings.Repeat("x", 1000))
	}
	for m := s.Marks(); m.Durable < m.Written; m = s.Marks() {
		time.Sleep(time.Millisecond)
	}
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	total, free, err := mem.Usage("")
	if err != nil {
		t.Fatal(err)
	}
	setFree := func(free0 int64) { mem.SetTotal(total - free + free0) }

	setFree(10 << 20)
	s.clean(time.Now())
	if ok, why := s.Writable(); !ok || s.log.Min() > 0 {
		t.Fatalf("with 10 MiB free: %v %s, log from %d", ok, why, s.log.Min())
	}
	if _, err := mem.Stat("/store/" + reserveName); err != nil {
		t.Errorf("nothing is kept in reserve: %v", err)
	}
	setFree(300 << 10)
	s.lookAtDisk()
	if ok, why := s.Writable(); ok || !strings.Contains(why, "diskFreeBytesMin") || !strings.Contains(why, "1048576") {
		t.Errorf("with 300 KiB free: %v %q", ok, why)
	}
	setFree(1 << 10)
	s.lookAtDisk()
	if _, err := mem.Stat("/store/" + reserveName); err == nil {
		t.Error("with nothing free the reserve is still there")
	}
	// Segments go though none has expired; on a disk of tens of KiB that
	// doesn't help, so room comes from elsewhere.
	s.clean(time.Now())
	if s.log.Min() == 0 {
		t.Error("no segment was deleted")
	}
	setFree(10 << 20)
	s.clean(time.Now())
	if ok, why := s.Writable(); !ok {
		t.Errorf("room again: %s", why)
	}
	if _, err := mem.Stat("/store/" + reserveName); err != nil {
		t.Errorf("the reserve wasn't made again: %v", err)
	}
	send(t, s, "T", 0, "goes on")
}
