package namesrv

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringmq/ringmq/remoting"
)

// expiryMillis is the silence after which a broker is dropped, where it did
// not ask for another one.
const expiryMillis = 120_000

// masterID is the brokerId of a master.
const masterID = 0

// link is a broker's connection, as far as the registry needs it.
type link interface {
	Closed() bool
	Close(cause error)
}

// peer is a connection and the brokers that registered on it: one, or several
// of a container. brokers is guarded by the registry's lock.
type peer struct {
	link    link
	brokers map[brokerKey]*live
}

// brokerKey names a broker process.
type brokerKey struct{ cluster, addr string }

// live is a broker process that registered. Fields other than seen change
// under the registry's lock.
type live struct {
	key           brokerKey
	name          string
	seen          atomic.Int64 // ms; also by heartbeats, under the read lock
	timeoutMillis int64
	version       remoting.DataVersion
	haAddr        string
	filterServers []string
	peer          *peer
}

// group is the brokers of one brokerName. It has at least one address.
type group struct {
	cluster, name, zone string
	actingMaster        bool
	addrs               map[int64]string  // by brokerId
	topics              map[string]*topic // that have queues here
}

// queue is a topic's queues in one group.
type queue struct {
	data       remoting.QueueData // as routes show it; the write permission may be wiped
	registered remoting.QueueData // as the broker registered it last
}

// topic has queues in at least one group.
type topic struct {
	name     string
	queues   map[string]*queue          // by brokerName
	mappings map[string]json.RawMessage // static topics, by brokerName
	// encoded are answers to route queries, by form; nil: to be made. Set under
	// the read lock, cleared under the lock.
	encoded [forms]atomic.Pointer[[]byte]
}

// registry is all that brokers told. Any goroutine may use it.
type registry struct {
	log    *slog.Logger
	kv     *kvStore
	config func() *Config
	tell   func(minIDChange) // must not block

	mu       sync.RWMutex
	changes  uint64 // of anything but live records
	topics   map[string]*topic
	groups   map[string]*group              // by brokerName
	clusters map[string]map[string]struct{} // cluster to brokerNames
	live     map[brokerKey]*live
}

func newRegistry(log *slog.Logger, kv *kvStore, cfg func() *Config, tell func(minIDChange)) *registry {
	return &registry{log: log, kv: kv, config: cfg, tell: tell,
		topics: map[string]*topic{}, groups: map[string]*group{},
		clusters: map[string]map[string]struct{}{}, live: map[brokerKey]*live{}}
}

// changed forgets the encoded answers of a topic. Under the lock.
func (r *registry) changed(t *topic) {
	r.changes++
	for i := range t.encoded {
		t.encoded[i].Store(nil)
	}
}

// groupChanged does so for all topics of a group: its addresses are in them.
func (r *registry) groupChanged(g *group) {
	r.changes++
	for _, t := range g.topics {
		r.changed(t)
	}
}

// forgetAnswers makes all answers be encoded anew, after a change of what goes
// into them beside the registry.
func (r *registry) forgetAnswers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.topics {
		r.changed(t)
	}
}

// forgetAnswer does so for one topic, if it exists.
func (r *registry) forgetAnswer(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.topics[name]; t != nil {
		r.changed(t)
	}
}

// setQueue puts a group's queues into a topic.
func (r *registry) setQueue(g *group, name string, q remoting.QueueData) {
	t := r.topics[name]
	if t == nil {
		t = &topic{name: name, queues: map[string]*queue{}}
		r.topics[name] = t
	}
	old := t.queues[g.name]
	if old == nil {
		t.queues[g.name] = &queue{data: q, registered: q}
		g.topics[name] = t
		r.changed(t)
		return
	}
	old.registered = q
	if old.data != q {
		old.data = q
		r.changed(t)
	}
}

// dropQueue takes a group's queues out of a topic, and the topic with its last.
func (r *registry) dropQueue(g *group, t *topic) {
	delete(g.topics, t.name)
	delete(t.queues, g.name)
	delete(t.mappings, g.name)
	r.changed(t)
	if len(t.queues) == 0 {
		delete(r.topics, t.name)
	}
}

