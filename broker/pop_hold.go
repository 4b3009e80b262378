package broker

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringmq/ringmq/consumequeue"
)

// popHolds finds the pops and notifications that are held, by topic and group.
type popHolds struct {
	held atomic.Int64 // pops held now

	mu      sync.Mutex
	byGroup map[popKey]*popWaiters
}

type popKey struct{ topic, group string }

// popWaiters are the held pops and notifications of one group at one topic. It
// stands in the lists of the topic's queues, where the dispatcher finds it; a
// message wakes one pop, so that a hundred idle consumers don't run for one
// message, and every notification. What the reviver puts on a retry topic it
// tells by itself.
type popWaiters struct {
	mu      sync.Mutex
	seq     uint64               // of the last that happened for the group
	pops    map[int32][]*heldPop // parked, by the queueId asked for, -1 any; the oldest first
	notices []*heldNotice
	joined  []*consumequeue.Queue // by queueId: the queues it stands at; nil where it left
	dead    bool                  // forgotten: nobody tells it anything any more
}

func newPopHolds() *popHolds {
	return &popHolds{byGroup: map[popKey]*popWaiters{}}
}

// of finds or makes the waiters of a group at a topic.
func (t *popHolds) of(topic, group string) *popWaiters {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.byGroup[popKey{topic, group}]
	if w == nil {
		w = &popWaiters{pops: map[int32][]*heldPop{}}
		t.byGroup[popKey{topic, group}] = w
	}
	return w
}

// lock locks the waiters of a group, finding them anew where they were
// forgotten.
func (t *popHolds) lock(w **popWaiters, topic, group string) *popWaiters {
	for {
		(*w).mu.Lock()
		if !(*w).dead {
			return *w
		}
		(*w).mu.Unlock()
		*w = t.of(topic, group)
	}
}

// find is of for one that is there already.
func (t *popHolds) find(topic, group string) *popWaiters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byGroup[popKey{topic, group}]
}

// forget drops the waiters of groups that are no more; those with requests in
// them stay until these have ended.
func (t *popHolds) forget(match func(topic, group string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, w := range t.byGroup {
		w.mu.Lock()
		if w.idle() && match(key.topic, key.group) {
			delete(t.byGroup, key)
			w.dead = true
		}
		w.mu.Unlock()
	}
}

// wake tells the held requests of a group that something happened at a queue of
// its topic, -1 for any. Any goroutine; it doesn't block.
func (t *popHolds) wake(topic, group string, queueID int32) {
	if w := t.find(topic, group); w != nil {
		w.mu.Lock()
		w.happened(queueID)
		w.mu.Unlock()
	}
}

// polling counts the parked pops for a queueId.
func (w *popWaiters) polling(queueID int32) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pops[queueID])
}

// now is where the group's events stand. A request reads it before it looks.
func (w *popWaiters) now() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seq
}

func (w *popWaiters) idle() bool {
	for _, pops := range w.pops {
		if len(pops) > 0 {
			return false
		}
	}
	return len(w.notices) == 0
}

// happened wakes one pop that asked for any queue, one that asked for this, and
// all notifications. Locked.
func (w *popWaiters) happened(queueID int32) {
	w.seq++
	if queueID >= 0 {
		w.wakeOne(queueID)
		w.wakeOne(-1)
	} else if !w.wakeOne(-1) {
		for id := range w.pops {
			if w.wakeOne(id) {
				break
			}
		}
	}
	for i, n := range w.notices {
		w.notices[i] = nil
		n.wake()
	}
	w.notices = w.notices[:0]
}

func (w *popWaiters) wakeOne(queueID int32) bool {
	pops := w.pops[queueID]
	for i, p := range pops {
		if p.wake() {
			w.pops[queueID] = slices.Delete(pops, 0, i+1)
			return true
		}
	}
	return false
}

// arrived is the dispatcher's word that q has a new message. Where nobody waits
// any more it leaves q, so that the dispatcher passes it by.
func (w *popWaiters) arrived(q *consumequeue.Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.idle() {
		w.happened(q.ID())
		return
	}
	w.seq++
	id := int(q.ID())
	if id >= len(w.joined) || w.joined[id] != q {
		return
	}
	w.joined[id] = nil
	list := waitersOf(q)
	list.mu.Lock()
	defer list.mu.Unlock()
	if i := slices.Index(list.pops, w); i >= 0 {
		list.pops = slices.Delete(slices.Clone(list.pops), i, i+1)
		q.Waiters.Add(-1)
	}
}

// join has arrivals at the topic's queues told; true when some were not told
// until now. Locked.
func (w *popWaiters) join(b *Broker, topic string, queues int32) (joined bool) {
	for len(w.joined) < int(queues) {
		w.joined = append(w.joined, nil)
	}
	for id := range queues {
		q := w.joined[id]
		if q != nil && !q.Gone() {
			continue
		}
		if q = b.store.Queue(topic, id); q == nil {
			continue
		}
		w.joined[id], joined = q, true
		list := waitersOf(q)
		list.mu.Lock()
		list.pops = append(slices.Clone(list.pops), w)
		list.mu.Unlock()
		q.Waiters.Add(1)
	}
	return joined
}

// park puts p into its group's list, unless something happened since it looked:
// then it looks again.
func (p *heldPop) park() {
	b := p.home.table.b
	w := b.popHolds.lock(&p.waiters, p.topic.Name, p.group.GroupName)
	defer w.mu.Unlock()
	p.state.Store(holdParked)
	joined := w.join(b, p.topic.Name, p.topic.ReadQueues)
	if joined || w.seq != p.seq {
		p.wake()
		return
	}
	w.pops[p.queueID] = append(w.pops[p.queueID], p)
}

func (p *heldPop) unpark() {
	w := p.waiters
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.pops[p.queueID], p); i >= 0 {
		w.pops[p.queueID] = slices.Delete(w.pops[p.queueID], i, i+1)
	}
}

// passOn wakes another in p's place.
func (p *heldPop) passOn() {
	w := p.waiters
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeOne(p.queueID)
}

// park is heldPop's.
func (n *heldNotice) park() {
	b := n.home.table.b
	w := b.popHolds.lock(&n.waiters, n.topic.Name, n.group.GroupName)
	defer w.mu.Unlock()
	n.state.Store(holdParked)
	joined := w.join(b, n.topic.Name, n.topic.ReadQueues)
	if joined || w.seq != n.seq {
		n.wake()
		return
	}
	w.notices = append(w.notices, n)
}

func (n *heldNotice) unpark() {
	w := n.waiters
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.notices, n); i >= 0 {
		w.notices = slices.Delete(w.notices, i, i+1)
	}
}

func (n *heldNotice) passOn() {} // all are woken together
