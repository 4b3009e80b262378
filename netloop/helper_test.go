package netloop

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringmq/ringmq/remoting"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// gnet's package makes a pool of goroutines when it is linked.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// handler is a Handler of functions; those that are nil do the simplest.
type handler struct {
	open     func(*Conn)
	closed   func(*Conn, error)
	lane     func(int32) Lane
	serve    func(*Conn, *remoting.Command)
	response func(*Conn, *remoting.Command)
	readEnd  func(*Loop)
}

func (h *handler) Open(c *Conn) {
	if h.open != nil {
		h.open(c)
	}
}

func (h *handler) Closed(c *Conn, cause error) {
	if h.closed != nil {
		h.closed(c, cause)
	}
}

func (h *handler) Lane(code int32) Lane {
	if h.lane != nil {
		return h.lane(code)
	}
	return OnLoop
}

func (h *handler) Serve(c *Conn, req *remoting.Command) {
	if h.serve != nil {
		h.serve(c, req)
		return
	}
	echo(c, req)
}

func (h *handler) Response(c *Conn, resp *remoting.Command) {
	if h.response != nil {
		h.response(c, resp)
	}
}

func (h *handler) ReadEnd(l *Loop) {
	if h.readEnd != nil {
		h.readEnd(l)
	}
}

// echo answers a request with its body.
func echo(c *Conn, req *remoting.Command) {
	c.SetOut(remoting.AppendReply(c.Out(), req.ReplyTo(), remoting.Success, "", nil, req.Body))
}

// logText is a logger to be looked into.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *logText) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *logText) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// listen starts a server on a free port that ends with the test.
func listen(t testing.TB, cfg Config) *Server {
	t.Helper()
	if cfg.Addrs == nil {
		cfg.Addrs = []string{"127.0.0.1:0"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// peer is a client at the level of frames.
type peer struct {
	net.Conn
	t testing.TB
}

func dial(t testing.TB, s *Server) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr(0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return &peer{Conn: nc, t: t}
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

// readFrame reads one frame.
func (p *peer) readFrame() (*remoting.Command, error) {
	var size [4]byte
	if _, err := io.ReadFull(p.Conn, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(frame, size[:])
	if _, err := io.ReadFull(p.Conn, frame[4:]); err != nil {
		return nil, err
	}
	cmd := new(remoting.Command)
	if err := remoting.Decode(frame, cmd); err != nil {
		return nil, err
	}
	return cmd, nil
}

// mustRead reads the answer to opaque.
func (p *peer) mustRead(opaque int32) *remoting.Command {
	p.t.Helper()
	cmd, err := p.readFrame()
	if err != nil {
		p.t.Fatalf("reading the answer to %d: %v", opaque, err)
	}
	if cmd.Opaque != opaque || !cmd.IsResponse() {
		p.t.Fatalf("got opaque %d, flag %d, want the answer to %d", cmd.Opaque, cmd.Flag, opaque)
	}
	return cmd
}

// mustEnd reads until the server has closed the connection.
func (p *peer) mustEnd() {
	p.t.Helper()
	_, err := io.Copy(io.Discard, p.Conn)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		p.t.Fatal("the connection is still open")
	}
}

func request(code, opaque int32, body []byte) []byte {
	r := remoting.NewRequest(code)
	r.Opaque, r.Body = opaque, body
	return remoting.Append(nil, r)
}

// eventually waits for a state that another goroutine brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func wantLog(t testing.TB, log *logText, parts ...string) {
	t.Helper()
	text := log.String()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("the log lacks %q:\n%s", p, text)
		}
	}
}
