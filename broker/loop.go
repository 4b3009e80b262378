package broker

import (
	"sync"
	"time"

	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/filter"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

const (
	// batchBytes is from which size on a loop hands its batch to the engine
	// before its round is over: the appender writes while the loop decodes the
	// rest, and buffers stay small enough to be kept.
	batchBytes = 128 << 10
	// batchKeepBytes is the largest buffer a loop keeps for its next batch.
	batchKeepBytes = 256 << 10
	// batchesKept is how many empty batches a loop keeps.
	batchesKept = 32
	// directBytes is the size up to which a loop may append its batch by
	// itself, when the log is free: a hand-over costs more than the append.
	// From there on a second processor is worth it.
	directBytes = 32 << 10
)

// loopState is what the broker keeps for one loop; only that loop touches it.
// Its buffers are used again by each request.
type loopState struct {
	loop  *netloop.Loop
	holds *loopHolds

	batch    *sendBatch   // what this read event has sent so far; nil when nothing
	free     []*sendBatch // empty ones
	clockMs  int64        // wall clock of this read event; 0 until asked for
	prepared bool         // a request is being served again after prepare

	returnedMu sync.Mutex
	returned   []*sendBatch // answered by other goroutines, to be kept

	send   remoting.SendHeader
	record message.Message
	got    engine.GetResult

	popping  popReader // the pop being served
	popBatch *popBatch // what pops of this read event have changed; nil when nothing
	popFree  []*popBatch
	gots     []*engine.GetResult // empty ones

	filters map[filterKey]filter.Filter // compiled expressions that pulls have carried
	// Scratch buffers, by what they hold.
	props, scratch, topic, ids, head []byte
}

// Open is netloop's call for a new connection.
func (b *Broker) Open(c *netloop.Conn) {
	l := c.Loop()
	if l.User == nil {
		l.User = &loopState{loop: l, holds: b.holds.forLoop(l)}
	}
	b.clients.open(c)
}

// Closed is netloop's call for a connection that is gone.
func (b *Broker) Closed(c *netloop.Conn, cause error) {
	c.Loop().User.(*loopState).holds.closed(c)
	b.clients.closed(c, cause)
	b.asks.closed(c)
}

// ReadEnd hands what one read event has sent to the engine, as one batch.
func (b *Broker) ReadEnd(l *netloop.Loop) {
	state, _ := l.User.(*loopState)
	if state == nil {
		return
	}
	state.clockMs = 0
	if state.batch != nil {
		b.put(state)
	}
	b.putPops(state)
}

// put gives the loop's batch to the engine and answers it at once if it comes
// back finished.
func (b *Broker) put(state *loopState) {
	s := state.batch
	state.batch = nil
	if len(s.Items) == 0 { // all that was to be in it was refused
		state.recycle(s)
		return
	}
	s.MayDirect = len(s.Buf) <= directBytes
	b.flying.Add(1)
	s.state.Store(batchPutting)
	b.store.Put(&s.Batch)
	if !s.state.CompareAndSwap(batchPutting, batchReturned) {
		s.RunOnLoop(state.loop)
	}
}

// batchFor returns the batch to add a send to. A message that does not wait
// for the disk goes in a batch of its own, behind what was sent before it.
func (state *loopState) batchFor(b *Broker, wait bool) *sendBatch {
	if s := state.batch; s != nil {
		if s.Wait == wait && len(s.Buf) < batchBytes {
			return s
		}
		b.put(state)
	}
	if len(state.free) == 0 {
		state.takeReturned()
	}
	var s *sendBatch
	if n := len(state.free); n > 0 {
		s, state.free[n-1] = state.free[n-1], nil
		state.free = state.free[:n-1]
	} else {
		s = &sendBatch{b: b, loop: state.loop}
	}
	s.Wait, s.Done = wait, s
	state.batch = s
	return s
}

func (s *sendBatch) add(item engine.Item, send pendingSend) {
	s.Items = append(s.Items, item)
	s.sends = append(s.sends, send)
}

// giveBack returns a batch that another goroutine has answered.
func (state *loopState) giveBack(s *sendBatch) {
	state.returnedMu.Lock()
	state.returned = append(state.returned, s)
	state.returnedMu.Unlock()
}

func (state *loopState) takeReturned() {
	state.returnedMu.Lock()
	defer state.returnedMu.Unlock()
	for i, s := range state.returned {
		state.recycle(s)
		state.returned[i] = nil
	}
	state.returned = state.returned[:0]
}

// recycle keeps a finished batch for the next read event.
func (state *loopState) recycle(s *sendBatch) {
	clear(s.sends) // no connection is kept alive by a pooled batch
	s.sends = s.sends[:0]
	s.Reset()
	if len(state.free) < batchesKept && cap(s.Buf) <= batchKeepBytes {
		state.free = append(state.free, s)
	}
}

// nowMs is the wall clock in milliseconds, read once a read event.
func (state *loopState) nowMs() int64 {
	if state.clockMs == 0 {
		state.clockMs = time.Now().UnixMilli()
	}
	return state.clockMs
}
