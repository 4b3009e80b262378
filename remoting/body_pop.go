package remoting

import (
	"encoding/base64"
	"fmt"
	"math/bits"
)

// BatchAckBody is the body of BATCH_ACK_MESSAGE (200151).
type BatchAckBody struct {
	Acks       []BatchAck `json:"acks"`
	BrokerName string     `json:"brokerName"`
}

// A BatchAck acknowledges messages of one pop of one queue.
type BatchAck struct {
	Bits            BitSet `json:"b"` // bit i: the message at StartOffset+i
	ConsumerGroup   string `json:"c"`
	InvisibleMillis int64  `json:"it"`
	PopMillis       int64  `json:"pt"`
	QueueID         int32  `json:"q"`
	Retry           string `json:"r"` // flag of a PopCK
	ReviveQueueID   int32  `json:"rq"`
	StartOffset     int64  `json:"so"`
	Topic           string `json:"t"` // the topic itself, also for messages of its retry topic
}

// A BitSet is a set of small numbers as Java's BitSet#toByteArray writes it,
// little-endian, in base64 on the wire.
type BitSet []byte

// Set adds i.
func (s *BitSet) Set(i int) {
	for len(*s) <= i/8 {
		*s = append(*s, 0)
	}
	(*s)[i/8] |= 1 << (i % 8)
}

// Each calls fn with each number in the set, in order, until it says false.
func (s BitSet) Each(fn func(i int) bool) {
	for at, b := range s {
		for ; b != 0; b &= b - 1 {
			if !fn(at*8 + bits.TrailingZeros8(b)) {
				return
			}
		}
	}
}

// MarshalJSON writes the set as base64 text.
func (s BitSet) MarshalJSON() ([]byte, error) {
	return []byte(`"` + base64.StdEncoding.EncodeToString(s) + `"`), nil
}

// UnmarshalJSON reads base64 text; null and "" are the empty set.
func (s *BitSet) UnmarshalJSON(b []byte) error {
	*s = nil
	if string(b) == "null" {
		return nil
	}
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return fmt.Errorf("%w: bit set: got %.40s, want base64 text", ErrBody, b)
	}
	set, err := base64.StdEncoding.DecodeString(string(b[1 : len(b)-1]))
	if err != nil {
		return fmt.Errorf("%w: bit set: got %.40s: %w", ErrBody, b, err)
	}
	*s = set
	return nil
}

// Modes of consumption that a broker assigns.
const (
	ModePull = "PULL"
	ModePop  = "POP"
)

// QueryAssignmentBody is the body of QUERY_ASSIGNMENT (400).
type QueryAssignmentBody struct {
	ClientID      string `json:"clientId"`
	ConsumerGroup string `json:"consumerGroup"`
	MessageModel  string `json:"messageModel"`
	StrategyName  string `json:"strategyName"`
	Topic         string `json:"topic"`
}

// QueryAssignmentReply is the body of 400's answer. Nil says that nothing is
// known and the client keeps what it has, empty that it has nothing.
type QueryAssignmentReply struct {
	MessageQueueAssignments []QueueAssignment `json:"messageQueueAssignments,omitzero"`
}

// QueueAssignment is one queue for a client, and how it gets its messages.
type QueueAssignment struct {
	MessageQueue MessageQueue `json:"messageQueue"` // queueId -1: all queues of that broker
	Mode         string       `json:"mode"`
}

// MessageRequestMode is the body of SET_MESSAGE_REQUEST_MODE (401), and an entry
// of messageRequestMode.json.
type MessageRequestMode struct {
	ConsumerGroup    string `json:"consumerGroup"`
	Mode             string `json:"mode"`
	PopShareQueueNum int32  `json:"popShareQueueNum"`
	Topic            string `json:"topic"`
}
