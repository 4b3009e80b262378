package main

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/ringmq/ringmq/interop"
)

// failure is what a check panics with; runStep turns it into the step's result.
type failure string

// env is the cluster, and the makers of clients and the checks that every step uses. Steps may share it.
type env struct {
	ctx                                          context.Context
	namesrv, broker, brokerName, cluster, prefix string
	shared                                       *shared
}

// shared is what all steps of the process use together.
type shared struct {
	instances atomic.Int64
	mu        sync.Mutex
	producer  rocketmq.Producer
}

func newEnv(namesrv, broker, brokerName, cluster, prefix string) *env {
	return &env{namesrv: namesrv, broker: broker, brokerName: brokerName, cluster: cluster, prefix: prefix,
		shared: &shared{}}
}

func (e *env) with(ctx context.Context) *env {
	c := *e
	c.ctx = ctx
	return &c
}

// ---- makers of clients

func (e *env) instance() string {
	return e.prefix + "-" + strconv.FormatInt(e.shared.instances.Add(1), 10)
}

func (e *env) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{e.namesrv})
}

// newProducer starts a producer whose messages go to the queue they name, unless an option says otherwise.
func (e *env) newProducer(group string, opts ...producer.Option) rocketmq.Producer {
	opts = append([]producer.Option{producer.WithNsResolver(e.resolver()), producer.WithInstanceName(e.instance()),
		producer.WithGroupName(e.prefix + "_p_" + group), producer.WithSendMsgTimeout(10 * time.Second),
		producer.WithQueueSelector(producer.NewManualQueueSelector())}, opts...)
	p, err := rocketmq.NewProducer(opts...)
	must("new producer", err)
	must("start producer", p.Start())
	return p
}

func (e *env) producer() rocketmq.Producer {
	e.shared.mu.Lock()
	defer e.shared.mu.Unlock()
	if e.shared.producer == nil {
		e.shared.producer = e.newProducer("shared")
	}
	return e.shared.producer
}

func (e *env) group(name string) string { return e.prefix + "_g_" + name }

func (e *env) consumerOptions(group string, opts ...consumer.Option) []consumer.Option {
	return append([]consumer.Option{consumer.WithNsResolver(e.resolver()), consumer.WithInstance(e.instance()),
		consumer.WithGroupName(e.group(group)), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, opts...)
}

// handler is a push consumer's function.
type handler = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func (e *env) push(group, topic, tags string, f handler, opts ...consumer.Option) rocketmq.PushConsumer {
	c, err := rocketmq.NewPushConsumer(e.consumerOptions(group, opts...)...)
	must("new push consumer", err)
	must("subscribe", c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags}, f))
	must("start push consumer", c.Start())
	return c
}

// puller starts a pull consumer for pulls by offset: it is assigned no queue, so that it pulls nothing by itself.
func (e *env) puller(group, topic string) rocketmq.PullConsumer {
	c, err := rocketmq.NewPullConsumer(e.consumerOptions(group)...)
	must("new pull consumer", err)
	must("assign", c.Assign(topic, nil))
	must("start pull consumer", c.Start())
	return c
}

// sink accepts everything and remembers what came.
type sink struct {
	rocketmq.PushConsumer
	group   string // as env names it
	started time.Time
	mu      sync.Mutex
	got     []*primitive.MessageExt
}

func (e *env) sink(group, topic, tags string, opts ...consumer.Option) *sink {
	s := &sink{group: e.group(group), started: time.Now()}
	s.PushConsumer = e.push(group, topic, tags, s.take, opts...)
	return s
}

func (s *sink) take(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, ms...)
	return consumer.ConsumeSuccess, nil
}

func (s *sink) messages() []*primitive.MessageExt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *sink) count() int { return len(s.messages()) }

// settle ends a consumer whose group goes on, once the broker has its offsets: they add up to n.
func (s *sink) settle(e *env, topic string, queues int, n int64) {
	persister := s.PushConsumer.(interface{ PersistConsumerOffset() error }) // what the client calls every 5 s
	e.awaitCommitted(topic, queues, s.group, n, persister.PersistConsumerOffset)
	s.leave()
}

// leave ends a consumer whose group goes on, a little after its function has returned for the last message: only then
// does the client count it as consumed, and it does not show when. It also keeps clear of the client's first own
// heartbeat, a second after its start: this client leaves by closing its connection, and one that closes while that
// heartbeat is under way stays a member of the group, at Apache's broker, for two minutes.
func (s *sink) leave() {
	time.Sleep(max(500*time.Millisecond, 2*time.Second-time.Since(s.started)))
	must("shutdown", s.Shutdown())
}

func (s *sink) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = nil
}

func (s *sink) queues() int {
	set := map[int]bool{}
	for _, m := range s.messages() {
		set[m.Queue.QueueId] = true
	}
	return len(set)
}

// ---- topics and messages

func (e *env) topicName(name string) string { return e.prefix + "_t_" + name }

// topic creates a topic as mqadmin updateTopic does and waits until its route can be had.
func (e *env) topic(name string, queues int) string {
	topic := e.topicName(name)
	must("create topic", interop.CreateTopic(e.ctx, e.broker, topic, queues))
	e.await(15*time.Second, topic+" has a route", func() bool { return interop.HasRoute(e.ctx, e.namesrv, topic) == nil })
	return topic
}

