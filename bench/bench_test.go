//go:build linux

package bench

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

func TestSendFrames(t *testing.T) {
	f, err := newSendFrames("T", "broker-a", 12, 100)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for q := range 12 {
		var c remoting.Command
		frame := f.append(nil, q, 77, 1732960000123, 0xABCDEF0123)
		if err := remoting.Decode(frame, &c); err != nil {
			t.Fatal(err)
		}
		var h remoting.SendHeader
		if err := h.Decode(&c); err != nil {
			t.Fatal(err)
		}
		key, _ := message.Property(h.Properties, message.PropUniqKey)
		if c.Opaque != opaqueBase+77 || h.QueueID != int32(q) || h.BornMillis != 1732960000123 || len(key) != 32 || seen[string(key)] || c.Language != remoting.LanguageJava {
			t.Errorf("queue %d: %+v, key %q", q, h, key)
		}
		seen[string(key)] = true
		if n := len(h.Properties); n < 110 || n > 130 {
			t.Errorf("properties of %d bytes, want about 120", n)
		}
		if len(c.Body) != 100 || parseHex(c.Body[:bodyTimeLen]) != 0xABCDEF0123 || !bytes.HasSuffix(c.Body, []byte(bodyTail)) {
			t.Errorf("body %q", c.Body)
		}
	}
	if _, err := newSendFrames("T", "b", 1, bodyBytesMin-1); err == nil {
		t.Error("a body too small for its marks was accepted")
	}
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { buf = f.append(buf[:0], 3, 1, 2, 3) }); n != 0 {
		t.Errorf("%v allocations a frame, want 0", n)
	}
}

func TestPullFrame(t *testing.T) {
	f := newPullFrame("g", "T", "broker-a", 5, 32, holdTime)
	for _, off := range []int64{0, 9, 1234567890123} {
		var c remoting.Command
		if err := remoting.Decode(f.append([]byte(nil), 3, off), &c); err != nil {
			t.Fatal(err)
		}
		var h remoting.PullHeader
		if err := h.Decode(&c); err != nil {
			t.Fatal(err)
		}
		if h.QueueOffset != off || h.QueueID != 5 || c.Opaque != opaqueBase+3 || h.SysFlag != remoting.PullSubscription|remoting.PullSuspend || h.SuspendMillis != 15000 {
			t.Errorf("offset %d: %+v", off, h)
		}
	}
}

func TestAnswer(t *testing.T) {
	var c remoting.Command
	for _, s := range []remoting.SerializeType{remoting.SerializeJSON, remoting.SerializeBinary} {
		to := remoting.ReplyTo{Opaque: opaqueBase + 12, Serialize: s}
		ok := remoting.AppendReply(nil, to, remoting.Success, "", nil, []byte(`"opaque":1000000099`))
		if slot, code, err := answer(ok, &c); slot != 12 || code != remoting.Success || err != nil {
			t.Errorf("%v: %d, %v, %v", s, slot, code, err)
		}
		no := remoting.AppendReply(nil, to, remoting.SystemBusy, `say "opaque":1000000099`, nil, nil)
		if slot, code, err := answer(no, &c); slot != 12 || code != remoting.SystemBusy || err != nil {
			t.Errorf("%v: %d, %v, %v", s, slot, code, err)
		}
	}
	if _, _, err := answer(remoting.Append(nil, remoting.NewRequest(remoting.ReqNotifyConsumerIDsChanged)), &c); err == nil {
		t.Error("a request passed for an answer")
	}
}

