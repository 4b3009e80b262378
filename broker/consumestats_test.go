package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

// statsOf gives "broker,consumer,pull offset" of the first queues of T in group
// cg, and whether each has a time.
func statsOf(t *testing.T, c *rpc.Conn, queues int, fields ...string) string {
	t.Helper()
	resp := call(t, c, remoting.ReqGetConsumeStats, remoting.Success, nil, append([]string{"consumerGroup", "cg"}, fields...)...)
	var raw struct {
		ConsumeTps  *float64 `json:"consumeTps"`
		OffsetTable map[string]remoting.OffsetWrapper
	}
	if err := remoting.ParseBody(resp.Body, &raw); err != nil {
		t.Fatal(err)
	}
	if raw.ConsumeTps == nil {
		t.Errorf("no consumeTps in %s", resp.Body)
	}
	var out []string
	for q := range queues {
		w, ok := raw.OffsetTable[fmt.Sprintf(`{"brokerName":"broker-t","queueId":%d,"topic":"T"}`, q)]
		if !ok {
			out = append(out, "-")
			continue
		}
		s := fmt.Sprintf("%d,%d,%d", w.BrokerOffset, w.ConsumerOffset, w.PullOffset)
		if w.LastTimestamp > 0 {
			s += ",t"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestConsumeStats(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	fill(t, c, 2, 5)
	if got := statsOf(t, c, 4); got != "- - - -" {
		t.Errorf("a group nobody knows: %s", got)
	}
	heartbeat(t, c, "me@1", "cg", "T", "*")
	if got := statsOf(t, c, 4, "topic", "T"); got != "5,0,0 5,0,0 0,0,0 0,0,0" {
		t.Errorf("before the first commit: %s", got)
	}
	commitOffset(t, c, 0, 2)
	call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 2)...)
	for _, fields := range [][]string{nil, {"topic", "T"}, {"topicList", "T;T;Nope"}} {
		if got := statsOf(t, c, 2, fields...); got != "5,2,5,t 5,0,0" {
			t.Errorf("%q: %s", fields, got)
		}
	}
	// Of topics that the consumers online don't subscribe only those listed.
	heartbeat(t, c, "me@1", "cg", "Other", "*")
	for fields, want := range map[string]string{"topic": "- -", "topicList": "5,2,5,t 5,0,0"} {
		if got := statsOf(t, c, 2, fields, "T"); got != want {
			t.Errorf("%s of a topic not subscribed: %s, want %s", fields, got, want)
		}
	}
	all := call(t, c, remoting.ReqGetBrokerConsumeStats, remoting.Success, nil, "isOrder", "false")
	heartbeat(t, c, "me@1", "cg", "T", "*")
	if s := string(all.Body); !strings.Contains(s, `{"cg":[]}`) || !strings.HasSuffix(s, `,"totalDiff":0,"totalInflightDiff":0}`) {
		t.Errorf("stats of all groups: %s", s)
	}
	all = call(t, c, remoting.ReqGetBrokerConsumeStats, remoting.Success, nil, "isOrder", "false")
	if s := string(all.Body); !strings.Contains(s, `{"cg":[{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-t","queueId":0,"topic":"T"}:{"brokerOffset":5,"consumerOffset":2,`) ||
		!strings.HasSuffix(s, `,"totalDiff":8,"totalInflightDiff":3}`) {
		t.Errorf("stats of all groups: %s", s)
	}
}

// Offsets above the end and below the beginning: no lag is negative, and a pull
// from there comes right in one step.
func TestOffsetsOutside(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	fill(t, c, 1, 5)
	heartbeat(t, c, "me@1", "cg", "T", "*")
	commitOffset(t, c, 0, 100)
	if got := statsOf(t, c, 1); got != "5,5,5,t" {
		t.Errorf("an offset above the end: %s", got)
	}
	step := func(from int64, want string) {
		t.Helper()
		resp := call(t, c, remoting.ReqPullMessage, remoting.PullOffsetMoved, nil, pullFields("T", 0, from)...)
		if got := resp.GetString("nextBeginOffset"); got != want {
			t.Errorf("a pull at %d goes on at %s, want %s", from, got, want)
		}
	}
	step(100, "5")
	step(-1, "0")

	// Deleted and made anew: the offsets are gone; those that a consumer commits
	// from memory are above the new end.
	call(t, c, remoting.ReqDeleteTopicInBroker, remoting.Success, nil, "topic", "T")
	call(t, c, remoting.ReqUpdateConsumerOffset, remoting.TopicNotExist, nil, "consumerGroup", "cg", "topic", "T", "queueId", "0", "commitOffset", "5")
	fill(t, c, 1, 2)
	if _, ok := b.offsets.Get([]byte("T"), []byte("cg"), 0); ok {
		t.Error("a topic made anew has offsets of its forerunner")
	}
	if got := statsOf(t, c, 1, "topic", "T"); got != "2,0,0" {
		t.Errorf("a topic made anew: %s", got)
	}
	commitOffset(t, c, 0, 5)
	if got := statsOf(t, c, 1); got != "2,2,2,t" {
		t.Errorf("an old offset in a topic made anew: %s", got)
	}
	step(5, "2")
}

func TestConsumeTimeSpan(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	begin := time.Now().UnixMilli()
	fill(t, c, 1, 3)
	heartbeat(t, c, "me@1", "cg", "T", "*")
	commitOffset(t, c, 0, 1)
	resp := call(t, c, remoting.ReqQueryConsumeTimeSpan, remoting.Success, nil, "topic", "T", "group", "cg")
	var body remoting.ConsumeTimeSpan
	if err := remoting.ParseBody(resp.Body, &body); err != nil || len(body.ConsumeTimeSpanSet) != 4 {
		t.Fatalf("%v: %s", err, resp.Body)
	}
	s := body.ConsumeTimeSpanSet[0]
	if s.MinTimeStamp < begin || s.MaxTimeStamp < s.MinTimeStamp || s.ConsumeTimeStamp != s.MinTimeStamp || s.DelayTime < 0 || s.DelayTime > 60_000 {
		t.Errorf("queue 0: %+v", s)
	}
	if s := body.ConsumeTimeSpanSet[1]; s.MinTimeStamp != -1 || s.MaxTimeStamp != -1 || s.ConsumeTimeStamp != -1 || s.DelayTime != 0 || s.MessageQueue.QueueID != 1 {
		t.Errorf("empty queue 1: %+v", s)
	}
	call(t, c, remoting.ReqQueryConsumeTimeSpan, remoting.TopicNotExist, nil, "topic", "Nope", "group", "cg")
}

func TestCorrectionOffset(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	fill(t, c, 2, 9)
	for i, group := range []string{"g1", "g2", "g3"} {
		for q := range int32(2) {
			b.offsets.Commit([]byte("T"), []byte(group), q, int64(3*i+1))
		}
	}
	for _, tc := range []struct{ compare, without, want string }{
		{"g2", "", `{"correctionOffsets":{0:1,1:1}}`},
		{"g2", "g1", `{"correctionOffsets":{0:4,1:4}}`},
		{"g1", "g1", `{"correctionOffsets":{0:9223372036854775807,1:9223372036854775807}}`},
		{"none", "g1,g2", `{"correctionOffsets":{0:7,1:7}}`},
		{"g1", "g1,g2,g3", `{"correctionOffsets":{}}`},
	} {
		resp := call(t, c, remoting.ReqQueryCorrectionOffset, remoting.Success, nil, "topic", "T", "compareGroup", tc.compare, "filterGroups", tc.without)
		if string(resp.Body) != tc.want {
			t.Errorf("%+v: %s", tc, resp.Body)
		}
	}
	if got := b.offsets.Groups("T"); len(got) != 3 {
		t.Errorf("groups left: %q", got)
	}
}

func TestQueryConsumeQueue(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	fill(t, c, 1, 4)
	ask := func(want remoting.ResponseCode, fields ...string) string {
		t.Helper()
		resp := call(t, c, remoting.ReqQueryConsumeQueue, want, nil, append([]string{"topic", "T", "queueId", "0", "index", "1", "count", "2"}, fields...)...)
		return string(resp.Body)
	}
	if got := ask(remoting.Success); !strings.HasPrefix(got, `{"maxQueueIndex":4,"minQueueIndex":0,"queueData":[{"eval":false,"physicOffset":`) || strings.Count(got, "physicOffset") != 2 {
		t.Errorf("two entries: %s", got)
	}
	if got := ask(remoting.Success, "count", "99"); strings.Count(got, "physicOffset") != 3 {
		t.Errorf("to the end: %s", got)
	}
	if got := ask(remoting.Success, "consumerGroup", "cg"); !strings.Contains(got, `"filterData":"cg@T is not online!"`) {
		t.Errorf("for a group that isn't online: %s", got)
	}
	heartbeat(t, c, "me@1", "cg", "T", "a || b")
	if got := ask(remoting.Success, "consumerGroup", "cg"); !strings.Contains(got, `"subString":"a || b"`) {
		t.Errorf("for a group that is: %s", got)
	}
	for _, index := range []string{"-1", "5"} {
		if got := ask(remoting.Success, "index", index); got != "" {
			t.Errorf("index %s: %s", index, got)
		}
	}
	ask(remoting.SystemError, "queueId", "3")
	ask(remoting.Success, "count", "-5")
}

func TestClientLists(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	call(t, c, remoting.ReqGetConsumerConnectionList, remoting.ConsumerNotOnline, nil, "consumerGroup", "cg")
	call(t, c, remoting.ReqGetProducerConnectionList, remoting.SystemError, nil, "producerGroup", "pg")
	fill(t, c, 1, 1)
	heartbeat(t, c, "me@1", "cg", "T", "a || b")
	beatProducer(t, c, "me@1", "pg")
	addr := c.LocalAddr().String()

	var consumers remoting.ConsumerConnection
	if err := remoting.ParseBody(call(t, c, remoting.ReqGetConsumerConnectionList, remoting.Success, nil, "consumerGroup", "cg").Body, &consumers); err != nil {
		t.Fatal(err)
	}
	me := remoting.Connection{ClientAddr: addr, ClientID: "me@1", Language: "GO", Version: 479}
	if len(consumers.ConnectionSet) != 1 || consumers.ConnectionSet[0] != me || consumers.ConsumeType != remoting.ConsumePassively ||
		consumers.MessageModel != remoting.ModelClustering || consumers.SubscriptionTable["T"].SubString != "a || b" {
		t.Errorf("consumers: %+v", consumers)
	}
	if consumers.SubscriptionConflicts != nil {
		t.Errorf("conflicts of one client: %+v", consumers.SubscriptionConflicts)
	}
	other := dial(t, b)
	heartbeat(t, other, "other@1", "cg", "T", "c")
	const conflicts = `"subscriptionConflicts":[{"topic":"T","variants":[{"clients":["me@1"],"wants":"a || b"},{"clients":["other@1"],"wants":"c"}]}]`
	if got := string(call(t, c, remoting.ReqGetConsumerConnectionList, remoting.Success, nil, "consumerGroup", "cg").Body); !strings.Contains(got, conflicts) {
		t.Errorf("consumers that subscribe differently: %s, want %s in it", got, conflicts)
	}
	other.Close()
	for code, tc := range map[remoting.RequestCode]struct {
		fields []string
		want   string
	}{
		remoting.ReqGetProducerConnectionList:   {[]string{"producerGroup", "pg"}, `{"connectionSet":[{"clientAddr":"` + addr + `","clientId":"me@1","language":"GO","version":479}]}`},
		remoting.ReqQueryTopicConsumeByWho:      {[]string{"topic", "T"}, `{"groupList":["cg","gone"]}`},
		remoting.ReqQueryTopicsByConsumer:       {[]string{"group", "gone"}, `{"brokerAddr":"` + b.addr.String() + `","topicList":["T"]}`},
		remoting.ReqQuerySubscriptionByConsumer: {[]string{"group", "gone", "topic", "T"}, `{"group":"gone","topic":"T"}`},
	} {
		b.offsets.Commit([]byte("T"), []byte("gone"), 0, 1)
		if got := string(call(t, c, code, remoting.Success, nil, tc.fields...).Body); got != tc.want {
			t.Errorf("%v: got %s, want %s", code, got, tc.want)
		}
	}
	if got := string(call(t, c, remoting.ReqQuerySubscriptionByConsumer, remoting.Success, nil, "group", "cg", "topic", "T").Body); !strings.HasPrefix(got, `{"group":"cg","subscriptionData":{`) {
		t.Errorf("subscription: %s", got)
	}
	got := string(call(t, c, remoting.ReqGetAllProducerInfo, remoting.Success, nil).Body)
	if !strings.HasPrefix(got, `{"data":{"pg":[{"clientId":"me@1","language":"GO","lastUpdateTimestamp":1`) || !strings.Contains(got, `"remoteIP":"/`+addr+`"`) {
		t.Errorf("all producers: %s", got)
	}
}
