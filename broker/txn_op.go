package broker

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
)

// transGroup is the consumer group whose offsets in the half and the op queue
// say how far transactions are through (MixAll.CID_SYS_RMQ_TRANS).
const transGroup = "CID_RMQ_SYS_TRANS"

// opTag is the tag of an op record whose body names half messages that are
// through.
const opTag = "d"

// An opEntry is an entry of the half queue that is through and waits for its
// op record.
type opEntry struct {
	queue message.QueueOffset
	scan  message.LogOffset // what ended it lies at or behind it in the log; scanNothing: it is found without
	done  func(error)       // may be nil
}

// scanNothing is for entries whose end needs no record of its own.
const scanNothing = message.LogOffset(math.MaxInt64)

// bytes is its size in an op record's body.
func (e opEntry) bytes() int {
	n := 2
	for q := e.queue; q >= 10; q /= 10 {
		n++
	}
	return n
}

// An opMark is an op record in the log.
type opMark struct {
	at   message.QueueOffset // its own offset in the op queue
	last message.QueueOffset // the highest half queue offset it names; -1: none
}

// progress is how far transactions are through.
type progress struct {
	half, op message.QueueOffset // the first that are still needed
	upTo     message.LogOffset   // so when the log is durable to here; a snapshot's
}

// writeDueOps writes op records when enough has gathered, somebody waits or it
// is time (transactionOpMsgMaxSize, transactionOpBatchInterval). Otherwise it
// says for how long to wait; any is false when there is nothing to write.
func (t *transactions) writeDueOps() (wait time.Duration, any bool) {
	t.lock()
	wait = t.opSince.Add(t.b.cfg.TransactionOpBatchInterval).Sub(t.b.now())
	due := t.opUrgent || t.opBytes >= t.b.cfg.TransactionOpMsgMaxSize || wait <= 0
	any = len(t.ops) > 0
	t.mu.Unlock()
	if !any || !due {
		return wait, any
	}
	if t.writeOps() {
		return 0, false
	}
	return deliveryRetry, true
}

// writeOps writes op records for all that is through; false when the log doesn't
// take them now.
func (t *transactions) writeOps() bool {
	for {
		ops, from := t.takeOps()
		if len(ops) == 0 {
			return true
		}
		at, err := t.appendOp(ops, from)
		if err != nil {
			t.fail("the log takes no op records", err)
			t.putBackOps(ops, err)
			return false
		}
		t.failing.Store(false)
		t.settleOps(ops, at)
	}
}

// takeOps takes what one op record may name. from is where in the log decisions
// begin that have their op records in none up to this one.
func (t *transactions) takeOps() (ops []opEntry, from message.LogOffset) {
	from = t.b.store.Marks().Written
	t.lock()
	defer t.mu.Unlock()
	size, n := 0, 0
	for n < len(t.ops) && (n == 0 || size+t.ops[n].bytes() <= t.b.cfg.TransactionOpMsgMaxSize) {
		size += t.ops[n].bytes()
		n++
	}
	ops = t.ops[:n:n]
	t.ops, t.opBytes = t.ops[n:], t.opBytes-size
	if len(t.ops) == 0 {
		t.ops, t.opUrgent = nil, false
	}
	for _, e := range t.ops {
		from = min(from, e.scan)
	}
	for h := range t.ending {
		from = min(from, h.scan)
	}
	return ops, from
}

// putBackOps keeps entries for another try; who waits is told.
func (t *transactions) putBackOps(ops []opEntry, err error) {
	for i := range ops {
		if ops[i].done != nil {
			ops[i].done(err)
			ops[i].done = nil
		}
	}
	t.lock()
	defer t.mu.Unlock()
	t.ops = append(ops, t.ops...)
	for _, e := range ops {
		t.opBytes += e.bytes()
	}
	t.opUrgent, t.opSince = false, t.b.now()
}

// appendOp appends one op record and waits until it is as durable as a send.
// (As TransactionalMessageBridge#makeOpMessageInner, 5.3.)
func (t *transactions) appendOp(ops []opEntry, from message.LogOffset) (message.QueueOffset, error) {
	t.buf = t.buf[:0]
	for _, e := range ops {
		t.buf = append(strconv.AppendInt(t.buf, int64(e.queue), 10), ',')
	}
	if len(ops) == 0 {
		t.buf = append(t.buf, "-1,"...) // names nothing, for either broker
	}
	props := message.AppendProperty(nil, message.PropTags, opTag)
	props = message.AppendProperty(props, message.PropWait, "true")
	t.batch.Reset()
	err := t.add(&message.Message{
		Topic: []byte(meta.OpHalfTopic), Properties: props, Body: t.buf, BornMillis: t.b.now().UnixMilli(), BornHost: t.b.addr,
		// Negative, so that nobody takes it for the place of a record.
		PreparedTransactionOffset: -1 - from,
	}, engine.Item{Queue: t.op, TagsCode: message.TagsCode([]byte(opTag))})
	if err != nil {
		return 0, err
	}
	t.append()
	item := &t.batch.Items[0]
	if !item.Status.Stored() {
		return 0, putError(item.Status, t.batch.Err)
	}
	t.lock()
	t.scanFrom = from
	t.mu.Unlock()
	return item.QueueOffset, nil
}

