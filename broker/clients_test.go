package broker

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// clientWorld is a client table whose events are written down.
type clientWorld struct {
	*clientTable
	clock  time.Time
	events []string
}

func newClientWorld() *clientWorld {
	w := &clientWorld{clock: time.Unix(1700000000, 0)}
	w.clientTable = newClientTable(func() time.Time { return w.clock }, 120*time.Second)
	w.changed = func(group string) { w.events = append(w.events, "changed "+group) }
	w.left = func(group, id string, _ *netloop.Conn) { w.events = append(w.events, "left "+group+" "+id) }
	w.closeConn = func(*netloop.Conn, error) { w.events = append(w.events, "closed") }
	return w
}

func (w *clientWorld) conn() *netloop.Conn {
	c := &netloop.Conn{}
	w.open(c)
	return c
}

// beat is a heartbeat of one group; subs are topic, expression, version triples.
func (w *clientWorld) beat(c *netloop.Conn, id, group string, subs ...any) (resend bool) {
	return w.registerConsumer(w.who(c, id), consumerData(group, subs...), 0, false)
}

func (w *clientWorld) who(c *netloop.Conn, id string) clientInfo {
	return clientInfo{conn: c, id: id, beat: w.clock}
}

func consumerData(group string, subs ...any) *remoting.ConsumerData {
	d := &remoting.ConsumerData{GroupName: group, ConsumeType: remoting.ConsumePassively, MessageModel: remoting.ModelClustering}
	for i := 0; i < len(subs); i += 3 {
		d.SubscriptionDataSet = append(d.SubscriptionDataSet, remoting.SubscriptionData{
			Topic: subs[i].(string), SubString: subs[i+1].(string), SubVersion: int64(subs[i+2].(int)), ExpressionType: "TAG",
			CodeSet: []int32{12345}, // wrong on purpose: a client's hashes aren't trusted
		})
	}
	return d
}

// want compares the events since the last look.
func (w *clientWorld) want(t *testing.T, events ...string) {
	t.Helper()
	slices.Sort(w.events)
	slices.Sort(events)
	if !slices.Equal(w.events, events) {
		t.Errorf("events %q, want %q", w.events, events)
	}
	w.events = nil
}

func (w *clientWorld) sub(t *testing.T, c *netloop.Conn, group, topic string) *subscription {
	t.Helper()
	s, err := w.Subscription(c, []byte(group), []byte(topic))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMembership(t *testing.T) {
	w := newClientWorld()
	a, b := w.conn(), w.conn()
	w.beat(a, "A", "g", "T", "*", 1)
	w.want(t, "changed g")
	w.beat(a, "A", "g", "T", "*", 2) // a new version alone moves nobody
	w.want(t)
	w.beat(b, "B", "g", "T", "*", 1)
	w.want(t, "changed g")
	w.beat(a, "A", "g", "T", "*", 3, "U", "*", 3)
	w.want(t, "changed g")
	if got := w.consumerIDs("g"); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("ids %q", got)
	}
	w.closed(b, nil)
	w.want(t, "left g B", "changed g")
	w.unregister(a, "", "g")
	w.want(t, "left g A", "changed g")
	w.closed(a, nil)
	w.want(t)
	if got := w.consumerIDs("g"); got != nil {
		t.Errorf("ids %q of a group nobody is in", got)
	}
	if len(w.consumers)+len(w.producers) != 0 {
		t.Error("groups without members are kept")
	}
}

// A client that reconnects before its old connection is seen to be closed is
// one client: it is listed once, and its locks outlive the old connection.
func TestReconnect(t *testing.T) {
	w := newClientWorld()
	old, fresh := w.conn(), w.conn()
	w.beat(old, "A", "g", "T", "*", 1)
	w.beat(fresh, "A", "g", "T", "*", 1)
	if got := w.consumerIDs("g"); !slices.Equal(got, []string{"A"}) {
		t.Errorf("ids %q, want A once", got)
	}
	w.want(t, "changed g", "changed g")
	w.closed(old, nil)
	w.want(t)
	w.closed(fresh, nil)
	w.want(t, "left g A", "changed g")
}

func TestBroadcastersAreNotTold(t *testing.T) {
	w := newClientWorld()
	c := w.conn()
	data := consumerData("g", "T", "*", 1)
	data.MessageModel = remoting.ModelBroadcasting
	w.registerConsumer(w.who(c, "A"), data, 0, false)
	if !w.sub(t, c, "g", "T").broadcast {
		t.Error("the subscription is not a broadcasting one")
	}
	w.closed(c, nil)
	w.want(t, "left g A")
}

