package broker

import "github.com/ringmq/ringmq/internal/config"

// noEffectKeys are the names that Apache 5.3.3 knows and that have no meaning
// here, with its defaults and why. They are accepted, listed by -p, and logged
// once where they differ from the default.
var noEffectKeys = concat(noEffectFeatures, noEffectTuning)

func inert(name string, kind config.Kind, unit, def, why string) config.Key {
	return config.Key{Name: name, Kind: kind, Unit: unit, Default: def, Class: config.NoEffect, Meaning: why}
}

// Why whole groups of keys have no effect.
const (
	whyCompaction           = "compaction does not exist yet; topics that ask for it are refused"
	whyTimers               = "timers need neither wheel, log nor threads; they are due to the millisecond and tried until they succeed"
	whyPopConsumption       = "what is popped is kept in a journal, without checkpoints in a topic, timers or buffers"
	whyTransactionMetrics   = "counts of transactions are found in the store at start, not in a file"
	whyReplication          = "replication and slaves do not exist yet"
	whyControllerAndDLedger = "controller mode and DLedger do not exist here"
	whyMetricsAndTLS        = "the metrics exporter and TLS do not exist yet"
	whyAuthentication       = "authentication does not exist yet"
	whyRocksDB              = "RocksDB is not used"
	whyThreadPools          = "event loops, one log writer and one pool serve all requests; see poolWorkers"
	whyQueueTimes           = "requests are refused by bytes in flight, not by waiting times; see maxBytesInFlight"
	whyNetty                = "tunes Netty; ringmq has its own bounds on connections"
	whyColdReads            = "old messages are read beside the event loops, whatever is set"
	whyFilesAndLocks        = "files are not mapped and one writer needs no lock; see flushIntervalCommitLog"
	whyStatisticsAndLogs    = "concerns statistics or log files that do not exist here"
	whyOther                = "inner workings of Apache's broker"
)

