package broker

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// routeServer is a NameServer as far as a registrar sees one: it keeps topics
// by Apache's rule, which takes a topic only when the version differs or the
// topic is new.
type routeServer struct {
	t  *testing.T
	ln net.Listener

	mu         sync.Mutex
	registered bool
	version    remoting.DataVersion
	topics     map[string]remoting.TopicConfig
	counts     map[int32]int // requests by code
	lastHeader remoting.RegisterBrokerHeader
	conns      []net.Conn
	fail       bool // answer 1
	orders     map[string]string
	routes     map[string]*remoting.RouteData
	mute       atomic.Bool // don't answer
}

func startRouteServer(t *testing.T) *routeServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveRoutes(t, ln)
}

func serveRoutes(t *testing.T, ln net.Listener) *routeServer {
	t.Helper()
	s := &routeServer{t: t, ln: ln, topics: map[string]remoting.TopicConfig{}, counts: map[int32]int{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			serving.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		s.hangUp()
		serving.Wait()
	})
	return s
}

func (s *routeServer) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	s.registered, s.topics, s.version = false, map[string]remoting.TopicConfig{}, remoting.DataVersion{}
}

func (s *routeServer) serve(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		head, err := in.Peek(remoting.LengthBytes)
		if err != nil {
			return
		}
		total, _, err := remoting.FrameSize(head, remoting.MaxFrameBytes)
		if err != nil {
			s.t.Error(err)
			return
		}
		frame := make([]byte, total)
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		var cmd remoting.Command
		if err := remoting.Decode(frame, &cmd); err != nil {
			s.t.Error(err)
			return
		}
		code, fields, body := s.answer(&cmd)
		if s.mute.Load() {
			continue
		}
		if _, err := c.Write(remoting.AppendReply(nil, cmd.ReplyTo(), code, "", fields, body)); err != nil {
			return
		}
	}
}

func (s *routeServer) answer(cmd *remoting.Command) (remoting.ResponseCode, []remoting.Field, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[cmd.Code]++
	if s.fail || s.mute.Load() {
		return remoting.SystemError, nil, nil
	}
	switch cmd.Code {
	case int32(remoting.ReqRegisterBroker):
		return s.register(cmd)
	case int32(remoting.ReqUnregisterBroker):
		s.registered = false
	case int32(remoting.ReqQueryDataVersion):
		var v remoting.DataVersion
		if err := remoting.ParseBody(cmd.Body, &v); err != nil {
			s.t.Error(err)
		}
		changed := fmt.Sprint(!s.registered || v != s.version)
		return remoting.Success, []remoting.Field{{Key: []byte("changed"), Value: []byte(changed)}}, nil
	case int32(remoting.ReqGetRouteInfoByTopic):
		if route := s.routes[cmd.GetString("topic")]; route != nil {
			return remoting.Success, nil, route.Append(nil, true)
		}
		return remoting.TopicNotExist, nil, nil
	default:
		s.t.Errorf("request %d", cmd.Code)
	}
	return remoting.Success, nil, nil
}

func (s *routeServer) register(cmd *remoting.Command) (remoting.ResponseCode, []remoting.Field, []byte) {
	if err := s.lastHeader.Decode(cmd); err != nil {
		s.t.Error(err)
	}
	if got, want := remoting.BodyCRC32(cmd.Body), s.lastHeader.BodyCRC32; got != want {
		s.t.Errorf("crc %d, header says %d", got, want)
	}
	body, err := remoting.ParseRegisterBrokerBody(cmd.Body, s.lastHeader.Compressed, cmd.Version)
	if err != nil {
		s.t.Error(err)
		return remoting.SystemError, nil, nil
	}
	table := body.TopicConfigSerializeWrapper
	if !s.registered && len(table.TopicConfigTable) == 1 {
		return remoting.SystemError, nil, nil
	}
	for name, topic := range table.TopicConfigTable {
		if _, known := s.topics[name]; !known || !s.registered || table.DataVersion != s.version {
			s.topics[name] = topic
		}
	}
	s.registered, s.version = true, table.DataVersion
	if s.orders != nil {
		return remoting.Success, nil, remoting.MarshalBody(remoting.KVTable{Table: s.orders})
	}
	return remoting.Success, nil, nil
}

