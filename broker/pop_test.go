package broker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

func popFields(topic string, queue, most int, invisible, poll int64, more ...string) []string {
	return append([]string{"consumerGroup", "g", "topic", topic, "queueId", strconv.Itoa(queue), "maxMsgNums", strconv.Itoa(most),
		"invisibleTime", fmt.Sprint(invisible), "pollTime", fmt.Sprint(poll), "bornTime", fmt.Sprint(time.Now().UnixMilli()), "initMode", "0"}, more...)
}

// A popped is a message of a pop's answer with its handle, as a client makes it.
type popped struct {
	message.Message
	body, ck, topic string
}

// pops decodes a pop's answer as processPopResponse of 5.3.3 does.
func pops(t *testing.T, resp *remoting.Command) []popped {
	t.Helper()
	var h remoting.PopReply
	if err := h.Decode(resp); err != nil {
		t.Fatal(err)
	}
	infos := func(s []byte) map[string]string {
		m := map[string]string{}
		for record := range strings.SplitSeq(string(s), ";") {
			items := strings.Split(record, " ")
			if len(items) != 3 {
				if record != "" {
					t.Fatalf("info record %q", record)
				}
				continue
			}
			key := items[0] + "@" + items[1]
			if m[key] != "" {
				t.Fatalf("info %q names %s twice: clients refuse that", s, key)
			}
			m[key] = items[2]
		}
		return m
	}
	starts, offsets := infos(h.StartOffsetInfo), infos(h.MsgOffsetInfo)
	infos(h.OrderCountInfo)
	var out []popped
	for b := resp.Body; len(b) > 0; {
		var p popped
		n, err := message.Decode(b, &p.Message)
		if err != nil {
			t.Fatal(err)
		}
		b = b[n:]
		p.body, p.topic = string(p.Body), string(p.Topic)
		ck, ok := message.Property(p.Properties, message.PropPopCK)
		p.ck = string(ck)
		if !ok {
			key := fmt.Sprintf("%c@%d", popRetryFlag(p.topic), p.QueueID)
			if !slices.Contains(strings.Split(offsets[key], ","), fmt.Sprint(p.QueueOffset)) {
				t.Fatalf("msgOffsetInfo %q lacks offset %d of %s", h.MsgOffsetInfo, p.QueueOffset, key)
			}
			start, err := strconv.ParseInt(starts[key], 10, 64)
			if err != nil {
				t.Fatalf("startOffsetInfo %q lacks %s", h.StartOffsetInfo, key)
			}
			handle := remoting.PopCK{Start: start, PopMillis: h.PopMillis, InvisibleMillis: h.InvisibleMillis, ReviveQueueID: h.ReviveQueueID,
				Retry: popRetryFlag(p.topic), BrokerName: []byte("broker-t"), QueueID: p.QueueID, Offset: int64(p.QueueOffset)}
			p.ck = string(handle.Append(nil))
		}
		out = append(out, p)
	}
	return out
}

func bodiesOf(ps []popped) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.body)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// ackFields are those of ACK_MESSAGE for p, popped of topic by group g.
func ackFields(topic string, p popped, more ...string) []string {
	var ck remoting.PopCK
	_ = ck.Parse([]byte(p.ck))
	real := topic
	if ck.Retry != '0' {
		real = string(appendRetryTopic(nil, topic, "g", ck.Retry))
	}
	return append([]string{"consumerGroup", "g", "topic", real, "queueId", fmt.Sprint(ck.QueueID), "extraInfo", p.ck, "offset", fmt.Sprint(ck.Offset)}, more...)
}

func ack(t *testing.T, c *rpc.Conn, topic string, ps ...popped) {
	t.Helper()
	for _, p := range ps {
		call(t, c, remoting.ReqAckMessage, remoting.Success, nil, ackFields(topic, p)...)
	}
}

func sendTo(t *testing.T, c *rpc.Conn, topic string, queue int, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte(body), sendFields(topic, queue, "UNIQ_KEY="+body+";TAGS=tag")...)
	}
}

