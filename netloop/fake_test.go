package netloop

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/panjf2000/gnet/v2"

	"github.com/ringmq/ringmq/remoting"
)

// fakeLoop and fakeConn stand for gnet, so that a test drives a Loop by hand.
type fakeLoop struct {
	gnet.EventLoop
	wakes []gnet.Runnable
}

func (f *fakeLoop) Execute(_ context.Context, r gnet.Runnable) error {
	f.wakes = append(f.wakes, r)
	return nil
}

func (f *fakeLoop) Close(c gnet.Conn) error {
	fc := c.(*fakeConn)
	fc.ev.OnClose(fc, nil)
	return nil
}

// run does what gnet's chores do.
func (f *fakeLoop) run() {
	for len(f.wakes) > 0 {
		r := f.wakes[0]
		f.wakes = f.wakes[:copy(f.wakes, f.wakes[1:])]
		_ = r.Run(context.Background())
	}
}

type fakeConn struct {
	gnet.Conn
	ev       *events
	el       *fakeLoop
	ctx      any
	data     []byte
	written  []byte
	keep     bool // in written
	outbound int
}

func (f *fakeConn) Context() any              { return f.ctx }
func (f *fakeConn) EventLoop() gnet.EventLoop { return f.el }
func (f *fakeConn) Fd() int                   { return -1 }
func (f *fakeConn) OutboundBuffered() int     { return f.outbound }

func (f *fakeConn) Next(int) ([]byte, error) {
	d := f.data
	f.data = nil
	return d, nil
}

func (f *fakeConn) Write(p []byte) (int, error) {
	if f.keep {
		f.written = append(f.written, p...)
	}
	return len(p), nil
}

// fakeServer has one loop and one open connection.
func fakeServer(t testing.TB, cfg Config) *fakeConn {
	t.Helper()
	cfg.Addrs, cfg.Logger, cfg.Loops = []string{"fake"}, slog.New(slog.DiscardHandler), 1
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	s := &Server{cfg: cfg, log: limiter{log: cfg.Logger}, deferConns: deferConns, byEl: make(map[gnet.EventLoop]*Loop), kick: make(chan struct{}, 1)}
	s.loops = []*Loop{newLoop(s, 0)}
	c := &Conn{srv: s}
	c.closer.c = c
	f := &fakeConn{ev: &events{s: s}, el: &fakeLoop{}, ctx: c}
	f.ev.OnOpen(f)
	return f
}

func (f *fakeConn) conn() *Conn { return f.ctx.(*Conn) }

func (f *fakeConn) receive(b []byte) {
	f.data = b
	f.ev.OnTraffic(f)
}

func TestNoAllocationPerMessage(t *testing.T) {
	var tasks [4]echoTask
	n := 0
	f := fakeServer(t, Config{Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
		if n++; n%2 == 0 {
			echo(c, req)
			return
		}
		task := &tasks[n/2%len(tasks)] // answered by a task, as after an append
		task.c, task.to = c, req.ReplyTo()
		c.Loop().Post(task)
	}}})
	var burst []byte
	for i := range int32(8) {
		burst = append(burst, sendRequest(i)...)
	}
	cut := len(burst) / 3
	run := func() {
		f.receive(burst[:cut])
		f.receive(burst[cut:])
		f.el.run()
	}
	run()
	if got := testing.AllocsPerRun(200, run); got != 0 {
		t.Errorf("got %v allocations for 8 messages in 2 read events, want 0", got)
	}
	if f.conn().Closed() || n < 1600 {
		t.Fatalf("served %d", n)
	}
}

type echoTask struct {
	c  *Conn
	to remoting.ReplyTo
}

func (e *echoTask) RunOnLoop(*Loop) {
	e.c.SetOut(remoting.AppendReply(e.c.Out(), e.to, remoting.Success, "", nil, nil))
}

// FuzzReceive cuts a stream of frames anywhere, with connections held back and
// released at any frame, and the peer gone at the end: every frame is served
// once, in order, with its body, before the handler hears of the end.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 200, 250, 0, 7})
	f.Add([]byte{255, 0, 255, 0})
	f.Add([]byte{255, 1, 2, 255, 0, 3, 5})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 200 {
			return
		}
		var stream []byte
		for i, s := range steps {
			stream = append(stream, request(int32(s%4), int32(i), make([]byte, int(s)*int(s)))...)
		}
		served, closed := int32(0), 0
		fc := fakeServer(t, Config{Handler: &handler{
			lane:   func(int32) Lane { return OnLoop },
			closed: func(*Conn, error) { closed++ },
			serve: func(c *Conn, req *remoting.Command) {
				if closed > 0 {
					t.Fatal("served after the end")
				}
				if req.Opaque != served || len(req.Body) != int(steps[served])*int(steps[served]) {
					t.Fatalf("served frame %d with %d bytes at place %d", req.Opaque, len(req.Body), served)
				}
				served++
				switch req.Code {
				case 1:
					c.Suspend()
				case 2:
					c.Suspend()
					c.Loop().Post(&testTask{c.Resume})
				case 3:
					for range 12 { // most of a turn
						c.SetOut(append(c.Out(), make([]byte, chunkBytes)...))
						c.flush()
					}
				}
			},
		}})
		rest := stream
		for i := 0; len(rest) > 0; i++ {
			n := min(len(rest), 1+int(steps[i%len(steps)])*(1+i%7*50), readBytes)
			fc.receive(rest[:n])
			rest = rest[n:]
			if i%5 == 0 {
				fc.el.run()
			}
			if i%3 == 0 && fc.conn().suspended {
				fc.conn().Resume()
			}
		}
		leaves := len(steps)%2 == 1
		if leaves {
			fc.ev.OnClose(fc, io.EOF)
		}
		for range len(steps) + 1 {
			fc.conn().Resume()
			fc.el.run()
		}
		if int(served) != len(steps) {
			t.Fatalf("served %d frames, want %d", served, len(steps))
		}
		if leaves && closed != 1 {
			t.Fatalf("the handler heard of the end %d times", closed)
		}
		c := fc.conn()
		if c.in != nil || c.counted != 0 || c.srv.total.Load() != 0 {
			t.Fatalf("left behind: %d bytes held, %d counted", len(c.in), c.counted)
		}
	})
}

// FuzzGarbage feeds what is no frame: it may close the connection, no more.
func FuzzGarbage(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint8(3))
	f.Add([]byte("\x00\x00\x00\x08\x00\x00\x00\x02{}xx"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		fc := fakeServer(t, Config{Handler: &handler{}, Transforms: []Transform{neverTransform{}}})
		for len(data) > 0 && !fc.conn().Closed() {
			n := min(len(data), int(cut)+1)
			fc.receive(data[:n])
			data = data[n:]
			fc.el.run()
		}
		if !fc.conn().Closed() {
			fc.conn().Close(nil)
			fc.el.run()
		}
		if got := fc.conn().srv.total.Load(); got != 0 {
			t.Fatalf("left behind: %d bytes counted", got)
		}
	})
}

// neverTransform always wants to see more.
type neverTransform struct{ Transform }

func (neverTransform) Match([]byte) Verdict { return NeedMore }
