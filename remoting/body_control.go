package remoting

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
)

// appendQueueMap writes a map keyed by queues as Java does, sorted by broker,
// topic and queue.
func appendQueueMap[V any](dst []byte, m map[MessageQueue]V, value func(dst []byte, v V) []byte) []byte {
	dst = append(dst, '{')
	for i, q := range slices.SortedFunc(maps.Keys(m), compareQueues) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = value(append(q.append(dst), ':'), m[q])
	}
	return append(dst, '}')
}

func appendOffset(dst []byte, v int64) []byte { return AppendInt(dst, v) }

// AppendList writes {"offsetTable":[{"brokerName","offset","queueId","topic"}]},
// the form that C++ requesters want of 220's body.
func (t *QueueOffsetTable) AppendList(dst []byte) []byte {
	type entry struct {
		BrokerName string `json:"brokerName"`
		Offset     int64  `json:"offset"`
		QueueID    int32  `json:"queueId"`
		Topic      string `json:"topic"`
	}
	list := []entry{}
	for _, q := range slices.SortedFunc(maps.Keys(t.OffsetTable), compareQueues) {
		list = append(list, entry{q.BrokerName, t.OffsetTable[q], q.QueueID, q.Topic})
	}
	return append(dst, MarshalBody(map[string]any{"offsetTable": list})...)
}

// OffsetWrapper is the state of one queue for a group.
type OffsetWrapper struct {
	BrokerOffset   int64 `json:"brokerOffset"`   // one past the last message
	ConsumerOffset int64 `json:"consumerOffset"` // the next to consume
	LastTimestamp  int64 `json:"lastTimestamp"`  // store time of the message consumed last, ms; 0: not known
	PullOffset     int64 `json:"pullOffset"`     // the next to pull
}

// appendDouble writes v as Java does, with a decimal point at least.
func appendDouble(dst []byte, v float64) []byte {
	at := len(dst)
	dst = strconv.AppendFloat(dst, v, 'f', -1, 64)
	if bytes.IndexByte(dst[at:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}

// ConsumeStats is the body of 208.
type ConsumeStats struct {
	ConsumeTps  float64
	OffsetTable map[MessageQueue]OffsetWrapper
}

// Append writes the body.
func (s *ConsumeStats) Append(dst []byte) []byte {
	dst = append(dst, `{"consumeTps":`...)
	dst = appendDouble(dst, s.ConsumeTps)
	dst = append(dst, `,"offsetTable":`...)
	dst = appendQueueMap(dst, s.OffsetTable, func(dst []byte, w OffsetWrapper) []byte { return append(dst, MarshalBody(w)...) })
	return append(dst, '}')
}

// BrokerConsumeStats is the body of 317.
type BrokerConsumeStats struct {
	BrokerAddr        string
	Groups            []string // in order
	Stats             map[string][]*ConsumeStats
	TotalDiff         int64 // messages not consumed yet
	TotalInflightDiff int64 // pulled and not consumed yet
}

// Append writes the body.
func (s *BrokerConsumeStats) Append(dst []byte) []byte {
	dst = AppendJSONString(append(dst, `{"brokerAddr":`...), s.BrokerAddr)
	dst = append(dst, `,"consumeStatsList":[`...)
	for i, group := range s.Groups {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendJSONString(append(dst, '{'), group), ":["...)
		for j, stats := range s.Stats[group] {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = stats.Append(dst)
		}
		dst = append(dst, "]}"...)
	}
	dst = AppendInt(append(dst, `],"totalDiff":`...), s.TotalDiff)
	dst = AppendInt(append(dst, `,"totalInflightDiff":`...), s.TotalInflightDiff)
	return append(dst, '}')
}

// ConsumerStatus is what 221 answers (MessageQueueTable) and what 223 does
// (ConsumerTable, by client).
type ConsumerStatus struct {
	ConsumerTable     map[string]map[MessageQueue]int64
	MessageQueueTable map[MessageQueue]int64
}

// Append writes the body.
func (s *ConsumerStatus) Append(dst []byte) []byte {
	dst = append(dst, `{"consumerTable":{`...)
	for i, id := range slices.Sorted(maps.Keys(s.ConsumerTable)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendJSONString(dst, id), ':')
		dst = appendQueueMap(dst, s.ConsumerTable[id], appendOffset)
	}
	dst = append(dst, `},"messageQueueTable":`...)
	return append(appendQueueMap(dst, s.MessageQueueTable, appendOffset), '}')
}

