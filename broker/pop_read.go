package broker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/broker/pop"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// popFlyingMax bounds the messages in flight of all groups together, a few
// hundred MiB of memory when they were popped one by one. Beyond it pops find
// nothing.
const popFlyingMax = 2_000_000

// A popReader is one look of a pop into its queues: each of topic and retry
// topic at most once, so that a flag and queueId stand in an answer once. It is
// used again.
type popReader struct {
	b         *Broker
	p         *popRequest
	state     *loopState // its results and buffers
	cold      bool       // on the pool: it may wait for a disk
	needCold  bool       // something could only be had from a disk
	popMillis int64

	count                  int   // messages taken
	rest                   int64 // messages that there are beside them
	body                   []byte
	ranges                 []vfs.Range
	rangeBytes             int
	gots                   []*engine.GetResult // behind ranges
	start, offsets, counts []byte              // the three infos

	name    []byte // scratch
	taken   []int64
	record  []byte
	message message.Message
}

func (r *popReader) begin(b *Broker, p *popRequest, state *loopState, nowMs int64) {
	r.b, r.p, r.state, r.popMillis = b, p, state, nowMs
	r.cold, r.needCold, r.count, r.rest, r.rangeBytes = false, false, 0, 0, 0
	r.body, r.ranges, r.gots = r.body[:0], r.ranges[:0], r.gots[:0]
	r.start, r.offsets, r.counts = r.start[:0], r.offsets[:0], r.counts[:0]
}

// run looks into the retry topic first now and then, else last, so that neither
// waits for the other for ever; a pop in order has none.
func (r *popReader) run() {
	dice := rand.IntN(100)
	retryFirst := dice < r.b.cfg.PopFromRetryProbability
	if retryFirst && !r.p.order {
		r.fromRetry(dice)
	}
	if r.p.queueID >= 0 {
		r.fromQueue(r.p.topic, '0', r.p.queueID)
	} else {
		r.fromTopic(r.p.topic, '0')
	}
	if !retryFirst && !r.p.order && r.count < r.p.maxMsgs {
		r.fromRetry(dice)
	}
}

// fromRetry looks into one of the retry topics: that of the version in use, or
// by turns of version 1, where failed messages of before may be left.
func (r *popReader) fromRetry(dice int) {
	cfg := r.b.cfg
	flag := byte('1')
	if cfg.EnableRetryTopicV2 && !(cfg.RetrieveMessageFromPopRetryTopicV1 && dice%2 == 0) {
		flag = '2'
	}
	r.name = appendRetryTopic(r.name[:0], r.p.topic.Name, r.p.group.GroupName, flag)
	if t := r.b.topics.Get(r.name); t != nil {
		r.fromTopic(t, flag)
	}
}

// Separators in the names of the retry topics of pops, by flag.
var retrySeparators = [...]byte{'1': '_', '2': '+'}

// appendRetryTopic writes the name of a group's retry topic for messages popped
// of topic: %RETRY%group_topic, or with + in version 2.
func appendRetryTopic(dst []byte, topic, group string, flag byte) []byte {
	dst = append(append(dst, meta.RetryPrefix...), group...)
	return append(append(dst, retrySeparators[flag]), topic...)
}

// popRetryFlag tells what a topic is to a pop: itself, or a retry topic of
// version 1 or 2. (As ExtraInfoUtil#getRetry, 5.3.3: by the name alone.)
func popRetryFlag[S ~string | ~[]byte](topic S) byte {
	switch {
	case !meta.HasPrefix(topic, meta.RetryPrefix):
		return '0'
	case strings.IndexByte(string(topic), '+') >= 0:
		return '2'
	}
	return '1'
}

// popTopic gives the topic whose pops a retry topic of a group belongs to.
func popTopic(retry, group string) string {
	rest, ok := strings.CutPrefix(retry, meta.RetryPrefix+group)
	if ok && len(rest) > 1 && (rest[0] == '_' || rest[0] == '+') {
		return rest[1:]
	}
	return retry
}

func (r *popReader) fromTopic(t *meta.Topic, flag byte) {
	if t.ReadQueues <= 0 {
		return
	}
	from := rotate()
	for i := range t.ReadQueues {
		r.fromQueue(t, flag, (from+i)%t.ReadQueues)
	}
}

