package remoting

import (
	"errors"
	"reflect"
	"testing"
)

// headerDecoder is any header of a request.
type headerDecoder interface{ Decode(*Command) error }

func TestControlHeaders(t *testing.T) {
	for _, tc := range []struct {
		fields []string
		got    headerDecoder
		want   headerDecoder
	}{
		{[]string{"group", "g", "topic", "t"}, &GroupTopicHeader{}, &GroupTopicHeader{"g", "t"}},
		{[]string{"group", "g", "topic", "t", "clientAddr", "c"}, &ConsumerStatusHeader{}, &ConsumerStatusHeader{"t", "g", "c"}},
		{[]string{"consumerGroup", "g", "clientId", "c", "msgId", "m", "topic", "t"}, &ConsumerClientHeader{}, &ConsumerClientHeader{"g", "c", "m", "t"}},
		{[]string{"consumerGroup", "g"}, &ConsumerClientHeader{}, &ConsumerClientHeader{ConsumerGroup: "g"}},
		{[]string{"srcGroup", "a", "destGroup", "b", "topic", "t", "offline", "true"}, &CloneOffsetHeader{}, &CloneOffsetHeader{"a", "b", "t", true}},
		{[]string{"srcGroup", "a", "destGroup", "b"}, &CloneOffsetHeader{}, &CloneOffsetHeader{SrcGroup: "a", DestGroup: "b"}},
		{[]string{"topic", "t", "compareGroup", "g", "filterGroups", "a,b"}, &CorrectionOffsetHeader{}, &CorrectionOffsetHeader{"t", "g", "a,b"}},
		{[]string{"isOrder", "true"}, &BrokerConsumeStatsHeader{}, &BrokerConsumeStatsHeader{true}},
		{[]string{"topic", "t", "queueId", "1", "index", "2", "count", "3", "consumerGroup", "g"}, &QueryConsumeQueueHeader{}, &QueryConsumeQueueHeader{"t", 1, 2, 3, "g"}},
	} {
		c := NewRequest(1)
		for i := 0; i < len(tc.fields); i += 2 {
			c.Set(tc.fields[i], tc.fields[i+1])
		}
		if err := tc.got.Decode(c); err != nil || !reflect.DeepEqual(tc.got, tc.want) {
			t.Errorf("%q: got %+v, %v, want %+v", tc.fields, tc.got, err, tc.want)
		}
		// Each required field is missed.
		var missing *FieldError
		if err := tc.got.Decode(NewRequest(1)); !errors.As(err, &missing) && !reflect.DeepEqual(tc.want, &BrokerConsumeStatsHeader{true}) {
			t.Errorf("%T without fields: %v", tc.got, err)
		}
	}
	push := PushReplyHeader{ProducerGroup: "p", Topic: "t", DefaultTopic: "d", DefaultTopicQueueNums: 4, QueueID: 1, SysFlag: 2, BornMillis: 3, Flag: 5,
		Properties: "a\x01b\x02", ReconsumeTimes: 6, UnitMode: true, BornHost: "h:1", StoreHost: "s:2", StoreMillis: 7}
	var back PushReplyHeader
	if err := back.Decode(push.Command([]byte("x"))); err != nil || back != push {
		t.Errorf("got %+v, %v, want %+v", back, err, push)
	}
}

func TestControlBodies(t *testing.T) {
	q0, q1 := MessageQueue{"b", 0, "T"}, MessageQueue{"b", 1, "T"}
	stats := &ConsumeStats{ConsumeTps: 1.5, OffsetTable: map[MessageQueue]OffsetWrapper{q1: {4, 3, 2, 1}, q0: {}}}
	const statsText = `{"consumeTps":1.5,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0},` +
		`{"brokerName":"b","queueId":1,"topic":"T"}:{"brokerOffset":4,"consumerOffset":3,"lastTimestamp":2,"pullOffset":1}}}`
	all := &BrokerConsumeStats{BrokerAddr: "a:1", Groups: []string{"g", "h"}, Stats: map[string][]*ConsumeStats{"g": {stats, stats}}, TotalDiff: 1, TotalInflightDiff: 2}
	offsets := &QueueOffsetTable{OffsetTable: map[MessageQueue]int64{q1: 7, q0: 5}}
	status := &ConsumerStatus{ConsumerTable: map[string]map[MessageQueue]int64{"c": {q0: 5}, "a": {}}}
	for want, got := range map[string][]byte{
		statsText:                             stats.Append(nil),
		`{"consumeTps":0.0,"offsetTable":{}}`: (&ConsumeStats{}).Append(nil),
		`{"brokerAddr":"a:1","consumeStatsList":[{"g":[` + statsText + "," + statsText + `]},{"h":[]}],"totalDiff":1,"totalInflightDiff":2}`: all.Append(nil),
		`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:7}}`:                        offsets.Append(nil),
		`{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"},{"brokerName":"b","offset":7,"queueId":1,"topic":"T"}]}`:      offsets.AppendList(nil),
		`{"consumerTable":{"a":{},"c":{{"brokerName":"b","queueId":0,"topic":"T"}:5}},"messageQueueTable":{}}`:                               status.Append(nil),
		`{"correctionOffsets":{0:1,7:2}}`: AppendCorrectionOffsets(nil, map[int32]int64{7: 2, 0: 1}),
	} {
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	back, err := ParseConsumerStatus([]byte(`{"messageQueueTable":{{"topic":"T","brokerName":"b","queueId":1}:7}}`))
	if err != nil || len(back) != 1 || back[q1] != 7 {
		t.Errorf("status: %v, %v", back, err)
	}
	if _, err := ParseConsumerStatus([]byte(`{"messageQueueTable":{{"topic":1}:7}}`)); !errors.Is(err, ErrBody) {
		t.Errorf("a bad status: %v", err)
	}
}
