package broker

import (
	"errors"
	"slices"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/filter"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// sendfileRunBytes is the mean length of a contiguous run from which on a pull
// is answered by sendfile; shorter runs are gathered into one write.
const sendfileRunBytes = 16 << 10

// A pull is one PULL_MESSAGE while it is served: resolved, checked, and with
// what an answer needs. It holds no bytes of the request's frame.
type pull struct {
	conn   *netloop.Conn
	to     remoting.ReplyTo
	topic  *meta.Topic
	group  *meta.Group
	queue  *consumequeue.Queue
	filter filter.Filter // nil: everything

	offset message.QueueOffset // where to look next; a held pull moves on over what its filter drops
	asked  message.QueueOffset // where the client asked to begin
	// unreadable says that there is something at offset that could not be read;
	// not before another message comes is it looked at again.
	unreadable bool
	maxMsgs    int
	maxBytes   int
}

// servePull answers PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), on the loop
// of c. What has to wait for a disk goes to the pool.
// (As PullMessageProcessor#processRequest, 5.3.)
func (b *Broker) servePull(c *netloop.Conn, cmd *remoting.Command) {
	var h remoting.PullHeader
	if err := h.Decode(cmd); err != nil {
		b.answerError(c, cmd, err)
		return
	}
	p := pull{conn: c, to: cmd.ReplyTo()}
	if err := b.resolvePull(&p, &h, cmd); err == errNoGroup {
		group := string(h.ConsumerGroup)
		b.prepare(c, cmd, func() error { _, err := b.groups.GetOrCreate(group); return err })
		return
	} else if err != nil {
		b.refusePull(c, cmd, err)
		return
	}
	if offset, ok := b.offsets.TakeReset(p.topic.Name, p.group.GroupName, h.QueueID); ok {
		b.replyReset(&p, offset)
		return
	}
	if h.RequestSource == remoting.SourceProxyBroadcast && b.cfg.EnableBroadcastOffsetStore {
		if offset, ok := b.broadcasts.pull(&p, &h); ok {
			b.replyReset(&p, offset)
			return
		}
	}
	if h.SysFlag&remoting.PullCommitOffset != 0 {
		b.offsets.Commit(h.Topic, h.ConsumerGroup, h.QueueID, h.CommitOffset)
	}
	state := c.Loop().User.(*loopState)
	if b.answerPull(&p, state, lookFirst) {
		return
	}
	wait := h.SuspendMillis
	if !b.cfg.LongPollingEnable {
		wait = b.cfg.ShortPollingTimeMills
	}
	mayHold := h.SysFlag&remoting.PullSuspend != 0 && wait > 0 && !p.to.Oneway
	if !mayHold || !state.holds.holdPull(&p, b.now().UnixMilli()+wait) {
		b.answerPull(&p, state, lookLast)
	}
}

// Who forbids a pull, in the field forbiddenType of answers with code 16
// (ForbiddenType, 5.3).
const (
	brokerForbidden       = 1
	groupForbidden        = 2
	topicForbidden        = 3
	broadcastForbidden    = 4
	subscriptionForbidden = 5
)

// A forbiddenError is a pull refused with NO_PERMISSION, and by whom.
type forbiddenError struct {
	who int64
	err error
}

func (e *forbiddenError) Error() string { return e.err.Error() }
func (e *forbiddenError) Unwrap() error { return e.err }

func forbid(who int64, format string, args ...any) error {
	return &forbiddenError{who, refuse(remoting.NoPermission, format, args...)}
}

// refusePull answers a pull that may not be.
func (b *Broker) refusePull(c *netloop.Conn, cmd *remoting.Command, err error) {
	code, remark := errorReply(err)
	resp := &response{code: code, remark: remark}
	var f *forbiddenError
	if errors.As(err, &f) {
		resp.fields = []remoting.Field{intField("forbiddenType", f.who)}
	}
	b.answer(c, cmd, netloop.OnLoop, resp)
}

// errNoGroup says that the group must be created first, which writes its table
// and so isn't done on a loop.
var errNoGroup = errors.New("the group is not known yet")

// resolvePull checks a pull in Apache's order of errors and finds its topic,
// group, queue and filter.
func (b *Broker) resolvePull(p *pull, h *remoting.PullHeader, cmd *remoting.Command) error {
	if int32(b.cfg.BrokerPermission)&remoting.PermRead == 0 {
		return forbid(brokerForbidden, "the broker[%s] pulling message is forbidden: brokerPermission is %d", b.cfg.BrokerIP1, b.cfg.BrokerPermission)
	}
	if cmd.Code == int32(remoting.ReqLitePullMessage) && !b.cfg.LitePullMessageEnable {
		return forbid(brokerForbidden, "the broker[%s] for lite pull consumer is forbidden: litePullMessageEnable is false", b.cfg.BrokerIP1)
	}
	p.group = b.groups.Get(h.ConsumerGroup)
	if p.group == nil {
		return errNoGroup
	}
	if !p.group.ConsumeEnable {
		return forbid(groupForbidden, "subscription group no permission, %s: consumeEnable is false", h.ConsumerGroup)
	}
	p.topic = b.topics.Get(h.Topic)
	if p.topic == nil {
		return refuse(remoting.TopicNotExist, "topic[%s] not exist, apply first please! %s", h.Topic, faq)
	}
	if p.topic.Perm&remoting.PermRead == 0 {
		return forbid(topicForbidden, "the topic[%s] pulling message is forbidden: its perm is %d", h.Topic, p.topic.Perm)
	}
	if h.QueueID < 0 || h.QueueID >= p.topic.ReadQueues {
		return refuse(remoting.InvalidParameter, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d] consumer:[%s]",
			h.QueueID, h.Topic, p.topic.ReadQueues, p.conn.Remote())
	}
	if err := b.pullFilter(p, h); err != nil {
		return err
	}
	p.queue = b.store.Queue(p.topic.Name, h.QueueID)
	p.offset, p.asked = message.QueueOffset(h.QueueOffset), message.QueueOffset(h.QueueOffset)
	p.maxMsgs, p.maxBytes = int(h.MaxMsgNums), int(h.MaxMsgBytes)
	return nil
}

