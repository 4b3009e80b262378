package broker

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// faq ends remarks that Apache's clients print with a pointer to the FAQ.
const faq = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

// serveCold runs a handler and answers what it says. A handler that panics has
// met something nobody thought of: that request is answered 1, the stack goes
// to the log, and all others stay well.
func (b *Broker) serveCold(c *netloop.Conn, cmd *remoting.Command, r *route) {
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("BUG: a handler panicked", "code", r.code.String(), "remote", c.Remote(), "panic", p, "stack", string(debug.Stack()))
			b.answer(c, cmd, r.lane, &response{code: remoting.SystemError, remark: fmt.Sprintf("BUG: %v", p)})
		}
	}()
	resp, err := r.handle(b, &request{conn: c, cmd: cmd, lane: r.lane})
	if err != nil {
		code, remark := errorReply(err)
		resp = &response{code: code, remark: remark}
	}
	if resp != nil {
		b.answer(c, cmd, r.lane, resp)
	}
}

// answer sends a response: into the gathering buffer on the loop, through the
// loop's queue from the pool.
func (b *Broker) answer(c *netloop.Conn, cmd *remoting.Command, lane netloop.Lane, r *response) {
	if cmd.IsOneway() {
		return
	}
	if lane == netloop.OnLoop {
		c.SetOut(remoting.AppendReply(c.Out(), cmd.ReplyTo(), r.code, r.remark, r.fields, r.body))
		return
	}
	c.Send(remoting.AppendReply(nil, cmd.ReplyTo(), r.code, r.remark, r.fields, r.body))
}

// answerError answers a refusal on the loop.
func (b *Broker) answerError(c *netloop.Conn, cmd *remoting.Command, err error) {
	code, remark := errorReply(err)
	b.answer(c, cmd, netloop.OnLoop, &response{code: code, remark: remark})
}

// errorReply maps an error to the code and remark that leave on the wire. It
// is the only place where an error becomes a code.
func errorReply(err error) (remoting.ResponseCode, string) {
	var e *remoting.Error
	if errors.As(err, &e) {
		return e.Code, e.Remark
	}
	if errors.Is(err, message.ErrBatch) { // producers don't try it again, as they would after 1
		return remoting.MessageIllegal, err.Error()
	}
	return remoting.SystemError, err.Error()
}

// sendCode maps the end of a put to the code and remark of a SEND's answer
// (SendMessageProcessor#handlePutMessageResult, 5.3).
func sendCode(s engine.Status, cause error) (remoting.ResponseCode, string) {
	code := remoting.SystemError
	switch s {
	case engine.OK:
		return remoting.Success, ""
	case engine.FlushDiskTimeout:
		code = remoting.FlushDiskTimeout
	case engine.FlushSlaveTimeout:
		code = remoting.FlushSlaveTimeout
	case engine.SlaveNotAvailable:
		code = remoting.SlaveNotAvailable
	case engine.ServiceNotAvailable:
		code = remoting.ServiceNotAvailable
	case engine.Illegal:
		code = remoting.MessageIllegal
	case engine.Busy:
		code = remoting.SystemBusy
	}
	if cause == nil {
		return code, s.String()
	}
	return code, s.String() + ": " + cause.Error()
}

// prepare runs work that may wait (creating a topic or group) on the pool, and
// then serves the request again on its loop. Until then the later frames of
// the connection wait, so that their order is kept.
func (b *Broker) prepare(c *netloop.Conn, cmd *remoting.Command, work func() error) {
	t := &preparation{b: b, conn: c, cmd: cmd.Clone()}
	if c.Loop().User.(*loopState).prepared {
		// It was made, and is gone again before its request could use it.
		t.fail(refuse(remoting.TopicNotExist, "what the request needs was deleted while it was being served; send it again"))
		return
	}
	c.Suspend()
	if !c.Loop().Go(func() {
		t.err = work()
		c.Loop().Post(t)
	}) {
		c.Resume()
		t.fail(refuse(remoting.SystemBusy, "the pool that creates topics and groups is full"))
	}
}

// A preparation is a request that waits for what prepare makes.
type preparation struct {
	b    *Broker
	conn *netloop.Conn
	cmd  *remoting.Command // an owned copy
	err  error
}

// RunOnLoop serves the request now that it can be served. Its client may be
// gone meanwhile: a one-way send is stored all the same.
func (t *preparation) RunOnLoop(l *netloop.Loop) {
	if t.err != nil {
		t.fail(t.err)
	} else {
		state := l.User.(*loopState)
		state.prepared = true
		t.b.Serve(t.conn, t.cmd)
		state.prepared = false
		t.b.ReadEnd(l)
	}
	t.conn.Resume()
}

func (t *preparation) fail(err error) {
	if isSend(t.cmd.Code) {
		t.b.refuseSend(t.conn, t.cmd, err)
		return
	}
	t.b.answerError(t.conn, t.cmd, err)
}
