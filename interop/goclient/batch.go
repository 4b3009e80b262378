package main

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/ringmq/ringmq/interop"
)

var batchSteps = []step{
	{"steady", "batchcq", batchQueue},
}

// batchQueue uses a topic with queue.type=BatchCQ. The Go client's own batches have no unique key and become a record
// each; a batch that the topic keeps as one record, as Java's 5.3 sends it, comes to this client packed, at Apache's
// broker too.
func batchQueue(e *env) string {
	topic := e.topicName("bcq")
	must("create topic", interop.CreateBatchTopic(e.ctx, e.broker, topic, 1))
	e.await(15*time.Second, topic+" has a route", func() bool { return interop.HasRoute(e.ctx, e.namesrv, topic) == nil })
	s := e.sink("bcq", topic, "*")
	send := func(want int64, bodies ...string) {
		var ms []*primitive.Message
		for _, b := range bodies {
			ms = append(ms, e.message(topic, 0, b))
		}
		r, err := e.producer().SendSync(e.ctx, ms...)
		must("send", err)
		equal("send status", primitive.SendOK, r.Status)
		equal("queue offset", want, r.QueueOffset)
		equal("offset ids", len(bodies), len(strings.Split(r.OffsetMsgID, ",")))
	}
	send(0, "m0", "m1", "m2")
	packed := batchOf("m3", "m4")
	f, err := interop.Ask(e.ctx, e.broker, 320, map[string]string{"a": "raw", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0",
		"g": "1700000000000", "h": "0", "i": "UNIQ_KEY\x01bcq" + e.prefix, "j": "0", "k": "false", "m": "true"}, packed)
	must("send a batch to be kept as one", err)
	equal("code", 0, f.Code)
	equal("queue offset", "3", f.ExtFields["queueOffset"])
	equal("batchUniqId", "bcq"+e.prefix, f.ExtFields["batchUniqId"])
	send(5, "m5")
	e.awaitStored(topic, 1, 6)
	want := []string{"m0", "m1", "m2", string(packed), "m5"}
	equal("pulled", want, bodies(e.drain(topic, 1)))
	e.await(45*time.Second, "5 records are pushed", func() bool { return s.count() >= len(want) })
	time.Sleep(300 * time.Millisecond)
	equal("pushed", 0, len(missing(want, bodies(s.messages())))+s.count()-len(want))
	s.leave()
	return strconv.Itoa(len(want)) + " records"
}

// batchOf is the body of a batch of messages without properties.
func batchOf(bodies ...string) (b []byte) {
	for _, body := range bodies {
		b = binary.BigEndian.AppendUint32(b, uint32(22+len(body)))
		b = binary.BigEndian.AppendUint64(b, 0) // magic, CRC
		b = binary.BigEndian.AppendUint32(b, 0) // flag
		b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
		b = append(b, body...)
		b = binary.BigEndian.AppendUint16(b, 0) // properties
	}
	return b
}
