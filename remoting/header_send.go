package remoting

// SendHeader is the header of SEND_MESSAGE (10, long names), SEND_MESSAGE_V2
// (310) and SEND_BATCH_MESSAGE (320, both one-letter names), and of the replies
// 324 (long) and 325 (short). Its slices alias the command.
type SendHeader struct {
	ProducerGroup         []byte // a
	Topic                 []byte // b
	DefaultTopic          []byte // c: template of a topic to be created
	DefaultTopicQueueNums int32  // d
	QueueID               int32  // e: negative: the broker picks
	SysFlag               int32  // f
	BornMillis            int64  // g
	Flag                  int32  // h: the user's
	Properties            []byte // i
	ReconsumeTimes        int32  // j
	UnitMode              bool   // k
	MaxReconsumeTimes     int32  // l: -1 when absent
	Batch                 bool   // m: decides batch handling, the code does not
	BrokerName            []byte // n
}

// sendField is a field's bit in the set of fields seen.
type sendField uint16

const (
	sendA sendField = 1 << iota // in the order of the letters
	sendB
	sendC
	sendD
	sendE
	sendF
	sendG
	sendH
)

const sendRequired = sendA | sendB | sendC | sendD | sendE | sendF | sendG | sendH

var sendRequiredNames = [...]struct{ short, long, want string }{
	{"a", "producerGroup", "a string"},
	{"b", "topic", "a string"},
	{"c", "defaultTopic", "a string"},
	{"d", "defaultTopicQueueNums", "an int32"},
	{"e", "queueId", "an int32"},
	{"f", "sysFlag", "an int32"},
	{"g", "bornTimestamp", "an int64"},
	{"h", "flag", "an int32"},
}

// Decode reads the header in one pass over the fields, without allocation unless
// it fails with a *FieldError. Codes 10 and 324 carry the long names, 310 and 325
// the short ones; 320 may carry either.
func (h *SendHeader) Decode(c *Command) error {
	*h = SendHeader{MaxReconsumeTimes: -1}
	long := c.Code == ReqSendMessage || c.Code == ReqSendReplyMessage
	seen, err := h.decode(c, long)
	if err == nil && c.Code == ReqSendBatchMessage && seen&sendRequired == 0 {
		*h = SendHeader{MaxReconsumeTimes: -1}
		long = true
		seen, err = h.decode(c, long)
	}
	if err != nil {
		return err
	}
	if missing := sendRequired &^ seen; missing != 0 {
		for i, n := range sendRequiredNames {
			if missing&(1<<i) != 0 {
				if long {
					return &FieldError{Field: n.long, Want: n.want}
				}
				return &FieldError{Field: n.short + " (" + n.long + ")", Want: n.want}
			}
		}
	}
	return nil
}

