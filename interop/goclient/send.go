package main

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var topicSteps = []step{
	{"steady", "topic.admin", topicAdmin},
	{"steady", "topic.firstsend", topicFirstSend},
}

func topicAdmin(e *env) string {
	a, err := admin.NewAdmin(admin.WithResolver(e.resolver()))
	must("new admin", err)
	topic := e.topicName("admin")
	must("create topic", a.CreateTopic(e.ctx, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(e.broker),
		admin.WithReadQueueNums(3), admin.WithWriteQueueNums(3)))
	var queues []*primitive.MessageQueue
	e.await(15*time.Second, topic+" has 3 queues", func() bool {
		queues, err = a.FetchPublishMessageQueues(e.ctx, topic)
		return err == nil && len(queues) == 3
	})
	equal("broker of queue 0", e.brokerName, queues[0].BrokerName)
	list, err := a.FetchAllTopicList(e.ctx)
	must("all topics", err)
	check(slices.Contains(list.TopicList, topic), "the list of all topics lacks %s", topic)
	return fmt.Sprint(len(list.TopicList), " topics")
}

func topicFirstSend(e *env) string {
	topic := e.topicName("firstsend")
	p := e.newProducer("firstsend", producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	defer p.Shutdown()
	r, err := p.SendSync(e.ctx, primitive.NewMessage(topic, []byte("first")))
	must("send", err)
	equal("send status", primitive.SendOK, r.Status)
	e.awaitStored(topic, 4, 1)
	e.await(15*time.Second, "the topic has a route", func() bool { return len(e.drain(topic, 4)) == 1 })
	equal("body", []string{"first"}, bodies(e.drain(topic, 4)))
	return ""
}

var sendSteps = []step{
	{"steady", "send.sync", sendSync},
	{"steady", "send.fields", sendFields},
	{"steady", "send.async", sendAsync},
	{"steady", "send.oneway", sendOneway},
	{"steady", "send.batch", sendBatch},
	{"steady", "send.hash", sendHash},
	{"steady", "send.compressed", sendCompressed},
	{"steady", "send.large", sendLarge},
}

func sendSync(e *env) string {
	topic := e.topic("sync", 4)
	p := e.newProducer("sync", producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	defer p.Shutdown()
	next := make([]int64, 4)
	for i := range 40 {
		r, err := p.SendSync(e.ctx, primitive.NewMessage(topic, []byte("m"+strconv.Itoa(i))))
		must("send", err)
		equal("send status", primitive.SendOK, r.Status)
		q := r.MessageQueue.QueueId
		equal("queue offset", next[q], r.QueueOffset)
		next[q]++
		check(len(r.OffsetMsgID) == 32, "offset id %q", r.OffsetMsgID)
		equal("region", "DefaultRegion", r.RegionID)
	}
	equal("messages a queue", []int64{10, 10, 10, 10}, next)
	e.awaitStored(topic, 4, 40)
	equal("bodies", numbered("m", 0, 40), set(e.drain(topic, 4)))
	return ""
}

func sendFields(e *env) string {
	topic := e.topic("fields", 2)
	m := e.message(topic, 1, "你好, 🚀").WithTag("tagA").WithKeys([]string{"key1", "key2"})
	m.WithProperty("colour", "blå")
	m.Flag = 77
	before := time.Now().UnixMilli()
	r, err := e.producer().SendSync(e.ctx, m)
	must("send", err)
	e.awaitStored(topic, 2, 1)
	got := e.drain(topic, 2)
	equal("messages", 1, len(got))
	x := got[0]
	equal("body", "你好, 🚀", string(x.Body))
	equal("topic", topic, x.Topic)
	equal("tags", "tagA", x.GetTags())
	equal("keys", "key1 key2", strings.TrimSpace(x.GetKeys()))
	equal("flag", int32(77), x.Flag)
	equal("property", "blå", x.GetProperty("colour"))
	equal("queue", 1, x.Queue.QueueId)
	equal("queue offset", r.QueueOffset, x.QueueOffset)
	equal("message id", r.MsgID, x.MsgId)
	equal("offset id", r.OffsetMsgID, x.OffsetMsgId)
	equal("cluster", e.cluster, x.GetProperty("CLUSTER"))
	equal("store host", e.broker, x.StoreHost)
	check(strings.HasPrefix(x.BornHost, "127.0.0.1:"), "born host %s", x.BornHost)
	check(x.StoreTimestamp >= before-5 && x.BornTimestamp >= before-5, "born %d, stored %d, sent after %d",
		x.BornTimestamp, x.StoreTimestamp, before)
	return ""
}

func sendAsync(e *env) string {
	const n = 300
	topic := e.topic("async", 4)
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed []error
		places = map[string]bool{}
	)
	for i := range n {
		wg.Add(1)
		err := e.producer().SendAsync(e.ctx, func(_ context.Context, r *primitive.SendResult, err error) {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return
			}
			places[fmt.Sprint(r.MessageQueue.QueueId, "@", r.QueueOffset)] = true
		}, e.message(topic, i%4, "m"+strconv.Itoa(i)))
		must("send", err)
	}
	wg.Wait()
	check(len(failed) == 0, "%d failed: %.300v", len(failed), failed)
	equal("distinct places", n, len(places))
	e.awaitStored(topic, 4, n)
	equal("bodies", numbered("m", 0, n), set(e.drain(topic, 4)))
	return ""
}

