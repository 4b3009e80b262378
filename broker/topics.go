package broker

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/remoting"
)

// topicsPageMax is how many topics one page of GET_ALL_TOPIC_CONFIG has at
// most (splitMetadataSize).
const topicsPageMax = 2000

// handleCreateTopic is UPDATE_AND_CREATE_TOPIC (17). It answers when the topic
// is saved; the NameServers learn it meanwhile.
// (As AdminBrokerProcessor#updateAndCreateTopic, 5.3.)
func handleCreateTopic(b *Broker, r *request) (*response, error) {
	var h remoting.CreateTopicHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	if err := b.checkOwnTopic(h.Topic); err != nil {
		return nil, err
	}
	for _, n := range []int32{h.ReadQueueNums, h.WriteQueueNums} {
		if n < 1 || n > meta.QueueIDMax+1 {
			return nil, refuse(remoting.InvalidParameter, "topic %s: got %d read and %d write queues, want 1 to %d of each",
				h.Topic, h.ReadQueueNums, h.WriteQueueNums, meta.QueueIDMax+1)
		}
	}
	if h.Perm < 0 || h.Perm >= remoting.PermPriority {
		return nil, refuse(remoting.InvalidParameter, "topic %s: got perm %d, want a sum of 4 (read), 2 (write) and 1 (inherit)", h.Topic, h.Perm)
	}
	t := &meta.Topic{Name: h.Topic, ReadQueues: h.ReadQueueNums, WriteQueues: h.WriteQueueNums, Perm: h.Perm,
		MultiTag: h.TopicFilterType == remoting.FilterMultiTag, Order: h.Order, SysFlag: h.TopicSysFlag}
	var old map[string]string
	have := b.topics.Find(h.Topic)
	if have != nil {
		old = have.Attributes
	}
	var err error
	if t.Attributes, err = alterAttributes(have == nil, old, h.Attributes); err != nil {
		return nil, err
	}
	b.topics.Put(t)
	if err := b.tables.Save(); err != nil {
		return nil, err
	}
	return &response{}, nil
}

// checkOwnTopic refuses names that no tool may create or delete.
func (b *Broker) checkOwnTopic(topic string) error {
	if b.tables.System.Has(topic) {
		return refuse(remoting.InvalidParameter, "The topic[%s] is conflict with system topic.", topic)
	}
	return meta.CheckTopic(topic)
}

// An attribute is a key a topic may have, with what is allowed for it.
type attribute struct {
	values  []string // nil: a number
	fixed   bool     // not to be changed once the topic exists
	refused map[string]string
}

// topicAttributes are the attributes of a topic (TopicAttributes, 5.3).
var topicAttributes = map[string]attribute{
	"queue.type": {values: []string{"SimpleCQ", "BatchCQ"}, fixed: true,
		refused: map[string]string{"BatchCQ": "batch ConsumeQueues are not served by this version"}},
	"cleanup.policy": {values: []string{"DELETE", "COMPACTION"}, fixed: true,
		refused: map[string]string{"COMPACTION": "compaction is not served by this version"}},
	"message.type": {values: []string{"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"},
		refused: map[string]string{"MIXED": "enableMixedMessageType is off"}},
	"reserve.time": {},
}

// alterAttributes applies a text like "+key=value,-key" to a topic's
// attributes. (As AttributeUtil#alterCurrentAttributes, 5.3.)
func alterAttributes(create bool, current map[string]string, text string) (map[string]string, error) {
	out := maps.Clone(current)
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		key, value, set := strings.Cut(item, "=")
		sign := "-"
		if set {
			sign = "+"
		}
		key, signed := strings.CutPrefix(key, sign)
		a, known := topicAttributes[key]
		switch {
		case !signed:
			return nil, refuse(remoting.SystemError, "attribute %q: want +key=value or -key", item)
		case !known:
			return nil, refuse(remoting.SystemError, "attribute %q is not known: want one of %s", key, strings.Join(slices.Sorted(maps.Keys(topicAttributes)), ", "))
		case !set && (create || out[key] == ""):
			return nil, refuse(remoting.SystemError, "attribute %q can't be removed: the topic has none", key)
		case !create && a.fixed && value != out[key]:
			return nil, refuse(remoting.SystemError, "attribute %q can't be changed once the topic exists", key)
		case !set:
			delete(out, key)
			continue
		}
		if err := a.check(key, value); err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out, nil
}

func (a attribute) check(key, value string) error {
	if a.values == nil {
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < -1 {
			return refuse(remoting.SystemError, "attribute %s: got %q, want a number of at least -1", key, value)
		}
		return nil
	}
	if !slices.Contains(a.values, value) {
		return refuse(remoting.SystemError, "attribute %s: got %q, want one of %s", key, value, strings.Join(a.values, ", "))
	}
	if why := a.refused[value]; why != "" {
		return refuse(remoting.InvalidParameter, "attribute %s=%s: %s", key, value, why)
	}
	return nil
}

// handleDeleteTopic is DELETE_TOPIC_IN_BROKER (215): the topic, its queues and
// its offsets. A topic that isn't there is deleted already. The tool that asks
// tells the NameServers by itself.
func handleDeleteTopic(b *Broker, r *request) (*response, error) {
	var h remoting.TopicHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	if err := b.checkOwnTopic(h.Topic); err != nil {
		return nil, err
	}
	if !b.topics.Delete(h.Topic) {
		return &response{}, nil
	}
	// The configuration first, so that no send makes a queue anew.
	b.offsets.DeleteTopic(h.Topic)
	if err := b.store.DeleteTopic(h.Topic); err != nil {
		return nil, err
	}
	if err := b.tables.Save(); err != nil {
		return nil, err
	}
	return &response{}, nil
}

// handleAllTopicConfig is GET_ALL_TOPIC_CONFIG (21): all topics at once, or in
// pages where the request has any of the fields of a page.
func handleAllTopicConfig(b *Broker, r *request) (*response, error) {
	var h remoting.AllTopicConfigHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	all, version := b.topics.Snapshot()
	total := len(all)
	if h.TopicSeq >= 0 || h.MaxTopicNum >= 0 || h.DataVersion != "" {
		from := int(max(h.TopicSeq, 0))
		var asked remoting.DataVersion
		if h.DataVersion != "" && (remoting.ParseBody([]byte(h.DataVersion), &asked) != nil || asked != version) {
			from = 0 // the table has changed meanwhile
		}
		most := topicsPageMax
		if h.MaxTopicNum > 0 {
			most = min(most, int(h.MaxTopicNum))
		}
		all = all[min(from, total):]
		all = all[:min(most, len(all))]
	}
	table := remoting.TopicConfigTable{DataVersion: version, TopicConfigTable: make(map[string]remoting.TopicConfig, len(all))}
	for _, t := range all {
		table.TopicConfigTable[t.Name] = t.Config()
	}
	return &response{fields: []remoting.Field{intField("totalTopicNum", int64(total))}, body: table.Marshal()}, nil
}
