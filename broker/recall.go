package broker

import (
	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// recallTag is the tag of a cancellation.
const recallTag = "_RECALL_TAG_"

// writeRecallHandle writes how the timer message rec can be taken back. A
// consumer's retry can't. (As SendMessageProcessor#attachRecallHandle, 5.3, which
// names one millisecond more because it has rounded the time down.)
func (b *Broker) writeRecallHandle(w *remoting.ReplyWriter, rec, uniqKey []byte) {
	props := message.PropertiesOf(rec)
	topic, _ := message.Property(props, message.PropRealTopic)
	millis, ok := message.Property(props, message.PropTimerOutMs)
	if !ok || meta.HasPrefix(topic, meta.RetryPrefix) {
		return
	}
	handle := remoting.RecallHandle{Topic: string(topic), BrokerName: b.cfg.BrokerName, Millis: string(millis), UniqKey: string(uniqKey)}
	w.String("recallHandle", handle.String())
}

// handleRecall is RECALL_MESSAGE (370): it stores a cancellation, a message
// beside the one to be taken back. It answers when that is as durable as a send;
// a message that is just being delivered may escape it.
// (As RecallMessageProcessor, 5.3.)
func handleRecall(b *Broker, r *request) (*response, error) {
	to, props, err := b.cancellation(r)
	if err != nil {
		code, remark := errorReply(err)
		return &response{code: code, remark: remark, fields: b.sendFields[:1]}, nil
	}
	m := message.Message{
		Topic: []byte(to.topic.Name), QueueID: to.queueID, Body: []byte("0"), Properties: props,
		BornMillis: b.now().UnixMilli(), BornHost: r.conn.Remote(), StoreHost: b.addr,
	}
	c := &recall{b: b, conn: r.conn, to: r.cmd.ReplyTo()}
	if c.Buf, err = message.Append(nil, &m); err != nil {
		return nil, err
	}
	key, _ := message.Property(props, message.PropUniqKey)
	c.uniqKey = string(key)
	c.Items = []engine.Item{{Len: int32(len(c.Buf)), Count: 1, Queue: b.store.Queue(to.topic.Name, to.queueID), TagsCode: to.tagsCode}}
	c.Wait, c.Done = true, c
	b.store.Put(&c.Batch)
	return nil, nil
}

// cancellation checks a recall and gives what is stored for it.
func (b *Broker) cancellation(r *request) (to target, props []byte, err error) {
	now := b.now().UnixMilli()
	switch writable := int32(b.cfg.BrokerPermission)&remoting.PermWrite != 0; {
	case !b.cfg.RecallMessageEnable:
		return to, nil, refuse(remoting.NoPermission, "recall failed, operation is forbidden: recallMessageEnable is false")
	case now < b.cfg.StartAcceptSendRequestTimeStamp, !writable && !b.cfg.AllowRecallWhenBrokerNotWriteable:
		return to, nil, refuse(remoting.ServiceNotAvailable, "recall failed, broker service not available")
	}
	var h remoting.RecallHeader
	if err := h.Decode(r.cmd); err != nil {
		return to, nil, err
	}
	topic := b.topics.Find(h.Topic)
	if topic == nil {
		return to, nil, refuse(remoting.TopicNotExist, "recall failed, the topic[%s] not exist", h.Topic)
	}
	handle, err := remoting.ParseRecallHandle(h.RecallHandle)
	if err != nil {
		return to, nil, refuse(remoting.IllegalOperation, "%v", err)
	}
	millis, err := remoting.ParseInt64([]byte(handle.Millis))
	switch {
	case handle.Topic != h.Topic:
		return to, nil, refuse(remoting.IllegalOperation, "recall failed, topic not match: the handle is of %.150q, the request for %s", handle.Topic, h.Topic)
	case handle.BrokerName != b.cfg.BrokerName:
		return to, nil, refuse(remoting.IllegalOperation, "recall failed, broker service not available: the handle is of broker %.150q, this is %s", handle.BrokerName, b.cfg.BrokerName)
	case err != nil || millis <= now || millis-now >= b.cfg.TimerMaxDelaySec*1000:
		return to, nil, refuse(remoting.IllegalOperation, "recall failed, timestamp invalid: got %.40q, want a time to come, at most timerMaxDelaySec %d ahead", handle.Millis, b.cfg.TimerMaxDelaySec)
	}
	props = message.AppendProperty(nil, message.PropTags, recallTag)
	props = message.AppendProperty(props, message.PropTimerDelUniqKey, cancelKey(handle.Topic, handle.UniqKey))
	props = message.AppendProperty(props, message.PropUniqKey, handle.UniqKey)
	props = message.AppendProperty(props, message.PropTimerDeliverMs, handle.Millis)
	props = message.AppendProperty(props, message.PropBornTimestamp, string(remoting.AppendInt(nil, now)))
	props = message.AppendProperty(props, message.PropProducerGroup, h.ProducerGroup)
	to = target{topic: topic}
	found := sentProps{timer: []byte(handle.Millis), timerBy: byDeliverMs, timerCancels: true}
	if props, err = b.postpone(props, &found, &to, now); err != nil {
		return to, nil, err
	}
	if len(props) > message.PropertiesBytesMax {
		return to, nil, propsTooLong([]byte(h.Topic), len(props))
	}
	return to, props, nil
}

// A recall is a cancellation on its way to the timer topic.
type recall struct {
	engine.Batch
	b       *Broker
	conn    *netloop.Conn
	to      remoting.ReplyTo
	uniqKey string // of the message it takes back
}

// PutDone answers.
func (c *recall) PutDone(*engine.Batch) {
	if c.to.Oneway {
		return
	}
	fields := append([]remoting.Field(nil), c.b.sendFields[0])
	if status := c.Items[0].Status; status.Stored() {
		fields = append(fields, remoting.Field{Key: []byte("msgId"), Value: []byte(c.uniqKey)})
		c.conn.Send(remoting.AppendReply(nil, c.to, remoting.Success, "", fields, nil))
	} else {
		_, why := sendCode(status, c.Err)
		c.conn.Send(remoting.AppendReply(nil, c.to, remoting.SystemError, "recall failed, execute error: "+why, fields, nil))
	}
}
