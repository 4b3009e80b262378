package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// A group's own policy spaces what its consumers send back without naming a
// level.
func TestRetryPolicy(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.MessageDelayLevel = "7s 1h 1s 1h" })
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "UNIQ_KEY=u;TAGS=a")...)
	m := pullOne(t, c, "T", 0)
	first := string(message.AppendOffsetID(nil, m.StoreHost, m.PhysicalOffset))
	for i, tt := range []struct {
		name, policy string
		least        time.Duration
		timer        bool
	}{
		{"at once", `{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[0]}}`, 0, false},
		{"a time of its own", `{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1,1,1,400,700]}}`, 400 * time.Millisecond, true},
		{"the next time", `{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1,1,1,400,700]}}`, 700 * time.Millisecond, true},
		{"by a formula", `{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5,"max":800,"multiplier":10}}`, 800 * time.Millisecond, true},
	} {
		updateGroup(t, c, remoting.Success, `{"groupName":"g","groupRetryPolicy":`+tt.policy+`}`)
		began := time.Now()
		call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, "g", 0)...)
		m = pullOne(t, c, "%RETRY%g", int64(i))
		if took := time.Since(began); took < tt.least || took > tt.least+4*time.Second {
			t.Errorf("%s: came after %v, want %v", tt.name, took, tt.least)
		}
		props(t, &m, map[string]string{"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": first, "UNIQ_KEY": "u", "TAGS": "a", "DELAY": ""})
		if _, timed := message.Property(m.Properties, message.PropTimerDeliverMs); timed != tt.timer || m.ReconsumeTimes != int32(i)+1 {
			t.Errorf("%s: reconsumeTimes %d, properties %q", tt.name, m.ReconsumeTimes, m.Properties)
		}
	}
	// A level that a consumer names counts whatever the policy says, and nothing of
	// an earlier wait is left.
	call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, "g", 3)...)
	m = pullOne(t, c, "%RETRY%g", 4)
	props(t, &m, map[string]string{"DELAY": "3", "TIMER_DELIVER_MS": "", "TIMER_OUT_MS": ""})
}

// Where messages can't wait for a time of their own, the next level has to do.
func TestRetryPolicyByLevels(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.MessageDelayLevel, c.TimerWheelEnable = "1h 5s 10s 1m", false })
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	m := pullOne(t, c, "T", 0)
	for _, tt := range []struct {
		millis int64
		level  int
	}{{1, 2}, {5000, 2}, {5001, 3}, {30_000, 4}, {60_001, 1}, {7_200_000, 1}} {
		updateGroup(t, c, remoting.Success, fmt.Sprintf(`{"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[%d]}}}`, tt.millis))
		q := b.store.Queue("SCHEDULE_TOPIC_XXXX", int32(tt.level-1))
		before := q.Max()
		call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, "g", 0)...)
		if q.Max() != before+1 {
			t.Errorf("a wait of %d ms doesn't take level %d", tt.millis, tt.level)
		}
	}
}
