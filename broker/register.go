package broker

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

const (
	// changeGather is how long changes are gathered into one registration.
	changeGather = 5 * time.Millisecond
	// registerRetryMin is the first pause after a failed registration; it
	// doubles up to registerRetryMax.
	registerRetryMin = time.Second
	registerRetryMax = 5 * time.Second
	// unregisterWait bounds the goodbye to a NameServer.
	unregisterWait = 2 * time.Second
	// topicsPerRegistration is the most topics one registration carries, so
	// that it fits a frame.
	topicsPerRegistration = 30_000
)

// A registrar keeps every NameServer told what this broker is and which topics
// it has: all of it at start, when a connection comes back and every
// registerNameServerPeriod; changed topics alone within milliseconds of each
// change. Each NameServer has a goroutine and a connection of its own, so that
// none delays another.
//
// A NameServer takes a topic only when the table's DataVersion differs from the
// one it knows. A change it missed would so stay unknown to it once it has
// taken a later one; therefore the first registration after any failure is a
// full one, and the changes one carries are taken together with its version.
type registrar struct {
	topics *meta.Topics
	cfg    *Config
	log    *slog.Logger
	addr   string       // brokerIP1:listenPort
	perm   func() int32 // brokerPermission, as things are

	servers []*nameServer
	ctx     context.Context // ends with close
	end     context.CancelFunc
	done    sync.WaitGroup
}

// A nameServer is one NameServer and what it has been told.
type nameServer struct {
	r    *registrar
	addr string
	wake chan struct{} // something is pending

	mu      sync.Mutex
	changed map[string]bool // topics to be told
	full    bool            // all of it is to be told

	// The goroutine's own.
	conn *client.Conn
	down bool // the last registration failed; logged once
}

func newRegistrar(b *Broker) *registrar {
	addrs, _ := b.cfg.NamesrvAddrs() // checked by Validate
	r := &registrar{topics: b.topics, cfg: b.cfg, log: b.log.With("room", "register"), addr: b.addr.String(), perm: b.permission}
	r.ctx, r.end = context.WithCancel(context.Background())
	for _, addr := range addrs {
		r.servers = append(r.servers, &nameServer{r: r, addr: addr, wake: make(chan struct{}, 1), changed: map[string]bool{}, full: true})
	}
	b.topics.OnChange(r.topicChanged)
	return r
}

// permission is the broker's permission as routes should show it: a broker that
// can't write offers no writing.
func (b *Broker) permission() int32 {
	perm := int32(b.cfg.BrokerPermission)
	if b.closed.Load() != nil {
		perm &^= remoting.PermWrite
	}
	return perm
}

func (r *registrar) start() {
	for _, s := range r.servers {
		r.done.Go(s.run)
	}
}

// close takes the broker out of all routes, at once and for a bounded time.
func (r *registrar) close() {
	r.end()
	r.done.Wait()
}

// topicChanged is the table's word that one topic is another now. It runs with
// the table locked.
func (r *registrar) topicChanged(name string) {
	for _, s := range r.servers {
		s.mu.Lock()
		s.changed[name] = true
		s.mu.Unlock()
		s.kick()
	}
}

// changed has everything told anew: the broker itself is another, its
// permission say. Any goroutine; it doesn't block.
func (r *registrar) changed() {
	r.topics.Bump()
	for _, s := range r.servers {
		s.needFull()
		s.kick()
	}
}

func (s *nameServer) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *nameServer) needFull() {
	s.mu.Lock()
	s.full = true
	s.mu.Unlock()
}

// run registers with one NameServer until the registrar is closed, then
// unregisters.
func (s *nameServer) run() {
	period := min(max(s.r.cfg.RegisterNameServerPeriod, 10*time.Second), time.Minute)
	retry := registerRetryMin
	for {
		wait := period
		if err := s.register(); err != nil {
			s.needFull()
			wait, retry = retry, min(2*retry, registerRetryMax)
			s.say(err)
		} else {
			retry = registerRetryMin
			s.say(nil)
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.r.ctx.Done():
		case <-timer.C:
			s.needFull()
		case <-s.ended():
			s.drop()
			s.needFull()
		case <-s.woken():
			// Changes come in bursts.
			select {
			case <-s.r.ctx.Done():
			case <-time.After(changeGather):
			}
		}
		timer.Stop()
		if s.r.ctx.Err() != nil {
			s.unregister()
			return
		}
	}
}

