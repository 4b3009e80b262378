package meta

import (
	"encoding/binary"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// timerCheckOf is a timercheck as a Java broker writes it.
func timerCheckOf(lastRead, offset int64) []byte {
	b := make([]byte, timerCheckBytes)
	for i, n := range []int64{lastRead, 52 * offset, offset, offset, 0, lastRead, 7} {
		binary.BigEndian.PutUint64(b[8*i:], uint64(n))
	}
	return b
}

func TestTimerProgressSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		if p := tables.Timer.Progress(); p != (TimerProgress{ScanFrom: -1}) {
			t.Errorf("progress of nothing: %+v", p)
		}
		want := TimerProgress{DoneAt: 1_700_000_000_123, DoneOffset: ^int64(77), Loaded: 9, Lowest: 5, ScanFrom: 1000}
		tables.Timer.SetProgress(want)
		time.Sleep(2 * time.Second)
		lost := openTables(t, fs.CrashClone(vfs.CrashPolicy{}, nil))
		if p := lost.Timer.Progress(); p != want {
			t.Errorf("after power loss: %+v, want %+v", p, want)
		}
		closeTables(t, lost)
		for range 2 { // the second start finds what the first folded
			closeTables(t, tables)
			tables = openTables(t, fs)
			if p := tables.Timer.Progress(); p != want {
				t.Errorf("after a clean stop: %+v, want %+v", p, want)
			}
		}
		// For Java: the second it has begun to deliver, the lowest entry.
		b := []byte(read(t, fs, "timercheck"))
		now := time.Now().UnixMilli()
		for i, want := range []int64{min(now, want.DoneAt) / 1000 * 1000, 0, 5, 5, 0} {
			if got := int64(binary.BigEndian.Uint64(b[8*i:])); got != want {
				t.Errorf("timercheck's field %d is %d, want %d", i, got, want)
			}
		}
		if len(b) != timerCheckBytes {
			t.Errorf("timercheck of %d bytes", len(b))
		}
		closeTables(t, tables)
	})
}

// A timercheck that this broker didn't write last wins over the journal, alone.
func TestTimerCheckOfJava(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		put(t, fs, "timercheck", timerCheckOf(5000, 12))
		tables := openTables(t, fs)
		want := TimerProgress{DoneAt: 4999, DoneOffset: math.MaxInt64, Loaded: 12, ScanFrom: -1}
		if p := tables.Timer.Progress(); p != want {
			t.Errorf("Java's progress is taken for %+v, want %+v", p, want)
		}
		closeTables(t, tables)
		if got := read(t, fs, "timercheck"); got != string(timerCheckOf(5000, 12)) {
			t.Error("timercheck was changed without progress of our own")
		}
		tables = openTables(t, fs)
		tables.Timer.SetProgress(TimerProgress{DoneAt: 6000, Loaded: 20, Lowest: 20, ScanFrom: 9})
		commitWritten(t, tables, "T", "g", 0, 6)
		closeTables(t, tables)
		put(t, fs, "timercheck", timerCheckOf(7000, 30)) // Java was here
		tables = openTables(t, fs)
		if p := tables.Timer.Progress(); p.DoneAt != 6999 || p.Loaded != 30 || p.ScanFrom != -1 {
			t.Errorf("progress %+v, want Java's", p)
		}
		if got := offsetOf(tables, "T", "g", 0); got != 6 {
			t.Errorf("offset %d, want 6: Java wrote no offsets", got)
		}
		closeTables(t, tables)
		for name, content := range map[string][]byte{"zeros": make([]byte, timerCheckBytes), "empty": {}} {
			fs := vfs.NewMem()
			put(t, fs, "timercheck", content)
			tables := openTables(t, fs)
			if p := tables.Timer.Progress(); p != (TimerProgress{ScanFrom: -1}) {
				t.Errorf("%s: progress %+v", name, p)
			}
			closeTables(t, tables)
		}
		put(t, fs, "timercheck", []byte("short"))
		put(t, fs, "timercheck.bak", []byte("short"))
		if _, err := Open(Config{FS: fs, Dir: "store/config", System: system}); err == nil {
			t.Error("a broken timercheck was taken for none")
		}
	})
}
