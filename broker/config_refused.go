package broker

import "github.com/ringmq/ringmq/internal/config"

func refused(name string, kind config.Kind, def, meaning, why string, allow ...string) config.Key {
	return config.Key{Name: name, Kind: kind, Default: def, Class: config.Refused, Allow: allow, Meaning: meaning, Why: why}
}

func refusedTrue(name, meaning, why string) config.Key {
	return refused(name, config.Bool, "false", meaning, why, "false")
}

const (
	noAuth       = "authentication and authorization do not exist yet, and an open broker is not what this asks for"
	noTLS        = "TLS does not exist yet; put a TLS proxy in front, or leave the key out"
	noSlaves     = "slaves and synchronous replication do not exist yet"
	noReplicas   = "replication does not exist yet, and sends would be answered without the copies this asks for"
	noController = "controller mode does not exist yet"
	noRocksDB    = "queues and tables in RocksDB are not supported; Apache can export such a store's topics to a broker with file queues"
	noOtherPath  = "the CommitLog has one directory; join disks with a logical volume"
)

// refusedKeys ask for something that a broker without it would silently lack.
// A value that asks for nothing is accepted, because files written by
// updateBrokerConfig hold every key.
var refusedKeys = []config.Key{
	refusedTrue("aclEnable", "access control lists of 4.x", noAuth),
	refusedTrue("authenticationEnabled", "clients must sign requests", noAuth),
	refusedTrue("authorizationEnabled", "users have permissions", noAuth),
	refusedTrue("migrateAuthFromV1Enabled", "take over 4.x access control lists", noAuth),
	refused("tls.server.mode", config.String, "permissive", "TLS on the broker's ports", noTLS, "permissive", "disabled"),
	refused("tls.server.need.client.auth", config.String, "none", "client certificates", noTLS, "none"),
	refusedTrue("tls.server.authClient", "client certificates", noTLS),
	refused("tls.config.file", config.String, "", "file of TLS settings", noTLS),
	refusedTrue("enableControllerMode", "the controller says who is master", noController),
	refusedTrue("enableDLegerCommitLog", "CommitLog replicated by Raft", "a DLedger log has other files and another protocol, which are not supported"),
	refused("storeType", config.String, "default", "kind of the ConsumeQueues", noRocksDB, "default"),
	refusedTrue("rocksdbCQDoubleWriteEnable", "", noRocksDB),
	refusedTrue("popConsumerKVServiceEnable", "pop states in RocksDB", noRocksDB),
	refused("configManagerVersion", config.String, "v1", "v2 keeps topics, groups and offsets in RocksDB", noRocksDB, "v1"),
	refused("readOnlyCommitLogStorePaths", config.String, "", "further CommitLog directories", noOtherPath),
	refused("messageStorePlugIn", config.String, "", "Java classes between broker and store", "Java classes cannot be loaded here"),
	refusedTrue("duplicationEnable", "the log is fed from outside", "only the broker itself writes the log"),
	refusedTrue("enableConsumeQueueExt", "ConsumeQueue extension files", "ConsumeQueues with extension files are not supported, and their entries would be misread"),
	refusedTrue("enabledAppendPropCRC", "a checksum over each message's properties", "this checksum does not exist yet"),
	refusedTrue("forceVerifyPropCRC", "check that checksum", "this checksum does not exist yet"),
	refusedTrue("enableLmq", "light message queues", "light message queues do not exist yet"),
	refusedTrue("enableMultiDispatch", "one message in several queues", "light message queues do not exist yet"),
	refusedTrue("rejectPullConsumerEnable", "refuse pull consumers", "it does not exist yet, and pull consumers would be served"),
	refusedTrue("disableConsumeIfConsumerReadSlowly", "stop groups that are too far behind", "it does not exist yet, and such groups would go on"),
	refusedTrue("coldDataFlowControlEnable", "slow down groups that read old messages", "it does not exist yet; old messages are read beside the event loops in any case"),
	refusedTrue("fetchNamesrvAddrByAddressServer", "ask a web server for the NameServers", "it does not exist yet; list them in namesrvAddr"),
	refusedTrue("fetchNameSrvAddrByDnsLookup", "namesrvAddr is one DNS name of all NameServers", "it does not exist yet; list them in namesrvAddr"),
	refused("totalReplicas", config.Int, "1", "brokers of the group", noReplicas, "1"),
	refused("inSyncReplicas", config.Int, "1", "copies a send waits for", noReplicas, "1"),
	refused("minInSyncReplicas", config.Int, "1", "copies below which sends are refused", noReplicas, "1"),
	refusedTrue("allAckInSyncStateSet", "a send waits for all copies in sync", noReplicas),
	refusedTrue("enableSlaveActingMaster", "a slave serves what a lost master served", noReplicas),
	refusedTrue("enableRemoteEscape", "an acting master sends to other brokers", noReplicas),
	refused("brokerConfigPaths", config.String, "", "several brokers in one process", "the container does not exist; start a process for each file"),
}
