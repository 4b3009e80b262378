package remoting

// RegisterBrokerHeader is REGISTER_BROKER (103). The body is a RegisterBrokerBody.
type RegisterBrokerHeader struct {
	BrokerName             string
	BrokerAddr             string // brokerIP1:listenPort
	ClusterName            string
	HAServerAddr           string
	BrokerID               int64 // 0: master
	HeartbeatTimeoutMillis int64 // 0 when absent
	// EnableActingMaster counts only where ActingMasterSent: brokers before 5.0
	// do not send it at all.
	EnableActingMaster bool
	ActingMasterSent   bool
	Compressed         bool
	BodyCRC32          int32 // 0: not to be checked
	ZoneName           string
}

// Decode reads the header; the error is a *FieldError.
func (h *RegisterBrokerHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = RegisterBrokerHeader{
		BrokerName:             r.need("brokerName"),
		BrokerAddr:             r.need("brokerAddr"),
		ClusterName:            r.need("clusterName"),
		HAServerAddr:           r.opt("haServerAddr"),
		BrokerID:               r.needInt64("brokerId"),
		HeartbeatTimeoutMillis: r.optInt64("heartbeatTimeoutMillis", 0),
		EnableActingMaster:     r.optBool("enableActingMaster", false),
		Compressed:             r.optBool("compressed", false),
		BodyCRC32:              r.optInt32("bodyCrc32", 0),
		ZoneName:               r.opt("__ZONE_NAME"),
	}
	_, h.ActingMasterSent = c.Get("enableActingMaster")
	return r.err
}

// Command returns the request.
func (h *RegisterBrokerHeader) Command() *Command {
	var b builder
	b.text("brokerName", h.BrokerName)
	b.text("brokerAddr", h.BrokerAddr)
	b.text("clusterName", h.ClusterName)
	b.text("haServerAddr", h.HAServerAddr)
	b.int("brokerId", h.BrokerID)
	if h.HeartbeatTimeoutMillis != 0 {
		b.int("heartbeatTimeoutMillis", h.HeartbeatTimeoutMillis)
	}
	if h.ActingMasterSent {
		b.bool("enableActingMaster", h.EnableActingMaster)
	}
	b.bool("compressed", h.Compressed)
	if h.BodyCRC32 != 0 {
		b.int("bodyCrc32", int64(h.BodyCRC32))
	}
	b.text("__ZONE_NAME", h.ZoneName)
	return b.command(ReqRegisterBroker)
}

// UnregisterBrokerHeader is UNREGISTER_BROKER (104).
type UnregisterBrokerHeader struct {
	ClusterName string
	BrokerName  string
	BrokerAddr  string
	BrokerID    int64
}

// Decode reads the header; the error is a *FieldError.
func (h *UnregisterBrokerHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = UnregisterBrokerHeader{
		ClusterName: r.need("clusterName"),
		BrokerName:  r.need("brokerName"),
		BrokerAddr:  r.need("brokerAddr"),
		BrokerID:    r.needInt64("brokerId"),
	}
	return r.err
}

// Command returns the request.
func (h *UnregisterBrokerHeader) Command() *Command {
	var b builder
	b.text("clusterName", h.ClusterName)
	b.text("brokerName", h.BrokerName)
	b.text("brokerAddr", h.BrokerAddr)
	b.int("brokerId", h.BrokerID)
	return b.command(ReqUnregisterBroker)
}

// QueryDataVersionHeader is QUERY_DATA_VERSION (322). The body is a DataVersion.
type QueryDataVersionHeader struct {
	ClusterName string
	BrokerName  string
	BrokerAddr  string
	BrokerID    int64
}

// Decode reads the header; the error is a *FieldError.
func (h *QueryDataVersionHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = QueryDataVersionHeader{
		ClusterName: r.need("clusterName"),
		BrokerName:  r.need("brokerName"),
		BrokerAddr:  r.need("brokerAddr"),
		BrokerID:    r.needInt64("brokerId"),
	}
	return r.err
}

// Command returns the request.
func (h *QueryDataVersionHeader) Command() *Command {
	var b builder
	b.text("clusterName", h.ClusterName)
	b.text("brokerName", h.BrokerName)
	b.text("brokerAddr", h.BrokerAddr)
	b.int("brokerId", h.BrokerID)
	return b.command(ReqQueryDataVersion)
}

