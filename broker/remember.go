package broker

import (
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/remoting"
)

// What is known of clients that send heartbeats of kind V2: they say what they
// subscribe once, and then only a fingerprint of it. On another connection, or to
// a broker that was restarted, they would say it again only after the next
// heartbeat's answer told them to, half a minute later; until then their pulls
// would be refused (24). So what they said is kept, on the disk too, until they
// unregister or have been gone for as long as a silent client may be.
// (On Apache a group whose only member's heartbeat after a restart leaves the
// subscriptions out has none, until the group's queues are shared out anew.)

// A subscriberMemory is where it is kept: meta.Subscribers.
type subscriberMemory interface {
	Get(meta.SubscriberKey) meta.Subscriber
	Set(meta.SubscriberKey, meta.Subscriber)
}

// noMemory is the memory of a table that has none.
type noMemory struct{}

func (noMemory) Get(meta.SubscriberKey) meta.Subscriber  { return meta.Subscriber{} }
func (noMemory) Set(meta.SubscriberKey, meta.Subscriber) {}

// recall fills in the subscriptions that a heartbeat leaves out, where the
// client's connection has not brought them but they are known; false when they
// are not.
func (t *clientTable) recall(who *clientInfo, data *remoting.ConsumerData, fingerprint int32) (*remoting.ConsumerData, bool) {
	if m := who.conn.User.(*clientConn).groups()[data.GroupName]; m != nil && m.fingerprint == fingerprint {
		return data, false // the connection has them
	}
	said := t.subscribers.Get(meta.SubscriberKey{Group: data.GroupName, ClientID: who.id})
	var full remoting.ConsumerData
	if said.Fingerprint != fingerprint || said.Data == "" || remoting.ParseBody([]byte(said.Data), &full) != nil {
		return data, false
	}
	completed := *data
	completed.SubscriptionDataSet = full.SubscriptionDataSet
	return &completed, true
}

// remember keeps what a full heartbeat of kind V2 said. One that is too long to
// be kept is said again.
func (t *clientTable) remember(clientID string, data *remoting.ConsumerData, fingerprint int32) {
	said := meta.Subscriber{Fingerprint: fingerprint, Data: string(remoting.MarshalBody(data))}
	if len(said.Data) > meta.SubscriberBytesMax || len(clientID) > meta.LockBytesMax {
		said = meta.Subscriber{}
	}
	t.subscribers.Set(meta.SubscriberKey{Group: data.GroupName, ClientID: clientID}, said)
}

// forget drops, with mu held, what a client has said.
func (t *clientTable) forget(key meta.SubscriberKey) {
	delete(t.gone, key)
	t.subscribers.Set(key, meta.Subscriber{})
}

// forgetGone drops, with mu held, what clients have said that are gone too long.
func (t *clientTable) forgetGone(now time.Time) {
	for key, since := range t.gone {
		if now.Sub(since) > t.expiry {
			t.forget(key)
		}
	}
}

// keepSubscribers makes the table remember in s, whose clients of before the
// start are gone until they are back.
func (t *clientTable) keepSubscribers(s *meta.Subscribers) {
	t.subscribers = s
	now := t.now()
	s.Each(func(key meta.SubscriberKey, _ meta.Subscriber) { t.gone[key] = now })
}
