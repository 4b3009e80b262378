package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// nowLevels delivers every delay level at once.
func nowLevels(c *Config) { c.MessageDelayLevel = "0s 0s 0s 0s 0s 0s" }

// heartbeat joins a consumer group.
func heartbeat(t *testing.T, c *rpc.Conn, id, group, topic, expr string) {
	t.Helper()
	call(t, c, remoting.ReqHeartBeat, remoting.Success, remoting.MarshalBody(remoting.HeartbeatData{
		ClientID: id, ConsumerDataSet: []remoting.ConsumerData{*consumerData(group, topic, expr, 1)}}))
}

// pullOne polls a queue for its message at offset.
func pullOne(t *testing.T, c *rpc.Conn, topic string, offset int64) (m message.Message) {
	t.Helper()
	resp := call(t, c, remoting.ReqPullMessage, remoting.Success, nil,
		pullFields(topic, 0, offset, "sysFlag", "6", "suspendTimeoutMillis", "5000", "maxMsgNums", "1")...)
	if _, err := message.Decode(resp.Body, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func props(t *testing.T, m *message.Message, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got, _ := message.Property(m.Properties, name); string(got) != value {
			t.Errorf("property %s is %q, want %q", name, got, value)
		}
	}
}

func sendBackFields(m *message.Message, group string, level int, more ...string) []string {
	return append([]string{"offset", fmt.Sprint(int64(m.PhysicalOffset)), "group", group, "delayLevel", fmt.Sprint(level),
		"originMsgId", "x", "originTopic", "T", "unitMode", "false"}, more...)
}

// A message that fails for ever: each retry names where it came from, and after
// the last one it is in the DLQ at once.
func TestSendBackUntilDead(t *testing.T) {
	b := startBroker(t, nowLevels)
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("poison"), sendFields("T", 0, "UNIQ_KEY=u;TAGS=a;KEYS=k")...)
	m := pullOne(t, c, "T", 0)
	first := string(message.AppendOffsetID(nil, m.StoreHost, m.PhysicalOffset))
	kept := map[string]string{"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": first, "UNIQ_KEY": "u", "TAGS": "a", "KEYS": "k"}
	for times := range int32(2) {
		call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, "g", 0, "maxReconsumeTimes", "2")...)
		m = pullOne(t, c, "%RETRY%g", int64(times))
		props(t, &m, kept)
		props(t, &m, map[string]string{"DELAY": fmt.Sprint(3 + times), "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"})
		if m.ReconsumeTimes != times+1 || string(m.Body) != "poison" {
			t.Errorf("retry %d: reconsumeTimes %d, body %q", times+1, m.ReconsumeTimes, m.Body)
		}
	}
	call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, "g", 0, "maxReconsumeTimes", "2")...)
	m = pullOne(t, c, "%DLQ%g", 0)
	props(t, &m, kept)
	if m.ReconsumeTimes != 3 || m.QueueID != 0 {
		t.Errorf("dead: reconsumeTimes %d, queue %d, want 3 and 0", m.ReconsumeTimes, m.QueueID)
	}
	// It is found by its key, in the DLQ.
	resp := call(t, c, remoting.ReqQueryMessage, remoting.Success, nil, "topic", "%DLQ%g", "key", "k", "maxNum", "32", "beginTimestamp", "0", "endTimestamp", fmt.Sprint(int64(1)<<60))
	if got := bodies(t, resp); len(got) != 1 {
		t.Errorf("found %q in the DLQ by key", got)
	}
}

func TestSendBackRefusals(t *testing.T) {
	b := startBroker(t, nowLevels)
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	m := pullOne(t, c, "T", 0)
	none := *b.groups.Find("g")
	none.GroupName, none.RetryQueueNums = "none", 0
	b.groups.Put(&none)
	nowhere := m
	nowhere.PhysicalOffset = 1 << 40
	inside := m
	inside.PhysicalOffset++
	for _, tt := range []struct {
		name   string
		fields []string
		want   remoting.ResponseCode
	}{
		{"a bad group", sendBackFields(&m, "no/body", 0), remoting.InvalidParameter},
		{"no message there", sendBackFields(&nowhere, "g", 0), remoting.SystemError},
		{"inside a message", sendBackFields(&inside, "g", 0), remoting.SystemError},
		{"a missing field", []string{"group", "g"}, remoting.SystemError},
		{"a group without retries", sendBackFields(&m, "none", 0), remoting.Success},
		{"at once to the DLQ", sendBackFields(&m, "g", -1), remoting.Success},
	} {
		t.Run(tt.name, func(t *testing.T) {
			call(t, c, remoting.ReqConsumerSendMsgBack, tt.want, nil, tt.fields...)
		})
	}
	if q := b.store.FindQueue("%DLQ%g", 0); q == nil || q.Max() != 1 {
		t.Error("delayLevel -1 didn't reach the DLQ")
	}
	if b.topics.Find("%RETRY%none") != nil {
		t.Error("a group without retries got a retry topic")
	}
}