// fromQueue takes what there is in one queue.
func (r *popReader) fromQueue(t *meta.Topic, flag byte, id int32) {
	store := r.b.store.FindQueue(t.Name, id)
	if store == nil || store.Max() == 0 {
		return // nothing was ever in it
	}
	group := r.b.pops.FindGroup(t.Name, r.p.group.GroupName)
	if group == nil {
		group = r.b.pops.Group(t.Name, r.p.group.GroupName)
	}
	q := group.Queue(id)
	if !q.Lock() {
		if !r.p.order {
			r.rest += max(0, int64(store.Max())-max(0, q.PeekNext()))
		}
		return
	}
	defer q.Unlock()
	if q.Next() == pop.NoOffset {
		q.Begin(r.firstOffset(t, id, store))
	}
	if at, ok := r.b.offsets.TakeReset(t.Name, r.p.group.GroupName, id); ok && at != q.Next() {
		q.Begin(at)
	}
	next := q.Next()
	switch {
	case r.p.order && q.Blocked(r.p.attemptID, r.popMillis):
		return // its end wakes who waits
	case r.count >= r.p.maxMsgs || r.tooManyFlying(q):
		r.rest += max(0, int64(store.Max())-next)
		return
	case next == int64(store.Max()):
		return
	}
	got := r.state.gotFree()
	if !r.get(q, store, next, got) {
		r.state.giveGot(got)
	} else {
		r.take(q, t, flag, id, got)
	}
}

// firstOffset is where a group begins that has popped nothing of a queue yet.
// (As PopMessageProcessor#getInitOffset, 5.3.3.)
func (r *popReader) firstOffset(t *meta.Topic, id int32, store *consumequeue.Queue) int64 {
	if at, ok := r.b.offsets.Get([]byte(t.Name), []byte(r.p.group.GroupName), id); ok {
		return at
	}
	if r.p.initMode == remoting.PopInitMin || meta.HasPrefix(t.Name, meta.RetryPrefix) {
		return int64(store.Min())
	}
	if r.b.cfg.InitPopOffsetByCheckMsgInMem && store.Min() <= 0 && r.b.firstInMemory(t.Name, id) {
		return 0
	}
	return max(0, int64(store.Max())-1)
}

func (r *popReader) tooManyFlying(q *pop.Queue) bool {
	cfg := r.b.cfg
	return r.b.pops.Flying() >= popFlyingMax ||
		cfg.EnablePopMessageThreshold && !r.p.order && q.Flying() > cfg.PopInflightMessageThreshold
}

// get reads from next on; false when there is nothing to take. Where next lies
// outside the queue it is corrected first. q is locked, but while it is read
// from a disk others pass it by.
func (r *popReader) get(q *pop.Queue, store *consumequeue.Queue, next int64, got *engine.GetResult) bool {
	req := engine.GetRequest{Queue: store, Offset: message.QueueOffset(next), MaxMsgs: r.p.maxMsgs - r.count,
		Filter: r.p.filter, Cold: r.cold, Offsets: true}
	for range 2 {
		if r.cold {
			q.LeaveBusy()
			r.b.store.Get(&req, got)
			if !q.BackFromDisk(int64(req.Offset)) {
				return false
			}
		} else {
			r.b.store.Get(&req, got)
		}
		if got.Status != engine.TooSmall && got.Status != engine.OverflowBadly {
			break
		}
		q.Begin(int64(got.Next))
		req.Offset = got.Next
	}
	switch got.Status {
	case engine.Found:
		return true
	case engine.NoMatched, engine.Removing:
		q.Skip(int64(got.Next))
		r.rest += int64(got.Max - got.Next)
	case engine.NeedCold:
		r.needCold = true
		r.rest += int64(got.Max) - int64(req.Offset)
	}
	return false
}

// take notes the messages of got as popped and adds them to the answer.
func (r *popReader) take(q *pop.Queue, t *meta.Topic, flag byte, id int32, got *engine.GetResult) {
	next := q.Next()
	r.taken = r.taken[:0]
	for _, off := range got.Offsets {
		r.taken = append(r.taken, int64(off))
	}
	if r.p.order {
		batch := q.TakeOrdered(r.p.attemptID, r.popMillis, r.p.invisible, r.taken)
		r.counts = appendOrderCounts(r.counts, flag, id, batch)
	} else {
		q.Take(next, int64(got.Next), r.popMillis, r.p.invisible, r.taken)
	}
	r.count += got.Count
	r.rest += int64(got.Max - got.Next)
	r.start = appendInfo(r.start, flag, id)
	r.start = remoting.AppendInt(r.start, next)
	r.offsets = appendInfo(r.offsets, flag, id)
	for i, off := range r.taken {
		if i > 0 {
			r.offsets = append(r.offsets, ',')
		}
		r.offsets = remoting.AppendInt(r.offsets, off)
	}
	if flag != '0' && !r.b.cfg.PopResponseReturnActualRetryTopic {
		r.recode(flag, next, got)
		r.state.giveGot(got)
		return
	}
	r.ranges = append(r.ranges, got.Ranges...)
	r.rangeBytes += got.Bytes
	r.gots = append(r.gots, got)
}

