package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Names that both targets' configuration files give.
const (
	ClusterName = "InteropCluster"
	BrokerName  = "broker-a"
)

// DelayLevels makes retries quick: RECONSUME_LATER starts at level 3. Level 18, 15 s, spans a restart.
const DelayLevels = "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 15s"

// launcher starts the two programs of one implementation.
type launcher interface {
	namesrv(s *Servers) (*Process, error)
	broker(s *Servers) (*Process, error)
}

// Servers is one NameServer and one broker, as processes. Its methods are for one goroutine at a time.
type Servers struct {
	Target       string // as NewServers was told
	Namesrv      string // host:port
	Broker       string // host:port, as clients are told
	Dir          string // everything of theirs lies below
	FlushDisk    string // ASYNC_FLUSH or SYNC_FLUSH
	SegmentBytes int    // small by default, so that the suite crosses from one segment to the next
	RegisterAt   string // where the broker registers; the NameServer itself unless a proxy stands before it
	Binary       bool   // Java clients use the binary header serialization
	namesrvPort  int
	brokerPort   int

	launch                launcher
	namesrvProc, brokProc *Process
}

// NewServers describes servers of a target ("apache", "ringmq", "server" for ringmq's two in one process) whose files lie in dir; nothing runs yet.
func NewServers(target, dir string) (*Servers, error) {
	s := &Servers{Target: target, Dir: dir, FlushDisk: "ASYNC_FLUSH", SegmentBytes: 64 << 20}
	switch target {
	case "apache":
		s.namesrvPort, s.brokerPort, s.launch = 22876, 22911, apache{}
	case "ringmq":
		s.namesrvPort, s.brokerPort, s.launch = 23876, 23911, ringmq{}
	case "server":
		s.namesrvPort, s.brokerPort, s.launch = 25876, 25911, ringmqServer{}
	default:
		return nil, fmt.Errorf("target %q: want apache, ringmq or server", target)
	}
	if v := os.Getenv("INTEROP_PORTS"); v != "" {
		shift, err := strconv.Atoi(v)
		if err != nil {
			return nil, fmt.Errorf("INTEROP_PORTS=%s: want a number to add to each port", v)
		}
		s.namesrvPort, s.brokerPort = s.namesrvPort+shift, s.brokerPort+shift
	}
	s.Namesrv = fmt.Sprintf("127.0.0.1:%d", s.namesrvPort)
	s.Broker = fmt.Sprintf("127.0.0.1:%d", s.brokerPort)
	return s, nil
}

// brokerConfig is the same file for both targets.
func (s *Servers) brokerConfig() string {
	store := filepath.Join(s.Dir, "store")
	registerAt := s.RegisterAt
	if registerAt == "" {
		registerAt = s.Namesrv
	}
	return strings.Join([]string{
		"brokerClusterName = " + ClusterName,
		"brokerName = " + BrokerName,
		"brokerId = 0",
		"brokerRole = ASYNC_MASTER",
		"flushDiskType = " + s.FlushDisk,
		fmt.Sprintf("listenPort = %d", s.brokerPort),
		"namesrvAddr = " + registerAt,
		"brokerIP1 = 127.0.0.1",
		"brokerIP2 = 127.0.0.1",
		"bindAddress = 127.0.0.1",
		"storePathRootDir = " + store,
		"storePathCommitLog = " + filepath.Join(store, "commitlog"),
		fmt.Sprintf("mappedFileSizeCommitLog = %d", s.SegmentBytes),
		"registerNameServerPeriod = 10000", // the least there is
		"messageDelayLevel = " + DelayLevels,
		"recallMessageEnable = true",
		"enablePropertyFilter = true", // Apache's default is false
		"traceTopicEnable = true",
		"waitTimeMillsInSendQueue = 10000", // two cores and two JVMs: Apache must not refuse because it is slow
		"osPageCacheBusyTimeOutMills = 10000",
		"transactionTimeOut = 2000",
		"transactionCheckInterval = 2000",
		"transactionCheckMax = 100",        // pending over restarts
		"transactionOpBatchInterval = 500", // Apache asks again for decisions it has not written down
		"",
	}, "\n")
}

