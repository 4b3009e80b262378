package broker

import (
	"bytes"

	"github.com/ringmq/ringmq/message"
)

// sentProps is what one pass over a sent message's properties found, beside
// the string to store. The slices alias the properties that were scanned.
type sentProps struct {
	tags, uniqKey, keys []byte
	delay, tran, timer  []byte // values of DELAY, TRAN_MSG, and of the TIMER_* that says when
	innerNum            []byte // value of INNER_NUM
	noWait              bool   // WAIT=false: answered without waiting for disk or replica
	timerBy             timerBy
	timerOut            bool // it has TIMER_OUT_MS: it was a timer's already
	timerCancels        bool // it has TIMER_DEL_UNIQKEY
	real                bool // it has REAL_TOPIC or REAL_QID
}

// timerBy says which property asks for a time; where there are several, the
// higher one counts, as in Apache.
type timerBy uint8

const (
	byDeliverMs timerBy = iota + 1 // TIMER_DELIVER_MS, a time
	byDelayMs                      // TIMER_DELAY_MS
	byDelaySec                     // TIMER_DELAY_SEC
)

func (f *sentProps) noteTimer(by timerBy, value []byte) {
	if by >= f.timerBy {
		f.timerBy, f.timer = by, value
	}
}

// appendStoredProps appends to dst the property string that is stored for a
// sent message whose client gave props, and says what it met on the way.
//
// As AbstractSendMessageProcessor and MessageDecoder#string2messageProperties
// of 5.3: pairs are separated by 0x02, the first 0x01 in a pair ends its name;
// a pair without name or value is dropped; POP_CK never is stored; the broker
// sets MSG_REGION, TRACE_ON and CLUSTER (stamp), whatever the client said, and
// a UNIQ_KEY where there is none. Apache writes the pairs in the order of a
// hash map; here they keep the client's order.
//
// It allocates only when dst is too short. dst and props must not overlap.
func (b *Broker) appendStoredProps(dst, props []byte, found *sentProps) []byte {
	*found = sentProps{}
	for len(props) > 0 {
		pair := props
		if end := bytes.IndexByte(props, 2); end >= 0 {
			pair, props = props[:end], props[end+1:]
		} else {
			props = nil
		}
		sep := bytes.IndexByte(pair, 1)
		if sep < 1 || sep == len(pair)-1 {
			continue
		}
		value := pair[sep+1:]
		switch string(pair[:sep]) {
		case message.PropTags:
			found.tags = value
		case message.PropKeys:
			found.keys = value
		case message.PropUniqKey:
			found.uniqKey = value
		case message.PropWait:
			found.noWait = string(value) == "false"
		case message.PropDelay:
			found.delay = value
		case message.PropTransactionPrepared:
			found.tran = value
		case message.PropTimerDelaySec:
			found.noteTimer(byDelaySec, value)
		case message.PropTimerDelayMs:
			found.noteTimer(byDelayMs, value)
		case message.PropTimerDeliverMs:
			found.noteTimer(byDeliverMs, value)
		case message.PropTimerOutMs:
			found.timerOut = true
		case message.PropTimerDelUniqKey:
			found.timerCancels = true
		case message.PropRealTopic, message.PropRealQueueID:
			found.real = true
		case message.PropInnerNum:
			found.innerNum = value
		case message.PropPopCK, message.PropMsgRegion, message.PropTraceOn, message.PropCluster:
			continue
		}
		dst = append(dst, pair...)
		dst = append(dst, 2)
	}
	dst = append(dst, b.stamp...)
	if found.uniqKey == nil {
		dst = append(dst, message.PropUniqKey...)
		dst = append(dst, 1)
		start := len(dst)
		dst = b.ids.AppendTo(dst)
		found.uniqKey = dst[start:len(dst):len(dst)]
		dst = append(dst, 2)
	}
	return dst
}

// propsStamp is what the broker adds to every sent message's properties.
func propsStamp(region string, traceOn bool, cluster string) []byte {
	on := "false"
	if traceOn {
		on = "true"
	}
	p := message.AppendProperty(nil, message.PropMsgRegion, region)
	p = message.AppendProperty(p, message.PropTraceOn, on)
	return message.AppendProperty(p, message.PropCluster, cluster)
}
