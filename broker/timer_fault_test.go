package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// A batch of which only a part is stored: what isn't is pending again, what is
// isn't put twice, and no progress is taken until all is in order again.
func TestTimerPartlyStoredBatch(t *testing.T) {
	items := []timerItem{timerDue(10, 100, false), timerDue(11, 200, false), timerDue(12, 300, false)}
	for _, tt := range []struct {
		name     string
		statuses []engine.Status
		pending  []timerItem
		ahead    []message.LogOffset
		ok       bool
	}{
		{"all", []engine.Status{engine.OK, engine.OK, engine.FlushDiskTimeout}, nil, nil, true},
		{"nothing", []engine.Status{engine.Busy, engine.Busy, engine.Busy}, items, nil, false},
		{"the first", []engine.Status{engine.OK, engine.CreateFailed, engine.CreateFailed}, items[1:], []message.LogOffset{100}, false},
		{"the last", []engine.Status{engine.CreateFailed, engine.ServiceNotAvailable, engine.OK}, items[:2], []message.LogOffset{300}, false},
		{"one that never fits", []engine.Status{engine.Illegal, engine.OK, engine.OK}, nil, []message.LogOffset{200, 300}, true},
	} {
		w := &timer{ahead: map[message.LogOffset]aheadItem{}}
		w.log = slog.New(slog.DiscardHandler)
		w.carried = items
		w.acted = items[2] // all three were taken
		for i, status := range tt.statuses {
			w.batch.Items = append(w.batch.Items, engine.Item{Status: status, LogOffset: message.LogOffset(1000 + i)})
			if !status.Stored() {
				w.batch.Err = errors.New("why")
			}
		}
		if ok := w.settle(func(i timerItem) { w.pending.push(i) }); ok != tt.ok {
			t.Errorf("%s: ok is %v", tt.name, ok)
		}
		if !slices.Equal(w.pending, timerHeap(tt.pending)) {
			t.Errorf("%s: pending %+v, want %+v", tt.name, w.pending, tt.pending)
		}
		for _, origin := range tt.ahead {
			if !w.isStale(timerItem{off: origin}) {
				t.Errorf("%s: %d isn't known to be done", tt.name, origin)
			}
		}
		if inOrder := w.inOrder(); inOrder != (len(tt.pending) == 0) {
			t.Errorf("%s: in order is %v", tt.name, inOrder)
		}
	}
}

// A disk that can't be read, or has no room, and then is well again: timers come
// late, in order, once.
func TestTimerOverABadDisk(t *testing.T) {
	for name, rule := range map[string]vfs.Rule{
		"no reads": {Ops: vfs.OpRead, Path: "commitlog", Err: syscall.EIO, Times: 3},
		"no room":  {Ops: vfs.OpCreate | vfs.OpTruncate, Path: "commitlog", Err: syscall.ENOSPC},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewFault(vfs.NewMem())
				w := newScheduleWorldOver(t, fs, "1h", engine.Config{SyncFlush: true})
				var want []string
				for i := range 30 {
					want = append(want, fmt.Sprint(i)+strings.Repeat("x", 100<<10))
					w.at(time.Minute+time.Duration(i)*time.Millisecond, "T", 0, want[i])
				}
				time.Sleep(time.Minute - 500*time.Millisecond) // the store has read what it wants to
				fs.Add(rule)
				time.Sleep(700 * time.Millisecond)
				if w.b.timer.queue.Max() != 30 || w.b.store.FindQueue("T", 0) != nil && w.b.store.FindQueue("T", 0).Max() == 30 {
					t.Error("the disk wasn't bad")
				}
				time.Sleep(10 * time.Second)
				fs.Clear()
				time.Sleep(2 * time.Second)
				w.want("T", 0, want...)
				w.close()
				w = newScheduleWorldOver(t, fs, "1h", engine.Config{SyncFlush: true})
				time.Sleep(2 * time.Second)
				w.want("T", 0, want...)
				w.close()
			})
		})
	}
}

// Close in the middle of a backlog: what was delivered stays so, the rest comes
// after the start, nothing twice.
func TestTimerClosesInABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newScheduleWorld(t, fs, "1h")
		var want []string
		for i := range 3000 {
			body := string(rune('a'+i%26)) + time.Duration(i).String()
			want = append(want, body)
			w.at(time.Minute, "T", 0, body)
		}
		w.close()
		time.Sleep(time.Hour)
		for i := range 20 {
			w = newScheduleWorld(t, fs, "1h")
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			w.close()
		}
		w = newScheduleWorld(t, fs, "1h")
		time.Sleep(time.Second)
		if got, _ := w.got("T", 0); !slices.Equal(got, want) {
			i := 0
			for i < min(len(got), len(want)) && got[i] == want[i] {
				i++
			}
			t.Logf("%s is at %d", want[i], slices.Index(got, want[i]))
			t.Errorf("%d messages, want %d; from %d on %q, want %q", len(got), len(want), i, got[i:min(i+5, len(got))], want[i:min(i+5, len(want))])
		}
		if n := w.b.store.FindQueue(meta.TimerTopic, 0).Max(); n != 3000 {
			t.Errorf("%d entries in the timer topic", n)
		}
		w.close()
	})
}
