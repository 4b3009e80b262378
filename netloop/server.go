package netloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

const (
	slowEvery   = 10 * time.Millisecond  // how often connections that do not read are looked at
	acceptPause = 50 * time.Millisecond  // after a failed accept
	lingerMax   = 250 * time.Millisecond // how long Close waits for peers to read to the end
	closePoll   = 2 * time.Millisecond   // how often Close looks whether all is written
)

// Server is a running set of loops and listeners. Its methods may be called
// from any goroutine but a loop's or a pool's.
type Server struct {
	cfg       Config
	log       limiter
	listeners []net.Listener
	engine    *gnet.Client
	loops     []*Loop
	pool      *pool
	// deferConns is the constant; the bench compares.
	deferConns int

	mu    sync.Mutex
	byEl  map[gnet.EventLoop]*Loop // filled as gnet's loops show themselves
	bound atomic.Int32             // so many of loops are in byEl

	ids      atomic.Uint64
	conns    atomic.Int32
	refused  atomic.Int64 // connections over ConnsMax
	total    atomic.Int64 // bytes waiting on all connections
	slow     atomic.Int32 // connections with outbound bytes
	tick     atomic.Uint32
	draining atomic.Bool

	kick     chan struct{} // to the keeper: the first slow connection
	stop     chan struct{} // closed: acceptors and keeper end
	accepts  sync.WaitGroup
	keeper   sync.WaitGroup
	tunnels  sync.WaitGroup
	drain    sync.Once
	closeAll sync.Once
	closeErr error
}

// Listen listens on all addresses and serves. Its error names the address.
func Listen(cfg Config) (*Server, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: limiter{log: cfg.Logger}, deferConns: deferConns,
		byEl: make(map[gnet.EventLoop]*Loop),
		kick: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	for i := range cfg.Loops {
		s.loops = append(s.loops, newLoop(s, i))
	}
	if err := s.bind(); err != nil {
		return nil, err
	}
	var err error
	s.engine, err = gnet.NewClient(&events{s: s},
		gnet.WithNumEventLoop(cfg.Loops), gnet.WithReadBufferCap(readBytes), gnet.WithLogger(gnetLogger{cfg.Logger}))
	if err == nil {
		err = s.engine.Start()
	}
	if err != nil {
		s.closeListeners()
		return nil, fmt.Errorf("netloop: starting %d loops: %w", cfg.Loops, err)
	}
	s.pool = newPool(s)
	s.keeper.Go(s.keep)
	for _, ln := range s.listeners {
		s.accepts.Go(func() { s.accept(ln) })
	}
	return s, nil
}

func (s *Server) bind() error {
	// As Apache: no TCP keep-alive, heartbeats do that. Multipath TCP, Go's
	// default, would put another layer under every write.
	lc := net.ListenConfig{KeepAlive: -1}
	lc.SetMultipathTCP(false)
	for _, addr := range s.cfg.Addrs {
		ln, err := lc.Listen(context.Background(), "tcp", addr)
		if err != nil {
			s.closeListeners()
			return fmt.Errorf("netloop: cannot listen on %s: %w", addr, err)
		}
		s.listeners = append(s.listeners, ln)
	}
	return nil
}

func (s *Server) closeListeners() {
	for _, ln := range s.listeners {
		_ = ln.Close()
	}
}

// Addr is the address of Config.Addrs[i] with its real port.
func (s *Server) Addr(i int) net.Addr { return s.listeners[i].Addr() }

// loopOf is our loop of one of gnet's.
func (s *Server) loopOf(el gnet.EventLoop) *Loop {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byEl[el]
	if l == nil {
		l = s.loops[len(s.byEl)]
		l.el = el
		s.byEl[el] = l
		s.bound.Add(1)
	}
	return l
}

