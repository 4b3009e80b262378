package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/config"
	"github.com/ringmq/ringmq/remoting"
)

// The test binary is the program itself when a test starts it so.
func TestMain(m *testing.M) {
	if os.Getenv("RINGMQ_TEST_MAIN") == "1" {
		main()
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ringmq.conf")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func contains(t *testing.T, what, text string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !strings.Contains(text, w) {
			t.Errorf("%s: %q is missing in\n%s", what, w, text)
		}
	}
}

func TestPrint(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("NAMESRV_ADDR", "10.0.0.9:9876")
	file := writeFile(t, "brokerName = b1\n\nfileReservedTime=48 \nflushDiskType=SYNC_FLUSH\nlistenPort=10921\n")
	code, out, errs := command(t, "broker", "-c", file, "-p")
	if code != 0 || errs != "" {
		t.Fatalf("got code %d, %s", code, errs)
	}
	for key, want := range map[string]string{
		"brokerName":                  "b1|" + file + ":1",
		"fileReservedTime":            "48|h|" + file + ":3",
		"haListenPort":                "10922|listenPort+1",
		"namesrvAddr":                 "10.0.0.9:9876|environment NAMESRV_ADDR",
		"flushEngine":                 "auto|default",
		"aclEnable":                   "false|(only false)",
		"sendThreadPoolQueueCapacity": "10000|(no effect here)",
	} {
		line := ""
		for l := range strings.SplitSeq(out, "\n") {
			if f := strings.Fields(l); len(f) > 0 && f[0] == key {
				line = l
			}
		}
		contains(t, key, line, strings.Split(want, "|")...)
	}
	code, short, _ := command(t, "broker", "-c", file, "-m")
	if code != 0 || strings.Contains(short, "maxMsgsNumBatch") || !strings.Contains(short, "brokerName") {
		t.Errorf("-m: got code %d\n%s", code, short)
	}
	code, out, _ = command(t, "namesrv", "-p", "-n", "x:1")
	if code != 0 {
		t.Errorf("namesrv -p: got code %d", code)
	}
	contains(t, "namesrv -p", out, "scanNotActiveBrokerInterval", "kvConfigPath")
	code, out, _ = command(t, "server", "-p", "-c", writeFile(t, "namesrv.listenPort=9877\nbrokerName=x"))
	if code != 0 {
		t.Errorf("server -p: got code %d", code)
	}
	contains(t, "server -p", out, "data/store", "flag --data", "= 9877", "127.0.0.1:9877;10.0.0.9:9876", "data/namesrv/kvConfig.json")
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"bad value", []string{"broker", "-c", writeFile(t, "a=1\nlistenPort=x")}, []string{`ringmq.conf:2: listenPort: got "x", want a whole number, 3 to 65535`}},
		{"bad flag value", []string{"broker", "-n", "host"}, []string{"flag -n: namesrvAddr", "host:port"}},
		{"no protection", []string{"broker", "-c", writeFile(t, "aclEnable=true")}, []string{`aclEnable: got "true", want false`}},
		{"slave", []string{"broker", "-c", "../../broker/testdata/article/broker-a-s.properties"}, []string{"brokerRole", "brokerId", "do not exist yet"}},
		{"prefixed key", []string{"server", "-c", writeFile(t, "namesrv.listenPort=0")}, []string{"ringmq.conf:1: namesrv.listenPort"}},
		{"no file", []string{"namesrv", "-c", "/nowhere/x.conf"}, []string{"configuration file", "/nowhere/x.conf"}},
		{"level", []string{"namesrv", "--log-level", "loud"}, []string{"--log-level", "loud", "debug, info, warn, error"}},
		{"unknown command", []string{"sever"}, []string{"sever"}},
		{"arguments", []string{"broker", "x.conf"}, []string{"x.conf"}},
	} {
		code, out, errs := command(t, c.args...)
		if code != 1 || out != "" {
			t.Errorf("%s: got code %d, output %q, want 1 and nothing", c.name, code, out)
		}
		contains(t, c.name, errs, append(c.want, "ringmq: ")...)
	}
}

