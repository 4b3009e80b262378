//go:build linux

package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ringmq/ringmq/bench"
	"github.com/ringmq/ringmq/bench/process"
)

// Names of the systems, in the order of the table's columns.
const (
	Apache = "apache"
	Ringmq = "ringmq"
)

// system is one of the two: a NameServer and a broker, started and stopped.
type system struct {
	name    string
	dir     string // everything it writes
	nsPort  int
	port    int
	command func(s *system, what, conf string) *exec.Cmd

	namesrv *process.Process
	broker  *process.Process
}

func (s *system) addr() string        { return "127.0.0.1:" + strconv.Itoa(s.port) }
func (s *system) namesrvAddr() string { return "127.0.0.1:" + strconv.Itoa(s.nsPort) }
func (s *system) store() string       { return filepath.Join(s.dir, "store") }
func (s *system) pid() int            { return s.broker.PID() }

// apacheSystem runs Apache's jars as its own runserver.sh and runbroker.sh do,
// with the given heap.
func apacheSystem(dir, jars, heap string, ports int) *system {
	return &system{name: Apache, dir: dir, nsPort: ports, port: ports + 10, command: func(s *system, what, conf string) *exec.Cmd {
		args := []string{"-server", "-Xms256m", "-Xmx256m"}
		class := "org.apache.rocketmq.namesrv.NamesrvStartup"
		if what == "broker" {
			class = "org.apache.rocketmq.broker.BrokerStartup"
			args = []string{"-server", "-Xms" + heap, "-Xmx" + heap, "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
				"-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow", "-XX:+AlwaysPreTouch",
				"-XX:MaxDirectMemorySize=4g", "--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.base/java.nio=ALL-UNNAMED"}
		}
		// Apache keeps logs under user.home and reads ROCKETMQ_HOME.
		args = append(args, "-Duser.home="+s.dir, "-cp", jars+"/*", class, "-c", conf)
		cmd := exec.Command("java", args...)
		cmd.Env = append(process.CleanEnv(), "ROCKETMQ_HOME="+s.dir)
		return cmd
	}}
}

// ringmqSystem runs a ringmq binary.
func ringmqSystem(dir, binary string, ports int) *system {
	return &system{name: Ringmq, dir: dir, nsPort: ports + 20, port: ports + 30, command: func(s *system, what, conf string) *exec.Cmd {
		cmd := exec.Command(binary, what, "-c", conf)
		cmd.Env = process.CleanEnv()
		return cmd
	}}
}

// start begins NameServer and broker and waits until a send is accepted; it
// returns how long the broker took for that. fresh removes what was stored.
func (s *system) start(ctx context.Context, syncFlush, fresh bool) (time.Duration, error) {
	if fresh {
		if err := os.RemoveAll(s.dir); err != nil {
			return 0, fmt.Errorf("compare: %w", err)
		}
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return 0, fmt.Errorf("compare: %w", err)
	}
	for _, a := range []string{s.addr(), s.namesrvAddr()} {
		if bench.Listening(ctx, a) == nil {
			return 0, fmt.Errorf("compare: something listens on %s already: choose other ports", a)
		}
	}
	flush := "ASYNC_FLUSH"
	if syncFlush {
		flush = "SYNC_FLUSH"
	}
	nsConf, err := s.write("namesrv.conf", fmt.Sprintf("listenPort=%d\nkvConfigPath=%s\n", s.nsPort, filepath.Join(s.dir, "kv.json")))
	if err != nil {
		return 0, err
	}
	conf, err := s.write("broker.conf", fmt.Sprintf(`brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerRole=ASYNC_MASTER
brokerIP1=127.0.0.1
listenPort=%d
namesrvAddr=%s
storePathRootDir=%s
storePathCommitLog=%s
flushDiskType=%s
`, s.port, s.namesrvAddr(), s.store(), filepath.Join(s.store(), "commitlog"), flush))
	if err != nil {
		return 0, err
	}
	if s.namesrv, err = process.Start(s.command(s, "namesrv", nsConf), filepath.Join(s.dir, "namesrv.out")); err != nil {
		return 0, err
	}
	// A broker that starts while its NameServer does not listen yet is slower:
	// that is not what the start is measured for.
	if err := s.namesrv.Await(ctx, startMax, func() error { return bench.Listening(ctx, s.namesrvAddr()) }); err != nil {
		return 0, err
	}
	begin := time.Now()
	if s.broker, err = process.Start(s.command(s, "broker", conf), filepath.Join(s.dir, "broker.out")); err != nil {
		return 0, err
	}
	err = s.broker.Await(ctx, startMax, func() error {
		return bench.SendOne(ctx, &bench.Options{Addr: s.addr(), Topic: "CompareStart", Broker: "broker-a"})
	})
	return time.Since(begin), err
}

func (s *system) write(name, text string) (string, error) {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("compare: %w", err)
	}
	return path, nil
}

// startMax bounds a start; recovering gigabytes takes Apache minutes.
const startMax = 5 * time.Minute

// stop ends broker and NameServer, in that order, and waits for both.
func (s *system) stop() error {
	err := errors.Join(s.broker.Stop(), s.namesrv.Stop())
	s.broker, s.namesrv = nil, nil
	return err
}
