package broker

import (
	"strconv"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// An inner batch is a batch that a topic with queue.type=BatchCQ keeps as one
// record: its queue's entry says how many messages it holds, INNER_BASE in the
// record which offset the first has. Consumers of 5.x unwrap it. (As
// SendMessageProcessor#sendBatchMessage and BatchConsumeQueue, 5.3.)

// takeInner adds a batch to a batch queue as one record. Its messages are
// checked as those of any batch.
func (b *Broker) takeInner(state *loopState, c *netloop.Conn, cmd *remoting.Command, h *remoting.SendHeader, topic *meta.Topic, queue *consumequeue.Queue) error {
	if h.SysFlag&message.SysFlagCompressed != 0 {
		return refuse(remoting.MessageIllegal, "a compressed batch can not be counted: topic %s, sysFlag %d", h.Topic, h.SysFlag)
	}
	count := 0
	err := message.EachBatchItem(cmd.Body, func(item message.BatchItem) error {
		if name := postponing(item.Properties); name != "" {
			return refuse(remoting.MessageIllegal, "a batch message can not be delayed or transactional: topic %s, message %d of the batch has %s", h.Topic, count, name)
		}
		count++
		return nil
	})
	switch {
	case err != nil:
		return err
	case count == 0 || count > message.InnerNumMax:
		return refuse(remoting.MessageIllegal, "a batch of %d messages, want 1 to %d: topic %s", count, message.InnerNumMax, h.Topic)
	}
	var found sentProps
	state.props = b.appendStoredProps(state.props[:0], h.Properties, &found)
	if found.innerNum != nil {
		state.props, state.scratch = message.DeleteProperty(state.scratch[:0], state.props, message.PropInnerNum), state.props
	}
	state.props = message.AppendProperty(state.props, message.PropInnerNum, strconv.Itoa(count))
	return b.addInner(state, c, cmd, h, topic, queue, &found, count)
}

// takeWrapped adds a single message that its client made an inner batch of by
// itself: sysFlag and INNER_NUM say so. Its body may be compressed.
func (b *Broker) takeWrapped(state *loopState, c *netloop.Conn, cmd *remoting.Command, h *remoting.SendHeader, topic *meta.Topic, queueID int32) error {
	var found sentProps
	state.props = b.appendStoredProps(state.props[:0], h.Properties, &found)
	queue := b.store.Queue(topic.Name, queueID)
	count, ok := message.ParseInnerNum(found.innerNum)
	switch {
	case h.SysFlag&message.SysFlagInnerBatch == 0:
		return refuse(remoting.MessageIllegal, "the message has the property %s and is no inner batch: topic %s, sysFlag %d", message.PropInnerNum, h.Topic, h.SysFlag)
	case !queue.Batch():
		return refuse(remoting.MessageIllegal, "an inner batch needs a topic with %s=%s: topic %s, sysFlag %d", meta.QueueType, meta.BatchCQ, h.Topic, h.SysFlag)
	case !ok:
		return refuse(remoting.MessageIllegal, "property %s of an inner batch: got %q, want 1 to %d", message.PropInnerNum, found.innerNum, message.InnerNumMax)
	}
	return b.addInner(state, c, cmd, h, topic, queue, &found, int(count))
}

// addInner adds the record of an inner batch of count messages; its properties
// but INNER_BASE are in state.props.
func (b *Broker) addInner(state *loopState, c *netloop.Conn, cmd *remoting.Command, h *remoting.SendHeader, topic *meta.Topic, queue *consumequeue.Queue, found *sentProps, count int) error {
	if found.delay != nil || found.timer != nil || found.tran != nil || h.SysFlag&message.SysFlagTransactionMask != 0 {
		return refuse(remoting.MessageIllegal, "a batch can not be delayed or transactional: topic %s", h.Topic)
	}
	state.props, state.scratch = message.DeleteProperty(state.scratch[:0], state.props, message.PropInnerBase), state.props
	state.props = message.AppendInnerBase(state.props)
	if len(state.props) > message.PropertiesBytesMax {
		return propsTooLong(h.Topic, len(state.props))
	}
	batch := state.batchFor(b, !found.noWait)
	pos := len(batch.Buf)
	m := &state.record
	m.QueueID, m.Flag = queue.ID(), h.Flag
	m.SysFlag = storedSysFlag(h, topic) | message.SysFlagInnerBatch | message.SysFlagNeedUnwrap
	m.BornMillis, m.BornHost, m.StoreHost = h.BornMillis, c.Remote(), b.addr
	m.ReconsumeTimes, m.Body, m.Properties = h.ReconsumeTimes, cmd.Body, state.props
	m.Topic = append(state.topic[:0], topic.Name...)
	state.topic = m.Topic
	buf, err := message.Append(batch.Buf, m)
	if err != nil {
		return &remoting.Error{Code: remoting.MessageIllegal, Remark: err.Error()}
	}
	batch.Buf = buf
	send := pendingSend{conn: c, to: cmd.ReplyTo(), queueID: queue.ID(), innerBatch: h.Batch}
	send.noteUniqKey(len(buf), state.props, found.uniqKey)
	batch.add(engine.Item{Pos: int32(pos), Len: int32(len(buf) - pos), Count: 1, Inner: int32(count),
		Queue: queue, TagsCode: message.TagsCode(found.tags)}, send)
	return nil
}

// postponing names the property for which a message can not be part of a batch;
// "" when there is none.
func postponing(props []byte) (name string) {
	message.EachProperty(props, func(n, _ []byte) bool {
		switch string(n) {
		case message.PropDelay, message.PropTransactionPrepared, message.PropTimerDelaySec, message.PropTimerDelayMs, message.PropTimerDeliverMs:
			name = string(n)
		}
		return name == ""
	})
	return name
}

// storedSysFlag is the sysFlag of a sent message.
func storedSysFlag(h *remoting.SendHeader, topic *meta.Topic) int32 {
	sysFlag := h.SysFlag &^ message.SysFlagTransactionMask // half messages have none either
	if topic.MultiTag {
		sysFlag |= message.SysFlagMultiTags
	}
	return sysFlag
}
