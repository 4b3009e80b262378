package broker

import (
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

const (
	// deliveryCountMax and deliveryBytesMax bound one batch of a carrier.
	deliveryCountMax = 64
	deliveryBytesMax = 1 << 20
	// deliveryRetry is the pause after the store could not take or give a
	// record.
	deliveryRetry = 200 * time.Millisecond
	// progressInterval is how often progress is looked at for saving.
	progressInterval = time.Second
	// rescanBytesMax bounds how much of the log a restart scans for deliveries.
	rescanBytesMax = 16 << 20
	// closeWait bounds how long close waits for the last deliveries to become
	// durable.
	closeWait = 2 * time.Second
)

// A carrier takes messages that have waited in a topic of the broker's own to
// where they go next, a batch at a time: what the scheduler of the delay levels
// and the timer have in common. It belongs to one goroutine, which waits for
// each batch.
//
// Each record it puts carries in its preparedTransactionOffset the log offset of
// the record it was made of, its origin, plus one. (0 means none. No record
// begins one byte behind another, so it can't be taken for the offset of a half
// message, which a committed transaction has there.) A start finds by it what
// was delivered already.
type carrier struct {
	store  *engine.Store
	topics *meta.Topics
	addr   netip.AddrPort
	log    *slog.Logger
	fold   func() error // makes saved progress durable at once
	now    func() time.Time

	wake chan struct{}
	stop chan struct{}
	done sync.WaitGroup // of the goroutine

	// ---- the goroutine's
	batch   engine.Batch
	put     chan struct{}
	failing bool   // said so; until something is delivered again
	passed  int    // messages passed over since it was said
	why     string // for the last of them
}

func newCarrier(b *Broker, room string) carrier {
	return carrier{store: b.store, topics: b.topics, addr: b.addr, log: b.log.With("room", room), fold: b.tables.Fold, now: b.now,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), put: make(chan struct{}, 1)}
}

// kick makes the goroutine look at its queues. It doesn't block.
func (c *carrier) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// close stops delivering and saves the progress; it waits for the deliveries to
// become durable, but not for ever: what isn't saved is found by the next
// start's scan.
func (c *carrier) close() {
	close(c.stop)
	c.done.Wait()
}

// insist does what the disk may fail, until it succeeds. False: close came
// first.
func (c *carrier) insist(do func() bool) bool {
	for !do() {
		select {
		case <-time.After(deliveryRetry):
		case <-c.stop:
			return false
		}
	}
	return true
}

// finish saves the last progress: it calls save until nothing is left to be
// saved.
func (c *carrier) finish(save func(), left func() bool) {
	timeout := time.After(closeWait)
	for save(); left(); save() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-timeout:
			c.log.Warn("the last delayed messages are not durable yet; the next start looks for them in the log")
			return
		}
	}
}

// begin empties the batch.
func (c *carrier) begin() { c.batch.Reset() }

// full says whether the batch should be put.
func (c *carrier) full() bool {
	return len(c.batch.Items) >= deliveryCountMax || len(c.batch.Buf) >= deliveryBytesMax
}

// read gives the message that waits at origin. ok is false when there is none
// any more, or none that can be read, which is noted. The error is the disk's.
func (c *carrier) read(origin message.LogOffset, m *message.Message) (ok bool, err error) {
	rec, err := c.store.ByOffset(origin)
	if err == nil {
		_, err = message.Decode(rec, m)
	}
	if errors.Is(err, engine.ErrNoRecord) || errors.Is(err, message.ErrTorn) {
		c.passOver(err.Error())
		return false, nil
	}
	return err == nil, err
}

// add adds m to the batch, for a queue of topic. It says whether it did: a
// message that can't be is noted and passed over.
func (c *carrier) add(m *message.Message, origin message.LogOffset, topic string, queueID int32, tagsCode int64) bool {
	queue := c.store.Queue(topic, queueID)
	if queue == nil {
		return false // its topic is just being deleted
	}
	m.Topic, m.QueueID, m.StoreHost, m.PreparedTransactionOffset = []byte(topic), queueID, c.addr, origin+1
	pos := len(c.batch.Buf)
	buf, err := message.Append(c.batch.Buf, m)
	if err != nil {
		c.passOver(err.Error())
		return false
	}
	c.batch.Buf = buf
	c.batch.Items = append(c.batch.Items, engine.Item{
		Pos: int32(pos), Len: int32(len(buf) - pos), Count: 1, Queue: queue, TagsCode: tagsCode,
	})
	return true
}

// realTarget says where a message belongs; why, if anything, says that it
// belongs nowhere.
func (c *carrier) realTarget(m *message.Message) (topic string, queueID int32, why string) {
	name, _ := message.Property(m.Properties, message.PropRealTopic)
	id, _ := message.Property(m.Properties, message.PropRealQueueID)
	n, err := strconv.ParseInt(string(id), 10, 32)
	switch {
	case meta.CheckTopic(name) != nil:
		return "", 0, message.PropRealTopic + " is no topic name"
	case err != nil || n < 0 || n > meta.QueueIDMax:
		return "", 0, message.PropRealQueueID + " is no queueId"
	}
	t := c.topics.Get(name)
	retry := meta.HasPrefix(name, meta.RetryPrefix)
	if t == nil && retry {
		// It was deleted, or made by a heartbeat, which doesn't wait for its table.
		t, _ = c.topics.PutAbsent(meta.NewTopic(string(name), 1, remoting.PermRead|remoting.PermWrite))
	}
	if t == nil {
		return "", 0, "its topic was deleted"
	}
	if retry { // which had more queues when the message failed: it must not go where nobody reads
		n %= int64(max(t.ReadQueues, 1))
	}
	return t.Name, int32(n), ""
}

// putBatch appends the batch and waits for it; false when not all of it is in
// the log: the items say what is.
func (c *carrier) putBatch() bool {
	if len(c.batch.Items) == 0 {
		return true
	}
	c.batch.Done = c
	c.store.Put(&c.batch)
	<-c.put
	c.failing = c.failing && c.batch.Err != nil
	return c.batch.Err == nil
}

// PutDone is the engine's word that a batch is through.
func (c *carrier) PutDone(*engine.Batch) { c.put <- struct{}{} }

// fail says what holds deliveries up, once until something is delivered again.
func (c *carrier) fail(what string, err error, where ...any) {
	if !c.failing {
		c.failing = true
		c.log.Error("delivery of delayed messages is held up", append([]any{"cause", what, "error", err}, where...)...)
	}
}

// passOver notes a message that is not and will not be delivered; sayPassed
// tells of all of them together, since a deleted topic may have had millions.
func (c *carrier) passOver(why string) {
	c.passed++
	c.why = why
}

func (c *carrier) sayPassed() {
	if c.passed > 0 {
		c.log.Warn("delayed messages passed over", "messages", c.passed, "lastReason", c.why)
		c.passed = 0
	}
}

// eachDelivery scans the log from an offset on for records that name an origin:
// those made by carriers, and those of committed transactions, which name their
// half message by its offset and so seem to come from one byte before it. It
// blocks on the disk. It ends with fn's first error.
func (c *carrier) eachDelivery(from message.LogOffset, fn func(origin, at message.LogOffset) error) error {
	var m message.Message
	return c.store.Scan(min(from, c.store.Marks().Written), func(off message.LogOffset, rec []byte) error {
		if _, err := message.Decode(rec, &m); err == nil && m.PreparedTransactionOffset > 0 {
			return fn(m.PreparedTransactionOffset-1, off)
		}
		return nil
	})
}
