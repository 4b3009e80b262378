package client_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// loopServer echoes on the lane that the request code names, and asks back.
type loopServer struct {
	responses chan int32
	closed    chan error
}

func (h *loopServer) Open(*netloop.Conn)                  {}
func (h *loopServer) Closed(_ *netloop.Conn, cause error) { h.closed <- cause }
func (h *loopServer) Lane(code int32) netloop.Lane        { return netloop.Lane(code % 2) }
func (h *loopServer) ReadEnd(*netloop.Loop)               {}

func (h *loopServer) Serve(c *netloop.Conn, req *remoting.Command) {
	frame := remoting.AppendReply(nil, req.ReplyTo(), remoting.Success, "", nil, req.Body)
	if req.Code == 2 {
		ask := remoting.NewRequest(40)
		ask.Opaque = 77
		frame = append(remoting.Append(nil, ask), frame...)
	}
	c.Send(frame)
}

func (h *loopServer) Response(_ *netloop.Conn, resp *remoting.Command) { h.responses <- resp.Opaque }

func TestAgainstNetloop(t *testing.T) {
	h := &loopServer{responses: make(chan int32, 1), closed: make(chan error, 1)}
	s, err := netloop.Listen(netloop.Config{Addrs: []string{"127.0.0.1:0"}, Loops: 2, Handler: h, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p := client.NewConns(client.Options{OnRequest: func(c *client.Conn, req *remoting.Command) {
		if err := c.Send(remoting.AppendReply(nil, req.ReplyTo(), remoting.Success, "", nil, nil)); err != nil {
			t.Error(err)
		}
	}})
	defer p.Close()
	addr := s.Addr(0).String()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 50 {
				req := remoting.NewRequest(int32(i % 2))
				req.Body = bytes.Repeat([]byte{byte(g)}, i*i*20)
				if g%2 == 0 {
					req.Serialize = remoting.SerializeBinary
				}
				resp, err := p.Call(t.Context(), addr, req)
				if err != nil || !bytes.Equal(resp.Body, req.Body) || resp.Serialize != req.Serialize {
					t.Errorf("Call: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if _, err := p.Call(t.Context(), addr, remoting.NewRequest(2)); err != nil {
		t.Error(err)
	}
	if got := <-h.responses; got != 77 {
		t.Errorf("the server saw an answer to %d, want 77", got)
	}
	c, err := p.Get(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	<-c.Ended()
	if err := c.Err(); !errors.Is(err, client.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if cause := <-h.closed; cause == nil {
		t.Error("no cause")
	}
}
