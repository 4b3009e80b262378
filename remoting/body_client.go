package remoting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// What a consumer says of itself, as enum names on the wire.
const (
	ConsumeActively  = "CONSUME_ACTIVELY" // pull
	ConsumePassively = "CONSUME_PASSIVELY"
	ConsumePop       = "CONSUME_POP"

	ModelBroadcasting = "BROADCASTING"
	ModelClustering   = "CLUSTERING"

	ConsumeFromLastOffset  = "CONSUME_FROM_LAST_OFFSET"
	ConsumeFromFirstOffset = "CONSUME_FROM_FIRST_OFFSET"
	ConsumeFromTimestamp   = "CONSUME_FROM_TIMESTAMP"
)

// HeartbeatData is the body of HEART_BEAT (34).
type HeartbeatData struct {
	ClientID             string         `json:"clientID"`
	ConsumerDataSet      []ConsumerData `json:"consumerDataSet"`
	HeartbeatFingerprint int32          `json:"heartbeatFingerprint"` // not 0: heartbeat V2
	ProducerDataSet      []ProducerData `json:"producerDataSet"`
	WithoutSub           bool           `json:"withoutSub"` // V2: subscriptions are left out
}

// ProducerData is a producer group of a client.
type ProducerData struct {
	GroupName string `json:"groupName"`
}

// ConsumerData is a consumer group of a client.
type ConsumerData struct {
	ConsumeFromWhere    string             `json:"consumeFromWhere"`
	ConsumeType         string             `json:"consumeType"`
	GroupName           string             `json:"groupName"`
	MessageModel        string             `json:"messageModel"`
	SubscriptionDataSet []SubscriptionData `json:"subscriptionDataSet"`
	UnitMode            bool               `json:"unitMode"`
}

// SubscriptionData is what a group wants of one topic. CodeSet is as the client
// sent it: compute it anew from TagsSet where it decides something.
type SubscriptionData struct {
	ClassFilterMode bool     `json:"classFilterMode"`
	CodeSet         codeSet  `json:"codeSet"`
	ExpressionType  string   `json:"expressionType"`
	SubString       string   `json:"subString"`
	SubVersion      int64    `json:"subVersion"`
	TagsSet         []string `json:"tagsSet"`
	Topic           string   `json:"topic"`
}

// What clients write in place of the names, in Java's order of the enums: the
// ordinals, which fastjson takes too.
var (
	consumeTypes   = []string{ConsumeActively, ConsumePassively, ConsumePop}
	messageModels  = []string{ModelBroadcasting, ModelClustering}
	consumeOffsets = []string{ConsumeFromLastOffset, "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET",
		"CONSUME_FROM_MAX_OFFSET", ConsumeFromFirstOffset, ConsumeFromTimestamp}
)

// UnmarshalJSON reads the enums as names (Java, Go) or as ordinals (C++).
func (d *ConsumerData) UnmarshalJSON(b []byte) error {
	type plain ConsumerData
	in := struct {
		*plain
		ConsumeFromWhere json.RawMessage `json:"consumeFromWhere"`
		ConsumeType      json.RawMessage `json:"consumeType"`
		MessageModel     json.RawMessage `json:"messageModel"`
	}{plain: (*plain)(d)}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	for _, e := range []struct {
		name  string
		raw   json.RawMessage
		to    *string
		names []string
	}{
		{"consumeFromWhere", in.ConsumeFromWhere, &d.ConsumeFromWhere, consumeOffsets},
		{"consumeType", in.ConsumeType, &d.ConsumeType, consumeTypes},
		{"messageModel", in.MessageModel, &d.MessageModel, messageModels},
	} {
		if n, err := strconv.Atoi(string(bytes.Trim(e.raw, `"`))); err == nil {
			if n < 0 || n >= len(e.names) {
				return fmt.Errorf("%w: %s: got %d, want a name or 0 to %d", ErrBody, e.name, n, len(e.names)-1)
			}
			*e.to = e.names[n]
		} else if len(e.raw) > 0 {
			if err := json.Unmarshal(e.raw, e.to); err != nil {
				return err
			}
		}
	}
	return nil
}

// UnmarshalJSON reads subVersion as a number or as a number in a string (C++).
func (d *SubscriptionData) UnmarshalJSON(b []byte) error {
	type plain SubscriptionData
	in := struct {
		*plain
		SubVersion json.RawMessage `json:"subVersion"`
	}{plain: (*plain)(d)}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if v := bytes.Trim(in.SubVersion, `"`); len(v) > 0 && string(v) != "null" {
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			return fmt.Errorf("%w: subVersion: got %.40s, want an int64", ErrBody, in.SubVersion)
		}
		d.SubVersion = n
	}
	return nil
}

// codeSet holds tag hashes; read from numbers (Java) or strings (Go client).
type codeSet []int32

