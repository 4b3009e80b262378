package meta

import (
	"maps"
	"strings"

	"github.com/ringmq/ringmq/remoting"
)

// Names of the system topics (facts: store §18).
const (
	AutoCreateTopic     = "TBW102" // the template of automatic creation
	ScheduleTopic       = "SCHEDULE_TOPIC_XXXX"
	BenchmarkTopic      = "BenchmarkTest"
	HalfTopic           = "RMQ_SYS_TRANS_HALF_TOPIC"
	OpHalfTopic         = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	TraceTopic          = "RMQ_SYS_TRACE_TOPIC"
	TransCheckMaxTopic  = "TRANS_CHECK_MAX_TIME_TOPIC"
	SelfTestTopic       = "SELF_TEST_TOPIC"
	OffsetMovedTopic    = "OFFSET_MOVED_EVENT"
	TimerTopic          = "rmq_sys_wheel_timer"
	SystemTopicPrefix   = "rmq_sys_"
	ReplyTopicSuffix    = "_REPLY_TOPIC"
	reviveTopicPrefix   = "rmq_sys_REVIVE_LOG_"
	syncMemberPrefix    = "rmq_sys_SYNC_BROKER_MEMBER_"
	scheduleTopicQueues = 18 // as Apache creates it, whatever messageDelayLevel says
)

// SystemConfig says which system topics a broker has. Names and defaults are
// the broker's configuration keys.
type SystemConfig struct {
	BrokerClusterName     string
	BrokerName            string
	AutoCreateTopicEnable bool
	DefaultTopicQueueNums int32 // 8
	ClusterTopicEnable    bool
	BrokerTopicEnable     bool
	TraceTopicEnable      bool
	MsgTraceTopicName     string // TraceTopic when empty
	DelayLevels           int    // number of levels; SCHEDULE_TOPIC_XXXX gets at least 18 queues
}

// NewTopic is a topic with equal read and write queues.
func NewTopic(name string, queues, perm int32) *Topic {
	return &Topic{Name: name, ReadQueues: queues, WriteQueues: queues, Perm: perm}
}

// topics are the system topics that exist from the start.
func (c *SystemConfig) topics() []*Topic {
	perm := func(enabled bool) int32 {
		if enabled {
			return remoting.PermInherit | remoting.PermRead | remoting.PermWrite
		}
		return remoting.PermInherit
	}
	const rw = remoting.PermRead | remoting.PermWrite
	ts := []*Topic{
		NewTopic(SelfTestTopic, 1, rw),
		NewTopic(BenchmarkTopic, 1024, rw),
		NewTopic(c.BrokerClusterName, 16, perm(c.ClusterTopicEnable)),
		NewTopic(c.BrokerName, 1, perm(c.BrokerTopicEnable)),
		NewTopic(OffsetMovedTopic, 1, rw),
		NewTopic(ScheduleTopic, int32(max(scheduleTopicQueues, c.DelayLevels)), rw),
		NewTopic(c.BrokerClusterName+ReplyTopicSuffix, 1, rw),
		NewTopic(reviveTopicPrefix+c.BrokerClusterName, 8, rw),
		NewTopic(syncMemberPrefix+c.BrokerName, 1, remoting.PermInherit),
		NewTopic(HalfTopic, 1, rw),
		NewTopic(OpHalfTopic, 1, rw),
		NewTopic(TimerTopic, 1, rw),
	}
	if c.AutoCreateTopicEnable {
		ts = append(ts, NewTopic(AutoCreateTopic, c.DefaultTopicQueueNums, remoting.PermInherit|rw))
	}
	if c.TraceTopicEnable {
		name := c.MsgTraceTopicName
		if name == "" {
			name = TraceTopic
		}
		ts = append(ts, NewTopic(name, 1, rw))
	}
	return ts
}

// A SystemSet answers which names are the broker's own. It never changes.
type SystemSet struct{ names map[string]bool }

// systemNames are system topics everywhere (facts: broker-client §11); the
// value says that clients must not send to it.
var systemNames = map[string]bool{
	AutoCreateTopic: false, ScheduleTopic: true, BenchmarkTopic: false, HalfTopic: true, TraceTopic: false,
	OpHalfTopic: true, TransCheckMaxTopic: true, SelfTestTopic: true, OffsetMovedTopic: true,
}

func newSystemSet(c *SystemConfig) *SystemSet {
	s := &SystemSet{names: maps.Clone(systemNames)}
	for _, name := range []string{c.BrokerClusterName, c.BrokerName, c.BrokerClusterName + ReplyTopicSuffix,
		reviveTopicPrefix + c.BrokerClusterName, syncMemberPrefix + c.BrokerName, TimerTopic} {
		s.names[name] = false
	}
	return s
}

// Has says whether a topic is the broker's own: no tool may change or delete
// it.
func (s *SystemSet) Has(topic string) bool {
	_, ok := s.names[topic]
	return ok || strings.HasPrefix(topic, SystemTopicPrefix)
}

// NoSend says whether clients must not send to a topic. It doesn't allocate.
func (s *SystemSet) NoSend(topic []byte) bool { return s.names[string(topic)] }

// List gives the names of the system topics, in order, for code 305.
func (s *SystemSet) List() []string { return sortedKeys(s.names) }
