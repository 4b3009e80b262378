package netloop

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/ringmq/ringmq/remoting"
)

const (
	// roundTurns: how often a round looks again for work that came up while it
	// ran, before it lets the loop read sockets again.
	roundTurns = 4
	// turnInBytes and turnOutBytes: so much of one connection is decoded and
	// answered before the others of its loop have their turn.
	turnInBytes  = 64 << 10
	turnOutBytes = 1 << 20
	// deferConns: up to so many connections each read event ends its own
	// round. Above, read events of one epoll round may end together.
	deferConns = 4
	// deferProbe: of so many read events one is deferred to see whether
	// others come with it.
	deferProbe = 8
)

// Loop is one event loop. Except for Post, ID and Conns, its fields and
// methods belong to its goroutine.
type Loop struct {
	// User is the handler's own state of this loop; it is nil at first.
	User any

	srv    *Server
	id     int
	el     gnet.EventLoop // set once, before the first connection opens
	runner gnet.Runnable  // l.onWake, made once: Execute would allocate another

	mu    sync.Mutex
	tasks []Task // posted, not yet run; any goroutine under mu
	// awake says that the tasks will be looked at without a wake-up: a round
	// is running or on its way. A poster that turns it on does the wake-up.
	awake atomic.Bool
	conns atomic.Int32 // len(all), for other goroutines

	spare   []Task  // the other one of the two task lists
	all     []*Conn // open connections; a Conn knows its place
	dirty   []*Conn // with gathered answers
	ready   []*Conn // with held back frames that may be decoded now
	later   []*Conn // the same, in the next round: they have had their turn
	closing []*Conn // with a cause, still open
	gone    []*Conn // closed, the handler not yet told
	slow    []*Conn // with bytes in gnet's outbound buffer

	cmd     remoting.Command // the one that is being served
	buffers bufferList
	gather  gather
	nested  int // > 0 while a round or one of our callbacks runs
	reads   int // read events of this round
	written int // bytes written, to measure turns by
	// see readDone
	probe    int  // counts read events up to deferProbe
	deferred bool // the round is ended by onWake
	crowded  bool // the last deferred round ended several read events at once

	sampleIn int       // callbacks until the next timed one
	sampleAt time.Time // start of the callback that is timed, else zero
	stats    loopStats
	slowTask slowTask
	idleTask idleTask
}

func newLoop(s *Server, id int) *Loop {
	l := &Loop{srv: s, id: id, sampleIn: 1}
	l.runner = gnet.RunnableFunc(l.onWake)
	l.slowTask.l, l.idleTask.l = l, l
	return l
}

// ID is the loop's number, from 0. Any goroutine.
func (l *Loop) ID() int { return l.id }

// Conns is the number of connections on the loop. Any goroutine.
func (l *Loop) Conns() int { return int(l.conns.Load()) }

// Post has t run on the loop, in the order of posting. Any goroutine, the
// loop's own included; it never blocks and does not allocate in steady state.
// All tasks that wait run in one wake-up, after which the connections they
// answered are written once each. Tasks posted after Server.Close are dropped.
// The list is as long as its posters make it: they are bounded by their own
// means (requests in flight, the pool's queue).
func (l *Loop) Post(t Task) {
	l.mu.Lock()
	l.tasks = append(l.tasks, t)
	l.mu.Unlock()
	l.wake()
}

// wake sees to it that a round runs soon.
func (l *Loop) wake() {
	if !l.awake.Load() && l.awake.CompareAndSwap(false, true) {
		l.execute()
	}
}

func (l *Loop) execute() {
	l.stats.wakes.Add(1)
	// The error says that the engine is gone, and with it the connections.
	_ = l.el.Execute(context.Background(), l.runner)
}

func (l *Loop) onWake(context.Context) error {
	if l.deferred {
		l.deferred, l.crowded = false, l.reads > 1
	}
	l.enter()
	l.round()
	l.leave()
	return nil
}

