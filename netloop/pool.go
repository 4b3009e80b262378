package netloop

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// pool serves the requests of the pool lane: a fixed number of goroutines on
// one bounded queue, which the loops fill.
type pool struct {
	srv   *Server
	jobs  chan poolJob  // loops -> workers
	left  atomic.Int32  // workers running
	busy  atomic.Int32  // workers in a Serve
	done  chan struct{} // closed by the last of them
	once  sync.Once     // closes jobs
	drop  atomic.Bool   // what is queued is not served any more
	full  atomic.Int64  // requests refused
	begun atomic.Int64  // requests taken by a worker
}

// A poolJob is a request, or a function given to Loop.Go.
type poolJob struct {
	c   *Conn
	req *remoting.Command
	run func()
}

func newPool(s *Server) *pool {
	p := &pool{srv: s, jobs: make(chan poolJob, s.cfg.PoolQueueMax), done: make(chan struct{})}
	p.left.Store(int32(s.cfg.PoolWorkers))
	for range s.cfg.PoolWorkers {
		go p.work()
	}
	return p
}

func (p *pool) work() {
	for j := range p.jobs {
		p.busy.Add(1)
		if !p.drop.Load() {
			p.begun.Add(1)
			if j.run != nil {
				j.run()
			} else {
				p.srv.cfg.Handler.Serve(j.c, j.req)
			}
		}
		p.busy.Add(-1)
	}
	if p.left.Add(-1) == 0 {
		close(p.done)
	}
}

// submit queues a copy of the request, or answers that the queue is full. On
// a loop; it does not block.
func (p *pool) submit(c *Conn, req *remoting.Command) {
	if len(p.jobs) < cap(p.jobs) {
		select {
		case p.jobs <- poolJob{c: c, req: req.Clone()}:
			return
		default: // another loop was faster
		}
	}
	p.full.Add(1)
	if req.IsOneway() {
		return
	}
	remark := fmt.Sprintf("system busy: the queue of requests to the pool is full: got %d, limit %d (%s)",
		len(p.jobs), cap(p.jobs), p.srv.cfg.Keys.PoolQueueMax)
	c.SetOut(remoting.AppendReply(c.Out(), req.ReplyTo(), remoting.SystemBusy, remark, nil, nil))
}

// Go has run called on a pool goroutine: what a request on a loop needs done
// that may wait for a disk. Only on a loop, while a frame is being served or a
// task run that a frame or an earlier Go led to; it does not block. False says
// that the queue is full, or that the server is closing: run is not called.
func (l *Loop) Go(run func()) bool {
	s := l.srv
	if s.draining.Load() {
		return false
	}
	select {
	case s.pool.jobs <- poolJob{run: run}:
		return true
	default:
		s.pool.full.Add(1)
		return false
	}
}

// close lets the workers end after what is queued. No loop submits any more.
func (p *pool) close() { p.once.Do(func() { close(p.jobs) }) }

// wait waits for the workers; once ctx ends what is queued is dropped and only
// the idle ones are waited for.
func (p *pool) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	p.drop.Store(true)
	for p.left.Load() > p.busy.Load() {
		time.Sleep(closePoll)
	}
	if n := p.busy.Load(); n > 0 {
		return fmt.Errorf("netloop: %d requests of the pool still run: %w", n, ctx.Err())
	}
	return nil
}
