package broker

import (
	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/remoting"
)

// handleQueryConsumerOffset is QUERY_CONSUMER_OFFSET (14). A group that has
// committed nothing begins at 0 where the queue's very first message is there
// and still in memory, unless it asks not to; else the answer is 22, and the
// client goes by its consumeFromWhere.
// (As ConsumerManageProcessor#queryConsumerOffset, 5.3.)
func handleQueryConsumerOffset(b *Broker, r *request) (*response, error) {
	var h remoting.QueryConsumerOffsetHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	if offset, ok := b.offsets.Get([]byte(h.Topic), []byte(h.ConsumerGroup), h.QueueID); ok {
		return offsetResponse(offset), nil
	}
	if h.SetZeroIfNotFound && b.firstInMemory(h.Topic, h.QueueID) {
		return offsetResponse(0), nil
	}
	return nil, refuse(remoting.QueryNotFound, "Not found, maybe this group consumer boot first: group %s, topic %s, queueId %d",
		h.ConsumerGroup, h.Topic, h.QueueID)
}

// firstInMemory says whether the message at offset 0 can be read without
// waiting for a disk.
func (b *Broker) firstInMemory(topic string, queueID int32) bool {
	var res engine.GetResult
	b.store.Get(&engine.GetRequest{Queue: b.store.FindQueue(topic, queueID), MaxMsgs: 1}, &res)
	defer res.Release()
	return res.Status == engine.Found
}

// handleUpdateConsumerOffset is UPDATE_CONSUMER_OFFSET (15). Clients send it
// one-way every few seconds for each queue: that only changes the table. Who
// wants an answer gets it when the commit is in the journal.
func handleUpdateConsumerOffset(b *Broker, r *request) (*response, error) {
	group, _ := r.cmd.Get("consumerGroup")
	topic, _ := r.cmd.Get("topic")
	var h remoting.UpdateConsumerOffsetHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	if b.groups.Get(group) == nil {
		return nil, refuse(remoting.SubscriptionGroupNotExist, "Group %s not exist!", h.ConsumerGroup)
	}
	if b.topics.Get(topic) == nil {
		return nil, refuse(remoting.TopicNotExist, "Topic %s not exist!", h.Topic)
	}
	if h.QueueID < 0 || h.QueueID > meta.QueueIDMax || h.CommitOffset < 0 {
		return nil, refuse(remoting.InvalidParameter, "got queueId %d and commitOffset %d, want 0 to %d and at least 0", h.QueueID, h.CommitOffset, meta.QueueIDMax)
	}
	if b.offsets.ResetPending(topic, group, h.QueueID) {
		return &response{remark: "Offset has been previously reset"}, nil
	}
	if r.cmd.IsOneway() {
		b.offsets.Commit(topic, group, h.QueueID, h.CommitOffset)
		return nil, nil
	}
	conn, to := r.conn, r.cmd.ReplyTo()
	b.offsets.CommitWritten(topic, group, h.QueueID, h.CommitOffset, func(err error) {
		code, remark := remoting.Success, ""
		if err != nil {
			code, remark = errorReply(err)
		}
		conn.Send(remoting.AppendReply(nil, to, code, remark, nil, nil))
	})
	return nil, nil
}

// handleMaxOffset is GET_MAX_OFFSET (30): one past the last message, 0 for a
// queue that holds nothing or isn't there.
func handleMaxOffset(b *Broker, r *request) (*response, error) {
	var h remoting.TopicQueueHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	if q := b.store.FindQueue(h.Topic, h.QueueID); q != nil {
		return offsetResponse(int64(q.Max())), nil
	}
	return offsetResponse(0), nil
}

// handleMinOffset is GET_MIN_OFFSET (31): the first message still there.
func handleMinOffset(b *Broker, r *request) (*response, error) {
	var h remoting.TopicQueueHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	if q := b.store.FindQueue(h.Topic, h.QueueID); q != nil {
		return offsetResponse(int64(q.Min())), nil
	}
	return offsetResponse(0), nil
}

// handleSearchOffset is SEARCH_OFFSET_BY_TIMESTAMP (29).
func handleSearchOffset(b *Broker, r *request) (*response, error) {
	var h remoting.SearchOffsetHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	q := b.store.FindQueue(h.Topic, h.QueueID)
	if q == nil {
		return offsetResponse(0), nil
	}
	offset, err := b.store.OffsetByTime(q, h.Timestamp, h.Upper())
	if err != nil {
		return nil, err
	}
	return offsetResponse(int64(offset)), nil
}

// handleEarliestStoreTime is GET_EARLIEST_MSG_STORETIME (32): -1 where there is
// no message.
func handleEarliestStoreTime(b *Broker, r *request) (*response, error) {
	var h remoting.TopicQueueHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	millis := int64(-1)
	if q := b.store.FindQueue(h.Topic, h.QueueID); q != nil {
		var err error
		if millis, err = b.store.EarliestMillis(q); err != nil {
			return nil, err
		}
	}
	return &response{fields: []remoting.Field{intField("timestamp", millis)}}, nil
}

func offsetResponse(offset int64) *response {
	return &response{fields: []remoting.Field{intField("offset", offset)}}
}

func intField(key string, v int64) remoting.Field {
	return remoting.Field{Key: []byte(key), Value: remoting.AppendInt(nil, v)}
}
