package broker

import (
	"cmp"
	"slices"

	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// consumersOf lists the clients of a consumer group by their ids; each
// connection is one.
func (t *clientTable) consumersOf(group string) []clientInfo {
	t.mu.RLock()
	defer t.mu.RUnlock()
	g := t.consumers[group]
	if g == nil {
		return nil
	}
	list := make([]clientInfo, 0, len(g.members))
	for _, m := range g.members {
		list = append(list, m.clientInfo)
	}
	sortClients(list)
	return list
}

// producersOf lists the clients of a producer group by their ids.
func (t *clientTable) producersOf(group string) []clientInfo {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return listOf(t.producers[group])
}

// allProducers lists the clients of all producer groups.
func (t *clientTable) allProducers() map[string][]clientInfo {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make(map[string][]clientInfo, len(t.producers))
	for group, members := range t.producers {
		all[group] = listOf(members)
	}
	return all
}

func listOf(members map[*netloop.Conn]*producer) []clientInfo {
	list := make([]clientInfo, 0, len(members))
	for _, p := range members {
		list = append(list, p.clientInfo)
	}
	sortClients(list)
	return list
}

func sortClients(list []clientInfo) {
	slices.SortFunc(list, func(a, b clientInfo) int {
		return cmp.Or(cmp.Compare(a.id, b.id), a.conn.Remote().Compare(b.conn.Remote()))
	})
}

// subscriptionsOf is what the clients of a group subscribe together, by topic;
// of several of one topic the newest. Empty where nobody is online.
func (t *clientTable) subscriptionsOf(group string) map[string]*subscription {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := map[string]*subscription{}
	if g := t.consumers[group]; g != nil {
		for _, m := range g.members {
			for topic, s := range *m.subs.Load() {
				if have := all[topic]; have == nil || have.Version < s.Version {
					all[topic] = s
				}
			}
		}
	}
	return all
}

// groupsOn lists the groups with a consumer online that subscribes topic.
func (t *clientTable) groupsOn(topic string) (groups []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for name, g := range t.consumers {
		for _, m := range g.members {
			if (*m.subs.Load())[topic] != nil {
				groups = append(groups, name)
				break
			}
		}
	}
	return groups
}

// consumerGroupSays is what the last heartbeat said of a whole group; false where
// nobody is online.
func (t *clientTable) consumerGroupSays(group string) (consumeType, messageModel, consumeFromWhere string, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	g := t.consumers[group]
	if g == nil {
		return "", "", "", false
	}
	return g.consumeType, g.messageModel, g.consumeFromWhere, true
}

func connections(list []clientInfo) []remoting.Connection {
	set := make([]remoting.Connection, len(list))
	for i, c := range list {
		set[i] = remoting.Connection{ClientAddr: hostPort(c.conn.Remote()), ClientID: c.id, Language: c.language.String(), Version: c.version}
	}
	return set
}

// handleConsumerConnections is GET_CONSUMER_CONNECTION_LIST (203). Where clients
// of the group subscribe a topic differently it says so.
func handleConsumerConnections(b *Broker, r *request) (*response, error) {
	var h remoting.ConsumerGroupHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	body := remoting.ConsumerConnection{SubscriptionTable: map[string]remoting.SubscriptionData{}}
	var online bool
	if body.ConsumeType, body.MessageModel, body.ConsumeFromWhere, online = b.clients.consumerGroupSays(h.ConsumerGroup); !online {
		return nil, refuse(remoting.ConsumerNotOnline, "the consumer group[%s] not online", h.ConsumerGroup)
	}
	body.ConnectionSet = connections(b.clients.consumersOf(h.ConsumerGroup))
	for topic, s := range b.clients.subscriptionsOf(h.ConsumerGroup) {
		body.SubscriptionTable[topic] = s.data
	}
	for _, c := range b.clients.conflicts(h.ConsumerGroup) {
		conflict := remoting.SubscriptionConflict{Topic: c.Topic}
		for _, v := range c.Variants {
			conflict.Variants = append(conflict.Variants, remoting.SubscriptionVariant{Clients: v.Clients, Wants: v.Wants})
		}
		body.SubscriptionConflicts = append(body.SubscriptionConflicts, conflict)
	}
	return &response{body: remoting.MarshalBody(body)}, nil
}

// handleProducerConnections is GET_PRODUCER_CONNECTION_LIST (204).
func handleProducerConnections(b *Broker, r *request) (*response, error) {
	var h remoting.ProducerGroupHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	list := b.clients.producersOf(h.ProducerGroup)
	if len(list) == 0 {
		return nil, refuse(remoting.SystemError, "the producer group[%s] not exist", h.ProducerGroup)
	}
	return &response{body: remoting.MarshalBody(remoting.ProducerConnection{ConnectionSet: connections(list)})}, nil
}

// handleAllProducers is GET_ALL_PRODUCER_INFO (328).
func handleAllProducers(b *Broker, _ *request) (*response, error) {
	table := remoting.ProducerTable{Data: map[string][]remoting.ProducerInfo{}}
	for group, list := range b.clients.allProducers() {
		for _, c := range list {
			table.Data[group] = append(table.Data[group], remoting.ProducerInfo{ClientID: c.id, Language: c.language.String(),
				LastUpdateTimestamp: c.beat.UnixMilli(), RemoteIP: "/" + hostPort(c.conn.Remote()), Version: c.version})
		}
	}
	return &response{body: remoting.MarshalBody(table)}, nil
}

// handleTopicConsumers is QUERY_TOPIC_CONSUME_BY_WHO (300): groups that
// subscribe a topic now or have offsets of it.
func handleTopicConsumers(b *Broker, r *request) (*response, error) {
	var h remoting.TopicHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	groups := append(b.clients.groupsOn(h.Topic), b.offsets.Groups(h.Topic)...)
	slices.Sort(groups)
	return &response{body: remoting.MarshalBody(remoting.GroupList{GroupList: append([]string{}, slices.Compact(groups)...)})}, nil
}

// handleConsumerTopics is QUERY_TOPICS_BY_CONSUMER (343): topics the group has
// offsets of.
func handleConsumerTopics(b *Broker, r *request) (*response, error) {
	var h remoting.GroupHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	topics := append([]string{}, b.offsets.Topics(h.Group)...)
	return &response{body: remoting.MarshalBody(remoting.TopicList{BrokerAddr: b.addr.String(), TopicList: topics})}, nil
}

// handleConsumerSubscription is QUERY_SUBSCRIPTION_BY_CONSUMER (345).
func handleConsumerSubscription(b *Broker, r *request) (*response, error) {
	var h remoting.GroupTopicHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	body := remoting.SubscriptionAnswer{Group: h.Group, Topic: h.Topic}
	if s := b.clients.subscriptionsOf(h.Group)[h.Topic]; s != nil {
		body.SubscriptionData = &s.data
	}
	return &response{body: remoting.MarshalBody(body)}, nil
}
