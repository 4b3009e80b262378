package namesrv

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/ringmq/ringmq/remoting"
)

// registration is a broker's REGISTER_BROKER, decoded.
type registration struct {
	remoting.RegisterBrokerHeader
	// knowsActingMaster: the field was sent, true or false. Brokers before 5.0
	// do not send it, and none of their slaves stands for its group.
	knowsActingMaster bool
	body              *remoting.RegisterBrokerBody
}

func (g *registration) table() *remoting.TopicConfigTable { return &g.body.TopicConfigSerializeWrapper }

func (g *registration) key() brokerKey { return brokerKey{g.ClusterName, g.BrokerAddr} }

// master is what a slave is told of its master, if that lives.
type master struct{ addr, haAddr string }

// errNotRegistered answers an incremental registration that comes before the
// broker's first full one.
var errNotRegistered = &remoting.Error{Code: remoting.SystemError, Remark: "register broker failed: " +
	"one topic alone is taken only after the broker's first full registration"}

// register takes a registration that came on p at nowMillis. As
// RouteInfoManager#registerBroker, 5.3, except that topics are compared by
// content even where the DataVersion is the same: a second change under one
// version counts too.
func (r *registry) register(g *registration, p *peer, nowMillis int64) (master, error) {
	same, changes := r.compare(g)
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.link.Closed() {
		// Its brokers have been dropped, or are about to be, and nobody waits
		// for an answer.
		return master{}, &remoting.Error{Code: remoting.SystemError, Remark: "the connection is closed"}
	}
	if !same || changes != r.changes {
		taken, err := r.take(g)
		if !taken || err != nil {
			return master{}, err
		}
	}
	r.alive(g, p, nowMillis)
	return r.masterOf(g), nil
}

// compare tells, under the read lock alone, whether a registration changes
// nothing, as nearly all do: thousands of topics are compared without keeping
// route queries waiting. changes tells which state that was.
func (r *registry) compare(g *registration) (same bool, changes uint64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	grp, l := r.groups[g.BrokerName], r.live[g.key()]
	if grp == nil || l == nil || l.version != g.table().DataVersion || !r.inCluster(g) ||
		grp.actingMaster != g.EnableActingMaster || grp.zone != g.ZoneName ||
		grp.addrs[g.BrokerID] != g.BrokerAddr || grp.hasElsewhere(g) || len(grp.addrs) == 0 {
		return false, r.changes
	}
	if g.body.FilterServerList != nil && !slices.Equal(l.filterServers, g.body.FilterServerList) {
		return false, r.changes
	}
	if !grp.takesTopicsOf(g) {
		return true, r.changes
	}
	if r.config().DeleteTopicWithBrokerRegistration && len(grp.topics) != len(g.table().TopicConfigTable) {
		return false, r.changes
	}
	for _, tc := range g.table().TopicConfigTable {
		t := r.topics[tc.TopicName]
		if t == nil || t.queues[g.BrokerName] == nil || t.queues[g.BrokerName].registered != grp.queueData(g, tc) {
			return false, r.changes
		}
	}
	for name, m := range g.table().TopicQueueMappingInfoMap {
		t := r.topics[name]
		if t == nil || !bytes.Equal(t.mappings[g.BrokerName], m) {
			return false, r.changes
		}
	}
	return true, r.changes
}

func (r *registry) inCluster(g *registration) bool {
	_, ok := r.clusters[g.ClusterName][g.BrokerName]
	return ok
}

// hasElsewhere tells whether the address stands under another id too.
func (grp *group) hasElsewhere(g *registration) bool {
	for id, addr := range grp.addrs {
		if addr == g.BrokerAddr && id != g.BrokerID {
			return true
		}
	}
	return false
}

// takesTopicsOf tells whether this member speaks for the group: the master, or
// the smallest id among members that know of acting masters.
func (grp *group) takesTopicsOf(g *registration) bool {
	if g.BrokerID == masterID {
		return true
	}
	first, _ := grp.min()
	return g.knowsActingMaster && first == g.BrokerID
}

// queueData is what a topic of the registration looks like in routes.
func (grp *group) queueData(g *registration, tc remoting.TopicConfig) remoting.QueueData {
	q := remoting.QueueData{BrokerName: g.BrokerName, Perm: tc.Perm, ReadQueueNums: tc.ReadQueueNums,
		TopicSysFlag: tc.TopicSysFlag, WriteQueueNums: tc.WriteQueueNums}
	if g.BrokerID != masterID && g.EnableActingMaster {
		q.Perm &^= remoting.PermWrite // a slave that stands in takes no messages
	}
	return q
}

// take makes the changes of a registration. taken is false where a broker with
// newer state has the id: then this one is ignored.
func (r *registry) take(g *registration) (taken bool, err error) {
	grp := r.groups[g.BrokerName]
	if grp == nil {
		if len(g.table().TopicConfigTable) == 1 {
			return false, errNotRegistered
		}
		grp = &group{cluster: g.ClusterName, name: g.BrokerName, addrs: map[int64]string{}, topics: map[string]*topic{}}
	}
	if grp.hasElsewhere(g) { // a slave became master, or back
		maps.DeleteFunc(grp.addrs, func(id int64, addr string) bool { return addr == g.BrokerAddr && id != g.BrokerID })
		r.groupChanged(grp)
	}
	old, had := grp.addrs[g.BrokerID]
	if had && old != g.BrokerAddr && r.newerThan(g, old) {
		if l := r.live[g.key()]; l != nil {
			r.dropLive(l)
		}
		return false, nil
	}
	if !had && len(g.table().TopicConfigTable) == 1 {
		if len(grp.addrs) == 0 && r.groups[grp.name] != nil {
			r.dropGroup(grp) // its only address stood under another id
		}
		return false, errNotRegistered
	}
	r.join(grp, g, had)
	if grp.takesTopicsOf(g) {
		r.takeTopics(grp, g, !had)
	}
	return true, nil
}

