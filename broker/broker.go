// Package broker answers what the wire asks of a broker: it takes requests
// from netloop's loops, turns them into Puts and Gets of the engine, and
// answers. broker.go wires the rooms, routes.go is the table of request codes;
// then a file a concern: send, pull, hold, offset, heartbeat, query, schedule,
// timer, recall, retry, topics, register.
//
// Goroutines: hot requests (send, pull, offsets) run on the netloop loop of
// their connection; requests that may wait for a disk or a lock run on
// netloop's pool. Held pulls are owned by their loop, delayed messages by the
// goroutines of scheduler and timer, each NameServer by a goroutine of its own.
// Broker.Close waits for all of them.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/broker/pop"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/flush"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// A Broker is one brokerName's member: its store, its tables and its
// listeners. New opens the store and recovers it, Start listens and registers
// with the NameServers, Close answers what can be answered and stops.
type Broker struct {
	cfg  *Config
	log  *slog.Logger
	now  func() time.Time // wall clock, passed in by tests
	fs   vfs.FS           // the system's; tests pass in another
	addr netip.AddrPort   // brokerIP1:listenPort: storeHost of every record, the address routes give to clients
	ids  *message.IDs     // UNIQ_KEY of messages that come without one

	sampleEvery int // netloop.Config.SampleEvery; 0, its default, but in tests

	levels delayLevels // messageDelayLevel, as it is now (levels.go)

	stamp      []byte           // properties the broker adds to every sent message
	sendFields []remoting.Field // fields of every refused send, as of every answered one

	store   *engine.Store
	device  *flush.Engine // how its log reaches the disk
	server  *netloop.Server
	closed  atomic.Pointer[error] // why the log takes no more writes
	running atomic.Bool           // Start is through
	flying  atomic.Int32          // batches given to the engine and not finished
	stopped sync.Once

	tables  *meta.Tables
	topics  *meta.Topics
	groups  *meta.Groups
	offsets *meta.Offsets

	clients   *clientTable // who is connected: producers, consumers, their subscriptions (clients.go)
	asks      *asker       // requests of ours to clients (ask.go)
	notices   *notifier    // NOTIFY_CONSUMER_IDS_CHANGED, gathered (notify.go)
	locks     *lockTable   // orderly consumers' queue locks (lock.go)
	schedule  *scheduler   // delay levels (schedule.go)
	timer     *timer       // messages with a time of their own (timer.go)
	registrar *registrar   // registration with every NameServer (register.go)
	holds     *holdTable   // requests that wait for a message (hold.go)
	cold      *coldLane    // reads that wait for the disk (cold.go)

	broadcasts *broadcastTable // how far broadcast clients behind proxies are (broadcast.go)

	transactions *transactions // half messages and their ends (txn.go)

	pops     *pop.Table  // what groups have popped
	popHolds *popHolds   // pops and notifications that wait, by group (pop_hold.go)
	reviver  *reviver    // redelivery of popped messages (revive.go)
	routes   *routeTable // queues of topics over all brokers (assign.go)
}

// holdsMax bounds the requests held at once.
const holdsMax = 200_000

// New opens the store of cfg, recovers it and loads the tables; it blocks on
// the disk. Nothing listens yet. The error names what refused: engine.ErrLocked
// where another broker has the directory.
func New(cfg Config, log *slog.Logger) (*Broker, error) { return newBroker(cfg, vfs.OS(), log) }

func newBroker(cfg Config, fs vfs.FS, log *slog.Logger) (*Broker, error) {
	b := &Broker{cfg: &cfg, log: log, now: time.Now, fs: fs}
	ip, err := resolve(cfg.BrokerIP1)
	if err != nil {
		return nil, fmt.Errorf("brokerIP1 %q: %w", cfg.BrokerIP1, err)
	}
	b.addr = netip.AddrPortFrom(ip, uint16(cfg.ListenPort))
	b.ids = message.NewIDs(ip)
	b.stamp = propsStamp(cfg.RegionId, cfg.TraceOn, cfg.BrokerClusterName)
	b.sendFields = []remoting.Field{
		{Key: []byte(message.PropMsgRegion), Value: []byte(cfg.RegionId)},
		{Key: []byte(message.PropTraceOn), Value: fmt.Append(nil, cfg.TraceOn)},
	}
	if err := b.open(); err != nil {
		return nil, err
	}
	return b, nil
}

