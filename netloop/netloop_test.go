package netloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

func TestFramesHoweverTheyAreCut(t *testing.T) {
	s := listen(t, Config{Handler: &handler{}, Loops: 2})
	rng := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	bodies := [][]byte{nil, {1}, make([]byte, 1000), make([]byte, readBytes), make([]byte, 300_000)}
	const n = 60
	for i := range n {
		stream = append(stream, request(7, int32(i), bodies[i%len(bodies)])...)
	}
	for _, cut := range []func() int{
		func() int { return len(stream) },
		func() int { return readBytes },
		func() int { return 1 + rng.IntN(5000) },
		func() int { return 100_003 },
	} {
		p := dial(t, s)
		go func() {
			for rest := stream; len(rest) > 0; {
				k := min(cut(), len(rest))
				if _, err := p.Write(rest[:k]); err != nil {
					return
				}
				rest = rest[k:]
			}
		}()
		for i := range n {
			if got := p.mustRead(int32(i)); len(got.Body) != len(bodies[i%len(bodies)]) {
				t.Fatalf("frame %d: got %d body bytes, want %d", i, len(got.Body), len(bodies[i%len(bodies)]))
			}
		}
	}
}

func TestLargestFrame(t *testing.T) {
	s := listen(t, Config{Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
		c.SetOut(remoting.AppendReply(c.Out(), req.ReplyTo(), remoting.Success, fmt.Sprint(len(req.Body)), nil, nil))
	}}})
	p := dial(t, s)
	head := len(request(7, 1, nil))
	body := make([]byte, remoting.MaxFrameBytes-head)
	p.send(request(7, 1, body))
	if got := string(p.mustRead(1).Remark); got != fmt.Sprint(len(body)) {
		t.Errorf("got %s body bytes, want %d", got, len(body))
	}
	_, _ = p.Write(request(7, 1, append(body, 0))) // closed as soon as its length is seen
	p.mustEnd()
}

func TestForeignProtocols(t *testing.T) {
	for _, tt := range []struct{ send, seen string }{
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP request"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 preface"},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS handshake"},
		{"\x7f\xff\xff\xff\x00\x00\x00\x10", "frame too large"},
		{"\x00\x00\x00\x10\x09\x00\x00\x04abcd", "unknown serialize type"},
		{"\x00\x00\x00\x08\x00\x00\x00\x04{[}]", "remote="},
	} {
		t.Run(tt.seen, func(t *testing.T) {
			log := new(logText)
			causes := make(chan error, 1)
			s := listen(t, Config{
				Logger: slog.New(slog.NewTextHandler(log, nil)), ServiceName: "broker", PortHint: "the console is on 8080",
				Handler: &handler{closed: func(_ *Conn, err error) { causes <- err }},
			})
			for range 3 {
				p := dial(t, s)
				p.send([]byte(tt.send))
				p.mustEnd()
				if err := <-causes; !errors.Is(err, ErrProtocol) {
					t.Errorf("cause: got %v, want ErrProtocol", err)
				}
			}
			wantLog(t, log, tt.seen, "service=broker", "the console is on 8080")
			if n := strings.Count(log.String(), "\n"); n != 1 {
				t.Errorf("got %d log lines for three connections, want 1:\n%s", n, log)
			}
			if got := s.Stats().ClosedProtocol; got != 3 {
				t.Errorf("ClosedProtocol: got %d, want 3", got)
			}
		})
	}
}

func TestListenErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	_, err = Listen(Config{Handler: &handler{}, Addrs: []string{"127.0.0.1:0", addr}})
	if err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want the address and the cause", err)
	}
	for _, cfg := range []Config{
		{},
		{Handler: &handler{}},
		{Handler: &handler{}, Addrs: []string{"127.0.0.1:0"}, FrameBytesMax: 17 << 20},
		{Handler: &handler{}, Addrs: []string{"127.0.0.1:0"}, ConnInboundBytesMax: 1 << 20},
		{Handler: &handler{}, Addrs: []string{"127.0.0.1:0"}, TotalBytesMax: 1 << 20},
		{Handler: &handler{}, Addrs: []string{"127.0.0.1:0"}, Loops: -1},
	} {
		if s, err := Listen(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
			_ = s.Close(context.Background())
		}
	}
}

