package broker

import (
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/broker/pop"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

const (
	// reviveTick is how exact the end of an invisible time is.
	reviveTick = 100 * time.Millisecond
	// reviveCountMax and reviveBytesMax bound one put of the reviver.
	reviveCountMax = 64
	reviveBytesMax = 1 << 20
	// reviveRetry is the pause before a message is tried again whose store
	// could not give or take it.
	reviveRetry = time.Second
)

// A reviver puts popped messages that nobody acknowledged in their invisible
// time on the pop retry topic of their group, from where they are popped again,
// and wakes pops in order whose queue is free again.
//
// Its one goroutine owns everything below the line.
//
// Exactly once, also across a crash: each record put carries in its
// preparedTransactionOffset the log offset of the record it was made of, plus
// one. The pop table is told that a message is done only when its record is
// durable; before the first put of which that isn't so, the table's cursor says
// where in the log such records begin. A restart scans the log from there and
// finds what is done already. (PopReviveService, 5.3.3, in other ways.)
type reviver struct {
	b    *Broker
	log  *slog.Logger
	stop chan struct{}
	done sync.WaitGroup

	// ----
	batch   engine.Batch
	offered []revival // what the batch's items are made of
	put     chan struct{}
	pending []revival // put, and not known to be durable yet, in log order
	flights []pop.Flight
	due     []*pop.Queue
	message message.Message
	unsaved bool // a topic was made for the batch and may not be saved
	failing bool // said so; until something is put again
	full    bool // said so; see sayFull
}

// A revival is one message on its way to its retry topic.
type revival struct {
	q      *pop.Queue
	flight pop.Flight
	at     message.LogOffset // of its record, once put
	end    message.LogOffset
}

func newReviver(b *Broker) *reviver {
	return &reviver{b: b, log: b.log.With("room", "revive"), stop: make(chan struct{}), put: make(chan struct{}, 1)}
}

func (r *reviver) start() { r.done.Go(r.run) }

// close stops putting; it waits for what was put to become durable, but not for
// ever: the next start finds it in the log.
func (r *reviver) close() {
	close(r.stop)
	r.done.Wait()
}

func (r *reviver) run() {
	if !r.begin() {
		return
	}
	tick := time.NewTicker(reviveTick)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			r.finish()
			return
		case <-tick.C:
		}
		r.settle()
		r.revive()
		r.moveCursor()
		r.sayFull()
	}
}

// begin finds out what the last run put without saying so. False: stopped
// before the log could be read.
func (r *reviver) begin() bool {
	for r.b.pops.Cursor() >= 0 {
		err := r.findPut(message.LogOffset(r.b.pops.Cursor()))
		if err == nil {
			break
		}
		r.log.Error("log can't be scanned for messages put on retry topics, trying again", "from", r.b.pops.Cursor(), "error", err)
		select {
		case <-time.After(reviveRetry):
		case <-r.stop:
			return false
		}
	}
	return true
}

// findPut scans the log for records put on retry topics of messages that the
// table has in flight.
func (r *reviver) findPut(from message.LogOffset) error {
	if r.b.pops.Flying() == 0 {
		return nil
	}
	m := &r.message
	return r.b.store.Scan(min(from, r.b.store.Marks().Written), func(_ message.LogOffset, rec []byte) error {
		if _, err := message.Decode(rec, m); err != nil || m.PreparedTransactionOffset <= 0 || !meta.HasPrefix(m.Topic, meta.RetryPrefix) {
			return nil
		}
		origin, err := r.b.store.ByOffset(m.PreparedTransactionOffset - 1)
		if errors.Is(err, engine.ErrNoRecord) {
			return nil
		}
		if err != nil {
			return err
		}
		topic := string(message.TopicOf(origin))
		for _, g := range r.b.pops.Groups(topic) {
			if !revivesTo(topic, g.Name, string(m.Topic)) {
				continue
			}
			if q := g.Find(message.QueueIDOf(origin)); q != nil {
				if f, ok := q.FlightAt(int64(message.QueueOffsetOf(origin)), m.StoreMillis); ok {
					q.Done(f)
				}
			}
		}
		return nil
	})
}

