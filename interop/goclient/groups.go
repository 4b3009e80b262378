package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/ringmq/ringmq/interop"
)

var groupSteps = []step{
	{"steady", "group.admin", groupAdmin},
	{"steady", "group.enable", groupEnable},
	{"steady", "order.poison", orderPoison},
}

// updateGroup is request 200: more is JSON members beside the group's name.
func (e *env) updateGroup(name, more string) {
	f, err := interop.Ask(e.ctx, e.broker, 200, nil, []byte(`{"groupName":"`+e.group(name)+`",`+more+`}`))
	must("update group", err)
	equal("code of the answer", 0, f.Code)
}

func groupAdmin(e *env) string {
	e.updateGroup("admin", `"retryMaxTimes":3,"consumeBroadcastEnable":false`)
	a, err := admin.NewAdmin(admin.WithResolver(e.resolver()))
	must("new admin", err)
	defer a.Close()
	all, err := a.GetAllSubscriptionGroup(e.ctx, e.broker, 10*time.Second)
	must("all groups", err)
	g, ok := all.SubscriptionGroupTable[e.group("admin")]
	check(ok, "the group is not among %d", len(all.SubscriptionGroupTable))
	equal("retryMaxTimes", 3, g.RetryMaxTimes)
	check(g.ConsumeEnable && !g.ConsumeBroadcastEnable, "got %+v", g)
	return fmt.Sprint(len(all.SubscriptionGroupTable), " groups")
}

// groupEnable: consumeEnable goes off and on while a push consumer runs.
func groupEnable(e *env) string {
	topic := e.topic("enable", 2)
	e.updateGroup("enable", `"consumeEnable":true`)
	s := e.sink("enable", topic, "*")
	e.send(topic, "early", 0, 4, 2)
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("4 come, have ", s.count()) }, func() bool { return s.count() == 4 })
	e.updateGroup("enable", `"consumeEnable":false`)
	e.send(topic, "off", 0, 10, 2)
	time.Sleep(2 * time.Second)
	equal("messages while consuming is off", 4, s.count())
	e.updateGroup("enable", `"consumeEnable":true`)
	begin := time.Now()
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("10 more come, have ", s.count()) }, func() bool { return s.count() >= 14 })
	must("shutdown", s.Shutdown())
	return fmt.Sprint("resumed after ", time.Since(begin))
}

// orderPoison: after maxReconsumeTimes a poisoned message goes to the dead-letter queue and its queue goes on.
func orderPoison(e *env) string {
	topic := e.topic("poison", 1)
	var mu sync.Mutex
	var got []string
	c := e.push("poison", topic, "*", func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(ms[0].Body))
		if string(ms[0].Body) == "m1" {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true), consumer.WithConsumeMessageBatchMaxSize(1),
		consumer.WithSuspendCurrentQueueTimeMillis(200*time.Millisecond), consumer.WithMaxReconsumeTimes(2))
	e.send(topic, "m", 0, 4, 1)
	have := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("m3 comes, have ", have()) }, func() bool { return slices.Contains(have(), "m3") })
	dead := "%DLQ%" + e.group("poison")
	e.await(20*time.Second, "one dead message", func() bool { return e.offset(30, dead, 0, "") == 1 })
	must("shutdown", c.Shutdown())
	m := e.drain(dead, 1)[0]
	equal("dead body", "m1", string(m.Body))
	equal("dead message's topic", topic, m.GetProperty(primitive.PropertyRetryTopic))
	return fmt.Sprint(have())
}

// groupRestart is what of groups must outlive the broker's process; see java/common/interop/GroupRestartSteps.java.
type groupRestart struct {
	round, orderTopic, retryTopic string
	orderly                       *sink
	sent                          int
	failing                       rocketmq.PushConsumer
	failed                        chan delivery
	first                         delivery
}

