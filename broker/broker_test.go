package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// startBroker runs a broker on loopback with its store in a directory of the
// test; change alters its configuration.
func startBroker(t *testing.T, change func(*Config)) *Broker {
	t.Helper()
	return startBrokerIn(t, t.TempDir(), change)
}

func startBrokerIn(t *testing.T, dir string, change func(*Config)) *Broker {
	t.Helper()
	cfg := DefaultConfig()
	cfg.StorePathRootDir, cfg.StorePathCommitLog = dir, ""
	cfg.BrokerName, cfg.BrokerIP1, cfg.BrokerIP2, cfg.BindAddress = "broker-t", "127.0.0.1", "127.0.0.1", "127.0.0.1"
	cfg.NamesrvAddr = ""
	cfg.MappedFileSizeCommitLog = 16 << 20
	cfg.ListenPort = freePorts(t)
	if change != nil {
		change(&cfg)
	}
	cfg.Complete()
	b, err := New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopBroker(t, b) })
	return b
}

func stopBroker(t testing.TB, b *Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// freePorts finds a port that is free together with the one two below it. It
// stays below 32768, where no outgoing connection takes it meanwhile.
func freePorts(t testing.TB) int {
	t.Helper()
	for range 100 {
		p := 12000 + rand.IntN(20000)
		if a, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p)); err == nil {
			b, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p-2))
			_ = a.Close()
			if err == nil {
				_ = b.Close()
				return p
			}
		}
	}
	t.Fatal("no free port")
	return 0
}

func dial(t *testing.T, b *Broker) *rpc.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := rpc.Dial(ctx, b.Addrs()[0].String(), rpc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// call sends a request of fields (name, value, name, value ...) and returns the
// answer; ok is what its code must be.
func call(t *testing.T, c *rpc.Conn, code remoting.RequestCode, want remoting.ResponseCode, body []byte, fields ...string) *remoting.Command {
	t.Helper()
	req := remoting.NewRequest(int32(code))
	req.Version = 479
	for i := 0; i < len(fields); i += 2 {
		req.Set(fields[i], fields[i+1])
	}
	req.Body = body
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := c.Call(ctx, req)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	if remoting.ResponseCode(resp.Code) != want {
		t.Fatalf("%s %q: got code %d %q, want %d", code, fields, resp.Code, resp.Remark, want)
	}
	return resp
}

func sendFields(topic string, queue int, props string, more ...string) []string {
	return append([]string{"a", "pg", "b", topic, "c", "TBW102", "d", "4", "e", strconv.Itoa(queue), "f", "0", "g", "1700000000000",
		"h", "0", "i", string(hide(props)), "j", "0", "k", "false", "m", "false"}, more...)
}

func pullFields(topic string, queue int, offset int64, more ...string) []string {
	return append([]string{"consumerGroup", "cg", "topic", topic, "queueId", strconv.Itoa(queue), "queueOffset", fmt.Sprint(offset),
		"maxMsgNums", "32", "sysFlag", "4", "commitOffset", "0", "suspendTimeoutMillis", "0", "subscription", "*", "subVersion", "0"}, more...)
}

func bodies(t *testing.T, resp *remoting.Command) []string {
	t.Helper()
	var out []string
	for b := resp.Body; len(b) > 0; {
		var m message.Message
		n, err := message.Decode(b, &m)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(m.Body))
		b = b[n:]
	}
	return out
}

func TestSendAndPull(t *testing.T) {
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			b := startBroker(t, func(c *Config) { c.FlushDiskType = flush })
			c := dial(t, b)
			first := call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("one"), sendFields("T", 2, "UNIQ_KEY=u1;TAGS=a")...)
			for key, want := range map[string]string{"queueId": "2", "queueOffset": "0", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "transactionId": "u1"} {
				if got := first.GetString(key); got != want {
					t.Errorf("answer's %s: got %q, want %q", key, got, want)
				}
			}
			host, at, err := message.ParseOffsetID(first.GetString("msgId"))
			if err != nil || host.String() != b.Addrs()[0].String() || at != 0 {
				t.Errorf("msgId: got %v %d %v, want %v 0", host, at, err, b.Addrs()[0])
			}
			call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("two"), sendFields("T", 2, "UNIQ_KEY=u2;TAGS=b")...)
			// What was acknowledged is visible: nothing is polled for.
			got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 2, 0)...)
			if s := fmt.Sprint(bodies(t, got)); s != "[one two]" {
				t.Errorf("pulled: got %s", s)
			}
			if got.GetString("nextBeginOffset") != "2" || got.GetString("maxOffset") != "2" || got.GetString("minOffset") != "0" {
				t.Errorf("offsets of the pull: got %s %s %s", got.GetString("nextBeginOffset"), got.GetString("maxOffset"), got.GetString("minOffset"))
			}
			got = call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 2, 0, "subscription", "b || c")...)
			if s := fmt.Sprint(bodies(t, got)); s != "[two]" {
				t.Errorf("pulled by tag: got %s", s)
			}
		})
	}
}

