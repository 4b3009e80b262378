package remoting

import "strings"

// TopicQueueHeader is the header of GET_MAX_OFFSET (30), GET_MIN_OFFSET (31) and
// GET_EARLIEST_MSG_STORETIME (32).
type TopicQueueHeader struct {
	Topic   string
	QueueID int32
}

// Decode reads the header; the error is a *FieldError.
func (h *TopicQueueHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = TopicQueueHeader{
		Topic:   r.need("topic"),
		QueueID: r.needInt32("queueId"),
	}
	return r.err
}

// Command returns the request with this header, for one of the codes above.
func (h *TopicQueueHeader) Command(code int32) *Command {
	var b builder
	b.text("topic", h.Topic)
	b.int("queueId", int64(h.QueueID))
	return b.command(code)
}

// QueryConsumerOffsetHeader is QUERY_CONSUMER_OFFSET (14).
type QueryConsumerOffsetHeader struct {
	ConsumerGroup     string
	Topic             string
	QueueID           int32
	SetZeroIfNotFound bool // absent: true
}

// Decode reads the header; the error is a *FieldError.
func (h *QueryConsumerOffsetHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = QueryConsumerOffsetHeader{
		ConsumerGroup:     r.need("consumerGroup"),
		Topic:             r.need("topic"),
		QueueID:           r.needInt32("queueId"),
		SetZeroIfNotFound: r.optBool("setZeroIfNotFound", true),
	}
	return r.err
}

// Command returns the request.
func (h *QueryConsumerOffsetHeader) Command() *Command {
	var b builder
	b.text("consumerGroup", h.ConsumerGroup)
	b.text("topic", h.Topic)
	b.int("queueId", int64(h.QueueID))
	b.bool("setZeroIfNotFound", h.SetZeroIfNotFound)
	return b.command(ReqQueryConsumerOffset)
}

// UpdateConsumerOffsetHeader is UPDATE_CONSUMER_OFFSET (15).
type UpdateConsumerOffsetHeader struct {
	ConsumerGroup string
	Topic         string
	QueueID       int32
	CommitOffset  int64
}

// Decode reads the header; the error is a *FieldError.
func (h *UpdateConsumerOffsetHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = UpdateConsumerOffsetHeader{
		ConsumerGroup: r.need("consumerGroup"),
		Topic:         r.need("topic"),
		QueueID:       r.needInt32("queueId"),
		CommitOffset:  r.needInt64("commitOffset"),
	}
	return r.err
}

// Command returns the request.
func (h *UpdateConsumerOffsetHeader) Command() *Command {
	var b builder
	b.text("consumerGroup", h.ConsumerGroup)
	b.text("topic", h.Topic)
	b.int("queueId", int64(h.QueueID))
	b.int("commitOffset", h.CommitOffset)
	return b.command(ReqUpdateConsumerOffset)
}

// SearchOffsetHeader is SEARCH_OFFSET_BY_TIMESTAMP (29). Upper tells how ties and
// ends are resolved.
type SearchOffsetHeader struct {
	Topic        string
	QueueID      int32
	Timestamp    int64  // ms
	BoundaryType string // LOWER or UPPER, any case; see Upper
}

// Decode reads the header; the error is a *FieldError.
func (h *SearchOffsetHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = SearchOffsetHeader{
		Topic:        r.need("topic"),
		QueueID:      r.needInt32("queueId"),
		Timestamp:    r.needInt64("timestamp"),
		BoundaryType: r.opt("boundaryType"),
	}
	return r.err
}

// Command returns the request.
func (h *SearchOffsetHeader) Command() *Command {
	var b builder
	b.text("topic", h.Topic)
	b.int("queueId", int64(h.QueueID))
	b.int("timestamp", h.Timestamp)
	b.text("boundaryType", h.BoundaryType)
	return b.command(ReqSearchOffsetByTimestamp)
}

// QueryMessageHeader is QUERY_MESSAGE (12).
type QueryMessageHeader struct {
	Topic          string
	Key            string
	MaxNum         int32
	BeginTimestamp int64 // ms
	EndTimestamp   int64 // ms
	UniqueKey      bool  // Key is a UNIQ_KEY
}

// Decode reads the header; the error is a *FieldError.
func (h *QueryMessageHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = QueryMessageHeader{
		Topic:          r.need("topic"),
		Key:            r.need("key"),
		MaxNum:         r.needInt32("maxNum"),
		BeginTimestamp: r.needInt64("beginTimestamp"),
		EndTimestamp:   r.needInt64("endTimestamp"),
		UniqueKey:      r.optBool("_UNIQUE_KEY_QUERY", false),
	}
	return r.err
}

