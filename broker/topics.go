package broker

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// pageMax is how many topics or groups one page of a table has at most
// (splitMetadataSize).
const pageMax = 2000

// handleCreateTopic is UPDATE_AND_CREATE_TOPIC (17). It answers when the topic
// is saved; the NameServers learn it meanwhile.
// (As AdminBrokerProcessor#updateAndCreateTopic, 5.3.)
func handleCreateTopic(b *Broker, r *request) (*response, error) {
	var h remoting.CreateTopicHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	t := &meta.Topic{Name: h.Topic, ReadQueues: h.ReadQueueNums, WriteQueues: h.WriteQueueNums, Perm: h.Perm,
		MultiTag: h.TopicFilterType == remoting.FilterMultiTag, Order: h.Order, SysFlag: h.TopicSysFlag}
	if err := b.checkTopicConfig(t, h.Attributes); err != nil {
		return nil, err
	}
	return b.updateTopics(t)
}

// handleCreateTopicList is UPDATE_AND_CREATE_TOPIC_LIST (18): all of them or
// none.
func handleCreateTopicList(b *Broker, r *request) (*response, error) {
	var list remoting.TopicConfigList
	if err := remoting.ParseBody(r.cmd.Body, &list); err != nil {
		return nil, err
	}
	topics := make([]*meta.Topic, len(list.TopicConfigList))
	for i, raw := range list.TopicConfigList {
		c := remoting.NewTopicConfig("")
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, refuse(remoting.SystemError, "topic %d of the list is no topic configuration: %v", i, err)
		}
		topics[i] = meta.TopicOf(&c)
		if err := b.checkTopicConfig(topics[i], attributesText(c.Attributes)); err != nil {
			return nil, err
		}
	}
	return b.updateTopics(topics...)
}

// attributesText writes the changes of a list's topic, {"+key":"value","-key":""},
// as request 17 has them.
func attributesText(changes map[string]string) string {
	var items []string
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		if !strings.HasPrefix(key, "-") {
			key += "=" + changes[key]
		}
		items = append(items, key)
	}
	return strings.Join(items, ",")
}

// checkTopicConfig refuses a topic that can't be, and fills in its attributes:
// those it has, changed as text says.
func (b *Broker) checkTopicConfig(t *meta.Topic, text string) error {
	if err := b.checkOwnTopic(t.Name); err != nil {
		return err
	}
	for _, n := range []int32{t.ReadQueues, t.WriteQueues} {
		if n < 1 || n > meta.QueueIDMax+1 {
			return refuse(remoting.InvalidParameter, "topic %s: got %d read and %d write queues, want 1 to %d of each",
				t.Name, t.ReadQueues, t.WriteQueues, meta.QueueIDMax+1)
		}
	}
	if t.Perm < 0 || t.Perm >= remoting.PermPriority {
		return refuse(remoting.InvalidParameter, "topic %s: got perm %d, want a sum of 4 (read), 2 (write) and 1 (inherit)", t.Name, t.Perm)
	}
	var old map[string]string
	have := b.topics.Find(t.Name)
	if have != nil {
		old = have.Attributes
	}
	var err error
	t.Attributes, err = alterAttributes(have == nil, old, text)
	return err
}

func (b *Broker) updateTopics(topics ...*meta.Topic) (*response, error) {
	changed := map[string]bool{}
	for _, t := range topics {
		if b.topics.Find(t.Name) == nil {
			if err := b.dropQueuesUnlike(t); err != nil {
				return nil, err
			}
		}
		if b.topics.Put(t) {
			changed[t.Name] = true
		}
	}
	if len(changed) > 0 {
		b.holds.recheck(func(_ *netloop.Conn, t *meta.Topic, _ *meta.Group) bool { return changed[t.Name] })
	}
	if err := b.tables.Save(); err != nil {
		return nil, err
	}
	return &response{}, nil
}

// dropQueuesUnlike drops what a deleted topic of the same name has left in
// queues of another kind: recovery makes them where the log still has its
// records.
func (b *Broker) dropQueuesUnlike(t *meta.Topic) error {
	for _, q := range b.store.Queues().Of(t.Name) {
		if q.Batch() != t.Batch() {
			return b.store.DeleteTopic(t.Name)
		}
	}
	return nil
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
	meta.QueueType: {values: []string{"SimpleCQ", meta.BatchCQ}, fixed: true},
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

// handleDeleteTopic is DELETE_TOPIC_IN_BROKER (215): the topic, its queues, its
// offsets, and the retry topics of groups that pop it. A topic that isn't there is deleted already. The tool that asks
// tells the NameServers by itself.
func handleDeleteTopic(b *Broker, r *request) (*response, error) {
	var h remoting.TopicHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	if err := b.checkOwnTopic(h.Topic); err != nil {
		return nil, err
	}
	for _, group := range b.offsets.Groups(h.Topic) { // as long as they are known
		for _, flag := range []byte("12") {
			if err := b.deleteTopic(string(appendRetryTopic(nil, h.Topic, group, flag))); err != nil {
				return nil, err
			}
		}
	}
	if err := b.deleteTopic(h.Topic); err != nil {
		return nil, err
	}
	// Durably: what groups had consumed of it must not come back for messages of
	// a new topic of that name.
	if err := errors.Join(b.tables.Fold(), b.pops.Sync()); err != nil {
		return nil, err
	}
	if err := b.tables.Save(); err != nil {
		return nil, err
	}
	return &response{}, nil
}

// deleteTopic deletes a topic that may be there.
func (b *Broker) deleteTopic(topic string) error {
	if !b.topics.Delete(topic) {
		return nil
	}
	// The configuration first, so that no send makes a queue anew.
	b.offsets.DeleteTopic(topic)
	b.pops.DropTopic(topic)
	b.tables.Modes.DeleteTopic(topic)
	if err := b.store.DeleteTopic(topic); err != nil {
		return err
	}
	b.holds.recheck(func(_ *netloop.Conn, t *meta.Topic, _ *meta.Group) bool { return t.Name == topic }) // of queues that are no more
	return nil
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
		all = page(all, h.TopicSeq, h.MaxTopicNum, h.DataVersion, version)
	}
	table := remoting.TopicConfigTable{DataVersion: version, TopicConfigTable: make(map[string]remoting.TopicConfig, len(all))}
	for _, t := range all {
		table.TopicConfigTable[t.Name] = t.Config()
	}
	return &response{fields: []remoting.Field{intField("totalTopicNum", int64(total))}, body: table.Marshal()}, nil
}

// handleTopicConfig is GET_TOPIC_CONFIG (351).
func handleTopicConfig(b *Broker, r *request) (*response, error) {
	var h remoting.TopicHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	t := b.topics.Find(h.Topic)
	if t == nil {
		return nil, refuse(remoting.TopicNotExist, "No topic in this broker. topic: %s", h.Topic)
	}
	return &response{body: remoting.MarshalBody(t.Config())}, nil
}

// handleSystemTopics is GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305): what tools
// leave out of their lists.
func handleSystemTopics(b *Broker, _ *request) (*response, error) {
	return &response{body: remoting.MarshalBody(remoting.TopicList{TopicList: b.tables.System.List()})}, nil
}
