package broker

import (
	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// versionResetByBroker is the first client version that takes
// RESET_CONSUMER_CLIENT_OFFSET and GET_CONSUMER_STATUS_FROM_CLIENT (V3_0_7).
const versionResetByBroker = 28

// handleResetOffset is INVOKE_BROKER_TO_RESET_OFFSET (222): a group goes on
// from a time, from the end, or for one queue from an offset. The reset is the
// group's offset at once, and pending until the queue's next pull is told;
// pulls that are held are told at once. With useServerSideResetOffset=false the
// consumers online are told by request 220 instead. (As
// AdminBrokerProcessor#resetOffset, 5.3.)
func handleResetOffset(b *Broker, r *request) (*response, error) {
	var h remoting.ResetOffsetHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	topic := b.topics.Find(h.Topic)
	if topic == nil {
		return nil, refuse(remoting.TopicNotExist, "Topic %s does not exist", h.Topic)
	}
	if !b.cfg.UseServerSideResetOffset {
		return b.resetOnClients(&h, topic, r.cmd.Language == remoting.LanguageCPP)
	}
	if b.groups.Find(h.Group) == nil {
		return nil, refuse(remoting.SubscriptionGroupNotExist, "Group %s does not exist", h.Group)
	}
	queues, err := b.resetTargets(&h, topic)
	if err != nil {
		return nil, err
	}
	written := make(chan error, 1)
	b.offsets.Reset(h.Topic, h.Group, queues, func(err error) { written <- err })
	b.holds.recheck(func(_ *netloop.Conn, t *meta.Topic, g *meta.Group) bool {
		return g.GroupName == h.Group && t.Name == h.Topic
	})
	if err := <-written; err != nil {
		return nil, err
	}
	table := remoting.QueueOffsetTable{OffsetTable: make(map[remoting.MessageQueue]int64, len(queues))}
	for id, offset := range queues {
		table.OffsetTable[b.messageQueue(h.Topic, id)] = offset
	}
	b.log.Info("offsets reset", "topic", h.Topic, "group", h.Group, "offsets", queues, "remote", r.conn.Remote())
	return &response{body: table.Append(nil)}, nil
}

// resetTargets says where each queue of a reset goes on.
func (b *Broker) resetTargets(h *remoting.ResetOffsetHeader, topic *meta.Topic) (map[int32]int64, error) {
	queues := map[int32]int64{}
	switch {
	case h.QueueID >= max(topic.ReadQueues, topic.WriteQueues):
		return nil, refuse(remoting.InvalidParameter, "queueId[%d] is illegal, topic:[%s] has %d queues", h.QueueID, h.Topic, max(topic.ReadQueues, topic.WriteQueues))
	case h.QueueID >= 0 && h.Offset != -1:
		low, high := b.queueRange(h.Topic, h.QueueID)
		if h.Offset < low || h.Offset > high+1 {
			return nil, refuse(remoting.SystemError, "Target offset %d not in consume queue range [%d-%d]", h.Offset, low, high)
		}
		queues[h.QueueID] = h.Offset
	case h.QueueID >= 0:
		offset, err := b.offsetByTime(h.Topic, h.QueueID, h.Timestamp)
		if err != nil {
			return nil, err
		}
		queues[h.QueueID] = offset
	default:
		for id := range topic.ReadQueues {
			offset, err := b.offsetByTime(h.Topic, id, h.Timestamp)
			if err != nil {
				return nil, err
			}
			queues[id] = offset
		}
		if len(queues) == 0 {
			return nil, refuse(remoting.SystemError, "No queues to reset.")
		}
	}
	return queues, nil
}

// offsetByTime is the first offset whose message was stored at or after millis;
// the end of the queue where millis is negative.
func (b *Broker) offsetByTime(topic string, queueID int32, millis int64) (int64, error) {
	if millis < 0 {
		_, high := b.queueRange(topic, queueID)
		return high, nil
	}
	offset, err := b.store.OffsetByTime(b.store.FindQueue(topic, queueID), millis, false)
	return int64(offset), err
}

// queueRange is the first offset of a queue and one past its last; 0 and 0 for
// one that isn't there.
func (b *Broker) queueRange(topic string, queueID int32) (low, high int64) {
	if q := b.store.FindQueue(topic, queueID); q != nil {
		low, high = int64(q.Min()), int64(q.Max())
	}
	return low, high
}

func (b *Broker) messageQueue(topic string, id int32) remoting.MessageQueue {
	return remoting.MessageQueue{BrokerName: b.cfg.BrokerName, QueueID: id, Topic: topic}
}

// resetOnClients has the consumers online set their offsets themselves. Without
// isForce a queue only goes back. (As Broker2Client#resetOffset, 5.3.)
func (b *Broker) resetOnClients(h *remoting.ResetOffsetHeader, topic *meta.Topic, cpp bool) (*response, error) {
	table := remoting.QueueOffsetTable{OffsetTable: map[remoting.MessageQueue]int64{}}
	for id := range topic.WriteQueues {
		now, ok := b.offsets.Get([]byte(h.Topic), []byte(h.Group), id)
		if !ok {
			return nil, refuse(remoting.SystemError, "THe consumer group <%s> not exist", h.Group)
		}
		offset, err := b.offsetByTime(h.Topic, id, h.Timestamp)
		if err != nil {
			return nil, err
		}
		if !h.Force {
			offset = min(offset, now)
		}
		table.OffsetTable[b.messageQueue(h.Topic, id)] = offset
	}
	members := b.clients.consumersOf(h.Group)
	if len(members) == 0 {
		return nil, refuse(remoting.ConsumerNotOnline, "Consumer not online, so can not reset offset, Group: %s Topic: %s Timestamp: %d",
			h.Group, h.Topic, h.Timestamp)
	}
	tell := remoting.ResetOffsetHeader{Topic: h.Topic, Group: h.Group, QueueID: -1, Offset: -1, Timestamp: h.Timestamp}
	cmd := tell.Command(int32(remoting.ReqResetConsumerClientOffset))
	cmd.Flag |= remoting.FlagOneway
	if cmd.Body = table.Append(nil); cpp {
		cmd.Body = table.AppendList(nil)
	}
	frame := remoting.Append(nil, cmd)
	for _, m := range members {
		if m.version < versionResetByBroker {
			return nil, refuse(remoting.SystemError, "the client does not support this feature. version=%d", m.version)
		}
		m.conn.Send(frame)
	}
	return &response{body: table.Append(nil)}, nil
}

// replyReset tells a pull's consumer of the pending reset: 21 and where to go
// on.
func (b *Broker) replyReset(p *pull, offset int64) {
	now := engine.GetResult{Next: message.QueueOffset(offset), Min: p.queue.Min(), Max: p.queue.Max()}
	b.replyPull(p, &now, remoting.PullOffsetMoved, "OFFSET_RESET")
}

// handleCloneOffset is CLONE_GROUP_OFFSET (314): a group begins where another
// is. Topics that the source's consumers online don't subscribe stay out, unless
// offline says otherwise. (As AdminBrokerProcessor#cloneGroupOffset, 5.3, which
// clones nothing where the request names no topic.)
func handleCloneOffset(b *Broker, r *request) (*response, error) {
	var h remoting.CloneOffsetHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	topics := []string{h.Topic}
	if h.Topic == "" {
		topics = b.offsets.Topics(h.SrcGroup)
	}
	subscribed := b.clients.subscriptionsOf(h.SrcGroup)
	for _, topic := range topics {
		if b.topics.Find(topic) == nil {
			continue
		}
		if !h.Offline && len(subscribed) > 0 && subscribed[topic] == nil {
			continue
		}
		b.offsets.Clone(topic, h.SrcGroup, h.DestGroup)
	}
	if err := b.offsets.Flush(); err != nil {
		return nil, err
	}
	return &response{}, nil
}
