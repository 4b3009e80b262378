package broker

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/remoting"
)

func offsetFields(group, topic string, queue int, more ...string) []string {
	return append([]string{"consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queue)}, more...)
}

func TestConsumerOffsets(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	for range 3 {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 1, "")...)
	}
	b.groups.PutAbsent(meta.NewGroup("g"))
	query := func(c interface{ Err() error }, want remoting.ResponseCode, offset string, fields []string) {
		t.Helper()
		resp := call(t, dial(t, b), remoting.ReqQueryConsumerOffset, want, nil, fields...)
		if got := resp.GetString("offset"); got != offset {
			t.Errorf("%q: offset %q, want %q", fields, got, offset)
		}
	}
	// Nothing committed: 0 where the first message is in memory and the client
	// doesn't object.
	query(c, remoting.Success, "0", offsetFields("g", "T", 1))
	query(c, remoting.QueryNotFound, "", offsetFields("g", "T", 1, "setZeroIfNotFound", "false"))
	query(c, remoting.QueryNotFound, "", offsetFields("g", "T", 0)) // an empty queue
	query(c, remoting.QueryNotFound, "", offsetFields("g", "Unknown", 0))

	for _, tt := range []struct {
		fields []string
		want   remoting.ResponseCode
	}{
		{offsetFields("g", "T", 1, "commitOffset", "2"), remoting.Success},
		{offsetFields("g", "T", 1, "commitOffset", "1"), remoting.Success}, // backwards
		{offsetFields("nobody", "T", 1, "commitOffset", "1"), remoting.SubscriptionGroupNotExist},
		{offsetFields("g", "Unknown", 1, "commitOffset", "1"), remoting.TopicNotExist},
		{offsetFields("g", "T", -1, "commitOffset", "1"), remoting.InvalidParameter},
		{offsetFields("g", "T", 1<<20, "commitOffset", "1"), remoting.InvalidParameter},
		{offsetFields("g", "T", 1, "commitOffset", "-1"), remoting.InvalidParameter},
		{offsetFields("g", "T", 1), remoting.SystemError},
	} {
		call(t, c, remoting.ReqUpdateConsumerOffset, tt.want, nil, tt.fields...)
	}
	query(c, remoting.Success, "1", offsetFields("g", "T", 1))

	// One-way, as clients do; and by a pull.
	oneway := remoting.NewRequest(remoting.ReqUpdateConsumerOffset)
	for f := offsetFields("g", "T", 2, "commitOffset", "7"); len(f) > 0; f = f[2:] {
		oneway.Set(f[0], f[1])
	}
	if err := c.Oneway(oneway); err != nil {
		t.Fatal(err)
	}
	call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 1, 0, "consumerGroup", "g", "sysFlag", "5", "commitOffset", "3")...)
	query(c, remoting.Success, "7", offsetFields("g", "T", 2))
	query(c, remoting.Success, "3", offsetFields("g", "T", 1))

	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	query(c, remoting.Success, "7", offsetFields("g", "T", 2))
	query(c, remoting.Success, "3", offsetFields("g", "T", 1))
}

func TestQueueOffsets(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	began := time.Now().UnixMilli()
	for range 3 {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 1, "")...)
	}
	for _, tt := range []struct {
		code         remoting.RequestCode
		topic, queue string
		more         []string
		field, want  string
	}{
		{remoting.ReqGetMaxOffset, "T", "1", nil, "offset", "3"},
		{remoting.ReqGetMaxOffset, "T", "0", nil, "offset", "0"},
		{remoting.ReqGetMaxOffset, "Unknown", "0", nil, "offset", "0"},
		{remoting.ReqGetMinOffset, "T", "1", nil, "offset", "0"},
		{remoting.ReqGetMinOffset, "Unknown", "9", nil, "offset", "0"},
		{remoting.ReqSearchOffsetByTimestamp, "T", "1", []string{"timestamp", "0"}, "offset", "0"},
		{remoting.ReqSearchOffsetByTimestamp, "T", "1", []string{"timestamp", fmt.Sprint(began + 1<<40)}, "offset", "3"},
		{remoting.ReqSearchOffsetByTimestamp, "T", "1", []string{"timestamp", "0", "boundaryType", "UPPER"}, "offset", "0"},
		{remoting.ReqSearchOffsetByTimestamp, "Unknown", "1", []string{"timestamp", "5"}, "offset", "0"},
		{remoting.ReqGetEarliestMsgStoreTime, "T", "0", nil, "timestamp", "-1"},
		{remoting.ReqGetEarliestMsgStoreTime, "Unknown", "0", nil, "timestamp", "-1"},
	} {
		resp := call(t, c, tt.code, remoting.Success, nil, append([]string{"topic", tt.topic, "queueId", tt.queue}, tt.more...)...)
		if got := resp.GetString(tt.field); got != tt.want {
			t.Errorf("%s %s %s %q: %s, want %s", tt.code, tt.topic, tt.queue, tt.more, got, tt.want)
		}
	}
	resp := call(t, c, remoting.ReqGetEarliestMsgStoreTime, remoting.Success, nil, "topic", "T", "queueId", "1")
	if got, err := strconv.ParseInt(resp.GetString("timestamp"), 10, 64); err != nil || got < began || got > time.Now().UnixMilli() {
		t.Errorf("earliest store time %q", resp.GetString("timestamp"))
	}
	if b.store.FindQueue("Unknown", 0) != nil || b.store.FindQueue("Unknown", 9) != nil {
		t.Error("a question has made a queue")
	}
}
