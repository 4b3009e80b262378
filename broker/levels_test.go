package broker

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
)

// Levels change while messages wait: what waits keeps its time, what comes goes
// by the new delays, and levels may come and go.
func TestLevelsChangeAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newScheduleWorld(t, fs, "10s 1h")
		w.send(1, "T", 0, "old ten")
		w.send(2, "T", 0, "old hour")
		if err := w.b.setDelayLevels("1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 11s 12s 13s 14s 15s 16s 17s 18s 20s 30s"); err != nil {
			t.Fatal(err)
		}
		if got := w.b.topics.Find(meta.ScheduleTopic); got.ReadQueues != 20 || got.WriteQueues != 20 {
			t.Errorf("the schedule topic has %d and %d queues, want 20", got.ReadQueues, got.WriteQueues)
		}
		w.send(1, "T", 0, "new one") // behind what waits there
		w.send(2, "T", 1, "behind the hour")
		w.send(3, "T", 0, "new three")
		w.send(20, "T", 0, "new thirty")
		time.Sleep(5 * time.Second)
		w.want("T", 0, "new three")
		time.Sleep(6 * time.Second)
		w.want("T", 0, "new three", "old ten", "new one")
		// Level 20 is gone, and level 1 longer again.
		if err := w.b.setDelayLevels("1m"); err != nil {
			t.Fatal(err)
		}
		w.send(1, "T", 0, "minute")
		time.Sleep(20 * time.Second)
		w.want("T", 0, "new three", "old ten", "new one", "new thirty")
		// A restart without the levels knows what waits in their queues and what
		// was delivered from them.
		w.close()
		w = newScheduleWorld(t, fs, "1m")
		defer w.close()
		time.Sleep(time.Minute)
		w.want("T", 0, "new three", "old ten", "new one", "new thirty", "minute")
		time.Sleep(time.Hour)
		w.want("T", 0, "new three", "old ten", "new one", "new thirty", "minute", "old hour")
		w.want("T", 1, "behind the hour")
	})
}

func TestBadLevelsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, vfs.NewMem(), "1s 2s")
		defer w.close()
		for _, text := range []string{"", "1", "1s x", "-1s", "2147483647d", "99999999999999999999s"} {
			if err := w.b.setDelayLevels(text); err == nil {
				t.Errorf("%q was taken", text)
			}
		}
		if got := w.b.levels.count(); got != 2 {
			t.Errorf("%d levels, want 2", got)
		}
	})
}

// When the clock goes back, nobody waits for the time in between again.
func TestClockGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newScheduleWorld(t, fs, "1h")
		w.send(1, "T", 0, "x")
		w.close()
		w = openScheduleWorld(t, fs, w.b.cfg, engine.Config{SyncFlush: true}, func() time.Time { return time.Now().Add(-10 * time.Hour) })
		defer w.close()
		time.Sleep(2 * time.Second)
		w.want("T", 0, "x")
	})
}

// Sends read the levels while they are replaced.
func TestLevelsUnderSends(t *testing.T) {
	w := newScheduleWorld(t, vfs.NewMem(), "1h")
	defer w.close()
	var sends sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		sends.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				level, err := w.b.levels.parse([]byte("18"))
				if topic, id, due := w.b.schedule.target(level, 0); err != nil || topic == nil || id >= 18 || due < time.Hour.Milliseconds() {
					t.Errorf("sender %d: level %d waits in queue %d until %d, %v", i, level, id, due, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		text := "1h"
		for range i % 18 {
			text += " 2h"
		}
		if err := w.b.setDelayLevels(text); err != nil {
			t.Error(fmt.Errorf("%q: %w", text, err))
		}
	}
	close(stop)
	sends.Wait()
}