// woken is the wake-up by a change; while the NameServer can't be reached the
// pause between attempts counts, not what changes meanwhile.
func (s *nameServer) woken() <-chan struct{} {
	if s.down {
		return nil
	}
	return s.wake
}

// ended is closed when the connection is: the NameServer has then dropped this
// broker, and must be told again.
func (s *nameServer) ended() <-chan struct{} {
	if s.conn == nil {
		return nil
	}
	return s.conn.Ended()
}

// say logs when a NameServer is lost and when it is found again.
func (s *nameServer) say(err error) {
	switch {
	case err != nil && !s.down:
		s.r.log.Warn("registration failed, trying again", "nameServer", s.addr, "error", err)
	case err == nil && s.down:
		s.r.log.Info("registered again", "nameServer", s.addr)
	}
	s.down = err != nil
}

// drop closes the connection.
func (s *nameServer) drop() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// register tells what is pending.
func (s *nameServer) register() error {
	s.mu.Lock()
	full := s.full
	s.full = false
	s.mu.Unlock()
	if !full {
		return s.registerChanged()
	}
	if !s.r.cfg.ForceRegister {
		if current, err := s.knowsAll(); err != nil || current {
			return err
		}
	}
	return s.registerAll()
}

// registerChanged tells the topics that have changed. Those that are gone need
// no telling: who deletes a topic deletes it in the NameServers too.
func (s *nameServer) registerChanged() error {
	var topics []*meta.Topic
	var version remoting.DataVersion
	s.r.topics.View(func(v remoting.DataVersion, all map[string]*meta.Topic) {
		// Together: under v the NameServer will believe to have every change
		// up to now.
		version, topics = v, pick(all, maps.Keys(s.takeChanged()))
	})
	if len(topics) == 0 {
		return nil
	}
	return s.send(version, topics)
}

// registerAll tells all topics, in as many pieces as it takes. Each piece has a
// version of its own: under the same one a NameServer would take from the
// second piece only topics it has never heard of.
func (s *nameServer) registerAll() error {
	most := topicsPerRegistration
	if s.r.cfg.EnableSplitRegistration {
		most = max(2, s.r.cfg.SplitRegistrationSize)
	}
	s.takeChanged() // what changes from here on is told again
	topics, version := s.r.topics.Snapshot()
	if len(topics) <= most {
		return s.send(version, topics)
	}
	for piece := range slices.Chunk(topics, most) {
		s.r.topics.Bump()
		s.r.topics.View(func(v remoting.DataVersion, all map[string]*meta.Topic) {
			// With what has changed since, or v would hide it.
			version, piece = v, append(pick(all, names(piece)), pick(all, maps.Keys(s.takeChanged()))...)
		})
		if err := s.send(version, piece); err != nil {
			return err
		}
	}
	return nil
}

// pick gives the named topics that are there.
func pick(all map[string]*meta.Topic, names iter.Seq[string]) (topics []*meta.Topic) {
	for name := range names {
		if t := all[name]; t != nil {
			topics = append(topics, t)
		}
	}
	return topics
}

func names(topics []*meta.Topic) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, t := range topics {
			if !yield(t.Name) {
				return
			}
		}
	}
}

func (s *nameServer) takeChanged() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.changed
	s.changed = map[string]bool{}
	return changed
}

// routed is a topic as routes should show it: without what the broker itself
// doesn't offer now.
func (s *nameServer) routed(t *meta.Topic) remoting.TopicConfig {
	c := t.Config()
	const rw = remoting.PermRead | remoting.PermWrite
	if perm := s.r.perm(); perm&rw != rw {
		c.Perm &= perm
	}
	return c
}

