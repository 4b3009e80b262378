package mqtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringmq/ringmq/broker"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// Two NameServers, two brokers: a topic on both, messages on both, a NameServer
// and a broker that stop and come back, and nothing left running at the end.
func TestCluster(t *testing.T) {
	before := goleak.IgnoreCurrent()                   // gnet's library has some from its init on
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // runs after Start's
	c := Start(t, Options{NameServers: 2, Brokers: 2, Broker: func(i int, cfg *broker.Config) {
		if i == 1 {
			cfg.FlushDiskType = "SYNC_FLUSH"
		}
	}})
	c.CreateTopic("Orders", 3)
	for _, n := range c.NameServers {
		route := c.Route(n, "Orders")
		var where []string
		for _, q := range route.QueueDatas {
			where = append(where, fmt.Sprint(q.BrokerName, " ", q.ReadQueueNums, "/", q.WriteQueueNums))
		}
		if got := strings.Join(where, ", "); got != "broker-a 3/3, broker-b 3/3" && got != "broker-b 3/3, broker-a 3/3" {
			t.Errorf("route at %s is %s", n.Addr(), got)
		}
		for _, d := range route.BrokerDatas {
			if want := c.Brokers[d.BrokerName[len(d.BrokerName)-1]-'a'].Addr(); d.BrokerAddrs[0] != want {
				t.Errorf("%s is at %s, want %s", d.BrokerName, d.BrokerAddrs[0], want)
			}
		}
	}
	if c.Route(c.NameServers[0], "Nothing") != nil {
		t.Error("there is a route to a topic that does not exist")
	}

	const n = 100
	for _, b := range c.Brokers {
		for i := range n {
			tag := "even"
			if i%2 == 1 {
				tag = "odd"
			}
			if off := b.Send("Orders", 1, fmt.Sprint(b.Name, "/", i), "TAGS", tag, "KEYS", fmt.Sprint("k", i)); int(off) != i {
				t.Fatalf("message %d has queue offset %d", i, off)
			}
		}
	}
	check := func(b *Broker) {
		t.Helper()
		msgs := b.PullAll("Orders", 1, 0)
		if len(msgs) != n {
			t.Fatalf("%s has %d messages, want %d", b.Name, len(msgs), n)
		}
		for i, m := range msgs {
			if string(m.Body) != fmt.Sprint(b.Name, "/", i) || m.QueueOffset != message.QueueOffset(i) {
				t.Fatalf("%s: message %d is %q at %d", b.Name, i, m.Body, m.QueueOffset)
			}
		}
		for i, m := range b.Pull("Orders", 1, 0, "odd", 0).Messages {
			if want := fmt.Sprint(b.Name, "/", 2*i+1); string(m.Body) != want {
				t.Fatalf("%s: odd message %d is %q, want %q", b.Name, i, m.Body, want)
			}
		}
	}
	for _, b := range c.Brokers {
		check(b)
		b.Restart()
		check(b)
	}
	if got := Bodies(c.Brokers[0].PullAll("Orders", 1, n-2)); got != "broker-a/98 broker-a/99" {
		t.Errorf("the last two are %q", got)
	}

	c.NameServers[0].Stop()
	c.Brokers[0].Stop()
	c.Wait("broker-a to leave the route", func() bool {
		return len(c.Route(c.NameServers[1], "Orders").BrokerDatas) == 1
	})
	c.Brokers[0].Start()
	check(c.Brokers[0])
}

// A held pull is answered by the message that comes.
func TestHeldPull(t *testing.T) {
	c := Start(t, Options{})
	c.CreateTopic("T", 1)
	b := c.Brokers[0]
	if r := b.Pull("T", 0, 0, "*", 0); r.Code != remoting.PullNotFound || r.Max != 0 {
		t.Errorf("pull of an empty queue: %+v", r)
	}
	got := make(chan string)
	go func() { got <- strings.Join(b.Pull("T", 0, 0, "*", 15*time.Second).Bodies(), " ") }()
	b.Send("T", 0, "hello")
	if s := <-got; s != "hello" {
		t.Errorf("the held pull brought %q", s)
	}
}
