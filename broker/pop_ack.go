package broker

import (
	"github.com/ringmq/ringmq/broker/pop"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// serveAck answers ACK_MESSAGE (200051), on the loop of c, once the
// acknowledgement is in the journal. One by an expired handle is answered like
// one that counts. (As AckMessageProcessor#processRequest, 5.3.3.)
func (b *Broker) serveAck(c *netloop.Conn, cmd *remoting.Command) {
	var h remoting.AckHeader
	var ck remoting.PopCK
	q, err := b.resolveAck(&h, &ck, c, cmd, 1)
	if err == nil && q != nil {
		if ck.ReviveQueueID == remoting.PopOrderQueue {
			err = b.ackOrdered(q, ck.PopMillis, h.Offset)
		} else {
			q.Ack(pop.Handle{Start: ck.Start, PopMillis: ck.PopMillis}, h.Offset)
		}
	}
	if err != nil {
		b.answerError(c, cmd, err)
		return
	}
	s := c.Loop().User.(*loopState).pops(b)
	w := remoting.BeginReply(s.buf, cmd.ReplyTo(), remoting.Success, "")
	s.add(c, cmd.IsOneway(), w.End(0))
}

// resolveAck decodes and checks an acknowledgement, or a change of the
// invisible time, in Apache's order of errors, and finds what the group has
// popped of the queue, nil for nothing. The offset must be below the queue's
// end and beyond: its next offset is let through too where beyond is 1.
func (b *Broker) resolveAck(h *remoting.AckHeader, ck *remoting.PopCK, c *netloop.Conn, cmd *remoting.Command, beyond int64) (*pop.Queue, error) {
	if err := h.Decode(cmd); err != nil {
		return nil, err
	}
	t := b.topics.Get(h.Topic)
	if t == nil {
		return nil, refuse(remoting.TopicNotExist, "topic[%s] not exist, apply first please! %s", h.Topic, faq)
	}
	if h.QueueID >= t.ReadQueues || h.QueueID < 0 {
		return nil, refuse(remoting.MessageIllegal, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d] consumer:[%s]", h.QueueID, h.Topic, t.ReadQueues, c.Remote())
	}
	low, high := int64(0), int64(0)
	if q := b.store.FindQueue(t.Name, h.QueueID); q != nil {
		low, high = int64(q.Min()), int64(q.Max())
	}
	if h.Offset < low || h.Offset >= high+beyond {
		return nil, refuse(remoting.NoMessage, "offset is illegal, key:%s@%d, commit:%d, store:%d~%d", h.Topic, h.QueueID, h.Offset, low, high)
	}
	if err := ck.Parse(h.ExtraInfo); err != nil {
		return nil, err
	}
	if g := b.groups.Get(h.ConsumerGroup); g != nil {
		return b.findPopQueue(t.Name, g.GroupName, h.QueueID), nil
	}
	return nil, nil
}

// findPopQueue finds what a group has popped of a queue; nil for nothing.
func (b *Broker) findPopQueue(topic, group string, queueID int32) *pop.Queue {
	g := b.pops.FindGroup(topic, group)
	if g == nil {
		return nil
	}
	return g.Find(queueID)
}

// ackOrdered acknowledges a message popped in order.
func (b *Broker) ackOrdered(q *pop.Queue, popMillis, offset int64) error {
	known, free := q.AckOrdered(popMillis, offset, b.now().UnixMilli())
	if !known {
		return refuse(remoting.MessageIllegal, "offset is illegal, key:%s@%s@%d: the batch popped at %d has no message at offset %d",
			q.Topic(), q.Group(), q.ID, popMillis, offset)
	}
	if free {
		b.popHolds.wake(q.Topic(), q.Group(), q.ID)
	}
	return nil
}

// handleBatchAck is BATCH_ACK_MESSAGE (200151). What names no message of this
// broker is passed over, as in Apache.
func handleBatchAck(b *Broker, r *request) (*response, error) {
	var body remoting.BatchAckBody
	if len(r.cmd.Body) > 0 {
		if err := remoting.ParseBody(r.cmd.Body, &body); err != nil {
			return nil, err
		}
	}
	if len(body.Acks) == 0 {
		return nil, refuse(remoting.NoMessage, "the batch acknowledges no message")
	}
	for i := range body.Acks {
		if flag := body.Acks[i].Retry; len(flag) != 1 || flag < "0" || flag > "2" {
			return nil, refuse(remoting.InvalidParameter, "acknowledgement %d of the batch: got retry %.10q, want 0, 1 or 2", i, flag)
		}
	}
	for i := range body.Acks {
		if err := b.batchAck(&body.Acks[i]); err != nil {
			return nil, err
		}
	}
	s := r.conn.Loop().User.(*loopState).pops(b)
	s.add(r.conn, r.cmd.IsOneway(), remoting.AppendReply(s.buf, r.cmd.ReplyTo(), remoting.Success, "", nil, nil))
	return nil, nil
}

func (b *Broker) batchAck(a *remoting.BatchAck) (err error) {
	topic := a.Topic
	if a.Retry != "0" {
		topic = string(appendRetryTopic(nil, a.Topic, a.ConsumerGroup, a.Retry[0]))
	}
	q := b.findPopQueue(topic, a.ConsumerGroup, a.QueueID)
	if q == nil {
		return nil
	}
	a.Bits.Each(func(i int) bool {
		offset := a.StartOffset + int64(i)
		if a.ReviveQueueID == remoting.PopOrderQueue {
			err = b.ackOrdered(q, a.PopMillis, offset)
		} else {
			q.Ack(pop.Handle{Start: a.StartOffset, PopMillis: a.PopMillis}, offset)
		}
		return err == nil
	})
	return err
}

// serveChangeInvisible answers CHANGE_MESSAGE_INVISIBLETIME (200053), on the
// loop of c, once the change is in the journal. By an expired handle nothing is
// changed; the answer then names a delivery that is none.
// (As ChangeInvisibleTimeProcessor, 5.3.3.)
func (b *Broker) serveChangeInvisible(c *netloop.Conn, cmd *remoting.Command) {
	var h remoting.AckHeader
	var ck remoting.PopCK
	q, err := b.resolveAck(&h, &ck, c, cmd, 0)
	if err != nil {
		b.answerError(c, cmd, err)
		return
	}
	now := b.now().UnixMilli()
	popMillis, invisible := now, h.InvisibleMillis
	if ck.ReviveQueueID == remoting.PopOrderQueue {
		// The batch keeps its time: that is what its messages are known by.
		popMillis, invisible = ck.PopMillis, now+h.InvisibleMillis-ck.PopMillis
		if q != nil && q.ChangeOrdered(ck.PopMillis, h.Offset, now+h.InvisibleMillis) && h.InvisibleMillis <= 0 {
			b.popHolds.wake(q.Topic(), q.Group(), q.ID)
		}
	} else if q != nil {
		changed, _ := q.Change(pop.Handle{Start: ck.Start, PopMillis: ck.PopMillis}, h.Offset, now, h.InvisibleMillis)
		if changed.Start == h.Offset && changed.PopMillis >= now {
			popMillis = changed.PopMillis
		}
	}
	s := c.Loop().User.(*loopState).pops(b)
	w := remoting.BeginReply(s.buf, cmd.ReplyTo(), remoting.Success, "")
	w.Int("popTime", popMillis)
	w.Int("invisibleTime", invisible)
	w.Int("reviveQid", int64(ck.ReviveQueueID))
	s.add(c, cmd.IsOneway(), w.End(0))
}
