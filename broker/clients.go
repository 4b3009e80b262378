package broker

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// clientScanInterval is how often clients and queue locks that have gone silent
// are looked for.
const clientScanInterval = 10 * time.Second

// errClientExpired closes the connection of a client whose heartbeats have
// stopped.
var errClientExpired = errors.New("no heartbeat for too long")

// clientTable knows who is connected: by group, the producers and consumers
// that have sent a heartbeat, each with its own subscriptions.
//
// A client is its connection, as on Apache: what it registered goes when the
// connection closes. Unlike there each consumer's subscription is its own, a
// change counts whatever its subVersion says, and tag hashes are computed here.
//
// Any goroutine may call any method. Subscription, which each pull asks, takes
// no lock when the client itself has subscribed. But for save, the functions are
// called without a lock held.
type clientTable struct {
	now       func() time.Time
	expiry    time.Duration                                     // channelExpiredTimeout
	changed   func(group string)                                // who is in the group, or what topics it has, is another
	left      func(group, clientID string, c *netloop.Conn)     // a client's last connection, c, has left the group
	closeConn func(c *netloop.Conn, cause error)                // ends an expired client's connection
	allowed   func(kind string) error                           // nil, or the refusal of a kind of expression
	conflict  func(subscriptionConflict)                        // a client has begun to subscribe otherwise than its group
	renewed   func(renewedSubscription)                         // a client's expressions are others
	save      func(group string, expressions []meta.FilterData) // what the group subscribes by other expressions than tags, with mu held
	scanned   func(now time.Time)                               // after each scan
	stop      chan struct{}
	done      sync.WaitGroup

	subscribers subscriberMemory // what clients have said that say it once (remember.go)

	conflictsSeen atomic.Int64 // how often conflict was called

	mu        sync.RWMutex
	consumers map[string]*consumerGroup
	producers map[string]map[*netloop.Conn]*producer
	senders   map[string]*sender               // producers by client id
	gone      map[meta.SubscriberKey]time.Time // since when clients that are remembered are gone
}

// A sender is the connection on which a producing client can be asked: that of
// its latest registration.
type sender struct {
	conn   *netloop.Conn
	groups int // producer groups registered on conn
}

// clientConn is what hangs at a connection, in Conn.User.
type clientConn struct {
	// consuming holds the connection's groups; replaced as a whole, under the
	// table's mu.
	consuming atomic.Pointer[map[string]*consumer]
}

// A consumerGroup is a group with at least one consumer connected.
type consumerGroup struct {
	members map[*netloop.Conn]*consumer
	// What the last heartbeat said of the whole group.
	consumeType, messageModel, consumeFromWhere string
}

// A consumer is one connection's membership in a group.
type consumer struct {
	clientInfo
	fingerprint int32 // of its last heartbeat with subscriptions, V2
	broadcast   bool
	// subs holds the subscriptions by topic; replaced as a whole, under the
	// table's mu.
	subs atomic.Pointer[map[string]*subscription]
}

// A producer is one connection's membership in a producer group.
type producer struct{ clientInfo }

// clientInfo is what a heartbeat says of its sender.
type clientInfo struct {
	conn     *netloop.Conn
	id       string
	language remoting.Language
	version  int32
	beat     time.Time // of the last heartbeat; under the table's mu
}

func newClientTable(now func() time.Time, expiry time.Duration) *clientTable {
	return &clientTable{
		now:         now,
		expiry:      expiry,
		changed:     func(string) {},
		left:        func(string, string, *netloop.Conn) {},
		closeConn:   (*netloop.Conn).Close,
		allowed:     func(string) error { return nil },
		conflict:    func(subscriptionConflict) {},
		renewed:     func(renewedSubscription) {},
		save:        func(string, []meta.FilterData) {},
		scanned:     func(time.Time) {},
		stop:        make(chan struct{}),
		consumers:   map[string]*consumerGroup{},
		producers:   map[string]map[*netloop.Conn]*producer{},
		senders:     map[string]*sender{},
		gone:        map[meta.SubscriberKey]time.Time{},
		subscribers: noMemory{},
	}
}

// start begins to look for silent clients, until close.
func (t *clientTable) start() {
	t.done.Go(func() {
		tick := time.NewTicker(clientScanInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				now := t.now()
				t.expire(now)
				t.scanned(now)
			case <-t.stop:
				return
			}
		}
	})
}

func (t *clientTable) close() {
	close(t.stop)
	t.done.Wait()
}

// open prepares a new connection, on its loop.
func (t *clientTable) open(c *netloop.Conn) {
	c.User = new(clientConn)
}