// Pulls in every place of a queue: the code and the offsets that let a client
// converge in one step.
func TestPullCodes(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for range 3 {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "TAGS=a")...)
	}
	for _, tc := range []struct {
		name   string
		fields []string
		want   remoting.ResponseCode
		next   string
	}{
		{"at the end", pullFields("T", 0, 3), remoting.PullNotFound, "3"},
		{"past the end", pullFields("T", 0, 7), remoting.PullOffsetMoved, "3"},
		{"below the beginning", pullFields("T", 0, -1), remoting.PullOffsetMoved, "0"},
		{"an empty queue at 0", pullFields("T", 1, 0), remoting.PullNotFound, "0"},
		{"an empty queue past its end", pullFields("T", 1, 5), remoting.PullOffsetMoved, "0"},
		{"nothing matches", pullFields("T", 0, 0, "subscription", "z"), remoting.PullRetryImmediately, "3"},
		{"a tag with the same hash", pullFields("T", 0, 0, "subscription", "Aa"), remoting.PullRetryImmediately, "3"},
		{"no such queue", pullFields("T", 99, 0), remoting.InvalidParameter, ""},
		{"no such topic", pullFields("Nope", 0, 0), remoting.TopicNotExist, ""},
		{"no expression of a kind that is known", pullFields("T", 0, 0, "expressionType", "XPATH", "subscription", "a > 1"), remoting.SubscriptionParseFailed, ""},
		{"subscribed by no heartbeat", pullFields("T", 0, 0, "sysFlag", "0"), remoting.SubscriptionNotExist, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := call(t, c, remoting.ReqPullMessage, tc.want, nil, tc.fields...)
			if got := resp.GetString("nextBeginOffset"); got != tc.next {
				t.Errorf("nextBeginOffset: got %q, want %q", got, tc.next)
			}
		})
	}
}

func TestSendRefusals(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.MaxMessageSize = 64 << 10 })
	c := dial(t, b)
	body := []byte("x")
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, body, sendFields("T", 0, "")...)
	long := fmt.Sprintf("P=%0*d", 32767, 0)
	for _, tc := range []struct {
		name   string
		body   []byte
		fields []string
		want   remoting.ResponseCode
	}{
		{"a name with a slash", body, sendFields("a/../b", 0, ""), remoting.InvalidParameter},
		{"a name too long", body, sendFields(fmt.Sprintf("%0128d", 0), 0, ""), remoting.InvalidParameter},
		{"a forbidden topic", body, sendFields("SCHEDULE_TOPIC_XXXX", 0, ""), remoting.NoPermission},
		{"a queue too high", body, sendFields("T", 4, ""), remoting.InvalidParameter},
		{"no template to create from", body, sendFields("New", 0, "", "c", "T"), remoting.TopicNotExist},
		{"no body", nil, sendFields("T", 0, ""), remoting.MessageIllegal},
		{"a body too large", make([]byte, 64<<10+1), sendFields("T", 0, ""), remoting.MessageIllegal},
		{"properties too long", body, sendFields("T", 0, long), remoting.MessageIllegal},
		{"a time beyond the longest", body, sendFields("T", 0, "TIMER_DELAY_SEC=99999999999"), remoting.MessageIllegal},
		{"a missing field", body, []string{"a", "pg", "b", "T"}, remoting.SystemError},
		{"a field that is no number", body, sendFields("T", 0, "", "e", "zero"), remoting.SystemError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := call(t, c, remoting.ReqSendMessageV2, tc.want, tc.body, tc.fields...)
			if len(resp.Remark) == 0 {
				t.Error("a refusal without a remark")
			}
			if resp.GetString("MSG_REGION") == "" {
				t.Error("Java's client reads MSG_REGION from every answer to a send; got none")
			}
		})
	}
	got := call(t, c, remoting.ReqGetMaxOffset, remoting.Success, nil, "topic", "T", "queueId", "0")
	if got.GetString("offset") != "1" {
		t.Errorf("something refused was stored: max offset %s, want 1", got.GetString("offset"))
	}
}

