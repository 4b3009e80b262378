package broker

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

// Every strategy gives each queue to exactly one client, in shares that differ
// by one at most. AVG's are Apache's formula.
func TestStrategies(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		queues := make([]remoting.MessageQueue, 1+rng.IntN(20))
		for i := range queues {
			queues[i].QueueID = int32(i)
		}
		var clients []string
		for i := range 1 + rng.IntN(20) {
			clients = append(clients, fmt.Sprintf("c%02d", i))
		}
		for name, s := range strategies {
			var all []int
			least, most := len(queues), 0
			for i, c := range clients {
				mine := s(queues, clients, c)
				least, most = min(least, len(mine)), max(most, len(mine))
				for _, q := range mine {
					all = append(all, int(q.QueueID))
				}
				if name != "AVG" || len(mine) == 0 {
					continue
				}
				mod := len(queues) % len(clients)
				size := len(queues) / len(clients)
				if len(queues) <= len(clients) {
					size = 1
				} else if mod > 0 && i < mod {
					size++
				}
				start := i*size + mod
				if mod > 0 && i < mod {
					start = i * size
				}
				if int(mine[0].QueueID) != start || len(mine) != min(size, len(queues)-start) {
					t.Errorf("seed %d: client %d of %d, %d queues: got %d from %d, Apache gives %d from %d", seed, i, len(clients), len(queues), len(mine), mine[0].QueueID, size, start)
				}
			}
			slices.Sort(all)
			if len(all) != len(queues) || len(slices.Compact(all)) != len(queues) || most-least > 1 {
				t.Errorf("seed %d: %s shares %d queues among %d clients as %v", seed, name, len(queues), len(clients), all)
			}
			if got := s(queues, clients, "stranger"); got != nil {
				t.Errorf("%s gives a stranger %v", name, got)
			}
		}
	}
}

func TestAssignPop(t *testing.T) {
	queues := routeQueues("T", &remoting.RouteData{QueueDatas: []remoting.QueueData{{BrokerName: "b", ReadQueueNums: 3, Perm: 6}, {BrokerName: "a", ReadQueueNums: 3, Perm: 4}, {BrokerName: "c", ReadQueueNums: 9, Perm: 2}}})
	text := func(qs []remoting.MessageQueue) string {
		var out []string
		for _, q := range qs {
			out = append(out, fmt.Sprint(q.BrokerName, q.QueueID))
		}
		return strings.Join(out, " ")
	}
	if got := text(queues); got != "a0 a1 a2 b0 b1 b2" {
		t.Fatalf("readable queues in order: got %s", got)
	}
	four := []string{"c1", "c2", "c3", "c4"}
	for _, tc := range []struct {
		clients []string
		client  string
		share   int
		want    string
	}{
		{four, "c2", -1, "a-1 a-1 a-1 b-1 b-1 b-1"},
		{four, "c2", 0, "a-1 a-1 a-1 b-1 b-1 b-1"},
		{four, "c2", 3, "a-1 a-1 a-1 b-1 b-1 b-1"},
		{four, "c2", 1, "a2 b0 b1"},
		{four, "c4", 2, "b2 a0 a1 a2 b0"},
		{four, "c9", 1, ""},
		{[]string{"1", "2", "3", "4", "5", "6", "7", "8"}, "8", 1, "a1"},
	} {
		if got := text(assignPop(averagely, queues, tc.clients, tc.client, tc.share)); got != tc.want {
			t.Errorf("%s of %v, %d share: got %s, want %s", tc.client, tc.clients, tc.share, got, tc.want)
		}
	}
}

func popHeartbeat(t *testing.T, c *rpc.Conn, client, group, topic string) {
	t.Helper()
	body := remoting.MarshalBody(remoting.HeartbeatData{ClientID: client, ConsumerDataSet: []remoting.ConsumerData{{GroupName: group, MessageModel: remoting.ModelClustering,
		ConsumeType: remoting.ConsumePassively, ConsumeFromWhere: remoting.ConsumeFromLastOffset,
		SubscriptionDataSet: []remoting.SubscriptionData{{Topic: topic, SubString: "*", ExpressionType: "TAG", SubVersion: 1}}}}})
	call(t, c, remoting.ReqHeartBeat, remoting.Success, body)
}

