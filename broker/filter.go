package broker

import (
	"errors"
	"slices"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/internal/filter"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// compileExpression makes the filter of a subscription, nil for everything. The
// error is ready to be answered.
func compileExpression(kind, expr string) (filter.Filter, error) {
	f, err := filter.Parse(kind, expr)
	if err != nil {
		return nil, refuse(remoting.SubscriptionParseFailed, "parse the consumer's subscription failed: %v", err)
	}
	if tags, ok := f.(filter.Tags); ok && tags.All() {
		return nil, nil
	}
	return f, nil
}

// allowExpression refuses what enablePropertyFilter=false takes away.
func (b *Broker) allowExpression(kind string) error {
	if filter.IsTag(kind) || b.cfg.EnablePropertyFilter {
		return nil
	}
	return refuse(remoting.SystemError, "The broker does not support consumer to filter message by %s: enablePropertyFilter is false", kind)
}

// filtersKept bounds the compiled expressions a loop keeps.
const filtersKept = 1024

// A filterKey is an expression as a request carries it. An empty kind means tags.
type filterKey struct{ kind, expr string }

// expression returns the filter of an expression that a request carries, on the
// loop of state; consumers send the same few with every request, so they are
// kept. nil passes everything. The error is a refusal.
func (b *Broker) expression(state *loopState, kind, expr []byte) (filter.Filter, error) {
	if !b.cfg.EnablePropertyFilter {
		if err := b.allowExpression(string(kind)); err != nil {
			return nil, err
		}
	}
	if f, ok := state.filters[filterKey{string(kind), string(expr)}]; ok {
		return f, nil
	}
	f, err := compileExpression(string(kind), string(expr))
	if err != nil {
		return nil, err
	}
	if state.filters == nil || len(state.filters) >= filtersKept {
		state.filters = make(map[filterKey]filter.Filter)
	}
	state.filters[filterKey{string(kind), string(expr)}] = f
	return f, nil
}

// savedFilter finds the expression that p's client subscribed before the broker
// was started, or before it reconnected, and that its next heartbeat will bring
// again. subVersion shows that it is the same: a pull of another subscription
// gets none, the refusal it would have got without. 28 and 27 say, as in Apache,
// that what is known is too old or can't be used; after each of them every client
// pulls again until its heartbeat has come.
func (b *Broker) savedFilter(p *pull, h *remoting.PullHeader, none error) (filter.Filter, error) {
	var e *remoting.Error
	if !errors.As(none, &e) || e.Code != remoting.SubscriptionNotExist || !p.group.ConsumeBroadcastEnable {
		return nil, none
	}
	d := b.tables.Filters.Find(p.group.GroupName, p.topic.Name)
	switch {
	case d == nil || h.SubVersion <= 0 || d.ClientVersion > h.SubVersion:
		return nil, none
	case d.ClientVersion < h.SubVersion:
		return nil, refuse(remoting.FilterDataNotLatest, "the consumer's consumer filter data not latest: got subVersion %d, the broker knows %d", h.SubVersion, d.ClientVersion)
	}
	f, err := b.expression(p.conn.Loop().User.(*loopState), []byte(d.ExpressionType), []byte(d.Expression))
	if errors.As(err, &e) && e.Code == remoting.SubscriptionParseFailed {
		return nil, refuse(remoting.FilterDataNotExist, "The broker's consumer filter data is not exist: %s", e.Remark)
	}
	return f, err
}

// renewHeld has the pulls that wait for a client pulled again: it wants something
// else now.
func (b *Broker) renewHeld(r renewedSubscription) {
	b.holds.recheck(func(c *netloop.Conn, t *meta.Topic, g *meta.Group) bool {
		return c == r.conn && g.GroupName == r.group && slices.Contains(r.topics, t.Name)
	})
}

// logConflict writes down that clients of one group subscribe differently.
func (b *Broker) logConflict(c subscriptionConflict) {
	b.log.Warn("clients of one consumer group subscribe a topic differently; each gets by its own subscription, "+
		"but they share the queues: what one drops, the others never see", "consumerGroup", c.Group, "topic", c.Topic, "subscriptions", c.describe())
}
