package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringmq/ringmq/remoting"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, // gnet's, when it is linked
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// server is a plain TCP server; serve gets each frame and returns what is
// written back, nil for nothing.
type server struct {
	ln       net.Listener
	wg       sync.WaitGroup
	accepted atomic.Int32
	mu       sync.Mutex
	conns    []net.Conn
}

func startServer(t *testing.T, serve func(nc net.Conn, req *remoting.Command) []byte) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{ln: ln}
	s.wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			s.mu.Lock()
			s.conns = append(s.conns, nc)
			s.mu.Unlock()
			s.wg.Go(func() {
				defer nc.Close()
				for {
					req, err := readFrame(nc)
					if err != nil {
						return
					}
					if b := serve(nc, req); b != nil {
						if _, err := nc.Write(b); err != nil {
							return
						}
					}
				}
			})
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *server) addr() string { return s.ln.Addr().String() }

func (s *server) stop() {
	s.ln.Close()
	s.dropAll()
	s.wg.Wait()
}

func (s *server) dropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nc := range s.conns {
		nc.Close()
	}
	s.conns = nil
}

func readFrame(r io.Reader) (*remoting.Command, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := append(size[:], make([]byte, binary.BigEndian.Uint32(size[:]))...)
	if _, err := io.ReadFull(r, frame[4:]); err != nil {
		return nil, err
	}
	cmd := new(remoting.Command)
	return cmd, remoting.Decode(frame, cmd)
}

func echo(_ net.Conn, req *remoting.Command) []byte {
	if req.IsOneway() {
		return nil
	}
	return remoting.AppendReply(nil, req.ReplyTo(), remoting.Success, "", nil, req.Body)
}

func mustDial(t *testing.T, addr string, opt Options) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), addr, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func request(code int32, body []byte) *remoting.Command {
	r := remoting.NewRequest(code)
	r.Body = body
	return r
}

