package broker

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// What a message's times may be, and what becomes of it; nothing wraps around
// to a delivery at once.
func TestTimerTimes(t *testing.T) {
	cfg := DefaultConfig()
	b := &Broker{cfg: &cfg, ids: message.NewIDs(testAddr.Addr())}
	const now = int64(1_700_000_000_000)
	const year = 365 * 24 * 3600
	for _, tt := range []struct {
		props string // name=value;…
		want  int64  // 0: at once
		ok    bool
	}{
		{"TIMER_DELAY_SEC=1", now + 1000, true},
		{"TIMER_DELAY_SEC=+1", now + 1000, true},
		{"TIMER_DELAY_SEC=" + strconv.Itoa(year), now + year*1000, true},
		{"TIMER_DELAY_SEC=" + strconv.Itoa(year+1), 0, false},
		{"TIMER_DELAY_SEC=9223372036854775807", 0, false},
		{"TIMER_DELAY_SEC=9223372036854775", 0, false},
		{"TIMER_DELAY_SEC=18446744073709552", 0, false}, // × 1000 wraps to 384
		{"TIMER_DELAY_SEC=9223372036854775808", 0, false},
		{"TIMER_DELAY_SEC=-1", 0, true},
		{"TIMER_DELAY_SEC=-9223372036854775808", 0, true},
		{"TIMER_DELAY_SEC=-18446744073709551", 0, true},
		{"TIMER_DELAY_SEC=0", 0, true},
		{"TIMER_DELAY_SEC=1.5", 0, false},
		{"TIMER_DELAY_SEC= 1", 0, false},
		{"TIMER_DELAY_SEC=soon", 0, false},
		{"TIMER_DELAY_MS=1", now + 1, true},
		{"TIMER_DELAY_MS=999", now + 999, true},
		{"TIMER_DELAY_MS=9223372036854775807", 0, false},
		{"TIMER_DELAY_MS=-9223372036854775808", 0, true},
		{"TIMER_DELAY_MS=", 0, true}, // no property at all
		{fmt.Sprint("TIMER_DELIVER_MS=", now+1), now + 1, true},
		{fmt.Sprint("TIMER_DELIVER_MS=", now), 0, true},
		{fmt.Sprint("TIMER_DELIVER_MS=", now-1), 0, true},
		{fmt.Sprint("TIMER_DELIVER_MS=", now+year*1000), now + year*1000, true},
		{fmt.Sprint("TIMER_DELIVER_MS=", now+year*1000+1), 0, false},
		{fmt.Sprint("TIMER_DELIVER_MS=", now/1000), 0, true}, // seconds, by mistake
		{fmt.Sprint("TIMER_DELIVER_MS=", int64(math.MaxInt64)), 0, false},
		{fmt.Sprint("TIMER_DELIVER_MS=", int64(math.MinInt64)), 0, true},
		{"TIMER_DELIVER_MS=x", 0, false},
		// Seconds win over milliseconds, these over a time.
		{"TIMER_DELAY_MS=5;TIMER_DELAY_SEC=2;TIMER_DELIVER_MS=9", now + 2000, true},
		{"TIMER_DELIVER_MS=9;TIMER_DELAY_MS=5", now + 5, true},
		{"TIMER_DELAY_MS=5;TIMER_DELAY_SEC=x", 0, false},
		// A cancellation can't be for now.
		{"TIMER_DELAY_SEC=0;TIMER_DEL_UNIQKEY=T+K", 0, false},
		{"TIMER_DELAY_SEC=3;TIMER_DEL_UNIQKEY=T+K", now + 3000, true},
	} {
		var found sentProps
		b.appendStoredProps(nil, hide(tt.props), &found)
		due := int64(0)
		var err error
		if found.timer != nil {
			due, err = b.timerOutMs(&found, now)
		}
		if due != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: due %d, %v, want %d, ok=%v", tt.props, due, err, tt.want, tt.ok)
		}
		if err == nil {
			continue
		}
		if code, _ := errorReply(err); code != remoting.MessageIllegal {
			t.Errorf("%s: code %d, want 13", tt.props, code)
		}
	}
}

func sendTimed(t *testing.T, c *rpc.Conn, want remoting.ResponseCode, props string) *remoting.Command {
	t.Helper()
	return call(t, c, remoting.ReqSendMessageV2, want, []byte("body"), sendFields("T", 2, props)...)
}

