//go:build linux

package bench

import (
	"context"
	"errors"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// drainMax is how long a load waits for its last answers.
const drainMax = 10 * time.Second

// drainPoll is how often it looks, in nanoseconds.
const drainPoll = int64(10 * time.Millisecond)

// inFlightMax bounds an open loop: what is due beyond it waits, and keeps its due
// time.
const inFlightMax = 200_000

// Send loads a broker with single messages: closed loop, or open loop at o.Rate
// messages a second over all connections. The topic must exist.
func Send(ctx context.Context, o Options) (res *Result, err error) {
	o.Defaults()
	l, err := start(ctx, o.Addr, o.Conns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	frames, err := newSendFrames(o.Topic, o.Broker, o.Queues, o.Bytes)
	if err != nil {
		return nil, err
	}
	w, err := newWindow(&o, l.now())
	if err != nil {
		return nil, err
	}
	d := &sendDriver{o: &o, frames: frames, w: w, epoch: l.start.UnixMilli()}
	if o.Rate > 0 {
		d.pace = &pace{rate: float64(o.Rate), start: l.now()}
	}
	if err := l.run(ctx, d); err != nil {
		return nil, err
	}
	mode := "send"
	if o.Rate > 0 {
		mode = "send, open loop"
	}
	return w.result(mode, "message was accepted")
}

// pace gives the due times of an open loop.
type pace struct {
	rate  float64
	start int64
	sent  int64
}

// due returns when the next message is due.
func (p *pace) due() int64 { return p.start + int64(float64(p.sent)*1e9/p.rate) }

type sendDriver struct {
	o      *Options
	frames *sendFrames
	w      *window
	pace   *pace // nil: closed loop
	epoch  int64 // unix ms of the loop's start
	queue  int
	next   int // connection of the next open-loop message
	begun  bool
	flying int
	cmd    remoting.Command
}

func (d *sendDriver) tick(l *loop, now int64) int64 {
	if d.w.tick(now) {
		if d.w.drained(d.flying, now) {
			return -1
		}
		return now + drainPoll
	}
	if d.pace != nil {
		return d.paced(l, now)
	}
	if !d.begun {
		d.begun = true
		for range d.o.InFlight {
			for _, c := range l.conns {
				d.send(l, c, now, now)
			}
		}
	}
	return d.w.boundary()
}

// paced sends what is due, round robin over the connections.
func (d *sendDriver) paced(l *loop, now int64) int64 {
	for d.flying < inFlightMax {
		due := d.pace.due()
		if due > now {
			return min(due, d.w.boundary())
		}
		d.pace.sent++
		d.send(l, l.conns[d.next], due, now)
		d.next = (d.next + 1) % len(l.conns)
	}
	return d.w.boundary()
}

func (d *sendDriver) send(l *loop, c *conn, from, now int64) {
	slot := c.slots.take(from)
	c.out = d.frames.append(c.out, d.queue, slot, d.epoch+now/1e6, from)
	d.queue++
	if d.queue == len(d.frames.byQueue) {
		d.queue = 0
	}
	d.flying++
	l.send(c)
}

func (d *sendDriver) frame(l *loop, c *conn, f []byte, now int64) error {
	slot, code, err := answer(f, &d.cmd)
	if err != nil {
		return err
	}
	from, err := c.slots.done(slot)
	if err != nil {
		return err
	}
	d.flying--
	if code == remoting.Success {
		d.w.done(1, d.o.Bytes, now-from)
	} else {
		d.w.refused(code, d.cmd.Remark)
	}
	if d.pace == nil && d.w.state != 2 {
		d.send(l, c, now, now)
	}
	return nil
}