// ParseConsumerStatus reads a client's answer to 221.
func ParseConsumerStatus(b []byte) (map[MessageQueue]int64, error) {
	var raw struct {
		MessageQueueTable map[string]int64 `json:"messageQueueTable"`
	}
	if err := ParseBody(b, &raw); err != nil {
		return nil, err
	}
	return parseQueueMap(raw.MessageQueueTable)
}

func parseQueueMap(raw map[string]int64) (map[MessageQueue]int64, error) {
	m := make(map[MessageQueue]int64, len(raw))
	for k, v := range raw {
		var q MessageQueue
		if err := ParseBody([]byte(k), &q); err != nil {
			return nil, err
		}
		m[q] = v
	}
	return m, nil
}

// QueueTimeSpan says of which time the messages of a queue are, all in ms.
type QueueTimeSpan struct {
	ConsumeTimeStamp int64        `json:"consumeTimeStamp"` // of the message consumed last
	DelayTime        int64        `json:"delayTime"`        // since the next one was stored; 0: nothing waits
	MaxTimeStamp     int64        `json:"maxTimeStamp"`
	MessageQueue     MessageQueue `json:"messageQueue"`
	MinTimeStamp     int64        `json:"minTimeStamp"`
}

// ConsumeTimeSpan is the body of 303.
type ConsumeTimeSpan struct {
	ConsumeTimeSpanSet []QueueTimeSpan `json:"consumeTimeSpanSet"`
}

// AppendCorrectionOffsets writes the body of 308: {"correctionOffsets":{0:12}}.
func AppendCorrectionOffsets(dst []byte, offsets map[int32]int64) []byte {
	dst = append(dst, `{"correctionOffsets":{`...)
	for i, id := range slices.Sorted(maps.Keys(offsets)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendInt(append(AppendInt(dst, int64(id)), ':'), offsets[id])
	}
	return append(dst, "}}"...)
}

// ConsumeQueueData is one entry of a ConsumeQueue.
type ConsumeQueueData struct {
	Eval         bool  `json:"eval"`
	PhysicOffset int64 `json:"physicOffset"`
	PhysicSize   int32 `json:"physicSize"`
	TagsCode     int64 `json:"tagsCode"`
}

// ConsumeQueueEntries is the body of 321.
type ConsumeQueueEntries struct {
	FilterData       string             `json:"filterData,omitempty"`
	MaxQueueIndex    int64              `json:"maxQueueIndex"`
	MinQueueIndex    int64              `json:"minQueueIndex"`
	QueueData        []ConsumeQueueData `json:"queueData"`
	SubscriptionData *SubscriptionData  `json:"subscriptionData,omitempty"`
}

// SubscriptionAnswer is the body of 345.
type SubscriptionAnswer struct {
	Group            string            `json:"group"`
	SubscriptionData *SubscriptionData `json:"subscriptionData,omitempty"`
	Topic            string            `json:"topic"`
}

// ProducerInfo is one client of a producer group, as 328 lists it.
type ProducerInfo struct {
	ClientID            string `json:"clientId"`
	Language            string `json:"language"`
	LastUpdateTimestamp int64  `json:"lastUpdateTimestamp"` // of its last heartbeat, ms
	RemoteIP            string `json:"remoteIP"`            // /ip:port
	Version             int32  `json:"version"`
}

// ProducerTable is the body of 328, by group.
type ProducerTable struct {
	Data map[string][]ProducerInfo `json:"data"`
}
