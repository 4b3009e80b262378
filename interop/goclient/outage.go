package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/ringmq/ringmq/interop"
)

// outage: the NameServer goes away and comes back, empty; see java/common/interop/OutageSteps.java.
type outage struct {
	topic string
	live  *sink
}

func outageSteps() []step {
	o := &outage{}
	return []step{{"before outage", "prepare", o.prepare}, {"during outage", "carryon", o.during},
		{"after outage", "routes", o.after}}
}

func (o *outage) prepare(e *env) string {
	o.topic = e.topic("outage", 4)
	o.live = e.sink("outage", o.topic, "*")
	e.send(o.topic, "before", 0, 8, 4)
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("8 come, have ", o.live.count()) }, func() bool { return o.live.count() >= 8 })
	return ""
}

func (o *outage) sendAndGet(e *env, word string) {
	for i := range 40 {
		_, err := e.producer().SendSync(e.ctx, e.message(o.topic, i%4, word+strconv.Itoa(i)))
		must("send", err)
		time.Sleep(50 * time.Millisecond)
	}
	want := numbered(word, 0, 40)
	e.awaitf(45*time.Second, func() string {
		return fmt.Sprint("all are consumed, missing ", missing(want, bodies(o.live.messages())))
	},
		func() bool { return len(missing(want, bodies(o.live.messages()))) == 0 })
}

func (o *outage) during(e *env) string {
	o.sendAndGet(e, "during")
	return ""
}

func (o *outage) after(e *env) string {
	e.await(40*time.Second, "the topic has a route again", func() bool { return interop.HasRoute(e.ctx, e.namesrv, o.topic) == nil })
	o.sendAndGet(e, "after")
	must("shutdown", o.live.Shutdown())
	return ""
}