// BrokerHeartbeatHeader is BROKER_HEARTBEAT (904). Absent numbers are -1.
type BrokerHeartbeatHeader struct {
	ClusterName            string
	BrokerName             string
	BrokerAddr             string
	BrokerID               int64
	Epoch                  int32
	MaxOffset              int64
	ConfirmOffset          int64
	HeartbeatTimeoutMillis int64
	ElectionPriority       int32
}

// Decode reads the header; the error is a *FieldError.
func (h *BrokerHeartbeatHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = BrokerHeartbeatHeader{
		ClusterName:            r.need("clusterName"),
		BrokerName:             r.need("brokerName"),
		BrokerAddr:             r.need("brokerAddr"),
		BrokerID:               r.optInt64("brokerId", -1),
		Epoch:                  r.optInt32("epoch", -1),
		MaxOffset:              r.optInt64("maxOffset", -1),
		ConfirmOffset:          r.optInt64("confirmOffset", -1),
		HeartbeatTimeoutMillis: r.optInt64("heartbeatTimeoutMills", -1),
		ElectionPriority:       r.optInt32("electionPriority", -1),
	}
	return r.err
}

// Command returns the request.
func (h *BrokerHeartbeatHeader) Command() *Command {
	var b builder
	b.text("clusterName", h.ClusterName)
	b.text("brokerName", h.BrokerName)
	b.text("brokerAddr", h.BrokerAddr)
	if h.BrokerID != -1 {
		b.int("brokerId", h.BrokerID)
	}
	if h.Epoch != -1 {
		b.int("epoch", int64(h.Epoch))
	}
	if h.MaxOffset != -1 {
		b.int("maxOffset", h.MaxOffset)
	}
	if h.ConfirmOffset != -1 {
		b.int("confirmOffset", h.ConfirmOffset)
	}
	if h.HeartbeatTimeoutMillis != -1 {
		b.int("heartbeatTimeoutMills", h.HeartbeatTimeoutMillis)
	}
	if h.ElectionPriority != -1 {
		b.int("electionPriority", int64(h.ElectionPriority))
	}
	return b.command(ReqBrokerHeartbeat)
}

// RouteHeader is GET_ROUTEINFO_BY_TOPIC (105).
type RouteHeader struct {
	Topic                  string
	AcceptStandardJSONOnly bool
	ZoneMode               bool
	ZoneName               string
}

// Decode reads the header; the error is a *FieldError.
func (h *RouteHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = RouteHeader{
		Topic:                  r.need("topic"),
		AcceptStandardJSONOnly: r.optBool("acceptStandardJsonOnly", false),
		ZoneMode:               r.optBool("__ZONE_MODE", false),
		ZoneName:               r.opt("__ZONE_NAME"),
	}
	return r.err
}

// Command returns the request.
func (h *RouteHeader) Command() *Command {
	var b builder
	b.text("topic", h.Topic)
	b.bool("acceptStandardJsonOnly", h.AcceptStandardJSONOnly)
	b.bool("__ZONE_MODE", h.ZoneMode)
	b.text("__ZONE_NAME", h.ZoneName)
	return b.command(ReqGetRouteInfoByTopic)
}

// KVHeader is the header of PUT_KV_CONFIG (100), GET_KV_CONFIG (101) and
// DELETE_KV_CONFIG (102); Value for 100 alone. None is required here: the
// NameServer has its own remark for a missing one.
type KVHeader struct {
	Namespace string
	Key       string
	Value     string
}

// Decode reads the header; the error is a *FieldError.
func (h *KVHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = KVHeader{
		Namespace: r.opt("namespace"),
		Key:       r.opt("key"),
		Value:     r.opt("value"),
	}
	return r.err
}

// Command returns the request with this header, for one of the codes above.
func (h *KVHeader) Command(code int32) *Command {
	var b builder
	b.text("namespace", h.Namespace)
	b.text("key", h.Key)
	b.text("value", h.Value)
	return b.command(code)
}

// NamespaceHeader is GET_KVLIST_BY_NAMESPACE (219).
type NamespaceHeader struct {
	Namespace string
}

// Decode reads the header; the error is a *FieldError.
func (h *NamespaceHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = NamespaceHeader{
		Namespace: r.need("namespace"),
	}
	return r.err
}

// Command returns the request.
func (h *NamespaceHeader) Command() *Command {
	var b builder
	b.text("namespace", h.Namespace)
	return b.command(ReqGetKVListByNamespace)
}

// BrokerNameHeader is the header of WIPE_WRITE_PERM_OF_BROKER (205) and
// ADD_WRITE_PERM_OF_BROKER (327).
type BrokerNameHeader struct {
	BrokerName string
}

