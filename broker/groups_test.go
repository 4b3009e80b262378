package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

func updateGroup(t *testing.T, c *rpc.Conn, want remoting.ResponseCode, body string) {
	t.Helper()
	call(t, c, remoting.ReqUpdateAndCreateSubscriptionGroup, want, []byte(body))
}

// holdPull sends a pull that is held, and gives where its answer will be.
func holdPull(t *testing.T, b *Broker, c *rpc.Conn, fields []string) chan *remoting.Command {
	t.Helper()
	held := b.holds.held.Load()
	out := make(chan *remoting.Command, 1)
	req := remoting.NewRequest(remoting.ReqPullMessage)
	for f := fields; len(f) > 0; f = f[2:] {
		req.Set(f[0], f[1])
	}
	if _, err := c.Go(req, func(resp *remoting.Command, err error) {
		if err == nil {
			resp = resp.Clone()
		}
		out <- resp
	}); err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		if b.holds.held.Load() == held+1 {
			return out
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the pull isn't held")
	return nil
}

// wantRetry wants a held pull to be answered at once, so that its client asks again.
func wantRetry(t *testing.T, answer chan *remoting.Command) {
	t.Helper()
	select {
	case resp := <-answer:
		if resp == nil || resp.Code != int32(remoting.PullRetryImmediately) {
			t.Errorf("a held pull whose group or topic changed: got %+v, want code 20", resp)
		}
	case <-time.After(5 * time.Second):
		t.Error("a held pull whose group or topic changed is held on")
	}
}

func waitingPull(topic string, offset int64) []string {
	return pullFields(topic, 0, offset, "sysFlag", "2", "suspendTimeoutMillis", "30000", "consumerGroup", "g")
}

func TestUpdateGroup(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	long := strings.Repeat("g", 121)
	heartbeat(t, c, "A", long, "T", "*")
	for _, tt := range []struct {
		name, body string
		want       remoting.ResponseCode
	}{
		{"new, as mqadmin sends it", `{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":5,"retryQueueNums":2,"whichBrokerWhenConsumeSlowly":1}`, remoting.Success},
		{"a client's long name", `{"groupName":"` + long + `"}`, remoting.Success},
		{"a long name", `{"groupName":"x` + long + `"}`, remoting.InvalidParameter},
		{"a bad name", `{"groupName":"a/b"}`, remoting.InvalidParameter},
		{"no name", `{}`, remoting.InvalidParameter},
		{"an attribute", `{"groupName":"n","attributes":{"+a":"b"}}`, remoting.SystemError},
		{"negative queues", `{"groupName":"n","retryQueueNums":-1}`, remoting.InvalidParameter},
		{"too many queues", `{"groupName":"n","retryQueueNums":70000}`, remoting.InvalidParameter},
		{"an unknown policy", `{"groupName":"n","groupRetryPolicy":{"type":"LINEAR"}}`, remoting.InvalidParameter},
		{"a policy without entries", `{"groupName":"n","groupRetryPolicy":{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[]}}}`, remoting.InvalidParameter},
		{"a negative space", `{"groupName":"n","groupRetryPolicy":{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1,-1]}}}`, remoting.InvalidParameter},
		{"a multiplier of 0", `{"groupName":"n","groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"multiplier":0}}}`, remoting.InvalidParameter},
		{"no JSON", `nonsense`, remoting.SystemError},
		{"nothing", ``, remoting.SystemError},
	} {
		t.Run(tt.name, func(t *testing.T) { updateGroup(t, c, tt.want, tt.body) })
	}
	list := func(want remoting.ResponseCode, body string) {
		t.Helper()
		call(t, c, remoting.ReqUpdateAndCreateSubscriptionGroupList, want, []byte(body))
	}
	list(remoting.InvalidParameter, `{"groupConfigList":[{"groupName":"l1"},{"groupName":"l/2"}]}`)
	list(remoting.Success, `{"groupConfigList":[{"groupName":"l3"},{"groupName":"l4","consumeEnable":false}]}`)
	for group, want := range map[string]bool{"n": false, "l1": false, "l3": true, "l4": true} {
		if got := b.groups.Find(group) != nil; got != want {
			t.Errorf("group %s is there: %v, want %v", group, got, want)
		}
	}
	version := b.groups.Version()
	updateGroup(t, c, remoting.Success, `{"groupName":"l3"}`)
	if b.groups.Version() != version {
		t.Error("the same again is a new version")
	}
	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	c = dial(t, b)
	resp := call(t, c, remoting.ReqGetSubscriptionGroupConfig, remoting.Success, nil, "group", "g")
	const want = `{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":5,"retryQueueNums":2,"whichBrokerWhenConsumeSlowly":1}`
	if got := string(resp.Body); got != want {
		t.Errorf("after a restart\n%s\nwant\n%s", got, want)
	}
	call(t, c, remoting.ReqGetSubscriptionGroupConfig, remoting.InvalidParameter, nil, "group", "a/b")
	call(t, c, remoting.ReqGetSubscriptionGroupConfig, remoting.SystemError, nil)
}

func TestAllGroups(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for i := range 30 {
		updateGroup(t, c, remoting.Success, fmt.Sprintf(`{"groupName":"g%d"}`, i))
	}
	call(t, c, remoting.ReqUpdateAndGetGroupForbidden, remoting.Success, nil, "group", "g1", "topic", "T", "readable", "false")
	parse := func(resp *remoting.Command) (table remoting.SubscriptionGroupTable) {
		t.Helper()
		if err := remoting.ParseBody(resp.Body, &table); err != nil {
			t.Fatal(err)
		}
		return table
	}
	resp := call(t, c, remoting.ReqGetAllSubscriptionGroupConfig, remoting.Success, nil)
	all := parse(resp)
	if len(all.SubscriptionGroupTable) != b.groups.Len() || all.DataVersion != b.groups.Version() || resp.GetString("totalGroupNum") != fmt.Sprint(b.groups.Len()) {
		t.Errorf("%d groups of %s, version %+v", len(all.SubscriptionGroupTable), resp.GetString("totalGroupNum"), all.DataVersion)
	}
	if !strings.HasPrefix(string(resp.Body), `{"dataVersion":{"counter":`) || !strings.Contains(string(resp.Body), `,"forbiddenTable":{"g1":{"T":4}},"subscriptionGroupTable":{"`) {
		t.Errorf("body %.200s", resp.Body)
	}
	seen := 0
	for seen < b.groups.Len() {
		page := parse(call(t, c, remoting.ReqGetAllSubscriptionGroupConfig, remoting.Success, nil,
			"groupSeq", fmt.Sprint(seen), "maxGroupNum", "7", "dataVersion", string(remoting.MarshalBody(all.DataVersion))))
		n := len(page.SubscriptionGroupTable)
		if n == 0 || n > 7 {
			t.Fatalf("page of %d", n)
		}
		for name := range page.SubscriptionGroupTable {
			delete(all.SubscriptionGroupTable, name)
		}
		seen += n
	}
	if len(all.SubscriptionGroupTable) != 0 {
		t.Errorf("in no page: %v", all.SubscriptionGroupTable)
	}
}

// consumeEnable goes off and on while a consumer pulls: its held pull ends, the
// next are refused, and then go on where they were.
func TestConsumeEnable(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("one"), sendFields("T", 0, "")...)
	heartbeat(t, c, "A", "g", "T", "*")
	answer := holdPull(t, b, c, waitingPull("T", 1))
	other := holdPull(t, b, c, pullFields("T", 0, 1, "sysFlag", "6", "suspendTimeoutMillis", "30000", "consumerGroup", "other"))
	updateGroup(t, c, remoting.Success, `{"groupName":"g","consumeEnable":false}`)
	wantRetry(t, answer)
	resp := call(t, c, remoting.ReqPullMessage, remoting.NoPermission, nil, waitingPull("T", 1)...)
	if got := resp.GetString("forbiddenType"); got != "2" {
		t.Errorf("forbiddenType %q, want 2", got)
	}
	updateGroup(t, c, remoting.Success, `{"groupName":"g","consumeEnable":true}`)
	answer = holdPull(t, b, c, waitingPull("T", 1))
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("two"), sendFields("T", 0, "")...)
	for _, a := range []chan *remoting.Command{answer, other} {
		if got := fmt.Sprint(bodies(t, <-a)); got != "[two]" {
			t.Errorf("pulled %s", got)
		}
	}
}

