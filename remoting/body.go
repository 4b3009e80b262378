package remoting

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// ErrBody is the family of bodies that cannot be read.
var ErrBody = errors.New("remoting: unreadable body")

// MarshalBody writes v as strict JSON, keys in the order of v's fields (ours are
// alphabetical, as Java's), without HTML escapes. For bodies off the hot path.
// Types with map keys that are not strings have an Append method of their own.
func MarshalBody(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("BUG: body of type %T cannot be written: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// ParseBody reads a body in Java's dialect (see RelaxJSON) or strict JSON into
// what v points to. The result owns its memory. The error is ErrBody.
func ParseBody(b []byte, v any) error {
	if err := json.Unmarshal(RelaxJSON(b), v); err != nil {
		return fmt.Errorf("%w: %T: %w", ErrBody, v, err)
	}
	return nil
}

// DataVersion tells whether a table changed; two are equal when all three are.
type DataVersion struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms
}

// Next returns the version after a change at nowMillis.
func (v DataVersion) Next(nowMillis int64) DataVersion {
	return DataVersion{Counter: v.Counter + 1, StateVersion: v.StateVersion, Timestamp: nowMillis}
}

// KVTable is the body of 103's answer, 219 and 28.
type KVTable struct {
	Table map[string]string `json:"table"`
}

// TopicList is the body of 206, 224, 304, 305, 311-313 and 343.
type TopicList struct {
	BrokerAddr string   `json:"brokerAddr,omitempty"`
	TopicList  []string `json:"topicList"` // Java's readers want the key: keep it non-nil
}

// GroupList is the body of 300.
type GroupList struct {
	GroupList []string `json:"groupList"`
}

// ConsumerIDList is the body of 38.
type ConsumerIDList struct {
	ConsumerIDList []string `json:"consumerIdList"`
}

// MessageQueue names one queue. It may key a map in Java's dialect.
type MessageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

// append writes q as Java does, as a value or as a key.
func (q *MessageQueue) append(dst []byte) []byte {
	dst = AppendJSONString(append(dst, `{"brokerName":`...), q.BrokerName)
	dst = AppendInt(append(dst, `,"queueId":`...), int64(q.QueueID))
	dst = AppendJSONString(append(dst, `,"topic":`...), q.Topic)
	return append(dst, '}')
}

// LockBatchBody is the body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).
type LockBatchBody struct {
	ClientID       string         `json:"clientId"`
	ConsumerGroup  string         `json:"consumerGroup"`
	MQSet          []MessageQueue `json:"mqSet"`
	OnlyThisBroker bool           `json:"onlyThisBroker"`
}

// LockBatchReply is the body of 41's answer: every queue the caller holds now.
type LockBatchReply struct {
	LockOKMQSet []MessageQueue `json:"lockOKMQSet"`
}

// QueueOffsetTable is {"offsetTable":{{mq}:offset}}, the body of 220 and of 222's
// answer.
type QueueOffsetTable struct {
	OffsetTable map[MessageQueue]int64
}

// Append writes the body with object keys, sorted by broker, topic and queue: the
// one form that Java tools and the Go client both read.
func (t *QueueOffsetTable) Append(dst []byte) []byte {
	dst = append(dst, `{"offsetTable":`...)
	return append(appendQueueMap(dst, t.OffsetTable, appendOffset), '}')
}

func compareQueues(a, b MessageQueue) int {
	if c := bytes.Compare([]byte(a.BrokerName+"\x00"+a.Topic), []byte(b.BrokerName+"\x00"+b.Topic)); c != 0 {
		return c
	}
	return cmp.Compare(a.QueueID, b.QueueID)
}

// ParseQueueOffsetTable reads the body of 222's answer.
func ParseQueueOffsetTable(b []byte) (*QueueOffsetTable, error) {
	var raw struct {
		OffsetTable map[string]int64 `json:"offsetTable"`
	}
	if err := ParseBody(b, &raw); err != nil {
		return nil, err
	}
	table, err := parseQueueMap(raw.OffsetTable)
	if err != nil {
		return nil, err
	}
	return &QueueOffsetTable{OffsetTable: table}, nil
}

// flexInt32 reads a number or a number in a string: the Go client writes codeSet
// as strings.
type flexInt32 int32

func (n *flexInt32) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseInt(string(bytes.Trim(b, `"`)), 10, 32)
	if err != nil {
		return fmt.Errorf("%w: got %.40s, want an int32", ErrBody, b)
	}
	*n = flexInt32(v)
	return nil
}