// What a client said once is kept while it may come back.
func TestForgetting(t *testing.T) {
	w := newClientWorld()
	known := memory{}
	w.subscribers = known
	c := w.conn()
	w.registerConsumer(w.who(c, "A"), consumerData("g", "T", "*", 1), 5, false)
	w.expire(w.clock)
	w.closed(c, nil)
	w.clock = w.clock.Add(120 * time.Second)
	w.expire(w.clock)
	if len(known) != 1 {
		t.Fatal("forgotten too early")
	}
	c = w.conn()
	if w.registerConsumer(w.who(c, "A"), consumerData("g"), 5, true) {
		t.Error("a client that is known is asked again")
	}
	w.sub(t, c, "g", "T")
	w.clock = w.clock.Add(60 * time.Second)
	w.expire(w.clock)
	w.closed(c, nil)
	w.clock = w.clock.Add(121 * time.Second)
	w.expire(w.clock)
	if len(known)+len(w.gone) != 0 {
		t.Errorf("kept for ever: %v", known)
	}
}

// memory is a subscriberMemory.
type memory map[meta.SubscriberKey]meta.Subscriber

func (m memory) Get(key meta.SubscriberKey) meta.Subscriber { return m[key] }
func (m memory) Set(key meta.SubscriberKey, s meta.Subscriber) {
	if m[key] = s; s == (meta.Subscriber{}) {
		delete(m, key)
	}
}

func TestExpiry(t *testing.T) {
	w := newClientWorld()
	a, b := w.conn(), w.conn()
	w.beat(a, "A", "g", "T", "*", 1)
	w.registerProducer(w.who(b, "B"), "p")
	w.events = nil
	w.clock = w.clock.Add(119 * time.Second)
	w.expire(w.clock)
	w.want(t)
	w.registerProducer(w.who(b, "B"), "p")
	w.clock = w.clock.Add(2 * time.Second)
	w.expire(w.clock)
	w.want(t, "left g A", "changed g", "closed")
	if len(w.producers["p"]) != 1 {
		t.Error("a producer that has sent a heartbeat is gone")
	}
}

func TestScanRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scans := 0
		table := newClientTable(time.Now, time.Minute)
		table.scanned = func(time.Time) { scans++ }
		table.start()
		time.Sleep(35 * time.Second)
		table.close()
		if scans != 3 {
			t.Errorf("%d scans in 35 s", scans)
		}
	})
}

// Each client pulls by what it has subscribed itself, compared by content.
func TestSubscriptions(t *testing.T) {
	w := newClientWorld()
	a, b := w.conn(), w.conn()
	w.beat(a, "A", "g", "T", "x || y", 1)
	w.beat(b, "B", "g", "T", "z", 9)
	matches := func(c *netloop.Conn, tag string) bool {
		f := w.sub(t, c, "g", "T").Filter
		return f == nil || f.MatchCode(message.TagsCode([]byte(tag)))
	}
	for _, tag := range []string{"x", "y", "z"} {
		if matches(a, tag) != (tag != "z") || matches(b, tag) != (tag == "z") {
			t.Errorf("tag %s: A %v, B %v", tag, matches(a, tag), matches(b, tag))
		}
	}
	// A changed expression counts under the same version, an overtaken
	// heartbeat doesn't.
	w.beat(a, "A", "g", "T", "w", 1)
	if !matches(a, "w") || matches(a, "x") {
		t.Error("a changed subscription under the same version is ignored")
	}
	w.beat(a, "A", "g", "T", "x", 5)
	w.beat(a, "A", "g", "T", "w", 4)
	if !matches(a, "x") || w.sub(t, a, "g", "T").Version != 5 {
		t.Error("an overtaken heartbeat replaced a newer one")
	}
	w.beat(a, "A", "g", "T", "*", 6)
	if w.sub(t, a, "g", "T").Filter != nil {
		t.Error("everything should need no filter")
	}
	class := consumerData("g", "T", "org.example.Filter", 7)
	class.SubscriptionDataSet[0].ClassFilterMode = true
	w.registerConsumer(w.who(a, "A"), class, 0, false)
	if w.sub(t, a, "g", "T").Filter != nil {
		t.Error("the name of a class is taken for a tag")
	}
}

// A client whose heartbeat has not come is served by what its group says, but not
// by one of several opinions.
func TestSubscriptionOfOthers(t *testing.T) {
	w := newClientWorld()
	a, b, stranger := w.conn(), w.conn(), w.conn()
	w.beat(a, "A", "g", "T", "x", 1)
	if s := w.sub(t, stranger, "g", "T"); s.Version != 1 {
		t.Errorf("got version %d", s.Version)
	}
	w.beat(b, "B", "g", "T", "x", 2)
	if s := w.sub(t, stranger, "g", "T"); s.Version != 2 {
		t.Errorf("got version %d, want the newest", s.Version)
	}
	w.beat(b, "B", "g", "T", "||", 3)
	for range 10 { // whatever the order of the map
		_, err := w.Subscription(stranger, []byte("g"), []byte("T"))
		if code, _ := errorReply(err); err == nil || code != remoting.SubscriptionNotExist {
			t.Fatalf("two that differ: %v", err)
		}
	}
	if s := w.sub(t, a, "g", "T"); s.Version != 1 {
		t.Errorf("A itself got version %d", s.Version)
	}
}

