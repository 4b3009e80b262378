package broker

import (
	"fmt"
	"strings"
	"testing"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// batchBody is the body of a batch of items with these properties and the
// bodies m0, m1 …
func batchBody(t testing.TB, props ...string) (body []byte) {
	t.Helper()
	for i, p := range props {
		var err error
		if body, err = message.AppendBatchItem(body, message.BatchItem{Body: fmt.Append(nil, "m", i), Properties: hide(p)}); err != nil {
			t.Fatal(err)
		}
	}
	return body
}

func createBatchTopic(t *testing.T, c *rpc.Conn, topic string) {
	t.Helper()
	call(t, c, remoting.ReqUpdateAndCreateTopic, remoting.Success, nil, createFields(topic, 2, 2, 6, "attributes", "+queue.type=BatchCQ")...)
}

// records decodes what a pull brought.
func records(t *testing.T, resp *remoting.Command) (ms []message.Message) {
	t.Helper()
	for b := resp.Body; len(b) > 0; {
		var m message.Message
		n, err := message.Decode(b, &m)
		if err != nil {
			t.Fatal(err)
		}
		ms, b = append(ms, m), b[n:]
	}
	return ms
}

func wantOffsets(t *testing.T, resp *remoting.Command, want string) {
	t.Helper()
	if got := fmt.Sprint(resp.GetString("nextBeginOffset"), " ", resp.GetString("minOffset"), " ", resp.GetString("maxOffset")); got != want {
		t.Errorf("next, min and max of the pull: got %s, want %s", got, want)
	}
}

// A topic with batch queues keeps a batch as one record, beside plain messages
// and batches without a unique key; offsets count messages.
func TestInnerBatch(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	createBatchTopic(t, c, "B")

	batch := batchBody(t, "UNIQ_KEY=u0;TAGS=x", "UNIQ_KEY=u1", "UNIQ_KEY=u2;TAGS=last")
	resp := call(t, c, remoting.ReqSendBatchMessage, remoting.Success, batch, sendFields("B", 1, "UNIQ_KEY=batch;TAGS=out;KEYS=k;INNER_NUM=7;INNER_BASE=9", "m", "true")...)
	for key, want := range map[string]string{"queueId": "1", "queueOffset": "0", "batchUniqId": "batch", "transactionId": "batch"} {
		if got := resp.GetString(key); got != want {
			t.Errorf("answer's %s: got %q, want %q", key, got, want)
		}
	}
	if id := resp.GetString("msgId"); len(id) != 32 {
		t.Errorf("msgId of an inner batch: got %q, want one id", id)
	}
	for i, send := range []struct {
		code   remoting.RequestCode
		body   []byte
		fields []string
		offset string
	}{
		{remoting.ReqSendMessageV2, []byte("plain"), sendFields("B", 1, "UNIQ_KEY=p;TAGS=out"), "3"},
		{remoting.ReqSendBatchMessage, batchBody(t, "UNIQ_KEY=c0", "UNIQ_KEY=c1"), sendFields("B", 1, "", "m", "true"), "4"},
		{remoting.ReqSendMessageV2, []byte("packed by its client"), sendFields("B", 1, "UNIQ_KEY=w;INNER_NUM=2", "f", "193"), "6"},
		{remoting.ReqSendBatchMessage, batchBody(t, "UNIQ_KEY=l0"), sendFields("B", 1, "UNIQ_KEY=last", "m", "true"), "8"},
	} {
		resp := call(t, c, send.code, remoting.Success, send.body, send.fields...)
		if resp.GetString("queueOffset") != send.offset || resp.GetString("batchUniqId") != map[bool]string{true: "last"}[i == 3] {
			t.Errorf("send %d: got offset %s, batchUniqId %q, want %s", i, resp.GetString("queueOffset"), resp.GetString("batchUniqId"), send.offset)
		}
	}

	check := func(c *rpc.Conn) {
		t.Helper()
		// An offset inside a batch brings all of it.
		got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("B", 1, 2)...)
		wantOffsets(t, got, "9 0 9")
		ms := records(t, got)
		if len(ms) != 6 {
			t.Fatalf("pulled %d records, want 6", len(ms))
		}
		for i, want := range []struct {
			offset  message.QueueOffset
			sysFlag int32
			props   string
			body    string
		}{
			{0, 0xC0, "UNIQ_KEY=batch TAGS=out KEYS=k INNER_NUM=3 INNER_BASE=0", string(batch)},
			{3, 0, "UNIQ_KEY=p INNER_NUM= INNER_BASE=", "plain"},
			{4, 0, "UNIQ_KEY=c0 INNER_NUM= INNER_BASE=", "m0"},
			{5, 0, "UNIQ_KEY=c1 INNER_NUM= INNER_BASE=", "m1"},
			{6, 0xC1, "UNIQ_KEY=w INNER_NUM=2 INNER_BASE=6", "packed by its client"},
			{8, 0xC0, "UNIQ_KEY=last INNER_NUM=1 INNER_BASE=8", string(batchBody(t, "UNIQ_KEY=l0"))},
		} {
			m := ms[i]
			if m.QueueOffset != want.offset || m.SysFlag != want.sysFlag || string(m.Body) != want.body {
				t.Errorf("record %d: offset %d, sysFlag %x, body %q, want %+v", i, m.QueueOffset, m.SysFlag, m.Body, want)
			}
			for pair := range strings.SplitSeq(want.props, " ") {
				name, value, _ := strings.Cut(pair, "=")
				if got, _ := message.Property(m.Properties, name); string(got) != value {
					t.Errorf("record %d: property %s is %q, want %q", i, name, got, value)
				}
			}
		}
		wantOffsets(t, call(t, c, remoting.ReqPullMessage, remoting.PullNotFound, nil, pullFields("B", 1, 9)...), "9 0 9")
		// maxMsgNums counts messages, and a batch comes whole.
		got = call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("B", 1, 1, "maxMsgNums", "2")...)
		wantOffsets(t, got, "3 0 9")
		got = call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("B", 1, 3, "maxMsgNums", "4")...)
		wantOffsets(t, got, "6 0 9")
		// The filter sees the batch's own tag.
		got = call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("B", 1, 0, "subscription", "out")...)
		if wantOffsets(t, got, "9 0 9"); len(records(t, got)) != 2 {
			t.Errorf("pulled by tag: %d records, want 2", len(records(t, got)))
		}
		for _, code := range []remoting.RequestCode{remoting.ReqGetMaxOffset, remoting.ReqGetMinOffset} {
			want := map[remoting.RequestCode]string{remoting.ReqGetMaxOffset: "9", remoting.ReqGetMinOffset: "0"}[code]
			if got := call(t, c, code, remoting.Success, nil, "topic", "B", "queueId", "1").GetString("offset"); got != want {
				t.Errorf("%s: got %s, want %s", code, got, want)
			}
		}
	}
	check(c)
	// A consumer can not send a whole batch back; it sends the one message.
	m := records(t, call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("B", 1, 0)...))[0]
	heartbeat(t, c, "client", "cg", "B", "*")
	call(t, c, remoting.ReqConsumerSendMsgBack, remoting.SystemError, nil, sendBackFields(&m, "cg", 0)...)

	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	check(dial(t, b))
}