// appendInfo begins a record of one of the infos.
func appendInfo(dst []byte, flag byte, id int32) []byte {
	if len(dst) > 0 {
		dst = append(dst, ';')
	}
	dst = append(dst, flag, ' ')
	return append(remoting.AppendInt(dst, int64(id)), ' ')
}

// appendOrderCounts writes how often the messages of a batch were delivered
// before: each that was, then for old clients the least of all.
// (As ConsumerOrderInfoManager#update, 5.3.3.)
func appendOrderCounts(dst []byte, flag byte, id int32, batch *pop.Batch) []byte {
	for i, n := range batch.Counts {
		if n == 0 {
			continue
		}
		if len(dst) > 0 {
			dst = append(dst, ';')
		}
		dst = append(dst, flag, ' ', 'q', 'o')
		dst = append(remoting.AppendInt(dst, int64(id)), '%')
		dst = append(remoting.AppendInt(dst, batch.Offsets[i]), ' ')
		dst = remoting.AppendInt(dst, int64(n))
	}
	dst = appendInfo(dst, flag, id)
	return remoting.AppendInt(dst, int64(slices.Min(batch.Counts)))
}

// recode adds messages of a retry topic to the body as the client knows them:
// with the topic it pops, and their handle ready-made, since it could not make
// it from that topic. A record that can't be read is left out: it is delivered
// again when its time is over.
func (r *popReader) recode(flag byte, start int64, got *engine.GetResult) {
	ck := remoting.PopCK{Start: start, PopMillis: r.popMillis, InvisibleMillis: r.p.invisible, Retry: flag, BrokerName: []byte(r.b.cfg.BrokerName)}
	for _, rg := range got.Ranges {
		var err error
		r.record, err = appendRange(r.record[:0], rg)
		for rest := r.record; err == nil && len(rest) > 0; {
			var n int
			if n, err = message.Decode(rest, &r.message); err == nil {
				r.body = r.appendRecoded(r.body, rest[:n], &ck)
				rest = rest[n:]
			}
		}
		if err != nil {
			r.b.log.Error("a message of a retry topic can't be read", "file", rg.File.Name(), "offset", rg.Off, "error", err)
		}
	}
}

// appendRecoded writes r.message, whose record is rec. Where the properties
// have no room left, the record goes as it is, and the client makes the handle.
func (r *popReader) appendRecoded(dst, rec []byte, ck *remoting.PopCK) []byte {
	m := &r.message
	if _, ok := message.Property(m.Properties, message.PropPopCK); !ok {
		ck.QueueID, ck.Offset = m.QueueID, int64(m.QueueOffset)
		m.Properties = message.AppendProperty(bytes.Clone(m.Properties), message.PropPopCK, string(ck.Append(nil)))
	}
	m.Topic = []byte(r.p.topic.Name)
	if out, err := message.Append(dst, m); err == nil {
		return out
	}
	return append(dst, rec...)
}

// appendRange reads a range of a file.
func appendRange(dst []byte, rg vfs.Range) ([]byte, error) {
	at := len(dst)
	dst = slices.Grow(dst, rg.Len)[:at+rg.Len]
	if _, err := rg.File.ReadAt(dst[at:], rg.Off); err != nil {
		return dst[:at], fmt.Errorf("reading %s at %d, %d bytes: %w", rg.File.Name(), rg.Off, rg.Len, err)
	}
	return dst, nil
}

// appendHead writes the answer up to the ranges.
func (r *popReader) appendHead(dst []byte) []byte {
	w := remoting.BeginReply(dst, r.p.to, remoting.Success, engine.Found.String())
	reply := remoting.PopReply{PopMillis: r.popMillis, InvisibleMillis: r.p.invisible, RestNum: r.rest,
		StartOffsetInfo: r.start, MsgOffsetInfo: r.offsets}
	if r.p.order {
		reply.ReviveQueueID, reply.OrderCountInfo = remoting.PopOrderQueue, r.counts
	}
	reply.Write(&w)
	return append(w.End(len(r.body)+r.rangeBytes), r.body...)
}

// appendNothing writes the answer of a pop that found nothing.
func (r *popReader) appendNothing(dst []byte, code remoting.ResponseCode) []byte {
	w := remoting.BeginReply(dst, r.p.to, code, engine.Empty.String())
	reply := remoting.PopReply{PopMillis: r.popMillis, InvisibleMillis: r.p.invisible, RestNum: r.rest}
	if r.p.order {
		reply.ReviveQueueID = remoting.PopOrderQueue
	}
	reply.Write(&w)
	return w.End(0)
}

// more lets the next one that waits look, when there is something left.
func (r *popReader) more() {
	if r.rest > 0 {
		r.b.popHolds.wake(r.p.topic.Name, r.p.group.GroupName, -1)
	}
}
