package broker

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/internal/config"
)

// Config is everything a broker can be told. Fields are RocketMQ's property
// names with a capital; times are time.Duration except where the name itself
// ends in a unit (Mills, Seconds). What each key means, its default and its
// bounds are in the table of config_table.go.
//
// A Config is plain data. DefaultConfig and LoadConfig make one; Complete
// fills what depends on other keys or on the host.
type Config struct {
	// Identity of this broker in its cluster.
	BrokerClusterName string `key:"brokerClusterName"`
	BrokerName        string `key:"brokerName"`
	BrokerId          int64  `key:"brokerId"` // 0: master; others are refused until replication exists

	NetConfig
	RegisterConfig
	TopicsConfig
	ClientsConfig
	SendConfig
	PullConfig
	ScheduleConfig
	TransactionConfig
	PopConfig
	StoreConfig
	FlushConfig
	RetentionConfig
	LimitsConfig

	LogLevel string `key:"logLevel"` // debug, info, warn, error

	// Given is what was set explicitly, by key.
	Given config.Given
	// BrokerIP1Reason says in words how BrokerIP1 was found, where it was not set.
	BrokerIP1Reason string
}

// NetConfig is where the broker listens and which addresses it tells others.
type NetConfig struct {
	BindAddress                     string `key:"bindAddress"` // 0.0.0.0 means all addresses of both families
	ListenPort                      int    `key:"listenPort"`  // listenPort-2 is served too
	HaListenPort                    int    `key:"haListenPort"`
	BrokerIP1                       string `key:"brokerIP1"` // told to clients and stored as storeHost
	BrokerIP2                       string `key:"brokerIP2"` // told to slaves
	ServerChannelMaxIdleTimeSeconds int64  `key:"serverChannelMaxIdleTimeSeconds"`
}

// RegisterConfig is how the broker tells NameServers about itself.
type RegisterConfig struct {
	NamesrvAddr                string        `key:"namesrvAddr"` // `;` list; see Config.NamesrvAddrs
	BrokerPermission           int           `key:"brokerPermission"`
	RegisterNameServerPeriod   time.Duration `key:"registerNameServerPeriod"`
	RegisterBrokerTimeoutMills int64         `key:"registerBrokerTimeoutMills"`
	ForceRegister              bool          `key:"forceRegister"`
	EnableSplitRegistration    bool          `key:"enableSplitRegistration"`
	SplitRegistrationSize      int           `key:"splitRegistrationSize"`
}

// TopicsConfig is which topics and groups exist without being created.
type TopicsConfig struct {
	AutoCreateTopicEnable       bool   `key:"autoCreateTopicEnable"`
	DefaultTopicQueueNums       int    `key:"defaultTopicQueueNums"`
	ClusterTopicEnable          bool   `key:"clusterTopicEnable"`
	BrokerTopicEnable           bool   `key:"brokerTopicEnable"`
	AutoCreateSubscriptionGroup bool   `key:"autoCreateSubscriptionGroup"`
	TraceTopicEnable            bool   `key:"traceTopicEnable"`
	MsgTraceTopicName           string `key:"msgTraceTopicName"`
}

// ClientsConfig is how producers and consumers are kept and told.
type ClientsConfig struct {
	NotifyConsumerIdsChangedEnable bool          `key:"notifyConsumerIdsChangedEnable"`
	ChannelExpiredTimeout          time.Duration `key:"channelExpiredTimeout"`
	FilterDataCleanTimeSpan        time.Duration `key:"filterDataCleanTimeSpan"`
}

// SendConfig is what is accepted from producers.
type SendConfig struct {
	MaxMessageSize                  int    `key:"maxMessageSize"` // bytes of a body
	RegionId                        string `key:"regionId"`
	TraceOn                         bool   `key:"traceOn"`
	StoreReplyMessageEnable         bool   `key:"storeReplyMessageEnable"`
	StartAcceptSendRequestTimeStamp int64  `key:"startAcceptSendRequestTimeStamp"` // Unix time
}