// send is one REGISTER_BROKER (103).
func (s *nameServer) send(version remoting.DataVersion, topics []*meta.Topic) error {
	cfg := s.r.cfg
	table := remoting.TopicConfigTable{DataVersion: version, MappingDataVersion: version, TopicConfigTable: make(map[string]remoting.TopicConfig, len(topics))}
	for _, t := range topics {
		table.TopicConfigTable[t.Name] = s.routed(t)
	}
	h := remoting.RegisterBrokerHeader{
		BrokerName: cfg.BrokerName, BrokerAddr: s.r.addr, ClusterName: cfg.BrokerClusterName, BrokerID: cfg.BrokerId,
		HAServerAddr: net.JoinHostPort(cfg.BrokerIP2, strconv.Itoa(cfg.HaListenPort)), ActingMasterSent: true,
	}
	body := remoting.RegisterBrokerBody{TopicConfigSerializeWrapper: table}.Marshal()
	h.BodyCRC32 = remoting.BodyCRC32(body)
	cmd := h.Command()
	cmd.Body = body
	resp, err := s.call(cmd)
	if err != nil {
		return err
	}
	s.takeOrder(resp.Body)
	return nil
}

// takeOrder marks the topics that the NameServer's ORDER_TOPIC_CONFIG names.
// (As TopicConfigManager#updateOrderTopicConfig, 5.3: it only ever sets.)
func (s *nameServer) takeOrder(body []byte) {
	var kv remoting.KVTable
	if len(body) == 0 || remoting.ParseBody(body, &kv) != nil {
		return
	}
	for name := range kv.Table {
		if t := s.r.topics.Find(name); t != nil && !t.Order {
			ordered := *t
			ordered.Order = true
			s.r.topics.Put(&ordered)
		}
	}
}

// knowsAll asks whether the NameServer has this broker and its present table
// (QUERY_DATA_VERSION, 322).
func (s *nameServer) knowsAll() (bool, error) {
	h := remoting.QueryDataVersionHeader{ClusterName: s.r.cfg.BrokerClusterName, BrokerName: s.r.cfg.BrokerName, BrokerAddr: s.r.addr, BrokerID: s.r.cfg.BrokerId}
	cmd := h.Command()
	cmd.Body = remoting.MarshalBody(s.r.topics.Version())
	resp, err := s.call(cmd)
	if err != nil {
		return false, err
	}
	return resp.GetString("changed") == "false", nil
}

// call sends a request over the NameServer's connection, which it makes when
// there is none, and drops when it doesn't answer.
func (s *nameServer) call(cmd *remoting.Command) (*remoting.Command, error) {
	ctx, cancel := context.WithTimeout(s.r.ctx, time.Duration(s.r.cfg.RegisterBrokerTimeoutMills)*time.Millisecond)
	defer cancel()
	if s.conn == nil {
		conn, err := client.Dial(ctx, s.addr, client.Options{})
		if err != nil {
			return nil, err
		}
		s.conn = conn
	}
	resp, err := s.conn.Call(ctx, cmd)
	if err != nil {
		if s.r.ctx.Err() == nil { // at a stop the goodbye still needs the connection
			s.drop()
		}
		return nil, err
	}
	if code := remoting.ResponseCode(resp.Code); code != remoting.Success {
		return nil, &remoting.Error{Code: code, Remark: string(resp.Remark)}
	}
	return resp, nil
}

// unregister says goodbye (UNREGISTER_BROKER, 104): the routes forget the
// broker before its listeners close.
func (s *nameServer) unregister() {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), unregisterWait)
	defer cancel()
	h := remoting.UnregisterBrokerHeader{ClusterName: s.r.cfg.BrokerClusterName, BrokerName: s.r.cfg.BrokerName, BrokerAddr: s.r.addr, BrokerID: s.r.cfg.BrokerId}
	if _, err := s.conn.Call(ctx, h.Command()); err != nil {
		s.r.log.Warn("not unregistered; the closed connection says the same", "nameServer", s.addr, "error", err)
	}
	s.drop()
}
