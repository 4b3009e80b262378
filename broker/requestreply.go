package broker

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// replyPushTimeout is how long a requester may take to accept its reply.
const replyPushTimeout = 10 * time.Second

// serveReply takes SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325) on
// the loop of c: a consumer answers a producer that waits in request(). The
// reply is pushed to the producer that its properties name, then kept in its
// topic, and the replier is told how the push ended. (As ReplyMessageProcessor,
// 5.3.)
func (b *Broker) serveReply(c *netloop.Conn, cmd *remoting.Command) {
	state := c.Loop().User.(*loopState)
	h := &state.send
	err := h.Decode(cmd)
	if err == nil {
		err = b.takeReply(state, c, cmd, h)
	}
	if err == errNoTopic {
		b.prepareSend(c, cmd, h)
		return
	}
	if err != nil {
		b.refuseSend(c, cmd, err)
	}
}

// A clientReply is a reply on its way: pushed, then stored, then answered.
type clientReply struct {
	engine.Batch // the record to keep; empty where none is
	b            *Broker
	conn         *netloop.Conn
	to           remoting.ReplyTo
	queueID      int32
	code         remoting.ResponseCode // how the push ended
	remark       string
}

func (b *Broker) takeReply(state *loopState, c *netloop.Conn, cmd *remoting.Command, h *remoting.SendHeader) error {
	topic, queueID, err := b.sendPlace(state, c, h)
	if err != nil {
		return err
	}
	r := &clientReply{b: b, conn: c, to: cmd.ReplyTo(), queueID: queueID}
	if b.cfg.StoreReplyMessageEnable && b.replyFits(cmd.Body, h.Properties) {
		m := message.Message{QueueID: queueID, Flag: h.Flag, SysFlag: h.SysFlag, BornMillis: h.BornMillis, BornHost: c.Remote(),
			StoreHost: b.addr, ReconsumeTimes: h.ReconsumeTimes, Body: cmd.Body, Topic: []byte(topic.Name), Properties: h.Properties}
		if r.Buf, err = message.Append(nil, &m); err == nil {
			tags, _ := message.Property(h.Properties, message.PropTags)
			r.Items = []engine.Item{{Len: int32(len(r.Buf)), Count: 1, Queue: b.store.Queue(topic.Name, queueID), TagsCode: message.TagsCode(tags)}}
		}
	}
	requester, ok := message.Property(h.Properties, message.PropReplyToClient)
	if !ok {
		r.pushFailed("reply message properties[" + message.PropReplyToClient + "] is null")
		return nil
	}
	id := string(requester)
	to := b.clients.producerConn(id)
	if to == nil {
		r.pushFailed("push reply message fail, channel of <" + id + "> not found.")
		return nil
	}
	b.asks.ask(to, b.pushRequest(c, h, cmd.Body), replyPushTimeout, func(resp *remoting.Command, err error) { r.pushed(id, resp, err) })
	return nil
}

// replyFits says whether a reply can be kept: what can't is pushed all the same.
func (b *Broker) replyFits(body, props []byte) bool {
	return len(body) > 0 && len(body) <= b.cfg.MaxMessageSize && len(props) <= message.PropertiesBytesMax
}

// pushRequest is the reply as its requester gets it.
func (b *Broker) pushRequest(c *netloop.Conn, h *remoting.SendHeader, body []byte) *remoting.Command {
	now := b.now().UnixMilli()
	props := message.AppendProperty(slices.Clone(h.Properties), message.PropPushReplyTime, strconv.FormatInt(now, 10))
	push := remoting.PushReplyHeader{
		ProducerGroup: string(h.ProducerGroup), Topic: string(h.Topic), DefaultTopic: string(h.DefaultTopic),
		DefaultTopicQueueNums: h.DefaultTopicQueueNums, QueueID: h.QueueID, SysFlag: h.SysFlag, BornMillis: h.BornMillis,
		Flag: h.Flag, Properties: string(props), ReconsumeTimes: h.ReconsumeTimes, UnitMode: h.UnitMode,
		BornHost: hostPort(c.Remote()), StoreHost: hostPort(b.addr), StoreMillis: now,
	}
	return push.Command(body)
}

// hostPort is an address as Java's clients write and read it: no brackets around
// IPv6.
func hostPort(a netip.AddrPort) string {
	return a.Addr().String() + ":" + strconv.Itoa(int(a.Port()))
}

// pushed takes the requester's answer to the push.
func (r *clientReply) pushed(requester string, resp *remoting.Command, err error) {
	if err == nil && resp.Code == int32(remoting.Success) {
		r.keep()
		return
	}
	if err != nil {
		r.b.log.Warn("a reply could not be pushed to its requester", "clientId", requester, "error", err)
	}
	r.pushFailed("push reply message to " + requester + "fail.")
}

func (r *clientReply) pushFailed(remark string) {
	r.code, r.remark = remoting.SystemError, remark
	r.keep()
}

// keep stores the reply where that is wanted; what becomes of it there doesn't
// change the answer's code.
func (r *clientReply) keep() {
	if len(r.Items) == 0 {
		r.answer()
		return
	}
	r.Wait, r.Done = true, r
	r.b.store.Put(&r.Batch)
}

// PutDone is the engine's word that the reply is kept, or can't be.
func (r *clientReply) PutDone(*engine.Batch) {
	if s := r.Items[0].Status; !s.Stored() {
		r.b.log.Warn("a reply was pushed and could not be stored", "status", s, "error", r.Err)
	}
	r.answer()
}

func (r *clientReply) answer() {
	if r.to.Oneway {
		return
	}
	b := r.b
	w := remoting.BeginReply(nil, r.to, r.code, r.remark)
	w.String(message.PropMsgRegion, b.cfg.RegionId)
	w.Bool(message.PropTraceOn, b.cfg.TraceOn)
	if len(r.Items) > 0 && r.Items[0].Status.Stored() {
		w.Bytes("msgId", message.AppendOffsetID(nil, b.addr, r.Items[0].LogOffset))
		w.Int("queueId", int64(r.queueID))
		w.Int("queueOffset", int64(r.Items[0].QueueOffset))
	} else if r.code == remoting.Success {
		w.String("msgId", "0")
		w.Int("queueId", int64(r.queueID))
		w.Int("queueOffset", 0)
	}
	r.conn.Send(w.End(0))
}