func TestSendQueueByBroker(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	resp := call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", -1, "")...)
	if id, err := strconv.Atoi(resp.GetString("queueId")); err != nil || id < 0 || id > 3 {
		t.Errorf("queue picked by the broker: got %q, want 0 to 3", resp.GetString("queueId"))
	}
}

func TestSendBatch(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	var batch []byte
	for i, props := range []string{"UNIQ_KEY=u0;TAGS=a", "UNIQ_KEY=u1;KEYS=k", "TAGS=last"} {
		var err error
		if batch, err = message.AppendBatchItem(batch, message.BatchItem{Body: fmt.Append(nil, "m", i), Properties: hide(props)}); err != nil {
			t.Fatal(err)
		}
	}
	resp := call(t, c, remoting.ReqSendBatchMessage, remoting.Success, batch, sendFields("T", 1, "", "m", "true")...)
	if got := resp.GetString("msgId"); len(got) != 3*32+2 {
		t.Errorf("msgId: got %q, want three ids", got)
	}
	got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 1, 0)...)
	if s := fmt.Sprint(bodies(t, got)); s != "[m0 m1 m2]" {
		t.Errorf("pulled: got %s", s)
	}
	got = call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 1, 0, "subscription", "last")...)
	if s := fmt.Sprint(bodies(t, got)); s != "[m2]" {
		t.Errorf("the tag of the last message of a batch: pulled %s, want [m2]", s)
	}
	// One element too long: nothing of the batch is stored.
	long := message.AppendProperty(nil, "P", fmt.Sprintf("%032700d", 0))
	if batch, err := message.AppendBatchItem(batch, message.BatchItem{Body: []byte("x"), Properties: long}); err != nil {
		t.Fatal(err)
	} else {
		call(t, c, remoting.ReqSendBatchMessage, remoting.MessageIllegal, batch, sendFields("T", 1, "", "m", "true")...)
	}
	got = call(t, c, remoting.ReqGetMaxOffset, remoting.Success, nil, "topic", "T", "queueId", "1")
	if got.GetString("offset") != "3" {
		t.Errorf("max offset after a refused batch: got %s, want 3", got.GetString("offset"))
	}
}

