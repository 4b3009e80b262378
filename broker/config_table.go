package broker

import (
	"math"

	"github.com/ringmq/ringmq/internal/config"
)

// ConfigTable has a row for every property name that an Apache 5.3.3 broker
// knows, and for ringmq's own. Rows that act are bound to the fields of Config
// by name; docs/config.md is printed from it.
var ConfigTable = config.New("broker", Config{}, concat(
	section("Identity", identityKeys),
	section("Network", networkKeys),
	section("Registration with NameServers", registerKeys),
	section("Topics and groups", topicKeys),
	section("Clients", clientKeys),
	section("Sends", sendKeys),
	section("Pulls and queries", pullKeys),
	section("Delayed delivery", scheduleKeys),
	section("Transactions", transactionKeys),
	section("Pop consumption", popKeys),
	section("Store files", storeKeys),
	section("Flush", flushKeys),
	section("Retention", retentionKeys),
	section("ringmq's own bounds", limitKeys),
	section("Protection and semantics that do not exist yet", refusedKeys),
	section("Without effect", noEffectKeys),
))

func concat(lists ...[]config.Key) []config.Key {
	var out []config.Key
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func section(name string, keys []config.Key) []config.Key {
	for i := range keys {
		keys[i].Section = name
	}
	return keys
}

// The helpers below make rows that act; live and important mark them.

func text(name, def, meaning string, enum ...string) config.Key {
	return config.Key{Name: name, Kind: config.String, Default: def, Meaning: meaning, Enum: enum}
}

func boolean(name, def, meaning string) config.Key {
	return config.Key{Name: name, Kind: config.Bool, Default: def, Meaning: meaning}
}

func number(name, unit, def string, low, high int64, meaning string) config.Key {
	return config.Key{Name: name, Kind: config.Int, Unit: unit, Default: def, Min: low, Max: high, Meaning: meaning}
}

func duration(name, unit, def string, low, high int64, meaning string) config.Key {
	return config.Key{Name: name, Kind: config.Duration, Unit: unit, Default: def, Min: low, Max: high, Meaning: meaning}
}

func found(k config.Key, how string) config.Key { k.DefaultDoc = how; return k }
func live(k config.Key) config.Key              { k.RunTime = true; return k }
func important(k config.Key) config.Key         { k.Important = true; return k }

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30

	maxInt32 = math.MaxInt32
	maxInt64 = math.MaxInt64
	dayMs    = 24 * 3600 * 1000
)

var identityKeys = []config.Key{
	important(text("brokerClusterName", "DefaultCluster", "name of the cluster; also of one of its topics")),
	important(found(text("brokerName", "", "name of the group of brokers that hold the same messages"), "local host name")),
	important(number("brokerId", "", "0", 0, maxInt64, "0 is the master. Slaves are refused until replication exists")),
	important(refused("brokerRole", config.String, "ASYNC_MASTER", "master or slave, and whether a master waits for one", noSlaves, "ASYNC_MASTER")),
}

var networkKeys = []config.Key{
	text("bindAddress", "0.0.0.0", "address to listen on; 0.0.0.0 is all addresses, IPv6 included"),
	important(number("listenPort", "", "10911", 3, 65535, "port for clients; listenPort-2 serves the same requests")),
	found(number("haListenPort", "", "0", 0, 65535, "replication port told to NameServers; nothing listens there yet"), "listenPort+1"),
	important(found(text("brokerIP1", "", "address told to clients and stored in every message"), "first address of this host that others can reach, as Apache chooses it")),
	found(text("brokerIP2", "", "address told to slaves"), "brokerIP1"),
	number("serverChannelMaxIdleTimeSeconds", "s", "120", 1, maxInt32, "a connection that neither sent nor received for so long is closed"),
}

var registerKeys = []config.Key{
	important(found(text("namesrvAddr", "", "NameServers, host:port separated by `;`; all are told"), "environment NAMESRV_ADDR")),
	live(number("brokerPermission", "", "6", 0, 7, "sum of 2 write and 4 read; what is missing is refused and taken out of the routes")),
	duration("registerNameServerPeriod", "ms", "30000", 1, dayMs, "between full registrations; always kept within 10000 and 60000"),
	live(number("registerBrokerTimeoutMills", "ms", "24000", 1, dayMs, "patience with one NameServer")),
	live(boolean("forceRegister", "true", "false: first ask whether the NameServer's data is old")),
	live(boolean("enableSplitRegistration", "false", "register many topics in several requests")),
	live(number("splitRegistrationSize", "topics", "800", 1, maxInt32, "topics of one request under enableSplitRegistration")),
}

