//go:build linux

package bench

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// opaqueBase makes every opaque ten digits wide, so that it can be patched.
const opaqueBase = 1_000_000_000

// Marks at the ends of a body, behind the 16 digits of its time and at its end.
const (
	bodyHead     = "ringmq-b"
	bodyTail     = "b-qmgnir"
	bodyTimeLen  = 16
	bodyBytesMin = bodyTimeLen + len(bodyHead) + len(bodyTail)
)

// sendFrames holds one encoded send request a queue. Frames differ in a few
// digits of fixed width, which frame patches.
type sendFrames struct {
	byQueue [][]byte
	at      []patches
	unique  uint64 // the next UNIQ_KEY's last 48 bits
}

// patches is where the digits stand in one frame.
type patches struct{ opaque, born, key, body int }

// newSendFrames encodes SEND_MESSAGE_V2 as a Java 5.3 producer writes it: the
// usual set of ext fields, a property string of about 120 bytes.
func newSendFrames(topic, broker string, queues, bodyBytes int) (*sendFrames, error) {
	if bodyBytes < bodyBytesMin {
		return nil, fmt.Errorf("bench: bodies of %d bytes: want at least %d", bodyBytes, bodyBytesMin)
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), bodyBytes/16+1)[:bodyBytes]
	copy(body[bodyTimeLen:], bodyHead)
	copy(body[bodyBytes-len(bodyTail):], bodyTail)
	const key, born = "7F000001C0DE18B4AAC2", "1000000000000"
	f := &sendFrames{unique: uint64(time.Now().UnixNano()) >> 10}
	for q := range queues {
		var props []byte
		props = message.AppendProperty(props, message.PropUniqKey, key+"000000000000")
		props = message.AppendProperty(props, "source", "load-generator/host-01/v1")
		props = message.AppendProperty(props, "tenant", "tenant-000042-x")
		props = message.AppendProperty(props, message.PropWait, "true")
		props = message.AppendProperty(props, message.PropTags, "TagA")
		h := remoting.SendHeader{ProducerGroup: []byte("bench_producer"), Topic: []byte(topic), DefaultTopic: []byte("TBW102"),
			DefaultTopicQueueNums: 4, QueueID: int32(q), BornMillis: 1000000000000, Properties: props, MaxReconsumeTimes: -1, BrokerName: []byte(broker)}
		c := h.Command(remoting.ReqSendMessageV2, body)
		c.Language, c.Opaque = remoting.LanguageJava, opaqueBase
		b := remoting.Append(nil, c)
		at := patches{body: len(b) - bodyBytes, born: bytes.Index(b, []byte(born)), key: bytes.Index(b, []byte(key)) + len(key),
			opaque: bytes.Index(b, []byte(`"opaque":`)) + len(`"opaque":`)}
		f.byQueue = append(f.byQueue, b)
		f.at = append(f.at, at)
	}
	return f, nil
}

// append appends a send to queue q with the given opaque, born time and the time
// (nanoseconds) its body carries.
func (f *sendFrames) append(dst []byte, q int, slot int32, bornMillis, bodyTime int64) []byte {
	at, n := &f.at[q], len(dst)
	dst = append(dst, f.byQueue[q]...)
	b := dst[n:]
	decimal(b[at.opaque:at.opaque+10], uint64(opaqueBase+slot))
	decimal(b[at.born:at.born+13], uint64(bornMillis))
	hexadecimal(b[at.key:at.key+12], f.unique)
	hexadecimal(b[at.body:at.body+bodyTimeLen], uint64(bodyTime))
	f.unique++
	return dst
}

func decimal(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
}

func hexadecimal(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789ABCDEF"[v&15]
		v >>= 4
	}
}

// parseHex reads the time of a body.
func parseHex(b []byte) (v int64) {
	for _, c := range b {
		d := int64(c - '0')
		if c >= 'A' {
			d = int64(c-'A') + 10
		}
		v = v<<4 | d
	}
	return v
}

// pullFrame is an encoded PULL_MESSAGE, cut where the digits that change stand:
// only the queue offset has no fixed width.
type pullFrame struct{ head, tail []byte }