// A consumer's own send to its retry topic, with which clients fall back.
func TestRetrySend(t *testing.T) {
	b := startBroker(t, nowLevels)
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	send := func(times, limit string) {
		t.Helper()
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte(times),
			sendFields("%RETRY%g", 0, "RETRY_TOPIC=T;DELAY=3", "j", times, "l", limit)...)
	}
	send("2", "2")
	m := pullOne(t, c, "%RETRY%g", 0)
	if m.ReconsumeTimes != 2 {
		t.Errorf("reconsumeTimes %d, want 2", m.ReconsumeTimes)
	}
	send("3", "2")
	m = pullOne(t, c, "%DLQ%g", 0)
	if string(m.Body) != "3" || m.ReconsumeTimes != 3 {
		t.Errorf("in the DLQ: %q, reconsumeTimes %d", m.Body, m.ReconsumeTimes)
	}
	// An orderly consumer holds a lock and sends what has failed for good.
	lock := remoting.MarshalBody(remoting.LockBatchBody{ClientID: "A", ConsumerGroup: "g",
		MQSet: []remoting.MessageQueue{{BrokerName: "broker-t", Topic: "T"}}})
	call(t, c, remoting.ReqLockBatchMQ, remoting.Success, lock)
	send("1", "16")
	if m = pullOne(t, c, "%DLQ%g", 1); string(m.Body) != "1" {
		t.Errorf("in the DLQ: %q", m.Body)
	}
	call(t, c, remoting.ReqUnlockBatchMQ, remoting.Success, lock)
	send("1", "16")
	if m = pullOne(t, c, "%RETRY%g", 1); string(m.Body) != "1" {
		t.Errorf("retried: %q", m.Body)
	}
}

// A delayed send waits for its time, and comes with its own tag and queue.
func TestDelayedSend(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.MessageDelayLevel = "1s 2h" })
	c := dial(t, b)
	began := time.Now()
	resp := call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("late"), sendFields("T", 0, "TAGS=a;DELAY=1")...)
	if resp.GetString("queueId") != "0" {
		t.Errorf("queueId %s", resp.GetString("queueId"))
	}
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("later"), sendFields("T", 0, "DELAY=99")...)
	m := pullOne(t, c, "T", 0)
	if took := time.Since(began); string(m.Body) != "late" || took < 990*time.Millisecond || took > 3*time.Second {
		t.Errorf("%q came after %v", m.Body, took)
	}
	if at := b.store.FindQueue("SCHEDULE_TOPIC_XXXX", 1); at == nil || at.Max() != 1 {
		t.Error("a level that is too high isn't the highest")
	}
	call(t, c, remoting.ReqSendMessageV2, remoting.MessageIllegal, []byte("x"), sendFields("T", 0, "DELAY=soon")...)
}