// What is no batch, or could not be counted, is refused whole.
func TestBatchRefusals(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	createBatchTopic(t, c, "B")
	good := batchBody(t, "UNIQ_KEY=u0", "UNIQ_KEY=u1")
	short := good[:len(good)-1]
	negative := append([]byte(nil), good...)
	negative[0] = 0xFF
	negativeBody := append([]byte(nil), good...)
	negativeBody[16] = 0x80
	negativeProps := append([]byte(nil), good...)
	negativeProps[22] = 0x80
	small := append([]byte(nil), good...)
	small[3] = 21
	longProps := batchBody(t, "UNIQ_KEY=u", fmt.Sprintf("P=%032700d", 0))
	longest := batchBody(t, fmt.Sprintf("P=%032765d", 0))
	for _, tc := range []struct {
		name    string
		body    []byte
		plain   remoting.ResponseCode // to a plain topic
		batchCQ remoting.ResponseCode // to one with batch queues
		props   string
		more    []string
	}{
		{"a piece of an item", short, 13, 13, "", nil},
		{"garbage behind the last item", append(good[:len(good):len(good)], 0, 0, 0), 13, 13, "", nil},
		{"no item", []byte("garbage"), 13, 13, "", nil},
		{"zeros", make([]byte, 40), 13, 13, "", nil},
		{"a negative size", negative, 13, 13, "", nil},
		{"a size below an item's least", small, 13, 13, "", nil},
		{"a negative body length", negativeBody, 13, 13, "", nil},
		{"negative properties", negativeProps, 13, 13, "", nil},
		// One record each: the broker's own properties must fit too.
		{"properties too long with the broker's own", longProps, 13, 0, "", nil},
		{"properties of 32,767 bytes", longest, 13, 0, "", nil},
		{"the batch's own properties too long", good, 0, 13, fmt.Sprintf(";P=%032700d", 0), nil},
		{"a delayed item", batchBody(t, "UNIQ_KEY=u", "DELAY=3"), 13, 13, "", nil},
		{"a timed item", batchBody(t, "UNIQ_KEY=u", "TIMER_DELAY_MS=3"), 13, 13, "", nil},
		{"a half message", batchBody(t, "TRAN_MSG=true"), 13, 13, "", nil},
		{"a delayed batch", good, 13, 13, ";DELAY=3", nil},
		{"a timed batch", good, 13, 13, ";TIMER_DELIVER_MS=3", nil},
		{"a transaction's batch", good, 13, 13, "", []string{"f", "4"}},
		{"an inner batch by its flag", good, 13, 0, "", []string{"f", "128"}},
		{"a compressed batch", good, 0, 13, "", []string{"f", "1"}},
		{"one message that says it is a batch", []byte("x"), 13, 13, ";INNER_NUM=2", []string{"m", "false"}},
		{"a packed batch of no messages", []byte("x"), 13, 13, ";INNER_NUM=0", []string{"f", "192", "m", "false"}},
		{"a packed batch of too many", []byte("x"), 13, 13, ";INNER_NUM=32768", []string{"f", "192", "m", "false"}},
		{"a packed batch without a number", []byte("x"), 13, 13, "", []string{"f", "192", "m", "false"}},
		{"a packed batch, delayed", []byte("x"), 13, 13, ";INNER_NUM=2;DELAY=1", []string{"f", "192", "m", "false"}},
		{"a packed batch", []byte("x"), 13, 0, ";INNER_NUM=2", []string{"f", "192", "m", "false"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for topic, want := range map[string]remoting.ResponseCode{"P": tc.plain, "B": tc.batchCQ} {
				before := maxOffset(b, topic)
				fields := append(sendFields(topic, 0, "UNIQ_KEY=batch"+tc.props, "m", "true"), tc.more...)
				resp := call(t, c, remoting.ReqSendBatchMessage, want, tc.body, dedup(fields)...)
				if stored := maxOffset(b, topic) != before; stored != (want == 0) {
					t.Errorf("topic %s answered %d and stored it: %t", topic, resp.Code, stored)
				}
				if want != 0 && (len(resp.Remark) < 20 || resp.GetString("MSG_REGION") == "") {
					t.Errorf("topic %s: remark %q, fields %v", topic, resp.Remark, resp.Fields)
				}
			}
		})
	}
	t.Run("to a retry topic", func(t *testing.T) {
		heartbeat(t, c, "client", "cg", "B", "*")
		call(t, c, remoting.ReqSendBatchMessage, remoting.MessageIllegal, good, sendFields("%RETRY%cg", 0, "UNIQ_KEY=batch", "m", "true")...)
	})
}

