package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

// handleQueryAssignment is QUERY_ASSIGNMENT (400): which queues a consumer has,
// of all brokers of the topic, and how it gets their messages. Where that isn't
// known (no route, no heartbeat of the group yet, another strategy) the answer
// has no list, and the client keeps what it has.
// (As QueryAssignmentProcessor#queryAssignment, 5.3.3.)
func handleQueryAssignment(b *Broker, r *request) (*response, error) {
	var body remoting.QueryAssignmentBody
	if err := remoting.ParseBody(r.cmd.Body, &body); err != nil {
		return nil, err
	}
	mode := b.requestMode(body.Topic, body.ConsumerGroup)
	queues, ok := b.assign(&body, mode)
	var reply remoting.QueryAssignmentReply
	if ok {
		reply.MessageQueueAssignments = make([]remoting.QueueAssignment, 0, len(queues))
		for _, q := range queues {
			a := remoting.QueueAssignment{MessageQueue: q, Mode: mode.Mode}
			if !slices.Contains(reply.MessageQueueAssignments, a) { // shared queues come up twice
				reply.MessageQueueAssignments = append(reply.MessageQueueAssignments, a)
			}
		}
	}
	return &response{body: remoting.MarshalBody(reply)}, nil
}

// requestMode is how a group gets the messages of a topic.
func (b *Broker) requestMode(topic, group string) remoting.MessageRequestMode {
	if mode, ok := b.tables.Modes.Get(topic, group); ok {
		return mode
	}
	mode := remoting.MessageRequestMode{Topic: topic, ConsumerGroup: group, Mode: b.cfg.DefaultMessageRequestMode}
	if meta.HasPrefix(topic, meta.RetryPrefix) {
		mode.Mode = remoting.ModePull
	}
	if mode.Mode == remoting.ModePop {
		mode.PopShareQueueNum = int32(b.cfg.DefaultPopShareQueueNum)
	}
	return mode
}

// assign shares out the topic's queues; false when that isn't known.
func (b *Broker) assign(body *remoting.QueryAssignmentBody, mode remoting.MessageRequestMode) ([]remoting.MessageQueue, bool) {
	all, ok := b.routes.queues(body.Topic)
	if !ok || body.MessageModel == remoting.ModelBroadcasting {
		return all, ok
	}
	if body.MessageModel != remoting.ModelClustering {
		return nil, false
	}
	if !b.cfg.ServerLoadBalancerEnable {
		return all, true
	}
	clients := b.clients.consumerIDs(body.ConsumerGroup)
	strategy := strategies[body.StrategyName]
	if len(clients) == 0 || strategy == nil || len(all) == 0 || body.ClientID == "" {
		return nil, false
	}
	if mode.Mode != remoting.ModePop {
		return strategy(all, clients, body.ClientID), true
	}
	return assignPop(strategy, all, clients, body.ClientID, int(mode.PopShareQueueNum)), true
}

// A strategy gives a client its share of the queues; nothing where it is not
// among the clients. Both lists are sorted.
type strategy func(queues []remoting.MessageQueue, clients []string, client string) []remoting.MessageQueue

var strategies = map[string]strategy{"AVG": averagely, "AVG_BY_CIRCLE": byCircle}

// averagely gives each client a run of queues. (As AllocateMessageQueueAveragely.)
func averagely(queues []remoting.MessageQueue, clients []string, client string) []remoting.MessageQueue {
	at := slices.Index(clients, client)
	if at < 0 {
		return nil
	}
	share, more := len(queues)/len(clients), len(queues)%len(clients)
	from := at*share + min(at, more)
	if at < more {
		share++
	}
	return slices.Clone(queues[from : from+share])
}

// byCircle deals the queues out one by one. (As AllocateMessageQueueAveragelyByCircle.)
func byCircle(queues []remoting.MessageQueue, clients []string, client string) (mine []remoting.MessageQueue) {
	at := slices.Index(clients, client)
	if at < 0 {
		return nil
	}
	for ; at < len(queues); at += len(clients) {
		mine = append(mine, queues[at])
	}
	return mine
}

// assignPop gives a client brokers to pop any queue of, or, where a few clients
// are to share each queue, its own queues and those of the share clients behind
// it. (As QueryAssignmentProcessor#allocate4Pop.)
func assignPop(s strategy, queues []remoting.MessageQueue, clients []string, client string, share int) []remoting.MessageQueue {
	at := slices.Index(clients, client)
	switch {
	case share <= 0 || share >= len(clients)-1:
		whole := make([]remoting.MessageQueue, 0, len(queues))
		for _, q := range queues {
			q.QueueID = -1
			whole = append(whole, q)
		}
		return whole
	case at < 0:
		return nil
	case len(clients) > len(queues): // each client has one at least
		return queues[at%len(queues) : at%len(queues)+1]
	}
	var mine []remoting.MessageQueue
	for i := range share + 1 {
		mine = append(mine, s(queues, clients, clients[(at+i)%len(clients)])...)
	}
	return mine
}

