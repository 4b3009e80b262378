package remoting

// PopOrderQueue is the reviveQid of messages popped in order: what is not
// acknowledged stays in its queue instead of going to a retry topic.
const PopOrderQueue = 999

// PopMsgsMax is the most messages of one POP_MESSAGE.
const PopMsgsMax = 32

// Values of PopHeader.InitMode: where a group begins that has consumed nothing.
const (
	PopInitMin = int32(0) // at the oldest message
	PopInitMax = int32(1) // at the newest
)

// PopHeader is the header of POP_MESSAGE (200050). Its slices alias the command.
type PopHeader struct {
	ConsumerGroup   []byte
	Topic           []byte
	QueueID         int32 // -1: any
	MaxMsgNums      int32
	InvisibleMillis int64
	PollMillis      int64 // how long the request may be held, from BornMillis on
	BornMillis      int64 // 0 when absent: the time it came
	InitMode        int32
	ExpressionType  []byte
	Expression      []byte
	Order           bool
	AttemptID       []byte
}

// Decode reads the header in one pass over the fields, without allocation
// unless it fails with a *FieldError.
func (h *PopHeader) Decode(c *Command) error {
	*h = PopHeader{}
	seen := 0
	for i := range c.Fields {
		bit, err := h.set(&c.Fields[i])
		if err != nil {
			return err
		}
		seen |= bit
	}
	return missing(seen, popRequired[:])
}

// Required fields, each at its bit.
var (
	popRequired = [...]required{{"consumerGroup", "a string"}, {"topic", "a string"}, {"queueId", "an integer"}, {"maxMsgNums", "an integer"},
		{"invisibleTime", "an integer"}, {"pollTime", "an integer"}, {"initMode", "an integer"}}
	ackRequired = [...]required{{"consumerGroup", "a string"}, {"topic", "a string"}, {"queueId", "an integer"}, {"offset", "an integer"},
		{"invisibleTime", "an integer"}}
	notificationRequired = [...]required{{"consumerGroup", "a string"}, {"topic", "a string"}, {"queueId", "an integer"}, {"pollTime", "an integer"}}
)

func (h *PopHeader) set(f *Field) (bit int, err error) {
	switch string(f.Key) {
	case "consumerGroup":
		h.ConsumerGroup = f.Value
		return 1 << 0, nil
	case "topic":
		h.Topic = f.Value
		return 1 << 1, nil
	case "queueId":
		return 1 << 2, setInt32(f, &h.QueueID)
	case "maxMsgNums":
		return 1 << 3, setInt32(f, &h.MaxMsgNums)
	case "invisibleTime":
		return 1 << 4, setInt64(f, &h.InvisibleMillis)
	case "pollTime":
		return 1 << 5, setInt64(f, &h.PollMillis)
	case "initMode":
		return 1 << 6, setInt32(f, &h.InitMode)
	case "bornTime":
		return 0, setInt64(f, &h.BornMillis)
	case "expType":
		h.ExpressionType = f.Value
	case "exp":
		h.Expression = f.Value
	case "order":
		h.Order = ParseBool(f.Value)
	case "attemptId":
		h.AttemptID = f.Value
	}
	return 0, nil
}

// Command returns the request.
func (h *PopHeader) Command() *Command {
	var b builder
	b.text("consumerGroup", string(h.ConsumerGroup))
	b.text("topic", string(h.Topic))
	b.int("queueId", int64(h.QueueID))
	b.int("maxMsgNums", int64(h.MaxMsgNums))
	b.int("invisibleTime", h.InvisibleMillis)
	b.int("pollTime", h.PollMillis)
	b.int("bornTime", h.BornMillis)
	b.int("initMode", int64(h.InitMode))
	b.text("expType", string(h.ExpressionType))
	b.text("exp", string(h.Expression))
	if h.Order {
		b.bool("order", true)
	}
	b.text("attemptId", string(h.AttemptID))
	return b.command(ReqPopMessage)
}

// PopReply is what a POP_MESSAGE is answered with, whatever the code. The three
// infos are records joined by semicolons, their items by one blank:
//
//	StartOffsetInfo  flag queueId firstOffset
//	MsgOffsetInfo    flag queueId offset,offset,...
//	OrderCountInfo   flag queueId count | flag qo<queueId>%<queueOffset> count
//
// flag is 0 for the topic itself, 1 and 2 for its retry topic of version 1 and 2.
type PopReply struct {
	PopMillis       int64
	InvisibleMillis int64
	ReviveQueueID   int32
	RestNum         int64
	StartOffsetInfo []byte
	MsgOffsetInfo   []byte
	OrderCountInfo  []byte // nil: none
}

// Write adds the fields to an answer.
func (h *PopReply) Write(w *ReplyWriter) {
	w.Int("popTime", h.PopMillis)
	w.Int("invisibleTime", h.InvisibleMillis)
	w.Int("reviveQid", int64(h.ReviveQueueID))
	w.Int("restNum", h.RestNum)
	w.Bytes("startOffsetInfo", h.StartOffsetInfo)
	w.Bytes("msgOffsetInfo", h.MsgOffsetInfo)
	if h.OrderCountInfo != nil {
		w.Bytes("orderCountInfo", h.OrderCountInfo)
	}
}

