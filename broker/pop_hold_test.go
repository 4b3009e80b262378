package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

// later sends a request and gives its answer when it comes.
func later(t *testing.T, c *rpc.Conn, code remoting.RequestCode, fields ...string) chan *remoting.Command {
	t.Helper()
	out := make(chan *remoting.Command, 1)
	req := remoting.NewRequest(int32(code))
	for ; len(fields) > 0; fields = fields[2:] {
		req.Set(fields[0], fields[1])
	}
	if _, err := c.Go(req, func(resp *remoting.Command, err error) {
		if err == nil {
			resp = resp.Clone()
		}
		out <- resp
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *Broker) pollingOf(topic, group string, queueID int32) int {
	w := b.popHolds.find(topic, group)
	if w == nil {
		return 0
	}
	return w.polling(queueID)
}

func TestHeldPops(t *testing.T) {
	b := startBroker(t, nil)
	c, producer := dial(t, b), dial(t, b)
	sendTo(t, producer, "T", 0, "first")
	ack(t, producer, "T", popUntil(t, producer, "T", 1, 60_000)...)
	parked := func(n int) {
		t.Helper()
		waitFor(t, fmt.Sprint(n, " pops parked"), func() bool { return b.pollingOf("T", "g", -1) == n })
	}
	t.Run("woken one by one", func(t *testing.T) {
		var answers []chan *remoting.Command
		for i := range 3 {
			answers = append(answers, later(t, c, remoting.ReqPopMessage, popFields("T", -1, 32, 60_000, 20_000)...))
			parked(i + 1)
		}
		if got := call(t, producer, remoting.ReqPollingInfo, remoting.Success, nil, "consumerGroup", "g", "topic", "T", "queueId", "-1").GetString("pollingNum"); got != "3" {
			t.Errorf("pollingNum: got %s, want 3", got)
		}
		sendTo(t, producer, "T", 2, "one")
		ack(t, producer, "T", pops(t, <-answers[0])...)
		parked(2)
		// One that asks for one message leaves the other to the next.
		call(t, producer, remoting.ReqSendMessageV2, remoting.Success, []byte("two"), sendFields("T", 1, "")...)
		call(t, producer, remoting.ReqSendMessageV2, remoting.Success, []byte("three"), sendFields("T", 3, "")...)
		got := append(pops(t, <-answers[1]), pops(t, <-answers[2])...)
		if s := bodiesOf(got); s != "three two" {
			t.Errorf("woken with %q", s)
		}
		ack(t, producer, "T", got...)
		parked(0)
	})
	t.Run("what is left wakes the next", func(t *testing.T) {
		first := later(t, c, remoting.ReqPopMessage, popFields("T", -1, 1, 60_000, 20_000)...)
		parked(1)
		second := later(t, c, remoting.ReqPopMessage, popFields("T", -1, 1, 60_000, 20_000)...)
		parked(2)
		var batch []byte
		for _, body := range []string{"x", "y"} {
			batch = appendBatchItem(t, batch, body)
		}
		call(t, producer, remoting.ReqSendBatchMessage, remoting.Success, batch, sendFields("T", 1, "", "m", "true")...)
		got := append(pops(t, <-first), pops(t, <-second)...)
		if s := bodiesOf(got); s != "x y" {
			t.Errorf("woken with %q", s)
		}
		ack(t, producer, "T", got...)
	})
	t.Run("one queue", func(t *testing.T) {
		answer := later(t, c, remoting.ReqPopMessage, popFields("T", 3, 32, 60_000, 20_000)...)
		waitFor(t, "parked", func() bool { return b.pollingOf("T", "g", 3) == 1 })
		sendTo(t, producer, "T", 0, "elsewhere")
		sendTo(t, producer, "T", 3, "here")
		if s := bodiesOf(pops(t, <-answer)); s != "here" {
			t.Errorf("woken with %q", s)
		}
		ack(t, producer, "T", popUntil(t, producer, "T", 1, 60_000)...)
	})
	t.Run("woken by a redelivery", func(t *testing.T) {
		sendTo(t, producer, "T", 0, "again")
		popUntil(t, producer, "T", 1, 300)
		answer := later(t, c, remoting.ReqPopMessage, popFields("T", 1, 32, 60_000, 20_000)...)
		got := pops(t, <-answer)
		if s := bodiesOf(got); s != "again" || got[0].ReconsumeTimes != 1 {
			t.Errorf("woken with %q, reconsumed %d times", s, got[0].ReconsumeTimes)
		}
		ack(t, producer, "T", got...)
	})
	t.Run("ends in time", func(t *testing.T) {
		begin := time.Now()
		resp := <-later(t, c, remoting.ReqPopMessage, popFields("T", -1, 32, 60_000, 300)...)
		if resp.Code != int32(remoting.PollingTimeout) || resp.GetString("restNum") != "0" || time.Since(begin) < 200*time.Millisecond {
			t.Errorf("end of a hold: got code %d, restNum %s after %v", resp.Code, resp.GetString("restNum"), time.Since(begin))
		}
	})
	t.Run("notifications", func(t *testing.T) {
		if got := call(t, c, remoting.ReqNotification, remoting.Success, nil, noticeFields(0)...); got.GetString("hasMsg") != "false" {
			t.Errorf("nothing there: hasMsg %s", got.GetString("hasMsg"))
		}
		one, two := later(t, c, remoting.ReqNotification, noticeFields(20_000)...), later(t, c, remoting.ReqNotification, noticeFields(20_000)...)
		waitFor(t, "both are held", func() bool { return b.popHolds.held.Load() == 2 })
		sendTo(t, producer, "T", 0, "news")
		for _, answer := range []chan *remoting.Command{one, two} {
			if resp := <-answer; resp.GetString("hasMsg") != "true" {
				t.Errorf("a message arrived: hasMsg %s", resp.GetString("hasMsg"))
			}
		}
		ack(t, producer, "T", popUntil(t, producer, "T", 1, 60_000)...)
	})
	t.Run("a deleted topic ends them", func(t *testing.T) {
		answer := later(t, c, remoting.ReqPopMessage, popFields("T", -1, 32, 60_000, 20_000)...)
		parked(1)
		call(t, producer, remoting.ReqDeleteTopicInBroker, remoting.Success, nil, "topic", "T")
		if resp := <-answer; resp.Code != int32(remoting.TopicNotExist) {
			t.Errorf("pop of a deleted topic: got code %d", resp.Code)
		}
	})
	t.Run("dropped with its connection", func(t *testing.T) {
		sendTo(t, producer, "T", 0, "new life")
		ack(t, producer, "T", popUntil(t, producer, "T", 1, 60_000)...)
		gone := dial(t, b)
		later(t, gone, remoting.ReqPopMessage, popFields("T", -1, 32, 60_000, 20_000)...)
		parked(1)
		gone.Close()
		parked(0)
		waitFor(t, "nothing is held", func() bool { return b.popHolds.held.Load() == 0 && b.holds.held.Load() == 0 })
	})
}

// A house is full by what is held of a queue, or in all.
func TestHeldPopsFull(t *testing.T) {
	for name, full := range map[string]func(c *Config){
		"popPollingSize":    func(c *Config) { c.PopPollingSize = 0 },
		"maxPopPollingSize": func(c *Config) { c.MaxPopPollingSize = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, full)
			c, other := dial(t, b), dial(t, b)
			sendTo(t, c, "T", 0, "x")
			ack(t, c, "T", popUntil(t, c, "T", 1, 60_000)...)
			later(t, c, remoting.ReqPopMessage, popFields("T", -1, 32, 60_000, 20_000)...)
			waitFor(t, "parked", func() bool { return b.pollingOf("T", "g", -1) == 1 })
			call(t, other, remoting.ReqPopMessage, remoting.PollingFull, nil, popFields("T", -1, 32, 60_000, 1000)...)
			if name == "maxPopPollingSize" {
				if got := call(t, other, remoting.ReqNotification, remoting.Success, nil, noticeFields(1000)...); got.GetString("pollingFull") != "true" {
					t.Errorf("notification in a full house: pollingFull %s", got.GetString("pollingFull"))
				}
			}
		})
	}
}