// open opens store and tables and makes what stands above them.
func (b *Broker) open() (err error) {
	locked := make(chan struct{}) // the store's directory is ours
	b.device, err = flush.Open(flush.EngineConfig{Engine: b.cfg.FlushEngine, FS: b.fs, Dir: b.cfg.StorePathRootDir,
		Logger: b.log.With("room", "flush"), Ready: locked})
	if err != nil {
		return fmt.Errorf("flushEngine: %w", err)
	}
	levels, err := b.cfg.DelayLevels()
	if err != nil {
		return errors.Join(err, b.device.Close())
	}
	b.levels.set(levels)
	if b.store, err = engine.Open(b.storeConfig()); err != nil {
		err = errors.Join(err, b.device.Close())
		if b.tables != nil {
			err = errors.Join(err, b.tables.Close())
		}
		return err
	}
	close(locked)
	b.clients = newClientTable(b.now, b.cfg.ChannelExpiredTimeout)
	b.clients.keepSubscribers(b.tables.Subscribers)
	if !b.cfg.UseServerSideResetOffset {
		b.offsets.EndResets()
	}
	b.asks, b.broadcasts = newAsker(), newBroadcastTable(b)
	b.notices = newNotifier(b.clients.consumerConns)
	b.locks = newLockTable(b.now, b.tables.Locks)
	b.clients.changed = func(group string) {
		if b.noticesWanted(group) {
			b.notices.notify(group)
		}
	}
	b.clients.allowed, b.clients.conflict, b.clients.renewed = b.allowExpression, b.logConflict, b.renewHeld
	b.clients.save = b.tables.Filters.Sync
	b.clients.left = b.locks.left
	b.clients.scanned = func(now time.Time) {
		b.locks.expire(now)
		b.broadcasts.scan(now)
	}
	b.schedule, b.timer, b.registrar = newScheduler(b), newTimer(b), newRegistrar(b)
	b.transactions = newTransactions(b)
	b.holds = newHoldTable(b, holdsMax)
	b.cold = newColdLane(b.cfg.PoolWorkers, b.cfg.PoolQueueMax)
	return b.openPops()
}

// openTables opens the tables: when the store's directory is ours, and before
// recovery, which asks which topics have batch queues.
func (b *Broker) openTables() (err error) {
	b.tables, err = meta.Open(meta.Config{
		FS:           b.fs,
		Dir:          filepath.Join(b.cfg.StorePathRootDir, "config"),
		Logger:       b.log.With("room", "meta"),
		ManualGroups: !b.cfg.AutoCreateSubscriptionGroup,
		FilterKeep:   b.cfg.FilterDataCleanTimeSpan,
		System: meta.SystemConfig{
			BrokerClusterName:     b.cfg.BrokerClusterName,
			BrokerName:            b.cfg.BrokerName,
			AutoCreateTopicEnable: b.cfg.AutoCreateTopicEnable,
			DefaultTopicQueueNums: int32(b.cfg.DefaultTopicQueueNums),
			ClusterTopicEnable:    b.cfg.ClusterTopicEnable,
			BrokerTopicEnable:     b.cfg.BrokerTopicEnable,
			TraceTopicEnable:      b.cfg.TraceTopicEnable,
			MsgTraceTopicName:     b.cfg.MsgTraceTopicName,
			DelayLevels:           b.levels.count(),
		},
	})
	if err != nil {
		return err
	}
	b.topics, b.groups, b.offsets = b.tables.Topics, b.tables.Groups, b.tables.Offsets
	return nil
}

// batchTopic says whether a topic's queues are batch queues.
func (b *Broker) batchTopic(name string) (batch, known bool) {
	t := b.topics.Find(name)
	return t != nil && t.Batch(), t != nil
}

// openPops opens the table of pops and brings it in line with the store.
func (b *Broker) openPops() (err error) {
	b.popHolds, b.reviver, b.routes = newPopHolds(), newReviver(b), newRouteTable(b)
	if err = b.cutOffsets(); err == nil {
		b.pops, err = pop.Open(pop.Config{FS: b.fs, Dir: filepath.Join(b.cfg.StorePathRootDir, "config"),
			Logger: b.log.With("room", "pop"), Commit: b.offsets.SetKept})
	}
	if err != nil {
		return errors.Join(err, b.tables.Close(), b.store.Close(context.Background()))
	}
	b.offsets.Watch(popWatcher{b})
	if !b.offsets.Continued {
		b.pops.DropAll() // a Java broker has run since, or the store is new
	}
	if err := b.pops.Fit(func(topic, group string) bool { return b.topics.Find(topic) != nil && b.groups.Find(group) != nil }, b.queueEnd); err != nil {
		return errors.Join(err, b.pops.Close(), b.tables.Close(), b.store.Close(context.Background()))
	}
	return nil
}

