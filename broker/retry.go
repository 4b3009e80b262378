package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

const (
	// versionRetryLimit is the first client version whose maxReconsumeTimes
	// counts (V3_4_9).
	versionRetryLimit = 121
	// firstRetryLevel is the delay level of a message's first retry; each
	// further one takes the next level.
	firstRetryLevel = 3
	// sendBackPatience is how long a message sent back waits for room in the
	// log. Another client's burst must not make it fail: its consumer would
	// lose its place.
	sendBackPatience = 3 * time.Second
	sendBackPause    = 20 * time.Millisecond
)

var retryPrefix = []byte(meta.RetryPrefix)

// cutRetry gives the group of a retry topic.
func cutRetry(topic string) (group string, ok bool) {
	return strings.CutPrefix(topic, meta.RetryPrefix)
}

// retryTarget says where a consumer's own send to its retry topic goes: dlq
// when the message has failed for the last time, to topic and queueID then. It
// is called on a loop; errNoTopic says that the DLQ must be made first.
// (As SendMessageProcessor#handleRetryAndDLQ, 5.3.)
func (b *Broker) retryTarget(h *remoting.SendHeader, version int32) (topic *meta.Topic, queueID int32, dlq bool, err error) {
	name := h.Topic[len(retryPrefix):]
	group := b.groups.Get(name)
	if group == nil {
		return nil, 0, false, refuse(remoting.SubscriptionGroupNotExist, "subscription group not exist, %s %s", name, faq)
	}
	limit := group.RetryMaxTimes
	if h.MaxReconsumeTimes >= 0 && version >= versionRetryLimit {
		limit = h.MaxReconsumeTimes
	}
	// Orderly consumers, who hold locks, send a message only after the last
	// failure: they retry in place.
	if h.ReconsumeTimes <= limit && !b.locks.held(group.GroupName) {
		return nil, 0, false, nil
	}
	topic = b.topics.Find(meta.DLQTopic(group.GroupName))
	if topic == nil {
		return nil, 0, false, errNoTopic
	}
	return topic, 0, true, nil
}

// prepareRetry makes what a send to a group's retry topic lacks; it blocks
// until it is saved.
func (b *Broker) prepareRetry(group, topic string) error {
	g, err := b.groups.GetOrCreate(group)
	if err != nil {
		return err
	}
	retry, dlq := topicsOfGroup(g)
	if _, _, err := b.topics.Ensure(retry); err != nil {
		return err
	}
	_, _, err = b.topics.Ensure(dlq)
	return err
}

// topicsOfGroup are the two topics a group owns, as they are when new.
func topicsOfGroup(g *meta.Group) (retry, dlq *meta.Topic) {
	const rw = remoting.PermRead | remoting.PermWrite
	return meta.NewTopic(meta.RetryTopic(g.GroupName), max(1, g.RetryQueueNums), rw), meta.NewTopic(meta.DLQTopic(g.GroupName), 1, rw)
}

// handleConsumerSendMsgBack is CONSUMER_SEND_MSG_BACK (36): a message failed,
// the group wants it again later, or never. It answers when the copy is in the
// log, as durable as a send. (As AbstractSendMessageProcessor#consumerSendMsgBack,
// 5.3; Apache doesn't wait for the disk here, but the consumer then commits the
// original.)
func handleConsumerSendMsgBack(b *Broker, r *request) (*response, error) {
	var h remoting.SendBackHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	group, err := b.groups.GetOrCreate(h.Group)
	if err != nil {
		return nil, err
	}
	if int32(b.cfg.BrokerPermission)&remoting.PermWrite == 0 {
		return nil, refuse(remoting.NoPermission, "the broker[%s] sending message is forbidden: brokerPermission is %d", b.cfg.BrokerIP1, b.cfg.BrokerPermission)
	}
	if group.RetryQueueNums <= 0 {
		return &response{}, nil // the group wants no retries
	}
	retry, dlq := topicsOfGroup(group)
	if h.UnitMode {
		retry.SysFlag = topicUnitSub
	}
	if retry, _, err = b.topics.Ensure(retry); err != nil {
		return nil, err
	}
	if retry.Perm&remoting.PermWrite == 0 {
		return nil, refuse(remoting.NoPermission, "the topic[%s] sending message is forbidden", retry.Name)
	}
	rec, err := b.store.ByOffset(message.LogOffset(h.Offset))
	if errors.Is(err, engine.ErrNoRecord) {
		return nil, refuse(remoting.SystemError, "look message by offset failed, %d", h.Offset)
	}
	if err != nil {
		return nil, err
	}
	back, err := b.newSendBack(r, &h, group, rec, retry, dlq)
	if err != nil {
		return nil, err
	}
	back.put()
	return nil, nil
}

// A sendBack is a message on its way to the schedule topic or the DLQ.
type sendBack struct {
	engine.Batch
	b        *Broker
	conn     *netloop.Conn
	to       remoting.ReplyTo
	deadline time.Time // from then on a full log is answered
}

