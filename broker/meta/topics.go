package meta

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// DataVersion says which state of a table somebody has; any difference means
// another state.
type DataVersion = remoting.DataVersion

// A Topic is one topic's configuration, Apache's TopicConfig. Once in the table
// it is never changed, only replaced, so a pointer to it may be kept for the
// time of a request.
type Topic struct {
	Name        string
	ReadQueues  int32 // queueIds [0, ReadQueues) may be pulled from
	WriteQueues int32 // queueIds [0, WriteQueues) are written to
	Perm        int32 // remoting.PermRead | PermWrite | PermInherit
	MultiTag    bool  // topicFilterType MULTI_TAG instead of SINGLE_TAG
	Order       bool
	SysFlag     int32 // 1 unit, 2 has unit subscription
	Attributes  map[string]string
}

// QueueType is the attribute that says which kind of ConsumeQueues a topic has;
// BatchCQ is its value for batch queues.
const (
	QueueType = "queue.type"
	BatchCQ   = "BatchCQ"
)

// Batch says whether the topic's queues are batch queues.
func (t *Topic) Batch() bool { return t.Attributes[QueueType] == BatchCQ }

// Config is the topic as the wire and the file have it. The attributes are
// shared.
func (t *Topic) Config() remoting.TopicConfig {
	c := remoting.TopicConfig{
		Attributes:      t.Attributes,
		Order:           t.Order,
		Perm:            t.Perm,
		ReadQueueNums:   t.ReadQueues,
		TopicFilterType: remoting.FilterSingleTag,
		TopicName:       t.Name,
		TopicSysFlag:    t.SysFlag,
		WriteQueueNums:  t.WriteQueues,
	}
	if t.MultiTag {
		c.TopicFilterType = remoting.FilterMultiTag
	}
	if c.Attributes == nil {
		c.Attributes = map[string]string{}
	}
	return c
}

// TopicOf takes a topic from the wire's or the file's form.
func TopicOf(c *remoting.TopicConfig) *Topic {
	return &Topic{
		Name:        c.TopicName,
		ReadQueues:  c.ReadQueueNums,
		WriteQueues: c.WriteQueueNums,
		Perm:        c.Perm,
		MultiTag:    c.TopicFilterType == remoting.FilterMultiTag,
		Order:       c.Order,
		SysFlag:     c.TopicSysFlag,
		Attributes:  c.Attributes,
	}
}

// same compares what a client or tool can see.
func (t *Topic) same(o *Topic) bool {
	return t.Name == o.Name && t.ReadQueues == o.ReadQueues && t.WriteQueues == o.WriteQueues &&
		t.Perm == o.Perm && t.MultiTag == o.MultiTag && t.Order == o.Order && t.SysFlag == o.SysFlag &&
		maps.Equal(t.Attributes, o.Attributes)
}

// Topics is the table of topics, as Apache's TopicConfigManager. Any goroutine
// may call any method. Changes are in the table at once and saved by the
// saver's goroutine; only CreateOnSend and Ensure wait for the disk.
type Topics struct {
	mu       sync.RWMutex
	byName   map[string]*Topic
	version  DataVersion
	onChange func(name string)

	now   func() time.Time
	saver *saver
}

// OnChange sets who is told the names of created, changed and deleted topics.
// fn runs with the table locked, so that View sees a change and its
// announcement together; it must not block nor call back. Set it before the
// table is in use.
func (t *Topics) OnChange(fn func(name string)) {
	t.mu.Lock()
	t.onChange = fn
	t.mu.Unlock()
}

// Get finds a topic, nil when there is none. It doesn't allocate.
func (t *Topics) Get(name []byte) *Topic {
	t.mu.RLock()
	c := t.byName[string(name)]
	t.mu.RUnlock()
	return c
}

// Find is Get for a string.
func (t *Topics) Find(name string) *Topic {
	t.mu.RLock()
	c := t.byName[name]
	t.mu.RUnlock()
	return c
}

// Put creates or replaces a topic; changed is false when the table holds the
// same configuration already. The table owns c from now on. The caller has
// checked the name.
func (t *Topics) Put(c *Topic) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.byName[c.Name]; old != nil && old.same(c) {
		return false
	}
	t.put(c)
	return true
}

// Replace is Put where the table still holds old itself; false when it holds
// something else by now.
func (t *Topics) Replace(old, c *Topic) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName[c.Name] != old {
		return false
	}
	if !old.same(c) {
		t.put(c)
	}
	return true
}

// PutAbsent creates a topic, or gives the one that is there: the same creation
// asked for by many senders happens once. The caller has checked the name.
func (t *Topics) PutAbsent(c *Topic) (have *Topic, created bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.byName[c.Name]; old != nil {
		return old, false
	}
	t.put(c)
	return c, true
}