// Command returns the request.
func (h *QueryMessageHeader) Command() *Command {
	var b builder
	b.text("topic", h.Topic)
	b.text("key", h.Key)
	b.int("maxNum", int64(h.MaxNum))
	b.int("beginTimestamp", h.BeginTimestamp)
	b.int("endTimestamp", h.EndTimestamp)
	b.bool("_UNIQUE_KEY_QUERY", h.UniqueKey)
	return b.command(ReqQueryMessage)
}

// ViewMessageHeader is VIEW_MESSAGE_BY_ID (33).
type ViewMessageHeader struct {
	Offset int64 // bytes in the log
	Topic  string
}

// Decode reads the header; the error is a *FieldError.
func (h *ViewMessageHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = ViewMessageHeader{
		Offset: r.needInt64("offset"),
		Topic:  r.opt("topic"),
	}
	return r.err
}

// Command returns the request.
func (h *ViewMessageHeader) Command() *Command {
	var b builder
	b.int("offset", h.Offset)
	b.text("topic", h.Topic)
	return b.command(ReqViewMessageByID)
}

// UnregisterClientHeader is UNREGISTER_CLIENT (35).
type UnregisterClientHeader struct {
	ClientID      string
	ProducerGroup string
	ConsumerGroup string
}

// Decode reads the header; the error is a *FieldError.
func (h *UnregisterClientHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = UnregisterClientHeader{
		ClientID:      r.need("clientID"),
		ProducerGroup: r.opt("producerGroup"),
		ConsumerGroup: r.opt("consumerGroup"),
	}
	return r.err
}

// Command returns the request.
func (h *UnregisterClientHeader) Command() *Command {
	var b builder
	b.text("clientID", h.ClientID)
	b.text("producerGroup", h.ProducerGroup)
	b.text("consumerGroup", h.ConsumerGroup)
	return b.command(ReqUnregisterClient)
}

// ConsumerGroupHeader is the header of GET_CONSUMER_LIST_BY_GROUP (38),
// NOTIFY_CONSUMER_IDS_CHANGED (40) and GET_CONSUMER_CONNECTION_LIST (203).
type ConsumerGroupHeader struct {
	ConsumerGroup string
}

// Decode reads the header; the error is a *FieldError.
func (h *ConsumerGroupHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = ConsumerGroupHeader{
		ConsumerGroup: r.need("consumerGroup"),
	}
	return r.err
}

// Command returns the request with this header, for one of the codes above.
func (h *ConsumerGroupHeader) Command(code int32) *Command {
	var b builder
	b.text("consumerGroup", h.ConsumerGroup)
	return b.command(code)
}

// ProducerGroupHeader is GET_PRODUCER_CONNECTION_LIST (204).
type ProducerGroupHeader struct {
	ProducerGroup string
}

// Decode reads the header; the error is a *FieldError.
func (h *ProducerGroupHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = ProducerGroupHeader{
		ProducerGroup: r.need("producerGroup"),
	}
	return r.err
}

// Command returns the request.
func (h *ProducerGroupHeader) Command() *Command {
	var b builder
	b.text("producerGroup", h.ProducerGroup)
	return b.command(ReqGetProducerConnectionList)
}

// CreateTopicHeader is UPDATE_AND_CREATE_TOPIC (17). Attributes is a text
// like +key=value,-key.
type CreateTopicHeader struct {
	Topic           string
	DefaultTopic    string
	ReadQueueNums   int32
	WriteQueueNums  int32
	Perm            int32
	TopicFilterType string
	TopicSysFlag    int32
	Order           bool
	Attributes      string
	Force           bool
}

// Decode reads the header; the error is a *FieldError.
func (h *CreateTopicHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = CreateTopicHeader{
		Topic:           r.need("topic"),
		DefaultTopic:    r.opt("defaultTopic"),
		ReadQueueNums:   r.needInt32("readQueueNums"),
		WriteQueueNums:  r.needInt32("writeQueueNums"),
		Perm:            r.needInt32("perm"),
		TopicFilterType: r.opt("topicFilterType"),
		TopicSysFlag:    r.optInt32("topicSysFlag", 0),
		Order:           r.optBool("order", false),
		Attributes:      r.opt("attributes"),
		Force:           r.optBool("force", false),
	}
	return r.err
}

