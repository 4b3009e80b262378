package broker

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

const (
	// asksMax bounds the requests to clients that wait for an answer.
	asksMax = 10_000
	// asksBytesMax bounds the bytes of their frames.
	asksBytesMax = 64 << 20
)

var (
	errAskTimeout = errors.New("the client did not answer in time")
	errAskClosed  = errors.New("the client's connection is closed")
	errAskBusy    = errors.New("too many requests wait for answers of clients")
	errAskStopped = errors.New("the broker stops")
)

// An asker sends requests to clients and hands their answers to who asked: a
// reply pushed to its requester, a look at a consumer's inner state.
//
// It has no goroutine: answers come on the loop of the connection, timeouts on
// their timer. Requests are told apart by an opaque of our own, and only the
// connection that was asked can answer.
type asker struct {
	opaque atomic.Int32

	mu      sync.Mutex
	stopped bool
	count   int   // asks that wait; at most asksMax
	bytes   int64 // of their frames; at most asksBytesMax
	pending map[*netloop.Conn]map[int32]*ask
}

// An ask is one request that waits for its answer.
type ask struct {
	bytes int64
	timer *time.Timer
	done  askDone
}

// An askDone takes the end of an ask, exactly once: resp is the client's answer,
// whatever its code, valid until the function returns, or err says why there is
// none. It runs on the loop of the asked connection, on a timer's goroutine, or
// inside ask, and must not block.
type askDone func(resp *remoting.Command, err error)

func newAsker() *asker {
	return &asker{pending: map[*netloop.Conn]map[int32]*ask{}}
}

// ask sends req to the client at c and has done called with its answer; req is
// the caller's again when it returns, but for its Opaque. Any goroutine.
func (a *asker) ask(c *netloop.Conn, req *remoting.Command, timeout time.Duration, done askDone) {
	req.Opaque = a.opaque.Add(1)
	frame := remoting.Append(nil, req)
	if err := a.add(c, req.Opaque, &ask{bytes: int64(len(frame)), done: done}, timeout); err != nil {
		done(nil, err)
		return
	}
	if c.Closed() { // closed may have been here already
		a.end(c, req.Opaque, nil, errAskClosed)
		return
	}
	c.Send(frame)
}

func (a *asker) add(c *netloop.Conn, opaque int32, k *ask, timeout time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.stopped:
		return errAskStopped
	case a.count >= asksMax || a.bytes+k.bytes > asksBytesMax:
		return errAskBusy
	}
	if a.pending[c] == nil {
		a.pending[c] = map[int32]*ask{}
	}
	k.timer = time.AfterFunc(timeout, func() { a.end(c, opaque, nil, errAskTimeout) })
	a.pending[c][opaque] = k
	a.count++
	a.bytes += k.bytes
	return nil
}

// end tells the one who asked, and says whether somebody had.
func (a *asker) end(c *netloop.Conn, opaque int32, resp *remoting.Command, err error) bool {
	a.mu.Lock()
	k := a.pending[c][opaque]
	if k != nil {
		a.remove(c, opaque, k)
	}
	a.mu.Unlock()
	if k == nil {
		return false
	}
	k.done(resp, err)
	return true
}

// remove takes an ask out of the table. Holds mu.
func (a *asker) remove(c *netloop.Conn, opaque int32, k *ask) {
	k.timer.Stop()
	delete(a.pending[c], opaque)
	if len(a.pending[c]) == 0 {
		delete(a.pending, c)
	}
	a.count--
	a.bytes -= k.bytes
}

// closed ends what a connection that is gone has not answered.
func (a *asker) closed(c *netloop.Conn) {
	a.mu.Lock()
	ended := a.take(c, nil)
	a.mu.Unlock()
	for _, k := range ended {
		k.done(nil, errAskClosed)
	}
}

// stop ends all that wait, and refuses what comes later.
func (a *asker) stop() {
	var ended []*ask
	a.mu.Lock()
	a.stopped = true
	for c := range a.pending {
		ended = a.take(c, ended)
	}
	a.mu.Unlock()
	for _, k := range ended {
		k.done(nil, errAskStopped)
	}
}

// take removes all asks of a connection and adds them to dst. Holds mu.
func (a *asker) take(c *netloop.Conn, dst []*ask) []*ask {
	for opaque, k := range a.pending[c] {
		a.remove(c, opaque, k)
		dst = append(dst, k)
	}
	return dst
}

// Response is netloop's call for an answer to a request of ours. One to a
// request that nobody waits for any more is dropped.
func (b *Broker) Response(c *netloop.Conn, resp *remoting.Command) {
	if !b.asks.end(c, resp.Opaque, resp, nil) {
		b.log.Debug("answer without a request", "remote", c.Remote(), "opaque", resp.Opaque, "code", resp.Code)
	}
}