// Decode reads the header; the error is a *FieldError.
func (h *BrokerNameHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = BrokerNameHeader{
		BrokerName: r.need("brokerName"),
	}
	return r.err
}

// Command returns the request with this header, for one of the codes above.
func (h *BrokerNameHeader) Command(code int32) *Command {
	var b builder
	b.text("brokerName", h.BrokerName)
	return b.command(code)
}

// DeleteTopicInNamesrvHeader is DELETE_TOPIC_IN_NAMESRV (216).
type DeleteTopicInNamesrvHeader struct {
	Topic       string
	ClusterName string
}

// Decode reads the header; the error is a *FieldError.
func (h *DeleteTopicInNamesrvHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = DeleteTopicInNamesrvHeader{
		Topic:       r.need("topic"),
		ClusterName: r.opt("clusterName"),
	}
	return r.err
}

// Command returns the request.
func (h *DeleteTopicInNamesrvHeader) Command() *Command {
	var b builder
	b.text("topic", h.Topic)
	b.text("clusterName", h.ClusterName)
	return b.command(ReqDeleteTopicInNamesrv)
}

// ClusterHeader is GET_TOPICS_BY_CLUSTER (224).
type ClusterHeader struct {
	Cluster string
}

// Decode reads the header; the error is a *FieldError.
func (h *ClusterHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = ClusterHeader{
		Cluster: r.need("cluster"),
	}
	return r.err
}

// Command returns the request.
func (h *ClusterHeader) Command() *Command {
	var b builder
	b.text("cluster", h.Cluster)
	return b.command(ReqGetTopicsByCluster)
}

// BrokerMemberGroupHeader is GET_BROKER_MEMBER_GROUP (901).
type BrokerMemberGroupHeader struct {
	ClusterName string
	BrokerName  string
}

// Decode reads the header; the error is a *FieldError.
func (h *BrokerMemberGroupHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = BrokerMemberGroupHeader{
		ClusterName: r.need("clusterName"),
		BrokerName:  r.need("brokerName"),
	}
	return r.err
}

// Command returns the request.
func (h *BrokerMemberGroupHeader) Command() *Command {
	var b builder
	b.text("clusterName", h.ClusterName)
	b.text("brokerName", h.BrokerName)
	return b.command(ReqGetBrokerMemberGroup)
}

// MinBrokerIDChangeHeader is NOTIFY_MIN_BROKER_ID_CHANGE (905).
type MinBrokerIDChangeHeader struct {
	MinBrokerID       int64 // -1 when absent
	BrokerName        string
	MinBrokerAddr     string
	OfflineBrokerAddr string
	HABrokerAddr      string
}

// Decode reads the header; the error is a *FieldError.
func (h *MinBrokerIDChangeHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = MinBrokerIDChangeHeader{
		MinBrokerID:       r.optInt64("minBrokerId", -1),
		BrokerName:        r.opt("brokerName"),
		MinBrokerAddr:     r.opt("minBrokerAddr"),
		OfflineBrokerAddr: r.opt("offlineBrokerAddr"),
		HABrokerAddr:      r.opt("haBrokerAddr"),
	}
	return r.err
}

// Command returns the request.
func (h *MinBrokerIDChangeHeader) Command() *Command {
	var b builder
	if h.MinBrokerID != -1 {
		b.int("minBrokerId", h.MinBrokerID)
	}
	b.text("brokerName", h.BrokerName)
	b.text("minBrokerAddr", h.MinBrokerAddr)
	b.text("offlineBrokerAddr", h.OfflineBrokerAddr)
	b.text("haBrokerAddr", h.HABrokerAddr)
	return b.command(ReqNotifyMinBrokerIDChange)
}

// RegisterBrokerReply is what a registration is answered with; both are empty for
// a master.
type RegisterBrokerReply struct {
	HAServerAddr string
	MasterAddr   string
}

// Decode reads the fields of an answer to a registration.
func (h *RegisterBrokerReply) Decode(c *Command) error {
	*h = RegisterBrokerReply{HAServerAddr: c.GetString("haServerAddr"), MasterAddr: c.GetString("masterAddr")}
	return nil
}

// Write adds the fields to an answer.
func (h *RegisterBrokerReply) Write(w *ReplyWriter) {
	if h.HAServerAddr != "" {
		w.String("haServerAddr", h.HAServerAddr)
	}
	if h.MasterAddr != "" {
		w.String("masterAddr", h.MasterAddr)
	}
}
