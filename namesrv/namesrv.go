// Package namesrv answers: which brokers are there, and which of them have a
// topic's queues?
//
// Brokers keep a connection to every NameServer and register their topics with
// each; clients ask one of them for routes. NameServers do not talk to each
// other and keep nothing on disk but the key/value configuration.
//
// # Goroutines
//
//   - netloop's loops answer what is in memory, route queries above all, and
//     tell the registry of closed connections.
//   - the registrar, netloop's only pool goroutine here: everything that
//     changes the registry or may wait for a disk, in the order of arrival. Two
//     registrations of one broker must not overtake each other.
//   - the scanner drops brokers that have been silent for too long.
//   - the notifier tells brokers of a new smallest id (notify.go).
//
// Server.Close waits for all of them. The registry (registry.go) is guarded by
// one lock; an answer to a route query is encoded once for each form and kept
// with its topic until something in it changes, so that a query costs a lookup
// under the read lock and a copy.
package namesrv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/netloop"
)

// Server is a NameServer. New reads the key/value configuration, Start
// listens, Close answers what was taken and stops. Its methods may be called
// from any goroutine, Start and Close once each.
type Server struct {
	cfg   atomic.Pointer[Config] // replaced by the registrar (config request)
	log   *slog.Logger
	fs    vfs.FS
	now   func() time.Time
	since time.Time // of Start

	reg    *registry
	kv     *kvStore
	notify *notifier
	net    *netloop.Server
	stop   chan struct{} // closed: the scanner ends
	scans  sync.WaitGroup
}

// New makes a NameServer of a complete configuration (LoadConfig or
// DefaultConfig). The error names the file that could not be read.
func New(cfg Config, log *slog.Logger) (*Server, error) {
	return newServer(cfg, log, vfs.OS(), time.Now)
}

func newServer(cfg Config, log *slog.Logger, fs vfs.FS, now func() time.Time) (*Server, error) {
	s := &Server{log: log, fs: fs, now: now, stop: make(chan struct{})}
	s.cfg.Store(&cfg)
	kv, err := openKV(fs, cfg.KvConfigPath)
	if err != nil {
		return nil, err
	}
	s.kv = kv
	s.notify = newNotifier(log)
	s.reg = newRegistry(log, kv, s.cfg.Load, s.notify.tell)
	return s, nil
}

// Start listens and serves. The error names the address and its key.
func (s *Server) Start(context.Context) error {
	cfg := s.cfg.Load()
	s.since = s.now()
	srv, err := netloop.Listen(netloop.Config{
		Addrs:                []string{net.JoinHostPort(cfg.BindAddress, strconv.Itoa(cfg.ListenPort))},
		Loops:                cfg.EventLoops,
		ConnInboundBytesMax:  cfg.ConnInboundBytesMax,
		ConnOutboundBytesMax: cfg.ConnOutboundBytesMax,
		TotalBytesMax:        cfg.ConnTotalBytesMax,
		ConnsMax:             cfg.ConnsMax,
		IdleTimeout:          time.Duration(cfg.ServerChannelMaxIdleTimeSeconds) * time.Second,
		PoolWorkers:          1, // the registrar: registrations keep their order
		PoolQueueMax:         cfg.PoolQueueMax,
		ServiceName:          "a NameServer",
		PortHint:             "brokers and clients speak RocketMQ's remoting protocol here; a broker's port is 10911 by default",
		Keys:                 netloop.Keys{ConnInboundBytesMax: "connInboundBytesMax", ConnOutboundBytesMax: "connOutboundBytesMax", TotalBytesMax: "connTotalBytesMax", ConnsMax: "connsMax", PoolQueueMax: "poolQueueMax"},
		Handler:              (*handler)(s),
		Logger:               s.log,
	})
	if err != nil {
		return fmt.Errorf("NameServer: %w (listenPort, bindAddress)", err)
	}
	s.net = srv
	s.notify.start()
	s.scans.Go(s.scan)
	return nil
}

// Addr is the address that Start listens on.
func (s *Server) Addr() net.Addr { return s.net.Addr(0) }

// Close stops listening, answers what was taken as far as ctx lasts, and waits
// for all goroutines.
func (s *Server) Close(ctx context.Context) error {
	close(s.stop)
	s.scans.Wait()
	if s.net == nil {
		return nil
	}
	err := s.net.Close(ctx)
	s.notify.close()
	return err
}

// Describe says in one line what listens where.
func (s *Server) Describe() []string {
	return []string{fmt.Sprintf("NameServer on %s, key/value configuration in %s", s.Addr(), s.cfg.Load().KvConfigPath)}
}

// errExpired is the cause of closing the connection of a silent broker.
var errExpired = errors.New("the broker sent no heartbeat in time")

// scan is the scanner's goroutine.
func (s *Server) scan() {
	tick := time.NewTicker(s.cfg.Load().ScanNotActiveBrokerInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.reg.expire(s.now().UnixMilli())
		}
	}
}

// saveSettings is where configuration updates go.
func (c *Config) saveSettings() string {
	if c.File != "" {
		return c.File
	}
	return filepath.Clean(c.ConfigStorePath)
}
