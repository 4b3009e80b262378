package message

import "bytes"

// Separators of a property string: name 0x01 value 0x02, repeated. The last
// 0x02 may be missing.
const (
	NameValueSeparator = byte(1)
	PropertySeparator  = byte(2)
)

// Names of properties, as RocketMQ's MessageConst has them.
const (
	PropKeys                    = "KEYS"
	PropTags                    = "TAGS"
	PropWait                    = "WAIT"
	PropDelay                   = "DELAY"
	PropRetryTopic              = "RETRY_TOPIC"
	PropRealTopic               = "REAL_TOPIC"
	PropRealQueueID             = "REAL_QID"
	PropTransactionPrepared     = "TRAN_MSG"
	PropProducerGroup           = "PGROUP"
	PropMinOffset               = "MIN_OFFSET"
	PropMaxOffset               = "MAX_OFFSET"
	PropBuyerID                 = "BUYER_ID"
	PropOriginMessageID         = "ORIGIN_MESSAGE_ID"
	PropTransferFlag            = "TRANSFER_FLAG"
	PropCorrectionFlag          = "CORRECTION_FLAG"
	PropMQ2Flag                 = "MQ2_FLAG"
	PropReconsumeTime           = "RECONSUME_TIME"
	PropMsgRegion               = "MSG_REGION"
	PropTraceOn                 = "TRACE_ON"
	PropUniqKey                 = "UNIQ_KEY"
	PropExtendUniqInfo          = "EXTEND_UNIQ_INFO"
	PropMaxReconsumeTimes       = "MAX_RECONSUME_TIMES"
	PropConsumeStartTime        = "CONSUME_START_TIME"
	PropInnerNum                = "INNER_NUM"
	PropInnerBase               = "INNER_BASE"
	PropDupInfo                 = "DUP_INFO"
	PropCheckImmunityTime       = "CHECK_IMMUNITY_TIME_IN_SECONDS"
	PropTranPreparedQueueOffset = "TRAN_PREPARED_QUEUE_OFFSET"
	PropTransactionID           = "__transactionId__"
	PropTransactionCheckTimes   = "TRANSACTION_CHECK_TIMES"
	PropInstanceID              = "INSTANCE_ID"
	PropCorrelationID           = "CORRELATION_ID"
	PropReplyToClient           = "REPLY_TO_CLIENT"
	PropTTL                     = "TTL"
	PropArriveTime              = "ARRIVE_TIME"
	PropPushReplyTime           = "PUSH_REPLY_TIME"
	PropCluster                 = "CLUSTER"
	PropMsgType                 = "MSG_TYPE"
	PropPopCK                   = "POP_CK"
	PropPopCKOffset             = "POP_CK_OFFSET"
	PropFirstPopTime            = "1ST_POP_TIME"
	PropShardingKey             = "__SHARDINGKEY"
	PropForwardQueueID          = "PROPERTY_FORWARD_QUEUE_ID"
	PropRedirect                = "REDIRECT"
	PropInnerMultiDispatch      = "INNER_MULTI_DISPATCH"
	PropInnerMultiQueueOffset   = "INNER_MULTI_QUEUE_OFFSET"
	PropTraceContext            = "TRACE_CONTEXT"
	PropTimerDelaySec           = "TIMER_DELAY_SEC"
	PropTimerDelayMs            = "TIMER_DELAY_MS"
	PropTimerDeliverMs          = "TIMER_DELIVER_MS"
	PropTimerEnqueueMs          = "TIMER_ENQUEUE_MS"
	PropTimerDequeueMs          = "TIMER_DEQUEUE_MS"
	PropTimerRollTimes          = "TIMER_ROLL_TIMES"
	PropTimerOutMs              = "TIMER_OUT_MS"
	PropTimerDelUniqKey         = "TIMER_DEL_UNIQKEY"
	PropTimerDelayLevel         = "TIMER_DELAY_LEVEL"
	PropBornHost                = "__BORNHOST"
	PropBornTimestamp           = "BORN_TIMESTAMP"
	PropCRC32                   = "__CRC32#"
	PropDLQOriginTopic          = "DLQ_ORIGIN_TOPIC"
	PropDLQOriginMessageID      = "DLQ_ORIGIN_MESSAGE_ID"
	PropTransientPrefix         = "__RMQ.TRANSIENT." // never stored
)

