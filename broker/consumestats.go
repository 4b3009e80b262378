package broker

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// handleConsumeStats is GET_CONSUME_STATS (208): how far a group is in each
// queue. (As AdminBrokerProcessor#getConsumeStats, 5.3.)
func handleConsumeStats(b *Broker, r *request) (*response, error) {
	var h remoting.ConsumeStatsHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	stats := &remoting.ConsumeStats{OffsetTable: map[remoting.MessageQueue]remoting.OffsetWrapper{}}
	for _, name := range b.statsTopics(&h) {
		if topic := b.topics.Find(name); topic != nil {
			if err := b.addConsumeStats(stats, h.ConsumerGroup, topic, topic.ReadQueues); err != nil {
				return nil, err
			}
		}
	}
	return &response{body: stats.Append(nil)}, nil
}

// statsTopics are the topics of a request for consume stats: those it lists, or
// the one it names, or all that the group has offsets of; the latter two only as
// far as the group's consumers online, if there are any, subscribe them.
func (b *Broker) statsTopics(h *remoting.ConsumeStatsHeader) []string {
	if h.TopicList != "" {
		topics := strings.FieldsFunc(h.TopicList, func(r rune) bool { return r == ';' })
		slices.Sort(topics)
		return slices.Compact(topics)
	}
	topics := []string{h.Topic}
	if h.Topic == "" {
		topics = b.offsets.Topics(h.ConsumerGroup)
	}
	return b.subscribedOf(h.ConsumerGroup, topics)
}

// subscribedOf leaves out what the group's consumers online don't subscribe.
func (b *Broker) subscribedOf(group string, topics []string) []string {
	subscribed := b.clients.subscriptionsOf(group)
	if len(subscribed) == 0 {
		return topics
	}
	return slices.DeleteFunc(topics, func(t string) bool { return subscribed[t] == nil })
}

// addConsumeStats adds the first queues of a topic to a group's stats. An offset
// behind the queue's end, left from before the topic was made anew, counts as
// the end: no lag is negative.
func (b *Broker) addConsumeStats(stats *remoting.ConsumeStats, group string, topic *meta.Topic, queues int32) error {
	for id := range queues {
		_, high := b.queueRange(topic.Name, id)
		offset, _ := b.offsets.Get([]byte(topic.Name), []byte(group), id)
		offset = min(offset, high)
		w := remoting.OffsetWrapper{BrokerOffset: high, ConsumerOffset: offset,
			PullOffset: min(max(offset, b.offsets.PulledTo(topic.Name, group, id)), high)}
		millis, err := b.store.StoreMillisAt(b.store.FindQueue(topic.Name, id), message.QueueOffset(offset-1))
		if err != nil {
			return err
		}
		w.LastTimestamp = max(millis, 0)
		stats.OffsetTable[b.messageQueue(topic.Name, id)] = w
	}
	return nil
}

// handleBrokerConsumeStats is GET_BROKER_CONSUME_STATS (317): the consume stats
// of all groups.
func handleBrokerConsumeStats(b *Broker, r *request) (*response, error) {
	var h remoting.BrokerConsumeStatsHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	all := remoting.BrokerConsumeStats{BrokerAddr: b.addr.String(), Stats: map[string][]*remoting.ConsumeStats{}}
	groups, _, _ := b.groups.Snapshot()
	for _, group := range groups {
		all.Groups = append(all.Groups, group.GroupName)
		for _, name := range b.subscribedOf(group.GroupName, b.offsets.Topics(group.GroupName)) {
			topic := b.topics.Find(name)
			if topic == nil || h.IsOrder && !topic.Order {
				continue
			}
			stats := &remoting.ConsumeStats{OffsetTable: map[remoting.MessageQueue]remoting.OffsetWrapper{}}
			if err := b.addConsumeStats(stats, group.GroupName, topic, topic.WriteQueues); err != nil {
				return nil, err
			}
			all.Stats[group.GroupName] = append(all.Stats[group.GroupName], stats)
			for _, w := range stats.OffsetTable {
				all.TotalDiff += w.BrokerOffset - w.ConsumerOffset
				all.TotalInflightDiff += w.PullOffset - w.ConsumerOffset
			}
		}
	}
	return &response{body: all.Append(nil)}, nil
}

