package remoting

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zlib"
)

func TestRelaxJSON(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"a":1}`, `{"a":1}`},
		{`{0:"a",1:"b"}`, `{"0":"a","1":"b"}`},
		{` { -5 : [ 1 , {2:3} ] } `, `{"-5":[1,{"2":3}]}`},
		{`{{"brokerName":"b","queueId":0,"topic":"t"}:5}`, `{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}":5}`},
		{`{"t":{{"q":1}:{0:1},{"q":2}:{}}}`, `{"t":{"{\"q\":1}":{"0":1},"{\"q\":2}":{}}}`},
		{`{key:true,k2:null}`, `{"key":true,"k2":null}`},
		{`{0:"quote \" and } in a string"}`, `{"0":"quote \" and } in a string"}`},
		// What makes no sense comes back as it was.
		{`{0:`, `{0:`}, {`{0:1}}`, `{0:1}}`}, {`{0:1,}`, `{0:1,}`}, {``, ``}, {`{"a`, `{"a`}, {`[1,]`, `[1,]`},
	}
	for _, tt := range tests {
		if got := string(RelaxJSON([]byte(tt.in))); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.in, got, tt.want)
		}
	}
	deep := []byte(strings.Repeat("{", 100000))
	if got := RelaxJSON(deep); !bytes.Equal(got, deep) {
		t.Error("endless nesting was accepted")
	}
	keys := []byte(strings.Repeat("{", 30) + "1" + strings.Repeat(":1}", 30))
	if got := RelaxJSON(keys); !bytes.Equal(got, keys) {
		t.Errorf("keys within keys grew %d bytes to %d", len(keys), len(got))
	}
}

