package remoting

// PushReplyHeader is PUSH_REPLY_MESSAGE_TO_CLIENT (326): a reply on its way from
// the broker to the client that asked. The body is the reply's. (As
// ReplyMessageRequestHeader, 5.3.)
type PushReplyHeader struct {
	ProducerGroup         string // of the replier
	Topic                 string
	DefaultTopic          string
	DefaultTopicQueueNums int32
	QueueID               int32
	SysFlag               int32
	BornMillis            int64
	Flag                  int32
	Properties            string
	ReconsumeTimes        int32
	UnitMode              bool
	BornHost              string // ip:port of the replier
	StoreHost             string // ip:port of the broker
	StoreMillis           int64
}

// Decode reads the header; the error is a *FieldError.
func (h *PushReplyHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = PushReplyHeader{
		ProducerGroup:         r.need("producerGroup"),
		Topic:                 r.need("topic"),
		DefaultTopic:          r.need("defaultTopic"),
		DefaultTopicQueueNums: r.needInt32("defaultTopicQueueNums"),
		QueueID:               r.needInt32("queueId"),
		SysFlag:               r.needInt32("sysFlag"),
		BornMillis:            r.needInt64("bornTimestamp"),
		Flag:                  r.needInt32("flag"),
		Properties:            r.opt("properties"),
		ReconsumeTimes:        r.optInt32("reconsumeTimes", 0),
		UnitMode:              r.optBool("unitMode", false),
		BornHost:              r.need("bornHost"),
		StoreHost:             r.need("storeHost"),
		StoreMillis:           r.needInt64("storeTimestamp"),
	}
	return r.err
}

// Command returns the request with this header and body.
func (h *PushReplyHeader) Command(body []byte) *Command {
	var b builder
	b.text("producerGroup", h.ProducerGroup)
	b.text("topic", h.Topic)
	b.text("defaultTopic", h.DefaultTopic)
	b.int("defaultTopicQueueNums", int64(h.DefaultTopicQueueNums))
	b.int("queueId", int64(h.QueueID))
	b.int("sysFlag", int64(h.SysFlag))
	b.int("bornTimestamp", h.BornMillis)
	b.int("flag", int64(h.Flag))
	b.text("properties", h.Properties)
	b.int("reconsumeTimes", int64(h.ReconsumeTimes))
	b.bool("unitMode", h.UnitMode)
	b.text("bornHost", h.BornHost)
	b.text("storeHost", h.StoreHost)
	b.int("storeTimestamp", h.StoreMillis)
	c := b.command(ReqPushReplyMessageToClient)
	c.Body = body
	return c
}