func noticeFields(poll int64) []string {
	return []string{"consumerGroup", "g", "topic", "T", "queueId", "-1", "pollTime", fmt.Sprint(poll), "bornTime", "0"}
}

// A stopping broker answers pops that are held, and the messages they find then
// are in flight after the next start.
func TestCloseAnswersHeldPops(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "x")
	ack(t, c, "T", popUntil(t, c, "T", 1, 60_000)...)
	answer := later(t, c, remoting.ReqPopMessage, popFields("T", -1, 32, 60_000, 60_000)...)
	waitFor(t, "parked", func() bool { return b.pollingOf("T", "g", -1) == 1 })
	stopBroker(t, b)
	if resp := <-answer; resp == nil || resp.Code != int32(remoting.PollingTimeout) {
		t.Errorf("held pop at a clean stop: got %v", resp)
	}
}

// Whatever pops, acknowledges and fails at once, each message is popped until
// it is acknowledged, and by one at a time.
func TestPopStress(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.EventLoops = 2 })
	producer := dial(t, b)
	const messages, workers = 600, 6
	done := make(chan map[string]int, workers)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var stop = make(chan struct{})
	sendTo(t, producer, "T", 0, "m0")
	for w := range workers {
		c := dial(t, b)
		go func() {
			acked := map[string]int{}
			defer func() { done <- acked }()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				req := remoting.NewRequest(remoting.ReqPopMessage)
				for f := popFields("T", -1, 1+(n+w)%8, 400, 100); len(f) > 0; f = f[2:] {
					req.Set(f[0], f[1])
				}
				resp, err := c.Call(ctx, req)
				if err != nil {
					t.Error(err)
					return
				}
				if resp.Code != 0 {
					continue
				}
				for i, p := range pops(t, resp) {
					if (i+n)%5 == 0 && p.ReconsumeTimes == 0 {
						continue // it fails the first time
					}
					ackReq := remoting.NewRequest(remoting.ReqAckMessage)
					for f := ackFields("T", p); len(f) > 0; f = f[2:] {
						ackReq.Set(f[0], f[1])
					}
					if resp, err := c.Call(ctx, ackReq); err != nil || resp.Code != 0 {
						t.Errorf("ack: %v %v", resp, err)
						return
					}
					acked[p.body]++
				}
			}
		}()
	}
	for i := 1; i < messages; i++ {
		sendTo(t, producer, "T", i%4, fmt.Sprint("m", i))
	}
	waitFor(t, "all is done", func() bool {
		sum := int64(0)
		for _, at := range b.offsets.Queues("T", "g") {
			sum += at
		}
		return sum == messages && b.pops.Flying() == 0
	})
	close(stop)
	total := map[string]int{}
	for range workers {
		for body, n := range <-done {
			total[body] += n
		}
	}
	if len(total) != messages {
		t.Errorf("acknowledged %d messages, want %d", len(total), messages)
	}
}

// A held pop whose group was switched off is answered so.
func TestHeldPopOfAGroupThatChanges(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sendTo(t, c, "T", 0, "x")
	ack(t, c, "T", popUntil(t, c, "T", 1, 60_000)...)
	answer := later(t, c, remoting.ReqPopMessage, popFields("T", -1, 32, 60_000, 20_000)...)
	waitFor(t, "parked", func() bool { return b.pollingOf("T", "g", -1) == 1 })
	call(t, dial(t, b), remoting.ReqUpdateAndCreateSubscriptionGroup, remoting.Success, []byte(`{"groupName":"g","consumeEnable":false}`))
	if resp := <-answer; resp.Code != int32(remoting.NoPermission) || !strings.Contains(string(resp.Remark), "consumeEnable") {
		t.Errorf("got code %d %s", resp.Code, resp.Remark)
	}
}
