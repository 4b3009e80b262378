package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/ringmq/ringmq/interop"
)

var pullSteps = []step{
	{"steady", "pull.range", pullRange},
	{"steady", "pull.time", pullTime},
	{"steady", "pull.poll", pullPoll},
}

func pullRange(e *env) string {
	topic := e.topic("range", 1)
	e.send(topic, "m", 0, 20, 1)
	e.awaitStored(topic, 1, 20)
	c := e.puller("range", topic)
	defer c.Shutdown()
	queues, err := c.GetTopicRouteInfo(topic)
	must("route", err)
	equal("queues", 1, len(queues))
	r, err := c.PullFrom(e.ctx, e.queue(topic, 0), 5, 7)
	must("pull", err)
	equal("status", primitive.PullFound, r.Status)
	equal("next, min, max", []int64{12, 0, 20}, []int64{r.NextBeginOffset, r.MinOffset, r.MaxOffset})
	equal("bodies", []string{"m5", "m6", "m7", "m8", "m9", "m10", "m11"}, bodies(r.GetMessageExts()))
	// This client always asks to be held at the end, for 20 s.
	sent := make(chan time.Time, 1)
	go func() {
		time.Sleep(500 * time.Millisecond)
		sent <- time.Now()
		e.producer().SendSync(e.ctx, e.message(topic, 0, "m20"))
	}()
	r, err = c.PullFrom(e.ctx, e.queue(topic, 0), 20, 7)
	must("pull", err)
	held := time.Since(<-sent)
	equal("status at the end", primitive.PullFound, r.Status)
	equal("bodies", []string{"m20"}, bodies(r.GetMessageExts()))
	check(held < 2*time.Second, "the held pull was answered %v after the send", held)
	r, err = c.PullFrom(e.ctx, e.queue(topic, 0), 25, 7)
	must("pull", err)
	equal("status past the end", primitive.PullOffsetIllegal, r.Status)
	equal("next past the end", int64(21), r.NextBeginOffset)
	return fmt.Sprint("held pull answered ", held, " after the send began")
}

func pullTime(e *env) string {
	topic := e.topic("time", 1)
	e.send(topic, "m", 0, 10, 1)
	time.Sleep(300 * time.Millisecond)
	between := time.Now().UnixMilli() - 100
	e.send(topic, "m", 10, 20, 1)
	e.awaitStored(topic, 1, 20)
	c := e.puller("time", topic)
	defer c.Shutdown()
	for _, want := range []struct {
		what   string
		at     int64
		offset int64
	}{{"between", between, 10}, {"before the first", between - 3_600_000, 0}, {"after the last", between + 3_600_000, 20}} {
		off, err := c.OffsetForTimestamp(e.queue(topic, 0), want.at)
		must("search", err)
		equal("offset "+want.what, want.offset, off)
	}
	return ""
}