// popUntil pops until it has n messages.
func popUntil(t *testing.T, c *rpc.Conn, topic string, n int, invisible int64, more ...string) (all []popped) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); len(all) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("popped only %s, want %d messages", bodiesOf(all), n)
		}
		req := remoting.NewRequest(remoting.ReqPopMessage)
		for f := popFields(topic, -1, 32, invisible, 1000, more...); len(f) > 0; f = f[2:] {
			req.Set(f[0], f[1])
		}
		resp, err := c.Call(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Code == int32(remoting.Success) {
			all = append(all, pops(t, resp)...)
		} else if resp.Code != int32(remoting.PollingTimeout) {
			t.Fatalf("pop: got code %d %s", resp.Code, resp.Remark)
		}
	}
	return all
}

func TestPopAckAndCommit(t *testing.T) {
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			b := startBroker(t, func(c *Config) { c.FlushDiskType = flush })
			c := dial(t, b)
			sendTo(t, c, "T", 1, "a", "b", "c")
			sendTo(t, c, "T", 2, "d")
			resp := call(t, c, remoting.ReqPopMessage, remoting.Success, nil, popFields("T", -1, 32, 60_000, 0)...)
			ps := pops(t, resp)
			if got := bodiesOf(ps); got != "a b c d" {
				t.Fatalf("popped %q", got)
			}
			if resp.GetString("invisibleTime") != "60000" || resp.GetString("restNum") != "0" {
				t.Errorf("answer: got invisibleTime %s, restNum %s", resp.GetString("invisibleTime"), resp.GetString("restNum"))
			}
			// In flight they are nobody else's.
			call(t, c, remoting.ReqPopMessage, remoting.PollingTimeout, nil, popFields("T", -1, 32, 60_000, 0)...)
			if at, _ := b.offsets.Get([]byte("T"), []byte("g"), 1); at != 0 {
				t.Errorf("committed with nothing acknowledged: got %d, want 0", at)
			}
			for _, p := range ps {
				if p.body == "a" || p.body == "c" || p.body == "d" {
					ack(t, c, "T", p)
				}
			}
			if at, _ := b.offsets.Get([]byte("T"), []byte("g"), 1); at != 1 {
				t.Errorf("committed with b in flight: got %d, want 1", at)
			}
			for _, p := range ps {
				ack(t, c, "T", p) // those that are done: answered the same
			}
			for id, want := range map[int32]int64{1: 3, 2: 1} {
				if at, _ := b.offsets.Get([]byte("T"), []byte("g"), id); at != want {
					t.Errorf("committed of queue %d: got %d, want %d", id, at, want)
				}
			}
			if b.pops.Flying() != 0 {
				t.Errorf("in flight after all: %d", b.pops.Flying())
			}
		})
	}
}

