package broker

import (
	"sync"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// lockLiveTime is how long a queue lock lives without being renewed; consumers
// renew every 20 s (rocketmq.broker.rebalance.lockMaxLiveTime of Apache).
const lockLiveTime = 60 * time.Second

// lockTable holds the queue locks of orderly consumers: while one client of a
// group holds a queue, no other one of the group gets it. Unlike Apache's it
// frees a client's locks when the client unregisters or its connection closes,
// so that the next owner need not wait for them to expire.
//
// Any goroutine may call; nothing blocks.
type lockTable struct {
	now func() time.Time

	mu     sync.Mutex
	groups map[string]map[remoting.MessageQueue]*queueLock
}

// A queueLock says who holds a queue, and from when on no longer.
type queueLock struct {
	clientID string
	until    time.Time
}

func newLockTable(now func() time.Time) *lockTable {
	return &lockTable{now: now, groups: map[string]map[remoting.MessageQueue]*queueLock{}}
}

// lock takes or renews queues for a client, and gives those of them it holds
// now. (As RebalanceLockManager#tryLockBatch, 5.3.)
func (t *lockTable) lock(group, clientID string, queues []remoting.MessageQueue) []remoting.MessageQueue {
	now := t.now()
	held := make([]remoting.MessageQueue, 0, len(queues))
	t.mu.Lock()
	defer t.mu.Unlock()
	locks := t.groups[group]
	if locks == nil {
		locks = make(map[remoting.MessageQueue]*queueLock, len(queues))
		t.groups[group] = locks
	}
	for _, q := range queues {
		l := locks[q]
		if l == nil {
			l = &queueLock{}
			locks[q] = l
		}
		if l.clientID != clientID && now.Before(l.until) {
			continue
		}
		l.clientID, l.until = clientID, now.Add(lockLiveTime)
		held = append(held, q)
	}
	return held
}

// unlock frees the queues that the client holds; those of others stay.
func (t *lockTable) unlock(group, clientID string, queues []remoting.MessageQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		if l := t.groups[group][q]; l != nil && l.clientID == clientID {
			delete(t.groups[group], q)
		}
	}
	t.dropEmpty(group)
}

// free ends all locks of a client that has left a group.
func (t *lockTable) free(group, clientID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for q, l := range t.groups[group] {
		if l.clientID == clientID {
			delete(t.groups[group], q)
		}
	}
	t.dropEmpty(group)
}

// freeGroup ends all locks of a group.
func (t *lockTable) freeGroup(group string) {
	t.mu.Lock()
	delete(t.groups, group)
	t.mu.Unlock()
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
				delete(locks, q)
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
	held := b.locks.lock(body.ConsumerGroup, body.ClientID, body.MQSet)
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
	if body.ConsumerGroup == "" || body.ClientID == "" {
		return nil, refuse(remoting.InvalidParameter, "queue locks need consumerGroup and clientId: got %q and %q", body.ConsumerGroup, body.ClientID)
	}
	return &body, nil
}