// readDone follows the read event of one connection: it ends the round now,
// or has it ended after the other sockets that this epoll round found readable.
//
// Ending many read events together hands their requests over as one batch and
// costs one eventfd write: with 64 clients of one request in flight each it took
// a third to a half of the CPU off a message (BenchmarkHandOver), with 16 clients
// a quarter. It pays only if several clients are active, so it
// is tried now and then on a loop with many connections, and kept up as long
// as more than one read event comes together: a lone active client among idle
// ones pays for one try in deferProbe.
func (l *Loop) readDone(c *Conn) {
	if len(l.all) > l.srv.deferConns {
		l.probe++
		if l.deferred || l.crowded || l.probe >= deferProbe {
			l.probe, l.deferred = 0, true
			c.flush() // what it has now is not worth waiting for others
			l.wake()
			return
		}
	}
	l.round()
}

// round submits what was read, runs posted tasks, writes gathered answers and
// closes what is to be closed, and again while that brought up more.
func (l *Loop) round() {
	l.awake.Store(true)
	for turn := 0; ; turn++ {
		l.decodeReady()
		if l.reads > 0 {
			l.reads = 0
			l.srv.cfg.Handler.ReadEnd(l)
		}
		l.runTasks()
		l.flushDirty()
		l.closeClosing()
		l.tellGone()
		if turn+1 >= roundTurns && l.pending() {
			l.execute() // awake stays on
			break
		}
		l.awake.Store(false)
		if !l.pending() || !l.awake.CompareAndSwap(false, true) {
			break
		}
	}
	if len(l.later) > 0 {
		l.ready = append(l.ready, l.later...)
		clear(l.later)
		l.later = l.later[:0]
		l.wake()
	}
}

// pending tells whether there is something to do for a round.
func (l *Loop) pending() bool {
	if len(l.ready)+len(l.dirty)+len(l.closing)+len(l.gone)+l.reads > 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tasks) > 0
}

func (l *Loop) runTasks() {
	l.mu.Lock()
	run := l.tasks
	l.tasks = l.spare[:0]
	l.mu.Unlock()
	for i, t := range run {
		run[i] = nil
		t.RunOnLoop(l)
	}
	l.spare = run
	if cap(run) > 4096 { // one storm must not keep its list for ever
		l.spare = nil
	}
	if len(run) > 0 {
		l.stats.tasks.Add(int64(len(run)))
	}
}

func (l *Loop) flushDirty() {
	for i := 0; i < len(l.dirty); i++ {
		c := l.dirty[i]
		l.dirty[i] = nil
		c.flush()
		c.settle()
	}
	l.dirty = l.dirty[:0]
}

// decodeReady serves held back frames of connections that may go on.
func (l *Loop) decodeReady() {
	for i := 0; i < len(l.ready); i++ {
		c := l.ready[i]
		l.ready[i] = nil
		c.isReady = false
		if !c.deaf() {
			c.decodeHeld()
		}
		c.part()
	}
	l.ready = l.ready[:0]
}

func (l *Loop) closeClosing() {
	for i := 0; i < len(l.closing); i++ {
		c := l.closing[i]
		l.closing[i] = nil
		if !c.closed.Load() {
			c.flush()
		}
		if !c.closed.Load() {
			c.endTransform()
			_ = l.el.Close(c.gc) // calls OnClose
		}
	}
	l.closing = l.closing[:0]
}

func (l *Loop) tellGone() {
	for i := 0; i < len(l.gone); i++ {
		c := l.gone[i]
		l.gone[i] = nil
		l.srv.cfg.Handler.Closed(c, c.cause.Load().err)
	}
	l.gone = l.gone[:0]
}

func (l *Loop) add(c *Conn) {
	c.place = len(l.all)
	l.all = append(l.all, c)
	l.conns.Store(int32(len(l.all)))
}

func (l *Loop) remove(c *Conn) {
	last := len(l.all) - 1
	l.all[c.place] = l.all[last]
	l.all[c.place].place = c.place
	l.all[last] = nil
	l.all = l.all[:last]
	l.conns.Store(int32(len(l.all)))
}

// enter begins a callback of gnet's: what connections it closes are told to
// the handler at its end, and one callback in SampleEvery is timed.
func (l *Loop) enter() {
	l.nested++
	if l.nested > 1 {
		return
	}
	if l.sampleIn--; l.sampleIn <= 0 {
		l.sampleIn = l.srv.cfg.SampleEvery
		l.sampleAt = time.Now()
	}
}

func (l *Loop) leave() {
	l.nested--
	if l.nested == 0 && !l.sampleAt.IsZero() {
		l.stats.blocked(time.Since(l.sampleAt))
		l.sampleAt = time.Time{}
	}
}