// handleSetRequestMode is SET_MESSAGE_REQUEST_MODE (401). It answers when the
// mode is saved. (As QueryAssignmentProcessor#setMessageRequestMode, 5.3.3.)
func handleSetRequestMode(b *Broker, r *request) (*response, error) {
	mode := remoting.MessageRequestMode{Mode: remoting.ModePull}
	if err := remoting.ParseBody(r.cmd.Body, &mode); err != nil {
		return nil, err
	}
	switch {
	case meta.HasPrefix(mode.Topic, meta.RetryPrefix):
		return nil, refuse(remoting.NoPermission, "retry topic is not allowed to set mode: got %s", mode.Topic)
	case mode.Mode != remoting.ModePull && mode.Mode != remoting.ModePop:
		return nil, refuse(remoting.InvalidParameter, "mode: got %q, want %s or %s", mode.Mode, remoting.ModePull, remoting.ModePop)
	case b.topics.Find(mode.Topic) == nil:
		return nil, refuse(remoting.TopicNotExist, "topic[%s] not exist", mode.Topic)
	}
	if _, err := b.groups.GetOrCreate(mode.ConsumerGroup); err != nil {
		return nil, err
	}
	b.tables.Modes.Set(mode)
	if err := b.tables.Save(); err != nil {
		return nil, err
	}
	return &response{}, nil
}

const (
	// routeTimeout bounds one question to a NameServer.
	routeTimeout = 3 * time.Second
	// routesKept bounds the topics whose routes are kept.
	routesKept = 10_000
)

// routeTable knows the queues of topics over all their brokers, as the
// NameServers say. It asks when somebody wants to know and what it knows is
// loadBalancePollNameServerInterval old; while no NameServer answers, what it
// knows goes on. Without any NameServer this broker is all there is.
type routeTable struct {
	b     *Broker
	conns *client.Conns

	mu      sync.Mutex
	byTopic map[string]*topicRoute
}

// A topicRoute is one topic's queues, sorted, and when that was asked. Its mu is
// held while a NameServer is asked, so that one asks for all.
type topicRoute struct {
	mu     sync.Mutex
	queues []remoting.MessageQueue
	known  bool
	at     time.Time
}

func newRouteTable(b *Broker) *routeTable {
	return &routeTable{b: b, conns: client.NewConns(client.Options{}), byTopic: map[string]*topicRoute{}}
}

func (t *routeTable) close() { t.conns.Close() }

// queues gives the readable queues of a topic; false when no route is known. It
// may wait for a NameServer.
func (t *routeTable) queues(topic string) ([]remoting.MessageQueue, bool) {
	t.mu.Lock()
	route := t.byTopic[topic]
	if route == nil {
		if len(t.byTopic) >= routesKept {
			clear(t.byTopic)
		}
		route = &topicRoute{}
		t.byTopic[topic] = route
	}
	t.mu.Unlock()
	route.mu.Lock()
	defer route.mu.Unlock()
	if now := t.b.now(); !route.known || now.Sub(route.at) >= t.b.cfg.LoadBalancePollNameServerInterval {
		if queues, known, err := t.ask(topic); err == nil {
			route.queues, route.known, route.at = queues, known, now
		}
	}
	return route.queues, route.known
}

// ask asks one NameServer after the other.
func (t *routeTable) ask(topic string) (queues []remoting.MessageQueue, known bool, err error) {
	addrs, _ := t.b.cfg.NamesrvAddrs() // checked by Validate
	if len(addrs) == 0 {
		queues, known = t.own(topic)
		return queues, known, nil
	}
	for _, addr := range addrs {
		h := remoting.RouteHeader{Topic: topic}
		ctx, cancel := context.WithTimeout(context.Background(), routeTimeout)
		resp, callErr := t.conns.Call(ctx, addr, h.Command())
		cancel()
		if callErr != nil {
			err = callErr
			continue
		}
		switch remoting.ResponseCode(resp.Code) {
		case remoting.TopicNotExist:
			return nil, false, nil
		case remoting.Success:
			var route *remoting.RouteData
			if route, err = remoting.ParseRouteData(resp.Body); err == nil {
				return routeQueues(topic, route), true, nil
			}
		default:
			err = errors.New(string(resp.Remark))
		}
	}
	return nil, false, err
}

// own are the topic's queues on this broker.
func (t *routeTable) own(topic string) ([]remoting.MessageQueue, bool) {
	c := t.b.topics.Find(topic)
	if c == nil {
		return nil, false
	}
	return routeQueues(topic, &remoting.RouteData{QueueDatas: []remoting.QueueData{
		{BrokerName: t.b.cfg.BrokerName, Perm: c.Perm, ReadQueueNums: c.ReadQueues}}}), true
}

// routeQueues lists the readable queues of a route in order.
// (As MQClientInstance#topicRouteData2TopicSubscribeInfo.)
func routeQueues(topic string, route *remoting.RouteData) []remoting.MessageQueue {
	queues := []remoting.MessageQueue{}
	for _, d := range route.QueueDatas {
		if d.Perm&remoting.PermRead == 0 {
			continue
		}
		for id := range min(d.ReadQueueNums, meta.QueueIDMax+1) {
			queues = append(queues, remoting.MessageQueue{BrokerName: d.BrokerName, QueueID: id, Topic: topic})
		}
	}
	slices.SortFunc(queues, func(a, b remoting.MessageQueue) int {
		return cmp.Or(strings.Compare(a.BrokerName, b.BrokerName), cmp.Compare(a.QueueID, b.QueueID))
	})
	return queues
}
