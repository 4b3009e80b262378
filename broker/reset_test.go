package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

// joinGroup makes c a consumer of topic T in group cg.
func joinGroup(t *testing.T, c *rpc.Conn, clientID string) {
	t.Helper()
	hb := remoting.HeartbeatData{ClientID: clientID, ConsumerDataSet: []remoting.ConsumerData{*consumerData("cg", "T", "*", 1)}}
	hb.ConsumerDataSet[0].ConsumeFromWhere = remoting.ConsumeFromLastOffset
	call(t, c, remoting.ReqHeartBeat, remoting.Success, remoting.MarshalBody(hb))
}

// fill sends n messages to each of the first queues of T.
func fill(t *testing.T, c *rpc.Conn, queues, n int) {
	t.Helper()
	for q := range queues {
		for i := range n {
			call(t, c, remoting.ReqSendMessageV2, remoting.Success, fmt.Append(nil, "m", i), sendFields("T", q, "")...)
		}
	}
}

func committedAt(t *testing.T, c *rpc.Conn, queue int) string {
	t.Helper()
	return call(t, c, remoting.ReqQueryConsumerOffset, remoting.Success, nil,
		"consumerGroup", "cg", "topic", "T", "queueId", fmt.Sprint(queue)).GetString("offset")
}

func commitOffset(t *testing.T, c *rpc.Conn, queue int, offset int64) *remoting.Command {
	t.Helper()
	return call(t, c, remoting.ReqUpdateConsumerOffset, remoting.Success, nil,
		"consumerGroup", "cg", "topic", "T", "queueId", fmt.Sprint(queue), "commitOffset", fmt.Sprint(offset))
}

