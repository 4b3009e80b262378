package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

func TestLocks(t *testing.T) {
	clock := time.Unix(1700000000, 0)
	locks := newLockTable(func() time.Time { return clock })
	q := func(ids ...int32) (out []remoting.MessageQueue) {
		for _, id := range ids {
			out = append(out, remoting.MessageQueue{BrokerName: "b", Topic: "T", QueueID: id})
		}
		return out
	}
	lock := func(client string, want []remoting.MessageQueue, ids ...int32) {
		t.Helper()
		if got := locks.lock("g", client, q(ids...)); !slices.Equal(got, want) {
			t.Errorf("%s holds %v of %v, want %v", client, got, ids, want)
		}
	}
	lock("A", q(0, 1), 0, 1)
	lock("B", q(2), 0, 1, 2)
	if !locks.held("g") || locks.held("h") {
		t.Error("held is wrong")
	}
	clock = clock.Add(59 * time.Second)
	lock("A", q(0), 0) // renewed
	clock = clock.Add(time.Second)
	lock("B", q(1, 2), 0, 1, 2) // 1 has expired, 0 has not
	locks.unlock("g", "B", q(0))
	lock("B", nil, 0)
	locks.unlock("g", "A", q(0))
	lock("B", q(0), 0)
	locks.free("g", "B")
	lock("A", q(0, 1, 2), 0, 1, 2)
	clock = clock.Add(60 * time.Second)
	if locks.held("g") {
		t.Error("an expired lock counts")
	}
	locks.expire(clock)
	if len(locks.groups) != 0 {
		t.Errorf("%d groups without locks are kept", len(locks.groups))
	}
}
