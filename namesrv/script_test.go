package namesrv

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ringmq/ringmq/internal/config"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// testLog hides the log unless -v is given with -log.
var showLog = flag.Bool("log", false, "show the server's log")

func testLog(t testing.TB) *slog.Logger {
	if *showLog {
		return slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	return slog.New(slog.DiscardHandler)
}

// clock is the time that a test passes in.
type clock struct{ ms atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

// cluster is one NameServer over real TCP and memory files, and connections to it.
type cluster struct {
	t     testing.TB
	fs    *vfs.Mem
	clock clock
	srv   *Server
	conns map[string]*testConn
}

func newCluster(t testing.TB) *cluster {
	c := &cluster{t: t, fs: vfs.NewMem(), conns: map[string]*testConn{}}
	c.clock.ms.Store(1_700_000_000_000)
	t.Cleanup(c.stop)
	return c
}

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.BindAddress, cfg.ListenPort = "127.0.0.1", 0
	cfg.KvConfigPath, cfg.ConfigStorePath = "/ns/kvConfig.json", "/ns/namesrv.properties"
	cfg.EventLoops = 2
	return cfg
}

func (c *cluster) start(settings ...config.Setting) {
	c.t.Helper()
	cfg := testConfig()
	if _, err := ConfigTable.Update(&cfg, settings); err != nil {
		c.t.Fatal(err)
	}
	srv, err := newServer(cfg, testLog(c.t), c.fs, c.clock.now)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := srv.Start(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	c.srv = srv
}

func (c *cluster) stop() {
	for name, conn := range c.conns {
		_ = conn.c.Close()
		delete(c.conns, name)
	}
	if c.srv == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.srv.Close(ctx); err != nil {
		c.t.Error(err)
	}
	c.srv = nil
}

// testConn speaks remoting over one TCP connection.
type testConn struct {
	c      net.Conn
	r      *bufio.Reader
	opaque int32
}

func dial(t testing.TB, addr net.Addr) *testConn {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	return &testConn{c: c, r: bufio.NewReader(c)}
}

func (c *cluster) conn(name string) *testConn {
	if c.conns[name] == nil {
		c.conns[name] = dial(c.t, c.srv.Addr())
	}
	return c.conns[name]
}

func readFrame(r io.Reader) (*remoting.Command, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
	if _, err := io.ReadFull(r, frame[4:]); err != nil {
		return nil, err
	}
	cmd := &remoting.Command{}
	return cmd, remoting.Decode(frame, cmd)
}

func (c *testConn) send(cmd *remoting.Command) error {
	c.opaque++
	cmd.Opaque = c.opaque
	_, err := c.c.Write(remoting.Append(nil, cmd))
	return err
}

func (c *testConn) call(t testing.TB, cmd *remoting.Command) *remoting.Command {
	t.Helper()
	if err := c.c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := c.send(cmd); err != nil {
		t.Fatal(err)
	}
	resp, err := readFrame(c.r)
	if err != nil {
		t.Fatalf("code %d: %v", cmd.Code, err)
	}
	if resp.Opaque != c.opaque || !resp.IsResponse() {
		t.Fatalf("code %d: got opaque %d flag %d, want the response to %d", cmd.Code, resp.Opaque, resp.Flag, c.opaque)
	}
	return resp
}

// The scripts in testdata drive a NameServer:
//
//	start [key=value …]             a NameServer with these settings
//	restart                         stop it, start it again on the same files
//	CONN CODE [version=N] [binary] [compressed] [crc=good|bad]
//	key=value …                     a request on a connection, its header
//	                                fields, and behind a line `body` its body
//	close CONN                      closes it and waits until it is noticed
//	advance SECONDS                 moves the clock and looks for silent brokers
//	file NAME                       shows a file
//
// The output of a request is the response's code, remark, fields and body.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		c := newCluster(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c.t = t
			out, err := c.run(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out
		})
	})
}

func (c *cluster) run(d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "start":
		c.start(scriptSettings(d)...)
	case "restart":
		c.stop()
		c.start(scriptSettings(d)...)
	case "close":
		name := d.CmdArgs[0].Key
		before := c.srv.net.Stats().Conns
		_ = c.conns[name].c.Close()
		delete(c.conns, name)
		for c.srv.net.Stats().Conns >= before {
			time.Sleep(time.Millisecond)
		}
		c.settle()
	case "advance":
		seconds, err := remoting.ParseInt64([]byte(d.CmdArgs[0].Key))
		if err != nil {
			return "", err
		}
		c.srv.reg.expire(c.clock.ms.Add(seconds * 1000))
	case "file":
		data, err := c.fs.ReadFile(d.CmdArgs[0].Key)
		if err != nil {
			return err.Error() + "\n", nil
		}
		return strings.TrimRight(string(data), "\n") + "\n", nil
	default:
		return c.request(d)
	}
	return "", nil
}

func scriptSettings(d *datadriven.TestData) []config.Setting {
	var out []config.Setting
	for _, a := range d.CmdArgs {
		out = append(out, config.Flag("script", a.Key, strings.Join(a.Vals, ",")))
	}
	return out
}

// settle waits until each loop has told the handler of its closed connections:
// a request that ends a round on every loop has.
func (c *cluster) settle() {
	for range 2 * c.srv.cfg.Load().EventLoops {
		conn := dial(c.t, c.srv.Addr())
		conn.call(c.t, remoting.NewRequest(remoting.ReqGetNamesrvConfig))
		_ = conn.c.Close()
	}
}

func (c *cluster) request(d *datadriven.TestData) (string, error) {
	code, err := remoting.ParseInt32([]byte(d.CmdArgs[0].Key))
	if err != nil {
		return "", err
	}
	cmd := remoting.NewRequest(code)
	head, body, _ := strings.Cut("\n"+d.Input, "\nbody\n")
	for line := range strings.SplitSeq(head, "\n") {
		if key, value, ok := strings.Cut(line, "="); ok {
			cmd.Set(key, value)
		}
	}
	cmd.Body = []byte(body)
	for _, a := range d.CmdArgs[1:] {
		if err := option(cmd, a); err != nil {
			return "", err
		}
	}
	resp := c.conn(d.Cmd).call(c.t, cmd)
	var b strings.Builder
	b.WriteString(strings.TrimRight(fmt.Sprintf("%d %s", resp.Code, strings.ReplaceAll(string(resp.Remark), "\n", "⏎")), " ") + "\n")
	slices.SortFunc(resp.Fields, func(x, y remoting.Field) int { return strings.Compare(string(x.Key), string(y.Key)) })
	for _, f := range resp.Fields {
		fmt.Fprintf(&b, "%s=%s\n", f.Key, f.Value)
	}
	if len(resp.Body) > 0 {
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(string(resp.Body), "\n"))
	}
	return b.String(), nil
}

func option(cmd *remoting.Command, a datadriven.CmdArg) error {
	switch a.Key {
	case "version":
		v, err := remoting.ParseInt32([]byte(a.Vals[0]))
		cmd.Version = v
		return err
	case "binary":
		cmd.Serialize = remoting.SerializeBinary
	case "compressed":
		b, err := remoting.ParseRegisterBrokerBody(cmd.Body, false, remoting.Version)
		if err != nil {
			return err
		}
		cmd.Body = b.MarshalCompressed()
		cmd.Set("compressed", "true")
	case "crc":
		sum := remoting.BodyCRC32(cmd.Body)
		if a.Vals[0] == "bad" {
			sum++
		}
		cmd.Set("bodyCrc32", fmt.Sprint(sum))
	default:
		return fmt.Errorf("unknown option %s", a.Key)
	}
	return nil
}