// PullConfig is how consumers and queries are answered.
type PullConfig struct {
	LongPollingEnable                 bool          `key:"longPollingEnable"`
	ShortPollingTimeMills             int64         `key:"shortPollingTimeMills"`
	LitePullMessageEnable             bool          `key:"litePullMessageEnable"`
	EnablePropertyFilter              bool          `key:"enablePropertyFilter"` // SQL92
	MaxTransferBytesOnMessageInMemory int           `key:"maxTransferBytesOnMessageInMemory"`
	MaxTransferCountOnMessageInMemory int           `key:"maxTransferCountOnMessageInMemory"`
	MaxTransferBytesOnMessageInDisk   int           `key:"maxTransferBytesOnMessageInDisk"`
	MaxTransferCountOnMessageInDisk   int           `key:"maxTransferCountOnMessageInDisk"`
	UseServerSideResetOffset          bool          `key:"useServerSideResetOffset"`
	EnableBroadcastOffsetStore        bool          `key:"enableBroadcastOffsetStore"`
	BroadcastOffsetExpireSecond       time.Duration `key:"broadcastOffsetExpireSecond"`
	DefaultQueryMaxNum                int           `key:"defaultQueryMaxNum"`
	MaxMsgsNumBatch                   int           `key:"maxMsgsNumBatch"`
}

// ScheduleConfig is delayed delivery, by level and at any time.
type ScheduleConfig struct {
	MessageDelayLevel                 string `key:"messageDelayLevel"` // see Config.DelayLevels
	TimerWheelEnable                  bool   `key:"timerWheelEnable"`
	TimerMaxDelaySec                  int64  `key:"timerMaxDelaySec"`
	TimerRollWindowSlot               int64  `key:"timerRollWindowSlot"` // seconds
	RecallMessageEnable               bool   `key:"recallMessageEnable"`
	AllowRecallWhenBrokerNotWriteable bool   `key:"allowRecallWhenBrokerNotWriteable"`
}

// TransactionConfig is when producers are asked for decisions, and how these
// are written down.
type TransactionConfig struct {
	TransactionTimeOut         time.Duration `key:"transactionTimeOut"`
	TransactionCheckMax        int           `key:"transactionCheckMax"`
	TransactionCheckInterval   time.Duration `key:"transactionCheckInterval"`
	TransactionOpMsgMaxSize    int           `key:"transactionOpMsgMaxSize"`
	TransactionOpBatchInterval time.Duration `key:"transactionOpBatchInterval"`
	RejectTransactionMessage   bool          `key:"rejectTransactionMessage"`
}

// PopConfig is pop consumption, and who shares out the queues.
type PopConfig struct {
	PopPollingSize                     int           `key:"popPollingSize"`    // of one topic, group and queueId
	MaxPopPollingSize                  int           `key:"maxPopPollingSize"` // of all
	PopFromRetryProbability            int           `key:"popFromRetryProbability"`
	EnableRetryTopicV2                 bool          `key:"enableRetryTopicV2"`
	RetrieveMessageFromPopRetryTopicV1 bool          `key:"retrieveMessageFromPopRetryTopicV1"`
	PopResponseReturnActualRetryTopic  bool          `key:"popResponseReturnActualRetryTopic"`
	EnablePopMessageThreshold          bool          `key:"enablePopMessageThreshold"`
	PopInflightMessageThreshold        int           `key:"popInflightMessageThreshold"` // of one group and queue
	InitPopOffsetByCheckMsgInMem       bool          `key:"initPopOffsetByCheckMsgInMem"`
	ServerLoadBalancerEnable           bool          `key:"serverLoadBalancerEnable"`
	DefaultMessageRequestMode          string        `key:"defaultMessageRequestMode"` // PULL or POP
	DefaultPopShareQueueNum            int           `key:"defaultPopShareQueueNum"`
	LoadBalancePollNameServerInterval  time.Duration `key:"loadBalancePollNameServerInterval"`
}

// StoreConfig is the files of the store.
type StoreConfig struct {
	StorePathRootDir           string `key:"storePathRootDir"`
	StorePathCommitLog         string `key:"storePathCommitLog"`
	MappedFileSizeCommitLog    int64  `key:"mappedFileSizeCommitLog"`
	MappedFileSizeConsumeQueue int64  `key:"mappedFileSizeConsumeQueue"`      // a multiple of 20
	BatchConsumeQueueBytes     int64  `key:"mapperFileSizeBatchConsumeQueue"` // a multiple of 46
	MaxHashSlotNum             int    `key:"maxHashSlotNum"`
	MaxIndexNum                int    `key:"maxIndexNum"`
	MessageIndexEnable         bool   `key:"messageIndexEnable"`
	ConsumeQueueOpenFilesMax   int    `key:"consumeQueueOpenFilesMax"`
	ConsumeQueueTailBytesMax   int64  `key:"consumeQueueTailBytesMax"` // of all queues
}