func maxOffset(b *Broker, topic string) message.QueueOffset {
	if q := b.store.FindQueue(topic, 0); q != nil {
		return q.Max()
	}
	return 0
}

// dedup keeps the last value of each field.
func dedup(fields []string) []string {
	var out []string
	for i := 0; i < len(fields); i += 2 {
		for j := 0; j < len(out); j += 2 {
			if out[j] == fields[i] {
				out = append(out[:j], out[j+2:]...)
				break
			}
		}
		out = append(out, fields[i], fields[i+1])
	}
	return out
}

// FuzzBatchSend sends any body as a batch, to both kinds of queues: nothing
// may be stored of one that is refused, and what is taken decodes.
func FuzzBatchSend(f *testing.F) {
	f.Add(batchBody(f, "UNIQ_KEY=u0;TAGS=a", "UNIQ_KEY=u1"), []byte("UNIQ_KEY=b"))
	f.Add([]byte{0, 0, 0, 22}, []byte("DELAY=1"))
	b := &Broker{stamp: propsStamp("R", true, "C"), ids: propsBroker().ids}
	f.Fuzz(func(t *testing.T, body, props []byte) {
		var found sentProps
		stored := b.appendStoredProps(nil, hide(string(props)), &found)
		count := 0
		err := message.EachBatchItem(body, func(item message.BatchItem) error {
			count++
			own := b.appendStoredProps(nil, item.Properties, &found)
			if key, _ := message.Property(own, message.PropUniqKey); len(key) == 0 {
				t.Fatalf("item %d has no unique key: %q", count, own)
			}
			return nil
		})
		if err != nil || count == 0 || len(stored) > 30000 {
			return
		}
		stored = message.AppendInnerBase(message.AppendProperty(stored, message.PropInnerNum, fmt.Sprint(count)))
		rec, err := message.Append(nil, &message.Message{Topic: []byte("T"), SysFlag: message.SysFlagInnerBatch, Body: body, Properties: stored})
		if err != nil || !message.HasInnerBase(rec) {
			t.Fatalf("no room for INNER_BASE: %v", err)
		}
		message.Stamp(rec, 12, 0, 1)
		rec = rec[:message.StampInnerBase(rec, 12)]
		if _, _, err := message.Check(rec, 0, true); err != nil || count <= message.InnerNumMax && int(message.InnerNum(rec)) != count {
			t.Fatalf("%d messages, the record says %d: %v", count, message.InnerNum(rec), err)
		}
	})
}

// Without enableLmq INNER_MULTI_DISPATCH is a property like any other, as at
// Apache's broker; with it the broker does not start.
func TestMultiDispatchIsPlain(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	const want = "%LMQ%one,%LMQ%two"
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "UNIQ_KEY=u;INNER_MULTI_DISPATCH="+want+";INNER_MULTI_QUEUE_OFFSET=4,5")...)
	m := records(t, call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0)...))[0]
	if got, _ := message.Property(m.Properties, message.PropInnerMultiDispatch); string(got) != want {
		t.Errorf("stored property: got %q, want %q", got, want)
	}
	for _, q := range b.store.Queues().Topics() {
		if strings.HasPrefix(q, "%LMQ%") {
			t.Errorf("there is a queue of topic %s", q)
		}
	}
	for _, key := range []string{"enableLmq", "enableMultiDispatch"} {
		_, _, err := LoadConfig(parseSettings(t, key+"=true\n"))
		if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "light message queues") {
			t.Errorf("%s=true: %v", key, err)
		}
	}
}
