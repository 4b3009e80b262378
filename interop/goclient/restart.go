package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// restart is what must outlive the broker's process; see java/common/interop/RestartSteps.java.
type restart struct {
	round, topic, liveTopic string
	stored                  []*primitive.MessageExt
	live                    *sink
}

func restartSteps() []step {
	var all []step
	for _, round := range []string{"stop", "kill"} {
		r := &restart{round: round}
		all = append(all, step{"before " + round, "prepare", r.prepare},
			step{"after " + round, "live", r.afterLive},
			step{"after " + round, "messages", r.afterMessages},
			step{"after " + round, "offsets", r.afterOffsets})
	}
	return all
}

func (r *restart) prepare(e *env) string {
	r.topic = e.topic("re"+r.round, 5)
	e.send(r.topic, "m", 0, 50, 5)
	e.awaitStored(r.topic, 5, 50)
	r.stored = e.drain(r.topic, 5)
	a := e.sink("re"+r.round, r.topic, "*")
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("50 come, have ", a.count()) }, func() bool { return a.count() >= 50 })
	a.settle(e, r.topic, 5, 50)

	r.liveTopic = e.topic("relive"+r.round, 4)
	r.live = e.sink("relive"+r.round, r.liveTopic, "*")
	e.send(r.liveTopic, "early", 0, 20, 4)
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("20 come, have ", r.live.count()) }, func() bool { return r.live.count() >= 20 })
	return ""
}

// afterLive: producer and consumer, untouched, find the broker again.
func (r *restart) afterLive(e *env) string {
	for i := range 20 {
		var err error
		e.awaitf(40*time.Second, func() string { return fmt.Sprintf("message %d is sent: %v", i, err) }, func() bool {
			_, err = e.producer().SendSync(e.ctx, e.message(r.liveTopic, i%4, "later"+strconv.Itoa(i)))
			return err == nil
		})
	}
	want := numbered("later", 0, 20)
	begin := time.Now()
	e.awaitf(70*time.Second, func() string {
		return fmt.Sprint("the live consumer gets all, lacks ", missing(want, bodies(r.live.messages())))
	}, func() bool { return len(missing(want, bodies(r.live.messages()))) == 0 })
	must("shutdown", r.live.Shutdown())
	return fmt.Sprintf("after %v, %d doubled", time.Since(begin).Round(time.Millisecond), r.live.count()-40)
}

func (r *restart) afterMessages(e *env) string {
	now := e.drain(r.topic, 5)
	equal("number of messages", len(r.stored), len(now))
	for i, want := range r.stored {
		equal("body", string(want.Body), string(now[i].Body))
		equal("queue offset", want.QueueOffset, now[i].QueueOffset)
		equal("offset id", want.OffsetMsgId, now[i].OffsetMsgId)
		equal("message id", want.MsgId, now[i].MsgId)
	}
	for q, res := range e.send(r.topic, "n", 0, 5, 5) {
		equal("next offset of queue "+strconv.Itoa(q), int64(10), res.QueueOffset)
	}
	return ""
}

func (r *restart) afterOffsets(e *env) string {
	b := e.sink("re"+r.round, r.topic, "*")
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("5 come, have ", b.count()) }, func() bool { return b.count() >= 5 })
	time.Sleep(500 * time.Millisecond)
	must("shutdown", b.Shutdown())
	equal("only what is new", numbered("n", 0, 5), set(b.messages()))
	return ""
}