func TestCallsAreAnsweredEachWithItsOwn(t *testing.T) {
	s := startServer(t, echo)
	c := mustDial(t, s.addr(), Options{})
	var wg sync.WaitGroup
	for g := range 20 {
		wg.Go(func() {
			for i := range 50 {
				body := bytes.Repeat([]byte(fmt.Sprintf("%d-%d;", g, i)), 1+i*i*4)
				resp, err := c.Call(t.Context(), request(1, body))
				if err != nil {
					t.Errorf("Call: %v", err)
					return
				}
				if !bytes.Equal(resp.Body, body) {
					t.Errorf("got another's answer, %d bytes, want %d", len(resp.Body), len(body))
				}
			}
		})
	}
	wg.Wait()
	if n := s.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestDeadlineKeepsTheConnection(t *testing.T) {
	gate := make(chan struct{})
	s := startServer(t, func(nc net.Conn, req *remoting.Command) []byte {
		if req.Code == 9 {
			<-gate
		}
		return echo(nc, req)
	})
	c := mustDial(t, s.addr(), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Call(ctx, request(9, []byte("late"))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	close(gate) // the late answer comes first, and is dropped
	resp, err := c.Call(t.Context(), request(1, []byte("next")))
	if err != nil || string(resp.Body) != "next" {
		t.Errorf("got %v, %v", resp, err)
	}
}

func TestLostConnectionEndsWhatWaits(t *testing.T) {
	started := make(chan struct{}, 2)
	s := startServer(t, func(net.Conn, *remoting.Command) []byte { started <- struct{}{}; return nil })
	closed := make(chan error, 1)
	c := mustDial(t, s.addr(), Options{OnClose: func(_ *Conn, err error) { closed <- err }})
	results := make(chan error, 2)
	for range 2 {
		if _, err := c.Go(request(1, nil), func(_ *remoting.Command, err error) { results <- err }); err != nil {
			t.Fatal(err)
		}
		<-started
	}
	s.dropAll()
	for range 2 {
		if err := <-results; !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	}
	if err := <-closed; !errors.Is(err, ErrLost) {
		t.Errorf("OnClose: got %v, want ErrLost", err)
	}
	<-c.Ended()
	if _, err := c.Call(t.Context(), request(1, nil)); !errors.Is(err, ErrLost) {
		t.Errorf("Call after the end: got %v, want ErrLost", err)
	}
	if err := c.Oneway(request(1, nil)); !errors.Is(err, ErrLost) {
		t.Errorf("Oneway after the end: got %v, want ErrLost", err)
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	s := startServer(t, func(net.Conn, *remoting.Command) []byte { return nil })
	c := mustDial(t, s.addr(), Options{})
	result := make(chan error, 1)
	if _, err := c.Go(request(1, nil), func(_ *remoting.Command, err error) { result <- err }); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if err := c.Err(); !errors.Is(err, ErrClosed) {
		t.Errorf("Err: got %v, want ErrClosed", err)
	}
}

func TestServersRequests(t *testing.T) {
	answers := make(chan *remoting.Command, 1)
	s := startServer(t, func(nc net.Conn, req *remoting.Command) []byte {
		if req.IsResponse() {
			answers <- req
			return nil
		}
		ask := request(40, []byte("changed"))
		ask.Opaque = req.Opaque // the same number in the other direction
		return append(remoting.Append(nil, ask), echo(nc, req)...)
	})
	c := mustDial(t, s.addr(), Options{OnRequest: func(c *Conn, req *remoting.Command) {
		if err := c.Send(remoting.AppendReply(nil, req.ReplyTo(), remoting.Success, "", nil, req.Body)); err != nil {
			t.Error(err)
		}
	}})
	resp, err := c.Call(t.Context(), request(34, []byte("mine")))
	if err != nil || string(resp.Body) != "mine" {
		t.Errorf("got %v, %v", resp, err)
	}
	if a := <-answers; string(a.Body) != "changed" || a.Opaque != resp.Opaque {
		t.Errorf("the server got %q to %d", a.Body, a.Opaque)
	}
}

func TestBounds(t *testing.T) {
	s := startServer(t, func(net.Conn, *remoting.Command) []byte { return nil })
	c := mustDial(t, s.addr(), Options{PendingMax: 2, FrameBytesMax: 4096})
	none := func(*remoting.Command, error) {}
	first, err := c.Go(request(1, nil), none)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Go(request(1, nil), none); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Go(request(1, nil), none); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if !c.Forget(first) || c.Forget(first) {
		t.Error("Forget: want true once")
	}
	if _, err := c.Go(request(1, make([]byte, 5000)), none); err == nil || !strings.Contains(err.Error(), "limit 4096") {
		t.Errorf("got %v, want the limit", err)
	}
	if _, err := c.Go(request(1, nil), none); err != nil {
		t.Errorf("after a refused frame: %v", err)
	}
}

func TestWriteBound(t *testing.T) {
	near, far := net.Pipe() // nobody reads the far end
	defer far.Close()
	c := NewConn(near, Options{WriteBytesMax: 10_000})
	defer c.Close()
	var err error
	for i := 0; err == nil; i++ {
		if err = c.Oneway(request(1, make([]byte, 1000))); i > 1000 {
			t.Fatal("never refused")
		}
	}
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "limit 10000") {
		t.Errorf("got %v, want ErrBusy with the limit", err)
	}
}

func TestGarbageEndsTheConnection(t *testing.T) {
	s := startServer(t, func(net.Conn, *remoting.Command) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") })
	c := mustDial(t, s.addr(), Options{})
	_, err := c.Call(t.Context(), request(1, nil))
	if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "not a frame") {
		t.Errorf("got %v, want ErrLost and why", err)
	}
}

func TestConnsReconnect(t *testing.T) {
	s := startServer(t, echo)
	p := NewConns(Options{})
	defer p.Close()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := p.Call(t.Context(), s.addr(), request(1, nil)); err != nil {
				t.Errorf("Call: %v", err)
			}
		})
	}
	wg.Wait()
	if n := s.accepted.Load(); n != 1 {
		t.Errorf("%d connections for one address, want 1", n)
	}
	c, err := p.Get(t.Context(), s.addr())
	if err != nil {
		t.Fatal(err)
	}
	s.dropAll()
	<-c.Ended()
	if _, err := p.Call(t.Context(), s.addr(), request(1, nil)); err != nil {
		t.Errorf("Call after a loss: %v", err)
	}
	p.Keep(func(string) bool { return false })
	if err := p.Oneway(t.Context(), s.addr(), request(1, nil)); err != nil {
		t.Errorf("Oneway after Keep: %v", err)
	}
	p.Close()
	if _, err := p.Get(t.Context(), s.addr()); !errors.Is(err, ErrClosed) {
		t.Errorf("Get after Close: got %v, want ErrClosed", err)
	}
}

func TestConnsBackOff(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	p := NewConns(Options{})
	defer p.Close()
	for range 3 {
		_, err = p.Get(t.Context(), addr)
		if !errors.Is(err, ErrBackoff) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("got %v, want ErrBackoff and the cause", err)
		}
	}
	p.mu.Lock()
	s := p.byAddr[addr]
	wait, left := s.wait, time.Until(s.until)
	p.mu.Unlock()
	if wait != backoffMin || left <= 0 || left > backoffMin {
		t.Errorf("backoff %v, of which %v left", wait, left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Get(ctx, "127.0.0.1:1"); err == nil {
		t.Error("no error with a context that has ended")
	}
}
