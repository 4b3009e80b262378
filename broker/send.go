package broker

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// A sendBatch is what one read event of a loop sent: the records of all its
// SEND frames, handed to the engine as one batch and answered together. It
// travels loop → engine → loop and is used again by its loop. From Put to
// PutDone the engine has it; then, until it is given back, whoever answers it.
type sendBatch struct {
	engine.Batch
	b     *Broker
	loop  *netloop.Loop
	state atomic.Int32 // batchFilling …: who turns the finished batch into answers
	sends []pendingSend

	answers, ids []byte // scratch of answerHere
}

// A pendingSend is the request behind an Item of the batch, same index.
type pendingSend struct {
	conn    *netloop.Conn
	to      remoting.ReplyTo
	queueID int32 // the queue to answer: the asked one also for delayed messages
	recall  bool  // the answer says how to take the message back: a timer
	uniqPos int32 // UNIQ_KEY of the message in Buf, the answer's transactionId
	uniqLen int32
	// innerBatch is for a batch stored as one record: its UNIQ_KEY is also the
	// answer's batchUniqId.
	innerBatch bool
}

const (
	batchFilling  = iota
	batchPutting  // the loop is inside Put
	batchReturned // Put has returned: PutDone posts the batch to its loop
	batchDone     // PutDone came while the loop was inside Put
)

// loneItems is how many sends a batch may have to be answered by the goroutine
// that finished it.
const loneItems = 4

// noteUniqKey notes where in the batch's Buf the key stands of the record that
// ends at end: its properties are the record's last bytes.
func (s *pendingSend) noteUniqKey(end int, props, key []byte) {
	s.uniqPos, s.uniqLen = int32(end-len(props)+bytes.Index(props, key)), int32(len(key))
}

// PutDone is the engine's word that every item has its result; on the
// goroutine that moved the last mark. A batch that is finished before Put
// returns is answered by the loop itself, without a wake-up; a lone one by this
// goroutine, since waking the loop would take longer than all the rest.
func (s *sendBatch) PutDone(*engine.Batch) {
	alone := s.b.flying.Add(-1) == 0
	if s.state.CompareAndSwap(batchPutting, batchDone) {
		return
	}
	if alone && len(s.Items) <= loneItems && s.answerHere() {
		s.loop.User.(*loopState).giveBack(s)
		return
	}
	s.loop.Post(s)
}

// answerHere answers a batch of one connection on this goroutine, if its socket
// is free.
func (s *sendBatch) answerHere() bool {
	conn := s.sends[0].conn
	s.answers = s.answers[:0]
	for i := range s.sends {
		if s.sends[i].conn != conn {
			return false
		}
		if !s.sends[i].to.Oneway {
			s.answers = s.b.appendSendAnswer(s.answers, &s.ids, s, i)
		}
	}
	return len(s.answers) == 0 || conn.TrySend(s.answers)
}

// RunOnLoop answers the sends of a finished batch and keeps it for the next.
func (s *sendBatch) RunOnLoop(l *netloop.Loop) {
	state := l.User.(*loopState)
	for i := range s.sends {
		if send := &s.sends[i]; !send.to.Oneway && !send.conn.Closed() {
			send.conn.SetOut(s.b.appendSendAnswer(send.conn.Out(), &state.ids, s, i))
		}
	}
	state.recycle(s)
}

// errNoTopic says that the topic must be created first, which writes its table
// and so isn't done on a loop.
var errNoTopic = &remoting.Error{Code: remoting.TopicNotExist, Remark: "the topic is not known yet"}

// serveSend takes SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and
// SEND_BATCH_MESSAGE (320), on the loop of c: checks it in Apache's order,
// encodes its record once into the loop's batch, and leaves. The batch goes to
// the engine at the end of the read event; RunOnLoop answers. (As
// SendMessageProcessor#processRequest, 5.3.)
func (b *Broker) serveSend(c *netloop.Conn, cmd *remoting.Command) {
	state := c.Loop().User.(*loopState)
	h := &state.send
	err := h.Decode(cmd)
	if err == nil {
		err = b.takeSend(state, c, cmd, h)
	}
	if err == errNoTopic {
		// The later sends of this connection wait, so that its order is kept.
		b.prepareSend(c, cmd, h)
		return
	}
	if err != nil {
		b.refuseSend(c, cmd, err)
	}
}

