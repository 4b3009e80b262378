package netloop

import (
	"bytes"
	"sync"
	"testing"

	"github.com/ringmq/ringmq/remoting"
)

// TestTrySend has many goroutines answer directly while the loop answers too,
// to a peer that reads now and then: no frame may be cut by another, whoever
// writes it.
func TestTrySend(t *testing.T) {
	const senders, frames = 4, 300
	opened := make(chan *Conn, 1)
	letters := func(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }
	s := listen(t, Config{Handler: &handler{
		open: func(c *Conn) { opened <- c },
		serve: func(c *Conn, req *remoting.Command) {
			c.SetOut(remoting.AppendReply(c.Out(), req.ReplyTo(), remoting.Success, "", nil, letters('z', 3<<10)))
		},
	}})
	p := dial(t, s)
	c := <-opened
	p.send(request(1, 1, nil)) // makes it a plain connection
	p.mustRead(1)
	eventually(t, "the connection is quiet", c.quiet.Load)
	if !c.TrySend(remoting.AppendReply(nil, remoting.ReplyTo{Opaque: 7}, remoting.Success, "", nil, nil)) {
		t.Error("a quiet connection was not written")
	}
	p.mustRead(7)

	var work sync.WaitGroup
	for i := range senders {
		work.Go(func() {
			frame := remoting.AppendReply(nil, remoting.ReplyTo{}, remoting.Success, "", nil, letters(byte('a'+i), 30<<10))
			for range frames {
				if !c.TrySend(frame) {
					c.Send(frame)
				}
			}
		})
	}
	work.Go(func() {
		for range frames {
			if _, err := p.Write(request(1, 2, nil)); err != nil {
				t.Error(err)
			}
		}
	})
	for range (senders + 1) * frames {
		cmd, err := p.readFrame()
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.Trim(cmd.Body, string(cmd.Body[:1]))) > 0 {
			t.Fatal("a body of more than one letter: another frame is in it")
		}
	}
	work.Wait()
}

// TestTrySendClosed: a connection of which nothing is known yet, and one that
// is gone, take nothing.
func TestTrySendClosed(t *testing.T) {
	opened := make(chan *Conn, 1)
	s := listen(t, Config{Handler: &handler{open: func(c *Conn) { opened <- c }}})
	p := dial(t, s)
	c := <-opened
	frame := remoting.AppendReply(nil, remoting.ReplyTo{}, remoting.Success, "", nil, nil)
	if c.TrySend(frame) {
		t.Error("sent before the first bytes said what the connection is")
	}
	_ = p.Close()
	eventually(t, "the connection is closed", c.Closed)
	if c.TrySend(frame) {
		t.Error("sent to a closed connection")
	}
}