// revivesTo says whether retry is where a group's messages popped of topic go.
func revivesTo(topic, group, retry string) bool {
	if meta.HasPrefix(topic, meta.RetryPrefix) {
		return topic == retry
	}
	return string(appendRetryTopic(nil, topic, group, '1')) == retry || string(appendRetryTopic(nil, topic, group, '2')) == retry
}

// revive puts what is due, until nothing is.
func (r *reviver) revive() {
	for again := true; again; {
		select {
		case <-r.stop:
			return
		default:
		}
		again = false
		now := r.b.now().UnixMilli()
		r.due = r.b.pops.DueQueues(r.due[:0], now)
		for _, q := range r.due {
			if q.OrderFree(now) {
				r.b.popHolds.wake(q.Topic(), q.Group(), q.ID)
			}
			r.flights = q.TakeDue(r.flights[:0], now, reviveCountMax-len(r.offered))
			for i, f := range r.flights {
				if len(r.batch.Buf) >= reviveBytesMax {
					for _, f := range r.flights[i:] {
						q.Release(f, now)
					}
					break
				}
				r.offer(q, f)
			}
			if len(r.offered) >= reviveCountMax || len(r.batch.Buf) >= reviveBytesMax {
				again = true
				break
			}
		}
		clear(r.due)
		r.putOffered()
	}
}

// offer adds a message to the batch, unless there is nothing to put for it.
func (r *reviver) offer(q *pop.Queue, f pop.Flight) {
	var entry [1]consumequeue.Entry
	store := r.b.store.FindQueue(q.Topic(), q.ID)
	if store == nil {
		q.Done(f) // its topic was just deleted
		return
	}
	n, err := store.Read(entry[:], message.QueueOffset(f.Offset))
	if n == 0 {
		if int64(store.Min()) > f.Offset || err == nil {
			q.Done(f) // expired meanwhile
			return
		}
		r.fail(q, f, err)
		return
	}
	rec, err := r.b.store.ByOffset(entry[0].LogOffset)
	if errors.Is(err, engine.ErrNoRecord) {
		q.Done(f)
		return
	}
	if err == nil {
		err = r.add(q, f, rec, entry[0].LogOffset)
	}
	if err != nil {
		r.fail(q, f, err)
	}
}

// add encodes the record for the retry topic. (As PopReviveService#reviveRetry,
// 5.3.3.)
func (r *reviver) add(q *pop.Queue, f pop.Flight, rec []byte, origin message.LogOffset) error {
	m := &r.message
	if _, err := message.Decode(rec, m); err != nil {
		return err
	}
	name := q.Topic()
	if !meta.HasPrefix(name, meta.RetryPrefix) {
		name = r.b.popRetryTopic(name, q.Group())
	}
	topic, created := r.b.topics.PutAbsent(meta.NewTopic(name, 1, remoting.PermRead|remoting.PermWrite))
	r.unsaved = r.unsaved || created
	if _, ok := message.Property(m.Properties, message.PropFirstPopTime); !ok || m.ReconsumeTimes == 0 {
		props := setProperty(m.Properties, message.PropFirstPopTime, strconv.FormatInt(f.PopMillis, 10))
		if len(props) <= message.PropertiesBytesMax { // else there is no room for it
			m.Properties = props
		}
	}
	tags, _ := message.Property(m.Properties, message.PropTags)
	m.Topic, m.QueueID, m.ReconsumeTimes = []byte(topic.Name), 0, m.ReconsumeTimes+1
	m.BornHost, m.StoreHost = r.b.addr, r.b.addr
	m.SysFlag &^= message.SysFlagTransactionMask // it names no half message
	m.PreparedTransactionOffset = origin + 1
	pos := len(r.batch.Buf)
	var err error
	if r.batch.Buf, err = message.Append(r.batch.Buf, m); err != nil {
		return err
	}
	r.batch.Items = append(r.batch.Items, engine.Item{Pos: int32(pos), Len: int32(len(r.batch.Buf) - pos), Count: 1,
		Queue: r.b.store.Queue(topic.Name, 0), TagsCode: message.TagsCode(tags)})
	r.offered = append(r.offered, revival{q: q, flight: f})
	return nil
}

