package netloop

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// TestWhatAPeerSentBeforeItLeft: a peer sends a request, then some that want no
// answer, and closes its connection with a reset. However the server learns of
// that, all are served, in order, and only then is the handler told. They fit
// into the server's socket: what doesn't is lost by the peer's own reset.
func TestWhatAPeerSentBeforeItLeft(t *testing.T) {
	const oneways = 5
	f, _ := testFile(t, 1<<20)
	answers := map[string]func(c *Conn, req *remoting.Command){
		"write":    func(c *Conn, req *remoting.Command) { echo(c, req); c.flush() },
		"gathered": echo,
		"sendfile": func(c *Conn, _ *remoting.Command) { c.SendFile([]byte("head"), []vfs.Range{{File: f, Len: 1 << 20}}) },
		"writev":   func(c *Conn, _ *remoting.Command) { c.SendCopy([]byte("head"), []vfs.Range{{File: f, Len: 100}}) },
		"held back": func(c *Conn, req *remoting.Command) {
			c.Suspend()
			l := c.Loop()
			go l.Post(&testTask{func() { l.Post(&testTask{c.Resume}) }})
		},
		"in the pool": func(c *Conn, req *remoting.Command) {
			c.Suspend()
			l := c.Loop()
			l.Go(func() {
				for !c.Closed() {
					time.Sleep(time.Millisecond)
				}
				l.Post(&testTask{c.Resume})
			})
		},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			begun, left := make(chan bool), make(chan bool)
			var got []int32
			closed := make(chan error, 2)
			s := listen(t, Config{Handler: &handler{
				serve: func(c *Conn, req *remoting.Command) {
					got = append(got, req.Opaque)
					if req.Opaque == 0 {
						begun <- true
						<-left
						for range 3 { // the first may still find the socket open
							answer(c, req)
						}
					}
				},
				closed: func(_ *Conn, cause error) { closed <- cause },
			}})
			p := dial(t, s)
			p.send(request(1, 0, []byte("x")))
			<-begun
			for i := range int32(oneways) {
				p.send(request(1, 1+i, make([]byte, 8_000)))
			}
			if err := p.Conn.(*net.TCPConn).SetLinger(0); err != nil {
				t.Fatal(err)
			}
			p.Close()
			left <- true
			if cause := <-closed; !errors.Is(cause, ErrPeerClosed) {
				t.Errorf("cause: got %v, want ErrPeerClosed", cause)
			}
			if want := []int32{0, 1, 2, 3, 4, 5}; !slices.Equal(got, want) {
				t.Errorf("served %v, want %v", got, want)
			}
			eventually(t, "nothing is counted any more", func() bool { return s.total.Load() == 0 })
			if len(closed) > 0 {
				t.Error("the handler was told twice")
			}
		})
	}
}

// TestWhatASlowPeerSentBeforeItLeft: the same for a peer that has not read its
// answers, so that bytes wait for it: gnet itself meets the end then.
func TestWhatASlowPeerSentBeforeItLeft(t *testing.T) {
	const frames = 12
	served, closed := make(chan int32, frames), make(chan error, 1)
	stall := make(chan bool)
	s := listen(t, Config{Handler: &handler{
		serve: func(c *Conn, req *remoting.Command) {
			served <- req.Opaque
			if req.Opaque == 0 {
				c.SendBytes(nil, make([]byte, 16<<20))
				return
			}
			<-stall
		},
		closed: func(_ *Conn, cause error) { closed <- cause },
	}})
	p := dial(t, s)
	p.send(request(1, 0, nil))
	<-served
	eventually(t, "bytes wait", func() bool { return s.total.Load() > 0 })
	for i := range int32(frames - 1) {
		p.send(request(1, 1+i, make([]byte, 4_000)))
	}
	if err := p.Conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	p.Close()
	close(stall)
	cause := <-closed
	for i := range int32(frames - 1) {
		if len(served) == 0 {
			t.Fatalf("served %d frames, want %d; closed by %v", i+1, frames, cause)
		}
		if got := <-served; got != 1+i {
			t.Fatalf("served %d, want %d", got, 1+i)
		}
	}
	eventually(t, "nothing is counted any more", func() bool { return s.total.Load() == 0 })
}

// TestABadFrameOfAPeerThatLeft ends what is served of it.
func TestABadFrameOfAPeerThatLeft(t *testing.T) {
	var got []int32
	closed := 0
	fc := fakeServer(t, Config{Handler: &handler{
		serve: func(c *Conn, req *remoting.Command) {
			got = append(got, req.Opaque)
			if req.Opaque == 0 {
				c.Suspend()
			}
		},
		closed: func(*Conn, error) { closed++ },
	}})
	stream := slices.Concat(request(1, 0, nil), request(1, 1, nil), []byte("\x7f\xff\xff\xff\x00\x00\x00\x10"), request(1, 2, nil))
	fc.receive(stream)
	fc.ev.OnClose(fc, io.EOF)
	fc.el.run()
	if closed != 0 {
		t.Fatal("the handler was told while a request is being prepared")
	}
	fc.conn().Resume()
	fc.el.run()
	if want := []int32{0, 1}; !slices.Equal(got, want) || closed != 1 {
		t.Errorf("served %v, closed %d times, want %v, once", got, closed, want)
	}
	fc.conn().Resume()
	fc.el.run()
	if total := fc.conn().srv.total.Load(); closed != 1 || total != 0 {
		t.Errorf("closed %d times, %d bytes counted, want 1, 0", closed, total)
	}
}