func TestEnvironmentOverridesFile(t *testing.T) {
	t.Setenv("NAMESRV_ADDR", "a:1")
	file, err := config.Parse([]byte("namesrvAddr=b:2"), config.Origin{Kind: config.FromFile, Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	cfg, warnings, err := loadBroker(file, nil)
	if err != nil || cfg.NamesrvAddr != "a:1" || len(warnings) != 1 || !strings.Contains(warnings[0].Text, "f:1 is overridden by the environment NAMESRV_ADDR") {
		t.Errorf("got %q, %v, %v; want a:1 and a warning", cfg.NamesrvAddr, warnings, err)
	}
	cfg, _, err = loadBroker(file, []config.Setting{config.Flag("-n", "namesrvAddr", "c:3")})
	if err != nil || cfg.NamesrvAddr != "c:3" {
		t.Errorf("flag: got %q, %v, want c:3", cfg.NamesrvAddr, err)
	}
}

func TestServerRegistersWithItself(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "127.0.0.1:9876",
		"namesrv.bindAddress=::":                "[::1]:9876",
		"namesrv.bindAddress=10.1.1.1":          "10.1.1.1:9876",
		"namesrvAddr=localhost:9876":            "localhost:9876",
		"namesrvAddr=h:9876;127.0.0.1:9876":     "h:9876;127.0.0.1:9876",
		"namesrvAddr=h:9876":                    "127.0.0.1:9876;h:9876",
		"namesrvAddr=h:1\nnamesrv.listenPort=1": "127.0.0.1:1;h:1",
	} {
		s, err := loadServer(&commonFlags{file: writeFile(t, text)}, t.TempDir())
		if err != nil || s.broker.NamesrvAddr != want {
			t.Errorf("%q: got %v, %v, want %s", text, s, err, want)
		}
	}
}

func TestStoredUpdatesAreRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "namesrv"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "namesrv", "namesrv.properties"), []byte("orderMessageEnable=true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := loadServer(&commonFlags{}, dir)
	if err != nil || !s.namesrv.OrderMessageEnable {
		t.Errorf("got %+v, %v, want orderMessageEnable from the stored updates", s, err)
	}
}

