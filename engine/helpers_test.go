package engine

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// testConfig is a small store that sweeps and cleans only when asked.
func testConfig(fs vfs.FS) Config {
	return Config{FS: fs, Dir: "/store", SegmentBytes: 64 << 10, ConsumeQueueBytes: 20 * 100, IndexSlots: 97, IndexEntries: 10000,
		FlushInterval: time.Millisecond, SweepInterval: time.Hour, CleanInterval: time.Hour, Logger: quiet}
}

func mustOpen(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

var testHost = netip.MustParseAddrPort("192.168.1.100:10911")

// rec encodes a record as the broker does.
func rec(dst []byte, topic string, queueID int32, body string, props ...string) []byte {
	var p []byte
	for i := 0; i+1 < len(props); i += 2 {
		p = message.AppendProperty(p, props[i], props[i+1])
	}
	dst, err := message.Append(dst, &message.Message{Topic: []byte(topic), QueueID: queueID, Body: []byte(body), Properties: p,
		BornMillis: 1, BornHost: testHost, StoreHost: testHost})
	if err != nil {
		panic(err)
	}
	return dst
}

// innerRec encodes an inner batch of n messages as the broker does.
func innerRec(dst []byte, topic string, queueID int32, body string, n int, props ...string) []byte {
	var p []byte
	for i := 0; i+1 < len(props); i += 2 {
		p = message.AppendProperty(p, props[i], props[i+1])
	}
	p = message.AppendInnerBase(message.AppendProperty(p, message.PropInnerNum, strconv.Itoa(n)))
	dst, err := message.Append(dst, &message.Message{Topic: []byte(topic), QueueID: queueID, Body: []byte(body), Properties: p,
		SysFlag: message.SysFlagInnerBatch | message.SysFlagNeedUnwrap, BornMillis: 1, BornHost: testHost, StoreHost: testHost})
	if err != nil {
		panic(err)
	}
	return dst
}

// batchTopicD says that D has batch queues.
func batchTopicD(topic string) (batch, known bool) { return topic == "D", true }

// waiter is a Completer one can wait for.
type waiter struct{ ch chan *Batch }

func newWaiter() waiter           { return waiter{make(chan *Batch, 1)} }
func (w waiter) PutDone(b *Batch) { w.ch <- b }
func (w waiter) wait() *Batch     { return <-w.ch }
func (w waiter) put(s *Store, b *Batch) *Batch {
	b.Done = w
	s.Put(b)
	return w.wait()
}

// one makes a batch of one record of topic-queueID.
func one(s *Store, topic string, queueID int32, body string, props ...string) *Batch {
	b := &Batch{Wait: true}
	addRec(s, b, topic, queueID, body, props...)
	return b
}

func addRec(s *Store, b *Batch, topic string, queueID int32, body string, props ...string) {
	pos := len(b.Buf)
	b.Buf = rec(b.Buf, topic, queueID, body, props...)
	tags := int64(0)
	for i := 0; i+1 < len(props); i += 2 {
		if props[i] == message.PropTags {
			tags = message.TagsCode([]byte(props[i+1]))
		}
	}
	b.Items = append(b.Items, Item{Pos: int32(pos), Len: int32(len(b.Buf) - pos), Count: 1, Queue: s.Queue(topic, queueID), TagsCode: tags})
}

// send puts one record and fails the test unless it is stored.
func send(t testing.TB, s *Store, topic string, queueID int32, body string, props ...string) Item {
	t.Helper()
	b := newWaiter().put(s, one(s, topic, queueID, body, props...))
	if b.Items[0].Status != OK || b.Err != nil {
		t.Fatalf("send %.20q: %v, %v", body, b.Items[0].Status, b.Err)
	}
	return b.Items[0]
}

// bodies reads all of a queue, record by record through the ranges of Gets.
func bodies(t testing.TB, s *Store, topic string, queueID int32) []string {
	t.Helper()
	q := s.FindQueue(topic, queueID)
	if q == nil {
		return nil
	}
	var out []string
	var res GetResult
	defer res.Release()
	for off := q.Min(); ; off = res.Next {
		s.Get(&GetRequest{Queue: q, Offset: off, MaxMsgs: 32, Cold: true}, &res)
		switch res.Status {
		case Found, NoMatched, Removing:
		case OverflowOne, Empty:
			return out
		default:
			t.Fatalf("get %s-%d at %d: %v, %v", topic, queueID, off, res.Status, res.Err)
		}
		for _, m := range messages(t, &res) {
			out = append(out, string(m.Body))
		}
	}
}

// messages decodes what a result's ranges hold.
func messages(t testing.TB, res *GetResult) []message.Message {
	t.Helper()
	var out []message.Message
	for _, r := range res.Ranges {
		b := make([]byte, r.Len)
		if _, err := r.File.ReadAt(b, r.Off); err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 {
			var m message.Message
			n, err := message.Decode(b, &m)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, m)
			b = b[n:]
		}
	}
	if len(out) != res.Count {
		t.Fatalf("Count is %d, ranges hold %d", res.Count, len(out))
	}
	return out
}

func numbered(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

// recorder keeps events.
type recorder struct {
	mu      sync.Mutex
	arrived []string
	closed  []error
}

func (r *recorder) Arrived(q *consumequeue.Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived = append(r.arrived, fmt.Sprintf("%s-%d:%d", q.Topic(), q.ID(), q.Max()))
}

func (r *recorder) Closed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = append(r.closed, err)
}