// closed forgets all that a connection had registered.
func (t *clientTable) closed(c *netloop.Conn, _ error) {
	var ev groupEvents
	t.mu.Lock()
	for group := range c.User.(*clientConn).groups() {
		t.removeConsumer(group, c, &ev)
	}
	for group := range t.producers {
		t.removeProducer(group, c)
	}
	t.mu.Unlock()
	ev.tell(t)
}

func (cc *clientConn) groups() map[string]*consumer {
	if p := cc.consuming.Load(); p != nil {
		return *p
	}
	return nil
}

// groupEvents gathers what must be told once the lock is free.
type groupEvents struct {
	changed   []string
	left      []departure
	conflicts []subscriptionConflict
	renewed   []renewedSubscription
}

// A departure is a client that has left a group with its last connection.
type departure struct {
	group, clientID string
	conn            *netloop.Conn
}

func (ev *groupEvents) tell(t *clientTable) {
	for _, l := range ev.left {
		t.left(l.group, l.clientID, l.conn)
	}
	for _, group := range ev.changed {
		t.changed(group)
	}
	for _, c := range ev.conflicts {
		t.conflictsSeen.Add(1)
		t.conflict(c)
	}
	for _, r := range ev.renewed {
		t.renewed(r)
	}
}

// registerConsumer takes one group of a heartbeat. withoutSub keeps the
// subscriptions the client sent before (heartbeat V2); resend says that they
// aren't known or are others than the fingerprint's.
func (t *clientTable) registerConsumer(who clientInfo, data *remoting.ConsumerData, fingerprint int32, withoutSub bool) (resend bool) {
	if !withoutSub && fingerprint != 0 {
		t.remember(who.id, data, fingerprint)
	} else if full, known := t.recall(&who, data, fingerprint); withoutSub && known {
		data, withoutSub = full, false
	}
	var known map[string]*subscription
	if m := who.conn.User.(*clientConn).groups()[data.GroupName]; m != nil {
		known = *m.subs.Load()
	}
	subs := compileSubscriptions(data, known)
	var ev groupEvents
	t.mu.Lock()
	resend = t.putConsumer(who, data, subs, fingerprint, withoutSub, &ev)
	t.mu.Unlock()
	ev.tell(t)
	return resend
}

func (t *clientTable) putConsumer(who clientInfo, data *remoting.ConsumerData, subs map[string]*subscription, fingerprint int32, withoutSub bool, ev *groupEvents) (resend bool) {
	if who.conn.Closed() {
		return false // closed has been here already; nobody would remove it
	}
	group := t.consumers[data.GroupName]
	if group == nil {
		group = &consumerGroup{members: map[*netloop.Conn]*consumer{}}
		t.consumers[data.GroupName] = group
	}
	group.consumeType, group.messageModel, group.consumeFromWhere = data.ConsumeType, data.MessageModel, data.ConsumeFromWhere
	m := group.members[who.conn]
	changed := m == nil || m.id != who.id
	if m == nil {
		m = &consumer{}
		m.subs.Store(&map[string]*subscription{})
		group.members[who.conn] = m
		delete(t.gone, meta.SubscriberKey{Group: data.GroupName, ClientID: who.id})
		who.conn.User.(*clientConn).join(data.GroupName, m)
	}
	m.clientInfo, m.broadcast = who, data.MessageModel == remoting.ModelBroadcasting
	if withoutSub {
		resend = m.fingerprint != fingerprint
	} else {
		m.fingerprint = fingerprint
		c := m.subscribe(subs)
		changed = changed || c.topics
		t.resubscribed(data.GroupName, group, m, c, ev)
	}
	if changed && !m.broadcast {
		ev.changed = append(ev.changed, data.GroupName)
	}
	return resend
}

func (cc *clientConn) join(group string, m *consumer) {
	groups := maps.Clone(cc.groups())
	if groups == nil {
		groups = map[string]*consumer{}
	}
	groups[group] = m
	cc.consuming.Store(&groups)
}

func (cc *clientConn) leave(group string) {
	groups := maps.Clone(cc.groups())
	delete(groups, group)
	cc.consuming.Store(&groups)
}

// registerProducer takes one producer group of a heartbeat.
func (t *clientTable) registerProducer(who clientInfo, group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if who.conn.Closed() {
		return
	}
	if p := t.producers[group][who.conn]; p != nil && p.id == who.id {
		p.clientInfo = who
		return
	}
	t.removeProducer(group, who.conn)
	if t.producers[group] == nil {
		t.producers[group] = map[*netloop.Conn]*producer{}
	}
	t.producers[group][who.conn] = &producer{who}
	if s := t.senders[who.id]; s != nil && s.conn == who.conn {
		s.groups++
	} else {
		t.senders[who.id] = &sender{conn: who.conn, groups: 1}
	}
}

// producerConn finds the connection of a producing client; nil when it has none.
func (t *clientTable) producerConn(clientID string) *netloop.Conn {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s := t.senders[clientID]; s != nil {
		return s.conn
	}
	return nil
}