// prepareSend makes what a send lacks (its topic, a group's retry topic or DLQ)
// on the pool and serves the send again.
func (b *Broker) prepareSend(c *netloop.Conn, cmd *remoting.Command, h *remoting.SendHeader) {
	topic, template := string(h.Topic), string(h.DefaultTopic)
	queues, unit := h.DefaultTopicQueueNums, h.UnitMode
	b.prepare(c, cmd, func() error {
		if group, ok := cutRetry(topic); ok {
			return b.prepareRetry(group, topic)
		}
		_, _, err := b.topics.CreateOnSend(topic, template, queues, unit)
		return err
	})
}

// takeSend checks a send and adds its records to the loop's batch. An error is
// a refusal of this send alone: nothing of it is in the batch.
func (b *Broker) takeSend(state *loopState, c *netloop.Conn, cmd *remoting.Command, h *remoting.SendHeader) error {
	topic, queueID, err := b.sendPlace(state, c, h)
	if err != nil {
		return err
	}
	if len(cmd.Body) == 0 {
		return refuse(remoting.MessageIllegal, "message body is empty: topic %s, producer %s", h.Topic, c.Remote())
	}
	if len(cmd.Body) > int(b.cfg.MaxMessageSize) {
		return refuse(remoting.MessageIllegal, "message body is too large: got %d bytes, want at most maxMessageSize %d", len(cmd.Body), b.cfg.MaxMessageSize)
	}
	if ok, why := b.store.Writable(); !ok {
		return refuse(remoting.ServiceNotAvailable, "%s", why)
	}
	if err := b.store.Admit(len(cmd.Body) + len(h.Properties)); err != nil {
		return refuse(remoting.SystemBusy, "%v", err)
	}
	if h.Batch {
		return b.takeBatch(state, c, cmd, h, topic, queueID)
	}
	return b.takeOne(state, c, cmd, h, topic, queueID)
}

// sendPlace checks in Apache's order whether a send, or a reply, may be sent to
// where it says, and gives its topic and queue. errNoTopic says that the topic
// must be created first. On the loop. (As
// AbstractSendMessageProcessor#msgCheck, 5.3.)
func (b *Broker) sendPlace(state *loopState, c *netloop.Conn, h *remoting.SendHeader) (*meta.Topic, int32, error) {
	if start := b.cfg.StartAcceptSendRequestTimeStamp; start > 0 && state.nowMs() < start {
		return nil, 0, refuse(remoting.SystemError, "broker unable to service, until %d (startAcceptSendRequestTimeStamp)", start)
	}
	topic := b.topics.Get(h.Topic)
	if topic == nil {
		if err := meta.CheckTopic(string(h.Topic)); err != nil {
			return nil, 0, err
		}
		return nil, 0, errNoTopic
	}
	if int32(b.cfg.BrokerPermission)&remoting.PermWrite == 0 && topic.Order {
		return nil, 0, refuse(remoting.NoPermission, "the broker[%s] sending message is forbidden: brokerPermission is %d", b.cfg.BrokerIP1, b.cfg.BrokerPermission)
	}
	if b.tables.System.NoSend(h.Topic) {
		return nil, 0, refuse(remoting.NoPermission, "Sending message to topic[%s] is forbidden.", h.Topic)
	}
	if max(topic.WriteQueues, topic.ReadQueues) <= h.QueueID {
		return nil, 0, refuse(remoting.InvalidParameter, "request queueId[%d] is illegal, topic:[%s] writeQueueNums:[%d] readQueueNums:[%d] producer:[%s]",
			h.QueueID, h.Topic, topic.WriteQueues, topic.ReadQueues, c.Remote())
	}
	queueID := h.QueueID
	if queueID < 0 {
		queueID = rand.Int32N(max(topic.WriteQueues, 1))
	}
	return topic, queueID, nil
}

