package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
)

// Of this client only push consumers filter by SQL92: its pull consumers send every expression as tags.
var filterSteps = []step{
	{"steady", "filter.push", filterPush},
}

// sendNumbered sends what java/common/interop/FilterSteps.java sends: message i has a = i % 10 and every third color;
// each fifth has none of both.
func (e *env) sendNumbered(topic, word string, from, to, queues int) {
	for i := from; i < to; i++ {
		m := e.message(topic, i%queues, word+strconv.Itoa(i))
		if i%5 != 4 {
			m.WithProperty("a", strconv.Itoa(i%10))
			m.WithProperty("color", []string{"red", "blue", "green"}[i%3])
		}
		_, err := e.producer().SendSync(e.ctx, m)
		must("send", err)
	}
}

// matching is what of them has a BETWEEN 0 AND 3 AND color IN ('red','blue').
func matching(word string, from, to int) []string {
	var r []string
	for i := from; i < to; i++ {
		if i%5 != 4 && i%10 <= 3 && i%3 != 2 {
			r = append(r, word+strconv.Itoa(i))
		}
	}
	return r
}

func (e *env) sqlSink(group, topic, expression string) *sink {
	s := &sink{group: e.group(group), started: time.Now()}
	c, err := rocketmq.NewPushConsumer(e.consumerOptions(group)...)
	must("new push consumer", err)
	must("subscribe", c.Subscribe(topic, consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}, s.take))
	must("start push consumer", c.Start())
	s.PushConsumer = c
	return s
}

func filterPush(e *env) string {
	topic := e.topic("sqlpush", 4)
	some := e.sqlSink("sqlpush", topic, "a BETWEEN 0 AND 3 AND color IN ('red','blue')")
	lacking := e.sqlSink("sqlnull", topic, "color IS NULL")
	e.sendNumbered(topic, "m", 0, 100, 4)
	want := matching("m", 0, 100)
	e.awaitf(45*time.Second, func() string {
		return fmt.Sprintf("%d and 20 come, have %d and %d", len(want), some.count(), lacking.count())
	}, func() bool { return some.count() >= len(want) && lacking.count() >= 20 })
	time.Sleep(500 * time.Millisecond)
	equal("missing", []string{}, missing(want, bodies(some.messages())))
	equal("number of messages", len(want), some.count())
	equal("messages without color", 20, lacking.count())
	some.leave()
	lacking.leave()
	return fmt.Sprint(len(want), " messages")
}