func TestTwoAddressesBothFamilies(t *testing.T) {
	remotes := make(chan string, 1)
	s := listen(t, Config{
		Addrs: []string{"127.0.0.1:0", "127.0.0.1:0"},
		Handler: &handler{open: func(c *Conn) {
			remotes <- c.Remote().String()
			if c.Local().Port() == 0 || c.Local().Addr().Is4In6() {
				t.Errorf("local address: got %v", c.Local())
			}
		}},
	})
	for i := range 2 {
		nc, err := net.Dial("tcp", s.Addr(i).String())
		if err != nil {
			t.Fatal(err)
		}
		if got := <-remotes; got != nc.LocalAddr().String() {
			t.Errorf("remote: got %s, want %s", got, nc.LocalAddr())
		}
		nc.Close()
	}
}

func TestSuspendKeepsOrder(t *testing.T) {
	var served int32 // the loop's
	var held *Conn
	resume := &testTask{}
	s := listen(t, Config{Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
		if req.Opaque != served {
			t.Errorf("served %d at place %d", req.Opaque, served)
		}
		served++
		echo(c, req)
		if req.Code == 1 {
			c.Suspend()
			held = c
			resume.run = func() { held.Resume() }
			c.Loop().Post(resume)
		}
	}}})
	p := dial(t, s)
	var stream []byte
	for i := range int32(1000) {
		stream = append(stream, request(i%3%2, i, make([]byte, 300))...)
	}
	go p.Write(stream)
	for i := range int32(1000) {
		p.mustRead(i)
	}
}

type testTask struct{ run func() }

func (t *testTask) RunOnLoop(*Loop) { t.run() }

func TestHeldBackBytesAreBounded(t *testing.T) {
	log := new(logText)
	s := listen(t, Config{
		FrameBytesMax: 1 << 20, ConnInboundBytesMax: 2 << 20, Keys: Keys{ConnInboundBytesMax: "theKey"},
		Logger:  slog.New(slog.NewTextHandler(log, nil)),
		Handler: &handler{serve: func(c *Conn, _ *remoting.Command) { c.Suspend() }},
	})
	p := dial(t, s)
	for i := range int32(16) {
		if _, err := p.Write(request(1, i, make([]byte, 500_000))); err != nil {
			break
		}
	}
	p.mustEnd()
	wantLog(t, log, "theKey", "limit=2097152")
	eventually(t, "nothing waits", func() bool { return s.Stats().WaitingBytes == 0 })
}

func TestPoolLane(t *testing.T) {
	gate := make(chan struct{})
	s := listen(t, Config{
		PoolWorkers: 1, PoolQueueMax: 2, Keys: Keys{PoolQueueMax: "adminQueue"},
		Handler: &handler{
			lane: func(code int32) Lane { return Lane(code) },
			serve: func(c *Conn, req *remoting.Command) {
				<-gate
				c.Send(remoting.AppendReply(nil, req.ReplyTo(), remoting.Success, "", nil, req.Body))
			},
		},
	})
	p := dial(t, s)
	p.send(request(int32(OnPool), 0, []byte("a")))
	eventually(t, "the worker has it", func() bool { return s.Stats().PoolServed == 1 })
	for i := range int32(3) {
		p.send(request(int32(OnPool), 1+i, []byte("b")))
	}
	busy := p.mustRead(3)
	if busy.Code != int32(remoting.SystemBusy) || !strings.Contains(string(busy.Remark), "got 2, limit 2 (adminQueue)") {
		t.Errorf("got code %d, remark %q", busy.Code, busy.Remark)
	}
	close(gate)
	for i := range int32(3) {
		if got := p.mustRead(i); len(got.Body) != 1 {
			t.Errorf("answer %d: body %q", i, got.Body)
		}
	}
}

