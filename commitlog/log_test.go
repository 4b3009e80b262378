package commitlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const segmentBytes = 4096

// counting is a Device that writes and counts.
type counting struct {
	writes, pieces int
	err            error
}

func (d *counting) Name() string { return "counting" }
func (d *counting) Close() error { return nil }
func (d *counting) WriteV(f vfs.File, bufs [][]byte, off int64) error {
	if d.err != nil {
		return d.err
	}
	d.writes++
	d.pieces += len(bufs)
	return f.WriteVAt(bufs, off)
}
func (d *counting) Sync(files []vfs.File) error {
	for _, f := range files {
		if err := f.SyncData(); err != nil {
			return err
		}
	}
	return nil
}

func open(t *testing.T, fs vfs.FS, dev Device) *Log {
	t.Helper()
	l, err := Open(Config{FS: fs, Dir: "/log", SegmentBytes: segmentBytes, Device: dev, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func record(body string, at message.LogOffset) []byte {
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	b, err := message.Append(nil, &message.Message{Topic: []byte("T"), Body: []byte(body), BornHost: host, StoreHost: host})
	if err != nil {
		panic(err)
	}
	message.Stamp(b, 0, at, 1)
	return b
}

// add appends records of the given body lengths as one group.
func add(t *testing.T, l *Log, lengths ...int) (at []message.LogOffset) {
	t.Helper()
	l.Lock()
	defer l.Unlock()
	for _, n := range lengths {
		b := record(strings.Repeat("x", n), 0)
		off, err := l.Reserve(len(b))
		if err != nil {
			t.Fatal(err)
		}
		message.Stamp(b, 0, off, 1)
		l.Add(b)
		at = append(at, off)
	}
	if err := l.Write(); err != nil {
		t.Fatal(err)
	}
	l.Publish()
	return at
}

func scan(l *Log, from, to message.LogOffset) (at []message.LogOffset, end message.LogOffset, err error) {
	sc := l.Scan(from, to, true)
	for {
		off, _, err := sc.Next()
		if err != nil {
			return at, sc.At(), err
		}
		at = append(at, off)
	}
}

func TestAppendAndScan(t *testing.T) {
	mem, dev := vfs.NewMem(), &counting{}
	l := open(t, mem, dev)
	if err := l.Start(0); err != nil {
		t.Fatal(err)
	}
	var want []message.LogOffset
	want = append(want, add(t, l, 100, 200, 300)...)
	if dev.writes != 1 || dev.pieces != 3 {
		t.Errorf("a group took %d writes of %d pieces", dev.writes, dev.pieces)
	}
	want = append(want, add(t, l, 3000)...) // leaves too little for the next
	want = append(want, add(t, l, 50, 3900, 10)...)
	if dev.writes != 1+1+4 { // one for each segment touched, the first for its blank alone
		t.Errorf("%d writes", dev.writes)
	}
	if want[4] != segmentBytes || want[5] != 2*segmentBytes || want[6] != 3*segmentBytes {
		t.Errorf("records at %v", want)
	}
	check := func(l *Log) {
		t.Helper()
		got, end, err := scan(l, 0, l.SegmentsEnd())
		if d := cmp.Diff(want, got); d != "" || !errors.Is(err, message.ErrUnwritten) && !errors.Is(err, io.EOF) {
			t.Errorf("%v %s", err, d)
		}
		if end != message.LogOffset(l.End()) && l.End() != 0 {
			t.Errorf("the scan ends at %d, want %d", end, l.End())
		}
	}
	check(l)
	if got, _, err := scan(l, want[2], want[5]); len(got) != 3 || err != io.EOF {
		t.Errorf("a part: %v, %v", got, err)
	}
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	l = open(t, mem, dev)
	check(l)
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
}

// TestAddMerges has neighbours in memory go out as one piece, and only those.
func TestAddMerges(t *testing.T) {
	dev := &counting{}
	l := open(t, vfs.NewMem(), dev)
	defer l.Close(false)
	if err := l.Start(0); err != nil {
		t.Fatal(err)
	}
	buf := append(record("a", 0), record("b", 0)...)
	n := len(buf) / 2
	l.Lock()
	defer l.Unlock()
	for _, b := range [][]byte{buf[:n], buf[n:], buf[:n], buf[:n], buf[n : 2*n : 2*n]} {
		if _, err := l.Reserve(len(b)); err != nil {
			t.Fatal(err)
		}
		l.Add(b)
	}
	if err := l.Write(); err != nil {
		t.Fatal(err)
	}
	l.Publish()
	if dev.pieces != 3 {
		t.Errorf("%d pieces, want 3", dev.pieces)
	}
	got := make([]byte, 5*n)
	if err := l.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if want := string(buf) + string(buf[:n]) + string(buf); string(got) != want {
		t.Error("the file holds other bytes")
	}
}

func TestReserveErrors(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	dev := &counting{}
	l := open(t, fault, dev)
	defer l.Close(false)
	if err := l.Start(0); err != nil {
		t.Fatal(err)
	}
	// Before the writer passes the middle of its segment, where the next is begun.
	fault.Add(vfs.Rule{Ops: vfs.OpCreate, Path: "prepared", Err: errors.New("no room")})
	add(t, l, 3500)
	l.Lock()
	defer l.Unlock()
	was := l.End()
	if _, err := l.Reserve(segmentBytes - 7); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := l.Reserve(1000); !errors.Is(err, ErrNoSegment) || l.End() != was || l.Pending() != 0 {
		t.Errorf("%v, end %d, was %d", err, l.End(), was)
	}
	fault.Clear()
	if err := l.Write(); err != nil { // nothing: but the next group asks anew
		t.Error(err)
	}
	if off, err := l.Reserve(1000); err != nil || off != segmentBytes {
		t.Errorf("%d, %v", off, err)
	}
	dev.err = errors.New("broken")
	l.Add(record("x", segmentBytes))
	if err := l.Write(); !errors.Is(err, dev.err) {
		t.Error(err)
	}
	if w := l.Written(); w != int64(was) {
		t.Errorf("Written moved from %d to %d", was, w)
	}
}

// TestNoSpace has no room for a while: what needs it is refused and nothing
// changes, the disk is asked once a group, and it mends by itself.
func TestNoSpace(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	fault.Add(vfs.Rule{Ops: vfs.OpTruncate, Path: "/log/prepared/", After: 1, Err: syscall.ENOSPC}) // all but the length of the first segment
	dev := &counting{}
	l := open(t, fault, dev)
	defer l.Close(false)
	if err := l.Start(0); err != nil {
		t.Fatal(err)
	}
	l.Lock()
	for i := range 3 {
		before := fault.Count(vfs.OpTruncate)
		for _, n := range []int{1000, 2000} {
			if _, err := l.Reserve(n); !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "/log/00000000000000000000") {
				t.Fatalf("group %d: %v", i, err)
			}
		}
		if n := fault.Count(vfs.OpTruncate) - before; n > 2 { // the preparer may ask too
			t.Errorf("group %d asked %d times", i, n)
		}
		if l.Fits(1000) || l.End() != 0 || l.Pending() != 0 {
			t.Fatalf("group %d: fits, or end %d, pending %d", i, l.End(), l.Pending())
		}
		if err := l.Write(); err != nil {
			t.Fatal(err)
		}
	}
	fault.Clear()
	l.Unlock()
	if at := add(t, l, 3900); at[0] != 0 || dev.writes != 1 {
		t.Errorf("with room again at %d, %d writes", at[0], dev.writes)
	}
}

// TestNoSpaceAtSegmentEnd has no room where the next segment would begin: no
// blank ends the one before.
func TestNoSpaceAtSegmentEnd(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	dev := &counting{}
	l := open(t, fault, dev)
	defer l.Close(false)
	if err := l.Start(0); err != nil {
		t.Fatal(err)
	}
	fault.Add(vfs.Rule{Ops: vfs.OpTruncate, Path: "/log/prepared/00000000000000004096", After: 1, Err: syscall.ENOSPC})
	add(t, l, 3500)
	l.Lock()
	was := l.End()
	for range 2 {
		if _, err := l.Reserve(1000); !errors.Is(err, ErrNoSegment) || !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
		if err := l.Write(); err != nil || l.End() != was || dev.writes != 1 || l.set.End() != segmentBytes {
			t.Errorf("%v, end %d was %d, %d writes, segments end at %d", err, l.End(), was, dev.writes, l.set.End())
		}
	}
	if off, err := l.Reserve(100); err != nil || off != was {
		t.Errorf("a small record at %d, %v", off, err)
	}
	fault.Clear()
	l.Unlock()
	if at := add(t, l, 1000); at[0] != segmentBytes {
		t.Errorf("with room again at %d", at[0])
	}
	if at, _, err := scan(l, 0, message.LogOffset(l.Written())); err != io.EOF || len(at) != 2 {
		t.Errorf("%v, %v", at, err)
	}
}

// roomUpTo is an FS whose files have room up to one offset.
type roomUpTo struct {
	vfs.FS
	room *atomic.Int64
}

func (r roomUpTo) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := r.FS.Open(name, flag)
	return roomFile{f, r.room}, err
}

type roomFile struct {
	vfs.File
	room *atomic.Int64
}

func (f roomFile) Allocate(off, n int64) error {
	if off+n > f.room.Load() {
		return syscall.ENOSPC
	}
	return nil
}

// TestNoSpaceForBlank has room for all but the blank that ends a segment.
func TestNoSpaceForBlank(t *testing.T) {
	var room atomic.Int64
	room.Store(int64(len(record(strings.Repeat("x", 3500), 0))))
	l := open(t, roomUpTo{vfs.NewMem(), &room}, &counting{})
	defer l.Close(false)
	if err := l.Start(0); err != nil {
		t.Fatal(err)
	}
	add(t, l, 3500)
	l.Lock()
	if _, err := l.Reserve(1000); !errors.Is(err, ErrNoSpace) || int64(l.End()) != room.Load() || l.set.End() != segmentBytes {
		t.Errorf("%v, end %d, segments end at %d", err, l.End(), l.set.End())
	}
	if err := l.Write(); err != nil {
		t.Fatal(err)
	}
	l.Unlock()
	room.Add(message.BlankBytes)
	if at := add(t, l, 1000); at[0] != segmentBytes {
		t.Errorf("with room for the blank at %d", at[0])
	}
}

func TestViewAndFiles(t *testing.T) {
	l := open(t, vfs.NewMem(), &counting{})
	defer l.Close(false)
	if err := l.Start(0); err != nil {
		t.Fatal(err)
	}
	add(t, l, 3000, 3000, 3000)
	written := message.LogOffset(l.Written())
	for _, tc := range []struct {
		off message.LogOffset
		n   int
		ok  bool
	}{{0, 100, true}, {segmentBytes, segmentBytes, true}, {segmentBytes - 1, 2, false}, {-1, 2, false}, {0, 0, false}, {0, -5, false},
		{written - 10, 10, true}, {written - 10, 11, false}, {written, 1, false}, {1 << 40, 1, false}} {
		seg, r := l.View(tc.off, tc.n)
		if (seg != nil) != tc.ok || tc.ok && (r.Len != tc.n || r.Off != int64(tc.off)%segmentBytes) {
			t.Errorf("View(%d, %d): %v, %+v", tc.off, tc.n, seg != nil, r)
		}
		if seg != nil {
			seg.Release()
		}
	}
	for _, tc := range []struct {
		from, to int64
		want     int
	}{{0, 1, 1}, {0, segmentBytes, 1}, {0, segmentBytes + 1, 2}, {10, 2*segmentBytes + 10, 3}, {5, 5, 0}} {
		files, release := l.FilesIn(tc.from, tc.to)
		if len(files) != tc.want {
			t.Errorf("FilesIn(%d, %d): %d files, want %d", tc.from, tc.to, len(files), tc.want)
		}
		release()
		ranges, release := l.RangesIn(tc.from, tc.to, nil)
		sum := int64(0)
		for _, r := range ranges {
			sum += int64(r.Len)
		}
		if sum != tc.to-tc.from || len(ranges) != tc.want {
			t.Errorf("RangesIn(%d, %d): %+v", tc.from, tc.to, ranges)
		}
		release()
	}
}

// TestSkipMalformed passes over a record with wrong lengths only where the log
// goes on behind it.
func TestSkipMalformed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(b []byte)
		want   bool
	}{
		{"property length", func(b []byte) { b[len(b)-2] = 0x80 }, true},
		{"body", func(b []byte) { b[90] ^= 1 }, true},
		{"size", func(b []byte) { b[3]++ }, false},
		{"magic", func(b []byte) { b[4] = 0 }, false},
		{"zero", func(b []byte) { clear(b) }, false},
		{"no size", func(b []byte) { clear(b[:4]) }, false},
		{"negative size", func(b []byte) { b[0] = 0xff }, false},
	} {
		mem := vfs.NewMem()
		l := open(t, mem, &counting{})
		if err := l.Start(0); err != nil {
			t.Fatal(err)
		}
		at := add(t, l, 100, 100, 100)
		b := record(strings.Repeat("x", 100), at[1])
		tc.damage(b)
		f := l.set.Last().File()
		if _, err := f.WriteAt(b, int64(at[1])); err != nil {
			t.Fatal(err)
		}
		sc := l.Scan(0, l.SegmentsEnd(), true)
		if _, _, err := sc.Next(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := sc.Next(); !errors.Is(err, message.ErrTorn) {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if got := sc.SkipMalformed(); got != tc.want {
			t.Errorf("%s: skipped is %v", tc.name, got)
		}
		off, _, err := sc.Next()
		if tc.want && (err != nil || off != at[2]) || !tc.want && (!errors.Is(err, message.ErrTorn) || sc.At() != at[1]) {
			t.Errorf("%s: then %d, %v", tc.name, off, err)
		}
		l.Close(false)
	}
}

func ExampleConfig() {
	l, err := Open(Config{FS: vfs.NewMem(), Dir: "/log", SegmentBytes: segmentBytes, Device: &counting{}, Logger: slog.Default()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close(true)
	fmt.Println(l.Start(0), l.Min(), l.Written())
	// Output: <nil> 0 0
}
