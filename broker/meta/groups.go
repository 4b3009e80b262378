package meta

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// A Group is one consumer group's configuration. Once in the table it is never
// changed, only replaced.
type Group = remoting.SubscriptionGroupConfig

// NewGroup is a group with Apache's defaults.
func NewGroup(name string) *Group {
	g := remoting.NewSubscriptionGroupConfig(name)
	return &g
}

// builtInGroups are there from the first start (facts: store §18).
var builtInGroups = []string{
	"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
	"CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
}

// IsSystemGroup says whether a group is the broker's own.
func IsSystemGroup(group string) bool {
	return strings.HasPrefix(group, "CID_RMQ_SYS_") || slices.Contains(builtInGroups, group)
}

// Groups is the table of consumer groups, as Apache's
// SubscriptionGroupManager. Any goroutine may call any method; none waits for
// the disk.
type Groups struct {
	mu      sync.RWMutex
	byName  map[string]*Group
	version DataVersion

	// forbidden says which topics a group may not read; nil when there is none.
	// Replaced as a whole, under mu, so that each pull may look without a lock.
	forbidden atomic.Pointer[forbiddenTable]

	autoCreate bool // fixed
	now        func() time.Time
	saver      *saver
}

// Get finds a group, nil when there is none. It doesn't allocate.
func (g *Groups) Get(name []byte) *Group {
	g.mu.RLock()
	c := g.byName[string(name)]
	g.mu.RUnlock()
	return c
}

// Find is Get for a string.
func (g *Groups) Find(name string) *Group {
	g.mu.RLock()
	c := g.byName[name]
	g.mu.RUnlock()
	return c
}

// Put creates or replaces a group; changed is false when the table holds the
// same already. The table owns c from now on.
func (g *Groups) Put(c *Group) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.byName[c.GroupName]; old != nil && reflect.DeepEqual(old, c) {
		return false
	}
	g.put(c)
	return true
}

// PutAbsent creates a group, or gives the one that is there.
func (g *Groups) PutAbsent(c *Group) (have *Group, created bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.byName[c.GroupName]; old != nil {
		return old, false
	}
	g.put(c)
	return c, true
}

// GetOrCreate finds a group that a client's request names, or creates it with
// the defaults and blocks until it is saved. The error is CheckLiveGroup's,
// SUBSCRIPTION_GROUP_NOT_EXIST (26) under autoCreateSubscriptionGroup=false, or
// the disk's.
func (g *Groups) GetOrCreate(name string) (*Group, error) {
	if have := g.Find(name); have != nil {
		return have, nil
	}
	if err := CheckLiveGroup(name); err != nil {
		return nil, err
	}
	if !g.autoCreate && !IsSystemGroup(name) {
		return nil, &remoting.Error{Code: remoting.SubscriptionGroupNotExist,
			Remark: fmt.Sprintf("subscription group not exist, %s: autoCreateSubscriptionGroup is false", name)}
	}
	have, created := g.PutAbsent(NewGroup(name))
	if !created {
		return have, nil
	}
	return have, g.saver.wait()
}

func (g *Groups) put(c *Group) {
	g.byName[c.GroupName] = c
	g.changed()
}

// Delete removes a group and what was forbidden to it; false when there is
// neither.
func (g *Groups) Delete(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	forbidden := g.forbiddenNow()
	if g.byName[name] == nil && forbidden[name] == nil {
		return false
	}
	delete(g.byName, name)
	if forbidden[name] != nil {
		forbidden = maps.Clone(forbidden)
		delete(forbidden, name)
		g.setForbidden(forbidden)
	}
	g.changed()
	return true
}

// changed moves the version and saves. The caller holds mu.
func (g *Groups) changed() {
	g.version = g.version.Next(g.now().UnixMilli())
	g.saver.kick()
}

// Version is the version of the table now.
func (g *Groups) Version() DataVersion {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.version
}

// Snapshot gives all groups by name, in order, what is forbidden to them, and
// the version both are. The caller must not change them.
func (g *Groups) Snapshot() ([]*Group, map[string]map[string]int32, DataVersion) {
	g.mu.RLock()
	all := slices.Collect(maps.Values(g.byName))
	forbidden, v := g.forbiddenNow(), g.version
	g.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Group) int { return strings.Compare(a.GroupName, b.GroupName) })
	return all, forbidden, v
}

// Len is the number of groups.
func (g *Groups) Len() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.byName)
}

// groupsFile is subscriptionGroup.json as it is read: groups one by one, into
// the defaults, since a file of an older version lacks the newer keys.
type groupsFile struct {
	DataVersion            DataVersion                 `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32 `json:"forbiddenTable"`
	SubscriptionGroupTable map[string]json.RawMessage  `json:"subscriptionGroupTable"`
}

func (g *Groups) encode() ([]byte, DataVersion) {
	all, forbidden, version := g.Snapshot()
	return pretty(remoting.MarshalBody(GroupTable(all, forbidden, version))), version
}

// GroupTable is the form in which groups are saved and sent.
func GroupTable(groups []*Group, forbidden map[string]map[string]int32, version DataVersion) remoting.SubscriptionGroupTable {
	t := remoting.SubscriptionGroupTable{DataVersion: version, ForbiddenTable: forbidden, SubscriptionGroupTable: make(map[string]*Group, len(groups))}
	if forbidden == nil { // Java takes null for null
		t.ForbiddenTable = map[string]map[string]int32{}
	}
	for _, c := range groups {
		t.SubscriptionGroupTable[c.GroupName] = c
	}
	return t
}

// decode takes a file's groups; those whose names break the rules are left out
// and named.
func (g *Groups) decode(content []byte, skipped func(error)) error {
	var file groupsFile
	if err := remoting.ParseBody(content, &file); err != nil {
		return err
	}
	byName := make(map[string]*Group, len(file.SubscriptionGroupTable))
	for name, raw := range file.SubscriptionGroupTable {
		c := NewGroup(name)
		if err := json.Unmarshal(raw, c); err != nil {
			return fmt.Errorf("group %q: %w", name, err)
		}
		if err := CheckLiveGroup(c.GroupName); err != nil {
			skipped(err)
			continue
		}
		byName[c.GroupName] = c
	}
	g.byName, g.version = byName, file.DataVersion
	g.setForbidden(file.ForbiddenTable)
	return nil
}
