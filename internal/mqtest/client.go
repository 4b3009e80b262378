package mqtest

import (
	"context"
	"strings"
	"time"

	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// Call sends a request to addr and returns its answer, whatever its code.
func (c *Cluster) Call(addr string, req *remoting.Command) *remoting.Command {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	resp, err := c.conns.Call(ctx, addr, req)
	if err != nil {
		c.t.Fatalf("%s to %s: %v", remoting.RequestCode(req.Code), addr, err)
	}
	return resp
}

// Want is Call where only one code will do.
func (c *Cluster) Want(code remoting.ResponseCode, addr string, req *remoting.Command) *remoting.Command {
	c.t.Helper()
	resp := c.Call(addr, req)
	if got := remoting.ResponseCode(resp.Code); got != code {
		c.t.Fatalf("%s to %s: code %d %q, want %d", remoting.RequestCode(req.Code), addr, got, resp.Remark, code)
	}
	return resp
}

// ClusterInfo asks a NameServer for its brokers.
func (c *Cluster) ClusterInfo(n *NameServer) *remoting.ClusterInfo {
	c.t.Helper()
	resp := c.Want(remoting.Success, n.Addr(), remoting.NewRequest(int32(remoting.ReqGetBrokerClusterInfo)))
	info, err := remoting.ParseClusterInfo(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return info
}

// Route asks a NameServer for a topic's route; nil when there is none.
func (c *Cluster) Route(n *NameServer, topic string) *remoting.RouteData {
	c.t.Helper()
	resp := c.Call(n.Addr(), (&remoting.RouteHeader{Topic: topic, AcceptStandardJSONOnly: true}).Command())
	if remoting.ResponseCode(resp.Code) == remoting.TopicNotExist {
		return nil
	}
	if remoting.ResponseCode(resp.Code) != remoting.Success {
		c.t.Fatalf("route of %s: code %d %q", topic, resp.Code, resp.Remark)
	}
	route, err := remoting.ParseRouteData(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return route
}

// CreateTopic makes a topic with so many queues on every running broker and
// waits until all running NameServers have its route.
func (c *Cluster) CreateTopic(topic string, queues int32) {
	c.t.Helper()
	running := 0
	for _, b := range c.Brokers {
		if b.broker == nil {
			continue
		}
		running++
		h := remoting.CreateTopicHeader{Topic: topic, DefaultTopic: "TBW102", ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6, TopicFilterType: "SINGLE_TAG"}
		c.Want(remoting.Success, b.Addr(), h.Command())
	}
	for _, n := range c.NameServers {
		if n.server == nil {
			continue
		}
		c.Wait("the route of "+topic, func() bool {
			route := c.Route(n, topic)
			return route != nil && len(route.QueueDatas) >= running
		})
	}
}

// Send sends a message to a queue of b, as a Java producer does (code 310), and
// returns its queue offset. props are names and values in turn; UNIQ_KEY is not
// added.
func (b *Broker) Send(topic string, queueID int32, body string, props ...string) message.QueueOffset {
	b.c.t.Helper()
	resp := b.c.Want(remoting.Success, b.Addr(), SendCommand(topic, queueID, body, props...))
	off, err := remoting.ParseInt64([]byte(resp.GetString("queueOffset")))
	if err != nil {
		b.c.t.Fatalf("send to %s: queueOffset is %q", topic, resp.GetString("queueOffset"))
	}
	return message.QueueOffset(off)
}

// SendCommand is the request of Send.
func SendCommand(topic string, queueID int32, body string, props ...string) *remoting.Command {
	var p []byte
	for i := 0; i+1 < len(props); i += 2 {
		p = message.AppendProperty(p, props[i], props[i+1])
	}
	h := remoting.SendHeader{ProducerGroup: []byte("mqtest"), Topic: []byte(topic), DefaultTopic: []byte("TBW102"), DefaultTopicQueueNums: 4,
		QueueID: queueID, BornMillis: time.Now().UnixMilli(), Properties: p, MaxReconsumeTimes: -1}
	return h.Command(int32(remoting.ReqSendMessageV2), []byte(body))
}

// A PullResult is the answer to a pull. Messages own their bytes.
type PullResult struct {
	Code           remoting.ResponseCode
	Messages       []message.Message
	Next, Min, Max message.QueueOffset
}

// Bodies are the messages' bodies.
func (r *PullResult) Bodies() []string {
	var bodies []string
	for i := range r.Messages {
		bodies = append(bodies, string(r.Messages[i].Body))
	}
	return bodies
}

// Pull pulls up to 32 messages of a queue of b from offset from on, with tags
// as subscription ("*" for all), waiting at the broker up to hold for the first.
func (b *Broker) Pull(topic string, queueID int32, from message.QueueOffset, tags string, hold time.Duration) *PullResult {
	b.c.t.Helper()
	h := remoting.PullHeader{ConsumerGroup: []byte("mqtest"), Topic: []byte(topic), QueueID: queueID, QueueOffset: int64(from), MaxMsgNums: 32,
		SysFlag: pullSubscription, SuspendMillis: hold.Milliseconds(), Subscription: []byte(tags), RequestSource: -1}
	if hold > 0 {
		h.SysFlag |= pullSuspend
	}
	resp := b.c.Call(b.Addr(), h.Command(int32(remoting.ReqPullMessage)))
	r := &PullResult{Code: remoting.ResponseCode(resp.Code)}
	for key, off := range map[string]*message.QueueOffset{"nextBeginOffset": &r.Next, "minOffset": &r.Min, "maxOffset": &r.Max} {
		n, err := remoting.ParseInt64([]byte(resp.GetString(key)))
		if err != nil {
			b.c.t.Fatalf("pull of %s-%d: code %d %q: %s is %q", topic, queueID, resp.Code, resp.Remark, key, resp.GetString(key))
		}
		*off = message.QueueOffset(n)
	}
	for body := resp.Body; len(body) > 0; {
		var m message.Message
		n, err := message.Decode(body, &m)
		if err != nil {
			b.c.t.Fatalf("pull of %s-%d: %v", topic, queueID, err)
		}
		r.Messages = append(r.Messages, m)
		body = body[n:]
	}
	return r
}

// Bits of a pull's sysFlag.
const (
	pullSuspend      = 2
	pullSubscription = 4
)

// PullAll pulls a queue of b from offset from to its end.
func (b *Broker) PullAll(topic string, queueID int32, from message.QueueOffset) []message.Message {
	b.c.t.Helper()
	var all []message.Message
	for {
		r := b.Pull(topic, queueID, from, "*", 0)
		all = append(all, r.Messages...)
		switch {
		case r.Next >= r.Max || r.Code == remoting.PullNotFound:
			return all
		case r.Next <= from:
			b.c.t.Fatalf("pull of %s-%d at %d: code %d, next %d, max %d", topic, queueID, from, r.Code, r.Next, r.Max)
		}
		from = r.Next
	}
}

// Bodies joins the bodies of messages, for a look at their order.
func Bodies(msgs []message.Message) string {
	bodies := (&PullResult{Messages: msgs}).Bodies()
	return strings.Join(bodies, " ")
}