func TestDescribeBuild(t *testing.T) {
	got := describeBuild(&debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-01T00:00:00Z"}, {Key: "vcs.modified", Value: "true"},
		{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "amd64"}, {Key: "CGO_ENABLED", Value: "0"}}})
	want := "ringmq v0.1.0\ncommit  abc of 2026-01-01T00:00:00Z, with local changes\nbuilt   go1.26.8 for linux/amd64, static"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestContainerLimit(t *testing.T) {
	for _, c := range []struct {
		name, cgroup string
		files        map[string]string
		want         int64
	}{
		{"none", "0::/\n", map[string]string{"sys/fs/cgroup/memory.max": "max\n"}, 0},
		{"version 2, own group", "0::/a/b\n", map[string]string{"sys/fs/cgroup/a/b/memory.max": "1000000\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 1000000},
		{"version 2, smaller above", "0::/a/b\n", map[string]string{"sys/fs/cgroup/a/b/memory.max": "3000\n", "sys/fs/cgroup/a/memory.max": "2000\n"}, 2000},
		{"version 2, inside a container", "0::/gone\n", map[string]string{"sys/fs/cgroup/memory.max": "5000"}, 5000},
		{"version 1", "5:cpu,cpuacct:/x\n7:memory:/x\n", map[string]string{"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "7000\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 7000},
		{"no such file", "", nil, 0},
	} {
		root := t.TempDir()
		if c.files != nil {
			c.files["proc/self/cgroup"] = c.cgroup
		}
		for name, text := range c.files {
			name = filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, from := containerLimit(root)
		if got != c.want {
			t.Errorf("%s: got %d from %s, want %d", c.name, got, from, c.want)
		}
	}
}

// fakePart notes what is done to it.
type fakePart struct {
	name     string
	log      *[]string
	startErr error
}

func (p *fakePart) Start(context.Context) error {
	*p.log = append(*p.log, "start "+p.name)
	return p.startErr
}
func (p *fakePart) Close(context.Context) error { *p.log = append(*p.log, "close "+p.name); return nil }
func (p *fakePart) Describe() []string          { return []string{p.name} }

func TestServeOrder(t *testing.T) {
	fail := errors.New("port taken")
	for _, c := range []struct {
		name     string
		startErr error
		openErr  error
		want     string
	}{
		{"stopped", nil, nil, "open a, start a, open b, start b, ready, close b, close a"},
		{"b does not start", fail, nil, "open a, start a, open b, start b, close b, close a"},
		{"b does not open", nil, fail, "open a, start a, open b, close a"},
	} {
		var log []string
		open := func(name string, startErr, openErr error) opener {
			return opener{name, func() (part, error) {
				log = append(log, "open "+name)
				if openErr != nil {
					return nil, openErr
				}
				return &fakePart{name, &log, startErr}, nil
			}}
		}
		ctx, cancel := context.WithCancel(context.Background())
		err := serve(ctx, slog.New(slog.DiscardHandler), time.Second, []opener{open("a", nil, nil), open("b", c.startErr, c.openErr)}, func([]part) {
			log = append(log, "ready")
			cancel()
		})
		cancel()
		if got := strings.Join(log, ", "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if want := errors.Join(c.startErr, c.openErr); (err != nil) != (want != nil) {
			t.Errorf("%s: got %v, want %v", c.name, err, want)
		}
	}
}

// process is the program in a process of its own.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	done           chan struct{}
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "RINGMQ_TEST_MAIN=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// wait returns the exit code, or fails after the time.
func (p *process) wait(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Fatalf("still running after %v", within)
		return 0
	}
}

// freePorts finds n+1 neighbouring free ports below the range of outgoing
// connections.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for port := 21000 + os.Getpid()%5000; port < 32000; port += n + 1 {
		free := true
		for i := 0; i <= n && free; i++ {
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i))
			if free = err == nil; free {
				_ = ln.Close()
			}
		}
		if free {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

// query sends one request on a connection of its own.
func query(addr string, cmd *remoting.Command) (*remoting.Command, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(remoting.Append(nil, cmd)); err != nil {
		return nil, err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil, err
	}
	frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
	if _, err := io.ReadFull(conn, frame[4:]); err != nil {
		return nil, err
	}
	resp := &remoting.Command{}
	return resp, remoting.Decode(frame, resp)
}

// waitRoute waits until the NameServer knows a topic.
func waitRoute(t *testing.T, addr, topic string) string {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		resp, err := query(addr, (&remoting.RouteHeader{Topic: topic}).Command())
		if err == nil && resp.Code == 0 {
			return string(resp.Body)
		}
		if time.Now().After(deadline) {
			t.Fatalf("no route of %s at %s after 20 s: %v %v", topic, addr, resp, err)
		}
	}
}

func serverFile(t *testing.T, brokerPort, namesrvPort int) string {
	return writeFile(t, fmt.Sprintf("listenPort=%d\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nmappedFileSizeCommitLog=16777216\n"+
		"maxHashSlotNum=1000\nmaxIndexNum=4000\nnamesrv.listenPort=%d\nnamesrv.bindAddress=127.0.0.1\n", brokerPort, namesrvPort))
}

// One process serves; a second one on its directory or on its port is refused
// in one line; SIGTERM stops it gracefully.
func TestServerProcess(t *testing.T) {
	dir := t.TempDir()
	port := freePorts(t, 8)
	namesrvAddr := fmt.Sprintf("127.0.0.1:%d", port+4)
	file := serverFile(t, port+2, port+4)
	p := startProcess(t, "server", "-c", file, "--data", dir)
	route := waitRoute(t, namesrvAddr, "TBW102")
	contains(t, "route", route, fmt.Sprintf("127.0.0.1:%d", port+2))
	if _, err := os.Stat(filepath.Join(dir, "store", "abort")); err != nil {
		t.Errorf("running: %v, want an abort file", err)
	}

	other := startProcess(t, "server", "-c", serverFile(t, port+7, port+8), "--data", dir)
	if code := other.wait(t, 20*time.Second); code != 1 {
		t.Errorf("second process on the directory: got code %d, want 1", code)
	}
	contains(t, "second process on the directory", other.stderr.String(), "ringmq: ", "storePathRootDir", filepath.Join(dir, "store"))
	taken := startProcess(t, "broker", "-c", writeFile(t, fmt.Sprintf("listenPort=%d\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"+
		"mappedFileSizeCommitLog=16777216\nmaxHashSlotNum=1000\nmaxIndexNum=4000\nstorePathRootDir=%s\n", port+2, filepath.Join(dir, "two"))))
	if code := taken.wait(t, 20*time.Second); code != 1 {
		t.Errorf("taken port: got code %d, want 1", code)
	}
	contains(t, "taken port", taken.stderr.String(), "ringmq: ", "listenPort", fmt.Sprint(port+2))

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t, 20*time.Second); code != 0 {
		t.Errorf("after SIGTERM: got code %d, want 0\n%s", code, &p.stderr)
	}
	contains(t, "output", p.stdout.String(), "NameServer on", "broker ", "FLUSH", "flush engine", namesrvAddr)
	if _, err := os.Stat(filepath.Join(dir, "store", "abort")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stopped: got %v, want no abort file", err)
	}

	again := startProcess(t, "server", "-c", file, "--data", dir)
	waitRoute(t, namesrvAddr, "TBW102")
	if err := again.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := again.wait(t, 20*time.Second); code != 0 {
		t.Errorf("after SIGINT: got code %d, want 0\n%s", code, &again.stderr)
	}
}

// stuckPart never closes.
type stuckPart struct{ fakePart }

func (p *stuckPart) Close(context.Context) error { select {} }

// A second signal ends a process whose parts do not close.
func TestSecondSignal(t *testing.T) {
	if os.Getenv("RINGMQ_TEST_STUCK") == "1" {
		var log []string
		_ = serve(context.Background(), slog.New(slog.DiscardHandler), time.Hour,
			[]opener{{"stuck", func() (part, error) { return &stuckPart{fakePart{"stuck", &log, nil}}, nil }}},
			func([]part) { fmt.Println("ready") })
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestSecondSignal$")
	cmd.Env = append(os.Environ(), "RINGMQ_TEST_STUCK=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	for signals := 0; ; signals++ {
		select {
		case err := <-exited:
			var code *exec.ExitError
			if !errors.As(err, &code) || code.ExitCode() != 1 || signals < 2 {
				t.Errorf("after %d signals: got %v, want exit code 1 after the second", signals, err)
			}
			return
		case <-time.After(repeatWithin + 100*time.Millisecond):
			if signals > 20 {
				t.Fatal("still running after 20 signals")
			}
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
}