// putOffered appends the batch to the log and waits for it. The topics are
// saved first: nobody looks for messages in one that a crash has taken.
func (r *reviver) putOffered() {
	if len(r.offered) == 0 {
		return
	}
	if r.unsaved {
		if err := r.b.tables.Save(); err != nil {
			for i := range r.offered {
				r.fail(r.offered[i].q, r.offered[i].flight, err)
			}
			r.clearOffered()
			return
		}
		r.unsaved = false
	}
	if len(r.pending) == 0 {
		r.b.pops.SetCursor(int64(r.b.store.Marks().Written))
	}
	r.batch.Wait, r.batch.Done = true, r
	r.b.store.Put(&r.batch)
	<-r.put
	stored := false
	for i := range r.offered {
		o, item := &r.offered[i], &r.batch.Items[i]
		switch {
		case item.Status.Stored():
			stored = true
			o.at, o.end = item.LogOffset, item.LogOffset+message.LogOffset(item.Len)
			r.pending = append(r.pending, *o)
			r.b.popHolds.wake(popTopic(o.q.Topic(), o.q.Group()), o.q.Group(), -1)
		case item.Status == engine.Illegal:
			r.log.Error("a message can't be delivered again, it is given up", "topic", o.q.Topic(), "group", o.q.Group(), "queueId", o.q.ID,
				"offset", o.flight.Offset, "error", r.batch.Err)
			o.q.Done(o.flight)
		default:
			r.fail(o.q, o.flight, r.batch.Err)
		}
	}
	r.failing = r.failing && !stored
	r.clearOffered()
	r.settle()
}

func (r *reviver) clearOffered() {
	clear(r.offered)
	r.offered = r.offered[:0]
	r.batch.Reset()
}

// PutDone is the engine's word that the batch is through.
func (r *reviver) PutDone(*engine.Batch) { r.put <- struct{}{} }

// fail has a message tried again later, and says why, once until something is
// put again.
func (r *reviver) fail(q *pop.Queue, f pop.Flight, err error) {
	q.Release(f, r.b.now().Add(reviveRetry).UnixMilli())
	if !r.failing {
		r.failing = true
		r.log.Error("redelivery of popped messages is held up", "topic", q.Topic(), "group", q.Group(), "queueId", q.ID, "offset", f.Offset, "error", err)
	}
}

// settle tells the table what is durable.
func (r *reviver) settle() {
	durable, n := r.b.store.Marks().Durable, 0
	for n < len(r.pending) && r.pending[n].end <= durable {
		r.pending[n].q.Done(r.pending[n].flight)
		n++
	}
	rest := copy(r.pending, r.pending[n:])
	clear(r.pending[rest:])
	r.pending = r.pending[:rest]
}

// moveCursor keeps the scan of a restart short.
func (r *reviver) moveCursor() {
	from := r.b.store.Marks().Written
	if len(r.pending) > 0 {
		from = r.pending[0].at
	}
	if at := r.b.pops.Cursor(); at >= 0 && int64(from)-at > rescanBytesMax {
		r.b.pops.SetCursor(int64(from))
	}
}

// sayFull says when pops begin to find nothing because of popFlyingMax.
func (r *reviver) sayFull() {
	full := r.b.pops.Flying() >= popFlyingMax
	if full && !r.full {
		r.log.Warn("too many messages are popped and not acknowledged: pops find nothing until some are", "inFlight", r.b.pops.Flying(), "limit", popFlyingMax)
	}
	r.full = full
}

// finish waits for what was put to become durable.
func (r *reviver) finish() {
	timeout := time.After(closeWait)
	for r.settle(); len(r.pending) > 0; r.settle() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-timeout:
			r.log.Warn("messages put on retry topics are not durable yet; the next start looks for them in the log", "messages", len(r.pending))
			return
		}
	}
}
