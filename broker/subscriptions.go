package broker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/internal/filter"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// A subscription is what a consumer wants of one topic. It never changes.
type subscription struct {
	Version   int64
	Filter    filter.Filter // nil: everything
	broadcast bool
	err       error  // the expression can't be used: answered to each pull
	wants     string // kind and expression; the same text for tags in another order
	data      remoting.SubscriptionData
}

// byTags says whether the subscription is one to tags.
func (s *subscription) byTags() bool { return filter.IsTag(s.data.ExpressionType) }

// usable says why a pull can't be served by s, if so.
func (t *clientTable) usable(s *subscription) error {
	if !s.byTags() {
		if err := t.allowed(s.data.ExpressionType); err != nil {
			return err
		}
	}
	return s.err
}

// compileSubscriptions prepares what a heartbeat brought for the pulls to come.
// known is what its sender had subscribed before: what hasn't changed isn't
// compiled again.
func compileSubscriptions(data *remoting.ConsumerData, known map[string]*subscription) map[string]*subscription {
	subs := make(map[string]*subscription, len(data.SubscriptionDataSet))
	for _, d := range data.SubscriptionDataSet {
		s := &subscription{Version: d.SubVersion, broadcast: data.MessageModel == remoting.ModelBroadcasting, data: d}
		if was := known[d.Topic]; was != nil && was.data.ClassFilterMode == d.ClassFilterMode && was.data.ExpressionType == d.ExpressionType && was.data.SubString == d.SubString {
			s.Filter, s.err, s.wants = was.Filter, was.err, was.wants
		} else if d.ClassFilterMode { // filter servers are gone; as in Apache such a client gets all
			s.wants = "class " + d.SubString
		} else {
			s.Filter, s.err = compileExpression(d.ExpressionType, d.SubString)
			s.wants = s.wanted()
		}
		s.data.CodeSet = nil
		if tags, ok := s.Filter.(filter.Tags); ok {
			s.data.TagsSet = tags.List()
			for _, code := range tags.Codes() {
				s.data.CodeSet = append(s.data.CodeSet, int32(code))
			}
		}
		subs[d.Topic] = s
	}
	return subs
}

// wanted is a subscription as a text to compare and to show.
func (s *subscription) wanted() string {
	tags, ok := s.Filter.(filter.Tags)
	switch {
	case ok:
		return strings.Join(tags.List(), " || ")
	case s.byTags() && s.err == nil:
		return filter.SubAll
	}
	return s.data.ExpressionType + " " + s.data.SubString
}

// A subscriptionChange is how a consumer's subscriptions are others than before.
type subscriptionChange struct {
	topics      bool     // some are gone or new
	wants       []string // topics that are subscribed otherwise, or new
	renewed     []string // those of them that aren't new
	expressions bool     // anything, the versions too, of those that aren't tags
}

// subscribe replaces the subscriptions. Only other topics make the group share
// out its queues anew: a new subVersion alone must not count, since clients raise
// it after each such round.
func (m *consumer) subscribe(subs map[string]*subscription) (c subscriptionChange) {
	old := *m.subs.Load()
	for topic, s := range subs {
		was := old[topic]
		if was != nil && was.Version > s.Version { // this heartbeat was overtaken
			subs[topic] = was
			continue
		}
		c.topics = c.topics || was == nil
		if was == nil || was.wants != s.wants {
			c.wants = append(c.wants, topic)
			if was != nil {
				c.renewed = append(c.renewed, topic)
			}
		} else if was.Version == s.Version {
			continue
		}
		c.expressions = c.expressions || !s.byTags() || was != nil && !was.byTags()
	}
	for topic, was := range old {
		if subs[topic] == nil {
			c.topics = true
			c.expressions = c.expressions || !was.byTags()
		}
	}
	m.subs.Store(&subs)
	return c
}

// hasExpressions says whether any subscription isn't one to tags.
func (m *consumer) hasExpressions() bool {
	for _, s := range *m.subs.Load() {
		if !s.byTags() {
			return true
		}
	}
	return false
}

// A renewedSubscription is a consumer that wants something else of topics it had
// subscribed: pulls held for it were checked against what it wanted before.
type renewedSubscription struct {
	conn   *netloop.Conn
	group  string
	topics []string
}