func groupRestartSteps() []step {
	var all []step
	for _, round := range []string{"stop", "kill"} {
		r := &groupRestart{round: round}
		all = append(all, step{"before " + round, "groups", r.prepare},
			step{"after " + round, "order", r.afterOrder},
			step{"after " + round, "retry", r.afterRetry})
	}
	return all
}

func (r *groupRestart) prepare(e *env) string {
	r.retryTopic = e.topic("refail"+r.round, 1)
	must("shutdown", e.sink("refail"+r.round, r.retryTopic, "*").Shutdown()) // makes the group known, as e.failing
	e.await(20*time.Second, "the %RETRY% topic has a route", func() bool {
		return interop.HasRoute(e.ctx, e.namesrv, "%RETRY%"+e.group("refail"+r.round)) == nil
	})
	r.failed = make(chan delivery, 100)
	r.failing = e.push("refail"+r.round, r.retryTopic, "*", func(ctx context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		r.failed <- delivery{ms[0], time.Now()}
		if ms[0].ReconsumeTimes > 0 {
			return consumer.ConsumeSuccess, nil
		}
		if c, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			c.DelayLevelWhenNextConsume = 18 // 15 s in the suite's broker files
		}
		return consumer.ConsumeRetryLater, nil
	})
	r.orderTopic = e.topic("reorder"+r.round, 4)
	r.orderly = e.sink("reorder"+r.round, r.orderTopic, "*", consumer.WithConsumerOrder(true), consumer.WithConsumeMessageBatchMaxSize(1))
	e.send(r.orderTopic, "m", 0, 40, 4)
	r.sent = 40
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("40 come in order, have ", r.orderly.count()) }, func() bool { return r.orderly.count() >= 40 })
	_, err := e.producer().SendSync(e.ctx, e.message(r.retryTopic, 0, "again"))
	must("send", err)
	e.await(45*time.Second, "the message fails", func() bool { return len(r.failed) > 0 })
	r.first = <-r.failed
	time.Sleep(time.Second) // it is on its way back to the broker
	return ""
}

func (r *groupRestart) afterOrder(e *env) string {
	var err error
	for n := r.sent + 40; r.sent < n; r.sent++ {
		e.awaitf(40*time.Second, func() string { return fmt.Sprintf("message %d is sent: %v", r.sent, err) }, func() bool {
			_, err = e.producer().SendSync(e.ctx, e.message(r.orderTopic, r.sent%4, "m"+strconv.Itoa(r.sent)))
			return err == nil
		})
	}
	want := numbered("m", 0, r.sent)
	e.awaitf(70*time.Second, func() string { return fmt.Sprint("all come, missing ", missing(want, bodies(r.orderly.messages()))) },
		func() bool { return len(missing(want, bodies(r.orderly.messages()))) == 0 })
	must("shutdown", r.orderly.Shutdown())
	highest := map[int]int64{0: -1, 1: -1, 2: -1, 3: -1}
	repeated := 0
	for _, m := range r.orderly.messages() {
		q := m.Queue.QueueId
		if m.QueueOffset <= highest[q] { // sent or delivered twice over the restart
			repeated++
			continue
		}
		check(m.QueueOffset == highest[q]+1, "queue %d: offset %d came after %d", q, m.QueueOffset, highest[q])
		highest[q] = m.QueueOffset
	}
	return fmt.Sprint(repeated, " repeated")
}

func (r *groupRestart) afterRetry(e *env) string {
	e.await(60*time.Second, "the failed message comes again", func() bool { return len(r.failed) > 0 })
	must("shutdown", r.failing.Shutdown())
	for len(r.failed) > 0 {
		if d := <-r.failed; d.ReconsumeTimes == 1 {
			equal("body", "again", string(d.Body))
			after := time.UnixMilli(d.StoreTimestamp).Sub(r.first.at)
			check(after > 14*time.Second, "again after %v", after)
			return fmt.Sprint("after ", after)
		}
	}
	fail("the failed message was delivered anew, not as a retry")
	return ""
}