// handleConsumeTimeSpan is QUERY_CONSUME_TIME_SPAN (303): of which times the
// messages of each queue are, and where among them the group is.
func handleConsumeTimeSpan(b *Broker, r *request) (*response, error) {
	var h remoting.GroupTopicHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	topic := b.topics.Find(h.Topic)
	if topic == nil {
		return nil, refuse(remoting.TopicNotExist, "topic[%s] not exist", h.Topic)
	}
	body := remoting.ConsumeTimeSpan{ConsumeTimeSpanSet: []remoting.QueueTimeSpan{}}
	for id := range topic.WriteQueues {
		span, err := b.queueTimeSpan(h.Group, h.Topic, id)
		if err != nil {
			return nil, err
		}
		body.ConsumeTimeSpanSet = append(body.ConsumeTimeSpanSet, span)
	}
	return &response{body: remoting.MarshalBody(body)}, nil
}

func (b *Broker) queueTimeSpan(group, topic string, id int32) (span remoting.QueueTimeSpan, err error) {
	q := b.store.FindQueue(topic, id)
	at := func(offset int64) (millis int64) {
		if err == nil {
			millis, err = b.store.StoreMillisAt(q, message.QueueOffset(offset))
		}
		return millis
	}
	_, high := b.queueRange(topic, id)
	span.MessageQueue = b.messageQueue(topic, id)
	if span.MinTimeStamp, err = b.store.EarliestMillis(q); err != nil {
		return span, err
	}
	span.MaxTimeStamp, span.ConsumeTimeStamp = at(high-1), span.MinTimeStamp
	offset, _ := b.offsets.Get([]byte(topic), []byte(group), id)
	offset = min(offset, high)
	if offset > 0 {
		span.ConsumeTimeStamp = at(offset - 1)
	}
	if offset < high {
		if next := at(offset); next > 0 {
			span.DelayTime = b.now().UnixMilli() - next
		}
	}
	return span, err
}

// handleCorrectionOffset is QUERY_CORRECTION_OFFSET (308): for each queue the
// least offset any group has, messages that are gone apart, or the greatest
// number there is where compareGroup is behind it. Groups to be left out are
// only left out; Apache deletes their offsets.
func handleCorrectionOffset(b *Broker, r *request) (*response, error) {
	var h remoting.CorrectionOffsetHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	least := map[int32]int64{}
	leftOut := strings.Split(h.FilterGroups, ",")
	for _, group := range b.offsets.Groups(h.Topic) {
		if slices.Contains(leftOut, group) {
			continue
		}
		for id, offset := range b.offsets.Queues(h.Topic, group) {
			if low, _ := b.queueRange(h.Topic, id); offset < low {
				continue
			}
			if have, ok := least[id]; !ok || offset < have {
				least[id] = offset
			}
		}
	}
	for id, offset := range b.offsets.Queues(h.Topic, h.CompareGroup) {
		if have, ok := least[id]; ok && have > offset {
			least[id] = math.MaxInt64
		}
	}
	return &response{body: remoting.AppendCorrectionOffsets(nil, least)}, nil
}

// queueEntriesMax bounds the entries of one answer to QUERY_CONSUME_QUEUE.
const queueEntriesMax = 100_000

// handleQueryConsumeQueue is QUERY_CONSUME_QUEUE (321): a queue's entries as
// they are on the disk.
func handleQueryConsumeQueue(b *Broker, r *request) (*response, error) {
	var h remoting.QueryConsumeQueueHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	q := b.store.FindQueue(h.Topic, h.QueueID)
	if q == nil {
		return nil, refuse(remoting.SystemError, "%d@%s is not exist!", h.QueueID, h.Topic)
	}
	low, high := int64(q.Min()), int64(q.Max())
	if h.Index < low || h.Index > high {
		return &response{remark: fmt.Sprintf("Index %d of %d@%s is not exist!", h.Index, h.QueueID, h.Topic)}, nil
	}
	body := remoting.ConsumeQueueEntries{MaxQueueIndex: high, MinQueueIndex: low, QueueData: []remoting.ConsumeQueueData{}}
	if h.ConsumerGroup != "" {
		if s := b.clients.subscriptionsOf(h.ConsumerGroup)[h.Topic]; s != nil {
			body.SubscriptionData, body.FilterData = &s.data, "null"
		} else {
			body.FilterData = h.ConsumerGroup + "@" + h.Topic + " is not online!"
		}
	}
	entries := make([]consumequeue.Entry, max(0, min(int64(h.Count), high-h.Index, queueEntriesMax)))
	n, err := q.Read(entries, message.QueueOffset(h.Index))
	if err != nil {
		return nil, err
	}
	for _, e := range entries[:n] {
		body.QueueData = append(body.QueueData, remoting.ConsumeQueueData{PhysicOffset: int64(e.LogOffset), PhysicSize: e.Size, TagsCode: e.TagsCode})
	}
	return &response{body: remoting.MarshalBody(body)}, nil
}