func (e *env) queue(topic string, id int) *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: topic, BrokerName: e.brokerName, QueueId: id}
}

func (e *env) message(topic string, id int, body string) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(body))
	m.Queue = e.queue(topic, id)
	return m
}

// send sends word+from .. word+(to-1), each to the queue that the number falls on.
func (e *env) send(topic, word string, from, to, queues int) []*primitive.SendResult {
	var rs []*primitive.SendResult
	for i := from; i < to; i++ {
		r, err := e.producer().SendSync(e.ctx, e.message(topic, i%queues, word+strconv.Itoa(i)))
		must("send", err)
		equal("send status", primitive.SendOK, r.Status)
		rs = append(rs, r)
	}
	return rs
}

// offset asks one of the offset requests over a raw connection: 30 max, 31 min, 14 a group's committed offset.
func (e *env) offset(code int, topic string, queue int, group string) int64 {
	f, err := interop.Ask(e.ctx, e.broker, code,
		map[string]string{"topic": topic, "queueId": strconv.Itoa(queue), "consumerGroup": group}, nil)
	must("offset request", err)
	if f.Code != 0 {
		return -int64(f.Code)
	}
	n, err := strconv.ParseInt(f.ExtFields["offset"], 10, 64)
	must("offset", err)
	return n
}

// awaitStored waits until the queues of the topic hold n messages.
func (e *env) awaitStored(topic string, queues int, n int64) {
	var sum int64
	e.await(20*time.Second, fmt.Sprintf("%s holds %d messages", topic, n), func() bool {
		sum = 0
		for q := range queues {
			sum += e.offset(30, topic, q, "")
		}
		return sum >= n
	})
	equal("messages in "+topic, n, sum)
}

// awaitCommitted has a consumer send its offsets until those the broker knows add up to n. Once is not enough: of a
// group's first offsets that arrive together Apache's broker may lose some (ConsumerOffsetManager#commitOffset makes the
// group's table in two steps, on several threads).
func (e *env) awaitCommitted(topic string, queues int, group string, n int64, commit func() error) {
	var sum int64
	e.awaitf(20*time.Second, func() string { return fmt.Sprintf("committed offsets add up to %d, have %d", n, sum) }, func() bool {
		must("commit", commit())
		sum = 0
		for q := range queues {
			sum += max(0, e.offset(14, topic, q, group))
		}
		return sum == n
	})
}

// drain pulls everything in the topic through the Go client.
func (e *env) drain(topic string, queues int) []*primitive.MessageExt {
	e.await(15*time.Second, topic+" has a route", func() bool { return interop.HasRoute(e.ctx, e.namesrv, topic) == nil })
	c := e.puller("drain"+e.instance(), topic)
	defer c.Shutdown()
	var all []*primitive.MessageExt
	for q := range queues {
		max := e.offset(30, topic, q, "")
		for at := int64(0); at < max; {
			r, err := c.PullFrom(e.ctx, e.queue(topic, q), at, 32)
			must("pull", err)
			equal("pull status", primitive.PullFound, r.Status)
			check(r.NextBeginOffset > at, "nextBeginOffset %d does not pass %d", r.NextBeginOffset, at)
			all = append(all, r.GetMessageExts()...)
			at = r.NextBeginOffset
		}
	}
	return all
}

func bodies(ms []*primitive.MessageExt) []string {
	var r []string
	for _, m := range ms {
		r = append(r, string(m.Body))
	}
	return r
}

// set is the sorted bodies, each once.
func set(ms []*primitive.MessageExt) []string {
	r := bodies(ms)
	slices.Sort(r)
	return slices.Compact(r)
}

func numbered(word string, from, to int) []string {
	var r []string
	for i := from; i < to; i++ {
		r = append(r, word+strconv.Itoa(i))
	}
	slices.Sort(r)
	return r
}

// missing is what of want is not in got.
func missing(want, got []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(got, s) })
}

// ---- checks

func fail(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	var at []string
	for i := 1; i < 8; i++ { // the caller's line, past the checks of this file
		if _, file, line, ok := runtime.Caller(i); ok && strings.HasSuffix(filepath.Dir(file), "goclient") &&
			filepath.Base(file) != "env.go" && filepath.Base(file) != "main.go" {
			at = append(at, fmt.Sprintf("%s:%d", filepath.Base(file), line))
		}
	}
	if len(at) > 0 {
		msg += " at " + at[0]
	}
	panic(failure(msg))
}

func check(ok bool, format string, args ...any) {
	if !ok {
		fail(format, args...)
	}
}

func must(what string, err error) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func equal(what string, want, got any) {
	if !reflect.DeepEqual(want, got) {
		fail("%s: want %.600v, got %.600v", what, want, got)
	}
}

func (e *env) await(patience time.Duration, what string, ok func() bool) {
	e.awaitf(patience, func() string { return what }, ok)
}

func (e *env) awaitf(patience time.Duration, what func() string, ok func() bool) {
	end := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(end) || e.ctx.Err() != nil {
			fail("after %v not so: %s", patience, what())
		}
		time.Sleep(30 * time.Millisecond)
	}
}
