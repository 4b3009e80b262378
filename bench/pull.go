//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringmq/ringmq/remoting"
)

// Pull reads a topic again and again, or once (o.Once), o.Batch messages a
// request, one request in flight on each connection. The topic must hold messages that Send put there;
// o.Preload sends some first.
func Pull(ctx context.Context, o Options) (res *Result, err error) {
	o.Defaults()
	o.InFlight = 1
	if o.Preload > 0 {
		if err := Fill(ctx, o, o.Preload); err != nil {
			return nil, err
		}
	}
	d := &pullDriver{o: &o}
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	l, err := start(ctx, o.Addr, o.Conns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if d.w, err = newWindow(&o, l.now()); err != nil {
		return nil, err
	}
	if err := l.run(ctx, d); err != nil {
		return nil, err
	}
	return d.w.result("pull", "message was pulled")
}

// pullDriver: connection i reads the queues i, i+conns, … in turn.
type pullDriver struct {
	o      *Options
	w      *window
	frames []*pullFrame // by queue
	min    []int64      // by queue
	next   []int64      // by queue
	queues [][]int      // by connection
	turn   []int        // by connection
	begun  bool
	flying int
	cmd    remoting.Command
}

func (d *pullDriver) prepare(ctx context.Context) (err error) {
	c, err := newCaller(ctx, d.o.Addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if d.min, err = offsets(c, d.o, remoting.ReqGetMinOffset); err != nil {
		return err
	}
	to, err := offsets(c, d.o, remoting.ReqGetMaxOffset)
	if err != nil {
		return err
	}
	d.next = append([]int64(nil), d.min...)
	d.queues = make([][]int, d.o.Conns)
	d.turn = make([]int, d.o.Conns)
	full := 0
	for q := range to {
		d.frames = append(d.frames, newPullFrame(d.o.Group, d.o.Topic, d.o.Broker, int32(q), d.o.Batch, 0))
		if to[q] > d.min[q] {
			d.queues[full%d.o.Conns] = append(d.queues[full%d.o.Conns], q)
			full++
		}
	}
	if full < d.o.Conns {
		return fmt.Errorf("bench: topic %s has messages in %d queues, want at least %d, one a connection", d.o.Topic, full, d.o.Conns)
	}
	return nil
}

func (d *pullDriver) tick(l *loop, now int64) int64 {
	if d.w.tick(now) {
		if d.w.drained(d.flying, now) {
			return -1
		}
		return now + drainPoll
	}
	if !d.begun {
		d.begun = true
		for _, c := range l.conns {
			d.pull(l, c, now)
		}
	}
	return d.w.boundary()
}

func (d *pullDriver) queueOf(c *conn) int { return d.queues[c.id][d.turn[c.id]] }

func (d *pullDriver) pull(l *loop, c *conn, now int64) {
	q := d.queueOf(c)
	c.out = d.frames[q].append(c.out, c.slots.take(now), d.next[q])
	d.flying++
	l.send(c)
}

func (d *pullDriver) frame(l *loop, c *conn, f []byte, now int64) error {
	if err := remoting.Decode(f, &d.cmd); err != nil {
		return err
	}
	from, err := c.slots.done(d.cmd.Opaque - opaqueBase)
	if err != nil {
		return err
	}
	d.flying--
	q := d.queueOf(c)
	var h remoting.PullReply
	switch code := remoting.ResponseCode(d.cmd.Code); code {
	case remoting.Success:
		n, err := eachRecord(d.cmd.Body, d.o.Bytes, func(int64) {})
		if err != nil {
			return err
		}
		if err := h.Decode(&d.cmd); err != nil {
			return err
		}
		if want := d.next[q] + int64(n); h.NextBeginOffset != want {
			return fmt.Errorf("queue %d: %d messages from %d on, next offset %d", q, n, d.next[q], h.NextBeginOffset)
		}
		d.next[q] = h.NextBeginOffset
		d.w.done(n, len(d.cmd.Body), now-from)
		if h.NextBeginOffset < h.MaxOffset {
			break
		}
		d.wrap(c, q)
	case remoting.PullNotFound, remoting.PullOffsetMoved:
		d.wrap(c, q)
	default:
		d.w.refused(code, d.cmd.Remark)
		d.wrap(c, q)
	}
	switch {
	case d.w.state == 2:
	case len(d.queues[c.id]) > 0:
		d.pull(l, c, now)
	case d.flying == 0: // the last connection is through
		d.w.to = min(d.w.to, now)
	}
	return nil
}

// wrap goes back to a queue's start and on to the connection's next queue; or
// leaves the queue for good.
func (d *pullDriver) wrap(c *conn, q int) {
	queues, turn := &d.queues[c.id], &d.turn[c.id]
	if d.o.Once {
		*queues = slices.Delete(*queues, *turn, *turn+1)
		*turn--
	}
	d.next[q] = d.min[q]
	*turn = (*turn + 1) % max(1, len(*queues))
}
