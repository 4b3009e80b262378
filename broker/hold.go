package broker

import (
	"container/heap"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// holdTick is how exact the end of a hold is.
const holdTick = 20 * time.Millisecond

// holdTable parks requests that found nothing (pulls, pops, notifications)
// until a message arrives for them, their time is over, or their connection
// closes.
//
// A held request belongs to the loop of its connection: it is run again and
// answered there and nowhere else. Beside that it stands in a list where
// arrivals find it: a pull in its queue's, a pop in its group's (pop_hold.go).
// Whoever wakes it posts it to its loop; one wake-up serves all that are posted
// to a loop together. Nothing is polled: the dispatcher looks only at queues
// with waiters, and the ticker goroutine runs only while requests are held.
type holdTable struct {
	b *Broker

	held    atomic.Int64 // requests held now, over all loops
	ending  atomic.Bool  // the broker stops: nothing is held any more
	heldMax int64        // beyond it a request is answered at once

	ticking chan struct{} // buffered 1: wakes the ticker when the first request is held
	stop    chan struct{}
	done    sync.WaitGroup

	mu    sync.Mutex
	loops []*loopHolds
}

// loopHolds are the held requests of one loop, the next to end first. Only the
// loop touches byEnd; the ticker reads nextEnd.
type loopHolds struct {
	table   *holdTable
	loop    *netloop.Loop
	byEnd   holdHeap
	nextEnd atomic.Int64 // unix milliseconds; 0 when nothing is held
	posted  atomic.Bool  // the expiry task is on its way to the loop
}

// A queueWaiters is who waits at one queue; it hangs at the queue itself, so
// that the dispatcher finds it without a lookup.
type queueWaiters struct {
	mu    sync.Mutex
	pulls []*heldPull
	pops  []*popWaiters // replaced as a whole
}

const (
	holdParked  = iota // in its list: who finds it there may take it
	holdPosted         // taken, on its way to the loop
	holdRunning        // looking again
	holdOver           // answered or dropped
)

// A heldRequest is what kinds of held requests do differently. All of it runs
// on the loop.
type heldRequest interface {
	// look tries again and says whether it has answered.
	look(state *loopState, look look) bool
	// park puts the request where arrivals find it. One that came since it
	// last looked must wake it.
	park()
	// unpark takes it out.
	unpark()
	// checked says what the request was checked against.
	checked() (*meta.Topic, *meta.Group)
	// outdated answers: topic or group are others now.
	outdated(state *loopState)
	// ended is called once, when the request is held no longer.
	ended()
	// passOn is for a request that was woken and ends without having looked:
	// what woke it may be for another one.
	passOn()
}

// A held is one parked request.
type held struct {
	request  heldRequest
	conn     *netloop.Conn
	state    atomic.Int32
	home     *loopHolds
	endMs    int64
	heapSlot int
}

// A heldPull is a parked pull: what is needed to run it again.
type heldPull struct {
	held
	pull    // the request, owned copies
	waiters *queueWaiters
}

func newHoldTable(b *Broker, heldMax int64) *holdTable {
	return &holdTable{b: b, heldMax: heldMax, ticking: make(chan struct{}, 1), stop: make(chan struct{})}
}

func (t *holdTable) start() { t.done.Go(t.tick) }

// close stops the ticker. What is still held is answered by answerAll before.
func (t *holdTable) close() {
	close(t.stop)
	t.done.Wait()
}

// loopHoldsOf gives l its table; on the loop.
func (t *holdTable) forLoop(l *netloop.Loop) *loopHolds {
	h := &loopHolds{table: t, loop: l}
	t.mu.Lock()
	t.loops = append(t.loops, h)
	t.mu.Unlock()
	return h
}

// waitersOf returns q's list, making it at the first hold.
func waitersOf(q *consumequeue.Queue) *queueWaiters {
	if w, _ := q.User.Load().(*queueWaiters); w != nil {
		return w
	}
	q.User.CompareAndSwap(nil, &queueWaiters{})
	return q.User.Load().(*queueWaiters)
}

// holdPull parks p until endMs; see hold.
func (h *loopHolds) holdPull(p *pull, endMs int64) bool {
	hp := &heldPull{pull: *p, waiters: waitersOf(p.queue)}
	hp.held.request, hp.held.conn = hp, p.conn
	return h.hold(&hp.held, endMs)
}

// hold parks a request until endMs; on its loop. It says false when too many
// are held already or the broker stops: then the caller answers at once.
func (h *loopHolds) hold(p *held, endMs int64) bool {
	t := h.table
	if t.held.Add(1) > t.heldMax || t.ending.Load() {
		t.held.Add(-1)
		return false
	}
	p.home, p.endMs = h, endMs
	heap.Push(&h.byEnd, p)
	h.nextEnd.Store(h.byEnd[0].endMs)
	p.request.park()
	select {
	case t.ticking <- struct{}{}:
	default:
	}
	return true
}

// wake posts a parked request to its loop. Any goroutine, with the list that it
// stands in locked; false when it is not parked.
func (p *held) wake() bool {
	if !p.state.CompareAndSwap(holdParked, holdPosted) {
		return false
	}
	p.home.loop.Post(p)
	return true
}

// park puts the pull into its queue's list. A message that arrived between the
// pull's look at the queue and this moment would not wake it, so it looks once
// more.
func (p *heldPull) park() {
	p.state.Store(holdParked)
	w := p.waiters
	w.mu.Lock()
	w.pulls = append(w.pulls, p)
	w.mu.Unlock()
	p.queue.Waiters.Add(1)
	if int64(p.queue.Max()) > int64(p.offset) && !p.unreadable {
		arrived(p.queue)
	}
}

func (p *heldPull) look(state *loopState, look look) bool {
	return p.home.table.b.answerPull(&p.pull, state, look)
}

func (p *heldPull) unpark() {
	w := p.waiters
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.pulls, p); i >= 0 {
		w.pulls = slices.Delete(w.pulls, i, i+1)
		p.queue.Waiters.Add(-1)
	}
}