func TestTimerOverTheWire(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.RecallMessageEnable, c.TimerMaxDelaySec = true, 1000 })
	c := dial(t, b)
	plain := sendTimed(t, c, remoting.Success, "UNIQ_KEY=K0")
	if h, ok := plain.Get("recallHandle"); ok {
		t.Errorf("a plain send is answered with handle %q", h)
	}
	before := time.Now().UnixMilli()
	resp := sendTimed(t, c, remoting.Success, "UNIQ_KEY=K1;TIMER_DELAY_MS=700;REAL_TOPIC=elsewhere;REAL_QID=9")
	handle, err := remoting.ParseRecallHandle(resp.GetString("recallHandle"))
	if err != nil || handle.Topic != "T" || handle.BrokerName != "broker-t" || handle.UniqKey != "K1" {
		t.Fatalf("handle %+v, %v", handle, err)
	}
	due, _ := strconv.ParseInt(handle.Millis, 10, 64)
	if due < before+700 || due > time.Now().UnixMilli()+700 {
		t.Errorf("due %d, sent at %d", due, before)
	}
	if q := resp.GetString("queueId"); q != "2" {
		t.Errorf("answered queue %s, want the asked one", q)
	}
	// Answers of a wrong level, a wrong time.
	for props, want := range map[string]remoting.ResponseCode{
		"TIMER_DELAY_SEC=1001": remoting.MessageIllegal, "TIMER_DELAY_SEC=x": remoting.MessageIllegal,
		"TIMER_DELIVER_MS=99999999999999999": remoting.MessageIllegal, "DELAY=x": remoting.MessageIllegal,
		"DELAY=99999999999": remoting.MessageIllegal, "TIMER_DELIVER_MS=5;TIMER_DEL_UNIQKEY=T+K": remoting.MessageIllegal,
	} {
		if r := sendTimed(t, c, want, "UNIQ_KEY=bad;"+props); len(r.Remark) == 0 {
			t.Errorf("%s: refused without a remark", props)
		}
	}
	// A level wins and drops the times; a message that was a timer's is plain.
	sendTimed(t, c, remoting.Success, "UNIQ_KEY=K2;TIMER_DELAY_SEC=900;DELAY=1;TIMER_DELAY_MS=1")
	if r := sendTimed(t, c, remoting.Success, "UNIQ_KEY=K3;TIMER_DELAY_SEC=900;TIMER_OUT_MS=1"); r.GetString("recallHandle") != "" {
		t.Error("a delivered timer message waits again")
	}
	keys := map[string]int64{}
	deadline := time.Now().Add(20 * time.Second)
	for off := int64(0); len(keys) < 4 && time.Now().Before(deadline); {
		r := pullFirst(t, c, "T", 2, off)
		if r == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		off = int64(r.QueueOffset) + 1
		key, _ := message.Property(r.Properties, message.PropUniqKey)
		keys[string(key)] = r.StoreMillis
		sec, hasSec := message.Property(r.Properties, message.PropTimerDelaySec)
		if string(key) == "K2" && hasSec {
			t.Errorf("a level's message kept %s=%s", message.PropTimerDelaySec, sec)
		}
	}
	for _, key := range []string{"K0", "K1", "K2", "K3"} {
		if keys[key] == 0 {
			t.Errorf("%s didn't come; got %v", key, keys)
		}
	}
	if late := keys["K1"] - due; late < 0 || late > 1000 {
		t.Errorf("K1 came %d ms after its time, want to the second or better", late)
	}
}

// pullFirst pulls one message, nil when there is none.
func pullFirst(t *testing.T, c *rpc.Conn, topic string, queue int, offset int64) *message.Message {
	t.Helper()
	req := remoting.NewRequest(remoting.ReqPullMessage)
	for f := pullFields(topic, queue, offset, "maxMsgNums", "1"); len(f) > 0; f = f[2:] {
		req.Set(f[0], f[1])
	}
	resp, err := c.Call(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Code != int32(remoting.Success) {
		return nil
	}
	var m message.Message
	if _, err := message.Decode(resp.Body, &m); err != nil {
		t.Fatal(err)
	}
	return &m
}

func TestTimersOff(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.TimerWheelEnable = false })
	c := dial(t, b)
	if r := sendTimed(t, c, remoting.SystemError, "TIMER_DELAY_SEC=1"); !strings.Contains(string(r.Remark), "timerWheelEnable") {
		t.Errorf("remark %q", r.Remark)
	}
	sendTimed(t, c, remoting.Success, "UNIQ_KEY=K;DELAY=1;TIMER_DELAY_SEC=1")
}