// Pipelined sends of one connection keep their order, also over the creation of
// their topic.
func TestSendOrder(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	const n = 500
	answers := make(chan error, n)
	for i := range n {
		req := remoting.NewRequest(remoting.ReqSendMessageV2)
		for f := sendFields("New", 0, ""); len(f) > 0; f = f[2:] {
			req.Set(f[0], f[1])
		}
		req.Body = fmt.Append(nil, i)
		if _, err := c.Go(req, func(resp *remoting.Command, err error) {
			if err == nil && resp.Code != 0 {
				err = fmt.Errorf("code %d %s", resp.Code, resp.Remark)
			}
			answers <- err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	for at := int64(0); at < n; {
		got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("New", 0, at)...)
		for _, s := range bodies(t, got) {
			if s != fmt.Sprint(at) {
				t.Fatalf("message at offset %d: got %s", at, s)
			}
			at++
		}
	}
}

func TestHold(t *testing.T) {
	b := startBroker(t, nil)
	c, producer := dial(t, b), dial(t, b)
	call(t, producer, remoting.ReqSendMessageV2, remoting.Success, []byte("first"), sendFields("T", 0, "TAGS=a")...)
	hold := func(offset int64, millis, tags string) chan *remoting.Command {
		out := make(chan *remoting.Command, 1)
		req := remoting.NewRequest(remoting.ReqPullMessage)
		for f := pullFields("T", 0, offset, "sysFlag", "6", "suspendTimeoutMillis", millis, "subscription", tags); len(f) > 0; f = f[2:] {
			req.Set(f[0], f[1])
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
	waitHeld := func(n int64) {
		t.Helper()
		for range 1000 {
			if b.holds.held.Load() == n {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("held pulls: got %d, want %d", b.holds.held.Load(), n)
	}
	t.Run("woken by a message", func(t *testing.T) {
		answer := hold(1, "10000", "*")
		waitHeld(1)
		call(t, producer, remoting.ReqSendMessageV2, remoting.Success, []byte("second"), sendFields("T", 0, "TAGS=b")...)
		if got := fmt.Sprint(bodies(t, <-answer)); got != "[second]" {
			t.Errorf("woken with %s", got)
		}
		waitHeld(0)
	})
	t.Run("goes on over what its filter drops", func(t *testing.T) {
		answer := hold(2, "10000", "want")
		waitHeld(1)
		call(t, producer, remoting.ReqSendMessageV2, remoting.Success, []byte("third"), sendFields("T", 0, "TAGS=other")...)
		call(t, producer, remoting.ReqSendMessageV2, remoting.Success, []byte("fourth"), sendFields("T", 0, "TAGS=want")...)
		got := <-answer
		if s := fmt.Sprint(bodies(t, got)); s != "[fourth]" || got.GetString("nextBeginOffset") != "4" {
			t.Errorf("woken with %s, next %s", s, got.GetString("nextBeginOffset"))
		}
	})
	t.Run("ends in time", func(t *testing.T) {
		got := <-hold(4, "50", "*")
		if got.Code != int32(remoting.PullNotFound) || got.GetString("nextBeginOffset") != "4" {
			t.Errorf("end of a hold: got code %d next %s", got.Code, got.GetString("nextBeginOffset"))
		}
	})
	t.Run("its end tells what the filter dropped", func(t *testing.T) {
		answer := hold(4, "400", "want")
		waitHeld(1)
		call(t, producer, remoting.ReqSendMessageV2, remoting.Success, []byte("fifth"), sendFields("T", 0, "TAGS=other")...)
		got := <-answer
		if got.Code != int32(remoting.PullRetryImmediately) || got.GetString("nextBeginOffset") != "5" {
			t.Errorf("end of a hold: got code %d next %s, want 20 and 5", got.Code, got.GetString("nextBeginOffset"))
		}
	})
	t.Run("dropped with its connection", func(t *testing.T) {
		hold(5, "60000", "*")
		waitHeld(1)
		c.Close()
		waitHeld(0)
	})
}

// What a stopping broker can still answer it answers.
func TestCloseAnswersHeldPulls(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	answer := make(chan int32, 1)
	req := remoting.NewRequest(remoting.ReqPullMessage)
	for f := pullFields("T", 0, 1, "sysFlag", "6", "suspendTimeoutMillis", "60000"); len(f) > 0; f = f[2:] {
		req.Set(f[0], f[1])
	}
	if _, err := c.Go(req, func(resp *remoting.Command, err error) {
		if err != nil {
			answer <- -1
			return
		}
		answer <- resp.Code
	}); err != nil {
		t.Fatal(err)
	}
	for b.holds.held.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	stopBroker(t, b)
	if got := <-answer; got != int32(remoting.PullNotFound) {
		t.Errorf("held pull at a clean stop: got code %d, want 19", got)
	}
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	for i := range 10 {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, fmt.Append(nil, "m", i), sendFields("T", 0, "")...)
	}
	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	got := call(t, dial(t, b), remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0)...)
	if n := len(bodies(t, got)); n != 10 {
		t.Errorf("messages after a restart: got %d, want 10", n)
	}
}

func TestUnknownAndUnservedCodes(t *testing.T) {
	c := dial(t, startBroker(t, nil))
	for _, code := range []remoting.RequestCode{9999, 200_057} {
		resp := call(t, c, code, remoting.RequestCodeNotSupported, nil)
		if len(resp.Remark) == 0 {
			t.Errorf("code %d refused without a reason", code)
		}
	}
}

// Each code that facts of the protocol name for clients has its row or its
// reason.
func TestEveryClientCodeHasARow(t *testing.T) {
	served := map[remoting.RequestCode]bool{}
	for _, r := range routes {
		if served[r.code] {
			t.Errorf("%s has two rows", r.code)
		}
		served[r.code] = true
		if (r.hot == nil) == (r.handle == nil) {
			t.Errorf("%s wants one of hot and handle", r.code)
		}
	}
	for _, code := range []remoting.RequestCode{10, 310, 320, 11, 14, 15, 29, 30, 31, 32, 33, 12, 34, 35, 36, 37, 38, 41, 42, 46,
		324, 325, 361, 370, 400, 401, 200050, 200051, 200151, 200052, 200053, 200054, 200055} {
		if served[code] == (unserved[code] != "") {
			t.Errorf("%s: want either a row or a reason", code)
		}
	}
}

func TestSecondBrokerOnAStore(t *testing.T) {
	dir := t.TempDir()
	startBrokerIn(t, dir, nil)
	cfg := DefaultConfig()
	cfg.StorePathRootDir, cfg.StorePathCommitLog, cfg.BrokerIP1 = dir, "", "127.0.0.1"
	cfg.Complete()
	_, err := New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err == nil {
		t.Fatal("a second broker opened the store")
	}
	if msg := err.Error(); !errors.Is(err, engine.ErrLocked) || !strings.Contains(msg, dir) || !strings.Contains(msg, "storePathRootDir") {
		t.Errorf("the refusal must name directory and key: got %q", msg)
	}
}

// The send path allocates nothing a message; what is left over is amortised
// (buffers grown once, the runtime's own).
func TestSendPathDoesNotAllocate(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.MappedFileSizeCommitLog = 64 << 20 })
	req := remoting.NewRequest(remoting.ReqSendMessageV2)
	for f := sendFields("BenchmarkTest", 0, "UNIQ_KEY=7F00000100002A139A5512D51DAB0001;WAIT=true;TAGS=TagA"); len(f) > 0; f = f[2:] {
		req.Set(f[0], f[1])
	}
	req.Body = make([]byte, 512)
	frames := [][]byte{remoting.Append(nil, req)}
	const warm, n = 5_000, 20_000
	if err := drive(b.Addrs()[0].String(), frames, warm, 32); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := drive(b.Addrs()[0].String(), frames, n, 32); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	limit := 0.05
	if raceDetector { // its own shadow objects and deliberately lossy pools count too
		limit = 0.5
	}
	if got := float64(after.Mallocs-before.Mallocs) / n; got > limit {
		t.Errorf("allocations a message: got %.3f, want at most %.2f", got, limit)
	}
}

// An orderly consumer that gives a message up sends it to its retry topic; after
// the limit it goes to the DLQ, with its properties.
func TestSendToRetryPastTheLimit(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	// A pull makes the group.
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0)...)
	resp := call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("poison"),
		sendFields("%RETRY%cg", 0, "UNIQ_KEY=u;RETRY_TOPIC=T;DELAY=5", "j", "3", "l", "2")...)
	if resp.GetString("transactionId") != "u" {
		t.Errorf("answer's unique key: got %q, want u", resp.GetString("transactionId"))
	}
	got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("%DLQ%cg", 0, 0)...)
	var m message.Message
	if _, err := message.Decode(got.Body, &m); err != nil {
		t.Fatal(err)
	}
	if string(m.Body) != "poison" || m.ReconsumeTimes != 3 {
		t.Errorf("dead message: got %q, reconsumed %d times", m.Body, m.ReconsumeTimes)
	}
	want := map[string]string{message.PropRetryTopic: "T", message.PropUniqKey: "u", message.PropDelay: "-1"}
	for name, v := range want {
		if got, _ := message.Property(m.Properties, name); string(got) != v {
			t.Errorf("property %s of the dead message: got %q, want %q", name, got, v)
		}
	}
}

// A read event whose only send was refused leaves an empty batch behind; it
// must go nowhere.
func TestEmptyBatchIsNotPut(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	state := &loopState{}
	state.batchFor(b, true)
	b.put(state) // with an item it would be given to the engine, and answered
	if state.batch != nil || len(state.free) != 1 || b.flying.Load() != 0 {
		t.Errorf("an empty batch: got %v under way, %d kept, want none and 1", b.flying.Load(), len(state.free))
	}
}