// pullFilter finds the filter of a pull: the expression it carries, or what
// its client subscribed by heartbeat.
func (b *Broker) pullFilter(p *pull, h *remoting.PullHeader) error {
	if !b.groups.MayRead(h.ConsumerGroup, h.Topic) {
		return forbid(subscriptionForbidden, "the consumer group[%s] is forbidden for topic[%s]", h.ConsumerGroup, h.Topic)
	}
	if h.SysFlag&remoting.PullSubscription != 0 {
		var err error
		p.filter, err = b.expression(p.conn.Loop().User.(*loopState), h.ExpressionType, h.Subscription)
		return err
	}
	sub, err := b.clients.Subscription(p.conn, h.ConsumerGroup, h.Topic)
	if err != nil {
		p.filter, err = b.savedFilter(p, h, err)
		return err
	}
	if sub.broadcast && !p.group.ConsumeBroadcastEnable {
		return forbid(broadcastForbidden, "the consumer group[%s] can not consume by broadcast way: consumeBroadcastEnable is false", h.ConsumerGroup)
	}
	if sub.Version < h.SubVersion {
		return refuse(remoting.SubscriptionNotLatest, "the consumer's subscription not latest: got subVersion %d, the heartbeat brought %d", h.SubVersion, sub.Version)
	}
	p.filter = sub.Filter
	return nil
}

// When a pull looks into its queue.
type look int

const (
	lookFirst look = iota // as it comes in
	lookAgain             // held, and something arrived
	lookLast              // its time is over, or it may not be held
)

// answerPull looks into the queue and answers, on p's loop. It says false when
// there is nothing yet for it and it may be held; the last look answers that
// too.
func (b *Broker) answerPull(p *pull, state *loopState, look look) bool {
	res := &state.got
	b.store.Get(&engine.GetRequest{Queue: p.queue, Offset: p.offset, MaxMsgs: p.maxMsgs, MaxBytes: p.maxBytes, Filter: p.filter}, res)
	defer res.Release()
	switch res.Status {
	case engine.NeedCold:
		q := *p
		if !b.cold.run(p.conn, func() { b.pullCold(&q) }) {
			b.replyPull(p, res, remoting.SystemBusy, "the pool that reads from disk is full")
		}
		return true
	case engine.Found:
		b.replyFound(p, state, res)
		return true
	case engine.NoMatched:
		if look == lookAgain { // nothing of what arrived is for it: go on waiting behind it
			p.offset = res.Next
			return false
		}
	}
	p.unreadable = res.Status == engine.FoundNull
	code := pullCode(res, p.offset)
	if code == remoting.PullNotFound && p.offset != p.asked {
		code = remoting.PullRetryImmediately // the client moves on over what its filter drops
	}
	if code == remoting.PullNotFound && look != lookLast {
		return false
	}
	b.replyPull(p, res, code, res.Status.String())
	return true
}