// pullPoll polls, acknowledges, and lets the next consumer go on from there.
func pullPoll(e *env) string {
	topic := e.topic("poll", 4)
	e.send(topic, "m", 0, 40, 4)
	poll := func(n int, total int64) []*primitive.MessageExt {
		c, err := rocketmq.NewPullConsumer(e.consumerOptions("poll")...)
		must("new pull consumer", err)
		must("subscribe", c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
		begin := time.Now()
		must("start", c.Start())
		var got []*primitive.MessageExt
		e.awaitf(30*time.Second, func() string { return fmt.Sprintf("%d polled, have %d", n, len(got)) }, func() bool {
			cr, err := c.Poll(e.ctx, 500*time.Millisecond)
			if consumer.IsNoNewMsgError(err) {
				return len(got) >= n
			}
			must("poll", err)
			got = append(got, cr.GetMsgList()...)
			c.ACK(e.ctx, cr, consumer.ConsumeSuccess)
			return false
		})
		e.awaitCommitted(topic, 4, e.group("poll"), total, func() error { return c.PersistOffset(e.ctx, topic) })
		time.Sleep(2*time.Second - time.Since(begin)) // as sink.leave
		must("shutdown", c.Shutdown())
		return got
	}
	equal("bodies", numbered("m", 0, 40), set(poll(40, 40)))
	e.send(topic, "n", 0, 8, 4)
	equal("bodies of the next consumer", numbered("n", 0, 8), set(poll(8, 48)))
	return ""
}

var pushSteps = []step{
	{"steady", "push.cluster", pushCluster},
	{"steady", "push.broadcast", pushBroadcast},
	{"steady", "push.tags", pushTags},
	{"steady", "push.prompt", pushPrompt},
	{"steady", "push.offsets", pushOffsets},
}

// pushCluster lets two instances share 8 queues; one leaves while messages flow, and none is lost.
func pushCluster(e *env) string {
	topic := e.topic("cluster", 8)
	a := e.sink("cluster", topic, "*")
	b := e.sink("cluster", topic, "*")
	sent := 0
	share := func() string {
		return fmt.Sprintf("two instances share the queues, have %d and %d", a.queues(), b.queues())
	}
	e.awaitf(30*time.Second, share, func() bool {
		a.clear()
		b.clear()
		e.send(topic, "w", sent, sent+16, 8)
		sent += 16
		time.Sleep(300 * time.Millisecond)
		return a.queues() == 4 && b.queues() == 4
	})
	want := numbered("m", 0, 400)
	for i := 0; i < 400; i += 20 {
		e.send(topic, "m", i, i+20, 8)
		if i == 200 {
			b.leave()
		}
	}
	all := func() []string { return append(bodies(a.messages()), bodies(b.messages())...) }
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("every message is consumed, missing ", missing(want, all())) },
		func() bool { return len(missing(want, all())) == 0 })
	must("shutdown", a.Shutdown())
	return fmt.Sprint(len(all()), " deliveries")
}

func pushBroadcast(e *env) string {
	topic := e.topic("broadcast", 4)
	a := e.sink("broadcast", topic, "*", consumer.WithConsumerModel(consumer.BroadCasting))
	b := e.sink("broadcast", topic, "*", consumer.WithConsumerModel(consumer.BroadCasting))
	e.send(topic, "m", 0, 40, 4)
	e.awaitf(45*time.Second, func() string { return fmt.Sprintf("both have 40, have %d and %d", a.count(), b.count()) },
		func() bool { return a.count() >= 40 && b.count() >= 40 })
	equal("messages of the first", numbered("m", 0, 40), set(a.messages()))
	equal("messages of the second", numbered("m", 0, 40), set(b.messages()))
	must("shutdown", a.Shutdown())
	must("shutdown", b.Shutdown())
	return ""
}

// pushTags: "Aa" and "BB" have one hash code.
func pushTags(e *env) string {
	topic := e.topic("tags", 2)
	ab := e.sink("tagsab", topic, "A || B")
	aa := e.sink("tagsaa", topic, "Aa")
	tags := []string{"A", "B", "C", "Aa", "BB", ""}
	for i := range 60 {
		m := e.message(topic, i%2, "tag "+tags[i%6])
		if tags[i%6] != "" {
			m.WithTag(tags[i%6])
		}
		_, err := e.producer().SendSync(e.ctx, m)
		must("send", err)
	}
	e.awaitf(45*time.Second, func() string { return fmt.Sprintf("20 and 10 messages, have %d and %d", ab.count(), aa.count()) },
		func() bool { return ab.count() >= 20 && aa.count() >= 10 })
	time.Sleep(300 * time.Millisecond)
	equal("tags for A || B", []string{"tag A", "tag B"}, set(ab.messages()))
	equal("messages for A || B", 20, ab.count())
	equal("tags for Aa", []string{"tag Aa"}, set(aa.messages()))
	equal("messages for Aa", 10, aa.count())
	must("shutdown", ab.Shutdown())
	must("shutdown", aa.Shutdown())
	return ""
}

// pushPrompt: a message for an idle consumer wakes its held pull.
func pushPrompt(e *env) string {
	topic := e.topic("prompt", 1)
	s := e.sink("prompt", topic, "*")
	e.send(topic, "m", 0, 1, 1)
	e.await(45*time.Second, "the first message comes", func() bool { return s.count() == 1 })
	var worst time.Duration
	for i := 1; i < 6; i++ {
		time.Sleep(400 * time.Millisecond)
		begin := time.Now()
		e.send(topic, "m", i, i+1, 1)
		e.await(10*time.Second, "message "+strconv.Itoa(i)+" comes", func() bool { return s.count() == i+1 })
		worst = max(worst, time.Since(begin))
	}
	must("shutdown", s.Shutdown())
	check(worst < 2*time.Second, "a message took %v", worst)
	return fmt.Sprint("worst ", worst)
}

