// Package mqtest puts a whole cluster inside a test: NameServers and brokers in
// this process, on free ports of 127.0.0.1, with stores in directories of the
// test. What a client in a test asks of them goes over real connections.
//
// Start returns when every broker is registered with every NameServer; the
// test's end stops all. Besides theirs, the package has no goroutines. Methods
// fail the test rather than return errors, so they belong to its goroutine.
package mqtest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmq/ringmq/broker"
	"github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/namesrv"
)

// Patience is how long anything in a cluster may take before the test fails.
const Patience = 20 * time.Second

// Options say what Start makes.
type Options struct {
	NameServers int // default 1
	Brokers     int // masters, broker-a, broker-b, ...; default 1
	// Broker and NameServer, where not nil, change the configuration of number i
	// before it starts: of a restarted one too.
	Broker     func(i int, c *broker.Config)
	NameServer func(i int, c *namesrv.Config)
}

// A Cluster is some NameServers and the brokers registered with them.
type Cluster struct {
	NameServers []*NameServer
	Brokers     []*Broker

	t     testing.TB
	opt   Options
	conns *client.Conns
	log   *slog.Logger
}

// A NameServer of a cluster.
type NameServer struct {
	c      *Cluster
	i      int
	dir    string
	port   int
	server *namesrv.Server // nil while stopped
}

// A Broker of a cluster.
type Broker struct {
	Name string // brokerName
	Dir  string // storePathRootDir

	c      *Cluster
	i      int
	port   int
	broker *broker.Broker // nil while stopped
}

// ClusterName is the brokerClusterName of every Cluster.
const ClusterName = "DefaultCluster"

// Start makes a cluster and stops it at the end of the test. What its servers
// log is shown when the test fails.
func Start(t testing.TB, opt Options) *Cluster {
	t.Helper()
	opt.NameServers, opt.Brokers = max(opt.NameServers, 1), max(opt.Brokers, 1)
	dir := t.TempDir() // before the Cleanup that stops what writes there
	logged := &lockedBuffer{}
	c := &Cluster{t: t, opt: opt, conns: client.NewConns(client.Options{}),
		log: slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	t.Cleanup(func() {
		c.conns.Close()
		for _, b := range c.Brokers {
			b.Stop()
		}
		for _, n := range c.NameServers {
			n.Stop()
		}
		if t.Failed() {
			t.Logf("the servers' log:\n%s", logged)
		}
	})
	for i := range opt.NameServers {
		n := &NameServer{c: c, i: i, dir: filepath.Join(dir, fmt.Sprintf("namesrv-%d", i)), port: freePorts(t, 0)}
		c.NameServers = append(c.NameServers, n)
		n.Start()
	}
	for i := range opt.Brokers {
		name := "broker-" + string(rune('a'+i))
		b := &Broker{Name: name, Dir: filepath.Join(dir, name), c: c, i: i, port: freePorts(t, -2, 0, 1)}
		c.Brokers = append(c.Brokers, b)
		b.Start()
	}
	return c
}

// Start starts a stopped NameServer. It knows no broker until they register.
func (n *NameServer) Start() {
	n.c.t.Helper()
	cfg := namesrv.DefaultConfig()
	cfg.BindAddress, cfg.ListenPort = "127.0.0.1", n.port
	cfg.KvConfigPath, cfg.ConfigStorePath = filepath.Join(n.dir, "kvConfig.json"), filepath.Join(n.dir, "namesrv.properties")
	if n.c.opt.NameServer != nil {
		n.c.opt.NameServer(n.i, &cfg)
	}
	s, err := namesrv.New(cfg, n.c.log.With("namesrv", n.i))
	if err == nil {
		err = s.Start(context.Background())
	}
	if err != nil {
		n.c.t.Fatalf("NameServer %d: %v", n.i, err)
	}
	n.server = s
}

// Stop stops a NameServer, if it runs.
func (n *NameServer) Stop() {
	n.c.t.Helper()
	if n.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := n.server.Close(ctx); err != nil {
		n.c.t.Errorf("stop NameServer %d: %v", n.i, err)
	}
	n.server = nil
}

// Addr is the NameServer's address, also while it is stopped.
func (n *NameServer) Addr() string { return address(n.port) }

// Start starts a stopped broker on its store and waits until all running
// NameServers know it.
func (b *Broker) Start() {
	b.c.t.Helper()
	cfg := broker.DefaultConfig()
	cfg.BrokerClusterName, cfg.BrokerName, cfg.BrokerId = ClusterName, b.Name, 0
	cfg.BindAddress, cfg.BrokerIP1, cfg.BrokerIP2 = "127.0.0.1", "127.0.0.1", "127.0.0.1"
	cfg.ListenPort, cfg.HaListenPort = b.port, 0
	cfg.StorePathRootDir, cfg.StorePathCommitLog = b.Dir, ""
	cfg.NamesrvAddr = b.c.NamesrvAddr()
	cfg.MappedFileSizeCommitLog = 16 << 20
	if b.c.opt.Broker != nil {
		b.c.opt.Broker(b.i, &cfg)
	}
	cfg.Complete()
	s, err := broker.New(cfg, b.c.log.With("broker", b.Name))
	if err == nil {
		err = s.Start(context.Background())
	}
	if err != nil {
		b.c.t.Fatalf("%s: %v", b.Name, err)
	}
	b.broker = s
	for _, n := range b.c.NameServers {
		if n.server == nil {
			continue
		}
		b.c.Wait(fmt.Sprintf("%s at NameServer %s", b.Name, n.Addr()), func() bool {
			_, ok := b.c.ClusterInfo(n).BrokerAddrTable[b.Name]
			return ok
		})
	}
}

// Stop stops a broker cleanly, if it runs.
func (b *Broker) Stop() {
	b.c.t.Helper()
	if b.broker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := b.broker.Close(ctx); err != nil {
		b.c.t.Errorf("stop %s: %v", b.Name, err)
	}
	b.broker = nil
}

// Restart is Stop and Start.
func (b *Broker) Restart() {
	b.c.t.Helper()
	b.Stop()
	b.Start()
}

// Addr is the broker's address as routes name it, also while it is stopped.
func (b *Broker) Addr() string { return address(b.port) }

// NamesrvAddr is all NameServers, as clients are configured with them.
func (c *Cluster) NamesrvAddr() string {
	var addrs []string
	for _, n := range c.NameServers {
		addrs = append(addrs, n.Addr())
	}
	return strings.Join(addrs, ";")
}

// Wait looks at ok again and again until it says true. What becomes true, and
// when, is another goroutine's business that gives no sign.
func (c *Cluster) Wait(what string, ok func() bool) {
	c.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			c.t.Fatalf("waited %v in vain for %s", Patience, what)
		}
	}
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// freePorts finds a port that is free together with those at some distance
// from it. It stays below 32768: above, the kernel takes ports for outgoing
// connections.
func freePorts(t testing.TB, distances ...int) int {
	t.Helper()
	for range 200 {
		port := 10_000 + rand.IntN(22_000)
		if allFree(port, distances) {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

func allFree(port int, distances []int) bool {
	for _, d := range distances {
		l, err := net.Listen("tcp", address(port+d))
		if err != nil {
			return false
		}
		defer l.Close()
	}
	return true
}

// lockedBuffer takes the log of many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
