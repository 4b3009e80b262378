package namesrv

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ringmq/ringmq/remoting"
)

// The forms of a route's answer.
const (
	formStrict  = iota // strict JSON: requesters from V4_9_4 on, or that ask for it
	formLenient        // integer keys without quotes, as older clients expect
	forms
)

// orderNamespace is the key/value namespace of order topic configurations.
const orderNamespace = "ORDER_TOPIC_CONFIG"

// memberTopicPrefix starts topics whose routes name real ids always: brokers
// find their own group by them.
const memberTopicPrefix = "rmq_sys_SYNC_BROKER_MEMBER_"

// route returns the encoded route of a topic, or nil when nobody has it. The
// bytes must not be changed. It does not allocate while nothing changes.
func (r *registry) route(name []byte, form int) []byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t := r.topics[string(name)]
	if t == nil {
		return nil
	}
	if body := t.encoded[form].Load(); body != nil {
		return *body
	}
	data := r.routeData(t)
	body := data.Append(nil, form == formStrict)
	t.encoded[form].Store(&body)
	return body
}

// zoneRoute is route for a client that wants the brokers of one zone: others
// are left out unless their master is gone. As ZoneRouteRPCHook, 5.3, always
// in the lenient form.
func (r *registry) zoneRoute(name []byte, zone string) []byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t := r.topics[string(name)]
	if t == nil {
		return nil
	}
	data := r.routeData(t)
	far := map[string]bool{}
	data.BrokerDatas = slices.DeleteFunc(data.BrokerDatas, func(b remoting.BrokerData) bool {
		_, hasMaster := b.BrokerAddrs[masterID]
		out := hasMaster && !strings.EqualFold(b.ZoneName, zone)
		if out {
			far[b.BrokerName] = true
			for _, addr := range b.BrokerAddrs {
				delete(data.FilterServerTable, addr)
			}
		}
		return out
	})
	data.QueueDatas = slices.DeleteFunc(data.QueueDatas, func(q remoting.QueueData) bool { return far[q.BrokerName] })
	return data.Append(nil, false)
}

// routeData makes the route of a topic, brokers by name.
func (r *registry) routeData(t *topic) *remoting.RouteData {
	cfg := r.config()
	data := &remoting.RouteData{FilterServerTable: map[string][]string{}}
	for _, name := range slices.Sorted(maps.Keys(t.queues)) {
		q, g := t.queues[name], r.groups[name]
		data.QueueDatas = append(data.QueueDatas, q.data)
		b := g.data()
		if cfg.SupportActingMaster && !strings.HasPrefix(t.name, memberTopicPrefix) {
			actAsMaster(&b, q.data)
		}
		data.BrokerDatas = append(data.BrokerDatas, b)
		for _, addr := range b.BrokerAddrs {
			if l := r.live[brokerKey{g.cluster, addr}]; l != nil && len(l.filterServers) > 0 {
				data.FilterServerTable[addr] = l.filterServers
			}
		}
	}
	if cfg.OrderMessageEnable {
		data.OrderTopicConf, _ = r.kv.get(orderNamespace, t.name)
	}
	if len(t.mappings) > 0 {
		data.TopicQueueMappingByBroker = make(map[string]json.RawMessage, len(t.mappings))
		maps.Copy(data.TopicQueueMappingByBroker, t.mappings)
	}
	return data
}

// data is the group as answers show it; the addresses are a copy.
func (g *group) data() remoting.BrokerData {
	return remoting.BrokerData{BrokerAddrs: maps.Clone(g.addrs), BrokerName: g.name, Cluster: g.cluster,
		EnableActingMaster: g.actingMaster, ZoneName: g.zone}
}

// actAsMaster presents the smallest id as the master's where there is none
// and the topic may not be written to.
func actAsMaster(b *remoting.BrokerData, q remoting.QueueData) {
	if _, ok := b.BrokerAddrs[masterID]; ok || !b.EnableActingMaster || q.Perm&remoting.PermWrite != 0 {
		return
	}
	first := slices.Min(slices.Collect(maps.Keys(b.BrokerAddrs)))
	b.BrokerAddrs[masterID] = b.BrokerAddrs[first]
	delete(b.BrokerAddrs, first)
}

