package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

const (
	// versionAskable is the first client version that tells of its inner state
	// (V3_1_8).
	versionAskable = 62
	// forwardTimeout is a client's time to answer what an operator asks of it.
	forwardTimeout = 10 * time.Second
	// statusTimeout is its time to tell its offsets.
	statusTimeout = 5 * time.Second
)

// handleRunningInfo is GET_CONSUMER_RUNNING_INFO (307): what one consumer says
// of itself, its threads' stacks among it where they are asked for.
func handleRunningInfo(b *Broker, r *request) (*response, error) {
	var h remoting.ConsumerClientHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	return nil, b.forward(r, &h, r.cmd.Body)
}

// handleConsumeDirectly is CONSUME_MESSAGE_DIRECTLY (309): one consumer
// consumes a message now, whatever its offset, and tells how that went.
func handleConsumeDirectly(b *Broker, r *request) (*response, error) {
	var h remoting.ConsumerClientHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	body := r.cmd.Body
	if h.MsgID != "" {
		_, at, err := message.ParseOffsetID(h.MsgID)
		if err != nil {
			return nil, err
		}
		body, err = b.store.ByOffset(at)
		if errors.Is(err, engine.ErrNoRecord) {
			return nil, refuse(remoting.SystemError, "can not find message by the offset, %d", at)
		}
		if err != nil {
			return nil, err
		}
	}
	r.cmd.Set("brokerName", b.cfg.BrokerName)
	if topic := b.topics.Find(h.Topic); topic != nil {
		r.cmd.Fields = append(r.cmd.Fields, intField("topicSysFlag", int64(topic.SysFlag)))
	}
	if group := b.groups.Find(h.ConsumerGroup); group != nil {
		r.cmd.Fields = append(r.cmd.Fields, intField("groupSysFlag", int64(group.GroupSysFlag)))
	}
	return nil, b.forward(r, &h, body)
}

// forward passes a request on to the consumer it names, and the consumer's
// answer back as it is. (As AdminBrokerProcessor#callConsumer, 5.3.)
func (b *Broker) forward(r *request, h *remoting.ConsumerClientHeader, body []byte) error {
	to, ok := b.clients.consumer(h.ConsumerGroup, h.ClientID)
	if !ok {
		return refuse(remoting.SystemError, "The Consumer <%s> <%s> not online", h.ConsumerGroup, h.ClientID)
	}
	if to.version < versionAskable {
		return refuse(remoting.SystemError, "The Consumer <%s> Version <%d> too low to finish, please upgrade it to V3_1_8_SNAPSHOT", h.ClientID, to.version)
	}
	req := remoting.NewRequest(r.cmd.Code)
	req.Fields, req.Body = r.cmd.Fields, body
	conn, reply := r.conn, r.cmd.ReplyTo()
	b.asks.ask(to.conn, req, forwardTimeout, func(resp *remoting.Command, err error) {
		answer := response{}
		switch {
		case errors.Is(err, errAskTimeout):
			answer.code = remoting.ConsumeMsgTimeout
			answer.remark = "consumer <" + h.ConsumerGroup + "> <" + h.ClientID + "> Timeout: " + err.Error()
		case err != nil:
			answer.code = remoting.SystemError
			answer.remark = "invoke consumer <" + h.ConsumerGroup + "> <" + h.ClientID + "> Exception: " + err.Error()
		default:
			answer = response{code: remoting.ResponseCode(resp.Code), remark: string(resp.Remark), fields: resp.Fields, body: resp.Body}
		}
		if !reply.Oneway {
			conn.Send(remoting.AppendReply(nil, reply, answer.code, answer.remark, answer.fields, answer.body))
		}
	})
	return nil
}

// consumer finds a client of a group, on its newest connection.
func (t *clientTable) consumer(group, clientID string) (found clientInfo, ok bool) {
	for _, c := range t.consumersOf(group) {
		if c.id == clientID && (!ok || c.beat.After(found.beat)) {
			found, ok = c, true
		}
	}
	return found, ok
}

// handleConsumerStatus is INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): each
// consumer's own offsets, asked of the consumers. One that doesn't answer is
// left out. (As Broker2Client#getConsumeStatus, 5.3.)
func handleConsumerStatus(b *Broker, r *request) (*response, error) {
	var h remoting.ConsumerStatusHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	members := b.clients.consumersOf(h.Group)
	if len(members) == 0 {
		return nil, refuse(remoting.SystemError, "No Any Consumer online in the consumer group: [%s]", h.Group)
	}
	s := &statusRound{conn: r.conn, to: r.cmd.ReplyTo(), waiting: 1}
	s.status.ConsumerTable = map[string]map[remoting.MessageQueue]int64{}
	for _, m := range members {
		if m.version < versionResetByBroker {
			return nil, refuse(remoting.SystemError, "the client does not support this feature. version=%d", m.version)
		}
	}
	ask := remoting.ConsumerStatusHeader{Topic: h.Topic, Group: h.Group}
	for _, m := range members {
		if h.ClientID != "" && h.ClientID != m.id {
			continue
		}
		s.mu.Lock()
		s.waiting++
		s.mu.Unlock()
		b.asks.ask(m.conn, ask.Command(int32(remoting.ReqGetConsumerStatusFromClient)), statusTimeout, func(resp *remoting.Command, err error) {
			s.told(m.id, resp, err)
		})
	}
	s.leave()
	return nil, nil
}

// A statusRound gathers the answers of a group's consumers.
type statusRound struct {
	conn *netloop.Conn
	to   remoting.ReplyTo

	mu      sync.Mutex
	waiting int // asks without an answer, and one while more are being made
	status  remoting.ConsumerStatus
}

// told takes one answer.
func (s *statusRound) told(clientID string, resp *remoting.Command, err error) {
	if err == nil && resp.Code == int32(remoting.Success) && len(resp.Body) > 0 {
		if table, err := remoting.ParseConsumerStatus(resp.Body); err == nil {
			s.mu.Lock()
			s.status.ConsumerTable[clientID] = table
			s.mu.Unlock()
		}
	}
	s.leave()
}

// leave counts one less that is waited for; after the last one the answer goes
// out.
func (s *statusRound) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting--; s.waiting == 0 && !s.to.Oneway {
		s.conn.Send(remoting.AppendReply(nil, s.to, remoting.Success, "", nil, s.status.Append(nil)))
	}
}