// has waits until the server's view is as ok wants it.
func (s *routeServer) has(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		done := ok()
		s.mu.Unlock()
		if done {
			return
		}
	}
	t.Fatalf("the NameServer never saw: %s", what)
}

func (s *routeServer) count(code remoting.RequestCode) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[int32(code)]
}

// registering is a broker as far as a registrar needs one.
func registering(t *testing.T, change func(*Config), servers ...*routeServer) (*Broker, *registrar) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.BrokerName, cfg.BrokerIP1, cfg.BrokerIP2, cfg.NamesrvAddr = "broker-t", "127.0.0.1", "127.0.0.1", ""
	for _, s := range servers {
		cfg.NamesrvAddr += s.ln.Addr().String() + ";"
	}
	if change != nil {
		change(&cfg)
	}
	b := &Broker{cfg: &cfg, log: slog.New(slog.DiscardHandler), now: time.Now, addr: testAddr}
	var err error
	if b.tables, err = meta.Open(meta.Config{FS: vfs.NewMem(), Dir: "config", Logger: b.log,
		System: meta.SystemConfig{BrokerClusterName: "c", BrokerName: "broker-t", AutoCreateTopicEnable: true}}); err != nil {
		t.Fatal(err)
	}
	b.topics = b.tables.Topics
	r := newRegistrar(b)
	r.start()
	t.Cleanup(func() {
		r.end()
		r.done.Wait()
		if err := b.tables.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, r
}

// sees says whether the server's topics are the broker's.
func (s *routeServer) sees(b *Broker) func() bool {
	return func() bool {
		all, version := b.topics.Snapshot()
		if !s.registered || s.version != version || len(all) != len(s.topics) {
			return false
		}
		for _, topic := range all {
			if got := s.topics[topic.Name]; !sameConfig(got, topic.Config()) {
				return false
			}
		}
		return true
	}
}

func sameConfig(a, b remoting.TopicConfig) bool {
	same := maps.Equal(a.Attributes, b.Attributes)
	a.Attributes, b.Attributes = nil, nil
	return same && fmt.Sprint(a) == fmt.Sprint(b)
}

func TestRegistration(t *testing.T) {
	one, two := startRouteServer(t), startRouteServer(t)
	two.mute.Store(true) // it delays nobody
	b, r := registering(t, nil, one, two)
	one.has(t, "all topics", one.sees(b))
	if h := one.lastHeader; h.BrokerName != "broker-t" || h.BrokerAddr != "127.0.0.1:10911" || h.ClusterName != "DefaultCluster" ||
		h.HAServerAddr != "127.0.0.1:10912" || h.BrokerID != 0 || !h.ActingMasterSent || h.EnableActingMaster {
		t.Errorf("header %+v", h)
	}
	full := one.count(remoting.ReqRegisterBroker)
	began := time.Now()
	b.topics.Put(meta.NewTopic("New", 4, 6))
	one.has(t, "a new topic", one.sees(b))
	if took := time.Since(began); took > time.Second {
		t.Errorf("a new topic was registered after %v", took)
	}
	// A burst of changes is a few registrations, and none is lost.
	for i := range 200 {
		b.topics.Put(meta.NewTopic(fmt.Sprint("T", i%20), int32(1+i/20), 6))
	}
	one.has(t, "a burst of changes", one.sees(b))
	if n := one.count(remoting.ReqRegisterBroker) - full; n > 60 {
		t.Errorf("%d registrations for 201 changes", n)
	}
	b.topics.Delete("New")
	r.close()
	if one.registered || one.count(remoting.ReqUnregisterBroker) != 1 {
		t.Error("the broker is still registered after close")
	}
}

// After a failure of any kind the NameServer ends up with the present table,
// although it takes no second change under a version it has.
func TestRegistrationAfterFailures(t *testing.T) {
	s := startRouteServer(t)
	b, _ := registering(t, func(c *Config) { c.RegisterBrokerTimeoutMills = 100 }, s)
	s.has(t, "all topics", s.sees(b))
	set := func(fn func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fn()
	}
	for name, broken := range map[string]struct{ on, off func() }{
		"refused":      {func() { set(func() { s.fail = true }) }, func() { set(func() { s.fail = false }) }},
		"not answered": {func() { s.mute.Store(true) }, func() { s.mute.Store(false) }},
	} {
		before := s.count(remoting.ReqRegisterBroker)
		broken.on()
		b.topics.Put(meta.NewTopic("Lost", int32(b.topics.Version().Counter), 6))
		s.has(t, name, func() bool { return s.counts[int32(remoting.ReqRegisterBroker)] > before })
		broken.off()
		b.topics.Put(meta.NewTopic("After", int32(b.topics.Version().Counter), 6))
		s.has(t, "the table after a request was "+name, s.sees(b))
	}
	s.hangUp()
	s.has(t, "the table after the connection closed", s.sees(b))
}

// A NameServer that comes later is found.
func TestRegistrationWaitsForServer(t *testing.T) {
	s := startRouteServer(t)
	addr := s.ln.Addr().String()
	_ = s.ln.Close()
	b, _ := registering(t, func(c *Config) { c.NamesrvAddr = addr })
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("the port is taken meanwhile: %v", err)
	}
	late := serveRoutes(t, ln)
	late.has(t, "all topics", late.sees(b))
}