// FlushConfig is when and how bytes reach the disk.
type FlushConfig struct {
	FlushDiskType             string        `key:"flushDiskType"` // SYNC_FLUSH or ASYNC_FLUSH
	SyncFlushTimeout          time.Duration `key:"syncFlushTimeout"`
	FlushIntervalCommitLog    time.Duration `key:"flushIntervalCommitLog"`    // ASYNC_FLUSH
	FlushIntervalConsumeQueue time.Duration `key:"flushIntervalConsumeQueue"` // between sweeps
	FlushEngine               string        `key:"flushEngine"`               // auto, syscall, io_uring
	DirtyBytesMax             int64         `key:"dirtyBytesMax"`             // ASYNC_FLUSH
}

// Sync tells whether a send is answered only when it is on the disk.
func (c FlushConfig) Sync() bool { return c.FlushDiskType == "SYNC_FLUSH" }

// RetentionConfig is what may be deleted, and when.
type RetentionConfig struct {
	DeleteWhen                   string        `key:"deleteWhen"` // hours, `;` list; see Config.DeleteHours
	FileReservedTime             time.Duration `key:"fileReservedTime"`
	DeleteFileBatchMax           int           `key:"deleteFileBatchMax"`
	DeleteCommitLogFilesInterval time.Duration `key:"deleteCommitLogFilesInterval"`
	CleanResourceInterval        time.Duration `key:"cleanResourceInterval"`
	CleanFileForciblyEnable      bool          `key:"cleanFileForciblyEnable"`
	DiskMaxUsedSpaceRatio        int           `key:"diskMaxUsedSpaceRatio"`
	DiskSpaceCleanForciblyRatio  int           `key:"diskSpaceCleanForciblyRatio"`
	DiskSpaceWarningLevelRatio   int           `key:"diskSpaceWarningLevelRatio"`
	DiskFreeBytesMin             int64         `key:"diskFreeBytesMin"`
	DiskReserveBytes             int64         `key:"diskReserveBytes"`
	ScrubBytesPerSecond          int64         `key:"scrubBytesPerSecond"`
	ScrubInterval                time.Duration `key:"scrubInterval"`
}

// LimitsConfig is ringmq's own bounds.
type LimitsConfig struct {
	BytesInFlightMax     int64 `key:"maxBytesInFlight"`     // taken from producers and not yet answered
	ConnInboundBytesMax  int   `key:"connInboundBytesMax"`  // undecoded, of one connection
	ConnOutboundBytesMax int   `key:"connOutboundBytesMax"` // unsent, of one connection
	ConnTotalBytesMax    int64 `key:"connTotalBytesMax"`    // both, of all connections
	FrameBytesMax        int   `key:"frameBytesMax"`
	EventLoops           int   `key:"eventLoops"`   // 0: netloop's choice
	PoolWorkers          int   `key:"poolWorkers"`  // goroutines for requests that may wait for the disk
	PoolQueueMax         int   `key:"poolQueueMax"` // requests waiting for one of them
}

// DefaultConfig returns the defaults, completed. A test sets StorePathRootDir,
// clears StorePathCommitLog and calls Complete again.
func DefaultConfig() Config {
	var c Config
	ConfigTable.SetDefaults(&c)
	c.Complete()
	return c
}

// LoadConfig makes a complete, checked Config of settings, the last one of a
// key winning. The error names every refused setting with its place; see
// config.Table.Load.
func LoadConfig(settings []config.Setting) (Config, []config.Warning, error) {
	var c Config
	warnings, err := ConfigTable.Load(&c, settings)
	c.Complete()
	return c, warnings, errors.Join(err, c.Validate())
}

// Complete fills every field that is still empty and is derived from another
// one or from the host: brokerName, addresses, haListenPort, directories. What
// is set stays.
func (c *Config) Complete() {
	if c.BrokerName == "" {
		c.BrokerName = hostName()
	}
	if c.HaListenPort == 0 && c.ListenPort != 0 {
		c.HaListenPort = c.ListenPort + 1
	}
	if c.BrokerIP1 == "" {
		c.BrokerIP1, c.BrokerIP1Reason = localAddress()
	}
	if c.BrokerIP2 == "" {
		c.BrokerIP2 = c.BrokerIP1
	}
	if c.StorePathRootDir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = "."
		}
		c.StorePathRootDir = filepath.Join(home, "store")
	}
	if c.StorePathCommitLog == "" {
		c.StorePathCommitLog = filepath.Join(c.StorePathRootDir, "commitlog")
	}
	if rest := c.MappedFileSizeConsumeQueue % 20; rest != 0 {
		c.MappedFileSizeConsumeQueue += 20 - rest // as Java: whole entries
	}
	if rest := c.BatchConsumeQueueBytes % consumequeue.BatchUnitBytes; rest != 0 {
		c.BatchConsumeQueueBytes += consumequeue.BatchUnitBytes - rest
	}
	// As Java's broker: the NameServer forgets a broker after two minutes.
	c.RegisterNameServerPeriod = min(max(c.RegisterNameServerPeriod, 10*time.Second), 60*time.Second)
	// As Java's store: these two never go above 90 and 85 whatever is set.
	c.DiskSpaceWarningLevelRatio = min(c.DiskSpaceWarningLevelRatio, 90)
	c.DiskSpaceCleanForciblyRatio = min(c.DiskSpaceCleanForciblyRatio, 85)
}