func pushOffsets(e *env) string {
	topic := e.topic("offsets", 4)
	e.send(topic, "m", 0, 40, 4)
	a := e.sink("offsets", topic, "*")
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("40 come, have ", a.count()) }, func() bool { return a.count() >= 40 })
	a.settle(e, topic, 4, 40)
	e.send(topic, "n", 0, 20, 4)
	b := e.sink("offsets", topic, "*")
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("20 come, have ", b.count()) }, func() bool { return b.count() >= 20 })
	time.Sleep(500 * time.Millisecond)
	equal("messages of the next instance", numbered("n", 0, 20), set(b.messages()))
	equal("number of messages of the next instance", 20, b.count())
	must("shutdown", b.Shutdown())
	return ""
}

var orderSteps = []step{
	{"steady", "order.keep", orderKeep},
	{"steady", "order.suspend", orderSuspend},
}

func orderKeep(e *env) string {
	topic := e.topic("order", 4)
	s := e.sink("order", topic, "*", consumer.WithConsumerOrder(true), consumer.WithConsumeMessageBatchMaxSize(1))
	for i := range 200 {
		e.send(topic, "m", i, i+1, 4)
	}
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("200 come, have ", s.count()) }, func() bool { return s.count() >= 200 })
	must("shutdown", s.Shutdown())
	last := map[int]int64{0: -1, 1: -1, 2: -1, 3: -1}
	for _, m := range s.messages() {
		q := m.Queue.QueueId
		check(m.QueueOffset == last[q]+1, "queue %d: offset %d came after %d", q, m.QueueOffset, last[q])
		last[q] = m.QueueOffset
	}
	return ""
}

// orderSuspend: a suspended queue delivers the same message again before any later one.
func orderSuspend(e *env) string {
	topic := e.topic("suspend", 1)
	got := make(chan string, 100)
	times := 0
	c := e.push("suspend", topic, "*", func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		got <- string(ms[0].Body)
		if string(ms[0].Body) == "m1" && times < 2 {
			times++
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true), consumer.WithConsumeMessageBatchMaxSize(1),
		consumer.WithSuspendCurrentQueueTimeMillis(300*time.Millisecond), consumer.WithMaxReconsumeTimes(5))
	e.send(topic, "m", 0, 4, 1)
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("6 deliveries, have ", len(got)) }, func() bool { return len(got) >= 6 })
	must("shutdown", c.Shutdown())
	var all []string
	for len(got) > 0 {
		all = append(all, <-got)
	}
	equal("deliveries", []string{"m0", "m1", "m1", "m1", "m2", "m3"}, all)
	return ""
}

var retrySteps = []step{
	{"steady", "retry.later", retryLater},
	{"steady", "retry.dlq", retryDLQ},
	{"steady", "delay.level", delayLevel},
	{"steady", "timer.delay", timerDelay},
}

// delivery is one delivery, and when it came.
type delivery struct {
	*primitive.MessageExt
	at time.Time
}

// failing starts a consumer that wants a message again until it was reconsumed so often. A forerunner makes the group
// known, so that the consumer finds the route of its %RETRY% topic when it starts.
func (e *env) failing(group, topic string, failures int32, opts ...consumer.Option) (rocketmq.PushConsumer, chan delivery) {
	must("shutdown", e.sink(group, topic, "*").Shutdown())
	e.await(20*time.Second, "the %RETRY% topic of "+group+" has a route", func() bool {
		return interop.HasRoute(e.ctx, e.namesrv, "%RETRY%"+e.group(group)) == nil
	})
	got := make(chan delivery, 100)
	return e.push(group, topic, "*", func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		got <- delivery{ms[0], time.Now()}
		if ms[0].ReconsumeTimes < failures {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}, opts...), got
}