// What nobody acknowledges comes back on the retry topic under its own name,
// counted, until it is.
func TestPopRevive(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		t.Run(fmt.Sprint("v2 ", v2), func(t *testing.T) {
			b := startBroker(t, func(c *Config) { c.EnableRetryTopicV2 = v2 })
			c := dial(t, b)
			sendTo(t, c, "T", 0, "a", "b", "c")
			first := popUntil(t, c, "T", 3, 200)
			for _, p := range first {
				if p.body == "b" {
					ack(t, c, "T", p)
				}
			}
			again := popUntil(t, c, "T", 2, 200)
			if got := bodiesOf(again); got != "a c" {
				t.Fatalf("came back: %q", got)
			}
			for _, p := range again {
				if p.topic != "T" || p.ReconsumeTimes != 1 {
					t.Errorf("%s came back as of topic %s, reconsumed %d times; want T, 1", p.body, p.topic, p.ReconsumeTimes)
				}
				if first, _ := message.Property(p.Properties, message.PropFirstPopTime); string(first) == "" {
					t.Errorf("%s came back without %s", p.body, message.PropFirstPopTime)
				}
			}
			for _, p := range first { // expired handles: answered, and without effect
				ack(t, c, "T", p)
			}
			third := popUntil(t, c, "T", 2, 60_000)
			for _, p := range third {
				if p.ReconsumeTimes != 2 {
					t.Errorf("%s came back again, reconsumed %d times, want 2", p.body, p.ReconsumeTimes)
				}
			}
			ack(t, c, "T", third...)
			retry := b.popRetryTopic("T", "g")
			waitFor(t, "everything is done", func() bool {
				at, _ := b.offsets.Get([]byte("T"), []byte("g"), 0)
				retried, _ := b.offsets.Get([]byte(retry), []byte("g"), 0)
				return at == 3 && retried == 4 && b.pops.Flying() == 0
			})
		})
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestPopChangeInvisible(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "a", "b")
	ps := popUntil(t, c, "T", 2, 60_000)
	resp := call(t, c, remoting.ReqChangeMessageInvisibleTime, remoting.Success, nil, ackFields("T", ps[0], "invisibleTime", "100")...)
	again := popUntil(t, c, "T", 1, 60_000)
	if again[0].body != ps[0].body || again[0].ReconsumeTimes != 1 {
		t.Errorf("came back: %s, reconsumed %d times; want %s, 1", again[0].body, again[0].ReconsumeTimes, ps[0].body)
	}
	if resp.GetString("invisibleTime") != "100" || resp.GetString("reviveQid") != "0" {
		t.Errorf("answer: %s %s", resp.GetString("invisibleTime"), resp.GetString("reviveQid"))
	}
	// A longer time, and an acknowledgement by the handle made of the answer.
	resp = call(t, c, remoting.ReqChangeMessageInvisibleTime, remoting.Success, nil, ackFields("T", ps[1], "invisibleTime", "90000")...)
	at, _ := strconv.ParseInt(resp.GetString("popTime"), 10, 64)
	ck := remoting.PopCK{Start: int64(ps[1].QueueOffset), PopMillis: at, InvisibleMillis: 90_000, Retry: '0', BrokerName: []byte("broker-t"), Offset: int64(ps[1].QueueOffset)}
	changed := ps[1]
	changed.ck = string(ck.Append(nil))
	waitFor(t, "the redelivered one is durable", func() bool { return b.pops.Flying() == 2 })
	ack(t, c, "T", ps[1]) // the old handle
	if b.pops.Flying() != 2 {
		t.Error("a handle that was changed still acknowledges")
	}
	ack(t, c, "T", changed, again[0])
	if b.pops.Flying() != 0 {
		t.Errorf("in flight after all: %d", b.pops.Flying())
	}
}

func TestPopBatchAck(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 3, "a", "b", "c", "d")
	ps := popUntil(t, c, "T", 4, 60_000)
	var ck remoting.PopCK
	if err := ck.Parse([]byte(ps[0].ck)); err != nil {
		t.Fatal(err)
	}
	a := remoting.BatchAck{ConsumerGroup: "g", Topic: "T", Retry: "0", StartOffset: ck.Start, QueueID: 3, PopMillis: ck.PopMillis, InvisibleMillis: ck.InvisibleMillis}
	for _, i := range []int{0, 2, 3, 500} {
		a.Bits.Set(i)
	}
	body := remoting.MarshalBody(remoting.BatchAckBody{BrokerName: "broker-t", Acks: []remoting.BatchAck{a, {ConsumerGroup: "g", Topic: "Nope", Retry: "2", Bits: a.Bits}}})
	call(t, c, remoting.ReqBatchAckMessage, remoting.Success, body)
	if at, _ := b.offsets.Get([]byte("T"), []byte("g"), 3); at != 1 || b.pops.Flying() != 1 {
		t.Errorf("acknowledged all but b: committed %d, %d in flight", at, b.pops.Flying())
	}
	call(t, c, remoting.ReqBatchAckMessage, remoting.NoMessage, nil)
	call(t, c, remoting.ReqBatchAckMessage, remoting.NoMessage, []byte(`{"acks":[]}`))
	call(t, c, remoting.ReqBatchAckMessage, remoting.SystemError, []byte(`{"acks":[{"b":"*"}]}`))
	call(t, c, remoting.ReqBatchAckMessage, remoting.InvalidParameter, []byte(`{"acks":[{"r":"3"}]}`))
}