func sendOneway(e *env) string {
	topic := e.topic("oneway", 4)
	for i := range 100 {
		must("send", e.producer().SendOneWay(e.ctx, e.message(topic, i%4, "m"+strconv.Itoa(i))))
	}
	e.awaitStored(topic, 4, 100)
	equal("bodies", numbered("m", 0, 100), set(e.drain(topic, 4)))
	return ""
}

func sendBatch(e *env) string {
	topic := e.topic("batch", 2)
	for round := range 3 {
		var ms []*primitive.Message
		for i := range 10 {
			m := e.message(topic, 1, "m"+strconv.Itoa(round*10+i)).WithTag("t" + strconv.Itoa(i))
			m.WithProperty("n", strconv.Itoa(i))
			ms = append(ms, m)
		}
		r, err := e.producer().SendSync(e.ctx, ms...)
		must("send", err)
		equal("send status", primitive.SendOK, r.Status)
		equal("first queue offset", int64(round*10), r.QueueOffset)
		equal("offset ids", 10, len(strings.Split(r.OffsetMsgID, ",")))
	}
	e.awaitStored(topic, 2, 30)
	got := e.drain(topic, 2)
	for i, x := range got {
		equal("queue offset", int64(i), x.QueueOffset)
		equal("body", "m"+strconv.Itoa(i), string(x.Body))
		equal("tags", "t"+strconv.Itoa(i%10), x.GetTags())
		equal("property", strconv.Itoa(i%10), x.GetProperty("n"))
	}
	return ""
}

// sendHash sends with the selector that keeps one sharding key in one queue.
func sendHash(e *env) string {
	topic := e.topic("hash", 4)
	p := e.newProducer("hash", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	defer p.Shutdown()
	place := map[string]int{}
	for i := range 40 {
		key := "order" + strconv.Itoa(i%8)
		r, err := p.SendSync(e.ctx, primitive.NewMessage(topic, []byte("m"+strconv.Itoa(i))).WithShardingKey(key))
		must("send", err)
		if q, ok := place[key]; ok {
			equal("queue of "+key, q, r.MessageQueue.QueueId)
		}
		place[key] = r.MessageQueue.QueueId
	}
	e.awaitStored(topic, 4, 40)
	return ""
}

func sendCompressed(e *env) string {
	topic := e.topic("compressed", 1)
	body := strings.Repeat("a line of a text that packs well\n", 1500)
	r, err := e.producer().SendSync(e.ctx, e.message(topic, 0, body))
	must("send", err)
	equal("send status", primitive.SendOK, r.Status)
	e.awaitStored(topic, 1, 1)
	got := e.drain(topic, 1)
	check(string(got[0].Body) == body, "the body came back changed, %d bytes of %d", len(got[0].Body), len(body))
	check(got[0].StoreSize < 5000, "stored in %d bytes", got[0].StoreSize)
	return fmt.Sprint("stored in ", got[0].StoreSize, " bytes")
}

// sendLarge sends the largest body that is allowed, 4 MiB to the byte.
func sendLarge(e *env) string {
	topic := e.topic("large", 1)
	p := e.newProducer("large", producer.WithCompressMsgBodyOverHowmuch(1<<30))
	defer p.Shutdown()
	body := make([]byte, 4<<20)
	rand.New(rand.NewSource(7)).Read(body)
	m := e.message(topic, 0, "")
	m.Body = body
	r, err := p.SendSync(e.ctx, m)
	must("send", err)
	equal("send status", primitive.SendOK, r.Status)
	e.awaitStored(topic, 1, 1)
	check(slices.Equal(e.drain(topic, 1)[0].Body, body), "the body came back changed")
	return ""
}

var errorSteps = []step{
	{"steady", "error.large", errorLarge},
	{"steady", "error.properties", errorProperties},
	{"steady", "error.names", errorNames},
}

// refused wants the error text with the code that the Go client makes of an answer.
func refused(what string, code int, err error) {
	check(err != nil, "%s was not refused", what)
	check(strings.Contains(err.Error(), fmt.Sprintf("CODE: %d", code)), "%s: want code %d, got %v", what, code, err)
}

func errorLarge(e *env) string {
	topic := e.topic("errlarge", 1)
	p := e.newProducer("errlarge", producer.WithCompressMsgBodyOverHowmuch(1<<30), producer.WithRetry(0))
	defer p.Shutdown()
	m := e.message(topic, 0, "")
	m.Body = make([]byte, 4<<20+1)
	_, err := p.SendSync(e.ctx, m)
	refused("a body of 4 MiB and one byte", 13, err)
	e.send(topic, "m", 0, 1, 1)
	e.awaitStored(topic, 1, 1)
	return ""
}

func errorProperties(e *env) string {
	topic := e.topic("errprops", 1)
	m := e.message(topic, 0, "x")
	m.WithProperty("p", strings.Repeat("v", 33_000))
	_, err := e.producer().SendSync(e.ctx, m)
	refused("33,000 bytes of properties", 13, err)
	e.send(topic, "m", 0, 1, 1)
	e.awaitStored(topic, 1, 1)
	return ""
}

// errorNames sends to a topic whose name is not allowed; the Go client does not look at it, the broker does.
func errorNames(e *env) string {
	for _, bad := range []string{"bad topic", "bad.topic", "../escape", strings.Repeat("x", 128)} {
		p := e.newProducer("errnames", producer.WithRetry(0),
			producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
		_, err := p.SendSync(e.ctx, primitive.NewMessage(bad, []byte("x")))
		refused("topic "+bad, 29, err)
		p.Shutdown()
	}
	return ""
}
