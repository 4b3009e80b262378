package broker

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// lockWorld is a lock table over tables in memory.
type lockWorld struct {
	*lockTable
	t      *testing.T
	tables *meta.Tables
}

func newLockWorld(t *testing.T, fs vfs.FS) *lockWorld {
	t.Helper()
	tables, err := meta.Open(meta.Config{FS: fs, Dir: "store/config", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return &lockWorld{newLockTable(time.Now, tables.Locks), t, tables}
}

func (w *lockWorld) stop() {
	w.t.Helper()
	if err := w.tables.Close(); err != nil {
		w.t.Error(err)
	}
}

func lockQueues(ids ...int32) (out []remoting.MessageQueue) {
	for _, id := range ids {
		out = append(out, remoting.MessageQueue{BrokerName: "b", Topic: "T", QueueID: id})
	}
	return out
}

// take locks queues and compares which of them the client holds then.
func (w *lockWorld) take(client string, conn *netloop.Conn, want []remoting.MessageQueue, ids ...int32) {
	w.t.Helper()
	if got := w.lock("g", client, conn, lockQueues(ids...)); !slices.Equal(got, want) {
		w.t.Errorf("%s holds %v of %v, want %v", client, got, ids, want)
	}
}

func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLockWorld(t, vfs.NewMem())
		defer w.stop()
		q, a, b := lockQueues, &netloop.Conn{}, &netloop.Conn{}
		w.take("A", a, q(0, 1), 0, 1)
		w.take("B", b, q(2), 0, 1, 2)
		if !w.held("g") || w.held("h") {
			t.Error("held is wrong")
		}
		time.Sleep(59 * time.Second)
		w.take("A", a, q(0), 0) // renewed
		time.Sleep(time.Second)
		w.take("B", b, q(1, 2), 0, 1, 2) // 1 has expired, 0 has not
		w.unlock("g", "B", q(0))
		w.take("B", b, nil, 0)
		w.unlock("g", "A", q(0))
		w.take("B", b, q(0), 0)
		w.left("g", "B", b)
		w.take("A", a, q(0, 1, 2), 0, 1, 2)
		time.Sleep(60 * time.Second)
		if w.held("g") {
			t.Error("an expired lock counts")
		}
		w.expire(time.Now())
		w.take("A", a, nil)
		if len(w.groups) != 0 {
			t.Errorf("%d groups without locks are kept", len(w.groups))
		}
	})
}

// A client's locks go with the connection they were taken on, unless it has
// renewed them on a newer one before the old one was seen to be closed.
func TestLocksOfAReconnectedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLockWorld(t, vfs.NewMem())
		defer w.stop()
		old, fresh := &netloop.Conn{}, &netloop.Conn{}
		w.take("A", old, lockQueues(0, 1), 0, 1)
		w.take("A", fresh, lockQueues(1), 1)
		w.left("g", "A", old)
		w.take("B", old, lockQueues(0), 0, 1)
		w.left("g", "A", fresh)
		w.take("B", old, lockQueues(0, 1), 0, 1)
	})
}

// After a kill, and after a clean stop, a holder finds its locks again; who comes
// first gets none of them; those of a holder that is gone are free in less than
// a lock's life. What was freed before is free.
func TestLocksSurvive(t *testing.T) {
	for _, kill := range []bool{true, false} {
		t.Run(fmt.Sprintf("kill=%v", kill), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewMem()
				w := newLockWorld(t, fs)
				w.take("gone", &netloop.Conn{}, lockQueues(0), 0)
				w.take("A", &netloop.Conn{}, lockQueues(1, 2, 3), 1, 2, 3)
				w.unlock("g", "A", lockQueues(2))
				conn := &netloop.Conn{}
				w.take("C", conn, lockQueues(4), 4)
				w.left("g", "C", conn)
				if err := w.tables.Fold(); err != nil { // locks pass from one journal to the next
					t.Fatal(err)
				}
				w.unlock("g", "A", lockQueues(3))
				w.lock("h", "A", conn, lockQueues(3))
				w.freeGroup("h")
				synctest.Wait() // the keeper has written
				if kill {
					crashed := fs.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil)
					w.stop()
					fs = crashed
				} else {
					w.stop()
				}
				w = newLockWorld(t, fs)
				defer w.stop()
				saved := map[meta.LockKey]string{}
				w.tables.Locks.Each(func(key meta.LockKey, id string) { saved[key] = id })
				if want := map[meta.LockKey]string{{Group: "g", Queue: lockQueues(0)[0]}: "gone", {Group: "g", Queue: lockQueues(1)[0]}: "A"}; !maps.Equal(saved, want) {
					t.Errorf("recovered %v, want %v", saved, want)
				}
				if !w.held("g") {
					t.Error("the group is no orderly one any more")
				}
				w.take("B", &netloop.Conn{}, lockQueues(2, 3, 4), 0, 1, 2, 3, 4)
				time.Sleep(20 * time.Second)
				w.take("A", &netloop.Conn{}, lockQueues(1), 1) // renewed, as every 20 s
				time.Sleep(5 * time.Second)
				w.take("B", &netloop.Conn{}, lockQueues(0), 0, 1)
			})
		})
	}
}

func TestLockRefusals(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	long := fmt.Sprintf("%01025d", 0)
	for _, tt := range []struct {
		name, body string
		want       remoting.ResponseCode
	}{
		{"good", `{"clientId":"A","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}],"onlyThisBroker":true}`, remoting.Success},
		{"no queue", `{"clientId":"A","consumerGroup":"g","mqSet":[]}`, remoting.Success},
		{"no client", `{"consumerGroup":"g","mqSet":[]}`, remoting.InvalidParameter},
		{"no group", `{"clientId":"A","mqSet":[]}`, remoting.InvalidParameter},
		{"a long client", `{"clientId":"` + long + `","consumerGroup":"g","mqSet":[]}`, remoting.InvalidParameter},
		{"no topic", `{"clientId":"A","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0}]}`, remoting.InvalidParameter},
		{"a long broker", `{"clientId":"A","consumerGroup":"g","mqSet":[{"brokerName":"` + long + `","queueId":0,"topic":"T"}]}`, remoting.InvalidParameter},
		{"no JSON", `x`, remoting.SystemError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			call(t, c, remoting.ReqLockBatchMQ, tt.want, []byte(tt.body))
			call(t, c, remoting.ReqUnlockBatchMQ, tt.want, []byte(tt.body))
		})
	}
}