func TestEachRecord(t *testing.T) {
	f, err := newSendFrames("T", "b", 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	var c remoting.Command
	if err := remoting.Decode(f.append(nil, 0, 0, 0, 42), &c); err != nil {
		t.Fatal(err)
	}
	rec, err := message.Append(nil, &message.Message{Body: c.Body, Topic: []byte("T")})
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	if n, err := eachRecord(bytes.Repeat(rec, 3), 64, func(at int64) { sum += at }); n != 3 || err != nil || sum != 3*42 {
		t.Errorf("%d records, %v, sum %d", n, err, sum)
	}
	bad := bytes.Clone(rec)
	bad[len(bad)-8] ^= 1 // the mark at the body's end
	for name, b := range map[string][]byte{"cut": rec[:len(rec)-1], "short": rec[:50], "magic": append([]byte{0, 0, 0, 100}, make([]byte, 100)...), "changed": bad} {
		if _, err := eachRecord(b, 64, func(int64) {}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestSlots(t *testing.T) {
	var s slots
	a, b := s.take(10), s.take(20)
	if a == b || s.inFlight() != 2 {
		t.Fatalf("%d, %d, %d in flight", a, b, s.inFlight())
	}
	if from, err := s.done(a); from != 10 || err != nil {
		t.Errorf("%d, %v", from, err)
	}
	for _, i := range []int32{a, -1, 5} {
		if _, err := s.done(i); err == nil {
			t.Errorf("slot %d was freed twice, or never taken", i)
		}
	}
	if c := s.take(30); c != a || s.inFlight() != 2 {
		t.Errorf("slot %d was taken, want %d again", c, a)
	}
}

func TestPace(t *testing.T) {
	p := pace{rate: 8000, start: 1000}
	p.sent = 8000 * 3600 // an hour: no drift
	if got, want := p.due(), int64(1000+3600*time.Second); got != want {
		t.Errorf("due at %d, want %d", got, want)
	}
}

// short is a load small enough for a test.
func short(b *fakeBroker) Options {
	return Options{Addr: b.addr(), PID: os.Getpid(), Dir: ".", Conns: 3, Queues: 4, Bytes: 200, Warmup: 20 * time.Millisecond, Duration: 150 * time.Millisecond, Topics: 50}
}

func check(t *testing.T, r *Result, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if r.Messages == 0 || r.Latency.Count == 0 || r.Latency.P50 <= 0 || r.Latency.Max < r.Latency.P99 || r.MessagesPerSecond <= 0 || r.RSSAnonBytes == 0 || r.OwnMicrosPerMessage <= 0 {
		t.Errorf("got %+v", r)
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil || !strings.Contains(out.String(), "p99.9") {
		t.Errorf("printed %v: %s", err, out.String())
	}
}

func TestSendClosed(t *testing.T) {
	b := startFake(t)
	b.mu.Lock()
	b.refuse = 10
	b.mu.Unlock()
	o := short(b)
	o.InFlight = 5
	r, err := Send(t.Context(), o)
	check(t, r, err)
	if r.Refusals["SYSTEM_BUSY"] == 0 || r.Refused() != r.Refusals["SYSTEM_BUSY"] {
		t.Errorf("refusals: %v", r.Refusals)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for q := range int32(4) {
		if len(b.queues[q]) == 0 {
			t.Errorf("queue %d got nothing", q)
		}
	}
}

func TestSendOpen(t *testing.T) {
	o := short(startFake(t))
	o.Rate = 2000
	r, err := Send(t.Context(), o)
	check(t, r, err)
	if want := int64(2000 * 0.15); r.Messages < want/2 || r.Messages > want*2 {
		t.Errorf("%d messages, want about %d", r.Messages, want)
	}
}

func TestPull(t *testing.T) {
	o := short(startFake(t))
	o.Preload = 500
	r, err := Pull(t.Context(), o)
	check(t, r, err)
	if r.Refusals != nil {
		t.Errorf("refusals: %v", r.Refusals)
	}
	o = short(startFake(t))
	if _, err := Pull(t.Context(), o); err == nil {
		t.Error("an empty topic was pulled")
	}
}

func TestEndToEnd(t *testing.T) {
	o := short(startFake(t))
	if _, err := EndToEnd(t.Context(), o); err == nil {
		t.Error("no rate was accepted")
	}
	o.Rate, o.Duration = 1000, 400*time.Millisecond
	r, err := EndToEnd(t.Context(), o)
	check(t, r, err)
	if r.Lost != 0 {
		t.Errorf("%d lost", r.Lost)
	}
}

func TestRoute(t *testing.T) {
	o := short(startFake(t))
	o.InFlight = 4
	r, err := Route(t.Context(), o)
	check(t, r, err)
}

func TestFloor(t *testing.T) {
	r, err := Floor(t.Context(), Options{Dir: t.TempDir(), Bytes: 1240, Duration: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Messages == 0 || r.Latency.P50 <= 0 {
		t.Errorf("got %+v", r)
	}
	if _, err := Floor(t.Context(), Options{}); err == nil {
		t.Error("no directory was accepted")
	}
}

func TestBrokenServer(t *testing.T) {
	b := startFake(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	o := short(b)
	o.Duration = time.Hour
	if _, err := Send(ctx, o); err == nil {
		t.Error("a cancelled load gave a result")
	}
	o.PID = 1 << 30
	if _, err := Send(t.Context(), o); err == nil {
		t.Error("a process that does not exist was accounted for")
	}
	if _, err := Send(t.Context(), Options{Addr: "127.0.0.1:1"}); err == nil {
		t.Error("connected to nothing")
	}
}

func TestProc(t *testing.T) {
	u, err := UsageOf(os.Getpid())
	if err != nil || u.RSSAnon == 0 || u.Threads == 0 {
		t.Errorf("%+v, %v", u, err)
	}
	d, err := DeviceOf(".")
	if err != nil {
		t.Skipf("no block device below this directory: %v", err)
	}
	if s, err := d.Read(); err != nil || s.Writes == 0 {
		t.Errorf("%s: %+v, %v", d.Name, s, err)
	}
}

func TestPullOnce(t *testing.T) {
	b := startFake(t)
	o := short(b)
	if err := Fill(t.Context(), o, 100); err != nil {
		t.Fatal(err)
	}
	var want int64
	b.mu.Lock()
	for _, records := range b.queues {
		want += int64(len(records))
	}
	b.mu.Unlock()
	o.Once, o.Warmup, o.Duration = true, 0, 5*time.Minute
	r, err := Pull(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Messages != want || r.Seconds > 60 {
		t.Errorf("pulled %d messages in %.0f s, want the %d there are, once", r.Messages, r.Seconds, want)
	}
}