// clusterInfo is all groups and clusters.
func (r *registry) clusterInfo() []byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	info := remoting.ClusterInfo{BrokerAddrTable: make(map[string]remoting.BrokerData, len(r.groups)),
		ClusterAddrTable: make(map[string][]string, len(r.clusters))}
	for name, g := range r.groups {
		info.BrokerAddrTable[name] = g.data()
	}
	for cluster, names := range r.clusters {
		info.ClusterAddrTable[cluster] = slices.Sorted(maps.Keys(names))
	}
	return info.Append(nil)
}

// members is the brokers of one name; an unknown one has none.
func (r *registry) members(cluster, name string) []byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := remoting.BrokerMemberGroup{BrokerAddrs: map[int64]string{}, BrokerName: name, Cluster: cluster}
	if g := r.groups[name]; g != nil {
		out.BrokerAddrs = g.addrs
	}
	return out.Append(nil)
}

// topicNames lists the topics for which pick is true, sorted.
func (r *registry) topicNames(pick func(*topic) bool) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := []string{}
	for name, t := range r.topics {
		if pick(t) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// topicsOfCluster lists the topics of a cluster's brokers, sorted.
func (r *registry) topicsOfCluster(cluster string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	found := map[string]struct{}{}
	for name := range r.clusters[cluster] {
		for t := range r.groups[name].topics {
			found[t] = struct{}{}
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(found))...)
}

// systemTopics lists the names of clusters and brokers, which are topics too,
// and the address of one broker that can tell the others.
func (r *registry) systemTopics() remoting.TopicList {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := remoting.TopicList{TopicList: []string{}}
	for _, cluster := range slices.Sorted(maps.Keys(r.clusters)) {
		out.TopicList = append(out.TopicList, cluster)
		out.TopicList = append(out.TopicList, slices.Sorted(maps.Keys(r.clusters[cluster]))...)
	}
	if names := slices.Sorted(maps.Keys(r.groups)); len(names) > 0 {
		_, out.BrokerAddr = r.groups[names[0]].min()
	}
	return out
}

// Bits of topicSysFlag.
const (
	flagUnit    = 1
	flagUnitSub = 2
)

// sysFlag is the flag of a topic: that of its first group.
func (t *topic) sysFlag() int32 {
	name := slices.Min(slices.Collect(maps.Keys(t.queues)))
	return t.queues[name].data.TopicSysFlag
}

// wipePerm and addPerm change what routes show of a broker's topics until the
// broker registers with another version. They return the number of topics.
func (r *registry) wipePerm(brokerName string) int {
	return r.editPerm(brokerName, func(p int32) int32 { return p &^ remoting.PermWrite })
}

func (r *registry) addPerm(brokerName string) int {
	return r.editPerm(brokerName, func(int32) int32 { return remoting.PermRead | remoting.PermWrite })
}

func (r *registry) editPerm(brokerName string, perm func(int32) int32) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[brokerName]
	if g == nil {
		return 0
	}
	return r.setPerm(g, perm)
}

// deleteTopic drops a topic's queues on all brokers, or on those of a cluster.
func (r *registry) deleteTopic(name, cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.topics[name]
	if t == nil {
		return
	}
	for _, broker := range slices.Collect(maps.Keys(t.queues)) {
		if _, in := r.clusters[cluster][broker]; in || cluster == "" {
			r.dropQueue(r.groups[broker], t)
		}
	}
}

// addTopic takes queues of a topic; those of brokers that are not registered
// are left out.
func (r *registry) addTopic(name string, queues []remoting.QueueData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range queues {
		if g := r.groups[q.BrokerName]; g != nil {
			r.setQueue(g, name, q)
		}
	}
}
