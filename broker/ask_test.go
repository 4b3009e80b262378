package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// connOf finds the broker's side of the one producing client's connection.
func connOf(t *testing.T, b *Broker, id string) *netloop.Conn {
	t.Helper()
	c := b.clients.producerConn(id)
	if c == nil {
		t.Fatalf("client %s is not known", id)
	}
	return c
}

type askEnd struct {
	code int32
	body string
	err  error
}

// ask has b ask c and gives the end as it comes.
func (b *Broker) testAsk(c *netloop.Conn, timeout time.Duration, body []byte) <-chan askEnd {
	end := make(chan askEnd, 2)
	req := remoting.NewRequest(int32(remoting.ReqGetConsumerRunningInfo))
	req.Body = body
	b.asks.ask(c, req, timeout, func(resp *remoting.Command, err error) {
		if err != nil {
			end <- askEnd{err: err}
			return
		}
		end <- askEnd{code: resp.Code, body: string(resp.Body)}
	})
	return end
}

func TestAsk(t *testing.T) {
	b := startBroker(t, nil)
	silent := make(chan bool, 1)
	client, asked := dialServing(t, b, func(req *remoting.Command) *response {
		if string(req.Body) == "silence" {
			silent <- true
			return nil
		}
		return &response{code: 7, body: append([]byte("to "), req.Body...)}
	})
	beatProducer(t, client, "me@1", "pg")
	c := connOf(t, b, "me@1")

	if got := <-b.testAsk(c, time.Minute, []byte("a")); got != (askEnd{code: 7, body: "to a"}) {
		t.Errorf("asked: %+v", got)
	}
	first := <-asked
	end := b.testAsk(c, 50*time.Millisecond, []byte("silence"))
	second := <-asked
	if first.Opaque == second.Opaque {
		t.Errorf("two asks have opaque %d", first.Opaque)
	}
	if got := <-end; !errors.Is(got.err, errAskTimeout) {
		t.Errorf("after its time: %+v", got)
	}

	// An answer that comes too late, and one by another client, reach nobody.
	<-silent
	end = b.testAsk(c, time.Minute, []byte("silence"))
	<-silent
	third := <-asked
	stranger := dial(t, b)
	for _, to := range []remoting.ReplyTo{second.ReplyTo(), third.ReplyTo()} {
		if err := stranger.Send(remoting.AppendReply(nil, to, 0, "", nil, nil)); err != nil {
			t.Fatal(err)
		}
	}
	call(t, stranger, remoting.ReqGetMaxOffset, remoting.Success, nil, "topic", "T", "queueId", "0")
	select {
	case got := <-end:
		t.Errorf("a stranger's answer was taken: %+v", got)
	default:
	}
	if err := client.Send(remoting.AppendReply(nil, second.ReplyTo(), 1, "", nil, nil)); err != nil {
		t.Fatal(err)
	}
	if err := client.Send(remoting.AppendReply(nil, third.ReplyTo(), 3, "", nil, nil)); err != nil {
		t.Fatal(err)
	}
	if got := <-end; got.err != nil || got.code != 3 {
		t.Errorf("its own answer: %+v", got)
	}

	// A closed connection ends what waits, and can't be asked again.
	end = b.testAsk(c, time.Minute, []byte("silence"))
	<-silent
	client.Close()
	if got := <-end; !errors.Is(got.err, errAskClosed) {
		t.Errorf("after the connection's end: %+v", got)
	}
	if got := <-b.testAsk(c, time.Minute, nil); !errors.Is(got.err, errAskClosed) {
		t.Errorf("a closed connection was asked: %+v", got)
	}
	if b.asks.count != 0 || b.asks.bytes != 0 || len(b.asks.pending) != 0 {
		t.Errorf("%d asks of %d bytes are left", b.asks.count, b.asks.bytes)
	}
}

func TestAskBounds(t *testing.T) {
	b := startBroker(t, nil)
	client, _ := dialServing(t, b, func(*remoting.Command) *response { return nil })
	beatProducer(t, client, "me@1", "pg")
	c := connOf(t, b, "me@1")
	end := b.testAsk(c, time.Minute, nil)
	b.asks.mu.Lock()
	b.asks.bytes += asksBytesMax
	b.asks.mu.Unlock()
	if got := <-b.testAsk(c, time.Minute, nil); !errors.Is(got.err, errAskBusy) {
		t.Errorf("over the bytes: %+v", got)
	}
	b.asks.mu.Lock()
	b.asks.bytes -= asksBytesMax
	b.asks.count += asksMax
	b.asks.mu.Unlock()
	if got := <-b.testAsk(c, time.Minute, nil); !errors.Is(got.err, errAskBusy) {
		t.Errorf("over the count: %+v", got)
	}
	b.asks.mu.Lock()
	b.asks.count -= asksMax
	b.asks.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
	if got := <-end; !errors.Is(got.err, errAskStopped) && !errors.Is(got.err, errAskClosed) {
		t.Errorf("as the broker stopped: %+v", got)
	}
	if got := <-b.testAsk(c, time.Minute, nil); !errors.Is(got.err, errAskStopped) {
		t.Errorf("after the stop: %+v", got)
	}
}