func TestServerAsksAndSendsFromAnywhere(t *testing.T) {
	answers := make(chan int32, 100)
	conns := make(chan *Conn, 1)
	s := listen(t, Config{Handler: &handler{
		open:     func(c *Conn) { c.User = "mine"; conns <- c },
		response: func(c *Conn, resp *remoting.Command) { answers <- resp.Opaque },
	}})
	p := dial(t, s)
	c := <-conns
	var wg sync.WaitGroup
	for g := range int32(10) {
		wg.Go(func() {
			for i := range int32(10) {
				c.Send(request(40, g*10+i, nil))
			}
		})
	}
	wg.Wait()
	seen := make(map[int32]bool)
	for range 100 {
		cmd, err := p.readFrame()
		if err != nil {
			t.Fatal(err)
		}
		seen[cmd.Opaque] = true
		cmd.Flag = remoting.FlagResponse
		p.send(remoting.Append(nil, cmd))
	}
	for range 100 {
		delete(seen, <-answers)
	}
	if len(seen) != 0 {
		t.Errorf("no answers seen of %v", seen)
	}
	if c.User != "mine" {
		t.Errorf("User: %v", c.User)
	}
}

func TestTasksRunInOrderAndWakeOnce(t *testing.T) {
	conns := make(chan *Conn, 1)
	s := listen(t, Config{Handler: &handler{open: func(c *Conn) { conns <- c }}})
	p := dial(t, s)
	l := (<-conns).Loop()
	started, gate := make(chan struct{}), make(chan struct{})
	l.Post(&testTask{func() { close(started); <-gate }})
	<-started
	before := s.Stats().Wakes
	var got []int
	done := make(chan struct{})
	for i := range 1000 {
		l.Post(&testTask{func() {
			if got = append(got, i); i == 999 {
				close(done)
			}
		}})
	}
	close(gate)
	<-done
	for i, v := range got {
		if i != v {
			t.Fatalf("task %d ran at place %d", v, i)
		}
	}
	if n := s.Stats().Wakes - before; n > 1 {
		t.Errorf("got %d wake-ups for tasks posted while the loop was awake, want at most 1", n)
	}
	p.send(request(1, 1, nil))
	p.mustRead(1)
}

func TestReadEndOfManyConnections(t *testing.T) {
	var served, unended, ends atomic.Int64
	s := listen(t, Config{Loops: 1, Handler: &handler{
		serve: func(c *Conn, req *remoting.Command) {
			served.Add(1)
			unended.Add(1)
			echo(c, req)
		},
		readEnd: func(*Loop) {
			if unended.Swap(0) == 0 {
				t.Error("ReadEnd with nothing served")
			}
			ends.Add(1)
		},
	}})
	const conns, each = 32, 200
	var wg sync.WaitGroup
	for range conns {
		p := dial(t, s)
		wg.Go(func() {
			for i := range int32(each) {
				p.send(request(1, i, nil))
				p.mustRead(i)
			}
		})
	}
	wg.Wait()
	eventually(t, "every request is followed by ReadEnd", func() bool { return unended.Load() == 0 })
	if served.Load() != conns*each {
		t.Errorf("served %d, want %d", served.Load(), conns*each)
	}
	t.Logf("%d requests, %d rounds", served.Load(), ends.Load())
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	causes := make(chan error, 2)
	s := listen(t, Config{IdleTimeout: 100 * time.Millisecond, Handler: &handler{closed: func(_ *Conn, err error) { causes <- err }}})
	busy, idle := dial(t, s), dial(t, s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := int32(0); ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				busy.send(request(1, i, nil))
				busy.mustRead(i)
			}
		}
	})
	idle.mustEnd()
	if err := <-causes; !errors.Is(err, ErrIdle) {
		t.Errorf("cause: got %v, want ErrIdle", err)
	}
	close(stop)
	wg.Wait()
	if len(causes) != 0 {
		t.Error("the busy connection was closed too")
	}
}

func TestStuckPeerIsIdle(t *testing.T) {
	causes := make(chan error, 1)
	s := listen(t, Config{IdleTimeout: 100 * time.Millisecond, Handler: &handler{
		serve: func(c *Conn, req *remoting.Command) {
			c.SetOut(remoting.AppendReply(c.Out(), req.ReplyTo(), remoting.Success, "", nil, make([]byte, 10<<20)))
		},
		closed: func(_ *Conn, err error) { causes <- err },
	}})
	p := dial(t, s)
	p.send(request(1, 1, nil)) // and never reads
	if err := <-causes; !errors.Is(err, ErrIdle) {
		t.Errorf("cause: got %v, want ErrIdle", err)
	}
	eventually(t, "nothing waits", func() bool { return s.Stats().WaitingBytes == 0 && s.Stats().SlowConns == 0 })
}