// add adds a record to the goroutine's batch; item needs queue and tags.
func (t *transactions) add(m *message.Message, item engine.Item) (err error) {
	m.StoreHost = t.b.addr
	pos := len(t.batch.Buf)
	if t.batch.Buf, err = message.Append(t.batch.Buf, m); err != nil {
		return err
	}
	item.Pos, item.Len, item.Count = int32(pos), int32(len(t.batch.Buf)-pos), 1
	t.batch.Items = append(t.batch.Items, item)
	return nil
}

// append puts the goroutine's batch and waits for its end.
func (t *transactions) append() {
	t.batch.Wait, t.batch.Done = true, t
	t.b.store.Put(&t.batch)
	<-t.put
}

// PutDone is the engine's word that the goroutine's batch is through.
func (t *transactions) PutDone(*engine.Batch) { t.put <- struct{}{} }

// settleOps closes the entries that an op record in the log names.
func (t *transactions) settleOps(ops []opEntry, at message.QueueOffset) {
	mark := opMark{at: at, last: -1}
	t.lock()
	for _, e := range ops {
		mark.last = max(mark.last, e.queue)
		if _, ours := t.ahead[e.queue]; ours {
			t.ahead[e.queue] = true
		} else {
			t.open.close(e.queue)
		}
	}
	t.mu.Unlock()
	t.opMarks = append(t.opMarks, mark)
	for _, e := range ops {
		if e.done != nil {
			e.done(nil)
		}
	}
}

// boundScan keeps short what of the log a start would have to scan: while half
// messages wait and none ends, an op record that names none says that.
func (t *transactions) boundScan() {
	t.lock()
	due := len(t.halves) > 0 && len(t.ops) == 0 && int64(t.b.store.Marks().Written-t.scanFrom) > t.scanMax
	t.mu.Unlock()
	if !due {
		return
	}
	ops, from := t.takeOps()
	at, err := t.appendOp(ops, from)
	if err != nil {
		t.fail("the log takes no op records", err)
		t.putBackOps(ops, err)
		return
	}
	t.settleOps(ops, at)
}

// progress is how far transactions are through as of now: all entries below half
// are, and all op records below op name such entries alone.
func (t *transactions) progress() (p progress) {
	t.lock()
	p.half = t.open.first(t.seen)
	t.mu.Unlock()
	i := 0
	for i < len(t.opMarks) && t.opMarks[i].last < p.half {
		i++
	}
	if t.opMarks = t.opMarks[i:]; len(t.opMarks) > 0 {
		p.op = t.opMarks[0].at
	} else {
		p.op = t.op.Max()
	}
	return p
}

// saveProgress takes a snapshot of the progress, and gives the one before to the
// offsets once what it stands for is durable.
func (t *transactions) saveProgress() {
	t.lock()
	t.catchUpOrLog()
	t.mu.Unlock()
	marks := t.b.store.Marks()
	if t.snapshot == nil {
		p := t.progress()
		if p == t.saved {
			return
		}
		p.upTo = marks.Written
		t.snapshot = &p
	}
	if marks.Durable >= t.snapshot.upTo {
		t.b.offsets.Commit([]byte(meta.HalfTopic), []byte(transGroup), 0, int64(t.snapshot.half))
		t.b.offsets.Commit([]byte(meta.OpHalfTopic), []byte(transGroup), 0, int64(t.snapshot.op))
		t.saved, t.snapshot = progress{half: t.snapshot.half, op: t.snapshot.op}, nil
	}
}

// opNames calls fn for each half queue offset that an op record names. A body
// may be a single number (4.x) or numbers each followed by a comma.
func opNames(m *message.Message, fn func(message.QueueOffset)) {
	if tags, _ := message.Property(m.Properties, message.PropTags); string(tags) != opTag {
		return
	}
	for part := range bytes.SplitSeq(m.Body, []byte(",")) {
		if n, err := strconv.ParseInt(string(part), 10, 64); err == nil && n >= 0 {
			fn(message.QueueOffset(n))
		}
	}
}
