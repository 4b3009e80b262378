package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/ringmq/ringmq/interop"
)

var controlSteps = []step{
	{"steady", "reset.online", resetOnline},
	{"steady", "reset.offline", resetOffline},
	{"steady", "control.client", controlClient},
	{"steady", "pass.namespace", passNamespace},
	{"steady", "pass.trace", passTrace},
}

// ask sends an operator's request, as tools do, over a raw connection.
func (e *env) ask(code int, fields map[string]string) *interop.Frame {
	f, err := interop.Ask(e.ctx, e.broker, code, fields, nil)
	must(fmt.Sprint("request ", code), err)
	return f
}

func (e *env) reset(group, topic, millis string) {
	f := e.ask(222, map[string]string{"topic": topic, "group": e.group(group), "timestamp": millis, "isForce": "true"})
	equal("answer to the reset: "+f.Remark, 0, f.Code)
}

// committed waits until the broker has the consumer's offsets: they add up to n.
func (s *sink) committed(e *env, topic string, queues int, n int64) {
	persister := s.PushConsumer.(interface{ PersistConsumerOffset() error })
	e.awaitCommitted(topic, queues, s.group, n, persister.PersistConsumerOffset)
}

// resetOnline: a consumer at work goes back to the beginning.
func resetOnline(e *env) string {
	topic := e.topic("reset", 2)
	e.send(topic, "m", 0, 20, 2)
	s := e.sink("reset", topic, "*")
	e.awaitf(40*time.Second, func() string { return fmt.Sprint("20 messages, have ", s.count()) }, func() bool { return s.count() == 20 })
	s.committed(e, topic, 2, 20)
	s.clear()
	begin := time.Now()
	e.reset("reset", topic, "0")
	e.awaitf(50*time.Second, func() string { return fmt.Sprint("all again, have ", set(s.messages())) }, func() bool {
		return slices.Equal(set(s.messages()), numbered("m", 0, 20))
	})
	took := time.Since(begin).Round(time.Millisecond)
	s.committed(e, topic, 2, 20)
	s.leave()
	return fmt.Sprint("after ", took)
}

// resetOffline: a backlog is skipped while nobody is there.
func resetOffline(e *env) string {
	topic := e.topic("skip", 1)
	e.send(topic, "m", 0, 1, 1)
	a := e.sink("skip", topic, "*")
	e.awaitf(40*time.Second, func() string { return "the first message" }, func() bool { return a.count() == 1 })
	a.committed(e, topic, 1, 1)
	a.leave()
	e.send(topic, "backlog", 0, 10, 1)
	e.awaitStored(topic, 1, 11)
	e.reset("skip", topic, "-1")
	equal("offset after the skip", int64(11), e.offset(14, topic, 0, e.group("skip")))
	b := e.sink("skip", topic, "*")
	e.send(topic, "fresh", 0, 5, 1)
	e.awaitf(50*time.Second, func() string { return fmt.Sprint("the fresh ones, have ", set(b.messages())) }, func() bool {
		return len(missing(numbered("fresh", 0, 5), set(b.messages()))) == 0
	})
	b.leave()
	equal("only the fresh ones", numbered("fresh", 0, 5), set(b.messages()))
	return ""
}

// controlClient: the consumer is listed, tells its state, and consumes a message on demand.
func controlClient(e *env) string {
	topic := e.topic("direct", 1)
	sent := e.send(topic, "m", 0, 1, 1)[0]
	s := e.sink("direct", topic, "*")
	e.awaitf(40*time.Second, func() string { return "the message comes" }, func() bool { return s.count() == 1 })
	var list struct {
		ConnectionSet []struct{ ClientID, Language string }
	}
	e.await(20*time.Second, "the consumer is listed", func() bool {
		f := e.ask(203, map[string]string{"consumerGroup": e.group("direct")})
		return f.Code == 0 && json.Unmarshal(f.Body, &list) == nil && len(list.ConnectionSet) == 1
	})
	equal("language", "GO", list.ConnectionSet[0].Language)
	id := list.ConnectionSet[0].ClientID
	info := e.ask(307, map[string]string{"consumerGroup": e.group("direct"), "clientId": id, "jstackEnable": "true"})
	equal("running info: "+info.Remark, 0, info.Code)
	check(strings.Contains(string(info.Body), topic) && strings.Contains(string(info.Body), "goroutine"), "running info: %.300s", info.Body)
	done := e.ask(309, map[string]string{"consumerGroup": e.group("direct"), "clientId": id, "topic": topic, "msgId": sent.OffsetMsgID})
	equal("consumed on demand: "+done.Remark, 0, done.Code)
	e.await(20*time.Second, "the message comes once more", func() bool { return s.count() == 2 })
	equal("deliveries", []string{"m0", "m0"}, bodies(s.messages()))
	s.leave()
	return fmt.Sprintf("%.100s", done.Body)
}

// passNamespace: names in a namespace are other names to the broker, and the plain ones to who uses it.
func passNamespace(e *env) string {
	space, plain := e.prefix+"space", e.prefix+"_t_ns"
	must("create topic", interop.CreateTopic(e.ctx, e.broker, space+"%"+plain, 2))
	e.await(15*time.Second, "the topic has a route", func() bool { return interop.HasRoute(e.ctx, e.namesrv, space+"%"+plain) == nil })
	p := e.newProducer("ns", producer.WithNamespace(space), producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	defer p.Shutdown()
	s := e.sink("ns", plain, "*", consumer.WithNamespace(space))
	for i := range 6 {
		_, err := p.SendSync(e.ctx, primitive.NewMessage(plain, fmt.Append(nil, "m", i)))
		must("send", err)
	}
	e.awaitf(40*time.Second, func() string { return fmt.Sprint("all of the namespace, have ", set(s.messages())) }, func() bool {
		return slices.Equal(set(s.messages()), numbered("m", 0, 6))
	})
	s.leave()
	return ""
}

// passTrace: producer and consumer trace their messages; the traces are found by message id.
func passTrace(e *env) string {
	topic := e.topic("traced", 1)
	trace := func() *primitive.TraceConfig {
		return &primitive.TraceConfig{GroupName: e.prefix + "_trace", Access: primitive.Local, Resolver: e.resolver(), NamesrvAddrs: []string{e.namesrv}}
	}
	var p rocketmq.Producer = e.newProducer("traced", producer.WithTrace(trace()))
	defer p.Shutdown()
	s := e.sink("traced", topic, "*", consumer.WithTrace(trace()))
	r, err := p.SendSync(context.WithoutCancel(e.ctx), e.message(topic, 0, "traced"))
	must("send", err)
	e.awaitf(40*time.Second, func() string { return "the traced message comes" }, func() bool { return s.count() == 1 })
	var seen string
	e.awaitf(40*time.Second, func() string { return fmt.Sprintf("the traces of %s are found, have %q", r.MsgID, seen) }, func() bool {
		f := e.ask(12, map[string]string{"topic": "RMQ_SYS_TRACE_TOPIC", "key": r.MsgID, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": fmt.Sprint(int64(1) << 62)})
		seen = string(f.Body)
		return strings.Contains(seen, "Pub\x01") && strings.Contains(seen, "SubAfter\x01")
	})
	s.leave()
	return ""
}