// Assignments come of the route of all brokers, by the mode that was set, which
// outlives a restart.
func TestQueryAssignment(t *testing.T) {
	server := startRouteServer(t)
	route := &remoting.RouteData{QueueDatas: []remoting.QueueData{{BrokerName: "broker-t", ReadQueueNums: 2, Perm: 6}, {BrokerName: "other", ReadQueueNums: 1, Perm: 6}},
		BrokerDatas: []remoting.BrokerData{{BrokerName: "broker-t", BrokerAddrs: map[int64]string{0: "127.0.0.1:1"}}}}
	server.routes = map[string]*remoting.RouteData{"T": route, "%RETRY%g": route}
	dir := t.TempDir()
	with := func(c *Config) {
		c.NamesrvAddr = server.ln.Addr().String()
		c.LoadBalancePollNameServerInterval = 50 * time.Millisecond
	}
	b := startBrokerIn(t, dir, with)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "x")
	ask := func(topic, client, strategy, model string) string {
		t.Helper()
		body := remoting.MarshalBody(remoting.QueryAssignmentBody{ClientID: client, ConsumerGroup: "g", MessageModel: model, StrategyName: strategy, Topic: topic})
		var reply remoting.QueryAssignmentReply
		got := call(t, c, remoting.ReqQueryAssignment, remoting.Success, body).Body
		if err := remoting.ParseBody(got, &reply); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(got), "messageQueueAssignments") {
			return "none"
		}
		var out []string
		for _, a := range reply.MessageQueueAssignments {
			out = append(out, fmt.Sprint(a.Mode, ":", a.MessageQueue.BrokerName, "/", a.MessageQueue.QueueID))
		}
		return strings.Join(out, " ")
	}
	const cluster = remoting.ModelClustering
	if got := ask("T", "c1", "AVG", cluster); got != "none" {
		t.Errorf("no heartbeat yet: got %s", got)
	}
	popHeartbeat(t, c, "c1", "g", "T")
	other := dial(t, b)
	popHeartbeat(t, other, "c2", "g", "T")
	for _, tc := range []struct{ topic, client, strategy, model, want string }{
		{"T", "c1", "AVG", cluster, "PULL:broker-t/0 PULL:broker-t/1"},
		{"T", "c2", "AVG", cluster, "PULL:other/0"},
		{"T", "c1", "AVG_BY_CIRCLE", cluster, "PULL:broker-t/0 PULL:other/0"},
		{"T", "c3", "AVG", cluster, ""},
		{"T", "c1", "CONFIG", cluster, "none"},
		{"T", "c1", "AVG", "SOMEHOW", "none"},
		{"T", "c9", "", remoting.ModelBroadcasting, "PULL:broker-t/0 PULL:broker-t/1 PULL:other/0"},
		{"Nope", "c1", "AVG", cluster, "none"},
	} {
		if got := ask(tc.topic, tc.client, tc.strategy, tc.model); got != tc.want {
			t.Errorf("%+v: got %q", tc, got)
		}
	}
	mode := func(topic, group, mode string) []byte {
		return fmt.Appendf(nil, `{"consumerGroup":%q,"mode":%q,"popShareQueueNum":0,"topic":%q}`, group, mode, topic)
	}
	call(t, c, remoting.ReqSetMessageRequestMode, remoting.NoPermission, mode("%RETRY%g", "g", "POP"))
	call(t, c, remoting.ReqSetMessageRequestMode, remoting.TopicNotExist, mode("Nope", "g", "POP"))
	call(t, c, remoting.ReqSetMessageRequestMode, remoting.InvalidParameter, mode("T", "g", "PUSH"))
	call(t, c, remoting.ReqSetMessageRequestMode, remoting.Success, mode("T", "g", "POP"))
	const popped = "POP:broker-t/-1 POP:other/-1"
	if got := ask("T", "c1", "AVG", cluster); got != popped {
		t.Errorf("in mode POP: got %s", got)
	}
	saved, err := os.ReadFile(filepath.Join(dir, "config", "messageRequestMode.json"))
	if err != nil || strings.Join(strings.Fields(string(saved)), "") != `{"messageRequestModeMap":{"T":{"g":{"consumerGroup":"g","mode":"POP","popShareQueueNum":0,"topic":"T"}}}}` {
		t.Errorf("messageRequestMode.json: %v %s", err, saved)
	}
	restart := func(change func(c *Config)) {
		stopBroker(t, b)
		b = startBrokerIn(t, dir, func(c *Config) { with(c); change(c) })
		c = dial(t, b)
		popHeartbeat(t, c, "c1", "g", "T")
	}
	restart(func(c *Config) { c.ServerLoadBalancerEnable = false })
	if got := ask("T", "c1", "AVG", cluster); got != "POP:broker-t/0 POP:broker-t/1 POP:other/0" {
		t.Errorf("serverLoadBalancerEnable=false: got %s", got)
	}
	restart(func(c *Config) { c.DefaultMessageRequestMode = "POP" })
	if got := ask("T", "c1", "AVG", cluster); got != popped {
		t.Errorf("after a restart: got %s", got)
	}
	if got := ask("%RETRY%g", "c1", "AVG", cluster); !strings.HasPrefix(got, "PULL:") {
		t.Errorf("a retry topic: got %s", got)
	}
	// While no NameServer answers what is known goes on.
	server.mu.Lock()
	server.fail = true
	server.mu.Unlock()
	time.Sleep(60 * time.Millisecond)
	if got := ask("T", "c1", "AVG", cluster); got != popped {
		t.Errorf("without a NameServer: got %s", got)
	}
	call(t, c, remoting.ReqDeleteTopicInBroker, remoting.Success, nil, "topic", "T")
	if _, ok := b.tables.Modes.Get("T", "g"); ok {
		t.Error("a deleted topic's mode is still there")
	}
}

// Without any NameServer the broker is all there is.
func TestQueryAssignmentAlone(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "x")
	popHeartbeat(t, c, "c1", "g", "T")
	body := remoting.MarshalBody(remoting.QueryAssignmentBody{ClientID: "c1", ConsumerGroup: "g", MessageModel: remoting.ModelClustering, StrategyName: "AVG", Topic: "T"})
	var reply remoting.QueryAssignmentReply
	if err := remoting.ParseBody(call(t, c, remoting.ReqQueryAssignment, remoting.Success, body).Body, &reply); err != nil || len(reply.MessageQueueAssignments) != 4 {
		t.Errorf("got %v, %d queues, want 4", err, len(reply.MessageQueueAssignments))
	}
	call(t, c, remoting.ReqQueryAssignment, remoting.SystemError, []byte("{"))
}