// cutOffsets takes back, durably, what groups have committed of messages that a
// crash took from the log, before the store takes others in their place.
func (b *Broker) cutOffsets() error {
	if b.store.WasStopped() {
		return nil // what lies beyond a queue's end was asked for
	}
	n := b.offsets.Cut(b.queueEnd)
	if n == 0 {
		return nil
	}
	b.log.Warn("consumer offsets lay beyond the end of their queues after a crash and were cut", "offsets", n)
	return b.tables.Fold()
}

// queueEnd is the next offset of a queue; 0 when there is none.
func (b *Broker) queueEnd(topic string, queueID int32) int64 {
	if q := b.store.FindQueue(topic, queueID); q != nil {
		return int64(q.Max())
	}
	return 0
}

// popWatcher moves pops where somebody else moves a group's offsets: a tool that
// resets them, a pull consumer, a topic's or a group's deletion.
type popWatcher struct{ b *Broker }

// OffsetSet has the group's next pop begin there.
func (w popWatcher) OffsetSet(topic, group string, queueID int32, offset int64) {
	w.b.pops.Reset(topic, group, queueID, offset)
	w.b.popHolds.wake(popTopic(topic, group), group, -1)
}

// OffsetsForgotten forgets what the group has in flight.
func (w popWatcher) OffsetsForgotten(topic, group string) {
	w.b.pops.Drop(topic, group)
	w.b.popHolds.forget(func(t, g string) bool { return t == topic && g == group })
}

// storeConfig is the engine's part of the configuration.
func (b *Broker) storeConfig() engine.Config {
	c := b.cfg
	hours, _ := c.DeleteHours() // checked by Validate
	return engine.Config{
		FS: b.fs, Dir: c.StorePathRootDir, CommitLogDir: c.StorePathCommitLog,
		SegmentBytes: c.MappedFileSizeCommitLog, ConsumeQueueBytes: c.MappedFileSizeConsumeQueue, BatchQueueBytes: c.BatchConsumeQueueBytes,
		OpenFilesMax: c.ConsumeQueueOpenFilesMax, TailBytesMax: c.ConsumeQueueTailBytesMax,
		SyncFlush: c.Sync(), Device: b.device, FlushInterval: c.FlushIntervalCommitLog, DirtyBytesMax: c.DirtyBytesMax,
		SyncFlushTimeout: c.SyncFlushTimeout, SweepInterval: c.FlushIntervalConsumeQueue,
		MaxBytesInFlight: c.BytesInFlightMax,
		NoIndex:          !c.MessageIndexEnable, IndexSlots: c.MaxHashSlotNum, IndexEntries: c.MaxIndexNum,
		TransferBytesInMemory: c.MaxTransferBytesOnMessageInMemory, TransferCountInMemory: c.MaxTransferCountOnMessageInMemory,
		TransferBytesOnDisk: c.MaxTransferBytesOnMessageInDisk, TransferCountOnDisk: c.MaxTransferCountOnMessageInDisk,
		FileReservedTime: c.FileReservedTime, DeleteWhen: hours, CleanInterval: c.CleanResourceInterval,
		DeleteBatchMax: c.DeleteFileBatchMax, DeletePause: c.DeleteCommitLogFilesInterval,
		DiskMaxUsed: float64(c.DiskMaxUsedSpaceRatio) / 100, DiskForceClean: float64(c.DiskSpaceCleanForciblyRatio) / 100,
		DiskFull: float64(c.DiskSpaceWarningLevelRatio) / 100, KeepFilesForced: !c.CleanFileForciblyEnable,
		DiskFreeMin: c.DiskFreeBytesMin, ReserveBytes: cmp.Or(c.DiskReserveBytes, -1),
		ScrubRate: cmp.Or(c.ScrubBytesPerSecond, -1), ScrubInterval: c.ScrubInterval,
		Locked: b.openTables, TagsCode: b.entryTagsCode, BatchTopic: b.batchTopic, Events: storeEvents{b}, Logger: b.log.With("room", "store"),
	}
}

// storeEvents is the engine's way up.
type storeEvents struct{ b *Broker }

// Arrived wakes what waits for messages of q.
func (e storeEvents) Arrived(q *consumequeue.Queue) {
	arrived(q)
	e.b.schedule.arrived(q)
	e.b.timer.arrived(q)
}