// resetTo asks for a reset and gives where each queue goes on.
func resetTo(t *testing.T, c *rpc.Conn, fields ...string) string {
	t.Helper()
	resp := call(t, c, remoting.ReqInvokeBrokerToResetOffset, remoting.Success, nil,
		append([]string{"topic", "T", "group", "cg", "isForce", "true", "timestamp", "-1"}, fields...)...)
	table, err := remoting.ParseQueueOffsetTable(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for q := range int32(8) {
		if offset, ok := table.OffsetTable[remoting.MessageQueue{BrokerName: "broker-t", Topic: "T", QueueID: q}]; ok {
			out = append(out, fmt.Sprint(q, ":", offset))
		}
	}
	return strings.Join(out, " ")
}

func TestResetTargets(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	fill(t, c, 1, 3)
	time.Sleep(5 * time.Millisecond)
	middle := time.Now().UnixMilli()
	fill(t, c, 2, 4)
	joinGroup(t, c, "me@1")
	for _, tc := range []struct {
		name   string
		fields []string
		want   string
	}{
		{"to the end", nil, "0:7 1:4 2:0 3:0"},
		{"to a time", []string{"timestamp", fmt.Sprint(middle)}, "0:3 1:0 2:0 3:0"},
		{"to the beginning of time", []string{"timestamp", "0"}, "0:0 1:0 2:0 3:0"},
		{"behind all", []string{"timestamp", fmt.Sprint(middle + 1e9)}, "0:7 1:4 2:0 3:0"},
		{"one queue to a time", []string{"queueId", "0", "timestamp", fmt.Sprint(middle)}, "0:3"},
		{"one queue to an offset", []string{"queueId", "0", "offset", "5"}, "0:5"},
		{"one queue to its end", []string{"queueId", "1", "offset", "4"}, "1:4"},
		{"all queues, whatever the offset", []string{"offset", "2"}, "0:7 1:4 2:0 3:0"},
	} {
		if got := resetTo(t, c, tc.fields...); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	for _, tc := range []struct {
		name   string
		fields []string
		want   remoting.ResponseCode
	}{
		{"no such topic", []string{"topic", "Nope"}, remoting.TopicNotExist},
		{"no such group", []string{"group", "nobody"}, remoting.SubscriptionGroupNotExist},
		{"an offset too high", []string{"queueId", "0", "offset", "9"}, remoting.SystemError},
		{"no such queue", []string{"queueId", "99", "offset", "0"}, remoting.InvalidParameter},
		{"no time", []string{"timestamp", "never"}, remoting.SystemError},
	} {
		fields := append([]string{"topic", "T", "group", "cg", "timestamp", "-1", "isForce", "true"}, tc.fields...)
		call(t, c, remoting.ReqInvokeBrokerToResetOffset, tc.want, nil, fields...)
	}
}

// A reset waits for the queue's next pull, holds commits of before it off, and
// is told once; held pulls are told at once.
func TestResetIsTold(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	fill(t, c, 2, 5)
	joinGroup(t, c, "me@1")
	commitOffset(t, c, 0, 5)
	commitOffset(t, c, 1, 5)
	pull := func(queue int, offset int64, want remoting.ResponseCode, more ...string) *remoting.Command {
		t.Helper()
		return call(t, c, remoting.ReqPullMessage, want, nil, pullFields("T", queue, offset, append([]string{"sysFlag", "1", "commitOffset", fmt.Sprint(offset), "subVersion", "1"}, more...)...)...)
	}

	held := make(chan *remoting.Command, 1)
	req := remoting.NewRequest(int32(remoting.ReqPullMessage))
	for f := pullFields("T", 0, 5, "sysFlag", "2", "suspendTimeoutMillis", "30000", "subVersion", "1"); len(f) > 0; f = f[2:] {
		req.Set(f[0], f[1])
	}
	if _, err := c.Go(req, func(resp *remoting.Command, err error) {
		if err == nil {
			held <- resp.Clone()
		}
	}); err != nil {
		t.Fatal(err)
	}
	for b.holds.held.Load() == 0 {
		time.Sleep(time.Millisecond)
	}

	if got := resetTo(t, c, "timestamp", "0"); got != "0:0 1:0 2:0 3:0" {
		t.Fatalf("reset: %q", got)
	}
	select {
	case resp := <-held:
		if remoting.ResponseCode(resp.Code) != remoting.PullRetryImmediately {
			t.Errorf("the held pull: code %d", resp.Code)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the held pull goes on waiting")
	}
	if resp := commitOffset(t, c, 0, 5); string(resp.Remark) != "Offset has been previously reset" {
		t.Errorf("a commit of before the reset: remark %q", resp.Remark)
	}
	if got := committedAt(t, c, 0); got != "0" {
		t.Errorf("offset while the reset is pending: %s", got)
	}
	resp := pull(0, 5, remoting.PullOffsetMoved)
	if resp.GetString("nextBeginOffset") != "0" || resp.GetString("maxOffset") != "5" || string(resp.Remark) != "OFFSET_RESET" {
		t.Errorf("the pull that is told: %q %q", resp.Fields, resp.Remark)
	}
	if got := committedAt(t, c, 0); got != "0" {
		t.Errorf("the pull that is told committed its own offset: %s", got)
	}
	pull(0, 0, remoting.Success)
	if resp := commitOffset(t, c, 0, 2); len(resp.Remark) > 0 {
		t.Errorf("a commit of after the reset: remark %q", resp.Remark)
	}

	// Queue 1's reset waits over a restart.
	c.Close()
	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	c = dial(t, b)
	joinGroup(t, c, "me@1")
	if got := committedAt(t, c, 0); got != "2" {
		t.Errorf("offset of queue 0 after a restart: %s, want 2", got)
	}
	pull(0, 2, remoting.Success)
	if resp := pull(1, 5, remoting.PullOffsetMoved); resp.GetString("nextBeginOffset") != "0" {
		t.Errorf("the pull that is told after a restart: %q", resp.Fields)
	}
}

func TestResetOnClients(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.UseServerSideResetOffset = false })
	admin := dial(t, b)
	fill(t, admin, 4, 3)
	call(t, admin, remoting.ReqInvokeBrokerToResetOffset, remoting.SystemError, nil, "topic", "T", "group", "cg", "timestamp", "0", "isForce", "true")
	c, asked := dialServing(t, b, func(*remoting.Command) *response { return nil })
	joinGroup(t, c, "me@1")
	for q := range 4 {
		commitOffset(t, c, q, int64(q))
	}
	body := func() string {
		t.Helper()
		select {
		case req := <-asked:
			if req.Code != int32(remoting.ReqResetConsumerClientOffset) || !req.IsOneway() || req.GetString("group") != "cg" {
				t.Errorf("code %d, flag %d, fields %q", req.Code, req.Flag, req.Fields)
			}
			return string(req.Body)
		case <-time.After(5 * time.Second):
			t.Fatal("the consumer is not told")
			return ""
		}
	}
	if got := resetTo(t, admin, "isForce", "false"); got != "0:0 1:1 2:2 3:3" {
		t.Errorf("not forced, to the end: %q", got)
	}
	if got, want := body(), `{"offsetTable":{{"brokerName":"broker-t","queueId":0,"topic":"T"}:0,`; !strings.HasPrefix(got, want) {
		t.Errorf("told %s, want %s…", got, want)
	}
	if got := resetTo(t, admin); got != "0:3 1:3 2:3 3:3" {
		t.Errorf("forced, to the end: %q", got)
	}
	body()
	if got := committedAt(t, c, 2); got != "2" {
		t.Errorf("offset here after a reset on the clients: %s, want 2", got)
	}
	// C++ tools have the body in another form.
	req := remoting.NewRequest(int32(remoting.ReqInvokeBrokerToResetOffset))
	req.Language = remoting.LanguageCPP
	for f := []string{"topic", "T", "group", "cg", "timestamp", "0", "isForce", "true"}; len(f) > 0; f = f[2:] {
		req.Set(f[0], f[1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := admin.Call(ctx, req); err != nil {
		t.Fatal(err)
	}
	if got, want := body(), `{"offsetTable":[{"brokerName":"broker-t","offset":0,"queueId":0,"topic":"T"},`; !strings.HasPrefix(got, want) {
		t.Errorf("told %s, want %s…", got, want)
	}
	c.Close()
	for len(b.clients.consumersOf("cg")) > 0 {
		time.Sleep(time.Millisecond)
	}
	call(t, admin, remoting.ReqInvokeBrokerToResetOffset, remoting.ConsumerNotOnline, nil, "topic", "T", "group", "cg", "timestamp", "0", "isForce", "true")
}

func TestCloneOffset(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	fill(t, c, 2, 3)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("Other", 0, "")...)
	joinGroup(t, c, "me@1")
	commitOffset(t, c, 0, 2)
	commitOffset(t, c, 1, 3)
	call(t, c, remoting.ReqUpdateConsumerOffset, remoting.Success, nil, "consumerGroup", "cg", "topic", "Other", "queueId", "0", "commitOffset", "1")
	offsets := func(topic, group string) string { return fmt.Sprint(b.offsets.Queues(topic, group)) }

	call(t, c, remoting.ReqCloneGroupOffset, remoting.Success, nil, "srcGroup", "cg", "destGroup", "one", "topic", "T")
	if got := offsets("T", "one"); got != "map[0:2 1:3]" {
		t.Errorf("cloned: %s", got)
	}
	call(t, c, remoting.ReqCloneGroupOffset, remoting.Success, nil, "srcGroup", "cg", "destGroup", "all")
	if got := offsets("T", "all") + offsets("Other", "all"); got != "map[0:2 1:3]map[]" {
		t.Errorf("cloned what is subscribed: %s", got)
	}
	call(t, c, remoting.ReqCloneGroupOffset, remoting.Success, nil, "srcGroup", "cg", "destGroup", "all", "offline", "true")
	if got := offsets("Other", "all"); got != "map[0:1]" {
		t.Errorf("cloned all: %s", got)
	}
}