var topicKeys = []config.Key{
	important(live(boolean("autoCreateTopicEnable", "true", "the first send creates its topic"))),
	number("defaultTopicQueueNums", "queues", "8", 1, 65535, "most queues of a topic created so"),
	boolean("clusterTopicEnable", "true", "clients may use the topic named like the cluster"),
	boolean("brokerTopicEnable", "true", "clients may use the topic named like the broker"),
	important(live(boolean("autoCreateSubscriptionGroup", "true", "an unknown consumer group is created when it is used"))),
	boolean("traceTopicEnable", "false", "create the topic for message traces at start"),
	text("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "its name"),
}

var clientKeys = []config.Key{
	live(boolean("notifyConsumerIdsChangedEnable", "true", "tell a group's consumers when one joins or leaves")),
	duration("channelExpiredTimeout", "ms", "120000", 1, dayMs, "clients that sent no heartbeat for so long are dropped"),
	duration("filterDataCleanTimeSpan", "ms", "86400000", 1, 1000*dayMs, "how long the expression of a group without consumers is kept, in consumerFilter.json"),
}

var sendKeys = []config.Key{
	important(live(number("maxMessageSize", "bytes", "4194304", 1, 15*mib, "largest body of a message or batch"))),
	live(text("regionId", "DefaultRegion", "stamped on messages and on answers to sends")),
	live(boolean("traceOn", "true", "stamped likewise: clients may send traces")),
	live(boolean("storeReplyMessageEnable", "true", "keep replies of request-reply in the topic they name, beside pushing them to the requester")),
	live(number("startAcceptSendRequestTimeStamp", "ms", "0", 0, maxInt64, "Unix time before which sends are refused")),
}

var pullKeys = []config.Key{
	live(boolean("longPollingEnable", "true", "hold a pull that finds nothing for as long as the client asks")),
	live(number("shortPollingTimeMills", "ms", "1000", 0, dayMs, "how long it is held otherwise")),
	important(live(boolean("enablePropertyFilter", "true", "serve subscriptions by SQL92 expression; Apache's default is false"))),
	live(boolean("litePullMessageEnable", "true", "serve lite pull consumers (request 361)")),
	live(number("maxTransferBytesOnMessageInMemory", "bytes", "262144", 1, 16*mib, "most bytes of one pull's answer, the first message apart")),
	live(number("maxTransferCountOnMessageInMemory", "messages", "32", 1, 65535, "most messages of one pull's answer")),
	live(number("maxTransferBytesOnMessageInDisk", "bytes", "65536", 1, 16*mib, "the same where the messages must come from the disk")),
	live(number("maxTransferCountOnMessageInDisk", "messages", "8", 1, 65535, "the same where the messages must come from the disk")),
	live(boolean("enableBroadcastOffsetStore", "true", "remember how far broadcast clients behind proxies have pulled")),
	live(duration("broadcastOffsetExpireSecond", "s", "120", 1, dayMs/1000, "a client behind a proxy that has not pulled for so long is forgotten")),
	boolean("useServerSideResetOffset", "true", "a reset of offsets waits here for each queue's next pull, online or not; false: consumers online are told (request 220)"),
	live(number("defaultQueryMaxNum", "messages", "32", 1, 65535, "most messages of one query by key")),
	live(number("maxMsgsNumBatch", "messages", "64", 1, 65535, "most index entries of one query by key")),
}

var scheduleKeys = []config.Key{
	live(text("messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "delays of levels 1, 2, …; also the waits before redeliveries. What waits already keeps its time")),
	live(boolean("timerWheelEnable", "true", "false: refuse messages that carry a time of their own")),
	important(live(number("timerMaxDelaySec", "s", "31536000", 1, 100*365*24*3600, "longest time ahead that such a message may name; Apache's default is 259200"))),
	number("timerRollWindowSlot", "s", "172800", 60, 604740, "age at which a message that still waits is copied to the end of the log, so that it doesn't expire; half of fileReservedTime at most"),
	live(boolean("recallMessageEnable", "false", "producers may take back such messages (request 370)")),
	live(boolean("allowRecallWhenBrokerNotWriteable", "true", "also while brokerPermission forbids to send")),
}

var transactionKeys = []config.Key{
	live(duration("transactionTimeOut", "ms", "6000", 0, 365*dayMs, "age at which a half message's producer is asked for its decision, unless the message says CHECK_IMMUNITY_TIME_IN_SECONDS")),
	live(number("transactionCheckMax", "checks", "15", 0, maxInt32, "after so many without a decision the message goes to TRANS_CHECK_MAX_TIME_TOPIC")),
	duration("transactionCheckInterval", "ms", "30000", 1, dayMs, "between rounds of checks"),
	live(number("transactionOpMsgMaxSize", "bytes", "4096", 32, mib, "size at which the record of decided half messages is written at once")),
	live(duration("transactionOpBatchInterval", "ms", "3000", 0, dayMs, "and how long it gathers them otherwise; a decision whose answer is waited for needs neither")),
	live(boolean("rejectTransactionMessage", "false", "refuse half messages")),
}

var popKeys = []config.Key{
	live(number("popPollingSize", "requests", "1024", 0, maxInt32, "pops held at once for one topic, group and queueId; above it they are answered POLLING_FULL")),
	live(number("maxPopPollingSize", "requests", "100000", 0, maxInt32, "pops and notifications held at once")),
	live(number("popFromRetryProbability", "%", "20", 0, 100, "pops that look for failed messages first; the others look for them last")),
	live(boolean("enableRetryTopicV2", "false", "failed messages go to `%RETRY%group+topic` instead of `%RETRY%group_topic`")),
	live(boolean("retrieveMessageFromPopRetryTopicV1", "true", "with enableRetryTopicV2, pop what is left on the other one too")),
	live(boolean("popResponseReturnActualRetryTopic", "false", "failed messages come with the name of their retry topic instead of their own")),
	live(boolean("enablePopMessageThreshold", "false", "obey popInflightMessageThreshold")),
	live(number("popInflightMessageThreshold", "messages", "10000", 1, maxInt32, "unacknowledged messages of one group and queue above which nothing is popped of it")),
	live(boolean("initPopOffsetByCheckMsgInMem", "true", "a new group that wants the newest messages gets all of a queue whose first one is still in memory")),
	live(boolean("serverLoadBalancerEnable", "true", "share queues out to consumers that ask the broker; false: each of them gets all")),
	live(text("defaultMessageRequestMode", "PULL", "how consumers that ask the broker for their queues get messages, unless it was set for their group by request 401", "PULL", "POP")),
	live(number("defaultPopShareQueueNum", "consumers", "-1", -1, maxInt32, "with it POP, how many further consumers pop each queue; 0 or less: all")),
	live(duration("loadBalancePollNameServerInterval", "ms", "30000", 1, dayMs, "age at which the route of a topic whose queues are shared out is asked for again")),
}

var storeKeys = []config.Key{
	important(found(text("storePathRootDir", "", "directory of everything the broker keeps; each broker needs its own"), "$HOME/store, under `ringmq server` ./data/store")),
	found(text("storePathCommitLog", "", "directory of the CommitLog, if it has a disk of its own"), "storePathRootDir/commitlog"),
	number("mappedFileSizeCommitLog", "bytes", "1073741824", 64*kib, 2*gib-1, "size of a CommitLog segment; must not change over a store's life"),
	number("mappedFileSizeConsumeQueue", "bytes", "6000000", 20, gib, "size of a ConsumeQueue file, rounded up to whole entries of 20; must not change over a store's life"),
	number("maxHashSlotNum", "slots", "5000000", 1, 100_000_000, "hash slots of an index file; must not change over a store's life"),
	number("maxIndexNum", "entries", "20000000", 2, 400_000_000, "entries of an index file; must not change over a store's life"),
	live(boolean("messageIndexEnable", "true", "index messages by key")),
	number("mapperFileSizeBatchConsumeQueue", "bytes", "13800000", 46, gib, "size of a file of batch ConsumeQueues, which topics with queue.type=BatchCQ have; rounded up to whole units of 46; must not change over a store's life"),
	number("consumeQueueOpenFilesMax", "files", "4096", 16, maxInt32, "ConsumeQueue files kept open at once"),
	number("consumeQueueTailBytesMax", "bytes", "67108864", mib, 64*gib, "ConsumeQueue entries of all queues kept in memory for consumers that keep up"),
}

var flushKeys = []config.Key{
	important(text("flushDiskType", "ASYNC_FLUSH", "SYNC_FLUSH: a send is answered when it is on the disk; ASYNC_FLUSH: when it is written", "ASYNC_FLUSH", "SYNC_FLUSH")),
	live(duration("syncFlushTimeout", "ms", "5000", 1, dayMs, "a send that waits longer for the disk is answered FLUSH_DISK_TIMEOUT")),
	live(duration("flushIntervalCommitLog", "ms", "500", 1, dayMs, "longest time between syncs of the log under ASYNC_FLUSH")),
	live(duration("flushIntervalConsumeQueue", "ms", "1000", 1, dayMs, "between sweeps of ConsumeQueues and index to the disk")),
	important(text("flushEngine", "auto", "how the log is written and synced; auto measures both here and takes io_uring where it is at least 10 % faster", "auto", "syscall", "io_uring")),
	number("dirtyBytesMax", "bytes", "67108864", mib, 64*gib, "written and not yet synced bytes of the log under ASYNC_FLUSH at which a sync starts at once; beyond four times as many sends are answered SYSTEM_BUSY"),
}

var retentionKeys = []config.Key{
	important(live(text("deleteWhen", "04", "hours of the day at which expired segments are deleted, separated by `;`"))),
	important(live(duration("fileReservedTime", "h", "72", 1, 24*365*100, "age at which a segment expires"))),
	live(number("deleteFileBatchMax", "files", "10", 1, maxInt32, "most files deleted in one pass")),
	live(duration("deleteCommitLogFilesInterval", "ms", "100", 0, dayMs, "between two deletions of a pass")),
	duration("cleanResourceInterval", "ms", "10000", 1, dayMs, "between passes"),
	live(boolean("cleanFileForciblyEnable", "true", "above diskSpaceCleanForciblyRatio delete the oldest segments, expired or not")),
	live(number("diskMaxUsedSpaceRatio", "%", "75", 1, 100, "use of the disk at which expired segments are deleted at any hour")),
	live(number("diskSpaceCleanForciblyRatio", "%", "85", 1, 100, "see cleanFileForciblyEnable; 85 at most, whatever is set")),
	live(number("diskSpaceWarningLevelRatio", "%", "90", 1, 100, "use of the disk at which sends are refused until space returns; 90 at most, whatever is set")),
	live(number("diskFreeBytesMin", "bytes", "0", 0, maxInt64, "bytes that must stay free on the disk: fewer, and sends are refused until space returns; below twice that the oldest segments go, expired or not (cleanFileForciblyEnable). 0: only the ratios count")),
	number("scrubBytesPerSecond", "bytes", "4194304", 0, 64*gib, "how fast stored messages are read again in the background and their CRCs checked, at lowest priority; 0: never"),
	duration("scrubInterval", "h", "24", 1, 24*365, "from the beginning of one such round through the log to the next"),
	number("diskReserveBytes", "bytes", "8388608", 0, 64*gib, "kept in the file ringmq.reserve and given up when the disk is full, so that what keeps the store consistent can be written; 0: none"),
}

var limitKeys = []config.Key{
	number("maxBytesInFlight", "bytes", "67108864", mib, 64*gib, "messages taken from producers and not yet answered; above it sends are answered SYSTEM_BUSY"),
	number("connInboundBytesMax", "bytes", "33554432", 128*kib, gib, "undecoded bytes held for one connection; above it the connection is closed"),
	number("connOutboundBytesMax", "bytes", "33554432", 128*kib, gib, "unsent bytes held for one connection; above half of it its requests wait, above it the connection is closed"),
	number("connTotalBytesMax", "bytes", "268435456", mib, 64*gib, "both, over all connections"),
	number("frameBytesMax", "bytes", "16777216", 64*kib, 16*mib, "largest frame; a connection that announces a larger one is closed"),
	found(number("eventLoops", "loops", "0", 0, 1024, "event loops of the network"), "half of the CPUs the process may use"),
	number("poolWorkers", "goroutines", "16", 1, 4096, "requests served at once beside the event loops, because they may wait for the disk; at most half of them read for consumers that catch up"),
	number("poolQueueMax", "requests", "10000", 1, maxInt32, "requests that wait for one of them; above it they are answered SYSTEM_BUSY"),
	important(text("logLevel", "info", "least level of the log on standard error", "debug", "info", "warn", "error")),
}
