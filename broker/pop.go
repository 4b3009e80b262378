package broker

import (
	"math/rand/v2"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/filter"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

const (
	// popLateMillis is how much later than its hold would end a pop may come in.
	popLateMillis = 500
	// popEarlyMillis is how much before the client's patience a hold ends.
	popEarlyMillis = 50
	// attemptBytesMax bounds attemptId.
	attemptBytesMax = 255
)

// A popRequest is one POP_MESSAGE while it is served: checked, and with what an answer
// needs. It holds no bytes of the request's frame.
type popRequest struct {
	conn    *netloop.Conn
	to      remoting.ReplyTo
	topic   *meta.Topic
	group   *meta.Group
	filter  filter.Filter // nil: everything
	queueID int32         // -1: any

	maxMsgs   int
	invisible int64 // milliseconds
	initMode  int32
	order     bool
	attemptID string

	seq     uint64 // of waiters, before the last look; see popWaiters
	waiters *popWaiters
}

// servePop answers POP_MESSAGE (200050), on the loop of c. What has to wait for
// a disk goes to the pool. (As PopMessageProcessor#processRequest, 5.3.3.)
func (b *Broker) servePop(c *netloop.Conn, cmd *remoting.Command) {
	var h remoting.PopHeader
	if err := h.Decode(cmd); err != nil {
		b.answerError(c, cmd, err)
		return
	}
	nowMs := b.now().UnixMilli()
	if h.BornMillis == 0 {
		h.BornMillis = nowMs
	}
	p := popRequest{conn: c, to: cmd.ReplyTo()}
	if err := b.resolvePop(&p, &h, nowMs); err == errNoGroup {
		group := string(h.ConsumerGroup)
		b.prepare(c, cmd, func() error { _, err := b.groups.GetOrCreate(group); return err })
		return
	} else if err != nil {
		b.answerError(c, cmd, err)
		return
	}
	state := c.Loop().User.(*loopState)
	p.waiters = b.popHolds.of(p.topic.Name, p.group.GroupName)
	if b.answerPop(&p, state, lookFirst) {
		return
	}
	if code := b.holdPop(&p, state, h.PollMillis, h.BornMillis+h.PollMillis-popEarlyMillis, nowMs); code != remoting.Success {
		b.replyNoPop(&p, &state.popping, code)
	}
}

// holdPop parks a pop, or says with which code it is answered at once.
// (As PopLongPollingService#polling, 5.3.3.)
func (b *Broker) holdPop(p *popRequest, state *loopState, pollMillis, endMs, nowMs int64) remoting.ResponseCode {
	switch {
	case pollMillis <= 0 || p.to.Oneway:
		return remoting.PollingTimeout
	case b.popHolds.held.Load() >= int64(b.cfg.MaxPopPollingSize):
		return remoting.PollingFull
	case nowMs > endMs:
		return remoting.PollingTimeout
	case p.waiters.polling(p.queueID) > b.cfg.PopPollingSize:
		return remoting.PollingFull
	}
	hp := &heldPop{popRequest: *p}
	hp.held.request, hp.held.conn = hp, p.conn
	b.popHolds.held.Add(1)
	if !state.holds.hold(&hp.held, endMs) {
		b.popHolds.held.Add(-1)
		return remoting.PollingFull
	}
	return remoting.Success
}

// resolvePop checks a pop in Apache's order of errors.
func (b *Broker) resolvePop(p *popRequest, h *remoting.PopHeader, nowMs int64) error {
	if nowMs-h.BornMillis-h.PollMillis > popLateMillis {
		return refuse(remoting.PollingTimeout, "the broker[%s] pop message is timeout too much: born at %d, patience %d ms, now %d", b.cfg.BrokerIP1, h.BornMillis, h.PollMillis, nowMs)
	}
	if err := b.readable("pop"); err != nil {
		return err
	}
	if h.MaxMsgNums > remoting.PopMsgsMax {
		return refuse(remoting.InvalidParameter, "the broker[%s] pop message's num is greater than %d: got %d", b.cfg.BrokerIP1, remoting.PopMsgsMax, h.MaxMsgNums)
	}
	if len(h.AttemptID) > attemptBytesMax {
		return refuse(remoting.InvalidParameter, "attemptId is too long: got %d bytes, want at most %d", len(h.AttemptID), attemptBytesMax)
	}
	var err error
	if p.topic, p.group, err = b.resolvePopQueue(h.Topic, h.ConsumerGroup, h.QueueID, p.conn); err != nil {
		return err
	}
	p.filter, err = b.expression(p.conn.Loop().User.(*loopState), h.ExpressionType, h.Expression)
	if err != nil {
		return err
	}
	p.queueID, p.maxMsgs, p.invisible, p.initMode, p.order = h.QueueID, int(h.MaxMsgNums), h.InvisibleMillis, h.InitMode, h.Order
	if h.Order {
		p.attemptID = string(h.AttemptID)
	}
	return nil
}

// readable refuses where the broker may not be read.
func (b *Broker) readable(what string) error {
	if int32(b.cfg.BrokerPermission)&remoting.PermRead == 0 {
		return refuse(remoting.NoPermission, "the broker[%s] %s message is forbidden: brokerPermission is %d", b.cfg.BrokerIP1, what, b.cfg.BrokerPermission)
	}
	return nil
}

// resolvePopQueue finds and checks what the requests about pops name: topic,
// queueId (-1 for any), group. errNoGroup says that the group must be created.
func (b *Broker) resolvePopQueue(topic, group []byte, queueID int32, c *netloop.Conn) (*meta.Topic, *meta.Group, error) {
	t := b.topics.Get(topic)
	if t == nil {
		return nil, nil, refuse(remoting.TopicNotExist, "topic[%s] not exist, apply first please! %s", topic, faq)
	}
	if t.Perm&remoting.PermRead == 0 {
		return nil, nil, refuse(remoting.NoPermission, "the topic[%s] peeking message is forbidden: its perm is %d", topic, t.Perm)
	}
	if t.Batch() {
		return nil, nil, refuse(remoting.NoPermission, "the topic[%s] has batch queues: a batch is one record there, and can't be acknowledged message by message", topic)
	}
	if queueID >= t.ReadQueues {
		return nil, nil, refuse(remoting.InvalidParameter, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d] consumer:[%s]", queueID, topic, t.ReadQueues, c.Remote())
	}
	g := b.groups.Get(group)
	if g == nil {
		return nil, nil, errNoGroup
	}
	if !g.ConsumeEnable {
		return nil, nil, refuse(remoting.NoPermission, "subscription group no permission, %s: consumeEnable is false", group)
	}
	if !b.groups.MayRead(group, topic) {
		return nil, nil, refuse(remoting.NoPermission, "the consumer group[%s] is forbidden for topic[%s]", group, topic)
	}
	if n := len(meta.RetryPrefix) + len(group) + 1 + len(topic); n > meta.DerivedTopicBytesMax {
		return nil, nil, refuse(remoting.InvalidParameter, "topic %s and group %s are too long to be popped: the name of their retry topic has %d bytes, want at most %d",
			topic, group, n, meta.DerivedTopicBytesMax)
	}
	return t, g, nil
}

// answerPop looks for messages and answers, on p's loop. It says false when
// there is nothing and it may be held; the last look answers that too.
func (b *Broker) answerPop(p *popRequest, state *loopState, look look) bool {
	if look != lookFirst { // group and topic may be others since
		topic, group, err := b.resolvePopQueue([]byte(p.topic.Name), []byte(p.group.GroupName), p.queueID, p.conn)
		if err == errNoGroup {
			err = refuse(remoting.SubscriptionGroupNotExist, "subscription group [%s] does not exist, %s", p.group.GroupName, faq)
		}
		if err != nil {
			code, remark := errorReply(err)
			p.conn.SetOut(remoting.AppendReply(p.conn.Out(), p.to, code, remark, nil, nil))
			return true
		}
		p.topic, p.group = topic, group
	}
	p.seq = p.waiters.now()
	r := &state.popping
	r.begin(b, p, state, b.now().UnixMilli())
	r.run()
	switch {
	case r.count > 0:
		state.pops(b).found(r)
		r.more()
		return true
	case r.needCold:
		q := *p
		if !b.cold.run(p.conn, func() { b.popCold(&q) }) {
			p.conn.SetOut(remoting.AppendReply(p.conn.Out(), p.to, remoting.SystemBusy, "the pool that reads from disk is full", nil, nil))
		}
		return true
	case look == lookLast:
		b.replyNoPop(p, r, remoting.PollingTimeout)
		return true
	}
	return false
}

// replyNoPop answers a pop whose last look, r, found nothing.
func (b *Broker) replyNoPop(p *popRequest, r *popReader, code remoting.ResponseCode) {
	if !p.to.Oneway {
		p.conn.SetOut(r.appendNothing(p.conn.Out(), code))
	}
}

// A heldPop is a parked pop: what is needed to run it again.
type heldPop struct {
	held
	popRequest
}

func (p *heldPop) look(state *loopState, look look) bool {
	return p.home.table.b.answerPop(&p.popRequest, state, look)
}

func (p *heldPop) checked() (*meta.Topic, *meta.Group) { return p.topic, p.group }

// outdated looks a last time: it is checked anew.
func (p *heldPop) outdated(state *loopState) { p.look(state, lookLast) }

func (p *heldPop) ended() { p.home.table.b.popHolds.held.Add(-1) }

// A popBatch is what the pops and acknowledgements of one read event have
// changed: their answers wait for the journal together. It travels loop →
// journal → loop and is used again.
type popBatch struct {
	b       *Broker
	loop    *netloop.Loop
	answers []popAnswer
	buf     []byte // heads, back to back
	ranges  []vfs.Range
	gots    []*engine.GetResult // behind the ranges
}

// A popAnswer is one answer: its head with what of the body is in memory, and
// the ranges that follow.
type popAnswer struct {
	conn       *netloop.Conn
	from, to   int32 // in buf
	first, end int32 // in ranges
	bytes      int32 // of the ranges
}

// pops is the batch that the loop fills.
func (state *loopState) pops(b *Broker) *popBatch {
	if state.popBatch == nil {
		if n := len(state.popFree); n > 0 {
			state.popBatch, state.popFree[n-1] = state.popFree[n-1], nil
			state.popFree = state.popFree[:n-1]
		} else {
			state.popBatch = &popBatch{b: b, loop: state.loop}
		}
	}
	return state.popBatch
}

// got gives an empty result for one Get.
func (state *loopState) gotFree() *engine.GetResult {
	if n := len(state.gots); n > 0 {
		g := state.gots[n-1]
		state.gots[n-1] = nil
		state.gots = state.gots[:n-1]
		return g
	}
	return &engine.GetResult{}
}

func (state *loopState) giveGot(g *engine.GetResult) {
	g.Release()
	if len(state.gots) < batchesKept {
		state.gots = append(state.gots, g)
	}
}

// found adds the answer of a pop that found messages.
func (s *popBatch) found(r *popReader) {
	from, first := len(s.buf), len(s.ranges)
	s.buf = r.appendHead(s.buf)
	s.ranges = append(s.ranges, r.ranges...)
	s.gots = append(s.gots, r.gots...)
	r.gots = r.gots[:0]
	if !r.p.to.Oneway {
		s.answers = append(s.answers, popAnswer{conn: r.p.conn, from: int32(from), to: int32(len(s.buf)),
			first: int32(first), end: int32(len(s.ranges)), bytes: int32(r.rangeBytes)})
	}
}

// add adds an answer without messages: buf is s.buf with it appended.
func (s *popBatch) add(conn *netloop.Conn, oneway bool, buf []byte) {
	from := len(s.buf)
	s.buf = buf
	if !oneway {
		s.answers = append(s.answers, popAnswer{conn: conn, from: int32(from), to: int32(len(buf))})
	}
}

// Written is the journal's word that what the batch stands for is in it.
func (s *popBatch) Written() { s.loop.Post(s) }

// RunOnLoop answers.
func (s *popBatch) RunOnLoop(l *netloop.Loop) {
	for i := range s.answers {
		a := &s.answers[i]
		head, ranges := s.buf[a.from:a.to], s.ranges[a.first:a.end]
		switch {
		case a.conn.Closed():
		case len(ranges) == 0:
			a.conn.SetOut(append(a.conn.Out(), head...))
		case int(a.bytes)/len(ranges) >= sendfileRunBytes:
			a.conn.SendFile(head, ranges)
		default:
			a.conn.SendCopy(head, ranges)
		}
	}
	state := l.User.(*loopState)
	for i, g := range s.gots {
		state.giveGot(g)
		s.gots[i] = nil
	}
	clear(s.answers)
	clear(s.ranges)
	s.answers, s.ranges, s.gots = s.answers[:0], s.ranges[:0], s.gots[:0]
	if len(state.popFree) < batchesKept && cap(s.buf) <= batchKeepBytes {
		s.buf = s.buf[:0]
		state.popFree = append(state.popFree, s)
	}
}

// putPops hands the loop's pops of this read event to the journal.
func (b *Broker) putPops(state *loopState) {
	if s := state.popBatch; s != nil {
		state.popBatch = nil
		b.pops.AfterWrite(s)
	}
}

// popCold serves a pop that has to wait for the disk, on the pool.
func (b *Broker) popCold(p *popRequest) {
	var state loopState // what the reader needs of one
	r := &state.popping
	r.begin(b, p, &state, b.now().UnixMilli())
	r.cold = true
	r.run()
	defer r.more()
	if r.count == 0 {
		// Others have been quicker, or the filter dropped all: as after a hold.
		p.conn.Send(r.appendNothing(nil, remoting.PollingTimeout))
		return
	}
	frame := r.appendHead(nil)
	var err error
	for _, rg := range r.ranges {
		if frame, err = appendRange(frame, rg); err != nil {
			code, remark := errorReply(err)
			frame = remoting.AppendReply(nil, p.to, code, remark, nil, nil)
			break
		}
	}
	for _, g := range r.gots {
		g.Release()
	}
	if !p.to.Oneway {
		b.pops.AfterWrite(&popFrame{p.conn, frame})
	}
}

// A popFrame is an answer of popCold that waits for the journal.
type popFrame struct {
	conn  *netloop.Conn
	frame []byte
}

// Written sends it.
func (f *popFrame) Written() { f.conn.Send(f.frame) }

// rotate is where a pop of any queue begins to look.
func rotate() int32 { return rand.Int32N(1 << 30) }
