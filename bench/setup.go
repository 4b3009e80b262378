//go:build linux

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// callTimeout bounds one request that prepares a load.
const callTimeout = 10 * time.Second

// caller makes single requests, one at a time, as preparation.
type caller struct {
	conn   net.Conn
	opaque int32
}

func newCaller(ctx context.Context, addr string) (*caller, error) {
	d := net.Dialer{Timeout: callTimeout}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return &caller{conn: c}, nil
}

func (c *caller) close() error { return c.conn.Close() }

// call sends a request and waits for its answer; a refusal is an error.
func (c *caller) call(req *remoting.Command) (*remoting.Command, error) {
	c.opaque++
	req.Opaque = c.opaque
	req.Language = remoting.LanguageJava
	if err := c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	name := remoting.RequestCode(req.Code).Name()
	if _, err := c.conn.Write(remoting.Append(nil, req)); err != nil {
		return nil, fmt.Errorf("bench: %s: %w", name, err)
	}
	for {
		head := make([]byte, remoting.LengthBytes)
		if _, err := io.ReadFull(c.conn, head); err != nil {
			return nil, fmt.Errorf("bench: %s: %w", name, err)
		}
		n := binary.BigEndian.Uint32(head)
		if n > remoting.MaxFrameBytes {
			return nil, fmt.Errorf("bench: %s: answer of %d bytes", name, n)
		}
		frame := append(head, make([]byte, n)...)
		if _, err := io.ReadFull(c.conn, frame[len(head):]); err != nil {
			return nil, fmt.Errorf("bench: %s: %w", name, err)
		}
		var resp remoting.Command
		if err := remoting.Decode(frame, &resp); err != nil {
			return nil, fmt.Errorf("bench: %s: %w", name, err)
		}
		if !resp.IsResponse() || resp.Opaque != req.Opaque {
			continue // a notice of the broker's
		}
		if resp.Code != int32(remoting.Success) {
			return nil, &remoting.Error{Code: remoting.ResponseCode(resp.Code), Remark: name + ": " + firstLine(resp.Remark)}
		}
		return &resp, nil
	}
}

// CreateTopic makes a topic with o.Queues queues on the broker at o.Addr.
func CreateTopic(ctx context.Context, o *Options) (err error) {
	c, err := newCaller(ctx, o.Addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	h := remoting.CreateTopicHeader{Topic: o.Topic, DefaultTopic: "TBW102", ReadQueueNums: int32(o.Queues), WriteQueueNums: int32(o.Queues),
		Perm: remoting.PermRead | remoting.PermWrite, TopicFilterType: remoting.FilterSingleTag}
	_, err = c.call(h.Command())
	return err
}

// offsets asks for the min (31) or max (30) offset of every queue.
func offsets(c *caller, o *Options, code int32) ([]int64, error) {
	out := make([]int64, o.Queues)
	for q := range out {
		h := remoting.TopicQueueHeader{Topic: o.Topic, QueueID: int32(q)}
		resp, err := c.call(h.Command(code))
		if err != nil {
			return nil, err
		}
		v, _ := resp.Get("offset")
		if out[q], err = remoting.ParseInt64(v); err != nil {
			return nil, fmt.Errorf("bench: queue %d: %w", q, err)
		}
	}
	return out, nil
}

// SendOne sends one message and waits for it to be accepted: what "the broker is
// up" means.
func SendOne(ctx context.Context, o *Options) (err error) {
	c, err := newCaller(ctx, o.Addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	h := remoting.SendHeader{ProducerGroup: []byte("bench_producer"), Topic: []byte(o.Topic), DefaultTopic: []byte("TBW102"),
		DefaultTopicQueueNums: 4, QueueID: 0, BornMillis: time.Now().UnixMilli(), MaxReconsumeTimes: -1, BrokerName: []byte(o.Broker)}
	_, err = c.call(h.Command(remoting.ReqSendMessageV2, make([]byte, 16)))
	return err
}

func resolve(ctx context.Context, addr string) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return ap, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("bench: %w", err)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("bench: %w", err)
	}
	p, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("bench: %w", err)
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(p)), nil
}

// start makes a loop with n connections to addr.
func start(ctx context.Context, addr string, n int) (*loop, error) {
	ap, err := resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	for range n {
		if _, err := l.dial(ap); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	return l, nil
}

// Listening tells whether addr takes connections.
func Listening(ctx context.Context, addr string) error {
	c, err := newCaller(ctx, addr)
	if err != nil {
		return err
	}
	return c.close()
}

// Fill sends n messages as fast as eight connections of 32 in flight do.
func Fill(ctx context.Context, o Options, n int) error {
	o.Conns, o.InFlight, o.Rate, o.Warmup, o.PID, o.Dir = 8, 32, 0, 0, 0, ""
	for left := int64(n); left > 0; {
		o.Duration = 500 * time.Millisecond
		res, err := Send(ctx, o)
		if err != nil {
			return err
		}
		left -= res.Messages
	}
	return nil
}
