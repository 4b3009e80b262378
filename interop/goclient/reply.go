package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var replySteps = []step{
	{"steady", "rpc.request", replyRequest},
	{"steady", "rpc.async", replyAsync},
	{"steady", "rpc.nobody", replyNobody},
}

// replier answers each message with "re: " and its body.
func (e *env) replier(group, topic string) func() {
	c := e.push(group, topic, "*", func(ctx context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			reply, err := consumer.CreateReplyMessage(m, nil)
			if err == nil {
				reply.Body = []byte("re: " + string(m.Body))
				reply.WithProperty("mine", "kept")
				reply.Queue = e.queue(reply.Topic, 0)
				_, _ = e.producer().SendSync(ctx, reply) // a requester not known yet asks again
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	return func() { must("shutdown", c.Shutdown()) }
}

func replyRequest(e *env) string {
	topic := e.topic("rpc", 2)
	defer e.replier("rpc", topic)()
	p := e.newProducer("rpc")
	defer p.Shutdown()
	// The broker knows this producer from its first heartbeat on, a second after its start.
	var reply *primitive.Message
	e.await(40*time.Second, "the first request is answered", func() bool {
		var err error
		reply, err = p.Request(e.ctx, 3*time.Second, e.message(topic, 0, "first"))
		return err == nil && reply != nil
	})
	equal("first answer", "re: first", string(reply.Body))
	for i := range 10 {
		reply, err := p.Request(e.ctx, 20*time.Second, e.message(topic, i%2, fmt.Sprint("question ", i)))
		must("request", err)
		equal("answer", fmt.Sprint("re: question ", i), string(reply.Body))
		equal("property of the answer", "kept", reply.GetProperty("mine"))
		equal("topic of the answer", e.cluster+"_REPLY_TOPIC", reply.Topic)
		check(reply.GetProperty("PUSH_REPLY_TIME") != "", "an answer without PUSH_REPLY_TIME: %v", reply.GetProperties())
	}
	check(e.offset(30, e.cluster+"_REPLY_TOPIC", 0, "") >= 11, "the replies are not kept")
	return ""
}

func replyAsync(e *env) string {
	topic := e.topic("rpcasync", 1)
	defer e.replier("rpcasync", topic)()
	p := e.newProducer("rpcasync")
	defer p.Shutdown()
	got := make(chan string, 16)
	e.await(40*time.Second, "a request is answered", func() bool {
		must("request", p.RequestAsync(e.ctx, 3*time.Second, func(_ context.Context, m *primitive.Message, err error) {
			if err == nil && m != nil {
				got <- string(m.Body)
			}
		}, e.message(topic, 0, "later")))
		select {
		case s := <-got:
			equal("answer", "re: later", s)
			return true
		case <-time.After(3 * time.Second):
			return false
		}
	})
	return ""
}

// replyNobody: the replier learns that its requester is gone.
func replyNobody(e *env) string {
	m := e.message(e.cluster+"_REPLY_TOPIC", 0, "an answer to nobody")
	m.WithProperty("MSG_TYPE", "reply")
	m.WithProperty("REPLY_TO_CLIENT", "127.0.0.1@nobody")
	_, err := e.producer().SendSync(e.ctx, m)
	check(err != nil, "a reply to nobody was accepted")
	return err.Error()
}