// takeOne adds a single message.
func (b *Broker) takeOne(state *loopState, c *netloop.Conn, cmd *remoting.Command, h *remoting.SendHeader, topic *meta.Topic, queueID int32) error {
	var found sentProps
	state.props = b.appendStoredProps(state.props[:0], h.Properties, &found)
	if found.innerNum != nil || h.SysFlag&message.SysFlagInnerBatch != 0 {
		return b.takeWrapped(state, c, cmd, h, topic, queueID)
	}
	to := target{topic: topic, queueID: queueID, tagsCode: message.TagsCode(found.tags), reconsume: h.ReconsumeTimes}
	if err := b.redirect(state, h, cmd, &found, &to); err != nil {
		return err
	}
	if len(state.props) > message.PropertiesBytesMax {
		return propsTooLong(h.Topic, len(state.props))
	}
	batch := state.batchFor(b, !found.noWait)
	pos := len(batch.Buf)
	m := &state.record
	m.QueueID, m.Flag, m.SysFlag = to.queueID, h.Flag, storedSysFlag(h, topic)
	m.BornMillis, m.BornHost, m.StoreHost = h.BornMillis, c.Remote(), b.addr
	m.ReconsumeTimes, m.Body, m.Topic, m.Properties = to.reconsume, cmd.Body, []byte(nil), state.props
	m.Topic = append(state.topic[:0], to.topic.Name...)
	state.topic = m.Topic
	buf, err := message.Append(batch.Buf, m)
	if err != nil {
		return &remoting.Error{Code: remoting.MessageIllegal, Remark: err.Error()}
	}
	batch.Buf = buf
	send := pendingSend{conn: c, to: cmd.ReplyTo(), queueID: queueID, recall: to.topic.Name == meta.TimerTopic}
	send.noteUniqKey(len(buf), state.props, found.uniqKey)
	batch.add(engine.Item{Pos: int32(pos), Len: int32(len(buf) - pos), Count: 1,
		Queue: b.store.Queue(to.topic.Name, to.queueID), TagsCode: to.tagsCode}, send)
	return nil
}

// takeBatch adds the messages of a batch: one record each, one queue,
// consecutive offsets; or one record of all where the queue is a batch queue and
// the batch has a unique key. All are checked before the first is added.
func (b *Broker) takeBatch(state *loopState, c *netloop.Conn, cmd *remoting.Command, h *remoting.SendHeader, topic *meta.Topic, queueID int32) error {
	if len(h.Topic) > message.TopicBytesMaxV1 {
		return refuse(remoting.MessageIllegal, "message topic length over %d, batch messages not supported: got %d", message.TopicBytesMaxV1, len(h.Topic))
	}
	if bytes.HasPrefix(h.Topic, retryPrefix) {
		return refuse(remoting.MessageIllegal, "batch messages to a retry topic are not supported: %s", h.Topic)
	}
	if h.SysFlag&message.SysFlagTransactionMask != 0 {
		return refuse(remoting.MessageIllegal, "a batch can not be transactional: topic %s, sysFlag %d", h.Topic, h.SysFlag)
	}
	queue := b.store.Queue(topic.Name, queueID)
	if queue.Batch() {
		if key, _ := message.Property(h.Properties, message.PropUniqKey); len(key) > 0 {
			return b.takeInner(state, c, cmd, h, topic, queue)
		}
	}
	if h.SysFlag&message.SysFlagInnerBatch != 0 {
		return refuse(remoting.MessageIllegal, "an inner batch needs a topic with %s=%s and a %s: topic %s, sysFlag %d", meta.QueueType, meta.BatchCQ, message.PropUniqKey, h.Topic, h.SysFlag)
	}
	if name := postponing(h.Properties); name != "" {
		return refuse(remoting.MessageIllegal, "a batch can not be delayed or transactional: topic %s, it has %s", h.Topic, name)
	}
	var outer sentProps
	state.props = b.appendStoredProps(state.props[:0], h.Properties, &outer)
	batch := state.batchFor(b, !outer.noWait)
	pos, count := len(batch.Buf), int32(0)
	send := pendingSend{conn: c, to: cmd.ReplyTo(), queueID: queueID}
	m := &state.record
	m.QueueID, m.SysFlag = queueID, storedSysFlag(h, topic)
	m.BornMillis, m.BornHost, m.StoreHost = h.BornMillis, c.Remote(), b.addr
	m.ReconsumeTimes = h.ReconsumeTimes
	m.Topic = append(state.topic[:0], topic.Name...)
	state.topic = m.Topic
	buf := batch.Buf
	err := message.EachBatchItem(cmd.Body, func(item message.BatchItem) error {
		var found sentProps
		state.props = b.appendStoredProps(state.props[:0], item.Properties, &found)
		switch {
		case found.delay != nil || found.timer != nil || found.tran != nil:
			return refuse(remoting.MessageIllegal, "a batch message can not be delayed or transactional: topic %s, message %d of the batch", h.Topic, count)
		case len(state.props) > message.PropertiesBytesMax:
			return propsTooLong(h.Topic, len(state.props))
		}
		m.Flag, m.Body, m.Properties = item.Flag, item.Body, state.props
		var err error
		if buf, err = message.Append(buf, m); err != nil {
			return &remoting.Error{Code: remoting.MessageIllegal, Remark: err.Error()}
		}
		if count == 0 {
			send.noteUniqKey(len(buf), state.props, found.uniqKey)
		}
		count++
		return nil
	})
	if err == nil && count == 0 {
		err = refuse(remoting.MessageIllegal, "the batch holds no message: topic %s", h.Topic)
	}
	if err != nil {
		batch.Buf = buf[:pos]
		return err
	}
	batch.Buf = buf
	batch.add(engine.Item{Pos: int32(pos), Len: int32(len(buf) - pos), Count: count, Queue: queue}, send)
	return nil
}