// fullTable is a listener of a process that has no descriptor left at first.
type fullTable struct {
	net.Listener
	failures atomic.Int32
}

func (f *fullTable) Accept() (net.Conn, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

func TestFailedAcceptIsNotTheEnd(t *testing.T) {
	log := new(logText)
	s := listen(t, Config{Handler: &handler{}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fullTable{Listener: ln}
	f.failures.Store(2)
	s.listeners = append(s.listeners, f)
	s.accepts.Go(func() { s.accept(f) })
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p := &peer{Conn: nc, t: t}
	p.send(request(1, 1, nil))
	p.mustRead(1)
	wantLog(t, log, "cannot accept a connection", "too many open files")
}

func TestConnsMax(t *testing.T) {
	log := new(logText)
	s := listen(t, Config{ConnsMax: 1, Keys: Keys{ConnsMax: "maxConns"}, Handler: &handler{}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	first := dial(t, s)
	first.send(request(1, 1, nil))
	first.mustRead(1)
	dial(t, s).mustEnd()
	wantLog(t, log, "maxConns")
	first.send(request(1, 2, nil))
	first.mustRead(2)
}

func TestCloseAnswersWhatWasTaken(t *testing.T) {
	started, gate := make(chan struct{}), make(chan struct{})
	causes := make(chan error, 10_000) // of the probing connections too
	s := listen(t, Config{Handler: &handler{
		lane: func(int32) Lane { return OnPool },
		serve: func(c *Conn, req *remoting.Command) {
			close(started)
			<-gate
			c.Send(remoting.AppendReply(nil, req.ReplyTo(), remoting.Success, "", nil, make([]byte, 4<<20)))
		},
		closed: func(_ *Conn, err error) { causes <- err },
	}})
	p := dial(t, s)
	p.send(request(1, 5, nil))
	<-started
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	eventually(t, "the listener is closed", func() bool {
		nc, err := net.Dial("tcp", s.Addr(0).String())
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
	close(gate)
	if got := p.mustRead(5); len(got.Body) != 4<<20 {
		t.Errorf("got %d bytes", len(got.Body))
	}
	p.mustEnd()
	p.Close()
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-causes; !errors.Is(err, ErrPeerClosed) && !errors.Is(err, ErrShutdown) {
		t.Errorf("cause: %v", err)
	}
}

func TestCloseGivesUpOnAPeerThatDoesNotRead(t *testing.T) {
	conns := make(chan *Conn, 1)
	s := listen(t, Config{Handler: &handler{open: func(c *Conn) { conns <- c }}})
	dial(t, s)
	c := <-conns
	c.Send(make([]byte, 30<<20))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	s.closeErr = nil // the helper's own Close is the second one
}

func TestBlockedLoopShows(t *testing.T) {
	s := listen(t, Config{SampleEvery: 1, Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
		time.Sleep(20 * time.Millisecond) // stands for a handler that waits for a disk
		echo(c, req)
	}}})
	p := dial(t, s)
	p.send(request(1, 1, nil))
	p.mustRead(1)
	eventually(t, "it shows", func() bool { return s.Stats().BlockedMax >= 20*time.Millisecond })
	if got := s.Stats(); got.Blocked < 20*time.Millisecond || got.BlockedSamples < 1 {
		t.Errorf("got %v in %d samples, want at least 20 ms", got.Blocked, got.BlockedSamples)
	}
}

func TestCloseFromInside(t *testing.T) {
	boom := errors.New("boom")
	causes := make(chan error, 1)
	inside := false
	s := listen(t, Config{Handler: &handler{
		serve: func(c *Conn, req *remoting.Command) {
			inside = true
			echo(c, req)
			c.Close(boom)
			inside = false
		},
		closed: func(_ *Conn, err error) {
			if inside {
				t.Error("Closed was called inside Serve")
			}
			causes <- err
		},
	}})
	p := dial(t, s)
	p.send(append(request(1, 1, bytes.Repeat([]byte("x"), 100)), request(1, 2, nil)...))
	p.mustRead(1)
	if _, err := p.readFrame(); err == nil {
		t.Error("the second request was answered after Close")
	}
	if err := <-causes; err != boom {
		t.Errorf("cause: got %v, want %v", err, boom)
	}
}