// Command returns the request.
func (h *CreateTopicHeader) Command() *Command {
	var b builder
	b.text("topic", h.Topic)
	b.text("defaultTopic", h.DefaultTopic)
	b.int("readQueueNums", int64(h.ReadQueueNums))
	b.int("writeQueueNums", int64(h.WriteQueueNums))
	b.int("perm", int64(h.Perm))
	b.text("topicFilterType", h.TopicFilterType)
	if h.TopicSysFlag != 0 {
		b.int("topicSysFlag", int64(h.TopicSysFlag))
	}
	b.bool("order", h.Order)
	b.text("attributes", h.Attributes)
	b.bool("force", h.Force)
	return b.command(ReqUpdateAndCreateTopic)
}

// TopicHeader is the header of requests that name a topic alone: DELETE_TOPIC_IN_BROKER
// (215), GET_TOPIC_STATS_INFO (202), GET_TOPIC_CONFIG (351), QUERY_TOPIC_CONSUME_BY_WHO
// (300), REGISTER_TOPIC_IN_NAMESRV (217).
type TopicHeader struct {
	Topic string
}

// Decode reads the header; the error is a *FieldError.
func (h *TopicHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = TopicHeader{
		Topic: r.need("topic"),
	}
	return r.err
}

// Command returns the request with this header, for one of the codes above.
func (h *TopicHeader) Command(code int32) *Command {
	var b builder
	b.text("topic", h.Topic)
	return b.command(code)
}

// DeleteGroupHeader is DELETE_SUBSCRIPTIONGROUP (207). Tools of 4.x write
// cleanOffset as removeOffset.
type DeleteGroupHeader struct {
	GroupName   string
	CleanOffset bool
}

// Decode reads the header; the error is a *FieldError.
func (h *DeleteGroupHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = DeleteGroupHeader{
		GroupName:   r.need("groupName"),
		CleanOffset: r.optBool("cleanOffset", false) || r.optBool("removeOffset", false),
	}
	return r.err
}

// Command returns the request.
func (h *DeleteGroupHeader) Command() *Command {
	var b builder
	b.text("groupName", h.GroupName)
	b.bool("cleanOffset", h.CleanOffset)
	return b.command(ReqDeleteSubscriptionGroup)
}

// GroupHeader is the header of requests that name a group alone:
// GET_SUBSCRIPTIONGROUP_CONFIG (352), QUERY_TOPICS_BY_CONSUMER (343).
type GroupHeader struct {
	Group string
}

// Decode reads the header; the error is a *FieldError.
func (h *GroupHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = GroupHeader{
		Group: r.need("group"),
	}
	return r.err
}

// Command returns the request with this header, for one of the codes above.
func (h *GroupHeader) Command(code int32) *Command {
	var b builder
	b.text("group", h.Group)
	return b.command(code)
}

// GroupForbiddenHeader is UPDATE_AND_GET_GROUP_FORBIDDEN (353). Readable is what
// to set: nil asks only.
type GroupForbiddenHeader struct {
	Group    string
	Topic    string
	Readable *bool
}

// Decode reads the header; the error is a *FieldError.
func (h *GroupForbiddenHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = GroupForbiddenHeader{
		Group: r.need("group"),
		Topic: r.need("topic"),
	}
	if v, ok := c.Get("readable"); ok {
		readable := ParseBool(v)
		h.Readable = &readable
	}
	return r.err
}

// Command returns the request.
func (h *GroupForbiddenHeader) Command() *Command {
	var b builder
	b.text("group", h.Group)
	b.text("topic", h.Topic)
	if h.Readable != nil {
		b.bool("readable", *h.Readable)
	}
	return b.command(ReqUpdateAndGetGroupForbidden)
}

// ConsumeStatsHeader is GET_CONSUME_STATS (208). TopicList joins names with ";".
type ConsumeStatsHeader struct {
	ConsumerGroup string
	Topic         string
	TopicList     string
}

// Decode reads the header; the error is a *FieldError.
func (h *ConsumeStatsHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = ConsumeStatsHeader{
		ConsumerGroup: r.need("consumerGroup"),
		Topic:         r.opt("topic"),
		TopicList:     r.opt("topicList"),
	}
	return r.err
}

