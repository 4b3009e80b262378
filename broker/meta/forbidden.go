package meta

import (
	"maps"

	"github.com/ringmq/ringmq/remoting"
)

// forbiddenTable holds, by group and topic, the perm bits that the group lacks
// for the topic: Apache's forbiddenTable. Only remoting.PermRead has a meaning;
// other bits of a file are kept. It never changes.
type forbiddenTable map[string]map[string]int32

// MayRead says whether the group may read the topic. It neither locks nor
// allocates.
func (g *Groups) MayRead(group, topic []byte) bool {
	t := g.forbidden.Load()
	return t == nil || (*t)[string(group)][string(topic)]&remoting.PermRead == 0
}

// SetReadable forbids a group to read a topic, or allows it again. Unlike
// Apache's it leaves the group's other topics as they are, and the change has a
// version. (As SubscriptionGroupManager#updateForbidden, 5.3.)
func (g *Groups) SetReadable(group, topic string, readable bool) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	table := g.forbiddenNow()
	was := table[group][topic]
	now := was | remoting.PermRead
	if readable {
		now = was &^ remoting.PermRead
	}
	if now == was {
		return false
	}
	table = maps.Clone(table)
	if table == nil {
		table = forbiddenTable{}
	}
	topics := maps.Clone(table[group])
	if topics == nil {
		topics = map[string]int32{}
	}
	topics[topic] = now
	if now == 0 {
		delete(topics, topic)
	}
	table[group] = topics
	if len(topics) == 0 {
		delete(table, group)
	}
	g.setForbidden(table)
	g.changed()
	return true
}

// forbiddenNow is the table, nil when nothing is forbidden.
func (g *Groups) forbiddenNow() forbiddenTable {
	if t := g.forbidden.Load(); t != nil {
		return *t
	}
	return nil
}

func (g *Groups) setForbidden(t forbiddenTable) {
	if len(t) == 0 {
		g.forbidden.Store(nil)
		return
	}
	g.forbidden.Store(&t)
}