// namesrvConfig is the same file for both targets; each key begins with prefix.
func (s *Servers) namesrvConfig(prefix string) string {
	var b strings.Builder
	for _, line := range []string{
		fmt.Sprintf("listenPort = %d", s.namesrvPort),
		"bindAddress = 127.0.0.1",
		"orderMessageEnable = true", // routes show the order configuration of topics
	} {
		b.WriteString(prefix + line + "\n")
	}
	return b.String()
}

// writeFile puts a configuration file into the servers' directory and returns its path.
func (s *Servers) writeFile(name, text string) (string, error) {
	path := filepath.Join(s.Dir, name)
	return path, errors.Join(os.MkdirAll(s.Dir, 0o755), os.WriteFile(path, []byte(text), 0o644))
}

// Start starts NameServer and broker and waits until the broker takes requests and is registered.
func (s *Servers) Start(ctx context.Context) error {
	for _, port := range []int{s.namesrvPort, s.brokerPort, s.brokerPort - 2} {
		if err := portFree(port); err != nil {
			return fmt.Errorf("%s needs port %d: %w", s.Target, port, err)
		}
	}
	if err := s.StartNamesrv(ctx); err != nil {
		return err
	}
	return s.StartBroker(ctx)
}

// StartNamesrv starts the NameServer and waits until it answers.
func (s *Servers) StartNamesrv(ctx context.Context) error {
	p, err := s.launch.namesrv(s)
	if err != nil || p == nil { // none of its own: the broker's process has it
		return err
	}
	s.namesrvProc = p
	return await(p, 60*time.Second, "answer from the NameServer", func() error { return ping(ctx, s.Namesrv) })
}

// KillNamesrv is kill -9 of the NameServer.
func (s *Servers) KillNamesrv() { s.namesrvProc.Kill() }

// StartBroker starts the broker and waits until it takes requests and the NameServer gives its route.
func (s *Servers) StartBroker(ctx context.Context) error {
	p, err := s.launch.broker(s)
	if err != nil {
		return err
	}
	s.brokProc = p
	err = await(p, 90*time.Second, "answer from the broker", func() error { return ping(ctx, s.Broker) })
	if err != nil {
		return err
	}
	return await(p, 60*time.Second, "route of the broker at the NameServer", func() error {
		return HasRoute(ctx, s.Namesrv, "TBW102")
	})
}

// AwaitOffsetsSaved waits until a kill can take no consumer offset that the broker has. Apache saves its table every
// 5 s: the second save from now has begun after this call. ringmq writes each commit to its journal at once.
func (s *Servers) AwaitOffsetsSaved() error {
	if s.Target != "apache" {
		return nil
	}
	var last time.Time
	saves := -1 // the first look only tells which save was the last
	return await(s.brokProc, 60*time.Second, "two saves of the consumer offsets", func() error {
		st, err := os.Stat(filepath.Join(s.Dir, "store", "config", "consumerOffset.json"))
		if err != nil {
			return err
		}
		if st.ModTime() != last {
			last, saves = st.ModTime(), saves+1
		}
		if saves < 2 {
			return fmt.Errorf("seen %d of 2", saves)
		}
		return nil
	})
}

// StopBroker ends the broker as an operator would.
func (s *Servers) StopBroker() error { return s.brokProc.Stop(60 * time.Second) }

// KillBroker is kill -9 of the broker.
func (s *Servers) KillBroker() { s.brokProc.Kill() }

// Stop ends both.
func (s *Servers) Stop() error {
	return errors.Join(s.brokProc.Stop(60*time.Second), s.namesrvProc.Stop(30*time.Second))
}

// Logs is the end of both programs' output, for a test that failed.
func (s *Servers) Logs() string {
	var b strings.Builder
	for _, p := range []*Process{s.namesrvProc, s.brokProc} {
		if p != nil {
			fmt.Fprintf(&b, "--- the end of %s\n%s\n", p.Log, p.Tail(4000))
		}
	}
	return b.String()
}
