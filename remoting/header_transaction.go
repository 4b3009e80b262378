package remoting

// EndTransactionHeader is END_TRANSACTION (37). CommitOrRollback is 8 or 12.
type EndTransactionHeader struct {
	Topic                string
	ProducerGroup        string
	TranStateTableOffset int64 // the half message's queue offset
	CommitLogOffset      int64
	CommitOrRollback     int32
	FromTransactionCheck bool
	MsgID                string
	TransactionID        string
}

// Decode reads the header; the error is a *FieldError.
func (h *EndTransactionHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = EndTransactionHeader{
		Topic:                r.opt("topic"),
		ProducerGroup:        r.need("producerGroup"),
		TranStateTableOffset: r.needInt64("tranStateTableOffset"),
		CommitLogOffset:      r.needInt64("commitLogOffset"),
		CommitOrRollback:     r.needInt32("commitOrRollback"),
		FromTransactionCheck: r.optBool("fromTransactionCheck", false),
		MsgID:                r.opt("msgId"),
		TransactionID:        r.opt("transactionId"),
	}
	return r.err
}

// Command returns the request.
func (h *EndTransactionHeader) Command() *Command {
	var b builder
	b.text("topic", h.Topic)
	b.text("producerGroup", h.ProducerGroup)
	b.int("tranStateTableOffset", h.TranStateTableOffset)
	b.int("commitLogOffset", h.CommitLogOffset)
	b.int("commitOrRollback", int64(h.CommitOrRollback))
	b.bool("fromTransactionCheck", h.FromTransactionCheck)
	b.text("msgId", h.MsgID)
	b.text("transactionId", h.TransactionID)
	return b.command(ReqEndTransaction)
}

// CheckTransactionHeader is CHECK_TRANSACTION_STATE (39), sent one-way to a
// producer; the body is the half message, with its real topic and queue.
type CheckTransactionHeader struct {
	Topic                string
	TranStateTableOffset int64 // the half message's queue offset
	CommitLogOffset      int64
	MsgID                string // the UNIQ_KEY
	TransactionID        string
	OffsetMsgID          string
	BrokerName           string
}

// Decode reads the header; the error is a *FieldError.
func (h *CheckTransactionHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = CheckTransactionHeader{
		Topic:                r.opt("topic"),
		TranStateTableOffset: r.needInt64("tranStateTableOffset"),
		CommitLogOffset:      r.needInt64("commitLogOffset"),
		MsgID:                r.opt("msgId"),
		TransactionID:        r.opt("transactionId"),
		OffsetMsgID:          r.opt("offsetMsgId"),
		BrokerName:           r.opt("bname"),
	}
	return r.err
}

// Command returns the request.
func (h *CheckTransactionHeader) Command() *Command {
	var b builder
	b.text("topic", h.Topic)
	b.int("tranStateTableOffset", h.TranStateTableOffset)
	b.int("commitLogOffset", h.CommitLogOffset)
	b.text("msgId", h.MsgID)
	b.text("transactionId", h.TransactionID)
	b.text("offsetMsgId", h.OffsetMsgID)
	b.text("bname", h.BrokerName)
	return b.command(ReqCheckTransactionState)
}