// noEffectFeatures belong to parts of RocketMQ that do not exist here, or not yet.
var noEffectFeatures = []config.Key{
	// Compaction.
	inert("compactionMappedFileSize", config.Int, "bytes", "104857600", whyCompaction),
	inert("compactionCqMappedFileSize", config.Int, "bytes", "10485760", whyCompaction),
	inert("compactionScheduleInternal", config.Int, "", "900000", whyCompaction),
	inert("maxOffsetMapSize", config.Int, "bytes", "104857600", whyCompaction),
	inert("compactionThreadNum", config.Int, "", "6", whyCompaction),
	inert("enableCompaction", config.Bool, "", "true", whyCompaction),

	// Timers.
	inert("timerPrecisionMs", config.Int, "ms", "1000", whyTimers),
	inert("timerFlushIntervalMs", config.Int, "ms", "1000", whyTimers),
	inert("timerGetMessageThreadNum", config.Int, "", "3", whyTimers),
	inert("timerPutMessageThreadNum", config.Int, "", "3", whyTimers),
	inert("timerEnableDisruptor", config.Bool, "", "false", whyTimers),
	inert("timerEnableCheckMetrics", config.Bool, "", "true", whyTimers),
	inert("timerInterceptDelayLevel", config.Bool, "", "false", whyTimers),
	inert("timerStopEnqueue", config.Bool, "", "false", whyTimers),
	inert("timerCheckMetricsWhen", config.String, "", "05", whyTimers),
	inert("timerSkipUnknownError", config.Bool, "", "false", whyTimers),
	inert("timerWarmEnable", config.Bool, "", "false", whyTimers),
	inert("timerStopDequeue", config.Bool, "", "false", whyTimers),
	inert("timerEnableRetryUntilSuccess", config.Bool, "", "false", whyTimers),
	inert("timerCongestNumEachSlot", config.Int, "", "2147483647", whyTimers),
	inert("timerMetricSmallThreshold", config.Int, "", "1000000", whyTimers),
	inert("timerProgressLogIntervalMs", config.Int, "ms", "10000", whyTimers),
	inert("timerColdDataCheckIntervalMs", config.Int, "ms", "60000", whyTimers),

	// Pop consumption.
	inert("loadBalanceProcessorThreadPoolNums", config.Int, "", "32", whyPopConsumption),
	inert("loadBalanceThreadPoolQueueCapacity", config.Int, "", "100000", whyPopConsumption),
	inert("popPollingMapSize", config.Int, "", "100000", whyPopConsumption),
	inert("reviveQueueNum", config.Int, "", "8", whyPopConsumption),
	inert("reviveInterval", config.Int, "ms", "1000", whyPopConsumption),
	inert("reviveMaxSlow", config.Int, "", "3", whyPopConsumption),
	inert("reviveScanTime", config.Int, "ms", "10000", whyPopConsumption),
	inert("enableSkipLongAwaitingAck", config.Bool, "", "false", whyPopConsumption),
	inert("reviveAckWaitMs", config.Int, "ms", "180000", whyPopConsumption),
	inert("enablePopLog", config.Bool, "", "false", whyPopConsumption),
	inert("enablePopBufferMerge", config.Bool, "", "false", whyPopConsumption),
	inert("popCkStayBufferTime", config.Int, "ms", "10000", whyPopConsumption),
	inert("popCkStayBufferTimeOut", config.Int, "ms", "3000", whyPopConsumption),
	inert("popCkMaxBufferSize", config.Int, "", "200000", whyPopConsumption),
	inert("popCkOffsetMaxQueueSize", config.Int, "", "20000", whyPopConsumption),
	inert("enablePopBatchAck", config.Bool, "", "false", whyPopConsumption),
	inert("popLongPollingForceNotifyInterval", config.Int, "ms", "800", whyPopConsumption),
	inert("enableNotifyBeforePopCalculateLag", config.Bool, "", "true", whyPopConsumption),
	inert("enableNotifyAfterPopOrderLockRelease", config.Bool, "", "true", whyPopConsumption),
	inert("popConsumerFSServiceInit", config.Bool, "", "true", whyPopConsumption),
	inert("popConsumerKVServiceLog", config.Bool, "", "false", whyPopConsumption),
	inert("popConsumerKVServiceInit", config.Bool, "", "false", whyPopConsumption),
	inert("popReviveMaxReturnSizePerRead", config.Int, "", "16384", whyPopConsumption),
	inert("popReviveMaxAttemptTimes", config.Int, "", "16", whyPopConsumption),
	inert("skipWhenCKRePutReachMaxTimes", config.Bool, "", "false", whyPopConsumption),
	inert("appendAckAsync", config.Bool, "", "false", whyPopConsumption),
	inert("appendCkAsync", config.Bool, "", "false", whyPopConsumption),

	// Transactions.
	inert("transactionMetricFlushInterval", config.Int, "ms", "3000", whyTransactionMetrics),

	// Replication.
	inert("lockInStrictMode", config.Bool, "", "false", "queue locks need a majority of totalReplicas, which is this broker"),
	inert("sendHeartbeatTimeoutMillis", config.Int, "ms", "1000", whyReplication),
	inert("brokerHeartbeatInterval", config.Int, "ms", "1000", whyReplication),
	inert("brokerNotActiveTimeoutMillis", config.Int, "ms", "10000", whyReplication),
	inert("syncBrokerMemberGroupPeriod", config.Int, "ms", "1000", whyReplication),
	inert("cleanOfflineBrokerInterval", config.Int, "ms", "30000", whyReplication),
	inert("skipPreOnline", config.Bool, "", "false", whyReplication),
	inert("compatibleWithOldNameSrv", config.Bool, "", "true", whyReplication),
	inert("disappearTimeAfterStart", config.Int, "", "-1", whyReplication),
	inert("haSendHeartbeatInterval", config.Int, "ms", "5000", whyReplication),
	inert("haHousekeepingInterval", config.Int, "ms", "20000", whyReplication),
	inert("haTransferBatchSize", config.Int, "bytes", "32768", whyReplication),
	inert("haMaxGapNotInSync", config.Int, "", "268435456", whyReplication),
	inert("slaveTimeout", config.Int, "ms", "3000", whyReplication),
	inert("offsetCheckInSlave", config.Bool, "", "false", whyReplication),
	inert("diskFallRecorded", config.Bool, "", "true", whyReplication),
	inert("enableAutoInSyncReplicas", config.Bool, "", "false", whyReplication),
	inert("haFlowControlEnable", config.Bool, "", "false", whyReplication),
	inert("maxHaTransferByteInSecond", config.Int, "s", "104857600", whyReplication),
	inert("haMaxTimeSlaveNotCatchup", config.Int, "ms", "15000", whyReplication),
	inert("syncMasterFlushOffsetWhenStartup", config.Bool, "", "false", whyReplication),
	inert("maxChecksumRange", config.Int, "bytes", "1073741824", whyReplication),
	inert("maxSlaveResendLength", config.Int, "bytes", "268435456", whyReplication),
	inert("syncFromLastFile", config.Bool, "", "false", whyReplication),
	inert("asyncLearner", config.Bool, "", "false", whyReplication),
	inert("isBrokerContainer", config.Bool, "", "false", whyReplication),
	inert("isInBrokerContainer", config.Bool, "", "false", whyReplication),

	// Controller and DLedger.
	inert("controllerAddr", config.String, "", "", whyControllerAndDLedger),
	inert("fetchControllerAddrByDnsLookup", config.Bool, "", "false", whyControllerAndDLedger),
	inert("syncBrokerMetadataPeriod", config.Int, "ms", "5000", whyControllerAndDLedger),
	inert("checkSyncStateSetPeriod", config.Int, "ms", "5000", whyControllerAndDLedger),
	inert("syncControllerMetadataPeriod", config.Int, "ms", "10000", whyControllerAndDLedger),
	inert("controllerHeartBeatTimeoutMills", config.Int, "ms", "10000", whyControllerAndDLedger),
	inert("brokerElectionPriority", config.Int, "", "2147483647", whyControllerAndDLedger),
	inert("storePathDLedgerCommitLog", config.String, "", "", whyControllerAndDLedger),
	inert("storePathEpochFile", config.String, "", "", whyControllerAndDLedger),
	inert("storePathBrokerIdentity", config.String, "", "", whyControllerAndDLedger),
	inert("dLegerGroup", config.String, "", "", whyControllerAndDLedger),
	inert("dLegerPeers", config.String, "", "", whyControllerAndDLedger),
	inert("dLegerSelfId", config.String, "", "", whyControllerAndDLedger),
	inert("preferredLeaderId", config.String, "", "", whyControllerAndDLedger),

	// Metrics and TLS.
	inert("metricsExporterType", config.String, "", "DISABLE", whyMetricsAndTLS),
	inert("metricsOtelCardinalityLimit", config.Int, "", "50000", whyMetricsAndTLS),
	inert("metricsGrpcExporterTarget", config.String, "", "", whyMetricsAndTLS),
	inert("metricsGrpcExporterHeader", config.String, "", "", whyMetricsAndTLS),
	inert("metricGrpcExporterTimeOutInMills", config.Int, "ms", "3000", whyMetricsAndTLS),
	inert("metricGrpcExporterIntervalInMills", config.Int, "ms", "60000", whyMetricsAndTLS),
	inert("metricLoggingExporterIntervalInMills", config.Int, "ms", "10000", whyMetricsAndTLS),
	inert("metricsPromExporterPort", config.Int, "", "5557", whyMetricsAndTLS),
	inert("metricsPromExporterHost", config.String, "", "", whyMetricsAndTLS),
	inert("metricsLabel", config.String, "", "", whyMetricsAndTLS),
	inert("metricsInDelta", config.Bool, "", "false", whyMetricsAndTLS),
	inert("estimateAccumulation", config.Bool, "", "true", whyMetricsAndTLS),
	inert("useTLS", config.Bool, "", "false", whyMetricsAndTLS),

	// Authentication.
	inert("configName", config.String, "", "", whyAuthentication),
	inert("clusterName", config.String, "", "", whyAuthentication),
	inert("authConfigPath", config.String, "", "", whyAuthentication),
	inert("authenticationProvider", config.String, "", "", whyAuthentication),
	inert("authenticationMetadataProvider", config.String, "", "", whyAuthentication),
	inert("authenticationStrategy", config.String, "", "", whyAuthentication),
	inert("authenticationWhitelist", config.String, "", "", whyAuthentication),
	inert("initAuthenticationUser", config.String, "", "", whyAuthentication),
	inert("innerClientAuthenticationCredentials", config.String, "", "", whyAuthentication),
	inert("authorizationProvider", config.String, "", "", whyAuthentication),
	inert("authorizationMetadataProvider", config.String, "", "", whyAuthentication),
	inert("authorizationStrategy", config.String, "", "", whyAuthentication),
	inert("authorizationWhitelist", config.String, "", "", whyAuthentication),
	inert("userCacheMaxNum", config.Int, "", "1000", whyAuthentication),
	inert("userCacheExpiredSecond", config.Int, "s", "600", whyAuthentication),
	inert("userCacheRefreshSecond", config.Int, "s", "60", whyAuthentication),
	inert("aclCacheMaxNum", config.Int, "", "1000", whyAuthentication),
	inert("aclCacheExpiredSecond", config.Int, "s", "600", whyAuthentication),
	inert("aclCacheRefreshSecond", config.Int, "s", "60", whyAuthentication),
	inert("statefulAuthenticationCacheMaxNum", config.Int, "", "10000", whyAuthentication),
	inert("statefulAuthenticationCacheExpiredSecond", config.Int, "s", "60", whyAuthentication),
	inert("statefulAuthorizationCacheMaxNum", config.Int, "", "10000", whyAuthentication),
	inert("statefulAuthorizationCacheExpiredSecond", config.Int, "s", "60", whyAuthentication),

	// RocksDB.
	inert("cleanRocksDBDirtyCQIntervalMin", config.Int, "min", "60", whyRocksDB),
	inert("statRocksDBCQIntervalSec", config.Int, "s", "10", whyRocksDB),
	inert("memTableFlushIntervalMs", config.Int, "ms", "3600000", whyRocksDB),
	inert("realTimePersistRocksDBConfig", config.Bool, "", "true", whyRocksDB),
	inert("enableRocksDBLog", config.Bool, "", "false", whyRocksDB),
	inert("bottomMostCompressionTypeForConsumeQueueStore", config.String, "", "zstd", whyRocksDB),
	inert("rocksdbCompressionType", config.String, "", "lz4", whyRocksDB),
	inert("rocksdbFlushWalFrequency", config.Int, "", "1024", whyRocksDB),
	inert("rocksdbWalFileRollingThreshold", config.Int, "bytes", "1073741824", whyRocksDB),
}