// Codes in Apache's order, and nothing popped by what is refused.
func TestPopRefusals(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "a")
	call(t, c, remoting.ReqUpdateAndCreateSubscriptionGroup, remoting.Success, []byte(`{"groupName":"off","consumeEnable":false}`))
	call(t, c, remoting.ReqUpdateAndCreateTopic, remoting.Success, nil, "topic", "W", "readQueueNums", "1", "writeQueueNums", "1", "perm", "2",
		"topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false", "defaultTopic", "TBW102")
	set := func(fields []string, pairs ...string) []string {
		for i := 0; i < len(pairs); i += 2 {
			fields[slices.Index(fields, pairs[i])+1] = pairs[i+1]
		}
		return fields
	}
	for _, tc := range []struct {
		name   string
		fields []string
		want   remoting.ResponseCode
	}{
		{"too late", set(popFields("Nope", 0, 33, 1000, 100), "bornTime", fmt.Sprint(time.Now().UnixMilli()-700)), remoting.PollingTimeout},
		{"too many", popFields("Nope", 0, 33, 1000, 100), remoting.InvalidParameter},
		{"no such topic", popFields("Nope", 99, 32, 1000, 100), remoting.TopicNotExist},
		{"a topic not to be read", popFields("W", 99, 32, 1000, 100), remoting.NoPermission},
		{"no such queue", set(popFields("T", 99, 32, 1000, 100), "consumerGroup", "off"), remoting.InvalidParameter},
		{"a group not to consume", set(popFields("T", 0, 32, 1000, 100, "exp", "a >", "expType", "SQL92"), "consumerGroup", "off"), remoting.NoPermission},
		{"a group whose retry topic has no name", set(popFields("T", 0, 32, 1000, 100), "consumerGroup", strings.Repeat("g", 248)), remoting.InvalidParameter},
		{"a bad expression", popFields("T", 0, 32, 1000, 100, "exp", "a >", "expType", "SQL92"), remoting.SubscriptionParseFailed},
		{"a field that is no number", popFields("T", 0, 32, 1000, 100, "queueId", "x"), remoting.SystemError},
		{"a long attempt", popFields("T", 0, 32, 1000, 100, "attemptId", strings.Repeat("a", 256)), remoting.InvalidParameter},
		{"no patience", popFields("T", 1, 32, 1000, 0), remoting.PollingTimeout},
		{"none wanted", popFields("T", 0, 0, 1000, 0), remoting.PollingTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if resp := call(t, c, remoting.ReqPopMessage, tc.want, nil, tc.fields...); len(resp.Remark) == 0 {
				t.Error("a refusal without a remark")
			}
		})
	}
	ps := popUntil(t, c, "T", 1, 60_000)
	good := ackFields("T", ps[0])
	for _, tc := range []struct {
		name         string
		fields       []string
		ack, changed remoting.ResponseCode
	}{
		{"no such topic", set(slices.Clone(good), "topic", "Nope"), remoting.TopicNotExist, remoting.TopicNotExist},
		{"no such queue", set(slices.Clone(good), "queueId", "99"), remoting.MessageIllegal, remoting.MessageIllegal},
		{"queue -1", set(slices.Clone(good), "queueId", "-1"), remoting.MessageIllegal, remoting.MessageIllegal},
		{"past the end", set(slices.Clone(good), "offset", "2"), remoting.NoMessage, remoting.NoMessage},
		{"at the end", set(slices.Clone(good), "offset", "1"), remoting.Success, remoting.NoMessage},
		{"below the beginning", set(slices.Clone(good), "offset", "-1"), remoting.NoMessage, remoting.NoMessage},
		{"no handle", set(slices.Clone(good), "extraInfo", "0 1 2"), remoting.SystemError, remoting.SystemError},
		{"a handle of words", set(slices.Clone(good), "extraInfo", "a b c d e f g h"), remoting.SystemError, remoting.SystemError},
		{"another group", set(slices.Clone(good), "consumerGroup", "h"), remoting.Success, remoting.Success},
	} {
		t.Run("ack "+tc.name, func(t *testing.T) {
			call(t, c, remoting.ReqAckMessage, tc.ack, nil, tc.fields...)
			call(t, c, remoting.ReqChangeMessageInvisibleTime, tc.changed, nil, append(tc.fields, "invisibleTime", "1")...)
		})
	}
	if b.pops.Flying() != 1 {
		t.Errorf("in flight after refused acknowledgements: %d, want 1", b.pops.Flying())
	}
	for _, code := range []remoting.RequestCode{remoting.ReqPeekMessage, remoting.ReqPollingInfo, remoting.ReqNotification} {
		more := []string{"maxMsgNums", "1", "pollTime", "0", "bornTime", "0"}
		call(t, c, code, remoting.TopicNotExist, nil, append([]string{"consumerGroup", "g", "topic", "Nope", "queueId", "0"}, more...)...)
		call(t, c, code, remoting.InvalidParameter, nil, append([]string{"consumerGroup", "g", "topic", "T", "queueId", "99"}, more...)...)
		call(t, c, code, remoting.NoPermission, nil, append([]string{"consumerGroup", "off", "topic", "T", "queueId", "0"}, more...)...)
	}
}

