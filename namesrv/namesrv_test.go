package namesrv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringmq/ringmq/internal/config"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

func TestMain(m *testing.M) {
	// gnet's dependency starts these two for the life of the process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// broker is a registration of the tests' own making.
type broker struct {
	name, addr string
	id         int64
	version    remoting.DataVersion
	topics     int
	acting     bool
}

func (b broker) header() *remoting.RegisterBrokerHeader {
	return &remoting.RegisterBrokerHeader{BrokerName: b.name, BrokerAddr: b.addr, ClusterName: "C", HAServerAddr: b.addr + "1",
		BrokerID: b.id, EnableActingMaster: b.acting}
}

func (b broker) body() *remoting.RegisterBrokerBody {
	table := remoting.TopicConfigTable{DataVersion: b.version, TopicConfigTable: map[string]remoting.TopicConfig{}}
	for i := range b.topics {
		tc := remoting.NewTopicConfig(fmt.Sprintf("topic-%05d", i))
		table.TopicConfigTable[tc.TopicName] = tc
	}
	return &remoting.RegisterBrokerBody{TopicConfigSerializeWrapper: table}
}

func (b broker) command() *remoting.Command {
	cmd := b.header().Command()
	cmd.Body = b.body().Marshal()
	return cmd
}

func mustSucceed(t testing.TB, resp *remoting.Command) *remoting.Command {
	t.Helper()
	if resp.Code != int32(remoting.Success) {
		t.Fatalf("got %d %s, want 0", resp.Code, resp.Remark)
	}
	return resp
}

func routeRequest(topic string) *remoting.Command {
	return (&remoting.RouteHeader{Topic: topic}).Command()
}

// fakeLink is a connection of a registry test.
type fakeLink struct {
	closed bool
	cause  error
}

func (l *fakeLink) Closed() bool    { return l.closed }
func (l *fakeLink) Close(err error) { l.closed, l.cause = true, err }

type rig struct {
	*registry
	cfg     Config
	changes []minIDChange
}

func newRig(t testing.TB) *rig {
	kv, err := openKV(vfs.NewMem(), "/kv.json")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{cfg: testConfig()}
	r.registry = newRegistry(testLog(t), kv, func() *Config { return &r.cfg }, func(c minIDChange) { r.changes = append(r.changes, c) })
	return r
}

func newPeer() *peer { return &peer{link: &fakeLink{}, brokers: map[brokerKey]*live{}} }

func (r *rig) add(t testing.TB, b broker, p *peer, now int64) master {
	t.Helper()
	m, err := r.register(&registration{RegisterBrokerHeader: *b.header(), knowsActingMaster: true, body: b.body()}, p, now)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A broker that is silent for longer than 120 s is dropped, its connection
// closed; one that answers at the last moment stays.
func TestExpiry(t *testing.T) {
	r := newRig(t)
	p, q := newPeer(), newPeer()
	r.add(t, broker{name: "a", addr: "1:1", topics: 3}, p, 1000)
	r.add(t, broker{name: "b", addr: "2:1", topics: 3}, q, 1000)
	r.expire(1000 + 120_000)
	if len(r.live) != 2 {
		t.Fatalf("after exactly 120 s: got %d brokers, want 2", len(r.live))
	}
	if _, ok := r.heartbeat("C", "2:1", 121_000); !ok {
		t.Fatal("heartbeat of a registered broker: not known")
	}
	r.expire(121_001)
	if _, ok := r.groups["a"]; ok || len(r.groups) != 1 {
		t.Errorf("got groups %v, want b alone", r.groups)
	}
	if l := p.link.(*fakeLink); !errors.Is(l.cause, errExpired) {
		t.Errorf("connection of the expired broker: got cause %v, want errExpired", l.cause)
	}
	if q.link.Closed() {
		t.Error("the connection of the living broker was closed")
	}
	r.expire(241_001)
	if len(r.topics)+len(r.groups)+len(r.live)+len(r.clusters)+len(q.brokers) != 0 {
		t.Errorf("left behind: topics %v groups %v live %v clusters %v peer %v", r.topics, r.groups, r.live, r.clusters, q.brokers)
	}
}

// Connections: a broker that has connected anew is not dropped with its old
// connection; one connection may carry several brokers.
func TestConnections(t *testing.T) {
	r := newRig(t)
	old, now := newPeer(), newPeer()
	r.add(t, broker{name: "a", addr: "1:1", topics: 2}, old, 0)
	r.add(t, broker{name: "b", addr: "2:1", topics: 2}, old, 0)
	r.add(t, broker{name: "a", addr: "1:1", topics: 2}, now, 0)
	r.closed(old)
	if r.groups["a"] == nil || r.groups["b"] != nil {
		t.Errorf("got groups %v, want a alone", r.groups)
	}
	now.link.Close(nil)
	_, err := r.register(&registration{RegisterBrokerHeader: *broker{name: "x", addr: "3:1"}.header(), body: broker{topics: 2}.body()}, now, 0)
	if err == nil || r.groups["x"] != nil {
		t.Errorf("registration that arrives after its connection closed: got %v, want an error and no group", err)
	}
	r.closed(now)
	if len(r.groups)+len(r.topics)+len(r.live) != 0 {
		t.Errorf("left behind: %v %v %v", r.groups, r.topics, r.live)
	}
}

// The members that stay learn of a new smallest id; those of a group without
// acting masters when it grows only.
func TestMinIDNotices(t *testing.T) {
	for _, acting := range []bool{true, false} {
		r := newRig(t)
		r.cfg.NotifyMinBrokerIdChanged = true
		master, one, two := newPeer(), newPeer(), newPeer()
		version := remoting.DataVersion{Counter: 1}
		r.add(t, broker{name: "a", addr: "2:1", id: 2, topics: 2, acting: acting, version: version}, two, 0)
		r.add(t, broker{name: "a", addr: "1:1", id: 1, topics: 2, acting: acting, version: version}, one, 0)
		r.add(t, broker{name: "a", addr: "0:1", id: 0, topics: 2, acting: acting, version: version}, master, 0)
		r.add(t, broker{name: "a", addr: "0:1", id: 0, topics: 2, acting: acting, version: version}, master, 0)
		r.closed(master)
		r.closed(two)
		var got []string
		for _, c := range r.changes {
			got = append(got, fmt.Sprintf("min %d at %s ha %s offline %s to %s", c.header.MinBrokerID, c.header.MinBrokerAddr,
				c.header.HABrokerAddr, c.header.OfflineBrokerAddr, strings.Join(c.to, ",")))
		}
		want := []string{"min 1 at 1:1 ha 1:11 offline  to 2:1", "min 0 at 0:1 ha 0:11 offline  to 1:1,2:1"}
		if acting {
			want = append(want, "min 1 at 1:1 ha  offline 0:1 to 1:1,2:1")
		}
		if !slices.Equal(got, want) {
			t.Errorf("acting %v: notices\n got %q\nwant %q", acting, got, want)
		}
	}
}

// A registration that changes nothing keeps the encoded answers; anything that
// shows in a route makes them new.
func TestAnswersAreKept(t *testing.T) {
	r := newRig(t)
	p := newPeer()
	b := broker{name: "a", addr: "1:1", topics: 100}
	r.add(t, b, p, 0)
	first := r.route([]byte("topic-00001"), formStrict)
	r.add(t, b, p, 1)
	if again := r.route([]byte("topic-00001"), formStrict); &again[0] != &first[0] {
		t.Error("the same registration again: the answer was encoded anew")
	}
	b.version.Counter++
	r.add(t, b, p, 2)
	if again := r.route([]byte("topic-00001"), formStrict); &again[0] != &first[0] {
		t.Error("a new version with the same content: the answer was encoded anew")
	}
	r.add(t, broker{name: "a", addr: "1:2", id: 1, topics: 100}, newPeer(), 3)
	if again := r.route([]byte("topic-00001"), formStrict); !strings.Contains(string(again), `"1":"1:2"`) {
		t.Errorf("a slave came: got %s, want its address", again)
	}
	name := []byte("topic-00001")
	if n := testing.AllocsPerRun(100, func() { r.route(name, formStrict) }); n != 0 {
		t.Errorf("a route query allocates %v times, want 0", n)
	}
}

// Two registrations sent one right after the other are taken in that order,
// however large the first is.
func TestOrderOnOneConnection(t *testing.T) {
	c := newCluster(t)
	c.start()
	conn := c.conn("a")
	if err := conn.c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b := broker{name: "a", addr: "1:1", topics: 3000, version: remoting.DataVersion{Counter: int64(2 * i)}}
		small := broker{name: "a", addr: "1:1", topics: 2, version: remoting.DataVersion{Counter: int64(2*i + 1)}}.body()
		tc := small.TopicConfigSerializeWrapper.TopicConfigTable["topic-00001"]
		tc.WriteQueueNums = int32(100 + i)
		small.TopicConfigSerializeWrapper.TopicConfigTable["topic-00001"] = tc
		second := b.header().Command()
		second.Body = small.Marshal()
		for _, cmd := range []*remoting.Command{b.command(), second} {
			if err := conn.send(cmd); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			resp, err := readFrame(conn.r)
			if err != nil {
				t.Fatal(err)
			}
			mustSucceed(t, resp)
		}
		route := mustSucceed(t, c.conn("c").call(t, routeRequest("topic-00001")))
		if want := fmt.Sprintf(`"writeQueueNums":%d`, 100+i); !strings.Contains(string(route.Body), want) {
			t.Fatalf("turn %d: got %s, want %s", i, route.Body, want)
		}
	}
}

// A closed connection takes its broker out of the routes at once.
func TestCloseUnregisters(t *testing.T) {
	c := newCluster(t)
	c.start()
	conn := c.conn("a")
	mustSucceed(t, conn.call(t, broker{name: "a", addr: "1:1", topics: 5000}.command()))
	mustSucceed(t, c.conn("c").call(t, routeRequest("topic-04999")))
	_ = conn.c.Close()
	delete(c.conns, "a")
	for deadline := time.Now().Add(5 * time.Second); ; {
		resp := c.conn("c").call(t, routeRequest("topic-04999"))
		if resp.Code == int32(remoting.TopicNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("5 s after the close: got %d, want 17", resp.Code)
		}
		time.Sleep(time.Millisecond)
	}
}

// Each request code that a NameServer knows (facts of Apache 5.3.3) is served.
func TestEveryCode(t *testing.T) {
	for _, code := range []int32{100, 101, 102, 103, 104, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327, 901, 904} {
		if routeOf[code] == nil {
			t.Errorf("code %d: no row in routes", code)
		}
	}
	if len(routeOf) != 22 {
		t.Errorf("got %d rows, want 22: add the new code's scripted exchange to testdata", len(routeOf))
	}
}

// One-way requests are served and not answered.
func TestOneway(t *testing.T) {
	c := newCluster(t)
	c.start()
	conn := c.conn("a")
	for _, cmd := range []*remoting.Command{broker{name: "a", addr: "1:1", topics: 2}.command(), routeRequest("topic-00001"), routeRequest("none"), remoting.NewRequest(77)} {
		cmd.Flag = remoting.FlagOneway
		if err := conn.send(cmd); err != nil {
			t.Fatal(err)
		}
	}
	// call fails if an answer to one of those comes first.
	conn.call(t, remoting.NewRequest(remoting.ReqGetNamesrvConfig))
	mustSucceed(t, conn.call(t, routeRequest("topic-00001")))
}

// The notice of a new smallest id reaches a broker's own port as a one-way
// request.
func TestNoticeOnTheWire(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := newCluster(t)
	c.start(config.Flag("t", "notifyMinBrokerIdChanged", "true"))
	mustSucceed(t, c.conn("a").call(t, broker{name: "a", addr: ln.Addr().String(), id: 3, topics: 2}.command()))
	mustSucceed(t, c.conn("b").call(t, broker{name: "a", addr: "127.0.0.1:1", id: 0, topics: 2}.command()))
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cmd, err := readFrame(conn)
	if err != nil {
		t.Fatal(err)
	}
	var h remoting.MinBrokerIDChangeHeader
	if err := h.Decode(cmd); err != nil {
		t.Fatal(err)
	}
	want := remoting.MinBrokerIDChangeHeader{BrokerName: "a", MinBrokerAddr: "127.0.0.1:1", HABrokerAddr: "127.0.0.1:11"}
	if cmd.Code != remoting.ReqNotifyMinBrokerIDChange || !cmd.IsOneway() || h != want {
		t.Errorf("got code %d flag %d %+v, want one-way 905 %+v", cmd.Code, cmd.Flag, h, want)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("behind the notice: got %v, want the end", err)
	}
}

// Every file system operation of a change may fail: then the change is refused
// and does not show, and the file still has what it had.
func TestKVFaults(t *testing.T) {
	for i := 0; ; i++ {
		mem := vfs.NewMem()
		kv, err := openKV(mem, "/ns/kv.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := kv.put("N", "k", "old"); err != nil {
			t.Fatal(err)
		}
		fault := vfs.NewFault(mem)
		fault.Add(vfs.Rule{Ops: vfs.OpAll, After: i, Times: 1, Err: syscall.ENOSPC})
		broken, err := openKV(fault, "/ns/kv.json")
		if err == nil {
			err = broken.put("N", "k", "new")
			got, _ := broken.get("N", "k")
			if want := map[bool]string{true: "new", false: "old"}[err == nil]; got != want {
				t.Fatalf("operation %d failed (%v): shows %q, want %q", i, err, got, want)
			}
		}
		again, rerr := openKV(mem, "/ns/kv.json")
		if rerr != nil {
			t.Fatalf("operation %d failed (%v): reopening: %v", i, err, rerr)
		}
		got, _ := again.get("N", "k")
		if err == nil && got != "new" {
			t.Fatalf("operation %d: acknowledged, but the file has %q", i, got)
		}
		if fault.Count(vfs.OpAll) <= int64(i) {
			if err != nil {
				t.Fatalf("without a fault: %v", err)
			}
			return
		}
	}
}

// A file that cannot be read is named, and not overwritten.
func TestKVUnreadable(t *testing.T) {
	mem := vfs.NewMem()
	if err := vfs.MkdirAllSync(mem, "/ns"); err != nil {
		t.Fatal(err)
	}
	if err := mem.WriteFileAtomic("/ns/kv.json", []byte(`{"configTable":`)); err != nil {
		t.Fatal(err)
	}
	if _, err := openKV(mem, "/ns/kv.json"); err == nil || !strings.Contains(err.Error(), "kvConfigPath /ns/kv.json") {
		t.Errorf("got %v, want an error that names kvConfigPath and the file", err)
	}
}

// A taken port is named with its key.
func TestPortTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cfg := testConfig()
	cfg.ListenPort = ln.Addr().(*net.TCPAddr).Port
	srv, err := newServer(cfg, testLog(t), vfs.NewMem(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	err = srv.Start(context.Background())
	if err == nil || !strings.Contains(err.Error(), "listenPort") || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("got %v, want an error that names listenPort and %s", err, ln.Addr())
	}
	if err := srv.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// Brokers come, change and go while clients ask; every answer is one that was
// true at some time. For the race detector above all.
func TestTogether(t *testing.T) {
	c := newCluster(t)
	c.start()
	mustSucceed(t, c.conn("keep").call(t, broker{name: "keep", addr: "9:9", topics: 300}.command()))
	var clients, brokers sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 {
		brokers.Go(func() {
			for turn := range 15 {
				conn := dial(t, c.srv.Addr())
				b := broker{name: fmt.Sprintf("b%d", i), addr: fmt.Sprintf("%d:1", i), topics: 200, version: remoting.DataVersion{Counter: int64(turn)}}
				for range 3 {
					conn.call(t, b.command())
				}
				_ = conn.c.Close()
			}
		})
	}
	for i := range 3 {
		clients.Go(func() {
			conn := dial(t, c.srv.Addr())
			defer conn.c.Close()
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				resp := conn.call(t, routeRequest(fmt.Sprintf("topic-%05d", n%200)))
				if resp.Code != 0 || !strings.Contains(string(resp.Body), `"keep"`) {
					t.Errorf("got %d %s, want a route with the broker that stays", resp.Code, resp.Body)
					return
				}
				if n%50 == 0 {
					mustSucceed(t, conn.call(t, remoting.NewRequest(remoting.ReqGetBrokerClusterInfo)))
					c.srv.reg.expire(c.clock.ms.Load())
				}
			}
		})
	}
	brokers.Wait()
	close(stop)
	clients.Wait()
}