// Names of groups for which %RETRY%group or %DLQ%group is longer than the 127
// bytes a record's first form holds: a message that fails for ever is retried and
// then dead, found there, and neither lost nor tried for ever. (Apache can't store
// a DLQ record with such a topic: the consumer tries again without end.)
func TestLongGroupNames(t *testing.T) {
	for _, n := range []int{119, 120, 121, 122, 200, 248} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b := startBroker(t, nowLevels)
			c := dial(t, b)
			group := strings.Repeat("g", n)
			heartbeat(t, c, "A", group, "T", "*")
			call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("poison"), sendFields("T", 0, "UNIQ_KEY=u;KEYS=k")...)
			m := pullOne(t, c, "T", 0)
			first := string(message.AppendOffsetID(nil, m.StoreHost, m.PhysicalOffset))
			call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, group, 0, "maxReconsumeTimes", "1")...)
			m = pullOne(t, c, "%RETRY%"+group, 0)
			// The client's own way, when a send back fails; once by each.
			call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("fallback"),
				sendFields("%RETRY%"+group, 0, "RETRY_TOPIC=T;ORIGIN_MESSAGE_ID="+first+";DELAY=3", "j", "2", "l", "1")...)
			call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, group, 0, "maxReconsumeTimes", "1")...)
			for i, want := range []string{"fallback", "poison"} {
				m = pullOne(t, c, "%DLQ%"+group, int64(i))
				if string(m.Body) != want || string(m.Topic) != "%DLQ%"+group {
					t.Errorf("dead: %q of %.30q, want %q", m.Body, m.Topic, want)
				}
				props(t, &m, map[string]string{"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": first})
			}
			resp := call(t, c, remoting.ReqQueryMessage, remoting.Success, nil, "topic", "%DLQ%"+group, "key", "k", "maxNum", "32", "beginTimestamp", "0", "endTimestamp", fmt.Sprint(int64(1)<<60))
			if got := fmt.Sprint(bodies(t, resp)); got != "[poison]" {
				t.Errorf("found %s by key", got)
			}
			if q := b.store.FindQueue("%RETRY%"+group, 0); q.Max() != 1 {
				t.Errorf("%d messages on the retry topic, want 1", q.Max())
			}
		})
	}
}

// The original of a message that is sent back was deleted with its segment: an
// error that makes the client send its own copy, which is retried.
func TestOriginalIsGone(t *testing.T) {
	b := startBroker(t, nowLevels)
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	for _, offset := range []string{"-1", "1099511627776"} {
		resp := call(t, c, remoting.ReqConsumerSendMsgBack, remoting.SystemError, nil, "offset", offset, "group", "g", "delayLevel", "0", "originMsgId", "x", "originTopic", "T", "unitMode", "false")
		if !strings.Contains(string(resp.Remark), "look message by offset failed, "+offset) {
			t.Errorf("remark %q", resp.Remark)
		}
	}
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("copy"), sendFields("%RETRY%g", 0, "RETRY_TOPIC=T;ORIGIN_MESSAGE_ID=x;DELAY=3", "j", "1", "l", "16")...)
	m := pullOne(t, c, "%RETRY%g", 0)
	props(t, &m, map[string]string{"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "x"})
	// Its retries keep where it came from.
	call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, "g", 0)...)
	m = pullOne(t, c, "%RETRY%g", 1)
	props(t, &m, map[string]string{"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "x"})
	if m.ReconsumeTimes != 2 {
		t.Errorf("reconsumeTimes %d, want 2", m.ReconsumeTimes)
	}
}

// The limit is the request's where it names one and its client is young enough,
// else the group's.
func TestRetryLimits(t *testing.T) {
	b := startBroker(t, nowLevels)
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	m := pullOne(t, c, "T", 0)
	dead := int64(0)
	for _, tt := range []struct {
		name    string
		group   int    // retryMaxTimes
		asked   string // maxReconsumeTimes; absent when empty
		version int32
		dies    bool // at its first failure
	}{
		{"the group's", 0, "", 479, true},
		{"the group's, again", 1, "", 479, false},
		{"the request's", 0, "1", 479, false},
		{"the request's, lower", 5, "0", 479, true},
		{"a request that leaves it to the group", 0, "-1", 479, true},
		{"a request that leaves it to the group, again", 1, "-1", 479, false},
		{"an old client's is none", 0, "5", 120, true},
		{"the first that counts", 0, "5", 121, false},
		{"a group that wants no retries of its own", -1, "", 479, true},
	} {
		updateGroup(t, c, remoting.Success, fmt.Sprintf(`{"groupName":"g","retryMaxTimes":%d}`, tt.group))
		req := remoting.NewRequest(remoting.ReqConsumerSendMsgBack)
		req.Version = tt.version
		fields := sendBackFields(&m, "g", 0)
		if tt.asked != "" {
			fields = append(fields, "maxReconsumeTimes", tt.asked)
		}
		for ; len(fields) > 0; fields = fields[2:] {
			req.Set(fields[0], fields[1])
		}
		if resp, err := c.Call(t.Context(), req); err != nil || resp.Code != 0 {
			t.Fatalf("%s: %v, %+v", tt.name, err, resp)
		}
		if tt.dies {
			dead++
		}
		have := int64(0)
		if q := b.store.FindQueue("%DLQ%g", 0); q != nil {
			have = int64(q.Max())
		}
		if have != dead {
			t.Errorf("%s: %d dead, want %d", tt.name, have, dead)
			dead = have
		}
	}
}
