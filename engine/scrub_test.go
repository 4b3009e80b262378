package engine

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// TestScrub damages two stored records, one in its body, one in its size, and
// lets the scrubber find both and all behind them.
func TestScrub(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig(mem)
	cfg.SegmentBytes, cfg.ScrubRate = 16<<10, -1 // the test ticks
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	var items []Item
	for i := range 60 {
		items = append(items, send(t, s, "T", 0, fmt.Sprint("m", i, " ", strings.Repeat("x", 900))))
	}
	for m := s.Marks(); m.Durable < m.Written; m = s.Marks() {
		time.Sleep(time.Millisecond)
	}
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_700_000_000_000)
	// In small pieces: a round takes several ticks.
	ticks := 0
	for ; s.Scrub().Rounds == 0; ticks++ {
		if ticks > 1000 {
			t.Fatalf("no end: %+v", s.Scrub())
		}
		s.scrub.tick(now, 5000)
	}
	st := s.Scrub()
	if ticks < 5 || st.Damaged != 0 || st.At != s.Marks().Written || !st.Last.Equal(now) {
		t.Errorf("a sound store after %d ticks: %+v", ticks, st)
	}

	damage := func(it Item, at int64, b byte) (file string, off int64) {
		file, off = fmt.Sprintf("/store/commitlog/%020d", int64(it.LogOffset)/cfg.SegmentBytes*cfg.SegmentBytes), int64(it.LogOffset)%cfg.SegmentBytes
		f, err := mem.Open(file, vfs.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte{b}, off+at); err != nil {
			t.Fatal(err)
		}
		return file, off
	}
	bodyFile, bodyOff := damage(items[3], 95, '#') // in its body
	sizeFile, sizeOff := damage(items[20], 2, 99)  // its size: the rest of its segment can't be told apart
	s.scrub.tick(now.Add(time.Hour), math.MaxInt64)
	if got := s.Scrub(); got.Damaged != 0 {
		t.Errorf("a round before its time: %+v", got)
	}
	s.scrub.tick(now.Add(25*time.Hour), math.MaxInt64)
	st = s.Scrub()
	if st.Rounds != 2 || st.Damaged != 2 || len(st.Findings) != 2 {
		t.Fatalf("%+v", st)
	}
	if f := st.Findings[0]; f.File != bodyFile || f.Offset != bodyOff || !strings.Contains(f.What, "CRC") {
		t.Errorf("%+v, want %s at %d", f, bodyFile, bodyOff)
	}
	if f := st.Findings[1]; f.File != sizeFile || f.Offset != sizeOff {
		t.Errorf("%+v, want %s at %d", f, sizeFile, sizeOff)
	}
}

// TestScrubGivesWay holds that nothing is read while others need the disk, and
// that a scrubber that runs by itself ends with its store.
func TestScrubGivesWay(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	s := mustOpen(t, cfg)
	send(t, s, "T", 0, "m")
	for m := s.Marks(); m.Durable < m.Written; m = s.Marks() {
		time.Sleep(time.Millisecond)
	}
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	s.inFlight.Add(drainFloor)
	s.scrub.tick(time.Now(), math.MaxInt64)
	if st := s.Scrub(); st.Bytes != 0 {
		t.Errorf("read while much was in flight: %+v", st)
	}
	s.inFlight.Add(-drainFloor)
	s.scrub.tick(time.Now(), math.MaxInt64)
	if st := s.Scrub(); st.Bytes == 0 {
		t.Errorf("nothing read: %+v", st)
	}
	mustClose(t, s)
}