// setPerm changes what routes show of a group's queues and returns the number
// of its topics.
func (r *registry) setPerm(g *group, perm func(int32) int32) int {
	for _, t := range g.topics {
		q := t.queues[g.name]
		if p := perm(q.data.Perm); p != q.data.Perm {
			q.data.Perm = p
			r.changed(t)
		}
	}
	return len(g.topics)
}

// dropBroker removes a process, and its address from its group. Under the lock.
func (r *registry) dropBroker(key brokerKey, name string) {
	if l := r.live[key]; l != nil {
		r.dropLive(l)
	}
	g := r.groups[name]
	if g == nil {
		return
	}
	first, _ := g.min()
	found := false
	wasFirst := false
	for id, addr := range g.addrs {
		if addr == key.addr {
			delete(g.addrs, id)
			found = true
			wasFirst = wasFirst || id == first
		}
	}
	switch {
	case !found:
		return
	case len(g.addrs) == 0:
		r.dropGroup(g)
		r.log.Info("broker group gone", "brokerName", name, "clusterName", g.cluster, "brokerAddr", key.addr)
		return
	}
	r.groupChanged(g)
	if id, _ := g.min(); g.actingMaster && id != masterID {
		// Without a master nobody takes messages for this group.
		r.setPerm(g, func(p int32) int32 { return p &^ remoting.PermWrite })
	}
	r.log.Info("broker gone", "brokerName", name, "clusterName", g.cluster, "brokerAddr", key.addr)
	if wasFirst && g.actingMaster && r.config().NotifyMinBrokerIdChanged {
		r.tell(g.minChange(key.addr, "", g.everyone()))
	}
}

// dropLive removes a live record alone.
func (r *registry) dropLive(l *live) {
	delete(r.live, l.key)
	delete(l.peer.brokers, l.key)
	if g := r.groups[l.name]; g != nil && len(l.filterServers) > 0 {
		r.groupChanged(g)
	}
}

func (r *registry) dropGroup(g *group) {
	r.changes++
	delete(r.groups, g.name)
	for cluster, names := range r.clusters {
		delete(names, g.name)
		if len(names) == 0 {
			delete(r.clusters, cluster)
		}
	}
	for _, t := range g.topics {
		r.dropQueue(g, t)
	}
}

// min is the smallest brokerId and its address.
func (g *group) min() (id int64, addr string) {
	first := true
	for i, a := range g.addrs {
		if first || i < id {
			id, addr, first = i, a, false
		}
	}
	return id, addr
}

// everyone is the addresses of the group by id.
func (g *group) everyone() []string {
	ids := make([]int64, 0, len(g.addrs))
	for id := range g.addrs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = g.addrs[id]
	}
	return out
}

// unregister is what a broker asks for when it stops.
func (r *registry) unregister(h *remoting.UnregisterBrokerHeader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropBroker(brokerKey{h.ClusterName, h.BrokerAddr}, h.BrokerName)
}

// closed drops the brokers of a connection that is gone.
func (r *registry) closed(p *peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, l := range p.brokers {
		r.dropBroker(key, l.name)
	}
}

// expire drops the brokers that have been silent for too long at nowMillis,
// and closes their connections.
func (r *registry) expire(nowMillis int64) {
	for _, l := range r.expired(nowMillis) {
		r.mu.Lock()
		silent := nowMillis - l.seen.Load()
		if r.live[l.key] == l && silent > l.timeoutMillis { // it may have come back meanwhile
			r.log.Warn("broker expired", "brokerName", l.name, "clusterName", l.key.cluster,
				"brokerAddr", l.key.addr, "silentMillis", silent, "timeoutMillis", l.timeoutMillis)
			r.dropBroker(l.key, l.name)
			l.peer.link.Close(errExpired)
		}
		r.mu.Unlock()
	}
}

func (r *registry) expired(nowMillis int64) []*live {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []*live
	for _, l := range r.live {
		if nowMillis-l.seen.Load() > l.timeoutMillis {
			out = append(out, l)
		}
	}
	return out
}

// heartbeat notes that a broker is alive; one that is not registered stays so.
// It returns the version it registered last.
func (r *registry) heartbeat(cluster, addr string, nowMillis int64) (v remoting.DataVersion, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l := r.live[brokerKey{cluster, addr}]
	if l == nil {
		return v, false
	}
	l.seen.Store(nowMillis)
	return l.version, true
}
