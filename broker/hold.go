package broker

import (
	"container/heap"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// holdTick is how exact the end of a hold is.
const holdTick = 20 * time.Millisecond

// holdTable parks pulls that found nothing until a message arrives in their
// queue, their time is over, or their connection closes.
//
// A held pull belongs to the loop of its connection: it is run again and
// answered there and nowhere else. Beside that it stands in the list of its
// queue, from which the dispatcher takes it (arrived) and posts it to its
// loop; one wake-up serves all that are posted to a loop together. Nothing is
// polled: the dispatcher looks only at queues with waiters, and the ticker
// goroutine runs only while pulls are held.
type holdTable struct {
	b *Broker

	held    atomic.Int64 // pulls held now, over all loops
	ending  atomic.Bool  // the broker stops: nothing is held any more
	heldMax int64        // beyond it a pull is answered at once

	ticking chan struct{} // buffered 1: wakes the ticker when the first pull is held
	stop    chan struct{}
	done    sync.WaitGroup

	mu    sync.Mutex
	loops []*loopHolds
}

// loopHolds are the held pulls of one loop, the next to end first. Only the
// loop touches byEnd; the ticker reads nextEnd.
type loopHolds struct {
	table   *holdTable
	loop    *netloop.Loop
	byEnd   holdHeap
	nextEnd atomic.Int64 // unix milliseconds; 0 when nothing is held
	posted  atomic.Bool  // the expiry task is on its way to the loop
}

// A queueWaiters is the list of pulls that wait at one queue; it hangs at the
// queue itself, so that the dispatcher finds it without a lookup.
type queueWaiters struct {
	mu    sync.Mutex
	pulls []*heldPull
}

const (
	holdParked = iota // in its queue's list: the dispatcher may take it
	holdPosted        // taken by the dispatcher, on its way to the loop
	holdOver          // answered or dropped
)

// A heldPull is one parked pull: what is needed to run it again.
type heldPull struct {
	pull     // the request, owned copies
	state    atomic.Int32
	waiters  *queueWaiters
	home     *loopHolds
	endMs    int64
	heapSlot int
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

// hold parks p until endMs; on p's loop. It says false when too many pulls are
// held already or the broker stops: then the caller answers at once.
func (h *loopHolds) hold(p *heldPull, endMs int64) bool {
	t := h.table
	if t.held.Add(1) > t.heldMax || t.ending.Load() {
		t.held.Add(-1)
		return false
	}
	p.home, p.endMs, p.waiters = h, endMs, waitersOf(p.queue)
	heap.Push(&h.byEnd, p)
	h.nextEnd.Store(h.byEnd[0].endMs)
	h.park(p)
	select {
	case t.ticking <- struct{}{}:
	default:
	}
	return true
}

// park puts p into its queue's list. A message that arrived between the pull's
// look at the queue and this moment would not wake it, so it looks once more.
func (h *loopHolds) park(p *heldPull) {
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

// arrived posts all pulls that wait at q to their loops; called by the
// dispatcher, never blocks.
func arrived(q *consumequeue.Queue) {
	w, _ := q.User.Load().(*queueWaiters)
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for i, p := range w.pulls {
		w.pulls[i] = nil
		n++
		if p.state.CompareAndSwap(holdParked, holdPosted) {
			p.home.loop.Post(p)
		}
	}
	w.pulls = w.pulls[:0]
	q.Waiters.Add(int32(-n))
}

// RunOnLoop runs a woken pull again. When nothing of what arrived is for it, it
// goes on waiting, from behind what it has seen.
func (p *heldPull) RunOnLoop(*netloop.Loop) {
	if p.state.Load() == holdOver {
		return
	}
	if p.conn.Closed() {
		p.home.drop(p)
		return
	}
	b := p.home.table.b
	if b.answerPull(&p.pull, p.home.loop.User.(*loopState), lookAgain) {
		p.home.drop(p)
		return
	}
	p.home.park(p)
}

// drop forgets p; on its loop.
func (h *loopHolds) drop(p *heldPull) {
	if p.state.Swap(holdOver) == holdParked {
		w := p.waiters
		w.mu.Lock()
		for i, x := range w.pulls {
			if x == p {
				w.pulls = append(w.pulls[:i], w.pulls[i+1:]...)
				p.queue.Waiters.Add(-1)
				break
			}
		}
		w.mu.Unlock()
	}
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

// end answers the pulls whose time is over.
func (h *loopHolds) end(nowMs int64) {
	for len(h.byEnd) > 0 && h.byEnd[0].endMs <= nowMs {
		p := h.byEnd[0]
		if !p.conn.Closed() {
			h.table.b.answerPull(&p.pull, h.loop.User.(*loopState), lookLast)
		}
		h.drop(p)
	}
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

// holdHeap orders held pulls by their end (container/heap).
type holdHeap []*heldPull

func (h holdHeap) Len() int           { return len(h) }
func (h holdHeap) Less(i, j int) bool { return h[i].endMs < h[j].endMs }
func (h holdHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapSlot, h[j].heapSlot = i, j
}
func (h *holdHeap) Push(x any) {
	p := x.(*heldPull)
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

// recheck has every held pull that match picks asked again by its client: what
// it was checked against, its group say or its topic, is another now. It is
// called after the change is in the tables: a pull that was checked before it and
// is held later is on its loop now, and so held before the loop looks. match runs
// on the loops. It doesn't block.
func (t *holdTable) recheck(match func(*pull) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.loops {
		h.loop.Post(&recheckTask{h, match})
	}
}

// A recheckTask is recheck's task on one loop.
type recheckTask struct {
	holds *loopHolds
	match func(*pull) bool
}

// RunOnLoop answers what the task picks: 20 makes every client pull again at
// once, and then it is checked anew.
func (r *recheckTask) RunOnLoop(*netloop.Loop) {
	for _, p := range slices.Clone(r.holds.byEnd) {
		if !r.match(&p.pull) {
			continue
		}
		if !p.conn.Closed() {
			now := engine.GetResult{Next: p.offset, Min: p.queue.Min(), Max: p.queue.Max()}
			r.holds.table.b.replyPull(&p.pull, &now, remoting.PullRetryImmediately, "group or topic has changed: pull again")
		}
		r.holds.drop(p)
	}
}

// endAll answers every held pull as if its time were over: the broker stops.
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

// RunOnLoop answers the loop's held pulls.
func (e *endTask) RunOnLoop(*netloop.Loop) { (*loopHolds)(e).end(1<<63 - 1) }
