package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// ErrBackoff: the address could not be reached a moment ago; it is not tried
// again yet. It wraps that failure.
var ErrBackoff = errors.New("client: waiting before the next attempt to connect")

// Conns keeps one connection for each address. A connection that ended is made
// anew by the next Get; after a failed attempt the next ones fail at once,
// until a time has passed that doubles with each failure up to 5 s, with a
// random part, so that many programs do not come back at one moment. Any
// goroutine.
type Conns struct {
	opt Options
	wg  sync.WaitGroup // dials
	ctx context.Context
	end context.CancelFunc

	mu     sync.Mutex
	closed bool
	byAddr map[string]*slot
}

// slot is what is known of an address; under Conns.mu.
type slot struct {
	conn    *Conn
	dialing chan struct{} // closed when the attempt under way has ended
	err     error         // of the last attempt
	wait    time.Duration // backoff after it
	until   time.Time     // no attempt before
}

// NewConns returns an empty set; opt is for its connections.
func NewConns(opt Options) *Conns {
	opt.setDefaults()
	p := &Conns{opt: opt, byAddr: make(map[string]*slot)}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// Get returns the connection to addr, which it makes when there is none.
// Callers that come meanwhile share the attempt.
func (p *Conns) Get(ctx context.Context, addr string) (*Conn, error) {
	for {
		c, dialing, err := p.look(addr)
		if c != nil || err != nil {
			return c, err
		}
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, fmt.Errorf("client: connecting to %s: %w", addr, ctx.Err())
		}
	}
}

// look returns a live connection, an attempt to wait for, or why there is none.
func (p *Conns) look(addr string) (*Conn, chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrClosed
	}
	s := p.byAddr[addr]
	if s == nil {
		s = &slot{}
		p.byAddr[addr] = s
	}
	switch {
	case s.conn != nil && s.conn.Err() == nil:
		return s.conn, nil, nil
	case s.dialing != nil:
		return nil, s.dialing, nil
	case s.err != nil && time.Now().Before(s.until):
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrBackoff, addr, s.err)
	}
	s.conn, s.dialing = nil, make(chan struct{})
	p.wg.Go(func() { p.dial(addr, s) })
	return nil, s.dialing, nil
}

func (p *Conns) dial(addr string, s *slot) {
	c, err := Dial(p.ctx, addr, p.opt)
	p.mu.Lock()
	s.conn, s.err = c, err
	if err != nil {
		s.wait = min(max(2*s.wait, backoffMin), backoffMax)
		s.until = time.Now().Add(s.wait/2 + rand.N(s.wait/2))
	} else {
		s.wait = 0
	}
	close(s.dialing)
	s.dialing = nil
	late := p.closed && c != nil
	p.mu.Unlock()
	if late {
		c.Close()
	}
}

// Call is Get and Conn.Call.
func (p *Conns) Call(ctx context.Context, addr string, req *remoting.Command) (*remoting.Command, error) {
	c, err := p.Get(ctx, addr)
	if err != nil {
		return nil, err
	}
	return c.Call(ctx, req)
}

// Oneway is Get and Conn.Oneway.
func (p *Conns) Oneway(ctx context.Context, addr string, req *remoting.Command) error {
	c, err := p.Get(ctx, addr)
	if err != nil {
		return err
	}
	return c.Oneway(req)
}

// Keep closes the connections to all addresses that keep says no to. It waits
// for their goroutines: see Conn.Close.
func (p *Conns) Keep(keep func(addr string) bool) {
	var drop []*Conn
	p.mu.Lock()
	for addr, s := range p.byAddr {
		if s.dialing == nil && !keep(addr) {
			if s.conn != nil {
				drop = append(drop, s.conn)
			}
			delete(p.byAddr, addr)
		}
	}
	p.mu.Unlock()
	for _, c := range drop {
		c.Close()
	}
}

// Close closes all connections and waits for their goroutines.
func (p *Conns) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.wg.Wait()
	p.Keep(func(string) bool { return false })
}
