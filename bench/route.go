//go:build linux

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// Route asks a NameServer at o.Addr for the routes of o.Topics topics in turn,
// closed loop. The topics are registered first, as one broker's, over a
// connection that stays open meanwhile.
func Route(ctx context.Context, o Options) (res *Result, err error) {
	o.Defaults()
	c, err := newCaller(ctx, o.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	d := &routeDriver{o: &o}
	if err := d.register(c); err != nil {
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
	return d.w.result("route", "route was answered")
}

type routeDriver struct {
	o      *Options
	w      *window
	frames [][]byte // one request a topic
	at     int      // where the opaque's digits stand; the same in all
	next   int
	begun  bool
	flying int
	cmd    remoting.Command
}

// register announces a broker that holds all topics, and encodes the requests.
func (d *routeDriver) register(c *caller) error {
	topics := map[string]remoting.TopicConfig{}
	for i := range d.o.Topics {
		name := fmt.Sprintf("bench_route_%05d", i)
		t := remoting.NewTopicConfig(name)
		t.ReadQueueNums, t.WriteQueueNums = int32(d.o.Queues), int32(d.o.Queues)
		topics[name] = t
		h := remoting.RouteHeader{Topic: name, AcceptStandardJSONOnly: true}
		req := h.Command()
		req.Language, req.Opaque = remoting.LanguageJava, opaqueBase
		d.frames = append(d.frames, remoting.Append(nil, req))
	}
	// All names are of one length, so that the digits stand at one place.
	d.at = bytes.Index(d.frames[0], []byte(`"opaque":`)) + len(`"opaque":`)
	body := remoting.RegisterBrokerBody{TopicConfigSerializeWrapper: remoting.TopicConfigTable{
		DataVersion: remoting.DataVersion{Counter: 1, Timestamp: time.Now().UnixMilli()}, TopicConfigTable: topics}}.Marshal()
	h := remoting.RegisterBrokerHeader{BrokerName: "bench-broker", BrokerAddr: "127.0.0.1:10911", ClusterName: "BenchCluster",
		HAServerAddr: "127.0.0.1:10912", ActingMasterSent: true, BodyCRC32: remoting.BodyCRC32(body)}
	req := h.Command()
	req.Body = body
	_, err := c.call(req)
	return err
}

func (d *routeDriver) tick(l *loop, now int64) int64 {
	if d.w.tick(now) {
		if d.w.drained(d.flying, now) {
			return -1
		}
		return now + drainPoll
	}
	if !d.begun {
		d.begun = true
		for range d.o.InFlight {
			for _, c := range l.conns {
				d.ask(l, c, now)
			}
		}
	}
	return d.w.boundary()
}

func (d *routeDriver) ask(l *loop, c *conn, now int64) {
	n := len(c.out)
	c.out = append(c.out, d.frames[d.next]...)
	decimal(c.out[n+d.at:n+d.at+10], uint64(opaqueBase+c.slots.take(now)))
	d.next = (d.next + 1) % len(d.frames)
	d.flying++
	l.send(c)
}

func (d *routeDriver) frame(l *loop, c *conn, f []byte, now int64) error {
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
		d.w.done(1, len(f), now-from)
	} else {
		d.w.refused(code, d.cmd.Remark)
	}
	if d.w.state != 2 {
		d.ask(l, c, now)
	}
	return nil
}