func TestForbidden(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	forbid := func(topic string, want string, more ...string) {
		t.Helper()
		resp := call(t, c, remoting.ReqUpdateAndGetGroupForbidden, remoting.Success, nil, append([]string{"group", "g", "topic", topic}, more...)...)
		if got := string(resp.Body); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, topic := range []string{"T", "U"} {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields(topic, 0, "")...)
	}
	call(t, c, remoting.ReqHeartBeat, remoting.Success, remoting.MarshalBody(remoting.HeartbeatData{ClientID: "A",
		ConsumerDataSet: []remoting.ConsumerData{*consumerData("g", "T", "*", 1, "U", "*", 1)}}))
	answer := holdPull(t, b, c, waitingPull("T", 1))
	forbid("T", `{"group":"g","readable":true,"topic":"T"}`)
	forbid("T", `{"group":"g","readable":false,"topic":"T"}`, "readable", "false")
	forbid("U", `{"group":"g","readable":false,"topic":"U"}`, "readable", "false")
	forbid("U", `{"group":"g","readable":true,"topic":"U"}`, "readable", "true") // T stays forbidden
	wantRetry(t, answer)
	for _, own := range []string{"0", "4"} { // by the heartbeat's subscription and by one of its own
		resp := call(t, c, remoting.ReqPullMessage, remoting.NoPermission, nil, pullFields("T", 0, 0, "consumerGroup", "g", "sysFlag", own)...)
		if got := resp.GetString("forbiddenType"); got != "5" {
			t.Errorf("forbiddenType %q, want 5", got)
		}
	}
	call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("U", 0, 0, "consumerGroup", "g", "sysFlag", "0")...)
	call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0)...) // another group
	for _, bad := range [][]string{{"group", "a/b", "topic", "T"}, {"group", "g", "topic", "a/b"}} {
		call(t, c, remoting.ReqUpdateAndGetGroupForbidden, remoting.InvalidParameter, nil, append(bad, "readable", "false")...)
	}
	call(t, c, remoting.ReqUpdateAndGetGroupForbidden, remoting.SystemError, nil, "group", "g")
	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	c = dial(t, b)
	call(t, c, remoting.ReqPullMessage, remoting.NoPermission, nil, pullFields("T", 0, 0, "consumerGroup", "g")...)
	forbid("T", `{"group":"g","readable":true,"topic":"T"}`, "readable", "true")
	call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0, "consumerGroup", "g")...)
}