func TestPopWhereToBegin(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "a", "b", "c")
	at := func(group, mode string) string {
		f := popFields("T", 0, 32, 60_000, 0)
		f[1], f[slices.Index(f, "initMode")+1] = group, mode
		return bodiesOf(pops(t, call(t, c, remoting.ReqPopMessage, remoting.Success, nil, f...)))
	}
	if got := at("min", "0"); got != "a b c" {
		t.Errorf("from the oldest: got %q", got)
	}
	if got := at("max", "1"); got != "a b c" {
		t.Errorf("from the newest, all in memory: got %q", got)
	}
	stopBroker(t, b)
	c = dial(t, startBrokerIn(t, dir, func(c *Config) { c.InitPopOffsetByCheckMsgInMem = false }))
	if got := at("max2", "1"); got != "c" {
		t.Errorf("from the newest: got %q", got)
	}
	call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0)...)
	call(t, c, remoting.ReqUpdateConsumerOffset, remoting.Success, nil, "consumerGroup", "cg", "topic", "T", "queueId", "0", "commitOffset", "2")
	if got := at("cg", "0"); got != "c" {
		t.Errorf("where a pull consumer left: got %q", got)
	}
	// A tool sets the group back: it pops all again.
	call(t, c, remoting.ReqUpdateConsumerOffset, remoting.Success, nil, "consumerGroup", "cg", "topic", "T", "queueId", "0", "commitOffset", "1")
	if got := at("cg", "0"); got != "b c" {
		t.Errorf("after a reset: got %q", got)
	}
}

func TestPopFilters(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for i, tag := range []string{"x", "y", "x", "z", "y"} {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, fmt.Append(nil, i), sendFields("T", 0, "TAGS="+tag)...)
	}
	ps := pops(t, call(t, c, remoting.ReqPopMessage, remoting.Success, nil, popFields("T", 0, 32, 60_000, 0, "exp", "y", "expType", "TAG")...))
	if got := bodiesOf(ps); got != "1 4" {
		t.Fatalf("popped by tag: %q", got)
	}
	ack(t, c, "T", ps...)
	if at, _ := b.offsets.Get([]byte("T"), []byte("g"), 0); at != 5 {
		t.Errorf("committed: got %d, want 5: what the filter dropped is done", at)
	}
	sendTo(t, c, "T", 0, "more")
	call(t, c, remoting.ReqPopMessage, remoting.PollingTimeout, nil, popFields("T", 0, 32, 60_000, 0, "exp", "none", "expType", "TAG")...)
	if at, _ := b.offsets.Get([]byte("T"), []byte("g"), 0); at != 6 {
		t.Errorf("committed with nothing that matches: got %d, want 6", at)
	}
}

