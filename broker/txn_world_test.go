package broker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// txnWorld is a store, its tables and transactions over a memory that can be
// crashed, with producers that note what they are asked.
type txnWorld struct {
	scheduleWorld
	x *transactions

	mu    sync.Mutex
	asked []remoting.Command
	gone  bool // no producer is there
	busy  bool // those that are don't read
}

// saved is the progress that the offsets have.
func (w *txnWorld) saved() (half, op int64) {
	half, _ = w.b.offsets.Get([]byte(meta.HalfTopic), []byte(transGroup), 0)
	op, _ = w.b.offsets.Get([]byte(meta.OpHalfTopic), []byte(transGroup), 0)
	return half, op
}

func newTxnWorld(t *testing.T, fs *vfs.Mem, change func(*Config)) *txnWorld {
	t.Helper()
	return newTxnWorldOver(t, fs, change, engine.Config{SyncFlush: true})
}

func newTxnWorldOver(t *testing.T, fs *vfs.Mem, change func(*Config), store engine.Config) *txnWorld {
	t.Helper()
	cfg := DefaultConfig()
	cfg.MessageDelayLevel = "10s 1h"
	cfg.BrokerName = "b"
	if change != nil {
		change(&cfg)
	}
	b := &Broker{cfg: &cfg, log: slog.New(slog.DiscardHandler), now: time.Now, fs: fs, addr: testAddr}
	levels, _ := cfg.DelayLevels()
	b.levels.set(levels)
	b.ids = message.NewIDs(testAddr.Addr())
	b.stamp = propsStamp(cfg.RegionId, cfg.TraceOn, cfg.BrokerClusterName)
	store.FS, store.Dir, store.SegmentBytes, store.NoIndex = fs, "store", 1<<20, true
	store.TagsCode, store.Events, store.Logger = b.entryTagsCode, storeEvents{b}, b.log
	var err error
	if b.store, err = engine.Open(store); err != nil {
		t.Fatal(err)
	}
	if b.tables, err = meta.Open(meta.Config{FS: fs, Dir: "store/config", Logger: b.log,
		System: meta.SystemConfig{BrokerClusterName: "c", BrokerName: "b", DelayLevels: len(levels)}}); err != nil {
		t.Fatal(err)
	}
	b.topics, b.offsets = b.tables.Topics, b.tables.Offsets
	b.topics.PutAbsent(meta.NewTopic("T", 4, 6))
	b.schedule = newScheduler(b)
	b.transactions = newTransactions(b)
	w := &txnWorld{scheduleWorld: scheduleWorld{t: t, fs: fs, b: b}, x: b.transactions}
	w.x.producer = func(group string) (checkTarget, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.gone || w.busy {
			return nil, w.busy
		}
		return w, true
	}
	if err := w.x.recover(); err != nil {
		t.Fatal(err)
	}
	b.schedule.start()
	w.x.start()
	return w
}

// Send is the producer's connection.
func (w *txnWorld) Send(frame []byte) {
	var cmd remoting.Command
	if err := remoting.Decode(slices.Clone(frame), &cmd); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	w.asked = append(w.asked, cmd)
	w.mu.Unlock()
}

// checks takes the checks since the last call.
func (w *txnWorld) checks() []remoting.Command {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.asked
	w.asked = nil
	return out
}

func (w *txnWorld) close() {
	w.t.Helper()
	w.b.schedule.close()
	w.x.close()
	if err := w.b.store.Close(context.Background()); err != nil {
		w.t.Error(err)
	}
	if err := w.b.tables.Close(); err != nil {
		w.t.Error(err)
	}
}

// A sentHalf is a half message as its producer knows it.
type sentHalf struct {
	group string
	at    message.LogOffset
	queue message.QueueOffset
	body  string
}

// send stores a half message of group pg, as a SEND does, and waits until it is
// durable.
func (w *txnWorld) send(body string, props ...string) sentHalf {
	w.t.Helper()
	return w.sendAt(body, time.Now(), props...)
}

func (w *txnWorld) sendAt(body string, born time.Time, props ...string) sentHalf {
	w.t.Helper()
	state := &loopState{}
	var found sentProps
	given := hide(strings.Join(append([]string{"TRAN_MSG=true", "PGROUP=pg", "TAGS=tag", "UNIQ_KEY=" + body}, props...), ";"))
	state.props = w.b.appendStoredProps(nil, given, &found)
	to := target{topic: w.b.topics.Find("T"), queueID: 1, tagsCode: message.TagsCode(found.tags)}
	if err := w.b.halve(state, &remoting.SendHeader{ProducerGroup: []byte("other")}, &found, &to); err != nil {
		w.t.Fatal(err)
	}
	rec, err := message.Append(nil, &message.Message{Topic: []byte(to.topic.Name), QueueID: to.queueID, Properties: state.props, Flag: 7,
		Body: []byte(body), BornMillis: born.UnixMilli(), BornHost: testAddr, StoreHost: testAddr})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(putter, 1)
	batch := &engine.Batch{Buf: rec, Wait: true, Done: done,
		Items: []engine.Item{{Len: int32(len(rec)), Count: 1, Queue: w.b.store.Queue(to.topic.Name, to.queueID), TagsCode: to.tagsCode}}}
	w.b.store.Put(batch)
	<-done
	if batch.Err != nil {
		w.t.Fatal(batch.Err)
	}
	return sentHalf{group: "pg", at: batch.Items[0].LogOffset, queue: batch.Items[0].QueueOffset, body: body}
}

const (
	commitIt   = message.SysFlagTransactionCommit
	rollItBack = message.SysFlagTransactionRollback
)

// end decides, and waits for the answer.
func (w *txnWorld) end(s sentHalf, how int32, fromCheck bool) error {
	w.t.Helper()
	done := make(chan error, 1)
	err := w.x.decide(&remoting.EndTransactionHeader{ProducerGroup: s.group, CommitLogOffset: int64(s.at), TranStateTableOffset: int64(s.queue),
		CommitOrRollback: how, FromTransactionCheck: fromCheck}, func(err error) { done <- err })
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		return fmt.Errorf("no answer")
	}
}

func (w *txnWorld) mustEnd(s sentHalf, how int32) {
	w.t.Helper()
	if err := w.end(s, how, false); err != nil {
		w.t.Fatalf("%s: %v", s.body, err)
	}
}

// refused wants a decision to be refused with a code and words.
func (w *txnWorld) refused(s sentHalf, how int32, code remoting.ResponseCode, words string) {
	w.t.Helper()
	got, remark := errorReply(w.end(s, how, false))
	if got != code || !strings.Contains(remark, words) {
		w.t.Errorf("%s: got code %d %q, want %d with %q", s.body, got, remark, code, words)
	}
}

// answer is the half message that a check is about, as its producer knows it.
func answer(c *remoting.Command) (s sentHalf, m message.Message) {
	var h remoting.CheckTransactionHeader
	if err := h.Decode(c); err != nil {
		panic(err)
	}
	if _, err := message.Decode(c.Body, &m); err != nil {
		panic(err)
	}
	return sentHalf{group: "pg", at: message.LogOffset(h.CommitLogOffset), queue: message.QueueOffset(h.TranStateTableOffset), body: string(m.Body)}, m
}

func (w *txnWorld) wantStats(want TransactionStats) {
	w.t.Helper()
	if got := w.x.Stats(); got != want {
		w.t.Errorf("counts: got %+v, want %+v", got, want)
	}
}
