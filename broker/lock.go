package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// lockLiveTime is how long a queue lock lives without being renewed; consumers
// renew every 20 s (rocketmq.broker.rebalance.lockMaxLiveTime of Apache).
const lockLiveTime = 60 * time.Second

// recoveredLiveTime is how long a lock from before a restart waits for its
// holder: longer than holders take to renew, shorter than a lock lives, since
// the holder may be gone too.
const recoveredLiveTime = 25 * time.Second

// lockTable holds the queue locks of orderly consumers: while one client of a
// group holds a queue, no other one of the group gets it. Unlike Apache's it
// frees a client's locks when the client unregisters or its connection closes,
// so that the next owner need not wait for them to expire; and it knows them
// again after a restart, also after a kill, when the clients that are back first
// would be given the queues of those that still consume.
//
// Any goroutine may call; nothing blocks.
type lockTable struct {
	now      func() time.Time
	saved    *meta.Locks
	stopping atomic.Bool // the broker closes the connections, their clients live on

	mu     sync.Mutex
	groups map[string]map[remoting.MessageQueue]*queueLock
}

// A queueLock says who holds a queue, and from when on no longer.
type queueLock struct {
	clientID string
	conn     *netloop.Conn // on which it was last renewed; nil when it was recovered
	until    time.Time
}

func newLockTable(now func() time.Time, saved *meta.Locks) *lockTable {
	t := &lockTable{now: now, saved: saved, groups: map[string]map[remoting.MessageQueue]*queueLock{}}
	until := now().Add(recoveredLiveTime)
	saved.Each(func(key meta.LockKey, clientID string) {
		t.group(key.Group)[key.Queue] = &queueLock{clientID: clientID, until: until}
	})
	return t
}

// group gives the locks of a group. The caller holds mu.
func (t *lockTable) group(name string) map[remoting.MessageQueue]*queueLock {
	locks := t.groups[name]
	if locks == nil {
		locks = map[remoting.MessageQueue]*queueLock{}
		t.groups[name] = locks
	}
	return locks
}

// lock takes or renews queues for the client at conn, and gives those of them it
// holds now. (As RebalanceLockManager#tryLockBatch, 5.3.)
func (t *lockTable) lock(group, clientID string, conn *netloop.Conn, queues []remoting.MessageQueue) []remoting.MessageQueue {
	now := t.now()
	held := make([]remoting.MessageQueue, 0, len(queues))
	t.mu.Lock()
	defer t.mu.Unlock()
	locks := t.group(group)
	for _, q := range queues {
		l := locks[q]
		if l != nil && l.clientID != clientID && now.Before(l.until) {
			continue
		}
		if l == nil || l.clientID != clientID {
			l = &queueLock{clientID: clientID}
			locks[q] = l
			t.saved.Set(meta.LockKey{Group: group, Queue: q}, clientID)
		}
		l.conn, l.until = conn, now.Add(lockLiveTime)
		held = append(held, q)
	}
	t.dropEmpty(group)
	return held
}

// unlock frees the queues that the client holds; those of others stay.
func (t *lockTable) unlock(group, clientID string, queues []remoting.MessageQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		if l := t.groups[group][q]; l != nil && l.clientID == clientID {
			t.drop(group, q)
		}
	}
	t.dropEmpty(group)
}

// left ends the locks of a client that has left a group with its connection
// conn, its last in the group; but not those it has renewed on a newer one, from
// which its heartbeat is still to come.
func (t *lockTable) left(group, clientID string, conn *netloop.Conn) {
	if t.stopping.Load() {
		return
	}
	t.freeIf(group, func(l *queueLock) bool {
		return l.clientID == clientID && (l.conn == nil || l.conn == conn || l.conn.Closed())
	})
}

// keep has the locks outlive the connections: the broker stops.
func (t *lockTable) keep() { t.stopping.Store(true) }

// freeGroup ends all locks of a group.
func (t *lockTable) freeGroup(group string) {
	t.freeIf(group, func(*queueLock) bool { return true })
}

func (t *lockTable) freeIf(group string, match func(*queueLock) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for q, l := range t.groups[group] {
		if match(l) {
			t.drop(group, q)
		}
	}
	t.dropEmpty(group)
}

// drop ends one lock. The caller holds mu.
func (t *lockTable) drop(group string, q remoting.MessageQueue) {
	delete(t.groups[group], q)
	t.saved.Set(meta.LockKey{Group: group, Queue: q}, "")
}

// held says whether any queue is locked for the group: its consumers are
// orderly ones.
func (t *lockTable) held(group string) bool {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.groups[group] {
		if now.Before(l.until) {
			return true
		}
	}
	return false
}

// expire drops locks that are over.
func (t *lockTable) expire(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for group, locks := range t.groups {
		for q, l := range locks {
			if !now.Before(l.until) {
				t.drop(group, q)
			}
		}
		t.dropEmpty(group)
	}
}

func (t *lockTable) dropEmpty(group string) {
	if locks, ok := t.groups[group]; ok && len(locks) == 0 {
		delete(t.groups, group)
	}
}

// handleLockBatch is LOCK_BATCH_MQ (41).
func handleLockBatch(b *Broker, r *request) (*response, error) {
	body, err := lockBody(r)
	if err != nil {
		return nil, err
	}
	held := b.locks.lock(body.ConsumerGroup, body.ClientID, r.conn, body.MQSet)
	return &response{body: remoting.MarshalBody(remoting.LockBatchReply{LockOKMQSet: held})}, nil
}

// handleUnlockBatch is UNLOCK_BATCH_MQ (42).
func handleUnlockBatch(b *Broker, r *request) (*response, error) {
	body, err := lockBody(r)
	if err != nil {
		return nil, err
	}
	b.locks.unlock(body.ConsumerGroup, body.ClientID, body.MQSet)
	return &response{}, nil
}

func lockBody(r *request) (*remoting.LockBatchBody, error) {
	var body remoting.LockBatchBody
	if err := remoting.ParseBody(r.cmd.Body, &body); err != nil {
		return nil, err
	}
	texts := []string{body.ConsumerGroup, body.ClientID}
	for _, q := range body.MQSet {
		texts = append(texts, q.Topic, q.BrokerName)
	}
	for _, text := range texts {
		if text == "" || len(text) > meta.LockBytesMax {
			return nil, refuse(remoting.InvalidParameter, "queue locks need consumerGroup, clientId, and topic and brokerName of each queue: got %.40q with %d bytes, want 1 to %d",
				text, len(text), meta.LockBytesMax)
		}
	}
	return &body, nil
}
