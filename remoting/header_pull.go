package remoting

// Bits of PullHeader.SysFlag.
const (
	PullCommitOffset = int32(1)  // CommitOffset is to be stored
	PullSuspend      = int32(2)  // the request may be held
	PullSubscription = int32(4)  // Subscription is in this request
	PullClassFilter  = int32(8)  // obsolete
	PullLite         = int32(16) // a lite pull consumer
)

// SourceProxyBroadcast is the RequestSource of a proxy that pulls for a client
// of a broadcast group.
const SourceProxyBroadcast = int32(1)

// PullHeader is the header of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361). Its
// slices alias the command.
type PullHeader struct {
	ConsumerGroup  []byte
	Topic          []byte
	QueueID        int32
	QueueOffset    int64
	MaxMsgNums     int32
	SysFlag        int32
	CommitOffset   int64
	SuspendMillis  int64
	Subscription   []byte
	SubVersion     int64
	ExpressionType []byte // TAG when empty
	MaxMsgBytes    int32  // 0 when absent
	BrokerName     []byte

	// ProxyClientID is the client behind a proxy ("proxyFrowardClientId" on the
	// wire), RequestSource what kind of proxy; -1 when absent.
	ProxyClientID []byte
	RequestSource int32
}

var pullRequired = [...]required{
	{"consumerGroup", "a string"},
	{"topic", "a string"},
	{"queueId", "an int32"},
	{"queueOffset", "an int64"},
	{"maxMsgNums", "an int32"},
	{"sysFlag", "an int32"},
	{"commitOffset", "an int64"},
	{"suspendTimeoutMillis", "an int64"},
	{"subVersion", "an int64"},
}

// Decode reads the header in one pass over the fields, without allocation unless
// it fails with a *FieldError.
func (h *PullHeader) Decode(c *Command) error {
	*h = PullHeader{RequestSource: -1}
	seen := 0
	for i := range c.Fields {
		bit, err := h.set(&c.Fields[i])
		if err != nil {
			return err
		}
		seen |= bit
	}
	return missing(seen, pullRequired[:])
}

// set takes one field and returns its bit, the index in pullRequired, if it
// is a required one.
func (h *PullHeader) set(f *Field) (bit int, err error) {
	switch string(f.Key) {
	case "consumerGroup":
		h.ConsumerGroup = f.Value
		return 1 << 0, nil
	case "topic":
		h.Topic = f.Value
		return 1 << 1, nil
	case "queueId":
		return 1 << 2, setInt32(f, &h.QueueID)
	case "queueOffset":
		return 1 << 3, setInt64(f, &h.QueueOffset)
	case "maxMsgNums":
		return 1 << 4, setInt32(f, &h.MaxMsgNums)
	case "sysFlag":
		return 1 << 5, setInt32(f, &h.SysFlag)
	case "commitOffset":
		return 1 << 6, setInt64(f, &h.CommitOffset)
	case "suspendTimeoutMillis":
		return 1 << 7, setInt64(f, &h.SuspendMillis)
	case "subVersion":
		return 1 << 8, setInt64(f, &h.SubVersion)
	case "subscription":
		h.Subscription = f.Value
	case "expressionType":
		h.ExpressionType = f.Value
	case "maxMsgBytes":
		return 0, setInt32(f, &h.MaxMsgBytes)
	case "requestSource":
		return 0, setInt32(f, &h.RequestSource)
	case "proxyFrowardClientId":
		h.ProxyClientID = f.Value
	case "bname":
		h.BrokerName = f.Value
	}
	return 0, nil
}

// Command returns the request with this header, for code 11 or 361.
func (h *PullHeader) Command(code int32) *Command {
	var b builder
	b.text("consumerGroup", string(h.ConsumerGroup))
	b.text("topic", string(h.Topic))
	b.int("queueId", int64(h.QueueID))
	b.int("queueOffset", h.QueueOffset)
	b.int("maxMsgNums", int64(h.MaxMsgNums))
	b.int("sysFlag", int64(h.SysFlag))
	b.int("commitOffset", h.CommitOffset)
	b.int("suspendTimeoutMillis", h.SuspendMillis)
	b.text("subscription", string(h.Subscription))
	b.int("subVersion", h.SubVersion)
	b.text("expressionType", string(h.ExpressionType))
	if h.MaxMsgBytes > 0 {
		b.int("maxMsgBytes", int64(h.MaxMsgBytes))
	}
	b.text("bname", string(h.BrokerName))
	return b.command(code)
}

// PullReply is what a pull is answered with, whatever the code.
type PullReply struct {
	SuggestWhichBrokerID int64
	NextBeginOffset      int64
	MinOffset            int64
	MaxOffset            int64 // one past the last
}

// Decode reads the fields of an answer to a pull.
func (h *PullReply) Decode(c *Command) error {
	r := reader{c: c}
	*h = PullReply{
		SuggestWhichBrokerID: r.needInt64("suggestWhichBrokerId"),
		NextBeginOffset:      r.needInt64("nextBeginOffset"),
		MinOffset:            r.needInt64("minOffset"),
		MaxOffset:            r.needInt64("maxOffset"),
	}
	return r.err
}

// Write adds the fields to an answer.
func (h *PullReply) Write(w *ReplyWriter) {
	w.Int("maxOffset", h.MaxOffset)
	w.Int("minOffset", h.MinOffset)
	w.Int("nextBeginOffset", h.NextBeginOffset)
	w.Int("suggestWhichBrokerId", h.SuggestWhichBrokerID)
}