// What a group leaves behind, and what not. A pull that waits does not bring it
// back; a heartbeat does.
func TestDeleteGroup(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	for _, group := range []string{"g", "kept"} {
		heartbeat(t, c, "A", group, "T", "*")
		call(t, c, remoting.ReqUpdateConsumerOffset, remoting.Success, nil, offsetFields(group, "T", 0, "commitOffset", "1")...)
	}
	call(t, c, remoting.ReqUpdateAndGetGroupForbidden, remoting.Success, nil, "group", "g", "topic", "U", "readable", "false")
	queue := []remoting.MessageQueue{{BrokerName: "broker-t", Topic: "T"}}
	call(t, c, remoting.ReqLockBatchMQ, remoting.Success, remoting.MarshalBody(remoting.LockBatchBody{ClientID: "A", ConsumerGroup: "g", MQSet: queue}))
	answer := holdPull(t, b, c, waitingPull("T", 1))
	remove := func(group, clean string) {
		t.Helper()
		call(t, c, remoting.ReqDeleteSubscriptionGroup, remoting.Success, nil, "groupName", group, "cleanOffset", clean)
	}
	call(t, c, remoting.ReqDeleteSubscriptionGroup, remoting.Success, nil, "groupName", "g", "removeOffset", "true") // 4.x
	remove("kept", "false")
	remove("unknown", "true")
	wantRetry(t, answer)
	if b.groups.Find("g") != nil || b.groups.Find("kept") != nil || b.locks.held("g") || !b.groups.MayRead([]byte("g"), []byte("U")) {
		t.Error("configuration, locks or what was forbidden outlive their group")
	}
	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	c = dial(t, b)
	if b.groups.Find("g") != nil {
		t.Error("a deleted group is back after a restart")
	}
	if _, ok := b.offsets.Get([]byte("T"), []byte("g"), 0); ok {
		t.Error("offsets outlive cleanOffset=true")
	}
	if _, ok := b.offsets.Get([]byte("T"), []byte("kept"), 0); !ok {
		t.Error("offsets don't outlive cleanOffset=false")
	}
	heartbeat(t, c, "A", "g", "T", "*")
	if b.groups.Find("g") == nil {
		t.Error("a consumer that is online doesn't bring its group back")
	}
}