func (p *heldPull) checked() (*meta.Topic, *meta.Group) { return p.topic, p.group }

// outdated answers 20, which makes every client pull again at once; then it is
// checked anew.
func (p *heldPull) outdated(*loopState) {
	now := engine.GetResult{Next: p.offset, Min: p.queue.Min(), Max: p.queue.Max()}
	p.home.table.b.replyPull(&p.pull, &now, remoting.PullRetryImmediately, "group or topic has changed: pull again")
}

func (p *heldPull) ended() {}

func (p *heldPull) passOn() {} // all pulls of a queue are woken together

// arrived wakes all pulls that wait at q, and of each group that waits to pop
// from it one; called by the dispatcher, never blocks.
func arrived(q *consumequeue.Queue) {
	w, _ := q.User.Load().(*queueWaiters)
	if w == nil {
		return
	}
	w.mu.Lock()
	for i, p := range w.pulls {
		w.pulls[i] = nil
		p.wake()
	}
	q.Waiters.Add(int32(-len(w.pulls)))
	w.pulls = w.pulls[:0]
	pops := w.pops
	w.mu.Unlock()
	for _, group := range pops {
		group.arrived(q)
	}
}

// RunOnLoop runs a woken request again. When nothing of what arrived is for it,
// it goes on waiting, from behind what it has seen.
func (p *held) RunOnLoop(l *netloop.Loop) {
	if !p.state.CompareAndSwap(holdPosted, holdRunning) {
		return
	}
	if p.conn.Closed() {
		p.state.Store(holdPosted)
		p.home.drop(p)
		return
	}
	if p.request.look(l.User.(*loopState), lookAgain) {
		p.home.drop(p)
	} else {
		p.request.park()
	}
	p.home.table.b.ReadEnd(l)
}