// newPullFrame encodes a pull as a Java consumer writes it; hold is how long the
// broker may hold it, 0 not at all.
func newPullFrame(group, topic, broker string, queue int32, maxMsgs int, hold time.Duration) *pullFrame {
	h := remoting.PullHeader{ConsumerGroup: []byte(group), Topic: []byte(topic), QueueID: queue, QueueOffset: 987654321012345678,
		MaxMsgNums: int32(maxMsgs), SysFlag: remoting.PullSubscription, SuspendMillis: hold.Milliseconds(), Subscription: []byte("*"),
		ExpressionType: []byte("TAG"), BrokerName: []byte(broker)}
	if hold > 0 {
		h.SysFlag |= remoting.PullSuspend
	}
	c := h.Command(remoting.ReqPullMessage)
	c.Language, c.Opaque = remoting.LanguageJava, opaqueBase
	head, tail, _ := bytes.Cut(remoting.Append(nil, c), []byte("987654321012345678"))
	return &pullFrame{head: head, tail: tail}
}

func (f *pullFrame) append(dst []byte, slot int32, offset int64) []byte {
	n := len(dst)
	dst = append(dst, f.head...)
	dst = remoting.AppendInt(dst, offset)
	at := len(dst)
	dst = append(dst, f.tail...)
	opaque := at + bytes.Index(f.tail, []byte(`"opaque":`)) + len(`"opaque":`)
	decimal(dst[opaque:opaque+10], uint64(opaqueBase+slot))
	size := uint32(len(dst) - n)
	for i := range 4 {
		dst[n+i] = byte((size - 4) >> (24 - 8*i))
		dst[n+4+i] = byte((size - 8) >> (24 - 8*i)) // no body; the high byte stays 0: JSON
	}
	return dst
}

// answer looks for the two fields that matter in an answer: opaque, less its
// base, and code. Answers of the usual shape are not decoded.
func answer(f []byte, c *remoting.Command) (slot int32, code remoting.ResponseCode, err error) {
	const success, opaque = `{"code":0,`, `"opaque":`
	h := f[8:]
	if f[4] == 0 && len(h) > len(success) && string(h[:len(success)]) == success {
		h = h[:min(len(h), int(f[5])<<16|int(f[6])<<8|int(f[7]))]
		if i := bytes.Index(h, []byte(opaque)); i >= 0 && i+len(opaque)+10 < len(h) {
			if n, err := remoting.ParseInt32(h[i+len(opaque) : i+len(opaque)+10]); err == nil {
				return n - opaqueBase, remoting.Success, nil
			}
		}
	}
	if err := remoting.Decode(f, c); err != nil {
		return 0, 0, err
	}
	if !c.IsResponse() {
		return 0, 0, fmt.Errorf("got request %s, want an answer", remoting.RequestCode(c.Code).Name())
	}
	return c.Opaque - opaqueBase, remoting.ResponseCode(c.Code), nil
}

// eachRecord walks the records of a pull's body and checks that each is whole and
// carries a body of ours; fn gets the time its sender put in.
func eachRecord(body []byte, bodyBytes int, fn func(sentAt int64)) (n int, err error) {
	for len(body) > 0 {
		if len(body) < message.MinBytes {
			return n, fmt.Errorf("record %d is cut: %d bytes left", n, len(body))
		}
		size := int(message.Size(body))
		if m := message.Magic(body); (m != message.MagicV1 && m != message.MagicV2) || size < message.MinBytes || size > len(body) {
			return n, fmt.Errorf("record %d: magic %x, size %d, %d bytes left", n, m, size, len(body))
		}
		b := message.BodyOf(body[:size])
		if len(b) != bodyBytes || string(b[bodyTimeLen:bodyTimeLen+len(bodyHead)]) != bodyHead || string(b[len(b)-len(bodyTail):]) != bodyTail {
			return n, fmt.Errorf("record %d: body of %d bytes is not what was sent (%d bytes)", n, len(b), bodyBytes)
		}
		fn(parseHex(b[:bodyTimeLen]))
		n++
		body = body[size:]
	}
	return n, nil
}

// firstLine is a remark's first line, for messages to people.
func firstLine(remark []byte) string {
	line, _, _ := strings.Cut(string(remark), "\n")
	return line
}
