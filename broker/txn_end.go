package broker

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// handleEndTransaction is END_TRANSACTION (37): the producer of a half message
// has decided. It answers when the decision is as durable as a send; a request
// that decides nothing gets no answer. Of several the first counts.
// (As EndTransactionProcessor, 5.3, but that a second decision is refused; Apache
// commits again.)
func handleEndTransaction(b *Broker, r *request) (*response, error) {
	var h remoting.EndTransactionHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	to, conn := r.cmd.ReplyTo(), r.conn
	done := func(err error) {
		code, remark := remoting.Success, ""
		if err != nil {
			code, remark = errorReply(err)
		}
		conn.Send(remoting.AppendReply(nil, to, code, remark, nil, nil))
	}
	if to.Oneway {
		done = nil
	}
	err := b.transactions.decide(&h, done)
	if err != nil && to.Oneway {
		b.transactions.log.Info("a transaction can't be ended", "group", h.ProducerGroup, "remote", conn.Remote().String(),
			"commitLogOffset", h.CommitLogOffset, "commitOrRollback", h.CommitOrRollback, "error", err)
	}
	return nil, err
}

// decide takes a producer's decision. An error is a refusal; otherwise done,
// which may be nil, is told how it ended. It may wait for the disk.
func (t *transactions) decide(h *remoting.EndTransactionHeader, done func(error)) error {
	if h.CommitOrRollback != message.SysFlagTransactionCommit && h.CommitOrRollback != message.SysFlagTransactionRollback {
		t.lock()
		t.stats.Unknown++
		t.mu.Unlock()
		return nil
	}
	err := t.decided(h, done)
	if err != nil {
		t.lock()
		t.stats.Refused++
		t.mu.Unlock()
	}
	return err
}

func (t *transactions) decided(h *remoting.EndTransactionHeader, done func(error)) error {
	m, err := t.prepared(h)
	if err != nil {
		return err
	}
	claimed, err := t.claim(originOf(m), t.b.store.Marks().Written)
	if err != nil {
		return err
	}
	if h.CommitOrRollback == message.SysFlagTransactionRollback {
		t.lock()
		t.end(claimed, rolledBack, done)
		t.mu.Unlock()
		return nil
	}
	c, err := t.newCommit(claimed, m, done)
	if err != nil {
		t.settle(claimed, 0)
		return err
	}
	c.put()
	return nil
}

// prepared reads the half message that a decision names, and checks that the
// decision is its producer's.
func (t *transactions) prepared(h *remoting.EndTransactionHeader) (*message.Message, error) {
	at := message.LogOffset(h.CommitLogOffset)
	rec, err := t.b.store.ByOffset(at)
	if errors.Is(err, engine.ErrNoRecord) {
		return nil, errHalf(at, "find prepared transaction message failed: %v", err)
	}
	if err != nil {
		return nil, err
	}
	m := new(message.Message)
	if _, err := message.Decode(rec, m); err != nil {
		return nil, err
	}
	if string(m.Topic) != meta.HalfTopic {
		return nil, errHalf(at, "find prepared transaction message failed: a message of topic %s lies there", m.Topic)
	}
	if !h.FromTransactionCheck && t.tooLate(m) {
		return nil, refuse(remoting.IllegalOperation, "the half message at %d has passed its %s; its producer will be asked", at, message.PropCheckImmunityTime)
	}
	if group, _ := message.Property(m.Properties, message.PropProducerGroup); string(group) != h.ProducerGroup {
		return nil, errHalf(at, "the producer group wrong: got %s, want %s", h.ProducerGroup, group)
	}
	if int64(m.QueueOffset) != h.TranStateTableOffset {
		return nil, errHalf(at, "the transaction state table offset wrong: got %d, want %d", h.TranStateTableOffset, m.QueueOffset)
	}
	return m, nil
}

// originOf is where the producer's own half message lies of which m is a copy,
// or m itself.
func originOf(m *message.Message) message.LogOffset {
	if m.PreparedTransactionOffset > 0 {
		return m.PreparedTransactionOffset - 1
	}
	return m.PhysicalOffset
}

// tooLate says whether a half message with a checking time of its own has
// passed it: then only the answer to a check counts.
// (As EndTransactionProcessor#rejectCommitOrRollback, 5.3.)
func (t *transactions) tooLate(m *message.Message) bool {
	seconds, ok := message.Property(m.Properties, message.PropCheckImmunityTime)
	if !ok {
		return false
	}
	n, err := strconv.ParseInt(string(seconds), 10, 64)
	if err != nil {
		n = 0
	}
	return t.b.now().UnixMilli()-m.BornMillis > max(secondsToMillis(n), t.b.cfg.TransactionTimeOut.Milliseconds())
}