// pullCode maps the state of a queue to the code that lets every client
// converge in one step (facts of PullMessageProcessor, 5.3).
func pullCode(res *engine.GetResult, offset message.QueueOffset) remoting.ResponseCode {
	switch res.Status {
	case engine.Found:
		return remoting.Success
	case engine.NoMatched, engine.Removing:
		return remoting.PullRetryImmediately
	case engine.Empty, engine.NoQueue:
		if offset == 0 {
			return remoting.PullNotFound
		}
		return remoting.PullOffsetMoved
	case engine.OverflowOne:
		return remoting.PullNotFound
	case engine.FoundNull:
		if res.Next != offset { // what will never be readable lies between
			return remoting.PullRetryImmediately
		}
		return remoting.PullNotFound
	case engine.OverflowBadly, engine.TooSmall:
		return remoting.PullOffsetMoved
	}
	panic("BUG: a status of Get without a code: " + res.Status.String())
}

// beginPull begins an answer with the fields that every answer to a pull has,
// and notes where the pull ended. Any goroutine.
func (b *Broker) beginPull(dst []byte, p *pull, res *engine.GetResult, code remoting.ResponseCode, remark string) remoting.ReplyWriter {
	b.offsets.Pulled(p.topic.Name, p.group.GroupName, p.queue.ID(), int64(res.Next))
	w := remoting.BeginReply(dst, p.to, code, remark)
	// There is no slave to suggest: a master says 0 under slaveReadEnable=false,
	// whatever brokerId and whichBrokerWhenConsumeSlowly of the group are.
	fields := remoting.PullReply{SuggestWhichBrokerID: 0,
		NextBeginOffset: int64(res.Next), MinOffset: int64(res.Min), MaxOffset: int64(res.Max)}
	fields.Write(&w)
	w.Int("topicSysFlag", int64(p.topic.SysFlag))
	w.Int("groupSysFlag", int64(p.group.GroupSysFlag))
	return w
}

func (b *Broker) replyPull(p *pull, res *engine.GetResult, code remoting.ResponseCode, remark string) {
	w := b.beginPull(p.conn.Out(), p, res, code, remark)
	p.conn.SetOut(w.End(0))
}

// replyFound sends messages: by sendfile where they lie together, else in one
// gathered write.
func (b *Broker) replyFound(p *pull, state *loopState, res *engine.GetResult) {
	w := b.beginPull(state.head[:0], p, res, remoting.Success, res.Status.String())
	state.head = w.End(res.Bytes)
	if res.Bytes/len(res.Ranges) >= sendfileRunBytes {
		p.conn.SendFile(state.head, res.Ranges)
	} else {
		p.conn.SendCopy(state.head, res.Ranges)
	}
}

// pullCold serves a pull that has to wait for the disk, on the pool: the
// records are read into memory and sent from there, never by a sendfile that
// would wait on the loop.
func (b *Broker) pullCold(p *pull) {
	var res engine.GetResult
	b.store.Get(&engine.GetRequest{Queue: p.queue, Offset: p.offset, MaxMsgs: p.maxMsgs, MaxBytes: p.maxBytes, Filter: p.filter, Cold: true}, &res)
	defer res.Release()
	code := pullCode(&res, p.offset)
	w := b.beginPull(make([]byte, 0, 512+res.Bytes), p, &res, code, res.Status.String())
	if code != remoting.Success {
		p.conn.Send(w.End(0))
		return
	}
	frame := w.End(res.Bytes)
	for _, r := range res.Ranges {
		at := len(frame)
		frame = slices.Grow(frame, r.Len)[:at+r.Len]
		if _, err := r.File.ReadAt(frame[at:], r.Off); err != nil {
			w := b.beginPull(nil, p, &res, remoting.SystemError, "reading "+r.File.Name()+": "+err.Error())
			p.conn.Send(w.End(0))
			return
		}
	}
	p.conn.Send(frame)
}
