package broker

import (
	"encoding/json"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// handleUpdateGroup is UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200). It answers
// when the group is saved, and obeyed: pulls that are held look again.
// (As AdminBrokerProcessor#updateAndCreateSubscriptionGroup, 5.3.)
func handleUpdateGroup(b *Broker, r *request) (*response, error) {
	g, err := b.groupOf(remoting.RelaxJSON(r.cmd.Body))
	if err != nil {
		return nil, err
	}
	return b.updateGroups(g)
}

// handleUpdateGroupList is UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): all
// of them or none.
func handleUpdateGroupList(b *Broker, r *request) (*response, error) {
	var list remoting.SubscriptionGroupList
	if err := remoting.ParseBody(r.cmd.Body, &list); err != nil {
		return nil, err
	}
	groups := make([]*meta.Group, len(list.GroupConfigList))
	for i, raw := range list.GroupConfigList {
		var err error
		if groups[i], err = b.groupOf(raw); err != nil {
			return nil, err
		}
	}
	return b.updateGroups(groups...)
}

// groupOf reads and checks a group's configuration; keys that are absent have
// their defaults. Its attributes are changes, "+key" or "-key", to those the
// group has; 5.3 knows no attribute of a group, so every change is refused.
func (b *Broker) groupOf(raw []byte) (*meta.Group, error) {
	g := meta.NewGroup("")
	if err := json.Unmarshal(raw, g); err != nil {
		return nil, refuse(remoting.SystemError, "the body is no group configuration: %v", err)
	}
	have := b.groups.Find(g.GroupName)
	err := meta.CheckGroup(g.GroupName)
	if have != nil {
		err = nil // a client made it, with a longer name perhaps
	}
	if err != nil {
		return nil, err
	}
	for key := range g.Attributes {
		return nil, refuse(remoting.SystemError, "group %s: attribute %q is not known; groups have none", g.GroupName, key)
	}
	if have != nil {
		g.Attributes = have.Attributes
	}
	if g.RetryQueueNums < 0 || g.RetryQueueNums > meta.QueueIDMax+1 {
		return nil, refuse(remoting.InvalidParameter, "group %s: got retryQueueNums %d, want 0 to %d", g.GroupName, g.RetryQueueNums, meta.QueueIDMax+1)
	}
	if err := g.GroupRetryPolicy.Check(); err != nil {
		return nil, refuse(remoting.InvalidParameter, "group %s: %v", g.GroupName, err)
	}
	return g, nil
}

func (b *Broker) updateGroups(groups ...*meta.Group) (*response, error) {
	changed := map[string]bool{}
	for _, g := range groups {
		if b.groups.Put(g) {
			changed[g.GroupName] = true
		}
		b.growRetryTopic(g)
	}
	if len(changed) > 0 {
		b.holds.recheck(func(_ *netloop.Conn, _ *meta.Topic, g *meta.Group) bool { return changed[g.GroupName] })
	}
	if err := b.tables.Save(); err != nil {
		return nil, err
	}
	return &response{}, nil
}

// growRetryTopic gives a group's retry topic as many queues as the group's
// retryQueueNums asks for. It never takes queues away: there may be messages in
// them. (Apache leaves the topic as it is, and then sends retries to queues
// that nobody reads.)
func (b *Broker) growRetryTopic(g *meta.Group) {
	for {
		have := b.topics.Find(meta.RetryTopic(g.GroupName))
		if have == nil || have.ReadQueues >= g.RetryQueueNums && have.WriteQueues >= g.RetryQueueNums {
			return
		}
		grown := *have
		grown.ReadQueues, grown.WriteQueues = max(have.ReadQueues, g.RetryQueueNums), max(have.WriteQueues, g.RetryQueueNums)
		if b.topics.Replace(have, &grown) {
			return
		}
	}
}

// handleAllGroups is GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): all groups at
// once, or in pages where the request has any of the fields of a page.
func handleAllGroups(b *Broker, r *request) (*response, error) {
	var h remoting.AllGroupConfigHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	all, forbidden, version := b.groups.Snapshot()
	total := len(all)
	if h.GroupSeq >= 0 || h.MaxGroupNum >= 0 || h.DataVersion != "" {
		all = page(all, h.GroupSeq, h.MaxGroupNum, h.DataVersion, version)
	}
	return &response{fields: []remoting.Field{intField("totalGroupNum", int64(total))},
		body: remoting.MarshalBody(meta.GroupTable(all, forbidden, version))}, nil
}

// page is the part of a table that begins at entry seq and has at most most
// entries. It begins anew where asked, the table's version when the first page
// was given, isn't its version any more.
func page[T any](all []T, seq, most int32, asked string, version meta.DataVersion) []T {
	from, n := int(max(seq, 0)), pageMax
	var then meta.DataVersion
	if asked != "" && (remoting.ParseBody([]byte(asked), &then) != nil || then != version) {
		from = 0
	}
	if most > 0 {
		n = min(n, int(most))
	}
	all = all[min(from, len(all)):]
	return all[:min(n, len(all))]
}

// handleGroup is GET_SUBSCRIPTIONGROUP_CONFIG (352). As everywhere a group that
// isn't there is made where autoCreateSubscriptionGroup allows it.
func handleGroup(b *Broker, r *request) (*response, error) {
	var h remoting.GroupHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	g, err := b.groups.GetOrCreate(h.Group)
	if err != nil {
		return nil, err
	}
	return &response{body: remoting.MarshalBody(g)}, nil
}

// handleDeleteGroup is DELETE_SUBSCRIPTIONGROUP (207). The group's retry topic
// and DLQ are topics like others: who deletes a group for good deletes them by
// request 215. A group that isn't there is deleted already; one with consumers
// online comes back with their next heartbeat.
// (As AdminBrokerProcessor#deleteSubscriptionGroup, 5.3.)
func handleDeleteGroup(b *Broker, r *request) (*response, error) {
	var h remoting.DeleteGroupHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	b.groups.Delete(h.GroupName)
	b.locks.freeGroup(h.GroupName)
	b.tables.Modes.DeleteGroup(h.GroupName)
	b.holds.recheck(func(_ *netloop.Conn, _ *meta.Topic, g *meta.Group) bool { return g.GroupName == h.GroupName })
	if h.CleanOffset {
		b.offsets.DeleteGroup(h.GroupName)
		if err := b.offsets.Flush(); err != nil {
			return nil, err
		}
	}
	if err := b.tables.Save(); err != nil {
		return nil, err
	}
	return &response{}, nil
}

// handleGroupForbidden is UPDATE_AND_GET_GROUP_FORBIDDEN (353): may a group
// read a topic?
func handleGroupForbidden(b *Broker, r *request) (*response, error) {
	var h remoting.GroupForbiddenHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	if h.Readable != nil {
		if err := meta.CheckLiveGroup(h.Group); err != nil {
			return nil, err
		}
		if err := meta.CheckTopic(h.Topic); err != nil {
			return nil, err
		}
		if b.groups.SetReadable(h.Group, h.Topic, *h.Readable) {
			b.holds.recheck(func(_ *netloop.Conn, t *meta.Topic, g *meta.Group) bool {
				return g.GroupName == h.Group && t.Name == h.Topic
			})
		}
		if err := b.tables.Save(); err != nil {
			return nil, err
		}
	}
	readable := b.groups.MayRead([]byte(h.Group), []byte(h.Topic))
	return &response{body: remoting.MarshalBody(remoting.GroupForbidden{Group: h.Group, Readable: readable, Topic: h.Topic})}, nil
}