// A closed log takes the write permission off every topic.
func TestRegistrationWithoutWriting(t *testing.T) {
	s := startRouteServer(t)
	b, r := registering(t, nil, s)
	s.has(t, "all topics", s.sees(b))
	err := io.ErrShortWrite
	cause := error(err)
	b.closed.Store(&cause)
	r.changed()
	s.has(t, "topics that can't be written", func() bool {
		for _, topic := range s.topics {
			if topic.Perm&remoting.PermWrite != 0 {
				return false
			}
		}
		return s.topics[meta.AutoCreateTopic].Perm == remoting.PermRead
	})
}

// Pieces of a large table are all taken, also what changed in the later ones.
func TestRegistrationInPieces(t *testing.T) {
	s := startRouteServer(t)
	b, r := registering(t, func(c *Config) { c.EnableSplitRegistration, c.SplitRegistrationSize = true, 5 }, s)
	s.has(t, "all topics", s.sees(b))
	if n := s.count(remoting.ReqRegisterBroker); n < 2 {
		t.Errorf("%d registrations for %d topics, 5 a piece", n, b.topics.Len())
	}
	all, _ := b.topics.Snapshot()
	last := *all[len(all)-1]
	last.ReadQueues = 77
	b.topics.Put(&last)
	r.changed()
	s.has(t, "a change in the last piece", s.sees(b))
}

func TestRegistrationAsksFirst(t *testing.T) {
	s := startRouteServer(t)
	b, r := registering(t, func(c *Config) { c.ForceRegister = false }, s)
	s.has(t, "all topics", s.sees(b))
	before := s.count(remoting.ReqRegisterBroker)
	for _, server := range r.servers {
		server.needFull()
		server.kick()
	}
	s.has(t, "a question", func() bool { return s.counts[int32(remoting.ReqQueryDataVersion)] >= 2 })
	if n := s.count(remoting.ReqRegisterBroker); n != before {
		t.Error("registered although nothing has changed")
	}
}

func TestOrderTopicsFromServer(t *testing.T) {
	s := startRouteServer(t)
	s.orders = map[string]string{"BenchmarkTest": "broker-t:4", "Unknown": "x:1"}
	b, _ := registering(t, nil, s)
	s.has(t, "the order topic", func() bool { return s.topics["BenchmarkTest"].Order })
	if b.topics.Find("Unknown") != nil {
		t.Error("an order configuration has made a topic")
	}
	if names := slices.Sorted(maps.Keys(s.orders)); len(names) != 2 {
		t.Error(names)
	}
}