func propsTooLong(topic []byte, got int) error {
	return refuse(remoting.MessageIllegal, "message properties are too long: topic %s, got %d bytes with what the broker adds, want at most %d",
		topic, got, message.PropertiesBytesMax)
}

// appendSendAnswer appends the answer to send i of a finished batch. ids is
// scratch.
func (b *Broker) appendSendAnswer(dst []byte, ids *[]byte, s *sendBatch, i int) []byte {
	send, item := &s.sends[i], &s.Items[i]
	code, remark := sendCode(item.Status, s.Err)
	w := remoting.BeginReply(dst, send.to, code, remark)
	w.String(message.PropMsgRegion, b.cfg.RegionId)
	w.Bool(message.PropTraceOn, b.cfg.TraceOn)
	if item.Status.Stored() {
		*ids = (*ids)[:0]
		for at := item.Pos; at < item.Pos+item.Len; at += message.Size(s.Buf[at:]) {
			if at > item.Pos {
				*ids = append(*ids, ',')
			}
			*ids = message.AppendOffsetID(*ids, b.addr, item.LogOffset+message.LogOffset(at-item.Pos))
		}
		w.Bytes("msgId", *ids)
		w.Int("queueId", int64(send.queueID))
		w.Int("queueOffset", int64(item.QueueOffset))
		key := s.Buf[send.uniqPos : send.uniqPos+send.uniqLen]
		w.Bytes("transactionId", key)
		if send.innerBatch {
			w.Bytes("batchUniqId", key)
		}
		if send.recall {
			b.writeRecallHandle(&w, s.Buf[item.Pos:item.Pos+item.Len], key)
		}
	}
	return w.End(0)
}

// refuseSend answers a send that was not taken. Clients of Java read the
// fields of every answer, so the fixed ones are there too.
func (b *Broker) refuseSend(c *netloop.Conn, cmd *remoting.Command, err error) {
	if cmd.IsOneway() {
		return
	}
	code, remark := errorReply(err)
	c.SetOut(remoting.AppendReply(c.Out(), cmd.ReplyTo(), code, remark, b.sendFields, nil))
}

// isSend says whether a request is answered as a send; replies are.
func isSend(code int32) bool {
	switch remoting.RequestCode(code) {
	case remoting.ReqSendMessage, remoting.ReqSendMessageV2, remoting.ReqSendBatchMessage,
		remoting.ReqSendReplyMessage, remoting.ReqSendReplyMessageV2:
		return true
	}
	return false
}