func secondsToMillis(n int64) int64 {
	return 1000 * max(min(n, math.MaxInt64/1000), math.MinInt64/1000)
}

// A commit is a half message on its way to its topic.
type commit struct {
	engine.Batch
	t        *transactions
	half     *half
	done     func(error) // may be nil
	deadline time.Time   // from then on a full log is answered
}

// newCommit makes the record of a committed half message: where it was meant to
// go, or where its delay lets it wait. (As EndTransactionProcessor#
// endMessageTransaction and HookUtils#handleScheduleMessage, 5.3.)
func (t *transactions) newCommit(h *half, m *message.Message, done func(error)) (*commit, error) {
	place, err := t.realPlace(m)
	if err != nil {
		return nil, err
	}
	props, real := m.Properties, place
	var found sentProps
	t.b.appendStoredProps(nil, props, &found)
	if found.delay != nil || found.timer != nil {
		props = message.DeleteProperty(nil, props, message.PropTransactionPrepared)
		props = message.DeleteProperty(props[:0], props, message.PropRealTopic)
		props = message.DeleteProperty(props[:0], props, message.PropRealQueueID)
		if props, err = t.b.postpone(props, &found, &place, t.b.now().UnixMilli()); err != nil {
			return nil, err
		}
		if place.topic == real.topic {
			props = m.Properties
		}
	}
	if len(props) > message.PropertiesBytesMax {
		return nil, propsTooLong([]byte(real.topic.Name), len(props))
	}
	r := *m
	r.Topic, r.QueueID, r.Properties, r.StoreHost = []byte(place.topic.Name), place.queueID, props, t.b.addr
	r.QueueOffset, r.PhysicalOffset, r.StoreMillis = 0, 0, 0
	r.SysFlag = m.SysFlag&^message.SysFlagTransactionMask | message.SysFlagTransactionCommit
	r.PreparedTransactionOffset = h.at
	c := &commit{t: t, half: h, done: done, deadline: t.b.now().Add(sendBackPatience)}
	if c.Buf, err = message.Append(nil, &r); err != nil {
		return nil, err
	}
	queue := t.b.store.Queue(place.topic.Name, place.queueID)
	if queue == nil {
		return nil, errHalf(m.PhysicalOffset, "its topic %s is just being deleted", real.topic.Name)
	}
	c.Items = []engine.Item{{Len: int32(len(c.Buf)), Count: 1, Queue: queue, TagsCode: place.tagsCode}}
	return c, nil
}

// realPlace is where a half message was meant to go.
func (t *transactions) realPlace(m *message.Message) (place target, err error) {
	name, _ := message.Property(m.Properties, message.PropRealTopic)
	id, _ := message.Property(m.Properties, message.PropRealQueueID)
	n, err := strconv.ParseInt(string(id), 10, 32)
	if err != nil || n < 0 || n > meta.QueueIDMax {
		return place, errHalf(m.PhysicalOffset, "%s: got %q, want a queueId", message.PropRealQueueID, id)
	}
	topic := t.b.topics.Get(name)
	if topic == nil {
		return place, refuse(remoting.TopicNotExist, "topic[%s] of the half message at %d not exist: it was deleted; the transaction stays undecided", name, m.PhysicalOffset)
	}
	tags, _ := message.Property(m.Properties, message.PropTags)
	return target{topic: topic, queueID: int32(n), tagsCode: message.TagsCode(tags), reconsume: m.ReconsumeTimes}, nil
}

// put hands the record to the store. It may run again after the store was full.
func (c *commit) put() {
	c.Wait, c.Done = true, c
	c.t.b.store.Put(&c.Batch)
}

// PutDone answers, or tries again where the log was full.
func (c *commit) PutDone(*engine.Batch) {
	status := c.Items[0].Status
	if status == engine.Busy && c.t.b.now().Before(c.deadline) {
		time.AfterFunc(sendBackPause, c.put)
		return
	}
	var err error
	if status.Stored() {
		c.t.settle(c.half, committed)
	} else {
		err = putError(status, c.Err)
		c.t.settle(c.half, 0)
	}
	if c.done != nil {
		c.done(err)
	} else if err != nil {
		c.t.log.Warn("a commit was not stored; the transaction stays undecided", "half", c.half.at, "error", err)
	}
}

// putError is the refusal for a record that isn't in the log.
func putError(status engine.Status, cause error) error {
	code, remark := sendCode(status, cause)
	return &remoting.Error{Code: code, Remark: remark}
}