// newerThan tells whether the broker that has the id is alive and has a newer
// state than the one that registers for it now.
func (r *registry) newerThan(g *registration, old string) bool {
	l := r.live[brokerKey{g.ClusterName, old}]
	if l == nil || l.version.StateVersion <= g.table().DataVersion.StateVersion {
		return false
	}
	r.log.Warn("registration ignored: another broker with newer state has this id",
		"clusterName", g.ClusterName, "brokerName", g.BrokerName, "brokerId", g.BrokerID,
		"brokerAddr", g.BrokerAddr, "stateVersion", g.table().DataVersion.StateVersion,
		"otherAddr", old, "otherStateVersion", l.version.StateVersion)
	return true
}

// join puts the broker into its group.
func (r *registry) join(grp *group, g *registration, had bool) {
	first, _ := grp.min()
	newFirst := len(grp.addrs) > 0 && g.BrokerID < first
	if r.clusters[g.ClusterName] == nil {
		r.clusters[g.ClusterName] = map[string]struct{}{}
	}
	r.clusters[g.ClusterName][g.BrokerName] = struct{}{}
	r.groups[grp.name] = grp
	if grp.addrs[g.BrokerID] != g.BrokerAddr || grp.actingMaster != g.EnableActingMaster || grp.zone != g.ZoneName {
		grp.addrs[g.BrokerID] = g.BrokerAddr
		grp.actingMaster, grp.zone = g.EnableActingMaster, g.ZoneName
		r.groupChanged(grp)
	}
	if !had {
		r.log.Info("broker registered", "clusterName", g.ClusterName, "brokerName", g.BrokerName,
			"brokerId", g.BrokerID, "brokerAddr", g.BrokerAddr, "haServerAddr", g.HAServerAddr,
			"topics", len(g.table().TopicConfigTable))
	}
	if newFirst && r.config().NotifyMinBrokerIdChanged {
		r.tell(grp.minChange("", g.HAServerAddr, grp.others(g.BrokerID)))
	}
}

// others is the addresses of the group except that of one id.
func (grp *group) others(id int64) []string {
	own := grp.addrs[id]
	return slices.DeleteFunc(grp.everyone(), func(a string) bool { return a == own })
}

// takeTopics puts the topics of a registration into the routes. first: the
// broker is new here.
func (r *registry) takeTopics(grp *group, g *registration, first bool) {
	table := g.table()
	if r.config().DeleteTopicWithBrokerRegistration && len(table.TopicQueueMappingInfoMap) == 0 && len(table.TopicConfigTable) != 1 {
		// One topic alone is an incremental registration and says nothing of
		// the others; a broker has more topics than one from its first start.
		for name, t := range maps.Clone(grp.topics) {
			if _, ok := table.TopicConfigTable[name]; !ok {
				r.dropQueue(grp, t)
			}
		}
	}
	l := r.live[g.key()]
	all := first || l == nil || l.version != table.DataVersion
	for _, tc := range table.TopicConfigTable {
		q := grp.queueData(g, tc)
		t := r.topics[tc.TopicName]
		if all || t == nil || t.queues[grp.name] == nil || t.queues[grp.name].registered != q {
			r.setQueue(grp, tc.TopicName, q)
		}
	}
	for name, m := range table.TopicQueueMappingInfoMap {
		t := r.topics[name]
		if t == nil || bytes.Equal(t.mappings[grp.name], m) {
			continue
		}
		if t.mappings == nil {
			t.mappings = map[string]json.RawMessage{}
		}
		t.mappings[grp.name] = m
		r.changed(t)
	}
}

// alive writes the broker's live record.
func (r *registry) alive(g *registration, p *peer, nowMillis int64) {
	l := r.live[g.key()]
	if l == nil {
		l = &live{key: g.key(), peer: p}
		r.live[l.key] = l
	}
	if l.peer != p { // it has connected anew
		delete(l.peer.brokers, l.key)
		l.peer = p
	}
	p.brokers[l.key] = l
	l.name, l.haAddr, l.version = g.BrokerName, g.HAServerAddr, g.table().DataVersion
	l.timeoutMillis = g.HeartbeatTimeoutMillis
	if l.timeoutMillis <= 0 {
		l.timeoutMillis = expiryMillis
	}
	l.seen.Store(nowMillis)
	if f := g.body.FilterServerList; f != nil && !slices.Equal(f, l.filterServers) {
		l.filterServers = f
		r.groupChanged(r.groups[l.name])
	}
}

// masterOf is the live master of a slave's group.
func (r *registry) masterOf(g *registration) master {
	if g.BrokerID == masterID {
		return master{}
	}
	addr := r.groups[g.BrokerName].addrs[masterID]
	l := r.live[brokerKey{g.ClusterName, addr}]
	if addr == "" || l == nil {
		return master{}
	}
	return master{addr: addr, haAddr: l.haAddr}
}