func appendBatchItem(t *testing.T, dst []byte, body string) []byte {
	t.Helper()
	dst, err := message.AppendBatchItem(dst, message.BatchItem{Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	return dst
}

// In order one batch of a queue is in flight; a retry topic is never used.
func TestPopInOrder(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "a", "b", "c", "d")
	order := func(want remoting.ResponseCode, most int, invisible, poll int64, more ...string) *remoting.Command {
		t.Helper()
		return call(t, c, remoting.ReqPopMessage, want, nil, popFields("T", 0, most, invisible, poll, append([]string{"order", "true"}, more...)...)...)
	}
	resp := order(remoting.Success, 3, 400, 0, "attemptId", "one")
	first := pops(t, resp)
	if bodiesOf(first) != "a b c" || resp.GetString("reviveQid") != "999" || resp.GetString("orderCountInfo") != "0 0 0" {
		t.Fatalf("first batch: got %s, reviveQid %s, orderCountInfo %q", bodiesOf(first), resp.GetString("reviveQid"), resp.GetString("orderCountInfo"))
	}
	order(remoting.PollingTimeout, 3, 400, 0)
	// The attempt whose answer was lost gets the same again.
	resp = order(remoting.Success, 3, 400, 0, "attemptId", "one")
	if first = pops(t, resp); bodiesOf(first) != "a b c" || resp.GetString("orderCountInfo") != "0 0 0" {
		t.Fatalf("the attempt again: got %s, orderCountInfo %q", bodiesOf(first), resp.GetString("orderCountInfo"))
	}
	ack(t, c, "T", first[1])
	if at, _ := b.offsets.Get([]byte("T"), []byte("g"), 0); at != 0 {
		t.Errorf("committed with a in flight: got %d", at)
	}
	ack(t, c, "T", first[0])
	if at, _ := b.offsets.Get([]byte("T"), []byte("g"), 0); at != 2 {
		t.Errorf("committed with c in flight: got %d, want 2", at)
	}
	// Held until the time of what was not acknowledged is over.
	resp = order(remoting.Success, 3, 60_000, 10_000)
	second := pops(t, resp)
	if bodiesOf(second) != "c d" || resp.GetString("orderCountInfo") != "0 qo0%2 1;0 0 0" {
		t.Fatalf("second batch: got %s, orderCountInfo %q", bodiesOf(second), resp.GetString("orderCountInfo"))
	}
	call(t, c, remoting.ReqAckMessage, remoting.Success, nil, ackFields("T", first[2])...) // expired
	// A message the batch hasn't, by a good time.
	fields := ackFields("T", second[1])
	fields[slices.Index(fields, "offset")+1] = "4"
	call(t, c, remoting.ReqAckMessage, remoting.MessageIllegal, nil, fields...)
	// A changed time keeps the batch's; a pop that waits goes on when it is over.
	answer := later(t, dial(t, b), remoting.ReqPopMessage, popFields("T", 0, 3, 60_000, 10_000, "order", "true")...)
	waitFor(t, "parked", func() bool { return b.pollingOf("T", "g", 0) == 1 })
	ack(t, c, "T", second[0])
	resp = call(t, c, remoting.ReqChangeMessageInvisibleTime, remoting.Success, nil, ackFields("T", second[1], "invisibleTime", "300")...)
	var ck remoting.PopCK
	if err := ck.Parse([]byte(second[1].ck)); err != nil || resp.GetString("popTime") != fmt.Sprint(ck.PopMillis) || resp.GetString("reviveQid") != "999" {
		t.Errorf("changed in order: popTime %s, reviveQid %s, want %d, 999", resp.GetString("popTime"), resp.GetString("reviveQid"), ck.PopMillis)
	}
	got := <-answer
	third := pops(t, got)
	if bodiesOf(third) != "d" || got.GetString("orderCountInfo") != "0 qo0%3 2;0 0 2" && got.GetString("orderCountInfo") != "0 qo0%3 1;0 0 1" {
		t.Fatalf("third batch: got %s, orderCountInfo %q", bodiesOf(third), got.GetString("orderCountInfo"))
	}
	// All acknowledged wakes who waits for more.
	answer = later(t, dial(t, b), remoting.ReqPopMessage, popFields("T", 0, 3, 60_000, 10_000, "order", "true")...)
	waitFor(t, "parked", func() bool { return b.pollingOf("T", "g", 0) == 1 })
	sendTo(t, c, "T", 0, "e")
	ack(t, c, "T", third...)
	if got := bodiesOf(pops(t, <-answer)); got != "e" {
		t.Errorf("after all were acknowledged: got %s", got)
	}
	if b.topics.Find("%RETRY%g_T") != nil {
		t.Error("an ordered pop made a retry topic")
	}
}

func TestPeek(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "a", "b", "c")
	peek := func(want remoting.ResponseCode, queue, most string) *remoting.Command {
		t.Helper()
		return call(t, c, remoting.ReqPeekMessage, want, nil, "consumerGroup", "g", "topic", "T", "queueId", queue, "maxMsgNums", most)
	}
	for range 2 { // it takes nothing
		resp := peek(remoting.Success, "-1", "2")
		if got := fmt.Sprint(bodies(t, resp)); got != "[a b]" || resp.GetString("restNum") != "3" {
			t.Errorf("peeked %s, restNum %s", got, resp.GetString("restNum"))
		}
	}
	peek(remoting.PullNotFound, "1", "2")
	ps := popUntil(t, c, "T", 3, 300)
	peek(remoting.PullNotFound, "0", "2")
	waitFor(t, "all are on the retry topic", func() bool {
		resp := later(t, c, remoting.ReqPeekMessage, "consumerGroup", "g", "topic", "T", "queueId", "1", "maxMsgNums", "32")
		return len(bodies(t, <-resp)) == len(ps)
	})
}

