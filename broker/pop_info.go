package broker

import (
	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/broker/pop"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// handlePeek is PEEK_MESSAGE (200052): what a pop would find, without taking
// it. (As PeekMessageProcessor, 5.3.3.)
func handlePeek(b *Broker, r *request) (*response, error) {
	topic, group, h, err := b.resolvePeek(r)
	if err != nil {
		return nil, err
	}
	p := peek{b: b, group: group.GroupName, most: int(h.MaxMsgNums)}
	if h.QueueID >= 0 {
		err = p.queue(topic, h.QueueID)
	} else {
		err = p.topic(topic)
	}
	if t := b.topics.Find(b.popRetryTopic(topic.Name, group.GroupName)); t != nil && err == nil && p.count < p.most {
		err = p.topic(t)
	}
	if err != nil {
		return nil, err
	}
	resp := &response{code: remoting.PullNotFound, remark: engine.Empty.String(), fields: []remoting.Field{intField("restNum", p.rest)}}
	if p.count > 0 {
		resp.code, resp.remark, resp.body = remoting.Success, engine.Found.String(), p.body
	}
	// Clients decode the header of a pop's answer.
	resp.fields = append(resp.fields, intField("popTime", 0), intField("invisibleTime", 0), intField("reviveQid", 0))
	return resp, nil
}

// resolvePeek checks PEEK_MESSAGE and POLLING_INFO in Apache's order of errors.
func (b *Broker) resolvePeek(r *request) (*meta.Topic, *meta.Group, *remoting.PeekHeader, error) {
	var h remoting.PeekHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, nil, nil, err
	}
	if err := b.readable("peeking"); err != nil {
		return nil, nil, nil, err
	}
	topic, group, err := b.resolvePopQueue([]byte(h.Topic), []byte(h.ConsumerGroup), h.QueueID, r.conn)
	if err == errNoGroup {
		if group, err = b.groups.GetOrCreate(h.ConsumerGroup); err == nil {
			topic = b.topics.Find(h.Topic)
		}
		if err == nil && topic == nil {
			err = refuse(remoting.TopicNotExist, "topic[%s] was deleted", h.Topic)
		}
	}
	return topic, group, &h, err
}

// popRetryTopic is the retry topic that failed messages go to now.
func (b *Broker) popRetryTopic(topic, group string) string {
	flag := byte('1')
	if b.cfg.EnableRetryTopicV2 {
		flag = '2'
	}
	return string(appendRetryTopic(nil, topic, group, flag))
}

// A peek is one PEEK_MESSAGE under way, on the pool.
type peek struct {
	b     *Broker
	group string
	most  int
	count int
	rest  int64
	body  []byte
	got   engine.GetResult
}

func (p *peek) topic(t *meta.Topic) error {
	from := rotate()
	for i := range t.ReadQueues {
		if err := p.queue(t, (from+i)%t.ReadQueues); err != nil {
			return err
		}
	}
	return nil
}

func (p *peek) queue(t *meta.Topic, id int32) error {
	q := p.b.store.FindQueue(t.Name, id)
	if q == nil {
		return nil
	}
	next := p.b.nextPop(t.Name, p.group, id, int64(q.Min()))
	p.rest += max(0, int64(q.Max())-next)
	for p.count < p.most {
		p.b.store.Get(&engine.GetRequest{Queue: q, Offset: message.QueueOffset(next), MaxMsgs: p.most - p.count, Cold: true}, &p.got)
		if p.got.Status == engine.TooSmall {
			next = int64(p.got.Next)
			continue
		}
		break
	}
	defer p.got.Release()
	if p.count >= p.most || p.got.Status != engine.Found {
		return nil
	}
	for _, rg := range p.got.Ranges {
		var err error
		if p.body, err = appendRange(p.body, rg); err != nil {
			return err
		}
	}
	p.count += p.got.Count
	return nil
}

// nextPop is where a group's next pop of a queue begins; first is the answer
// for one that has consumed nothing.
func (b *Broker) nextPop(topic, group string, id int32, first int64) int64 {
	if q := b.findPopQueue(topic, group, id); q != nil {
		if next := q.PeekNext(); next != pop.NoOffset {
			return next
		}
	}
	if at, ok := b.offsets.Get([]byte(topic), []byte(group), id); ok {
		return at
	}
	return first
}

// handlePollingInfo is POLLING_INFO (200055): how many pops are held.
func handlePollingInfo(b *Broker, r *request) (*response, error) {
	topic, group, h, err := b.resolvePeek(r)
	if err != nil {
		return nil, err
	}
	n := 0
	if w := b.popHolds.find(topic.Name, group.GroupName); w != nil {
		n = w.polling(h.QueueID)
	}
	return &response{fields: []remoting.Field{intField("pollingNum", int64(n))}}, nil
}