func TestRecallOverTheWire(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.RecallMessageEnable, c.TimerMaxDelaySec = true, 1000 })
	c := dial(t, b)
	handle := sendTimed(t, c, remoting.Success, "UNIQ_KEY=gone;TIMER_DELAY_MS=1500").GetString("recallHandle")
	sendTimed(t, c, remoting.Success, "UNIQ_KEY=stays;TIMER_DELAY_MS=1500")
	r := call(t, c, remoting.ReqRecallMessage, remoting.Success, nil, "producerGroup", "pg", "topic", "T", "recallHandle", handle)
	if r.GetString("msgId") != "gone" || r.GetString(message.PropMsgRegion) != "DefaultRegion" {
		t.Errorf("answered %s", r.Fields)
	}
	due := func(h remoting.RecallHandle) string { return h.String() }
	soon := fmt.Sprint(time.Now().UnixMilli() + 60_000)
	for what, tt := range map[string]struct {
		topic, handle string
		want          remoting.ResponseCode
	}{
		"unknown topic":  {"Nowhere", handle, remoting.TopicNotExist},
		"other topic":    {meta.BenchmarkTopic, handle, remoting.IllegalOperation},
		"not base64":     {"T", "%%%", remoting.IllegalOperation},
		"four words":     {"T", base64.URLEncoding.EncodeToString([]byte("v1 T broker-t 1")), remoting.IllegalOperation},
		"another format": {"T", base64.URLEncoding.EncodeToString([]byte("v2 T broker-t " + soon + " K")), remoting.IllegalOperation},
		"other broker":   {"T", due(remoting.RecallHandle{Topic: "T", BrokerName: "b2", Millis: soon, UniqKey: "K"}), remoting.IllegalOperation},
		"over":           {"T", due(remoting.RecallHandle{Topic: "T", BrokerName: "broker-t", Millis: "5", UniqKey: "K"}), remoting.IllegalOperation},
		"no number":      {"T", due(remoting.RecallHandle{Topic: "T", BrokerName: "broker-t", Millis: "x", UniqKey: "K"}), remoting.IllegalOperation},
		"too far":        {"T", due(remoting.RecallHandle{Topic: "T", BrokerName: "broker-t", Millis: "9223372036854775807", UniqKey: "K"}), remoting.IllegalOperation},
		"a separator":    {"T", due(remoting.RecallHandle{Topic: "T", BrokerName: "broker-t", Millis: soon, UniqKey: "K\x02REAL_TOPIC\x01U"}), remoting.IllegalOperation},
		"no handle":      {"T", "", remoting.SystemError},
	} {
		fields := []string{"topic", tt.topic, "recallHandle", tt.handle}
		if tt.handle == "" {
			fields = fields[:2]
		}
		if r := call(t, c, remoting.ReqRecallMessage, tt.want, nil, fields...); len(r.Remark) == 0 {
			t.Errorf("%s: refused without a remark", what)
		}
	}
	var key []byte
	for deadline := time.Now().Add(20 * time.Second); key == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if m := pullFirst(t, c, "T", 2, 0); m != nil {
			key, _ = message.Property(m.Properties, message.PropUniqKey)
		}
	}
	time.Sleep(100 * time.Millisecond)
	if string(key) != "stays" || pullFirst(t, c, "T", 2, 1) != nil {
		t.Errorf("got %q, and %+v behind it; want only what wasn't recalled", key, pullFirst(t, c, "T", 2, 1))
	}
	off := startBroker(t, nil)
	call(t, dial(t, off), remoting.ReqRecallMessage, remoting.NoPermission, nil, "topic", "T", "recallHandle", handle)
}

// The producer's clock is ten hours off, either way: delays count from when the
// broker stores the message.
func TestProducerClockIsOff(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.MessageDelayLevel = "1s" })
	c := dial(t, b)
	delays := []string{"DELAY=1", "TIMER_DELAY_SEC=1", "TIMER_DELAY_MS=1000"}
	sent := time.Now().UnixMilli()
	for queue, delay := range delays {
		for _, off := range []time.Duration{-10 * time.Hour, 10 * time.Hour} {
			fields := sendFields("T", queue, delay)
			for k := range fields {
				if fields[k] == "g" {
					fields[k+1] = fmt.Sprint(time.Now().Add(off).UnixMilli())
				}
			}
			call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("body"), fields...)
		}
	}
	for queue, delay := range delays {
		for offset := range int64(2) {
			var m *message.Message
			for deadline := time.Now().Add(20 * time.Second); m == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				m = pullFirst(t, c, "T", queue, offset)
			}
			if m == nil || m.StoreMillis < sent+1000 || m.StoreMillis > sent+5000 {
				t.Errorf("%s, message %d: delivered %+v, sent at %d", delay, offset, m, sent)
			}
		}
	}
}