// Ensure is PutAbsent with the name checked (CheckTopic) and, when the topic is
// new, the table saved: it blocks on the disk.
func (t *Topics) Ensure(c *Topic) (have *Topic, created bool, err error) {
	if have := t.Find(c.Name); have != nil {
		return have, false, nil
	}
	if err := CheckTopic(c.Name); err != nil {
		return nil, false, err
	}
	have, created = t.PutAbsent(c)
	if !created {
		return have, false, nil
	}
	return have, true, t.saver.wait()
}

// CreateOnSend creates the topic a send names from the template it names
// (TBW102 for nearly all clients), as createTopicInSendMessageMethod, 5.3: the
// template must have the inherit bit, queues are those asked for but at most
// the template's. It blocks until the new topic is saved. The error is
// CheckTopic's, TOPIC_NOT_EXIST (17) where the template doesn't allow it, or
// the disk's.
func (t *Topics) CreateOnSend(name, template string, queues int32, unit bool) (c *Topic, created bool, err error) {
	if have := t.Find(name); have != nil {
		return have, false, nil
	}
	if err := CheckTopic(name); err != nil {
		return nil, false, err
	}
	from := t.Find(template)
	if from == nil || from.Perm&remoting.PermInherit == 0 {
		return nil, false, &remoting.Error{Code: remoting.TopicNotExist, Remark: fmt.Sprintf(
			"topic[%s] not exist, apply first please! The default topic %q is not there or has no inherit permission (autoCreateTopicEnable)", name, template)}
	}
	queues = max(1, min(queues, from.WriteQueues))
	c = &Topic{Name: name, ReadQueues: queues, WriteQueues: queues, Perm: from.Perm &^ remoting.PermInherit, MultiTag: from.MultiTag}
	if unit {
		c.SysFlag = 1
	}
	return t.Ensure(c)
}

func (t *Topics) put(c *Topic) {
	t.byName[c.Name] = c
	t.changed(c.Name)
}

// changed moves the version, announces and saves. The caller holds mu.
func (t *Topics) changed(name string) {
	t.version = t.version.Next(t.now().UnixMilli())
	if t.onChange != nil {
		t.onChange(name)
	}
	t.saver.kick()
}

// Delete removes a topic; false when there is none.
func (t *Topics) Delete(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName[name] == nil {
		return false
	}
	delete(t.byName, name)
	t.changed(name)
	return true
}

// Bump moves the version without a change of the table: whoever compares
// versions then takes the whole table anew.
func (t *Topics) Bump() {
	t.mu.Lock()
	t.version = t.version.Next(t.now().UnixMilli())
	t.mu.Unlock()
	t.saver.kick()
}

// Version is the version of the table now.
func (t *Topics) Version() DataVersion {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.version
}

// View calls fn with the table and its version, locked for reading: fn must be
// short, must not change the table and must not keep it.
func (t *Topics) View(fn func(version DataVersion, topics map[string]*Topic)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	fn(t.version, t.byName)
}

// Snapshot gives all topics by name, in order, and the version they are.
func (t *Topics) Snapshot() ([]*Topic, DataVersion) {
	t.mu.RLock()
	all := slices.Collect(maps.Values(t.byName))
	v := t.version
	t.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) })
	return all, v
}

// Len is the number of topics.
func (t *Topics) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byName)
}

// topicsFile is topics.json.
type topicsFile struct {
	DataVersion      DataVersion                     `json:"dataVersion"`
	TopicConfigTable map[string]remoting.TopicConfig `json:"topicConfigTable"`
}

func (t *Topics) encode() ([]byte, DataVersion) {
	all, version := t.Snapshot()
	file := topicsFile{DataVersion: version, TopicConfigTable: make(map[string]remoting.TopicConfig, len(all))}
	for _, c := range all {
		file.TopicConfigTable[c.Name] = c.Config()
	}
	return pretty(remoting.MarshalBody(file)), version
}

// decode takes a file's topics. Names that could leave the store directory or
// break the rules are left out and named; those of the broker itself may hold
// points, as host names do.
func (t *Topics) decode(content []byte, own func(name string) bool, skipped func(error)) error {
	var file topicsFile
	if err := remoting.ParseBody(content, &file); err != nil {
		return err
	}
	byName := make(map[string]*Topic, len(file.TopicConfigTable))
	for name, c := range file.TopicConfigTable {
		if c.TopicName == "" {
			c.TopicName = name
		}
		if err := CheckTopic(c.TopicName); err != nil && !own(c.TopicName) {
			skipped(err)
			continue
		}
		byName[c.TopicName] = TopicOf(&c)
	}
	t.byName, t.version = byName, file.DataVersion
	return nil
}