func (h *SendHeader) decode(c *Command, long bool) (seen sendField, err error) {
	for i := range c.Fields {
		f := &c.Fields[i]
		var letter byte
		switch {
		case long:
			letter = sendLetter(f.Key)
		case len(f.Key) == 1:
			letter = f.Key[0]
		}
		if letter-'a' > 'n'-'a' {
			continue
		}
		if letter <= 'h' {
			seen |= 1 << (letter - 'a')
		}
		if err := h.set(letter, f); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// sendLetter maps a long name to its letter, 0 for other keys.
func sendLetter(key []byte) byte {
	switch string(key) {
	case "producerGroup":
		return 'a'
	case "topic":
		return 'b'
	case "defaultTopic":
		return 'c'
	case "defaultTopicQueueNums":
		return 'd'
	case "queueId":
		return 'e'
	case "sysFlag":
		return 'f'
	case "bornTimestamp":
		return 'g'
	case "flag":
		return 'h'
	case "properties":
		return 'i'
	case "reconsumeTimes":
		return 'j'
	case "unitMode":
		return 'k'
	case "maxReconsumeTimes":
		return 'l'
	case "batch":
		return 'm'
	case "bname":
		return 'n'
	}
	return 0
}

func (h *SendHeader) set(letter byte, f *Field) error {
	switch letter {
	case 'a':
		h.ProducerGroup = f.Value
	case 'b':
		h.Topic = f.Value
	case 'c':
		h.DefaultTopic = f.Value
	case 'd':
		return setInt32(f, &h.DefaultTopicQueueNums)
	case 'e':
		return setInt32(f, &h.QueueID)
	case 'f':
		return setInt32(f, &h.SysFlag)
	case 'g':
		return setInt64(f, &h.BornMillis)
	case 'h':
		return setInt32(f, &h.Flag)
	case 'i':
		h.Properties = f.Value
	case 'j':
		return setInt32(f, &h.ReconsumeTimes)
	case 'k':
		h.UnitMode = ParseBool(f.Value)
	case 'l':
		return setInt32(f, &h.MaxReconsumeTimes)
	case 'm':
		h.Batch = ParseBool(f.Value)
	case 'n':
		h.BrokerName = f.Value
	}
	return nil
}

func setInt32(f *Field, to *int32) error {
	n, ok := parseInt(f.Value, 1<<31-1)
	if !ok {
		return &FieldError{Field: string(f.Key), Got: shown(f.Value), Want: "an int32"}
	}
	*to = int32(n)
	return nil
}

func setInt64(f *Field, to *int64) error {
	n, ok := parseInt(f.Value, 1<<63-1)
	if !ok {
		return &FieldError{Field: string(f.Key), Got: shown(f.Value), Want: "an int64"}
	}
	*to = n
	return nil
}

// Command returns a send request with this header and body, as Java clients
// write it for code 310 or 320 (short names) or 10 (long names).
func (h *SendHeader) Command(code int32, body []byte) *Command {
	var b builder
	long := code == ReqSendMessage || code == ReqSendReplyMessage
	name := func(letter byte, longName string) string {
		if long {
			return longName
		}
		return string(letter)
	}
	b.text(name('a', "producerGroup"), string(h.ProducerGroup))
	b.text(name('b', "topic"), string(h.Topic))
	b.text(name('c', "defaultTopic"), string(h.DefaultTopic))
	b.int(name('d', "defaultTopicQueueNums"), int64(h.DefaultTopicQueueNums))
	b.int(name('e', "queueId"), int64(h.QueueID))
	b.int(name('f', "sysFlag"), int64(h.SysFlag))
	b.int(name('g', "bornTimestamp"), h.BornMillis)
	b.int(name('h', "flag"), int64(h.Flag))
	b.text(name('i', "properties"), string(h.Properties))
	b.int(name('j', "reconsumeTimes"), int64(h.ReconsumeTimes))
	b.bool(name('k', "unitMode"), h.UnitMode)
	if h.MaxReconsumeTimes >= 0 {
		b.int(name('l', "maxReconsumeTimes"), int64(h.MaxReconsumeTimes))
	}
	b.bool(name('m', "batch"), h.Batch)
	b.text(name('n', "bname"), string(h.BrokerName))
	c := b.command(code)
	c.Body = body
	return c
}

// SendReply is what a send is answered with. MSG_REGION and TRACE_ON belong on
// every answer of the send path, refusals included.
type SendReply struct {
	MsgID         string // offset ids, joined by commas for a batch
	QueueID       int32
	QueueOffset   int64
	TransactionID string // the UNIQ_KEY
	Region        string
	BatchUniqID   string
	RecallHandle  string
}

// Decode reads the fields of an answer to a send.
func (h *SendReply) Decode(c *Command) error {
	r := reader{c: c}
	*h = SendReply{
		MsgID:         r.need("msgId"),
		QueueID:       r.needInt32("queueId"),
		QueueOffset:   r.needInt64("queueOffset"),
		TransactionID: r.opt("transactionId"),
		Region:        r.opt("MSG_REGION"),
		BatchUniqID:   r.opt("batchUniqId"),
		RecallHandle:  r.opt("recallHandle"),
	}
	return r.err
}

// Write adds the fields to an answer.
func (h *SendReply) Write(w *ReplyWriter) {
	w.String("MSG_REGION", h.Region)
	w.String("TRACE_ON", "true")
	w.String("msgId", h.MsgID)
	w.Int("queueId", int64(h.QueueID))
	w.Int("queueOffset", h.QueueOffset)
	if h.TransactionID != "" {
		w.String("transactionId", h.TransactionID)
	}
	if h.BatchUniqID != "" {
		w.String("batchUniqId", h.BatchUniqID)
	}
	if h.RecallHandle != "" {
		w.String("recallHandle", h.RecallHandle)
	}
}

// SendBackHeader is CONSUMER_SEND_MSG_BACK (36).
type SendBackHeader struct {
	Offset            int64 // where the message lies in the log
	Group             string
	DelayLevel        int32
	OriginMsgID       string
	OriginTopic       string
	UnitMode          bool
	MaxReconsumeTimes int32 // -1 when absent
	BrokerName        string
}

// Decode reads the header; the error is a *FieldError.
func (h *SendBackHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = SendBackHeader{
		Offset:            r.needInt64("offset"),
		Group:             r.need("group"),
		DelayLevel:        r.needInt32("delayLevel"),
		OriginMsgID:       r.opt("originMsgId"),
		OriginTopic:       r.opt("originTopic"),
		UnitMode:          r.optBool("unitMode", false),
		MaxReconsumeTimes: r.optInt32("maxReconsumeTimes", -1),
		BrokerName:        r.opt("bname"),
	}
	return r.err
}

// Command returns the request.
func (h *SendBackHeader) Command() *Command {
	var b builder
	b.int("offset", h.Offset)
	b.text("group", h.Group)
	b.int("delayLevel", int64(h.DelayLevel))
	b.text("originMsgId", h.OriginMsgID)
	b.text("originTopic", h.OriginTopic)
	b.bool("unitMode", h.UnitMode)
	if h.MaxReconsumeTimes >= 0 {
		b.int("maxReconsumeTimes", int64(h.MaxReconsumeTimes))
	}
	b.text("bname", h.BrokerName)
	return b.command(ReqConsumerSendMsgBack)
}
