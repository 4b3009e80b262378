package meta

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

func reset(t *testing.T, tables *Tables, topic, group string, queues map[int32]int64) {
	t.Helper()
	done := make(chan error, 1)
	tables.Offsets.Reset(topic, group, queues, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func take(tables *Tables, queue int32) string {
	if offset, ok := tables.Offsets.TakeReset("T", "g", queue); ok {
		return fmt.Sprint(offset)
	}
	return "none"
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := openTables(t, vfs.NewMem())
		defer closeTables(t, tables)
		commit(tables, "T", "g", 0, 100)
		reset(t, tables, "T", "g", map[int32]int64{0: 5, 1: 0, -1: 3, 2: -7})
		commit(tables, "T", "g", 0, 101) // of before the reset
		if got := offsetOf(tables, "T", "g", 0); got != 5 {
			t.Errorf("offset while the reset is pending: %d, want 5", got)
		}
		if !tables.Offsets.ResetPending([]byte("T"), []byte("g"), 0) || tables.Offsets.ResetPending([]byte("T"), []byte("g2"), 0) {
			t.Error("what is pending isn't right")
		}
		reset(t, tables, "T", "g", map[int32]int64{0: 6})
		for queue, want := range map[int32]string{0: "6", 1: "0", 2: "none", 9: "none"} {
			if got := take(tables, queue); got != want {
				t.Errorf("queue %d: took %s, want %s", queue, got, want)
			}
			if got := take(tables, queue); got != "none" {
				t.Errorf("queue %d: took %s a second time", queue, got)
			}
		}
		commit(tables, "T", "g", 0, 7)
		if got := offsetOf(tables, "T", "g", 0); got != 7 {
			t.Errorf("offset after the reset was told: %d, want 7", got)
		}

		reset(t, tables, "T", "g", map[int32]int64{0: 1, 1: 2})
		tables.Offsets.DeleteTopic("T")
		if got, n := take(tables, 0), tables.Offsets.resets.Load(); got != "none" || n != 0 {
			t.Errorf("a deleted topic's reset: took %s, %d are pending", got, n)
		}
		reset(t, tables, "T", "g", map[int32]int64{0: 1})
		tables.Offsets.EndResets()
		if got, n := take(tables, 0), tables.Offsets.resets.Load(); got != "none" || n != 0 || offsetOf(tables, "T", "g", 0) != 1 {
			t.Errorf("after EndResets: took %s, %d are pending, offset %d", got, n, offsetOf(tables, "T", "g", 0))
		}
	})
}

// A pending reset survives a kill, a power loss and folds; one that was told
// doesn't come back.
func TestResetSurvivesCrash(t *testing.T) {
	kill := vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		commit(tables, "T", "g", 0, 100)
		reset(t, tables, "T", "g", map[int32]int64{0: 5, 1: 7})
		crash := func(what string, policy vfs.CrashPolicy, want0, want1 string) {
			t.Helper()
			fs2 := fs.CrashClone(policy, nil)
			closeTables(t, tables)
			fs, tables = fs2, openTables(t, fs2)
			if got := offsetOf(tables, "T", "g", 0); got != 5 {
				t.Errorf("%s: offset %d, want 5", what, got)
			}
			for queue, want := range map[int32]string{0: want0, 1: want1} {
				got := "none"
				if tables.Offsets.ResetPending([]byte("T"), []byte("g"), queue) {
					got = fmt.Sprint(offsetOf(tables, "T", "g", queue))
				}
				if got != want {
					t.Errorf("%s: queue %d has %s pending, want %s", what, queue, got, want)
				}
			}
		}
		crash("killed at once", kill, "5", "7")
		time.Sleep(time.Minute) // folded
		crash("killed after a fold", kill, "5", "7")
		if take(tables, 1) != "7" {
			t.Fatal("queue 1 has no reset")
		}
		time.Sleep(100 * time.Millisecond)
		crash("killed after one was told", kill, "5", "none")
		time.Sleep(2 * time.Second)
		crash("after power loss", vfs.CrashPolicy{}, "5", "none")
		closeTables(t, tables)
		tables = openTables(t, fs)
		if take(tables, 0) != "5" || take(tables, 1) != "none" {
			t.Error("after a clean stop the pending reset is another")
		}
		closeTables(t, tables)
		if !strings.Contains(read(t, fs, "consumerOffset.json"), "0:5,1:7") {
			t.Errorf("consumerOffset.json: %s", read(t, fs, "consumerOffset.json"))
		}
	})
}

func TestCloneAndPulled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		commit(tables, "T", "g", 0, 3)
		commit(tables, "T", "g", 4, 9)
		commit(tables, "T", "g2", 4, 1)
		tables.Offsets.Clone("T", "g", "g2")
		tables.Offsets.Clone("T", "none", "g2")
		if got := fmt.Sprint(tables.Offsets.Queues("T", "g2")); got != "map[0:3 4:9]" {
			t.Errorf("cloned: %s", got)
		}

		tables.Offsets.Pulled("T", "watcher", 2, 77)
		tables.Offsets.Pulled("T", "watcher", -1, 77)
		if got := tables.Offsets.PulledTo("T", "watcher", 2); got != 77 {
			t.Errorf("pulled to %d, want 77", got)
		}
		if got := tables.Offsets.PulledTo("T", "nobody", 2); got != 0 {
			t.Errorf("nobody pulled to %d", got)
		}
		if groups := tables.Offsets.Groups("T"); len(groups) != 2 {
			t.Errorf("groups with offsets: %q: who only pulls has none", groups)
		}
		closeTables(t, tables)
		if s := read(t, fs, "consumerOffset.json"); strings.Contains(s, "watcher") {
			t.Errorf("saved: %s", s)
		}
	})
}

func TestPullsDoNotAllocate(t *testing.T) {
	tables := openTables(t, vfs.NewMem())
	defer closeTables(t, tables)
	reset(t, tables, "T", "other", map[int32]int64{0: 5})
	group := strings.Repeat("g", 100)
	tables.Offsets.Pulled("T", group, 3, 1)
	if n := testing.AllocsPerRun(100, func() {
		tables.Offsets.TakeReset("T", group, 3)
		tables.Offsets.Pulled("T", group, 3, 2)
	}); n > 0 {
		t.Errorf("a pull's bookkeeping allocates %v times", n)
	}
}
