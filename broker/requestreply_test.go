package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// dialServing connects a client that answers the broker's requests with serve;
// a nil answer is none. What it is asked also comes out of the channel.
func dialServing(t *testing.T, b *Broker, serve func(req *remoting.Command) *response) (*rpc.Conn, <-chan *remoting.Command) {
	t.Helper()
	asked := make(chan *remoting.Command, 100)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := rpc.Dial(ctx, b.Addrs()[0].String(), rpc.Options{OnRequest: func(c *rpc.Conn, req *remoting.Command) {
		if req.Code == int32(remoting.ReqNotifyConsumerIDsChanged) {
			return // whenever a group gets another member
		}
		asked <- req.Clone()
		if r := serve(req); r != nil {
			_ = c.Send(remoting.AppendReply(nil, req.ReplyTo(), r.code, r.remark, r.fields, r.body))
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, asked
}

func beatProducer(t *testing.T, c *rpc.Conn, clientID string, groups ...string) {
	t.Helper()
	hb := remoting.HeartbeatData{ClientID: clientID}
	for _, g := range groups {
		hb.ProducerDataSet = append(hb.ProducerDataSet, remoting.ProducerData{GroupName: g})
	}
	call(t, c, remoting.ReqHeartBeat, remoting.Success, remoting.MarshalBody(hb))
}

const replyTopic = "DefaultCluster_REPLY_TOPIC"

func TestReplyIsPushedAndKept(t *testing.T) {
	b := startBroker(t, nil)
	requester, asked := dialServing(t, b, func(*remoting.Command) *response { return &response{} })
	beatProducer(t, requester, "me@1", "pg")
	replier := dial(t, b)
	props := "REPLY_TO_CLIENT=me@1;CORRELATION_ID=c1;MSG_TYPE=reply"
	resp := call(t, replier, remoting.ReqSendReplyMessageV2, remoting.Success, []byte("answer"), sendFields(replyTopic, 0, props, "f", "1")...)

	push := <-asked
	var h remoting.PushReplyHeader
	if err := h.Decode(push); err != nil || push.Code != int32(remoting.ReqPushReplyMessageToClient) || push.IsOneway() {
		t.Fatalf("pushed: code %d, flag %d, %v", push.Code, push.Flag, err)
	}
	if string(push.Body) != "answer" || h.Topic != replyTopic || h.SysFlag != 1 || h.ProducerGroup != "pg" || h.StoreHost != b.addr.String() {
		t.Errorf("pushed %q with %+v", push.Body, h)
	}
	if v, ok := message.Property([]byte(h.Properties), message.PropCorrelationID); !ok || string(v) != "c1" {
		t.Errorf("CORRELATION_ID of the push: got %q", v)
	}
	if _, ok := message.Property([]byte(h.Properties), message.PropPushReplyTime); !ok {
		t.Errorf("no PUSH_REPLY_TIME among %q", h.Properties)
	}
	if resp.GetString("queueOffset") != "0" || len(resp.GetString("msgId")) != 32 || resp.GetString("MSG_REGION") != "DefaultRegion" {
		t.Errorf("the replier's answer: %q", resp.Fields)
	}
	kept := call(t, replier, remoting.ReqPullMessage, remoting.Success, nil, pullFields(replyTopic, 0, 0)...)
	if got := bodies(t, kept); fmt.Sprint(got) != "[answer]" {
		t.Errorf("kept replies: %q", got)
	}
	var m message.Message
	if _, err := message.Decode(kept.Body, &m); err != nil || string(m.Properties) != string(hide(props)) || m.SysFlag != 1 {
		t.Errorf("the kept reply is %+v, %v; want the properties as sent", m, err)
	}
}

func TestReplyIsNotKept(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.StoreReplyMessageEnable = false })
	requester, asked := dialServing(t, b, func(*remoting.Command) *response { return &response{} })
	beatProducer(t, requester, "me@1", "pg")
	c := dial(t, b)
	long := sendFields(replyTopic, 0, "REPLY_TO_CLIENT=me@1")
	names := []string{"producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "batch"}
	for i, name := range names {
		long[2*i] = name
	}
	resp := call(t, c, remoting.ReqSendReplyMessage, remoting.Success, []byte("answer"), long...)
	<-asked
	if resp.GetString("msgId") != "0" || resp.GetString("queueId") != "0" || resp.GetString("queueOffset") != "0" {
		t.Errorf("the replier's answer: %q", resp.Fields)
	}
	if got := call(t, c, remoting.ReqGetMaxOffset, remoting.Success, nil, "topic", replyTopic, "queueId", "0").GetString("offset"); got != "0" {
		t.Errorf("max offset of the reply topic: %s", got)
	}
}

// A reply that cannot be pushed is answered 1, and kept all the same.
func TestReplyRefusals(t *testing.T) {
	b := startBroker(t, nil)
	requester, _ := dialServing(t, b, func(*remoting.Command) *response { return &response{code: remoting.SystemError, remark: "late"} })
	beatProducer(t, requester, "me@1", "pg", "pg2")
	c := dial(t, b)
	for i, tc := range []struct {
		props, remark string
	}{
		{"CORRELATION_ID=c", "reply message properties[REPLY_TO_CLIENT] is null"},
		{"REPLY_TO_CLIENT=nobody", "push reply message fail, channel of <nobody> not found."},
		{"REPLY_TO_CLIENT=me@1", "push reply message to me@1fail."},
	} {
		resp := call(t, c, remoting.ReqSendReplyMessageV2, remoting.SystemError, []byte("answer"), sendFields(replyTopic, 0, tc.props)...)
		if string(resp.Remark) != tc.remark {
			t.Errorf("%s: remark %q, want %q", tc.props, resp.Remark, tc.remark)
		}
		if resp.GetString("queueOffset") != fmt.Sprint(i) || resp.GetString("MSG_REGION") == "" {
			t.Errorf("%s: fields %q, want queueOffset %d", tc.props, resp.Fields, i)
		}
	}
	for _, tc := range []struct {
		fields []string
		want   remoting.ResponseCode
	}{
		{sendFields("a/b", 0, ""), remoting.InvalidParameter},
		{sendFields("SCHEDULE_TOPIC_XXXX", 0, ""), remoting.NoPermission},
		{sendFields(replyTopic, 1, ""), remoting.InvalidParameter},
		{sendFields("Nope", 0, "", "c", "None"), remoting.TopicNotExist},
		{[]string{"b", "T"}, remoting.SystemError},
	} {
		if resp := call(t, c, remoting.ReqSendReplyMessageV2, tc.want, []byte("x"), tc.fields...); resp.GetString("MSG_REGION") == "" {
			t.Errorf("%q: a refusal without MSG_REGION", tc.fields)
		}
	}
	// The requester leaves one group and can still be asked; it leaves the other.
	call(t, requester, remoting.ReqUnregisterClient, remoting.Success, nil, "clientID", "me@1", "producerGroup", "pg")
	if b.clients.producerConn("me@1") == nil {
		t.Error("a producer of another group is not found")
	}
	call(t, requester, remoting.ReqUnregisterClient, remoting.Success, nil, "clientID", "me@1", "producerGroup", "pg2")
	if b.clients.producerConn("me@1") != nil {
		t.Error("a producer that has unregistered is still found")
	}
}

// A requester that closes its connection without an answer, and a broker that
// stops, end the push at once.
func TestReplyRequesterLeaves(t *testing.T) {
	b := startBroker(t, nil)
	requester, asked := dialServing(t, b, func(*remoting.Command) *response { return nil })
	beatProducer(t, requester, "me@1", "pg")
	c := dial(t, b)
	begin := time.Now()
	go func() {
		<-asked
		requester.CloseLater()
	}()
	resp := call(t, c, remoting.ReqSendReplyMessageV2, remoting.SystemError, []byte("answer"), sendFields(replyTopic, 0, "REPLY_TO_CLIENT=me@1")...)
	if string(resp.Remark) != "push reply message to me@1fail." || time.Since(begin) > replyPushTimeout/2 {
		t.Errorf("after %v: %q", time.Since(begin), resp.Remark)
	}
	if n := b.asks.count; n != 0 || b.asks.bytes != 0 {
		t.Errorf("%d asks of %d bytes are left", n, b.asks.bytes)
	}
}
