package broker

import (
	"testing"

	"github.com/ringmq/ringmq/remoting"
)

func TestForwardToConsumer(t *testing.T) {
	b := startBroker(t, nil)
	admin := dial(t, b)
	sent := call(t, admin, remoting.ReqSendMessageV2, remoting.Success, []byte("do this"), sendFields("T", 0, "UNIQ_KEY=u1")...)
	client, asked := dialServing(t, b, func(req *remoting.Command) *response {
		switch remoting.RequestCode(req.Code) {
		case remoting.ReqGetConsumerRunningInfo:
			return &response{body: []byte(`{"jstack":"stack of ` + req.GetString("jstackEnable") + `"}`)}
		case remoting.ReqConsumeMessageDirectly:
			return &response{code: 0, remark: "as told", body: []byte(`{"consumeResult":"CR_SUCCESS"}`)}
		}
		return nil
	})
	joinGroup(t, client, "me@1")

	info := call(t, admin, remoting.ReqGetConsumerRunningInfo, remoting.Success, nil, "consumerGroup", "cg", "clientId", "me@1", "jstackEnable", "true")
	if string(info.Body) != `{"jstack":"stack of true"}` {
		t.Errorf("running info: %s", info.Body)
	}
	<-asked
	directly := call(t, admin, remoting.ReqConsumeMessageDirectly, remoting.Success, nil,
		"consumerGroup", "cg", "clientId", "me@1", "topic", "T", "msgId", sent.GetString("msgId"))
	if string(directly.Body) != `{"consumeResult":"CR_SUCCESS"}` || string(directly.Remark) != "as told" {
		t.Errorf("consumed directly: %q %s", directly.Remark, directly.Body)
	}
	req := <-asked
	if got := bodies(t, req); len(got) != 1 || got[0] != "do this" {
		t.Errorf("the consumer was given %q", got)
	}
	for key, want := range map[string]string{"brokerName": "broker-t", "topicSysFlag": "0", "groupSysFlag": "0", "clientId": "me@1", "consumerGroup": "cg"} {
		if got := req.GetString(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	// Without an id the message is the request's body.
	call(t, admin, remoting.ReqConsumeMessageDirectly, remoting.Success, req.Body, "consumerGroup", "cg", "clientId", "me@1")
	if got := bodies(t, <-asked); len(got) != 1 || got[0] != "do this" {
		t.Errorf("the consumer was given %q", got)
	}

	for _, fields := range [][]string{
		{"consumerGroup", "cg", "clientId", "other"},
		{"consumerGroup", "nobody", "clientId", "me@1"},
		{"consumerGroup", "cg"},
		{"clientId", "me@1"},
	} {
		call(t, admin, remoting.ReqGetConsumerRunningInfo, remoting.SystemError, nil, fields...)
	}
	for _, id := range []string{"short", sent.GetString("msgId")[:16] + "00000000000F0000"} {
		call(t, admin, remoting.ReqConsumeMessageDirectly, remoting.SystemError, nil, "consumerGroup", "cg", "clientId", "me@1", "msgId", id)
	}
	select {
	case req := <-asked:
		t.Errorf("the consumer was asked %d although the request was refused", req.Code)
	default:
	}

	silent, silentAsked := dialServing(t, b, func(*remoting.Command) *response { return nil })
	joinGroup(t, silent, "silent@1")
	go func() {
		<-silentAsked
		silent.CloseLater()
	}()
	resp := call(t, admin, remoting.ReqGetConsumerRunningInfo, remoting.SystemError, nil, "consumerGroup", "cg", "clientId", "silent@1")
	if got, want := string(resp.Remark), "invoke consumer <cg> <silent@1> Exception: the client's connection is closed"; got != want {
		t.Errorf("a consumer that leaves: %q, want %q", got, want)
	}
}

func TestConsumerStatus(t *testing.T) {
	b := startBroker(t, nil)
	admin := dial(t, b)
	call(t, admin, remoting.ReqInvokeBrokerToGetConsumerStatus, remoting.SystemError, nil, "topic", "T", "group", "cg")
	for id, answer := range map[string]*response{
		"a@1": {body: []byte(`{"messageQueueTable":{{"brokerName":"broker-t","queueId":1,"topic":"T"}:7}}`)},
		"b@1": {body: []byte(`{"messageQueueTable":{}}`)},
		"c@1": {code: remoting.SystemError},
		"d@1": {body: []byte(`no status`)},
	} {
		c, _ := dialServing(t, b, func(*remoting.Command) *response { return answer })
		joinGroup(t, c, id)
	}
	for _, tc := range []struct{ client, want string }{
		{"", `{"consumerTable":{"a@1":{{"brokerName":"broker-t","queueId":1,"topic":"T"}:7},"b@1":{}},"messageQueueTable":{}}`},
		{"b@1", `{"consumerTable":{"b@1":{}},"messageQueueTable":{}}`},
		{"x@1", `{"consumerTable":{},"messageQueueTable":{}}`},
	} {
		resp := call(t, admin, remoting.ReqInvokeBrokerToGetConsumerStatus, remoting.Success, nil, "topic", "T", "group", "cg", "clientAddr", tc.client)
		if string(resp.Body) != tc.want {
			t.Errorf("status of %q: %s, want %s", tc.client, resp.Body, tc.want)
		}
	}
}