// newSendBack makes the copy of rec that is stored.
func (b *Broker) newSendBack(r *request, h *remoting.SendBackHeader, group *meta.Group, rec []byte, retry, dlq *meta.Topic) (*sendBack, error) {
	var m message.Message
	if _, err := message.Decode(rec, &m); err != nil {
		return nil, err
	}
	if m.SysFlag&message.SysFlagInnerBatch != 0 {
		// As Apache: consumers then send the one message that failed themselves.
		return nil, refuse(remoting.SystemError, "the record at %d is an inner batch of %d messages and can not be sent back as a whole", h.Offset, message.InnerNum(rec))
	}
	limit := group.RetryMaxTimes
	if h.MaxReconsumeTimes >= 0 && r.cmd.Version >= versionRetryLimit {
		limit = h.MaxReconsumeTimes
	}
	var place target
	var err error
	if m.ReconsumeTimes >= limit || h.DelayLevel < 0 {
		place, err = b.deadPlace(&m, dlq)
	} else {
		place = b.retryPlace(&m, h.DelayLevel, group, retry)
	}
	if err != nil {
		return nil, err
	}
	if len(m.Properties) > message.PropertiesBytesMax {
		return nil, propsTooLong(m.Topic, len(m.Properties))
	}
	m.Topic, m.QueueID = []byte(place.topic.Name), place.queueID
	m.StoreHost, m.PreparedTransactionOffset = b.addr, 0
	m.ReconsumeTimes++
	s := &sendBack{b: b, conn: r.conn, to: r.cmd.ReplyTo(), deadline: b.now().Add(sendBackPatience)}
	if s.Buf, err = message.Append(nil, &m); err != nil {
		return nil, err
	}
	s.Items = []engine.Item{{Len: int32(len(s.Buf)), Count: 1, Queue: b.store.Queue(place.topic.Name, place.queueID), TagsCode: place.tagsCode}}
	return s, nil
}

// deadPlace sends m to the group's DLQ, which it makes.
func (b *Broker) deadPlace(m *message.Message, dlq *meta.Topic) (target, error) {
	topic, _, err := b.topics.Ensure(dlq)
	m.Properties = setProperty(failedProps(m), message.PropDelay, "0")
	tags, _ := message.Property(m.Properties, message.PropTags)
	return target{topic: topic, tagsCode: message.TagsCode(tags)}, err
}

// retryPlace sends m to where it waits, to come back on one of the first queues
// of the group's retry topic. Level 0 leaves the wait to the group and the broker.
func (b *Broker) retryPlace(m *message.Message, level int32, group *meta.Group, retry *meta.Topic) target {
	queueID := rand.Int32N(min(group.RetryQueueNums, retry.ReadQueues))
	props := failedProps(m)
	for _, name := range []string{message.PropDelay, message.PropTimerDelaySec, message.PropTimerDelayMs, message.PropTimerDeliverMs, message.PropTimerOutMs} {
		props = message.DeleteProperty(nil, props, name) // of an earlier wait
	}
	if level == 0 {
		var millis int64
		if level, millis = b.retryLevel(group, m.ReconsumeTimes); level == 0 {
			tags, _ := message.Property(props, message.PropTags)
			if place, ok := b.waitUntil(m, props, target{topic: retry, queueID: queueID, tagsCode: message.TagsCode(tags)}, millis); ok {
				return place
			}
			level = b.levelOf(millis)
		}
	}
	level = min(level, int32(b.levels.count()))
	props = message.AppendProperty(props, message.PropDelay, fmt.Sprint(level))
	props = setProperty(props, message.PropRealTopic, retry.Name)
	m.Properties = setProperty(props, message.PropRealQueueID, fmt.Sprint(queueID))
	var place target
	place.topic, place.queueID, place.tagsCode = b.schedule.target(level, b.now().UnixMilli())
	return place
}

// failedProps are m's properties with the topic and the id it had when it
// failed for the first time.
func failedProps(m *message.Message) []byte {
	props := m.Properties
	if _, ok := message.Property(props, message.PropRetryTopic); !ok {
		props = setProperty(props, message.PropRetryTopic, string(m.Topic))
	}
	if _, ok := message.Property(props, message.PropOriginMessageID); !ok {
		id := message.AppendOffsetID(nil, m.StoreHost, m.PhysicalOffset)
		props = setProperty(props, message.PropOriginMessageID, string(id))
	}
	return props
}

// setProperty gives a copy of props with one pair replaced or added.
func setProperty(props []byte, name, value string) []byte {
	return message.AppendProperty(message.DeleteProperty(nil, props, name), name, value)
}

// put hands the copy to the store. It may run again after the store was full.
func (s *sendBack) put() {
	s.Wait, s.Done = true, s
	s.b.store.Put(&s.Batch)
}

// PutDone answers, or tries again where the log was full.
func (s *sendBack) PutDone(*engine.Batch) {
	status := s.Items[0].Status
	if status == engine.Busy && s.b.now().Before(s.deadline) {
		time.AfterFunc(sendBackPause, s.put)
		return
	}
	if s.to.Oneway {
		return
	}
	code, remark := remoting.Success, ""
	if !status.Stored() {
		code, remark = remoting.SystemError, status.String()
		if s.Err != nil {
			remark += ": " + s.Err.Error()
		}
	}
	s.conn.Send(remoting.AppendReply(nil, s.to, code, remark, nil, nil))
}
