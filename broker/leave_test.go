package broker

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// A client that needs no answer closes its connection as soon as it has
// written. What it wrote is served all the same.

// rawFrame is a request as bytes.
func rawFrame(code remoting.RequestCode, flag int32, body []byte, fields ...string) []byte {
	req := remoting.NewRequest(int32(code))
	req.Flag |= flag
	for i := 0; i < len(fields); i += 2 {
		req.Set(fields[i], fields[i+1])
	}
	req.Body = body
	return remoting.Append(nil, req)
}

func TestOnewaySendsOfAClientThatLeft(t *testing.T) {
	b := startBroker(t, nil)
	conn, err := net.Dial("tcp", b.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	var frames []byte
	for i := range 20 { // the first makes the topic, on the pool
		frames = append(frames, rawFrame(remoting.ReqSendMessageV2, remoting.FlagOneway, fmt.Append(nil, "m", i), sendFields("Left", 0, "")...)...)
	}
	if _, err := conn.Write(frames); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	await(t, "all are stored", func() bool {
		q := b.store.FindQueue("Left", 0)
		return q != nil && q.Max() == 20
	})
	got := bodies(t, call(t, dial(t, b), remoting.ReqPullMessage, remoting.Success, nil, pullFields("Left", 0, 0)...))
	for i, body := range got {
		if body != fmt.Sprint("m", i) {
			t.Fatalf("got %q, want m0 to m19 in order", got)
		}
	}
}

// onLoop is a task of a function.
type onLoop func()

func (f onLoop) RunOnLoop(*netloop.Loop) { f() }

// The loop is busy while a consumer commits and leaves; meanwhile a message
// wakes the pulls it has left behind, and answering them meets a closed socket
// before its commits are read.
func TestOffsetsOfAConsumerThatLeft(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.EventLoops = 1 })
	c := dial(t, b)
	const queues = 4
	for q := range queues {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", q, "")...)
	}
	b.groups.PutAbsent(meta.NewGroup("cg"))

	conn, err := net.Dial("tcp", b.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	var pulls, commits []byte
	for q := range queues {
		pulls = append(pulls, rawFrame(remoting.ReqPullMessage, 0, nil,
			pullFields("T", q, 1, "sysFlag", "6", "suspendTimeoutMillis", "20000")...)...)
		commits = append(commits, rawFrame(remoting.ReqUpdateConsumerOffset, remoting.FlagOneway, nil, offsetFields("cg", "T", q, "commitOffset", "1")...)...)
	}
	if _, err := conn.Write(pulls); err != nil {
		t.Fatal(err)
	}
	await(t, "the pulls are held", func() bool { return b.holds.held.Load() == queues })

	busy, left := make(chan bool), make(chan bool)
	b.holds.loops[0].loop.Post(onLoop(func() { busy <- true; <-left }))
	<-busy
	if _, err := conn.Write(commits); err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
	w := &scheduleWorld{t: t, b: b}
	for q := range int32(queues) {
		w.store("T", q, 0, nil, "wakes")
	}
	close(left)

	await(t, "the broker sees that it is gone", func() bool { return b.holds.held.Load() == 0 })
	for q := range queues {
		resp := call(t, c, remoting.ReqQueryConsumerOffset, remoting.Success, nil, offsetFields("cg", "T", q)...)
		if got := resp.GetString("offset"); got != "1" {
			t.Errorf("queue %d: offset %s, want the 1 that the consumer committed before it left", q, got)
		}
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never happened: " + what)
		}
	}
}