// Validate refuses what each key alone cannot show to be senseless. The
// errors wrap config.ErrRefused.
func (c *Config) Validate() error {
	var errs []error
	refuse := func(key, got, want string) {
		s, ok := c.Given[key]
		if !ok {
			s = config.Setting{Key: key}
		}
		s.Value = got
		errs = append(errs, &config.KeyError{Setting: s, Want: want})
	}
	if c.BrokerId != 0 {
		refuse("brokerId", fmt.Sprint(c.BrokerId), "0, the master: "+noSlaves)
	}
	if _, err := c.NamesrvAddrs(); err != nil {
		refuse("namesrvAddr", c.NamesrvAddr, err.Error())
	}
	if _, err := c.DeleteHours(); err != nil {
		refuse("deleteWhen", c.DeleteWhen, err.Error())
	}
	if _, err := c.DelayLevels(); err != nil {
		refuse("messageDelayLevel", c.MessageDelayLevel, err.Error())
	}
	for _, a := range []struct{ key, value string }{{"brokerIP1", c.BrokerIP1}, {"brokerIP2", c.BrokerIP2}} {
		if a.value == "" || strings.ContainsAny(a.value, " ;,/") {
			refuse(a.key, a.value, "one address or host name without a port")
		}
	}
	if _, err := netip.ParseAddr(c.BindAddress); err != nil {
		refuse("bindAddress", c.BindAddress, "an IP address of this host, or 0.0.0.0 for all")
	}
	for _, n := range []struct{ key, value string }{{"brokerName", c.BrokerName}, {"brokerClusterName", c.BrokerClusterName}} {
		if !validName(n.value) {
			refuse(n.key, n.value, "1 to 127 of the characters that topic names may have: letters, digits, %, |, -, _ and, in these names, the point")
		}
	}
	if strings.Contains(c.StorePathCommitLog, ",") {
		refuse("storePathCommitLog", c.StorePathCommitLog, "one directory: several are not supported; join them with a logical volume")
	}
	if limit := c.SendBytesMax(); c.FrameBytesMax < limit {
		refuse("frameBytesMax", fmt.Sprint(c.FrameBytesMax), fmt.Sprintf("at least %d, so that a message of maxMessageSize %d fits", limit, c.MaxMessageSize))
	}
	if limit := c.FrameBytesMax + 64<<10; c.ConnInboundBytesMax < limit {
		refuse("connInboundBytesMax", fmt.Sprint(c.ConnInboundBytesMax), fmt.Sprintf("at least %d, frameBytesMax and one read", limit))
	}
	if limit := int64(max(c.ConnInboundBytesMax, c.ConnOutboundBytesMax)); c.ConnTotalBytesMax < limit {
		refuse("connTotalBytesMax", fmt.Sprint(c.ConnTotalBytesMax), fmt.Sprintf("at least %d, the bounds of one connection", limit))
	}
	if limit := int64(c.MaxMessageSize) + 64<<10 + 8; c.MappedFileSizeCommitLog < limit {
		refuse("mappedFileSizeCommitLog", fmt.Sprint(c.MappedFileSizeCommitLog),
			fmt.Sprintf("at least %d, so that a message of maxMessageSize %d fits", limit, c.MaxMessageSize))
	}
	return errors.Join(errs...)
}

// validName bounds the two names that become topic names. Host names contain
// points, so they are allowed although a client could not create such a topic.
func validName(s string) bool {
	if s == "" || len(s) > 127 || s == "." || s == ".." {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("%|-_.", r):
		default:
			return false
		}
	}
	return true
}

// SendBytesMax bounds one frame of a producer: a body of maxMessageSize, the
// longest properties and room for the header.
func (c *Config) SendBytesMax() int { return c.MaxMessageSize + 64<<10 }

func hostName() string {
	name, err := os.Hostname()
	if err != nil || !validName(name) {
		return "DEFAULT_BROKER" // Java's fallback
	}
	return name
}