// With version 2 in use, what failed under version 1 is popped too, in answers
// of its own.
func TestPopBothRetryTopics(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "old")
	popUntil(t, c, "T", 1, 50)
	waitFor(t, "old is stored", func() bool { q := b.store.FindQueue("%RETRY%g_T", 0); return q != nil && q.Max() == 1 })
	stopBroker(t, b)
	v2 := func(c *Config) { c.EnableRetryTopicV2, c.PopFromRetryProbability = true, 0 }
	b = startBrokerIn(t, dir, v2)
	c = dial(t, b)
	sendTo(t, c, "T", 0, "new")
	first := pops(t, call(t, c, remoting.ReqPopMessage, remoting.Success, nil, popFields("T", 0, 1, 50, 0)...))
	if bodiesOf(first) != "new" {
		t.Fatalf("popped %s before what failed", bodiesOf(first))
	}
	got := popUntil(t, c, "T", 2, 60_000)
	if bodiesOf(got) != "new old" {
		t.Fatalf("came back: %s", bodiesOf(got))
	}
	for _, p := range got {
		var ck remoting.PopCK
		if err := ck.Parse([]byte(p.ck)); err != nil || p.topic != "T" || (ck.Retry == '2') != (p.body == "new") {
			t.Errorf("%s: handle %q, topic %s", p.body, p.ck, p.topic)
		}
	}
	ack(t, c, "T", got...)
	stopBroker(t, b)
	b = startBrokerIn(t, dir, func(c *Config) { v2(c); c.PopResponseReturnActualRetryTopic = true })
	c = dial(t, b)
	sendTo(t, c, "T", 0, "third")
	popUntil(t, c, "T", 1, 50)
	if p := popUntil(t, c, "T", 1, 60_000)[0]; p.topic != "%RETRY%g+T" {
		t.Errorf("popResponseReturnActualRetryTopic: got topic %s", p.topic)
	}
}

// Deleting a topic or a group takes its pops and retry topics with it.
func TestPopDeletions(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "a", "b")
	popUntil(t, c, "T", 2, 50)
	waitFor(t, "there is a retry topic", func() bool { return b.topics.Find("%RETRY%g_T") != nil })
	call(t, c, remoting.ReqDeleteTopicInBroker, remoting.Success, nil, "topic", "T")
	if b.topics.Find("%RETRY%g_T") != nil || b.pops.Flying() != 0 {
		t.Errorf("after the topic's deletion: retry topic %v, %d in flight", b.topics.Find("%RETRY%g_T"), b.pops.Flying())
	}
	sendTo(t, c, "T", 0, "c")
	ps := popUntil(t, c, "T", 1, 60_000)
	if bodiesOf(ps) != "c" {
		t.Errorf("popped of the new topic: %s", bodiesOf(ps))
	}
	call(t, c, remoting.ReqDeleteSubscriptionGroup, remoting.Success, nil, "groupName", "g", "cleanOffset", "true")
	if b.pops.Flying() != 0 {
		t.Errorf("after the group's deletion: %d in flight", b.pops.Flying())
	}
	if got := bodiesOf(popUntil(t, c, "T", 1, 60_000)); got != "c" {
		t.Errorf("popped by the new group: %s", got)
	}
}

// Above the threshold nothing is popped of a queue until something is
// acknowledged.
func TestPopThreshold(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.EnablePopMessageThreshold, c.PopInflightMessageThreshold = true, 2 })
	c := dial(t, b)
	sendTo(t, c, "T", 0, "a", "b", "c", "d")
	ps := pops(t, call(t, c, remoting.ReqPopMessage, remoting.Success, nil, popFields("T", 0, 3, 60_000, 0)...))
	resp := call(t, c, remoting.ReqPopMessage, remoting.PollingTimeout, nil, popFields("T", 0, 3, 60_000, 0)...)
	if resp.GetString("restNum") != "1" {
		t.Errorf("restNum over the threshold: got %s, want 1", resp.GetString("restNum"))
	}
	ack(t, c, "T", ps[0])
	call(t, c, remoting.ReqPopMessage, remoting.Success, nil, popFields("T", 0, 3, 60_000, 0)...)
}