// Decode reads the fields of an answer; the error is a *FieldError.
func (h *PopReply) Decode(c *Command) error {
	r := reader{c: c}
	*h = PopReply{
		PopMillis:       r.needInt64("popTime"),
		InvisibleMillis: r.needInt64("invisibleTime"),
		ReviveQueueID:   r.needInt32("reviveQid"),
		RestNum:         r.needInt64("restNum"),
		StartOffsetInfo: []byte(r.opt("startOffsetInfo")),
		MsgOffsetInfo:   []byte(r.opt("msgOffsetInfo")),
		OrderCountInfo:  []byte(r.opt("orderCountInfo")),
	}
	return r.err
}

// AckHeader is the header of ACK_MESSAGE (200051) and CHANGE_MESSAGE_INVISIBLETIME
// (200053). Its slices alias the command.
type AckHeader struct {
	ConsumerGroup   []byte
	Topic           []byte // the topic of the queue: the retry topic for messages from there
	QueueID         int32
	ExtraInfo       []byte // see PopCK
	Offset          int64
	InvisibleMillis int64 // of 200053 alone
}

// Decode reads the header in one pass over the fields, without allocation
// unless it fails with a *FieldError.
func (h *AckHeader) Decode(c *Command) error {
	*h = AckHeader{}
	seen := 0
	for i := range c.Fields {
		f := &c.Fields[i]
		var err error
		switch string(f.Key) {
		case "consumerGroup":
			h.ConsumerGroup = f.Value
			seen |= 1 << 0
		case "topic":
			h.Topic = f.Value
			seen |= 1 << 1
		case "queueId":
			seen |= 1 << 2
			err = setInt32(f, &h.QueueID)
		case "offset":
			seen |= 1 << 3
			err = setInt64(f, &h.Offset)
		case "invisibleTime":
			seen |= 1 << 4
			err = setInt64(f, &h.InvisibleMillis)
		case "extraInfo":
			h.ExtraInfo = f.Value
		}
		if err != nil {
			return err
		}
	}
	fields := ackRequired[:]
	if c.Code == int32(ReqAckMessage) {
		fields = fields[:4] // without invisibleTime
	}
	if err := missing(seen, fields); err != nil {
		return err
	}
	if h.ExtraInfo == nil {
		return &FieldError{Field: "extraInfo", Want: wantPopCK}
	}
	return nil
}

// Command returns the request, for code 200051 or 200053.
func (h *AckHeader) Command(code int32) *Command {
	var b builder
	b.text("consumerGroup", string(h.ConsumerGroup))
	b.text("topic", string(h.Topic))
	b.int("queueId", int64(h.QueueID))
	b.text("extraInfo", string(h.ExtraInfo))
	b.int("offset", h.Offset)
	if code == int32(ReqChangeMessageInvisibleTime) {
		b.int("invisibleTime", h.InvisibleMillis)
	}
	return b.command(code)
}

// NotificationHeader is the header of NOTIFICATION (200054). Its slices alias
// the command.
type NotificationHeader struct {
	ConsumerGroup []byte
	Topic         []byte
	QueueID       int32 // -1: any
	PollMillis    int64
	BornMillis    int64 // 0 when absent: the time it came
	Order         bool
	AttemptID     []byte
}

// Decode reads the header; the error is a *FieldError.
func (h *NotificationHeader) Decode(c *Command) error {
	*h = NotificationHeader{}
	seen := 0
	for i := range c.Fields {
		f := &c.Fields[i]
		var err error
		switch string(f.Key) {
		case "consumerGroup":
			h.ConsumerGroup = f.Value
			seen |= 1 << 0
		case "topic":
			h.Topic = f.Value
			seen |= 1 << 1
		case "queueId":
			seen |= 1 << 2
			err = setInt32(f, &h.QueueID)
		case "pollTime":
			seen |= 1 << 3
			err = setInt64(f, &h.PollMillis)
		case "bornTime":
			err = setInt64(f, &h.BornMillis)
		case "order":
			h.Order = ParseBool(f.Value)
		case "attemptId":
			h.AttemptID = f.Value
		}
		if err != nil {
			return err
		}
	}
	return missing(seen, notificationRequired[:])
}

// Command returns the request.
func (h *NotificationHeader) Command() *Command {
	var b builder
	b.text("consumerGroup", string(h.ConsumerGroup))
	b.text("topic", string(h.Topic))
	b.int("queueId", int64(h.QueueID))
	b.int("pollTime", h.PollMillis)
	b.int("bornTime", h.BornMillis)
	if h.Order {
		b.bool("order", true)
	}
	b.text("attemptId", string(h.AttemptID))
	return b.command(ReqNotification)
}

// PeekHeader is the header of PEEK_MESSAGE (200052) and, without MaxMsgNums, of
// POLLING_INFO (200055).
type PeekHeader struct {
	ConsumerGroup string
	Topic         string
	QueueID       int32 // -1: all
	MaxMsgNums    int32
}

// Decode reads the header; the error is a *FieldError.
func (h *PeekHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = PeekHeader{ConsumerGroup: r.need("consumerGroup"), Topic: r.need("topic"), QueueID: r.needInt32("queueId")}
	if c.Code == int32(ReqPeekMessage) {
		h.MaxMsgNums = r.needInt32("maxMsgNums")
	}
	return r.err
}

// Command returns the request, for code 200052 or 200055.
func (h *PeekHeader) Command(code int32) *Command {
	var b builder
	b.text("consumerGroup", h.ConsumerGroup)
	b.text("topic", h.Topic)
	b.int("queueId", int64(h.QueueID))
	if code == int32(ReqPeekMessage) {
		b.int("maxMsgNums", int64(h.MaxMsgNums))
	}
	return b.command(code)
}
