// Package broker answers what the wire asks of a broker: it takes requests
// from netloop's loops, turns them into Puts and Gets of the engine, and
// answers. broker.go wires the rooms, routes.go is the table of request codes;
// then a file a concern: send, pull, hold, offset, heartbeat, query, schedule,
// retry, topics, register.
//
// Goroutines: hot requests (send, pull, offsets) run on the netloop loop of
// their connection; requests that may wait for a disk or a lock run on
// netloop's pool. Held pulls are owned by their loop, delayed messages by the
// scheduler's goroutine, each NameServer by a goroutine of its own.
// Broker.Close waits for all of them.
package broker

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
)

// A Broker is one brokerName's member: its store, its tables and its
// listeners. New opens the store and recovers it, Start listens and registers
// with the NameServers, Close answers what can be answered and stops.
type Broker struct {
	cfg  *Config
	log  *slog.Logger
	now  func() time.Time // wall clock, passed in by tests
	fs   vfs.FS
	addr netip.AddrPort // brokerIP1:listenPort: storeHost of every record, the address routes give to clients
	ids  *message.IDs   // UNIQ_KEY of messages that come without one

	store  *engine.Store
	server *netloop.Server

	topics  *meta.Topics
	groups  *meta.Groups
	offsets *meta.Offsets

	clients   *clientTable // who is connected: producers, consumers, their subscriptions (clients.go)
	notices   *notifier    // NOTIFY_CONSUMER_IDS_CHANGED, gathered (notify.go)
	locks     *lockTable   // orderly consumers' queue locks (lock.go)
	schedule  *scheduler   // delay levels (schedule.go)
	registrar *registrar   // registration with every NameServer (register.go)
	holds     *holdTable   // pulls that wait for a message (hold.go)
}