func FuzzRelaxJSON(f *testing.F) {
	for _, s := range []string{`{0:"a"}`, `{{"q":1}:2}`, `{"a":[1,{2:3}]}`, `{a:b}`, `{"x":"\""}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		was := bytes.Clone(in)
		out := RelaxJSON(in)
		if !bytes.Equal(in, was) {
			t.Fatalf("%q was changed to %q", was, in)
		}
		if json.Valid(in) && !bytes.Equal(out, in) {
			t.Fatalf("strict %q became %q", in, out)
		}
	})
}

const javaRegister = `{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":5,"stateVersion":0,"timestamp":1700000000000},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000001},"topicConfigTable":{"T1":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":0,"writeQueueNums":8},"T2":{"attributes":{"message.type":"NORMAL"},"order":true,"perm":4,"readQueueNums":1,"topicFilterType":"MULTI_TAG","topicName":"T2","topicSysFlag":1,"writeQueueNums":2}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{"S":{"bname":"b","currIdMap":{0:0,1:1},"dirty":false,"epoch":1,"scope":"__global__","topic":"S","totalQueues":2}}}}`

func TestRegisterBrokerBody(t *testing.T) {
	b, err := ParseRegisterBrokerBody([]byte(javaRegister), false, Version)
	if err != nil {
		t.Fatal(err)
	}
	w := b.TopicConfigSerializeWrapper
	if w.DataVersion != (DataVersion{5, 0, 1700000000000}) || len(w.TopicConfigTable) != 2 || !w.TopicConfigTable["T2"].Order {
		t.Errorf("got %+v", w)
	}
	if got, want := string(b.Marshal()), string(RelaxJSON([]byte(javaRegister))); got != want {
		t.Errorf("written again:\n got %s\nwant %s", got, want)
	}

	packed := b.MarshalCompressed()
	back, err := ParseRegisterBrokerBody(packed, true, Version)
	if err != nil {
		t.Fatal(err)
	}
	// The compressed form has no order, topicSysFlag or mappingDataVersion.
	want := *b
	t2 := want.TopicConfigSerializeWrapper.TopicConfigTable["T2"]
	t2.Order, t2.TopicSysFlag = false, 0
	want.TopicConfigSerializeWrapper.TopicConfigTable["T2"] = t2
	want.TopicConfigSerializeWrapper.MappingDataVersion = DataVersion{}
	if d := cmp.Diff(&want, back, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("compressed: -want +got:\n%s", d)
	}
	if back, err = ParseRegisterBrokerBody(packed, true, VersionV5-1); err != nil || len(back.TopicConfigSerializeWrapper.TopicQueueMappingInfoMap) != 0 {
		t.Errorf("a 4.x broker's mappings were read: %v", err)
	}
	// Before 3.0.11 the body is the table alone.
	var parts struct {
		W json.RawMessage `json:"topicConfigSerializeWrapper"`
	}
	if err := ParseBody([]byte(javaRegister), &parts); err != nil {
		t.Fatal(err)
	}
	if b, err := ParseRegisterBrokerBody(parts.W, false, VersionRegisterBody-1); err != nil || len(b.TopicConfigSerializeWrapper.TopicConfigTable) != 2 {
		t.Errorf("old body: %v", err)
	}
	if b, err := ParseRegisterBrokerBody(nil, false, Version); err != nil || b.TopicConfigSerializeWrapper.TopicConfigTable == nil {
		t.Errorf("no body: %v", err)
	}
}

// zlibOf packs int32-counted texts as MarshalCompressed does.
func zlibOf(raw []byte) []byte {
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	_, _ = z.Write(raw) // into memory
	_ = z.Close()
	return out.Bytes()
}

func TestRegisterBrokerBodyBad(t *testing.T) {
	text := func(dst []byte, s string) []byte { return append(be.AppendUint32(dst, uint32(len(s))), s...) }
	version := text(nil, `{"counter":1,"stateVersion":0,"timestamp":2}`)
	topics := func(lines ...string) []byte {
		b := be.AppendUint32(bytes.Clone(version), uint32(len(lines)))
		for _, l := range lines {
			b = text(b, l)
		}
		return b
	}
	tests := map[string][]byte{
		"not zlib":         []byte("plain"),
		"nothing":          zlibOf(nil),
		"version cut":      zlibOf(version[:10]),
		"count too high":   zlibOf(be.AppendUint32(bytes.Clone(version), 1<<30)),
		"negative count":   zlibOf(be.AppendUint32(bytes.Clone(version), 1<<31)),
		"topic too short":  zlibOf(topics("T 1 2")),
		"topic no number":  zlibOf(topics("T x 2 6 SINGLE_TAG {}")),
		"bad attributes":   zlibOf(topics("T 1 2 6 SINGLE_TAG {")),
		"no filter list":   zlibOf(topics("T 1 2 6 SINGLE_TAG {}")),
		"no mapping count": zlibOf(text(topics("T 1 2 6 SINGLE_TAG {}"), "[]")),
		"bad mapping":      zlibOf(text(be.AppendUint32(text(topics(), "[]"), 1), "{")),
	}
	for name, body := range tests {
		if _, err := ParseRegisterBrokerBody(body, true, Version); !errors.Is(err, ErrBody) {
			t.Errorf("%s: got %v, want ErrBody", name, err)
		}
	}
	good := zlibOf(be.AppendUint32(text(topics("T 8 4 6 SINGLE_TAG", "U 1 1 2 MULTI_TAG {}"), "[]"), 0))
	if b, err := ParseRegisterBrokerBody(good, true, Version); err != nil || b.TopicConfigSerializeWrapper.TopicConfigTable["T"].WriteQueueNums != 4 {
		t.Errorf("a 4.x topic text without attributes: %v, %+v", err, b)
	}
}

func FuzzRegisterBrokerBody(f *testing.F) {
	f.Add([]byte(javaRegister), false)
	b, err := ParseRegisterBrokerBody([]byte(javaRegister), false, Version)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b.MarshalCompressed(), true)
	f.Fuzz(func(t *testing.T, body []byte, compressed bool) {
		b, err := ParseRegisterBrokerBody(body, compressed, Version)
		if err != nil {
			return
		}
		if _, err := ParseRegisterBrokerBody(b.Marshal(), false, Version); err != nil {
			t.Fatalf("written again: %v", err)
		}
	})
}

func TestRouteData(t *testing.T) {
	r := RouteData{
		BrokerDatas: []BrokerData{{BrokerAddrs: map[int64]string{1: "10.0.0.2:10911", 0: "10.0.0.1:10911"}, BrokerName: "broker-a", Cluster: "Clüster😀", ZoneName: "z1"}},
		QueueDatas:  []QueueData{{"broker-a", 6, 8, 0, 4}},
	}
	strict := `{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"Cl\u00FCster\uD83D\uDE00","enableActingMaster":false,"zoneName":"z1"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}]}`
	raw := strings.NewReplacer(`"0":"1`, `0:"1`, `"1":"1`, `1:"1`, `\u00FC`, "ü", `\uD83D\uDE00`, "😀").Replace(strict)
	if got := string(r.Append(nil, true)); got != strict {
		t.Errorf("strict:\n got %s\nwant %s", got, strict)
	}
	if got := string(r.Append(nil, false)); got != raw {
		t.Errorf("raw:\n got %s\nwant %s", got, raw)
	}
	for _, s := range []string{strict, raw} {
		back, err := ParseRouteData([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&r, back, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	r.OrderTopicConf = "broker-a:4"
	r.FilterServerTable = map[string][]string{"a": {"x", "y"}}
	r.TopicQueueMappingByBroker = map[string]json.RawMessage{"broker-a": []byte(`{"epoch":1}`)}
	if out := r.Append(nil, true); !json.Valid(out) || !bytes.Contains(out, []byte(`"orderTopicConf":"broker-a:4"`)) {
		t.Errorf("got %s", out)
	}
	dst := make([]byte, 0, 4096)
	r.TopicQueueMappingByBroker, r.FilterServerTable, r.BrokerDatas[0].Cluster = nil, nil, "C"
	if n := testing.AllocsPerRun(100, func() { dst = r.Append(dst[:0], true) }); n != 0 {
		t.Errorf("a route takes %v allocations, want 0", n)
	}
}

func TestOtherBodies(t *testing.T) {
	ci := ClusterInfo{BrokerAddrTable: map[string]BrokerData{"broker-a": {BrokerAddrs: map[int64]string{0: "ip:10911"}, BrokerName: "broker-a", Cluster: "C"}},
		ClusterAddrTable: map[string][]string{"C": {"broker-a"}}}
	want := `{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"ip:10911"},"brokerName":"broker-a","cluster":"C","enableActingMaster":false}},"clusterAddrTable":{"C":["broker-a"]}}`
	if got := string(ci.Append(nil)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if back, err := ParseClusterInfo([]byte(want)); err != nil || cmp.Diff(&ci, back) != "" {
		t.Errorf("cluster info: %v, %+v", err, back)
	}

	g := BrokerMemberGroup{BrokerAddrs: map[int64]string{0: "a"}, BrokerName: "b", Cluster: "c"}
	want = `{"brokerMemberGroup":{"brokerAddrs":{0:"a"},"brokerName":"b","cluster":"c"}}`
	if got := string(g.Append(nil)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if back, err := ParseBrokerMemberGroup([]byte(want)); err != nil || cmp.Diff(&g, back) != "" {
		t.Errorf("member group: %v, %+v", err, back)
	}

	ot := QueueOffsetTable{OffsetTable: map[MessageQueue]int64{{"b", 1, "T"}: 5, {"b", 0, "T"}: 123, {"a", 0, "T"}: -1}}
	want = `{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:-1,{"brokerName":"b","queueId":0,"topic":"T"}:123,{"brokerName":"b","queueId":1,"topic":"T"}:5}}`
	if got := string(ot.Append(nil)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if back, err := ParseQueueOffsetTable([]byte(want)); err != nil || cmp.Diff(&ot, back) != "" {
		t.Errorf("offset table: %v, %+v", err, back)
	}

	lock := LockBatchBody{ClientID: "c", ConsumerGroup: "g", MQSet: []MessageQueue{{"b", 0, "t"}}}
	want = `{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"t"}],"onlyThisBroker":false}`
	if got := string(MarshalBody(lock)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := string(MarshalBody(KVTable{map[string]string{"a<b>": "c&d"}})); got != `{"table":{"a<b>":"c&d"}}` {
		t.Errorf("HTML was escaped: %s", got)
	}
}

func TestHeartbeats(t *testing.T) {
	sub := func(codes string) string {
		return fmt.Sprintf(`{"clientID":"10.0.0.5@1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"cg","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":%s,"expressionType":"TAG","subString":"A || B","subVersion":1700000000000,"tagsSet":["A","B"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":-7,"producerDataSet":[{"groupName":"pg"}],"withoutSub":false}`, codes)
	}
	want := HeartbeatData{ClientID: "10.0.0.5@1", HeartbeatFingerprint: -7, ProducerDataSet: []ProducerData{{"pg"}},
		ConsumerDataSet: []ConsumerData{{ConsumeFromWhere: ConsumeFromLastOffset, ConsumeType: ConsumePassively, GroupName: "cg", MessageModel: ModelClustering,
			SubscriptionDataSet: []SubscriptionData{{CodeSet: []int32{65, 66}, ExpressionType: "TAG", SubString: "A || B", SubVersion: 1700000000000, TagsSet: []string{"A", "B"}, Topic: "T"}}}}}
	for _, codes := range []string{`[65,66]`, `["65","66"]`} { // Java's and Go's spelling
		var got HeartbeatData
		if err := ParseBody([]byte(sub(codes)), &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	if got := string(MarshalBody(want)); got != sub(`[65,66]`) {
		t.Errorf("got  %s\nwant %s", got, sub(`[65,66]`))
	}
	var got HeartbeatData
	if err := ParseBody([]byte(sub(`["x"]`)), &got); !errors.Is(err, ErrBody) {
		t.Errorf("a code that is no number: %v", err)
	}
	// The C++ client: ordinals of the enums, or their names, versions as texts, no
	// key for a set that is empty, none for the type of an expression.
	for _, enums := range []string{`"consumeFromWhere":4,"consumeType":1,"messageModel":0`, `"consumeFromWhere":"4","consumeType":"1","messageModel":"0"`,
		`"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"BROADCASTING"`} {
		body := `{"clientID":"c@1","consumerDataSet":[{` + enums + `,"groupName":"cg","subscriptionDataSet":[{"codeSet":["65"],"subString":"A","subVersion":"1700000000000","tagsSet":["A"],"topic":"T"},{"subString":"*","subVersion":"1","topic":"U"}]}]}`
		var got HeartbeatData
		if err := ParseBody([]byte(body), &got); err != nil {
			t.Fatalf("%s: %v", enums, err)
		}
		want := HeartbeatData{ClientID: "c@1", ConsumerDataSet: []ConsumerData{{ConsumeFromWhere: ConsumeFromFirstOffset, ConsumeType: ConsumePassively, GroupName: "cg", MessageModel: ModelBroadcasting,
			SubscriptionDataSet: []SubscriptionData{{CodeSet: []int32{65}, SubString: "A", SubVersion: 1700000000000, TagsSet: []string{"A"}, Topic: "T"}, {SubString: "*", SubVersion: 1, Topic: "U"}}}}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", enums, d)
		}
	}
	for _, bad := range []string{`"consumeType":3`, `"messageModel":-1`, `"consumeFromWhere":true`, `"subscriptionDataSet":[{"subVersion":"x"}]`, `"subscriptionDataSet":[{"subVersion":1.5}]`} {
		var got HeartbeatData
		if err := ParseBody([]byte(`{"clientID":"c","consumerDataSet":[{"groupName":"g",`+bad+`}]}`), &got); !errors.Is(err, ErrBody) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	// Absent keys of a group's configuration keep RocketMQ's defaults.
	cfg := NewSubscriptionGroupConfig("")
	if err := ParseBody([]byte(`{"groupName":"g","retryMaxTimes":3}`), &cfg); err != nil || cfg.RetryMaxTimes != 3 || !cfg.ConsumeEnable || cfg.RetryQueueNums != 1 {
		t.Errorf("got %+v, %v", cfg, err)
	}
}

func BenchmarkRoute(b *testing.B) {
	r := RouteData{BrokerDatas: []BrokerData{{BrokerAddrs: map[int64]string{0: "10.0.0.1:10911"}, BrokerName: "broker-a", Cluster: "DefaultCluster"}},
		QueueDatas: []QueueData{{"broker-a", 6, 8, 0, 8}}}
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		dst = r.Append(dst[:0], true)
	}
}
