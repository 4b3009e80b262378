//go:build linux

package bench

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// fakeBroker keeps messages in memory and answers what loads ask. It holds pulls
// that find nothing until the next send to their queue.
type fakeBroker struct {
	ln net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex
	queues map[int32][][]byte // records
	held   map[int32][]heldPull
	keys   map[string]bool // UNIQ_KEYs seen
	refuse int             // every n-th send is refused
	sends  int
	conns  []net.Conn
	t      testing.TB
}

type heldPull struct {
	conn *lockedConn
	to   remoting.ReplyTo
	from int64
}

// lockedConn lets a send's goroutine answer another connection's held pull.
type lockedConn struct {
	net.Conn
	mu sync.Mutex
}

func (c *lockedConn) reply(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.Write(b) // a load that has ended does not read any more
}

func startFake(t testing.TB) *fakeBroker {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{ln: ln, queues: map[int32][][]byte{}, held: map[int32][]heldPull{}, keys: map[string]bool{}, t: t}
	b.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns = append(b.conns, c)
			b.mu.Unlock()
			b.wg.Go(func() { b.serve(&lockedConn{Conn: c}) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close() // what fails here shows in Wait
		b.mu.Lock()
		for _, c := range b.conns {
			_ = c.Close() // as above
		}
		b.mu.Unlock()
		b.wg.Wait()
	})
	return b
}

func (b *fakeBroker) addr() string { return b.ln.Addr().String() }

func (b *fakeBroker) serve(c *lockedConn) {
	for {
		head := make([]byte, 4)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
		if _, err := io.ReadFull(c, frame[4:]); err != nil {
			return
		}
		var req remoting.Command
		if err := remoting.Decode(frame, &req); err != nil {
			b.t.Errorf("a load wrote a frame that cannot be decoded: %v: %q", err, frame)
			return
		}
		b.answer(c, &req)
	}
}

func (b *fakeBroker) answer(c *lockedConn, req *remoting.Command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch req.Code {
	case remoting.ReqSendMessageV2:
		b.send(c, req)
	case remoting.ReqPullMessage:
		var h remoting.PullHeader
		if err := h.Decode(req); err != nil {
			b.t.Error(err)
		}
		if h.QueueOffset >= int64(len(b.queues[h.QueueID])) && h.SysFlag&remoting.PullSuspend != 0 {
			b.held[h.QueueID] = append(b.held[h.QueueID], heldPull{c, req.ReplyTo(), h.QueueOffset})
			return
		}
		b.pull(c, req.ReplyTo(), h.QueueID, h.QueueOffset)
	case remoting.ReqGetMaxOffset:
		q, _ := strconv.Atoi(req.GetString("queueId"))
		w := remoting.BeginReply(nil, req.ReplyTo(), remoting.Success, "")
		w.Int("offset", int64(len(b.queues[int32(q)])))
		c.reply(w.End(0))
	case remoting.ReqGetMinOffset:
		w := remoting.BeginReply(nil, req.ReplyTo(), remoting.Success, "")
		w.Int("offset", 0)
		c.reply(w.End(0))
	default: // topics, registrations, routes
		c.reply(remoting.AppendReply(nil, req.ReplyTo(), remoting.Success, "", nil, []byte(`{}`)))
	}
}

func (b *fakeBroker) send(c *lockedConn, req *remoting.Command) {
	b.sends++
	if b.refuse > 0 && b.sends%b.refuse == 0 {
		c.reply(remoting.AppendError(nil, req.ReplyTo(), &remoting.Error{Code: remoting.SystemBusy, Remark: "full\nreally"}))
		return
	}
	var h remoting.SendHeader
	if err := h.Decode(req); err != nil {
		b.t.Error(err)
	}
	key, _ := message.Property(h.Properties, message.PropUniqKey)
	if b.keys[string(key)] || len(key) != 32 {
		b.t.Errorf("UNIQ_KEY %q came twice or is no key", key)
	}
	b.keys[string(key)] = true
	off := int64(len(b.queues[h.QueueID]))
	rec, err := message.Append(nil, &message.Message{QueueID: h.QueueID, QueueOffset: message.QueueOffset(off), Body: req.Body, Topic: h.Topic, Properties: h.Properties})
	if err != nil {
		b.t.Error(err)
	}
	b.queues[h.QueueID] = append(b.queues[h.QueueID], rec)
	w := remoting.BeginReply(nil, req.ReplyTo(), remoting.Success, "")
	(&remoting.SendReply{MsgID: "00", QueueID: h.QueueID, QueueOffset: off, Region: "DefaultRegion"}).Write(&w)
	c.reply(w.End(0))
	for _, p := range b.held[h.QueueID] {
		b.pull(p.conn, p.to, h.QueueID, p.from)
	}
	delete(b.held, h.QueueID)
}

func (b *fakeBroker) pull(c *lockedConn, to remoting.ReplyTo, queue int32, from int64) {
	recs := b.queues[queue]
	next, code := from, remoting.PullNotFound
	var body []byte
	for ; next < int64(len(recs)) && next < from+32; next++ {
		body, code = append(body, recs[next]...), remoting.Success
	}
	w := remoting.BeginReply(nil, to, code, "")
	(&remoting.PullReply{NextBeginOffset: next, MaxOffset: int64(len(recs))}).Write(&w)
	c.reply(append(w.End(len(body)), body...))
}