// A topic is deleted and made again while a pull waits there: the pull ends, and
// nothing of the old topic is left.
func TestTopicMadeAgain(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	for range 3 {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("old"), sendFields("T", 0, "")...)
	}
	call(t, c, remoting.ReqUpdateConsumerOffset, remoting.Success, nil, offsetFields("g", "T", 0, "commitOffset", "3")...)
	answer := holdPull(t, b, c, waitingPull("T", 3))
	call(t, c, remoting.ReqDeleteTopicInBroker, remoting.Success, nil, "topic", "T")
	wantRetry(t, answer)
	call(t, c, remoting.ReqPullMessage, remoting.TopicNotExist, nil, waitingPull("T", 3)...)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("new"), sendFields("T", 0, "")...)
	if got := call(t, c, remoting.ReqQueryConsumerOffset, remoting.Success, nil, offsetFields("g", "T", 0)...).GetString("offset"); got != "0" {
		t.Errorf("the group begins at %s", got)
	}
	resp := call(t, c, remoting.ReqPullMessage, remoting.PullOffsetMoved, nil, waitingPull("T", 3)...)
	if got := resp.GetString("nextBeginOffset"); got != "1" {
		t.Errorf("a pull from the old end is sent to %s, want the new end 1", got)
	}
	answer = holdPull(t, b, c, waitingPull("T", 1))
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("newer"), sendFields("T", 0, "")...)
	if got := fmt.Sprint(bodies(t, <-answer)); got != "[newer]" {
		t.Errorf("woken with %s", got)
	}
}

// Retries go to queues that are read, whatever group and topic say.
func TestRetryQueueNums(t *testing.T) {
	b := startBroker(t, nowLevels)
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	m := pullOne(t, c, "T", 0)
	updateGroup(t, c, remoting.Success, `{"groupName":"g","retryQueueNums":3}`)
	if got := b.topics.Find("%RETRY%g"); got.ReadQueues != 3 || got.WriteQueues != 3 {
		t.Errorf("retry topic: %+v, want 3 queues", got)
	}
	updateGroup(t, c, remoting.Success, `{"groupName":"g","retryQueueNums":2}`)
	if got := b.topics.Find("%RETRY%g"); got.ReadQueues != 3 {
		t.Errorf("queues that may hold messages were taken from the retry topic: %+v", got)
	}
	stored := func() (n []int64) {
		for id := range int32(4) {
			max := int64(0)
			if q := b.store.FindQueue("%RETRY%g", id); q != nil {
				max = int64(q.Max())
			}
			n = append(n, max)
		}
		return n
	}
	back := func(want int64) {
		t.Helper()
		for range 40 {
			call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, "g", 0)...)
		}
		for range 1000 {
			if n := stored(); n[0]+n[1]+n[2]+n[3] == want {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatalf("retries in the queues: %v, want %d", stored(), want)
	}
	back(40)
	if n := stored(); n[0] == 0 || n[1] == 0 || n[2] != 0 {
		t.Errorf("40 retries over 2 queues: %v", n)
	}
	// An administrator takes the topic's queues away: 1 is left.
	call(t, c, remoting.ReqUpdateAndCreateTopic, remoting.Success, nil, createFields("%RETRY%g", 1, 1, 6)...)
	before := stored()[1]
	back(80)
	if n := stored(); n[1] != before {
		t.Errorf("retries went to a queue that isn't read: %v", n)
	}
}