// Closed takes the write permission off the routes: producers go elsewhere.
func (e storeEvents) Closed(err error) {
	e.b.closed.Store(&err)
	e.b.log.Error("the log is closed for writes; reads go on", "error", err,
		"remedy", "free or replace the disk, then restart: what was acknowledged is safe")
	if e.b.running.Load() {
		e.b.registrar.changed()
	}
}

// Start listens and registers with the NameServers. It returns when the broker
// serves; the registration goes on behind. The error names the address that
// could not be listened on.
func (b *Broker) Start(context.Context) error {
	c := b.cfg
	var addrs []string
	for _, port := range []int{c.ListenPort, c.ListenPort - 2} {
		addrs = append(addrs, net.JoinHostPort(c.BindAddress, fmt.Sprint(port)))
	}
	if err := b.transactions.recover(); err != nil {
		return err
	}
	b.clients.start()
	b.notices.start()
	b.holds.start()
	server, err := netloop.Listen(netloop.Config{
		Addrs: addrs, Loops: c.EventLoops, FrameBytesMax: c.FrameBytesMax,
		ConnInboundBytesMax: int64(c.ConnInboundBytesMax), ConnOutboundBytesMax: int64(c.ConnOutboundBytesMax),
		TotalBytesMax: c.ConnTotalBytesMax, IdleTimeout: time.Duration(c.ServerChannelMaxIdleTimeSeconds) * time.Second,
		PoolWorkers: c.PoolWorkers, PoolQueueMax: c.PoolQueueMax,
		ServiceName: "ringmq broker", PortHint: "RocketMQ clients connect here; NameServers listen on 9876",
		Keys: netloop.Keys{FrameBytesMax: "frameBytesMax", ConnInboundBytesMax: "connInboundBytesMax",
			ConnOutboundBytesMax: "connOutboundBytesMax", TotalBytesMax: "connTotalBytesMax", PoolQueueMax: "poolQueueMax"},
		SampleEvery: b.sampleEvery, Handler: b, Logger: b.log.With("room", "netloop"),
	})
	if err != nil {
		return fmt.Errorf("listenPort %d: %w", c.ListenPort, err)
	}
	b.server = server
	b.schedule.start()
	b.timer.start()
	b.transactions.start()
	b.reviver.start()
	b.registrar.start()
	b.running.Store(true)
	return nil
}

// Addrs are the addresses the broker listens on.
func (b *Broker) Addrs() []net.Addr {
	return []net.Addr{b.server.Addr(0), b.server.Addr(1)}
}

// Close stops in the order that leaves no request unanswered that could be
// answered: the routes are taken back, held pulls answered, the listeners
// drained, then tables and store are saved and closed. ctx bounds the waiting
// for peers, not the saving.
func (b *Broker) Close(ctx context.Context) (err error) {
	b.stopped.Do(func() {
		b.locks.keep()
		b.registrar.close()
		b.schedule.close()
		b.timer.close()
		b.reviver.close()
		if b.server != nil {
			b.holds.endAll()
			err = b.server.Drain(ctx)
			b.asks.stop() // answers of clients are no longer read
		}
		b.transactions.close()
		// Closing journal and store finishes the pops and puts under way; their
		// answers leave with the server's last writes.
		err = errors.Join(err, b.pops.Close(), b.store.Close(ctx))
		if b.server != nil {
			err = errors.Join(err, b.server.Close(ctx))
			b.holds.close()
			b.notices.close()
			b.clients.close()
		}
		b.routes.close()
		err = errors.Join(err, b.tables.Close())
	})
	return err
}

// Describe says in a few lines what this broker is, for start-up.
func (b *Broker) Describe() []string {
	durable := "ASYNC_FLUSH: a send is answered from memory, on the disk within " + b.cfg.FlushIntervalCommitLog.String()
	if b.cfg.Sync() {
		durable = "SYNC_FLUSH: a send is answered when it is on the disk"
	}
	choice := b.device.Choice()
	return []string{
		fmt.Sprintf("broker %s (%s) on port %d and %d, told to clients as %s (%s)", b.cfg.BrokerName, b.cfg.BrokerClusterName,
			b.cfg.ListenPort, b.cfg.ListenPort-2, b.addr, b.cfg.BrokerIP1Reason),
		"store " + b.cfg.StorePathRootDir,
		durable,
		fmt.Sprintf("flush engine %s: %s", choice.Engine, choice.Reason),
	}
}

func resolve(host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	return ips[0].Unmap(), nil
}