func sendRetried(e *env, topic string) *primitive.SendResult {
	m := e.message(topic, 0, "again").WithTag("tagR").WithKeys([]string{"keyR"})
	m.WithProperty("mine", "kept")
	r, err := e.producer().SendSync(e.ctx, m)
	must("send", err)
	return r
}

func sameMessage(sent *primitive.SendResult, m *primitive.MessageExt) {
	equal("body", "again", string(m.Body))
	equal("tags", "tagR", m.GetTags())
	equal("property", "kept", m.GetProperty("mine"))
	equal("message id", sent.MsgID, m.MsgId)
}

func retryLater(e *env) string {
	topic := e.topic("later", 1)
	c, got := e.failing("later", topic, 2)
	sent := sendRetried(e, topic)
	e.awaitf(60*time.Second, func() string { return fmt.Sprint("three deliveries, have ", len(got)) }, func() bool { return len(got) >= 3 })
	must("shutdown", c.Shutdown())
	var last time.Time
	for i := range 3 {
		d := <-got
		equal("reconsume times", int32(i), d.ReconsumeTimes)
		equal("topic", topic, d.Topic)
		sameMessage(sent, d.MessageExt)
		if i > 0 {
			check(d.at.Sub(last) > 900*time.Millisecond, "delivery %d came after %v", i, d.at.Sub(last))
		}
		last = d.at
	}
	return ""
}

func retryDLQ(e *env) string {
	topic := e.topic("dlq", 1)
	c, got := e.failing("dlq", topic, 1<<30, consumer.WithMaxReconsumeTimes(2))
	sent := sendRetried(e, topic)
	dlq := "%DLQ%" + e.group("dlq")
	e.awaitf(60*time.Second, func() string {
		return fmt.Sprint("a message in the dead-letter queue, after ", len(got), " deliveries")
	},
		func() bool { return e.offset(30, dlq, 0, "") >= 1 })
	must("shutdown", c.Shutdown())
	equal("deliveries", 3, len(got))
	dead := e.drain(dlq, 1)
	equal("dead messages", 1, len(dead))
	sameMessage(sent, dead[0])
	equal("original topic", topic, dead[0].GetProperty("RETRY_TOPIC"))
	equal("reconsume times", int32(3), dead[0].ReconsumeTimes)
	return ""
}

func delayLevel(e *env) string {
	topic := e.topic("delay", 1)
	s := e.sink("delay", topic, "*")
	e.send(topic, "plain", 0, 1, 1)
	e.await(45*time.Second, "the plain message comes", func() bool { return s.count() == 1 })
	begin := time.Now()
	for i := range 5 {
		_, err := e.producer().SendSync(e.ctx, e.message(topic, 0, "late"+strconv.Itoa(i)).WithDelayTimeLevel(2))
		must("send", err)
	}
	e.awaitf(30*time.Second, func() string { return fmt.Sprint("6 come, have ", s.count()) }, func() bool { return s.count() >= 6 })
	took := time.Since(begin)
	must("shutdown", s.Shutdown())
	check(took > 1900*time.Millisecond && took < 12*time.Second, "level 2 took %v", took)
	got := bodies(s.messages())
	slices.Sort(got)
	equal("bodies", []string{"late0", "late1", "late2", "late3", "late4", "plain0"}, got)
	return took.String()
}

// timerDelay sends messages with a time of their own, in the reverse order of
// their times.
func timerDelay(e *env) string {
	topic := e.topic("timer", 1)
	begin := time.Now()
	for _, m := range []struct{ body, property, value string }{
		{"seconds", "TIMER_DELAY_SEC", "5"},
		{"at", "TIMER_DELIVER_MS", strconv.FormatInt(begin.UnixMilli()+3500, 10)},
		{"millis", "TIMER_DELAY_MS", "1500"},
	} {
		msg := e.message(topic, 0, m.body)
		msg.WithProperty(m.property, m.value)
		_, err := e.producer().SendSync(e.ctx, msg)
		must("send", err)
	}
	e.await(45*time.Second, "three come", func() bool { return e.offset(30, topic, 0, "") >= 3 })
	took := time.Since(begin)
	check(took > 4900*time.Millisecond, "the last came after %v", took)
	equal("order", []string{"millis", "at", "seconds"}, bodies(e.drain(topic, 1)))
	return took.String()
}
