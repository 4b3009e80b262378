package remoting

// GroupTopicHeader is the header of requests that name a group and a topic:
// QUERY_SUBSCRIPTION_BY_CONSUMER (345) and QUERY_CONSUME_TIME_SPAN (303).
type GroupTopicHeader struct {
	Group string
	Topic string
}

// Decode reads the header; the error is a *FieldError.
func (h *GroupTopicHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = GroupTopicHeader{Group: r.need("group"), Topic: r.need("topic")}
	return r.err
}

// Command returns the request with this header, for one of the codes above.
func (h *GroupTopicHeader) Command(code int32) *Command {
	var b builder
	b.text("group", h.Group)
	b.text("topic", h.Topic)
	return b.command(code)
}

// ConsumerStatusHeader is INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), and
// GET_CONSUMER_STATUS_FROM_CLIENT (221) that the broker sends for it.
type ConsumerStatusHeader struct {
	Topic    string
	Group    string
	ClientID string // clientAddr on the wire; empty: every client of the group
}

// Decode reads the header; the error is a *FieldError.
func (h *ConsumerStatusHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = ConsumerStatusHeader{Topic: r.need("topic"), Group: r.need("group"), ClientID: r.opt("clientAddr")}
	return r.err
}

// Command returns the request with this header, for one of the codes above.
func (h *ConsumerStatusHeader) Command(code int32) *Command {
	var b builder
	b.text("topic", h.Topic)
	b.text("group", h.Group)
	b.text("clientAddr", h.ClientID)
	return b.command(code)
}

// ConsumerClientHeader is what the broker reads of requests that it forwards to
// one consumer: GET_CONSUMER_RUNNING_INFO (307) and CONSUME_MESSAGE_DIRECTLY
// (309).
type ConsumerClientHeader struct {
	ConsumerGroup string
	ClientID      string
	MsgID         string // 309: offset id of the message; empty: it is the body
	Topic         string // 309
}

// Decode reads the header; the error is a *FieldError.
func (h *ConsumerClientHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = ConsumerClientHeader{ConsumerGroup: r.need("consumerGroup"), ClientID: r.opt("clientId"), MsgID: r.opt("msgId"), Topic: r.opt("topic")}
	return r.err
}

// CloneOffsetHeader is CLONE_GROUP_OFFSET (314).
type CloneOffsetHeader struct {
	SrcGroup  string
	DestGroup string
	Topic     string // empty: all topics of SrcGroup
	Offline   bool   // also topics that SrcGroup's consumers online don't subscribe
}

// Decode reads the header; the error is a *FieldError.
func (h *CloneOffsetHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = CloneOffsetHeader{SrcGroup: r.need("srcGroup"), DestGroup: r.need("destGroup"), Topic: r.opt("topic"), Offline: r.optBool("offline", false)}
	return r.err
}

// CorrectionOffsetHeader is QUERY_CORRECTION_OFFSET (308).
type CorrectionOffsetHeader struct {
	Topic        string
	CompareGroup string
	FilterGroups string // joined by commas
}

// Decode reads the header; the error is a *FieldError.
func (h *CorrectionOffsetHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = CorrectionOffsetHeader{Topic: r.need("topic"), CompareGroup: r.opt("compareGroup"), FilterGroups: r.opt("filterGroups")}
	return r.err
}

// BrokerConsumeStatsHeader is GET_BROKER_CONSUME_STATS (317).
type BrokerConsumeStatsHeader struct {
	IsOrder bool // ordered topics alone
}

// Decode reads the header; the error is a *FieldError.
func (h *BrokerConsumeStatsHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = BrokerConsumeStatsHeader{IsOrder: r.optBool("isOrder", false)}
	return r.err
}

// QueryConsumeQueueHeader is QUERY_CONSUME_QUEUE (321).
type QueryConsumeQueueHeader struct {
	Topic         string
	QueueID       int32
	Index         int64
	Count         int32
	ConsumerGroup string
}

// Decode reads the header; the error is a *FieldError.
func (h *QueryConsumeQueueHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = QueryConsumeQueueHeader{Topic: r.need("topic"), QueueID: r.needInt32("queueId"), Index: r.needInt64("index"),
		Count: r.needInt32("count"), ConsumerGroup: r.opt("consumerGroup")}
	return r.err
}