// Command returns the request.
func (h *ConsumeStatsHeader) Command() *Command {
	var b builder
	b.text("consumerGroup", h.ConsumerGroup)
	b.text("topic", h.Topic)
	b.text("topicList", h.TopicList)
	return b.command(ReqGetConsumeStats)
}

// ResetOffsetHeader is the header of INVOKE_BROKER_TO_RESET_OFFSET (222) and
// RESET_CONSUMER_CLIENT_OFFSET (220).
type ResetOffsetHeader struct {
	Topic     string
	Group     string
	QueueID   int32 // -1: all
	Offset    int64 // -1: by Timestamp
	Timestamp int64 // ms; -1: the end
	Force     bool
}

// Decode reads the header; the error is a *FieldError.
func (h *ResetOffsetHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = ResetOffsetHeader{
		Topic:     r.need("topic"),
		Group:     r.need("group"),
		QueueID:   r.optInt32("queueId", -1),
		Offset:    r.optInt64("offset", -1),
		Timestamp: r.needInt64("timestamp"),
		Force:     r.optBool("isForce", false),
	}
	return r.err
}

// Command returns the request with this header, for one of the codes above.
func (h *ResetOffsetHeader) Command(code int32) *Command {
	var b builder
	b.text("topic", h.Topic)
	b.text("group", h.Group)
	if h.QueueID != -1 {
		b.int("queueId", int64(h.QueueID))
	}
	if h.Offset != -1 {
		b.int("offset", h.Offset)
	}
	b.int("timestamp", h.Timestamp)
	b.bool("isForce", h.Force)
	return b.command(code)
}

// BrokerStatsHeader is VIEW_BROKER_STATS_DATA (315).
type BrokerStatsHeader struct {
	StatsName string
	StatsKey  string
}

// Decode reads the header; the error is a *FieldError.
func (h *BrokerStatsHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = BrokerStatsHeader{
		StatsName: r.need("statsName"),
		StatsKey:  r.need("statsKey"),
	}
	return r.err
}

// Command returns the request.
func (h *BrokerStatsHeader) Command() *Command {
	var b builder
	b.text("statsName", h.StatsName)
	b.text("statsKey", h.StatsKey)
	return b.command(ReqViewBrokerStatsData)
}

// AllTopicConfigHeader is GET_ALL_TOPIC_CONFIG (21), paged when TopicSeq is there.
type AllTopicConfigHeader struct {
	TopicSeq    int32  // -1 when absent
	DataVersion string // JSON
	MaxTopicNum int32  // -1 when absent
}

// Decode reads the header; the error is a *FieldError.
func (h *AllTopicConfigHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = AllTopicConfigHeader{
		TopicSeq:    r.optInt32("topicSeq", -1),
		DataVersion: r.opt("dataVersion"),
		MaxTopicNum: r.optInt32("maxTopicNum", -1),
	}
	return r.err
}

// Command returns the request.
func (h *AllTopicConfigHeader) Command() *Command {
	var b builder
	if h.TopicSeq != -1 {
		b.int("topicSeq", int64(h.TopicSeq))
	}
	b.text("dataVersion", h.DataVersion)
	if h.MaxTopicNum != -1 {
		b.int("maxTopicNum", int64(h.MaxTopicNum))
	}
	return b.command(ReqGetAllTopicConfig)
}

// AllGroupConfigHeader is GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), paged when GroupSeq
// is there.
type AllGroupConfigHeader struct {
	GroupSeq    int32  // -1 when absent
	DataVersion string // JSON
	MaxGroupNum int32  // -1 when absent
}

// Decode reads the header; the error is a *FieldError.
func (h *AllGroupConfigHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = AllGroupConfigHeader{
		GroupSeq:    r.optInt32("groupSeq", -1),
		DataVersion: r.opt("dataVersion"),
		MaxGroupNum: r.optInt32("maxGroupNum", -1),
	}
	return r.err
}

// Command returns the request.
func (h *AllGroupConfigHeader) Command() *Command {
	var b builder
	if h.GroupSeq != -1 {
		b.int("groupSeq", int64(h.GroupSeq))
	}
	b.text("dataVersion", h.DataVersion)
	if h.MaxGroupNum != -1 {
		b.int("maxGroupNum", int64(h.MaxGroupNum))
	}
	return b.command(ReqGetAllSubscriptionGroupConfig)
}

// Upper tells whether the last record at or before Timestamp is asked for, not
// the first at or after it.
func (h *SearchOffsetHeader) Upper() bool { return strings.EqualFold(h.BoundaryType, "UPPER") }