// unregister takes a connection out of a producer and a consumer group; empty
// names are none.
func (t *clientTable) unregister(c *netloop.Conn, producerGroup, consumerGroup string) {
	var ev groupEvents
	t.mu.Lock()
	t.removeProducer(producerGroup, c)
	t.removeConsumer(consumerGroup, c, &ev)
	for _, l := range ev.left {
		t.forget(meta.SubscriberKey{Group: l.group, ClientID: l.clientID})
	}
	t.mu.Unlock()
	ev.tell(t)
}

// removeConsumer, with mu held, takes one connection out of a group.
func (t *clientTable) removeConsumer(name string, c *netloop.Conn, ev *groupEvents) {
	group := t.consumers[name]
	if group == nil || group.members[c] == nil {
		return
	}
	m := group.members[c]
	delete(group.members, c)
	c.User.(*clientConn).leave(name)
	if m.hasExpressions() {
		t.saveExpressions(name, group)
	}
	if len(group.members) == 0 {
		delete(t.consumers, name)
	}
	for _, other := range group.members {
		if other.id == m.id {
			return // it has reconnected: nobody left
		}
	}
	ev.left = append(ev.left, departure{name, m.id, c})
	if m.fingerprint != 0 {
		t.gone[meta.SubscriberKey{Group: name, ClientID: m.id}] = t.now()
	}
	if !m.broadcast {
		ev.changed = append(ev.changed, name)
	}
}

func (t *clientTable) removeProducer(name string, c *netloop.Conn) {
	group := t.producers[name]
	p := group[c]
	if p == nil {
		return
	}
	delete(group, c)
	if len(group) == 0 {
		delete(t.producers, name)
	}
	if s := t.senders[p.id]; s != nil && s.conn == c {
		if s.groups--; s.groups == 0 {
			delete(t.senders, p.id)
		}
	}
}

// expire removes clients whose last heartbeat is too old, and closes their
// connections.
func (t *clientTable) expire(now time.Time) {
	var ev groupEvents
	silent := map[*netloop.Conn]bool{}
	t.mu.Lock()
	for name, group := range t.consumers {
		for c, m := range group.members {
			if now.Sub(m.beat) > t.expiry {
				silent[c] = true
				t.removeConsumer(name, c, &ev)
			}
		}
	}
	for name, group := range t.producers {
		for c, m := range group {
			if now.Sub(m.beat) > t.expiry {
				silent[c] = true
				t.removeProducer(name, c)
			}
		}
	}
	t.forgetGone(now)
	t.mu.Unlock()
	ev.tell(t)
	for c := range silent {
		t.closeConn(c, errClientExpired)
	}
}

// Subscription finds what the client at c subscribed of a topic for a group, on
// the connection's loop. A client that has reconnected and not sent its
// heartbeat yet is served by what others of its group say, if they agree: by
// another's filter it would pass over messages it wants. The error is a
// refusal: 24 where nobody subscribed, 1 where the kind of expression isn't
// served, or what is wrong with the expression. It doesn't allocate where it finds the client's own.
func (t *clientTable) Subscription(c *netloop.Conn, group, topic []byte) (*subscription, error) {
	if m := c.User.(*clientConn).groups()[string(group)]; m != nil {
		if s := (*m.subs.Load())[string(topic)]; s != nil {
			return s, t.usable(s)
		}
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	g := t.consumers[string(group)]
	if g == nil {
		return nil, refuse(remoting.SubscriptionNotExist, "the consumer's group info not exist: no consumer of group %s is online", group)
	}
	var newest *subscription
	for _, m := range g.members {
		s := (*m.subs.Load())[string(topic)]
		if s == nil {
			continue
		}
		if newest != nil && newest.wants != s.wants {
			return nil, refuse(remoting.SubscriptionNotExist, "the consumer's subscription not exist: no heartbeat of this client has come, and others of group %s subscribe topic %s differently", group, topic)
		}
		if newest == nil || s.Version > newest.Version {
			newest = s
		}
	}
	if newest == nil {
		return nil, refuse(remoting.SubscriptionNotExist, "the consumer's subscription not exist: no consumer of group %s has subscribed topic %s", group, topic)
	}
	return newest, t.usable(newest)
}

// consumerIDs lists the clients of a group, each once, in order.
func (t *clientTable) consumerIDs(group string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	g := t.consumers[group]
	if g == nil {
		return nil
	}
	ids := make([]string, 0, len(g.members))
	for _, m := range g.members {
		ids = append(ids, m.id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// consumerConns lists the connections of a group.
func (t *clientTable) consumerConns(group string) []*netloop.Conn {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if g := t.consumers[group]; g != nil {
		return slices.Collect(maps.Keys(g.members))
	}
	return nil
}