// drop forgets p; on its loop.
func (h *loopHolds) drop(p *held) {
	switch p.state.Swap(holdOver) {
	case holdParked:
		p.request.unpark()
	case holdPosted:
		p.request.passOn()
	}
	p.request.ended()
	heap.Remove(&h.byEnd, p.heapSlot)
	h.table.held.Add(-1)
	h.nextEnd.Store(0)
	if len(h.byEnd) > 0 {
		h.nextEnd.Store(h.byEnd[0].endMs)
	}
}

// closed drops what c has parked; on the loop.
func (h *loopHolds) closed(c *netloop.Conn) {
	for i := 0; i < len(h.byEnd); {
		if p := h.byEnd[i]; p.conn == c {
			h.drop(p)
			i = 0 // the heap has moved
			continue
		}
		i++
	}
}

// end answers the requests whose time is over.
func (h *loopHolds) end(nowMs int64) {
	for len(h.byEnd) > 0 && h.byEnd[0].endMs <= nowMs {
		p := h.byEnd[0]
		if !p.conn.Closed() {
			p.request.look(h.loop.User.(*loopState), lookLast)
		}
		h.drop(p)
	}
	h.table.b.ReadEnd(h.loop)
}

// RunOnLoop ends holds whose time is over: the ticker's task.
func (h *loopHolds) RunOnLoop(*netloop.Loop) {
	h.posted.Store(false)
	h.end(h.table.b.now().UnixMilli())
}

// tick posts the expiry task to loops that have a hold at its end. It sleeps
// while nothing is held.
func (t *holdTable) tick() {
	ticker := time.NewTicker(holdTick)
	defer ticker.Stop()
	for {
		if t.held.Load() == 0 {
			ticker.Stop()
			select {
			case <-t.stop:
				return
			case <-t.ticking:
				ticker.Reset(holdTick)
			}
		}
		select {
		case <-t.stop:
			return
		case <-ticker.C:
		}
		nowMs := t.b.now().UnixMilli()
		t.mu.Lock()
		for _, h := range t.loops {
			if end := h.nextEnd.Load(); end != 0 && end <= nowMs && h.posted.CompareAndSwap(false, true) {
				h.loop.Post(h)
			}
		}
		t.mu.Unlock()
	}
}

// holdHeap orders held requests by their end (container/heap).
type holdHeap []*held

func (h holdHeap) Len() int           { return len(h) }
func (h holdHeap) Less(i, j int) bool { return h[i].endMs < h[j].endMs }
func (h holdHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapSlot, h[j].heapSlot = i, j
}
func (h *holdHeap) Push(x any) {
	p := x.(*held)
	p.heapSlot = len(*h)
	*h = append(*h, p)
}
func (h *holdHeap) Pop() any {
	old := *h
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return p
}

// recheck has every held request that match picks asked again: what it was
// checked against, its group say or its topic, is another now. It is called
// after the change is in the tables: a request that was checked before it and
// is held later is on its loop now, and so held before the loop looks. match
// runs on the loops. It doesn't block.
func (t *holdTable) recheck(match func(c *netloop.Conn, t *meta.Topic, g *meta.Group) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.loops {
		h.loop.Post(&recheckTask{h, match})
	}
}

// A recheckTask is recheck's task on one loop.
type recheckTask struct {
	holds *loopHolds
	match func(c *netloop.Conn, t *meta.Topic, g *meta.Group) bool
}

// RunOnLoop ends what the task picks.
func (r *recheckTask) RunOnLoop(l *netloop.Loop) {
	for _, p := range slices.Clone(r.holds.byEnd) {
		if topic, group := p.request.checked(); !r.match(p.conn, topic, group) {
			continue
		}
		if !p.conn.Closed() {
			p.request.outdated(l.User.(*loopState))
		}
		r.holds.drop(p)
	}
	r.holds.table.b.ReadEnd(l)
}

// endAll answers every held request as if its time were over: the broker stops.
func (t *holdTable) endAll() {
	t.ending.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.loops {
		h.loop.Post((*endTask)(h))
	}
}

// endTask is endAll's task on one loop.
type endTask loopHolds

// RunOnLoop answers the loop's held requests.
func (e *endTask) RunOnLoop(*netloop.Loop) { (*loopHolds)(e).end(1<<63 - 1) }
