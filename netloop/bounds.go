package netloop

import (
	"fmt"
	"sync/atomic"
)

// overBound closes the connection that has passed a bound, with one log line.
// Any goroutine.
func (c *Conn) overBound(what, key string, got, limit int64) {
	if !c.setCause(fmt.Errorf("%w: %s: got %d, limit %d (%s)", ErrBound, what, got, limit, key)) {
		return
	}
	c.loop.Post(&c.closer)
	c.srv.log.warn(logBound, "connection closed: over its bound",
		"remote", c.remote, "what", what, "got", got, "limit", limit, "key", key)
}

// account brings the server's total up to what this connection holds now, and
// closes it when it made the total pass its bound. Called whenever that changes.
func (c *Conn) account() {
	now := c.outbound
	c.unread.Store(now)
	if c.in != nil {
		now += int64(cap(c.in))
	}
	d := now - c.counted
	if d == 0 {
		return
	}
	c.counted = now
	total, limit := c.srv.total.Add(d), c.srv.cfg.TotalBytesMax
	if d > 0 && total > limit {
		c.overBound("bytes waiting on all connections", c.srv.cfg.Keys.TotalBytesMax, total, limit)
	}
}

// sawOutbound notes what gnet keeps for the connection after a write, and has
// the keeper look after it while that is anything: gnet does not tell when a
// socket takes bytes again.
func (c *Conn) sawOutbound() {
	if c.closed.Load() {
		return
	}
	c.outbound = int64(c.gc.OutboundBuffered())
	if c.outbound == 0 {
		if c.counted != 0 {
			c.account()
		}
		return
	}
	if limit := c.srv.cfg.ConnOutboundBytesMax; c.outbound > limit {
		c.overBound("bytes not read by the peer", c.srv.cfg.Keys.ConnOutboundBytesMax, c.outbound, limit)
	}
	c.account()
	if !c.isSlow {
		c.isSlow = true
		c.loop.slow = append(c.loop.slow, c)
		c.srv.slowConns(1)
	}
}

// mayAdd tells whether n more bytes may be handed to gnet. While nothing waits
// there, any frame may: what the socket does not take is judged afterwards.
func (c *Conn) mayAdd(n int) bool {
	limit := c.srv.cfg.ConnOutboundBytesMax
	if c.outbound == 0 || c.outbound+int64(n) <= limit {
		return true
	}
	c.outbound = int64(c.gc.OutboundBuffered()) // it may have drained
	if c.outbound == 0 || c.outbound+int64(n) <= limit {
		return true
	}
	c.overBound("bytes not read by the peer", c.srv.cfg.Keys.ConnOutboundBytesMax, c.outbound+int64(n), limit)
	return false
}

// slowTask looks at the connections of a loop that have outbound bytes. The
// keeper posts it every slowEvery while there are any.
type slowTask struct {
	l *Loop
	// posted keeps the task from being posted twice; see Server.keep.
	posted atomic.Bool
}

func (t *slowTask) RunOnLoop(l *Loop) {
	t.posted.Store(false)
	keep := l.slow[:0]
	for _, c := range l.slow {
		if !c.closed.Load() {
			before := c.outbound
			c.outbound = int64(c.gc.OutboundBuffered())
			c.account()
			if c.outbound < before { // writing, if slowly: not idle
				c.lastTick.Store(l.srv.tick.Load())
			}
		}
		if c.stalled && c.outbound <= c.srv.cfg.ConnOutboundBytesMax/4 {
			c.stalled = false
			c.makeReady()
		}
		if c.closed.Load() || c.outbound == 0 {
			c.isSlow = false
			l.srv.slowConns(-1)
			continue
		}
		keep = append(keep, c)
	}
	clear(l.slow[len(keep):])
	l.slow = keep
}
