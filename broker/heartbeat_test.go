package broker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

// dialTold is a client that writes down the notices it gets.
func dialTold(t *testing.T, b *Broker) (*rpc.Conn, chan string) {
	t.Helper()
	told := make(chan string, 16)
	c, err := rpc.Dial(context.Background(), b.Addrs()[0].String(), rpc.Options{OnRequest: func(_ *rpc.Conn, req *remoting.Command) {
		told <- req.GetString("consumerGroup")
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, told
}

func wantTold(t *testing.T, told chan string, group string) {
	t.Helper()
	select {
	case got := <-told:
		if got != group {
			t.Errorf("told of %q, want %q", got, group)
		}
	case <-time.After(time.Second):
		t.Errorf("not told of %q within a second", group)
	}
}

// The life of a group on the wire: its topic is there from the first
// heartbeat, members are told of those who come and go, also when a socket just
// closes, and the locks of who is gone are free.
func TestGroupLife(t *testing.T) {
	b := startBroker(t, nil)
	first, told := dialTold(t, b)
	heartbeat(t, first, "A", "g", "T", "*")
	wantTold(t, told, "g")
	if b.topics.Find("%RETRY%g") == nil || b.groups.Find("g") == nil {
		t.Fatal("group or retry topic isn't there after the first heartbeat")
	}
	second := dial(t, b)
	heartbeat(t, second, "B", "g", "T", "*")
	wantTold(t, told, "g")
	resp := call(t, first, remoting.ReqGetConsumerListByGroup, remoting.Success, nil, "consumerGroup", "g")
	if got := string(resp.Body); got != `{"consumerIdList":["A","B"]}` {
		t.Errorf("consumers %s", got)
	}
	queue := []remoting.MessageQueue{{BrokerName: "broker-t", QueueID: 1, Topic: "T"}}
	lock := func(c *rpc.Conn, id, want string) {
		t.Helper()
		resp := call(t, c, remoting.ReqLockBatchMQ, remoting.Success, remoting.MarshalBody(remoting.LockBatchBody{ClientID: id, ConsumerGroup: "g", MQSet: queue}))
		if got := string(resp.Body); got != want {
			t.Errorf("%s holds %s, want %s", id, got, want)
		}
	}
	const one, none = `{"lockOKMQSet":[{"brokerName":"broker-t","queueId":1,"topic":"T"}]}`, `{"lockOKMQSet":[]}`
	lock(second, "B", one)
	lock(first, "A", none)
	second.Close()
	wantTold(t, told, "g")
	lock(first, "A", one)
	call(t, first, remoting.ReqUnregisterClient, remoting.Success, nil, "clientID", "A", "consumerGroup", "g")
	call(t, first, remoting.ReqGetConsumerListByGroup, remoting.SystemError, nil, "consumerGroup", "g")
	third := dial(t, b)
	lock(third, "C", one)
}

// A clean stop closes the connections of consumers that live on: their locks are
// there again after it, for them and nobody else.
func TestLocksOutliveAStop(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	lock := func(b *Broker, id, want string) {
		t.Helper()
		c := dial(t, b)
		heartbeat(t, c, id, "g", "T", "*")
		resp := call(t, c, remoting.ReqLockBatchMQ, remoting.Success, []byte(`{"clientId":"`+id+`","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}`))
		if got := string(resp.Body); got != want {
			t.Errorf("%s holds %s, want %s", id, got, want)
		}
	}
	const one, none = `{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}`, `{"lockOKMQSet":[]}`
	lock(b, "A", one)
	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	lock(b, "B", none)
	lock(b, "A", one)
}

// A client that leaves its subscriptions out of its first heartbeat to a broker
// that was restarted, or on another connection, is served at once; one that the
// broker doesn't know is told to say them.
func TestHeartbeatWithoutSubscriptions(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	call(t, dial(t, b), remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "TAGS=a")...)
	beat := func(c *rpc.Conn, id string, fingerprint int32, without bool, want string) {
		t.Helper()
		data := consumerData("g", "T", "a", 7)
		if without {
			data.SubscriptionDataSet = nil
		}
		resp := call(t, c, remoting.ReqHeartBeat, remoting.Success, remoting.MarshalBody(remoting.HeartbeatData{ClientID: id,
			ConsumerDataSet: []remoting.ConsumerData{*data}, HeartbeatFingerprint: fingerprint, WithoutSub: without}))
		if got := resp.GetString("IS_SUB_CHANGE"); got != want {
			t.Errorf("%s, fingerprint %d, without subscriptions %v: IS_SUB_CHANGE %s, want %s", id, fingerprint, without, got, want)
		}
	}
	pull := func(c *rpc.Conn, want remoting.ResponseCode, subVersion string) {
		t.Helper()
		call(t, c, remoting.ReqPullMessage, want, nil, pullFields("T", 0, 0, "consumerGroup", "g", "sysFlag", "0", "subVersion", subVersion)...)
	}
	c := dial(t, b)
	beat(c, "A", 5, true, "true") // nobody knows them yet
	pull(c, remoting.SubscriptionNotExist, "7")
	beat(c, "A", 5, false, "false")
	pull(c, remoting.Success, "7")
	c.Close()
	c = dial(t, b)
	beat(c, "A", 5, true, "false")
	pull(c, remoting.Success, "7")
	pull(c, remoting.SubscriptionNotLatest, "8")
	if err := b.offsets.Flush(); err != nil { // and so what is remembered is written
		t.Fatal(err)
	}
	stopBroker(t, b)

	b = startBrokerIn(t, dir, nil)
	c = dial(t, b)
	beat(c, "A", 6, true, "true") // they are others now
	pull(c, remoting.SubscriptionNotExist, "7")
	beat(c, "B", 5, true, "true")
	beat(c, "A", 5, true, "false")
	pull(c, remoting.Success, "7")
	call(t, c, remoting.ReqUnregisterClient, remoting.Success, nil, "clientID", "A", "consumerGroup", "g")
	beat(c, "A", 5, true, "true")
	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	b.tables.Subscribers.Each(func(key meta.SubscriberKey, _ meta.Subscriber) {
		t.Errorf("%v is remembered after it unregistered", key)
	})
}

func TestHeartbeatAnswers(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for _, tt := range []struct {
		name, body, subChange string
		want                  remoting.ResponseCode
	}{
		{"V1", `{"clientID":"A","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[]}`, "true", remoting.Success},
		{"V2 with subscriptions", `{"clientID":"A","consumerDataSet":[{"groupName":"g","messageModel":"CLUSTERING","consumeType":"CONSUME_PASSIVELY","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":1}]}],"producerDataSet":[],"heartbeatFingerprint":5,"withoutSub":false}`, "false", remoting.Success},
		{"V2 without", `{"clientID":"A","consumerDataSet":[{"groupName":"g","messageModel":"CLUSTERING","consumeType":"CONSUME_PASSIVELY"}],"producerDataSet":[],"heartbeatFingerprint":5,"withoutSub":true}`, "false", remoting.Success},
		{"V2 with others", `{"clientID":"A","consumerDataSet":[{"groupName":"g","messageModel":"CLUSTERING","consumeType":"CONSUME_PASSIVELY"}],"producerDataSet":[],"heartbeatFingerprint":6,"withoutSub":true}`, "true", remoting.Success},
		{"Go's codes are texts", `{"clientID":"A","consumerDataSet":[{"groupName":"go","subscriptionDataSet":[{"topic":"T","subString":"a","tagsSet":["a"],"codeSet":["97"],"subVersion":1,"expressionType":"TAG"}]}],"producerDataSet":[]}`, "true", remoting.Success},
		{"C++ writes ordinals and texts", `{"clientID":"A","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"messageModel":1,"groupName":"cpp","subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":"1700000000000"}]}]}`, "true", remoting.Success},
		{"no client id", `{"consumerDataSet":[]}`, "", remoting.InvalidParameter},
		{"no JSON", `nonsense`, "", remoting.SystemError},
		{"nothing", ``, "", remoting.SystemError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp := call(t, c, remoting.ReqHeartBeat, tt.want, []byte(tt.body))
			if got := resp.GetString("IS_SUB_CHANGE"); got != tt.subChange {
				t.Errorf("IS_SUB_CHANGE %q, want %q", got, tt.subChange)
			}
			if tt.want == remoting.Success && resp.GetString("IS_SUPPORT_HEART_BEAT_V2") != "true" {
				t.Error("V2 isn't offered")
			}
			if resp.Version != 479 {
				t.Errorf("version %d: Java's client takes the broker's from here", resp.Version)
			}
		})
	}
}

// Groups that may not be are passed over; those beside them join.
func TestHeartbeatOfForbiddenGroups(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.AutoCreateSubscriptionGroup = false })
	c := dial(t, b)
	good := *consumerData("TOOLS_CONSUMER", "T", "*", 1)
	long := strings.Repeat("x", 249)
	call(t, c, remoting.ReqHeartBeat, remoting.Success, remoting.MarshalBody(remoting.HeartbeatData{ClientID: "A",
		ConsumerDataSet: []remoting.ConsumerData{*consumerData("unknown", "T", "*", 1), *consumerData("a/b", "T", "*", 1), *consumerData(long, "T", "*", 1), good},
		ProducerDataSet: []remoting.ProducerData{{GroupName: "../p"}, {GroupName: "p"}}}))
	for _, group := range []string{"unknown", "a/b", long} {
		if b.groups.Find(group) != nil || b.topics.Find("%RETRY%"+group) != nil || b.clients.consumerIDs(group) != nil {
			t.Errorf("group %.20q has joined", group)
		}
	}
	b.clients.mu.RLock()
	defer b.clients.mu.RUnlock()
	if b.clients.consumers["TOOLS_CONSUMER"] == nil || len(b.clients.producers) != 1 || b.clients.producers["p"] == nil {
		t.Error("what stands beside forbidden groups hasn't joined")
	}
}

func TestCheckClientConfig(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for _, tt := range []struct {
		kind, expr string
		want       remoting.ResponseCode
	}{
		{"TAG", "a || b", remoting.Success}, {"", "*", remoting.Success}, {"TAG", "||", remoting.SubscriptionParseFailed},
		{"SQL92", "a > 1", remoting.Success}, {"SQL92", "", remoting.SubscriptionParseFailed}, {"XML", "a", remoting.SubscriptionParseFailed},
	} {
		body := remoting.MarshalBody(remoting.CheckClientBody{ClientID: "A", Group: "g",
			SubscriptionData: remoting.SubscriptionData{Topic: "T", SubString: tt.expr, ExpressionType: tt.kind}})
		call(t, c, remoting.ReqCheckClientConfig, tt.want, body)
	}
}
