//go:build linux

package bench

import (
	"context"
	"errors"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// holdTime is what a Java push consumer lets the broker hold a pull for.
const holdTime = 15 * time.Second

// EndToEnd sends o.Rate messages a second over o.Conns connections and receives
// them over one more, as a push consumer does: one held pull a queue. The latency
// runs from the time a message was due to its receipt.
func EndToEnd(ctx context.Context, o Options) (res *Result, err error) {
	o.Defaults()
	if o.Rate <= 0 {
		return nil, errors.New("bench: end to end needs a rate")
	}
	c, err := newCaller(ctx, o.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	d := &e2eDriver{o: &o}
	if d.next, err = offsets(c, &o, remoting.ReqGetMaxOffset); err != nil {
		return nil, err
	}
	l, err := start(ctx, o.Addr, o.Conns+1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if d.frames, err = newSendFrames(o.Topic, o.Broker, o.Queues, o.Bytes); err != nil {
		return nil, err
	}
	for q := range o.Queues {
		d.pulls = append(d.pulls, newPullFrame(o.Group, o.Topic, o.Broker, int32(q), o.Batch, holdTime))
	}
	d.queueBySlot = make([]int, o.Queues)
	if d.w, err = newWindow(&o, l.now()); err != nil {
		return nil, err
	}
	d.epoch = l.start.UnixMilli()
	// Pulls first: consumers wait before producers send.
	d.pace = pace{rate: float64(o.Rate), start: l.now() + int64(200*time.Millisecond)}
	if err := l.run(ctx, d); err != nil {
		return nil, err
	}
	r, err := d.w.result("end to end", "message was received")
	if err == nil {
		r.Lost = d.accepted - d.received
	}
	return r, err
}

type e2eDriver struct {
	o           *Options
	w           *window
	frames      *sendFrames
	pulls       []*pullFrame // by queue
	queueBySlot []int        // of the receiving connection
	next        []int64      // by queue
	pace        pace
	epoch       int64
	queue       int
	turn        int
	begun       bool
	flying      int   // sends
	accepted    int64 // sends answered well
	received    int64
	cmd         remoting.Command
}

// receiver is the connection that pulls: the last one.
func (d *e2eDriver) receiver(l *loop) *conn { return l.conns[len(l.conns)-1] }

func (d *e2eDriver) tick(l *loop, now int64) int64 {
	over := d.w.tick(now)
	if !d.begun {
		d.begun = true
		for q := range d.pulls {
			d.pull(l, q, now)
		}
	}
	if over {
		if d.w.drained(d.flying+int(max(d.accepted-d.received, 0)), now) {
			return -1
		}
		return now + drainPoll
	}
	boundary := d.w.boundary()
	for d.flying < inFlightMax {
		due := d.pace.due()
		if due > now {
			return min(due, boundary)
		}
		d.pace.sent++
		c := l.conns[d.turn]
		d.turn = (d.turn + 1) % (len(l.conns) - 1)
		c.out = d.frames.append(c.out, d.queue, c.slots.take(due), d.epoch+now/1e6, due)
		d.queue = (d.queue + 1) % d.o.Queues
		d.flying++
		l.send(c)
	}
	return boundary
}

func (d *e2eDriver) pull(l *loop, q int, now int64) {
	c := d.receiver(l)
	slot := c.slots.take(now)
	d.queueBySlot[slot] = q
	c.out = d.pulls[q].append(c.out, slot, d.next[q])
	l.send(c)
}

func (d *e2eDriver) frame(l *loop, c *conn, f []byte, now int64) error {
	if c == d.receiver(l) {
		return d.pulled(l, c, f, now)
	}
	slot, code, err := answer(f, &d.cmd)
	if err != nil {
		return err
	}
	if _, err := c.slots.done(slot); err != nil {
		return err
	}
	d.flying--
	if code != remoting.Success {
		d.w.refused(code, d.cmd.Remark)
		return nil
	}
	d.accepted++
	return nil
}

func (d *e2eDriver) pulled(l *loop, c *conn, f []byte, now int64) error {
	if err := remoting.Decode(f, &d.cmd); err != nil {
		return err
	}
	slot := d.cmd.Opaque - opaqueBase
	if _, err := c.slots.done(slot); err != nil {
		return err
	}
	q := d.queueBySlot[slot]
	var h remoting.PullReply
	switch code := remoting.ResponseCode(d.cmd.Code); code {
	case remoting.Success:
		n, err := eachRecord(d.cmd.Body, d.o.Bytes, func(due int64) { d.w.done(1, d.o.Bytes, now-due) })
		if err != nil {
			return err
		}
		d.received += int64(n)
		if err := h.Decode(&d.cmd); err != nil {
			return err
		}
		d.next[q] = h.NextBeginOffset
	case remoting.PullNotFound, remoting.PullRetryImmediately:
	default:
		d.w.refused(code, d.cmd.Remark)
		if code == remoting.PullOffsetMoved && h.Decode(&d.cmd) == nil {
			d.next[q] = h.NextBeginOffset
		}
	}
	d.pull(l, q, now)
	return nil
}