// Retries that wait while their topic loses queues, or is deleted, come back to
// queues it has.
func TestRetryTopicShrinksMeanwhile(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.MessageDelayLevel = "1s" })
	c := dial(t, b)
	updateGroup(t, c, remoting.Success, `{"groupName":"g","retryQueueNums":8}`)
	heartbeat(t, c, "A", "g", "T", "*")
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	m := pullOne(t, c, "T", 0)
	back := func() {
		t.Helper()
		for range 20 {
			call(t, c, remoting.ReqConsumerSendMsgBack, remoting.Success, nil, sendBackFields(&m, "g", 0)...)
		}
	}
	wait := func(want int64) {
		t.Helper()
		for range 1000 {
			if q := b.store.FindQueue("%RETRY%g", 0); q != nil && int64(q.Max()) == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("retries are not in the one queue there is")
	}
	back()
	call(t, c, remoting.ReqUpdateAndCreateTopic, remoting.Success, nil, createFields("%RETRY%g", 1, 1, 6)...)
	wait(20)
	call(t, c, remoting.ReqUpdateAndCreateTopic, remoting.Success, nil, createFields("%RETRY%g", 8, 8, 6)...)
	back()
	call(t, c, remoting.ReqDeleteTopicInBroker, remoting.Success, nil, "topic", "%RETRY%g")
	wait(20)
}

func TestTopicList(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	list := func(want remoting.ResponseCode, body string) {
		t.Helper()
		call(t, c, remoting.ReqUpdateAndCreateTopicList, want, []byte(body))
	}
	list(remoting.Success, `{"topicConfigList":[{"attributes":{"+message.type":"FIFO"},"order":true,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"A","topicSysFlag":0,"writeQueueNums":4},{"topicName":"B"}]}`)
	list(remoting.InvalidParameter, `{"topicConfigList":[{"topicName":"C"},{"topicName":"a/b"}]}`)
	list(remoting.InvalidParameter, `{"topicConfigList":[{"topicName":"C"},{"topicName":"D","perm":99}]}`)
	list(remoting.SystemError, `{"topicConfigList":[{"topicName":"C","attributes":{"message.type":"FIFO"}}]}`)
	list(remoting.SystemError, `{"topicConfigList":[7]}`)
	list(remoting.SystemError, ``)
	if b.topics.Find("C") != nil {
		t.Error("a topic of a refused list was made")
	}
	for topic, want := range map[string]string{
		"A": `{"attributes":{"message.type":"FIFO"},"order":true,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"A","topicSysFlag":0,"writeQueueNums":4}`,
		"B": `{"attributes":{},"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":"B","topicSysFlag":0,"writeQueueNums":16}`,
	} {
		if got := string(call(t, c, remoting.ReqGetTopicConfig, remoting.Success, nil, "topic", topic).Body); got != want {
			t.Errorf("topic %s\n%s\nwant\n%s", topic, got, want)
		}
	}
	list(remoting.Success, `{"topicConfigList":[{"topicName":"A","attributes":{"-message.type":""}}]}`)
	if got := b.topics.Find("A"); len(got.Attributes) != 0 || got.Order {
		t.Errorf("changed by a list: %+v", got)
	}
	call(t, c, remoting.ReqGetTopicConfig, remoting.TopicNotExist, nil, "topic", "None")
	var system remoting.TopicList
	if err := remoting.ParseBody(call(t, c, remoting.ReqGetSystemTopicListFromBroker, remoting.Success, nil).Body, &system); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-t", "rmq_sys_wheel_timer"} {
		if !strings.Contains(" "+strings.Join(system.TopicList, " ")+" ", " "+want+" ") {
			t.Errorf("system topics lack %s: %v", want, system.TopicList)
		}
	}
}