// A notice is one NOTIFICATION while it is served.
type notice struct {
	conn      *netloop.Conn
	to        remoting.ReplyTo
	topic     *meta.Topic
	group     *meta.Group
	queueID   int32 // -1: any
	order     bool
	attemptID string

	seq     uint64 // as popRequest's
	waiters *popWaiters
}

// serveNotification answers NOTIFICATION (200054), on the loop of c: is there
// something to pop? (As NotificationProcessor, 5.3.3.)
func (b *Broker) serveNotification(c *netloop.Conn, cmd *remoting.Command) {
	var h remoting.NotificationHeader
	if err := h.Decode(cmd); err != nil {
		b.answerError(c, cmd, err)
		return
	}
	n := notice{conn: c, to: cmd.ReplyTo(), queueID: h.QueueID, order: h.Order, attemptID: string(h.AttemptID)}
	err := b.readable("peeking")
	if err == nil {
		n.topic, n.group, err = b.resolvePopQueue(h.Topic, h.ConsumerGroup, h.QueueID, c)
	}
	if err == errNoGroup {
		group := string(h.ConsumerGroup)
		b.prepare(c, cmd, func() error { _, err := b.groups.GetOrCreate(group); return err })
		return
	}
	if err != nil {
		b.answerError(c, cmd, err)
		return
	}
	n.waiters = b.popHolds.of(n.topic.Name, n.group.GroupName)
	if b.answerNotice(&n, lookFirst) {
		return
	}
	nowMs := b.now().UnixMilli()
	if h.BornMillis == 0 {
		h.BornMillis = nowMs
	}
	endMs, full := h.BornMillis+h.PollMillis-popEarlyMillis, false
	if h.PollMillis > 0 && nowMs <= endMs && !n.to.Oneway {
		if full = b.popHolds.held.Load() >= int64(b.cfg.MaxPopPollingSize); !full {
			hn := &heldNotice{notice: n}
			hn.held.request, hn.held.conn = hn, c
			b.popHolds.held.Add(1)
			if c.Loop().User.(*loopState).holds.hold(&hn.held, endMs) {
				return
			}
			b.popHolds.held.Add(-1)
			full = true
		}
	}
	n.reply(false, full)
}

// answerNotice answers when there is something, or on the last look.
func (b *Broker) answerNotice(n *notice, look look) bool {
	n.seq = n.waiters.now()
	has := b.hasPops(n)
	if !has && look != lookLast {
		return false
	}
	n.reply(has, false)
	return true
}

func (n *notice) reply(has, full bool) {
	if n.to.Oneway {
		return
	}
	w := remoting.BeginReply(n.conn.Out(), n.to, remoting.Success, "")
	w.Bool("hasMsg", has)
	w.Bool("pollingFull", full)
	n.conn.SetOut(w.End(0))
}

// hasPops says whether a pop would look at something.
func (b *Broker) hasPops(n *notice) bool {
	if n.queueID >= 0 {
		if b.hasPop(n, n.topic.Name, n.queueID) {
			return true
		}
	} else if b.hasPopIn(n, n.topic) {
		return true
	}
	for _, flag := range []byte("12") {
		if t := b.topics.Find(string(appendRetryTopic(nil, n.topic.Name, n.group.GroupName, flag))); t != nil && b.hasPopIn(n, t) {
			return true
		}
	}
	return false
}

func (b *Broker) hasPopIn(n *notice, t *meta.Topic) bool {
	for id := range t.ReadQueues {
		if b.hasPop(n, t.Name, id) {
			return true
		}
	}
	return false
}

func (b *Broker) hasPop(n *notice, topic string, id int32) bool {
	q := b.store.FindQueue(topic, id)
	if q == nil || q.Max() == 0 {
		return false
	}
	if n.order {
		popped := b.findPopQueue(topic, n.group.GroupName, id)
		if popped != nil && popped.BlockedNow(n.attemptID, b.now().UnixMilli()) {
			return false
		}
	}
	return int64(q.Max()) > b.nextPop(topic, n.group.GroupName, id, int64(q.Min()))
}

// A heldNotice is a parked notification.
type heldNotice struct {
	held
	notice
}

func (n *heldNotice) look(_ *loopState, look look) bool {
	return n.home.table.b.answerNotice(&n.notice, look)
}

func (n *heldNotice) checked() (*meta.Topic, *meta.Group) { return n.topic, n.group }
func (n *heldNotice) outdated(*loopState)                 { n.reply(false, false) }
func (n *heldNotice) ended()                              { n.home.table.b.popHolds.held.Add(-1) }
