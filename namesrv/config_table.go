package namesrv

import (
	"math"

	"github.com/ringmq/ringmq/internal/config"
)

// ConfigTable has a row for every property name that an Apache 5.3.3
// NameServer knows, and for ringmq's own.
var ConfigTable = config.New("NameServer", Config{}, concat(
	section("Network", networkKeys),
	section("Brokers and routes", routeKeys),
	section("Files", fileKeys),
	section("ringmq's own bounds", limitKeys),
	section("What does not exist yet", refusedKeys),
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

const (
	maxInt32 = math.MaxInt32
	dayMs    = 24 * 3600 * 1000
	mib      = 1 << 20
	gib      = 1 << 30
)

func boolean(name, def, meaning string) config.Key {
	return config.Key{Name: name, Kind: config.Bool, Default: def, RunTime: true, Meaning: meaning}
}

func number(name, unit, def string, low, high int64, meaning string) config.Key {
	return config.Key{Name: name, Kind: config.Int, Unit: unit, Default: def, Min: low, Max: high, Meaning: meaning}
}

var networkKeys = []config.Key{
	{Name: "bindAddress", Kind: config.String, Default: "0.0.0.0", Meaning: "address to listen on; 0.0.0.0 is all addresses, IPv6 included"},
	{Name: "listenPort", Kind: config.Int, Default: "9876", Min: 1, Max: 65535, Important: true, Meaning: "port for brokers and clients"},
	number("serverChannelMaxIdleTimeSeconds", "s", "120", 1, maxInt32, "a connection that neither sent nor received for so long is closed"),
}

var routeKeys = []config.Key{
	{Name: "scanNotActiveBrokerInterval", Kind: config.Duration, Unit: "ms", Default: "5000", Min: 10, Max: dayMs, Important: true,
		Meaning: "between looks for brokers that have been silent for 120 s, or for what they asked for"},
	boolean("orderMessageEnable", "false", "routes carry the topic's entry of the namespace ORDER_TOPIC_CONFIG"),
	boolean("returnOrderTopicConfigToBroker", "true", "answers to registrations carry that namespace"),
	boolean("supportActingMaster", "false", "present the smallest id of a group without a master as 0, where the group enables it"),
	boolean("notifyMinBrokerIdChanged", "false", "tell the brokers of such a group when its smallest id changes"),
	boolean("enableAllTopicList", "true", "answer request 206, all topics"),
	boolean("enableTopicList", "true", "answer requests 224 and 311 to 313, topics of a cluster and by unit"),
	boolean("needWaitForService", "false", "refuse route queries for waitSecondsForService after the start"),
	{Name: "waitSecondsForService", Kind: config.Int, Unit: "s", Default: "45", Min: 0, Max: maxInt32, RunTime: true, Meaning: "see needWaitForService"},
	boolean("deleteTopicWithBrokerRegistration", "false", "a broker's full registration removes its topics that are not in it"),
}

var fileKeys = []config.Key{
	{Name: "kvConfigPath", Kind: config.String, DefaultDoc: "$HOME/namesrv/kvConfig.json, under `ringmq server` ./data/namesrv/kvConfig.json", Locked: true, Important: true,
		Meaning: "file of the key/value configuration"},
	{Name: "configStorePath", Kind: config.String, DefaultDoc: "$HOME/namesrv/namesrv.properties, under `ringmq server` ./data/namesrv/namesrv.properties", Locked: true,
		Meaning: "where updates by request 318 are written without -c; read at start without -c"},
}

var limitKeys = []config.Key{
	number("connInboundBytesMax", "bytes", "33554432", 17*mib, gib, "undecoded bytes held for one connection; above it the connection is closed"),
	number("connOutboundBytesMax", "bytes", "33554432", mib, gib, "unsent bytes held for one connection; above half of it its requests wait, above it the connection is closed"),
	number("connTotalBytesMax", "bytes", "268435456", 17*mib, 64*gib, "both, over all connections"),
	number("connsMax", "connections", "65536", 1, maxInt32, "open connections; one more is refused"),
	{Name: "eventLoops", Kind: config.Int, Unit: "loops", Default: "0", Min: 0, Max: 1024, DefaultDoc: "half of the CPUs the process may use", Meaning: "event loops of the network"},
	number("poolQueueMax", "requests", "10000", 1, maxInt32, "registrations and listings that wait; above it they are answered SYSTEM_BUSY"),
	{Name: "logLevel", Kind: config.String, Default: "info", Enum: []string{"debug", "info", "warn", "error"}, Important: true, Meaning: "least level of the log on standard error"},
}

const noTLS = "TLS does not exist yet; put a TLS proxy in front, or leave the key out"

func refused(name string, kind config.Kind, def, meaning, why string, allow ...string) config.Key {
	return config.Key{Name: name, Kind: kind, Default: def, Class: config.Refused, Allow: allow, Meaning: meaning, Why: why}
}

var refusedKeys = []config.Key{
	refused("enableControllerInNamesrv", config.Bool, "false", "run a controller in this process", "controllers do not exist yet", "false"),
	refused("clusterTest", config.Bool, "false", "ask the NameServers of productEnvName for unknown routes", "it does not exist here", "false"),
	refused("tls.server.mode", config.String, "permissive", "TLS on the port", noTLS, "permissive", "disabled"),
	refused("tls.server.need.client.auth", config.String, "none", "client certificates", noTLS, "none"),
	refused("tls.server.authClient", config.Bool, "false", "client certificates", noTLS, "false"),
	refused("tls.config.file", config.String, "", "file of TLS settings", noTLS),
}

func inert(name string, kind config.Kind, unit, def, why string) config.Key {
	return config.Key{Name: name, Kind: kind, Unit: unit, Default: def, Class: config.NoEffect, Meaning: why}
}

const (
	whyThreads    = "event loops and one registrar serve all requests"
	whyNetty      = "tunes Netty; ringmq has its own bounds on connections"
	whyController = "controllers do not exist yet"
)

var noEffectKeys = []config.Key{
	{Name: "rocketmqHome", Kind: config.String, Class: config.NoEffect, DefaultDoc: "environment ROCKETMQ_HOME", Locked: true, Meaning: "Apache's installation directory; ringmq needs none"},
	{Name: "configBlackList", Kind: config.String, Class: config.NoEffect, Default: "configBlackList;configStorePath;kvConfigPath", Locked: true, Meaning: "fixed"},
	inert("productEnvName", config.String, "", "center", "see clusterTest"),
	inert("clientRequestThreadPoolNums", config.Int, "", "8", whyThreads),
	inert("defaultThreadPoolNums", config.Int, "", "16", whyThreads),
	inert("clientRequestThreadPoolQueueCapacity", config.Int, "", "50000", whyThreads),
	inert("defaultThreadPoolQueueCapacity", config.Int, "", "10000", whyThreads+"; see poolQueueMax"),
	inert("unRegisterBrokerQueueCapacity", config.Int, "", "3000", "brokers are unregistered at once"),
	inert("namesrvAddr", config.String, "", "", "a NameServer asks no other"),

	inert("serverWorkerThreads", config.Int, "", "8", whyThreads),
	inert("serverCallbackExecutorThreads", config.Int, "", "0", whyThreads),
	inert("serverSelectorThreads", config.Int, "", "3", whyThreads+"; see eventLoops"),
	inert("serverOnewaySemaphoreValue", config.Int, "", "256", whyNetty),
	inert("serverAsyncSemaphoreValue", config.Int, "", "64", whyNetty),
	inert("serverSocketSndBufSize", config.Int, "bytes", "0", whyNetty),
	inert("serverSocketRcvBufSize", config.Int, "bytes", "0", whyNetty),
	inert("writeBufferHighWaterMark", config.Int, "bytes", "0", whyNetty),
	inert("writeBufferLowWaterMark", config.Int, "bytes", "0", whyNetty),
	inert("serverSocketBacklog", config.Int, "", "1024", "the system's limit is used"),
	inert("serverNettyWorkerGroupEnable", config.Bool, "", "true", whyNetty),
	inert("serverPooledByteBufAllocatorEnable", config.Bool, "", "true", whyNetty),
	inert("enableShutdownGracefully", config.Bool, "", "false", "it is always graceful"),
	inert("shutdownWaitTimeSeconds", config.Int, "s", "30", "see --drain"),
	inert("useEpollNativeSelector", config.Bool, "", "false", whyNetty),
	inert("tls.enable", config.Bool, "", "false", "speaks of Apache's own client"),
	inert("tls.test.mode.enable", config.Bool, "", "true", noTLS),
	inert("tls.server.keyPath", config.String, "", "", noTLS),
	inert("tls.server.keyPassword", config.String, "", "", noTLS),
	inert("tls.server.certPath", config.String, "", "", noTLS),
	inert("tls.server.trustCertPath", config.String, "", "", noTLS),

	inert("controllerType", config.String, "", "DLedger", whyController),
	inert("controllerDLegerGroup", config.String, "", "", whyController),
	inert("controllerDLegerPeers", config.String, "", "", whyController),
	inert("controllerDLegerSelfId", config.String, "", "", whyController),
	inert("controllerStorePath", config.String, "", "", whyController),
	inert("controllerThreadPoolNums", config.Int, "", "16", whyController),
	inert("controllerRequestThreadPoolQueueCapacity", config.Int, "", "50000", whyController),
	inert("mappedFileSize", config.Int, "bytes", "1073741824", whyController),
	inert("enableElectUncleanMaster", config.Bool, "", "false", whyController),
	inert("isProcessReadEvent", config.Bool, "", "false", whyController),
	inert("notifyBrokerRoleChanged", config.Bool, "", "true", whyController),
	inert("scanInactiveMasterInterval", config.Int, "ms", "5000", whyController),
	inert("electMasterMaxRetryCount", config.Int, "", "3", whyController),
	inert("jRaftGroupId", config.String, "", "jRaft-Controller", whyController),
	inert("jRaftServerId", config.String, "", "localhost:9880", whyController),
	inert("jRaftInitConf", config.String, "", "localhost:9880,localhost:9881,localhost:9882", whyController),
	inert("jRaftControllerRPCAddr", config.String, "", "localhost:9770,localhost:9771,localhost:9772", whyController),
	inert("jRaftSnapshotIntervalSecs", config.Int, "s", "3600", whyController),
}