// resubscribed takes note, with mu held, of what m has changed.
func (t *clientTable) resubscribed(name string, group *consumerGroup, m *consumer, c subscriptionChange, ev *groupEvents) {
	if c.expressions {
		t.saveExpressions(name, group)
	}
	if len(c.wants) == 0 {
		return
	}
	if len(c.renewed) > 0 {
		ev.renewed = append(ev.renewed, renewedSubscription{m.conn, name, c.renewed})
	}
	for _, conflict := range group.conflicts(name) {
		if slices.Contains(c.wants, conflict.Topic) {
			ev.conflicts = append(ev.conflicts, conflict)
		}
	}
}

// saveExpressions hands on, with mu held, what a group subscribes by other
// expressions than tags: of each topic the newest. Broken ones are left out.
func (t *clientTable) saveExpressions(name string, group *consumerGroup) {
	newest := map[string]*subscription{}
	for _, m := range group.members {
		for topic, s := range *m.subs.Load() {
			have := newest[topic]
			if s.byTags() || s.err != nil || have != nil && cmp.Or(cmp.Compare(have.Version, s.Version), cmp.Compare(have.wants, s.wants)) >= 0 {
				continue
			}
			newest[topic] = s
		}
	}
	all := make([]meta.FilterData, 0, len(newest))
	for topic, s := range newest {
		all = append(all, meta.FilterData{Topic: topic, Expression: s.data.SubString, ExpressionType: s.data.ExpressionType, ClientVersion: s.Version})
	}
	t.save(name, all)
}

// A subscriptionConflict is a topic that the clients of one group subscribe
// differently, or some not at all. Each is served by its own subscription, but
// all of them share the topic's queues: what one does not want, and what falls to
// one that has not subscribed, is consumed by nobody.
type subscriptionConflict struct {
	Group, Topic string
	Variants     []subscriptionVariant // the most frequent first
}

// A subscriptionVariant is one way in which clients of a group subscribe a topic.
type subscriptionVariant struct {
	Wants   string   // tags, or kind and expression; empty: the topic isn't subscribed
	Clients []string // ids, in order
}

// describe is the conflict in a line: what is wanted, by how many, one of them.
func (c *subscriptionConflict) describe() string {
	var parts []string
	for _, v := range c.Variants {
		wants := v.Wants
		if wants == "" {
			wants = "not subscribed"
		}
		parts = append(parts, fmt.Sprintf("%.200q by %d, one is %s", wants, len(v.Clients), v.Clients[0]))
	}
	return strings.Join(parts, "; ")
}

// conflicts gives the topics that the clients of a group subscribe differently
// now, in order; for the group's admin answer.
func (t *clientTable) conflicts(name string) []subscriptionConflict {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if group := t.consumers[name]; group != nil {
		return group.conflicts(name)
	}
	return nil
}

// conflicts is the table's for one group, with mu held. Clients without a
// subscription, which pull by hand, and retry topics are left out.
func (g *consumerGroup) conflicts(name string) []subscriptionConflict {
	clients := map[string]map[string]*subscription{} // the last heartbeat of each id
	beats := map[string]*consumer{}
	wants := map[string]map[string][]string{} // topic, what is wanted, ids
	for _, m := range g.members {
		if was := beats[m.id]; was != nil && was.beat.After(m.beat) {
			continue // an old connection of the same client
		}
		if subs := *m.subs.Load(); len(subs) > 0 {
			clients[m.id], beats[m.id] = subs, m
			for topic := range subs {
				if !meta.HasPrefix(topic, meta.RetryPrefix) {
					wants[topic] = map[string][]string{}
				}
			}
		}
	}
	if len(clients) < 2 {
		return nil
	}
	var out []subscriptionConflict
	for topic, by := range wants {
		for id, subs := range clients {
			w := ""
			if s := subs[topic]; s != nil {
				w = s.wants
			}
			by[w] = append(by[w], id)
		}
		if len(by) < 2 {
			continue
		}
		c := subscriptionConflict{Group: name, Topic: topic}
		for w, ids := range by {
			slices.Sort(ids)
			c.Variants = append(c.Variants, subscriptionVariant{w, ids})
		}
		slices.SortFunc(c.Variants, func(a, b subscriptionVariant) int {
			return cmp.Or(cmp.Compare(len(b.Clients), len(a.Clients)), cmp.Compare(a.Wants, b.Wants))
		})
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b subscriptionConflict) int { return cmp.Compare(a.Topic, b.Topic) })
	return out
}