func TestSubscriptionErrors(t *testing.T) {
	w := newClientWorld()
	a, stranger := w.conn(), w.conn()
	w.beat(a, "A", "g", "T", "x", 3, "Bad", "||", 3)
	w.registerConsumer(w.who(a, "A"), sqlData("sql", "T", "a > 1", 1, "Bad", "a >", 1), 0, false)
	for _, tt := range []struct {
		conn         *netloop.Conn
		group, topic string
		want         remoting.ResponseCode
	}{
		{a, "g", "T", remoting.Success},
		{stranger, "g", "T", remoting.Success}, // reconnected, heartbeat to come
		{a, "g", "Other", remoting.SubscriptionNotExist},
		{stranger, "nobody", "T", remoting.SubscriptionNotExist},
		{a, "g", "Bad", remoting.SubscriptionParseFailed},
		{a, "sql", "T", remoting.Success},
		{a, "sql", "Bad", remoting.SubscriptionParseFailed},
	} {
		_, err := w.Subscription(tt.conn, []byte(tt.group), []byte(tt.topic))
		code := remoting.Success
		if err != nil {
			code, _ = errorReply(err)
		}
		if code != tt.want {
			t.Errorf("%s@%s: %v, want %v", tt.topic, tt.group, err, tt.want)
		}
	}
}

func TestSubscriptionCostsNothing(t *testing.T) {
	w := newClientWorld()
	c := w.conn()
	w.beat(c, "A", "some-group", "some-topic", "a || b", 1)
	group, topic := []byte("some-group"), []byte("some-topic")
	if n := testing.AllocsPerRun(100, func() {
		if _, err := w.Subscription(c, group, topic); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// Heartbeat V2: subscriptions are left out while their fingerprint is the one
// that was sent with them.
func TestHeartbeatV2(t *testing.T) {
	w := newClientWorld()
	c := w.conn()
	full, bare := consumerData("g", "T", "x", 1), consumerData("g")
	who := w.who(c, "A")
	if !w.registerConsumer(who, bare, 7, true) {
		t.Error("subscriptions that were never sent are not asked for")
	}
	if w.registerConsumer(who, full, 7, false) {
		t.Error("a full heartbeat is asked for again")
	}
	if w.registerConsumer(who, bare, 7, true) {
		t.Error("known subscriptions are asked for")
	}
	if w.sub(t, c, "g", "T").Version != 1 {
		t.Error("a heartbeat without subscriptions has removed them")
	}
	if !w.registerConsumer(who, bare, 8, true) {
		t.Error("changed subscriptions are not asked for")
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	w := newClientTable(time.Now, time.Minute)
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for j := range 200 {
				c := &netloop.Conn{}
				w.open(c)
				who := clientInfo{conn: c, id: fmt.Sprint(i, j)}
				w.registerConsumer(who, consumerData("g", "T", "*", 1), 0, false)
				w.registerProducer(who, "p")
				if _, err := w.Subscription(c, []byte("g"), []byte("T")); err != nil {
					t.Error(err)
				}
				w.consumerIDs("g")
				w.closed(c, nil)
			}
		})
	}
	clients.Wait()
	if len(w.consumers)+len(w.producers) != 0 {
		t.Errorf("%d consumer and %d producer groups are left", len(w.consumers), len(w.producers))
	}
}

// Many changes of a group within a moment are one notice, and it is out within
// a second.
func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := []*netloop.Conn{{}, {}}
		n := newNotifier(func(group string) []*netloop.Conn {
			if group == "g" {
				return conns
			}
			return nil
		})
		got := map[*netloop.Conn]int{}
		n.send = func(c *netloop.Conn, frame []byte) {
			var cmd remoting.Command
			if err := remoting.Decode(frame, &cmd); err != nil {
				t.Error(err)
			}
			if cmd.Code != 40 || !cmd.IsOneway() || cmd.GetString("consumerGroup") != "g" {
				t.Errorf("notice %+v", &cmd)
			}
			got[c]++
		}
		n.start()
		for range 50 {
			n.notify("g")
			n.notify("empty")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got[conns[0]] != 1 || got[conns[1]] != 1 {
			t.Errorf("notices %v, want one each", got)
		}
		n.notify("g")
		time.Sleep(time.Second)
		synctest.Wait()
		if got[conns[0]] != 2 {
			t.Errorf("notices %v, want two each", got)
		}
		n.notify("g")
		n.close()
	})
}