// NextProperty cuts the first pair off props: a step of EachProperty for callers
// that cannot afford a function value. ok is false for a piece that Java's
// MessageDecoder drops too: no separator, or an empty name or value. name, value
// and rest alias props.
func NextProperty(props []byte) (name, value, rest []byte, ok bool) {
	end := bytes.IndexByte(props, PropertySeparator)
	pair := props
	if end >= 0 {
		pair, rest = props[:end:end], props[end+1:]
	}
	sep := bytes.IndexByte(pair, NameValueSeparator)
	if sep <= 0 || sep == len(pair)-1 {
		return nil, nil, rest, false
	}
	return pair[:sep:sep], pair[sep+1:], rest, true
}

// EachProperty calls fn for each pair, in order, until fn returns false. A name
// may come twice: the last one counts, as in Java's map. name and value alias
// props. It does not allocate.
func EachProperty(props []byte, fn func(name, value []byte) bool) {
	for len(props) > 0 {
		name, value, rest, ok := NextProperty(props)
		if ok && !fn(name, value) {
			return
		}
		props = rest
	}
}

// Property returns the value of name (the last one); it aliases props. Reading
// several names costs one pass each: use EachProperty on the hot path.
func Property(props []byte, name string) (value []byte, ok bool) {
	for len(props) > 0 {
		n, v, rest, is := NextProperty(props)
		if is && string(n) == name {
			value, ok = v, true
		}
		props = rest
	}
	return value, ok
}

// AppendProperty appends one pair to the property string dst, closing dst's
// last pair first where its separator is missing. An empty value is not
// appended: no reader would see it.
func AppendProperty(dst []byte, name, value string) []byte {
	if name == "" || value == "" {
		return dst
	}
	dst = closeProperties(dst)
	dst = append(dst, name...)
	dst = append(dst, NameValueSeparator)
	dst = append(dst, value...)
	return append(dst, PropertySeparator)
}

// AppendPropertyBytes is AppendProperty for a value in bytes.
func AppendPropertyBytes(dst []byte, name string, value []byte) []byte {
	if name == "" || len(value) == 0 {
		return dst
	}
	dst = closeProperties(dst)
	dst = append(dst, name...)
	dst = append(dst, NameValueSeparator)
	dst = append(dst, value...)
	return append(dst, PropertySeparator)
}

func closeProperties(dst []byte) []byte {
	if n := len(dst); n > 0 && dst[n-1] != PropertySeparator {
		dst = append(dst, PropertySeparator)
	}
	return dst
}

// DeleteProperty appends props without any pair called name to dst. Pieces that
// are no pairs are dropped. dst and props must not overlap, except that dst may
// be props[:0].
func DeleteProperty(dst, props []byte, name string) []byte {
	for len(props) > 0 {
		n, v, rest, ok := NextProperty(props)
		if ok && string(n) != name {
			dst = append(dst, n...)
			dst = append(dst, NameValueSeparator)
			dst = append(dst, v...)
			dst = append(dst, PropertySeparator)
		}
		props = rest
	}
	return dst
}

// EachKey calls fn with every key a record is found by: its UNIQ_KEY, then each
// of its KEYS, which stand apart by spaces. The slices alias rec. It does not
// allocate.
func EachKey(rec []byte, fn func(key []byte)) {
	var uniq, keys []byte
	EachProperty(PropertiesOf(rec), func(name, value []byte) bool {
		switch string(name) {
		case PropUniqKey:
			uniq = value
		case PropKeys:
			keys = value
		}
		return true
	})
	if len(uniq) > 0 {
		fn(uniq)
	}
	for len(keys) > 0 {
		key := keys
		if i := bytes.IndexByte(keys, ' '); i >= 0 {
			key, keys = keys[:i], keys[i+1:]
		} else {
			keys = nil
		}
		if len(key) > 0 {
			fn(key)
		}
	}
}