// accept is an acceptor's goroutine.
func (s *Server) accept(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if err != nil {
			select {
			case <-s.stop:
				return
			default:
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.warn(logAccept, "cannot accept a connection", "local", ln.Addr(), "error", err)
			select { // a full descriptor table: let some go first
			case <-s.stop:
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		if n := int(s.conns.Load()); n >= s.cfg.ConnsMax {
			s.refused.Add(1)
			s.log.warn(logConns, "connection refused: too many are open", "remote", nc.RemoteAddr(),
				"got", n, "limit", s.cfg.ConnsMax, "key", s.cfg.Keys.ConnsMax)
			_ = nc.Close()
			continue
		}
		// gnet takes a copy of the descriptor and closes nc.
		if _, err := s.engine.EnrollContext(nc, s.newConn(nc)); err != nil {
			s.log.warn(logAccept, "cannot serve a connection", "remote", nc.RemoteAddr(), "error", err)
		}
	}
}

// slowConns counts connections with outbound bytes. On a loop.
func (s *Server) slowConns(d int32) {
	if s.slow.Add(d) == 1 && d > 0 {
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
}

// keep is the keeper's goroutine.
func (s *Server) keep() {
	every := time.Second
	if idle := s.cfg.IdleTimeout; idle > 0 {
		every = max(min(every, idle/16), time.Millisecond)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	slow := time.NewTicker(slowEvery)
	slow.Stop()
	defer slow.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.kick:
			slow.Reset(slowEvery)
		case <-slow.C:
			s.eachBound(func(l *Loop) {
				if l.slowTask.posted.CompareAndSwap(false, true) {
					l.Post(&l.slowTask)
				}
			})
			if s.slow.Load() == 0 {
				slow.Stop()
				s.slowConns(0) // one may have come since: it kicked, or does now
			}
		case <-tick.C:
			s.tick.Add(1)
			s.eachBound(func(l *Loop) { l.idleTask.post(every) })
		}
	}
}

// eachBound calls fn for the loops that have had a connection.
func (s *Server) eachBound(fn func(*Loop)) {
	for _, l := range s.loops[:s.bound.Load()] {
		fn(l)
	}
}

// idleTask closes a loop's idle connections and measures how long it waited
// for the loop.
type idleTask struct {
	l      *Loop
	posted atomic.Bool
	at     time.Time     // of posting; the keeper's while posted is false
	every  time.Duration // of the tick
}

func (t *idleTask) post(every time.Duration) {
	if t.posted.Load() {
		t.l.stats.lagNanos.Store(int64(time.Since(t.at))) // still waiting
		return
	}
	t.at, t.every = time.Now(), every
	t.posted.Store(true)
	t.l.Post(t)
}

func (t *idleTask) RunOnLoop(l *Loop) {
	l.stats.lagNanos.Store(int64(time.Since(t.at)))
	s := l.srv
	if idle := s.cfg.IdleTimeout; idle > 0 {
		now, limit := s.tick.Load(), uint32((idle+t.every-1)/t.every)
		if now%max(limit/16, 1) == 0 {
			for _, c := range l.all {
				if now-c.lastTick.Load() > limit {
					c.fail(ErrIdle)
				}
			}
		}
	}
	t.posted.Store(false)
}

// Drain stops accepting, stops decoding, and waits until every request that a
// loop or the pool had taken has returned from Serve. Answers can still be
// sent: a handler that answers later does so between Drain and Close. The
// error is ctx's.
func (s *Server) Drain(ctx context.Context) error {
	s.drain.Do(func() {
		close(s.stop)
		s.closeListeners()
		s.accepts.Wait()
		s.draining.Store(true)
	})
	// A loop that runs this task is in no Serve and will begin none.
	if err := s.barrier(ctx, func(*Loop) {}); err != nil {
		return err
	}
	s.pool.close()
	return s.pool.wait(ctx)
}

// Close drains, lets what has been sent be written and read, for as long as
// ctx lasts, then closes all connections and waits for all goroutines. A
// handler that never returns from Serve is not waited for beyond ctx. The
// error says what was cut short.
func (s *Server) Close(ctx context.Context) error {
	s.closeAll.Do(func() { s.closeErr = s.close(ctx) })
	return s.closeErr
}

func (s *Server) close(ctx context.Context) error {
	err := s.Drain(ctx)
	if err == nil {
		err = s.flushAll(ctx)
	}
	s.keeper.Wait()
	stopErr := s.engine.Stop() // closes the connections, waits for the loops
	s.tunnels.Wait()
	s.pool.close()
	return errors.Join(err, stopErr, s.pool.wait(ctx))
}

// flushAll waits until everything posted has run and everything sent is with
// the kernel, then ends the stream and gives the peers a moment to read it: a
// socket closed with unread bytes would reset the connection and take answers
// on their way with it.
func (s *Server) flushAll(ctx context.Context) error {
	for {
		var left atomic.Int64
		if err := s.barrier(ctx, func(l *Loop) { left.Add(l.unwritten()) }); err != nil {
			return err
		}
		if left.Load() == 0 {
			break
		}
		if !pause(ctx) {
			return fmt.Errorf("netloop: %d bytes not read by their peers: %w", left.Load(), ctx.Err())
		}
	}
	linger, cancel := context.WithTimeout(ctx, lingerMax)
	defer cancel()
	if s.barrier(linger, func(l *Loop) { l.endStreams() }) != nil {
		return nil
	}
	for s.conns.Load() > 0 && pause(linger) {
	}
	return nil
}

func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(closePoll):
		return true
	}
}

// unwritten sums up what the loop's connections have not given to the kernel.
func (l *Loop) unwritten() (n int64) {
	for _, c := range l.all {
		n += int64(len(c.out)) + int64(c.gc.OutboundBuffered()) + c.posted.Load()
	}
	return n
}

// endStreams tells all peers that nothing more comes; they close, or Close does.
func (l *Loop) endStreams() {
	for _, c := range l.all {
		c.endTransform()
		endStream(c.fd)
	}
}

// barrier runs fn on every loop that has had a connection, behind all that is
// posted, and waits for it.
func (s *Server) barrier(ctx context.Context, fn func(*Loop)) error {
	n := int(s.bound.Load())
	b := &barrierTask{fn: fn, done: make(chan struct{}, n)}
	for _, l := range s.loops[:n] {
		l.Post(b)
	}
	for range n {
		select {
		case <-b.done:
		case <-ctx.Done():
			return fmt.Errorf("netloop: a loop is busy: %w", ctx.Err())
		}
	}
	return nil
}

type barrierTask struct {
	fn   func(*Loop)
	done chan struct{}
}

func (b *barrierTask) RunOnLoop(l *Loop) {
	b.fn(l)
	b.done <- struct{}{}
}