// UnmarshalJSON reads [1,2] and ["1","2"].
func (s *codeSet) UnmarshalJSON(b []byte) error {
	var in []flexInt32
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*s = make(codeSet, len(in))
	for i, n := range in {
		(*s)[i] = int32(n)
	}
	return nil
}

// CheckClientBody is the body of CHECK_CLIENT_CONFIG (46).
type CheckClientBody struct {
	ClientID         string           `json:"clientId"`
	Group            string           `json:"group"`
	Namespace        string           `json:"namespace,omitempty"`
	SubscriptionData SubscriptionData `json:"subscriptionData"`
}

// Connection is one client of a group, as 203 and 204 list it.
type Connection struct {
	ClientAddr string `json:"clientAddr"`
	ClientID   string `json:"clientId"`
	Language   string `json:"language"`
	Version    int32  `json:"version"`
}

// ConsumerConnection is the body of 203. SubscriptionConflicts is ours; Java's
// tools pass over it.
type ConsumerConnection struct {
	ConnectionSet         []Connection                `json:"connectionSet"`
	ConsumeFromWhere      string                      `json:"consumeFromWhere"`
	ConsumeType           string                      `json:"consumeType"`
	MessageModel          string                      `json:"messageModel"`
	SubscriptionConflicts []SubscriptionConflict      `json:"subscriptionConflicts,omitempty"`
	SubscriptionTable     map[string]SubscriptionData `json:"subscriptionTable"`
}

// SubscriptionConflict is a topic that clients of one group subscribe
// differently.
type SubscriptionConflict struct {
	Topic    string                `json:"topic"`
	Variants []SubscriptionVariant `json:"variants"` // the most frequent first
}

// SubscriptionVariant is one of the ways they do.
type SubscriptionVariant struct {
	Clients []string `json:"clients"`
	Wants   string   `json:"wants"` // tags, or kind and expression; empty: the topic isn't subscribed
}

// ProducerConnection is the body of 204.
type ProducerConnection struct {
	ConnectionSet []Connection `json:"connectionSet"`
}

// SubscriptionGroupConfig is what a broker keeps of a consumer group: the body of
// 200 and 352.
type SubscriptionGroupConfig struct {
	Attributes                     map[string]string        `json:"attributes"`
	BrokerID                       int64                    `json:"brokerId"`
	ConsumeBroadcastEnable         bool                     `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool                     `json:"consumeEnable"`
	ConsumeFromMinEnable           bool                     `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly          bool                     `json:"consumeMessageOrderly"`
	ConsumeTimeoutMinute           int32                    `json:"consumeTimeoutMinute"`
	GroupName                      string                   `json:"groupName"`
	GroupRetryPolicy               GroupRetryPolicy         `json:"groupRetryPolicy"`
	GroupSysFlag                   int32                    `json:"groupSysFlag"`
	NotifyConsumerIDsChangedEnable bool                     `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int32                    `json:"retryMaxTimes"`
	RetryQueueNums                 int32                    `json:"retryQueueNums"`
	SubscriptionDataSet            []SimpleSubscriptionData `json:"subscriptionDataSet,omitempty"`
	WhichBrokerWhenConsumeSlowly   int64                    `json:"whichBrokerWhenConsumeSlowly"`
}

// SubscriptionGroupTable is the body of 201's answer, and subscriptionGroup.json.
// A value of ForbiddenTable is a sum of perm bits (PermRead) that the group lacks
// for the topic.
type SubscriptionGroupTable struct {
	DataVersion            DataVersion                         `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32         `json:"forbiddenTable"`
	SubscriptionGroupTable map[string]*SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

// SubscriptionGroupList is the body of 225.
type SubscriptionGroupList struct {
	GroupConfigList []json.RawMessage `json:"groupConfigList"` // read each into NewSubscriptionGroupConfig
}

// GroupForbidden is the body of 353's answer.
type GroupForbidden struct {
	Group    string `json:"group"`
	Readable bool   `json:"readable"`
	Topic    string `json:"topic"`
}

// SimpleSubscriptionData is a subscription a group's configuration demands.
type SimpleSubscriptionData struct {
	Expression     string `json:"expression"`
	ExpressionType string `json:"expressionType"`
	Topic          string `json:"topic"`
	Version        int64  `json:"version"`
}

// NewSubscriptionGroupConfig returns a group's configuration with RocketMQ's
// defaults; parse a body into it so that absent keys keep them.
func NewSubscriptionGroupConfig(group string) SubscriptionGroupConfig {
	return SubscriptionGroupConfig{
		Attributes:                     map[string]string{},
		ConsumeBroadcastEnable:         true,
		ConsumeEnable:                  true,
		ConsumeFromMinEnable:           true,
		ConsumeTimeoutMinute:           15,
		GroupName:                      group,
		GroupRetryPolicy:               GroupRetryPolicy{Type: "CUSTOMIZED"},
		NotifyConsumerIDsChangedEnable: true,
		RetryMaxTimes:                  16,
		RetryQueueNums:                 1,
		WhichBrokerWhenConsumeSlowly:   1,
	}
}
