package meta

import (
	"maps"
	"sync"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// Modes says how consumers get messages, by topic and group: Apache's
// MessageRequestModeManager, kept in messageRequestMode.json. Any goroutine may
// call; changes are saved by the saver's goroutine.
type Modes struct {
	mu      sync.RWMutex
	byTopic map[string]map[string]remoting.MessageRequestMode
	version DataVersion // moves with each change; not in the file

	now   func() time.Time
	saver *saver
}

// modesFile is messageRequestMode.json.
type modesFile struct {
	MessageRequestModeMap map[string]map[string]remoting.MessageRequestMode `json:"messageRequestModeMap"`
}

// Get finds what was set for a group at a topic.
func (m *Modes) Get(topic, group string) (remoting.MessageRequestMode, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	mode, ok := m.byTopic[topic][group]
	return mode, ok
}

// Set sets the mode of mode's group at its topic.
func (m *Modes) Set(mode remoting.MessageRequestMode) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byTopic[mode.Topic] == nil {
		m.byTopic[mode.Topic] = map[string]remoting.MessageRequestMode{}
	}
	m.byTopic[mode.Topic][mode.ConsumerGroup] = mode
	m.changed()
}

// DeleteTopic forgets what was set for a topic.
func (m *Modes) DeleteTopic(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byTopic[topic] != nil {
		delete(m.byTopic, topic)
		m.changed()
	}
}

// DeleteGroup forgets what was set for a group.
func (m *Modes) DeleteGroup(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, groups := range m.byTopic {
		if _, ok := groups[group]; !ok {
			continue
		}
		delete(groups, group)
		if len(groups) == 0 {
			delete(m.byTopic, topic)
		}
		m.changed()
	}
}

func (m *Modes) changed() {
	m.version = m.version.Next(m.now().UnixMilli())
	m.saver.kick()
}

func (m *Modes) stateVersion() DataVersion {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.version
}

func (m *Modes) encode() ([]byte, DataVersion) {
	m.mu.RLock()
	file := modesFile{MessageRequestModeMap: make(map[string]map[string]remoting.MessageRequestMode, len(m.byTopic))}
	for topic, groups := range m.byTopic {
		file.MessageRequestModeMap[topic] = maps.Clone(groups)
	}
	version := m.version
	m.mu.RUnlock()
	return pretty(remoting.MarshalBody(file)), version
}

func (m *Modes) decode(content []byte) error {
	var file modesFile
	if err := remoting.ParseBody(content, &file); err != nil {
		return err
	}
	m.byTopic = file.MessageRequestModeMap
	if m.byTopic == nil {
		m.byTopic = map[string]map[string]remoting.MessageRequestMode{}
	}
	return nil
}
