package broker

import (
	"errors"
	"math"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// A scheduler delivers delayed messages: those in SCHEDULE_TOPIC_XXXX, whose
// queue level-1 holds the messages of one delay level in the order they are
// due, go to their REAL_TOPIC and REAL_QID when their time has come.
//
// Its one goroutine owns everything below the line. It sleeps until the next
// message is due or a queue with none gets one (arrived).
//
// Exactly once, also across a crash: each delivered record carries in its
// preparedTransactionOffset the log offset of the record it was made of, plus
// one (0 means none; no record begins one byte behind another, so it can't be
// taken for a half message's offset). Progress is saved as the levels' next
// queue offsets together with the log offset from which on deliveries behind
// them lie, and only when the deliveries before them are durable. A restart
// scans the log from there and passes over what has been delivered already.
type scheduler struct {
	carrier
	delay  *meta.Delay
	levels *delayLevels

	// ----
	next      []message.QueueOffset                   // per level index: the first entry not delivered; it never gets shorter
	delivered map[message.LogOffset]message.LogOffset // entries at or behind next that are: origin to delivery
	moved     bool                                    // next differs from the last snapshot
	snapshot  *meta.DelayProgress                     // becomes the saved progress when the log is durable
	upTo      message.LogOffset                       // to here
	saved     int64                                   // ScanFrom of the saved progress
	progress  *time.Ticker
	entries   [deliveryCountMax]consumequeue.Entry // of deliver
	offered   []offer                              // what the batch's items are made of
}

// An offer is one entry of a batch under way.
type offer struct {
	origin message.LogOffset
	offset message.QueueOffset
}

func newScheduler(b *Broker) *scheduler {
	return &scheduler{carrier: newCarrier(b, "schedule"), delay: b.tables.Delay, levels: &b.levels}
}

// target says where a message of a level waits: topic, queueId, and the time it
// is due, which is its entry's tagsCode. Any goroutine.
func (s *scheduler) target(level int32, nowMillis int64) (topic *meta.Topic, queueID int32, due int64) {
	return s.topics.Find(meta.ScheduleTopic), level - 1, s.levels.due(level, nowMillis)
}

// entryTagsCode is the tagsCode of a record's queue entry: the due time of a
// delayed message, by a level or by its own, else the hash of its tags. The engine asks for it when it
// makes entries anew from the log. (As CommitLog#checkMessageAndReturnSize,
// 5.3.)
func (b *Broker) entryTagsCode(rec []byte) int64 {
	props := message.PropertiesOf(rec)
	if string(message.TopicOf(rec)) == meta.ScheduleTopic {
		if value, ok := message.Property(props, message.PropDelay); ok {
			if level, err := remoting.ParseInt32(value); err == nil && level > 0 {
				return b.levels.due(level, message.StoreMillisOf(rec))
			}
		}
	}
	if string(message.TopicOf(rec)) == meta.TimerTopic {
		if code := timerTagsCode(props); code != 0 {
			return code
		}
	}
	tags, _ := message.Property(props, message.PropTags)
	return message.TagsCode(tags)
}

// arrived is the store's word that a queue has new entries; it wakes the
// scheduler when the queue is one of its own. It doesn't block.
func (s *scheduler) arrived(q *consumequeue.Queue) {
	if q.Topic() == meta.ScheduleTopic {
		s.kick()
	}
}

// start begins to deliver, until close.
func (s *scheduler) start() {
	s.done.Go(s.run)
}

func (s *scheduler) run() {
	if !s.restore() {
		return
	}
	s.progress = time.NewTicker(progressInterval)
	defer s.progress.Stop()
	for {
		due := s.deliverDue()
		var timer <-chan time.Time
		if due != math.MaxInt64 {
			timer = time.After(time.Duration(max(due-s.now().UnixMilli(), 1)) * time.Millisecond)
		}
		select {
		case <-s.wake:
		case <-timer:
		case <-s.progress.C:
			s.sayPassed()
			s.saveProgress()
		case <-s.stop:
			s.finish(s.saveProgress, func() bool { return s.snapshot != nil || s.moved })
			return
		}
	}
}

// restore finds out what has been delivered. False: the scheduler was stopped
// before the log could be read.
func (s *scheduler) restore() bool {
	p := s.delay.Progress()
	s.addLevels(p)
	s.delivered = map[message.LogOffset]message.LogOffset{}
	if p.ScanFrom >= 0 && !s.insist(func() bool { return s.findDelivered(message.LogOffset(p.ScanFrom)) }) {
		return false
	}
	s.moved = true
	s.saveProgress()
	if p.ScanFrom < 0 {
		// From here on deliveries bear their origin; the place where they
		// begin must be known to the next start before the first of them is.
		if err := s.fold(); err != nil {
			s.log.Error("delay progress not saved", "error", err)
		}
	}
	return true
}

// addLevels makes room for levels that are new, or are in the progress although
// messageDelayLevel no longer has them: messages may still wait there.
func (s *scheduler) addLevels(p meta.DelayProgress) {
	want := s.levels.count()
	for level := range p.Next {
		want = max(want, int(level))
	}
	for i := len(s.next); i < want; i++ {
		q := s.queue(i)
		// While it has entries to come, each of its arrivals is told.
		q.Waiters.Add(1)
		at := message.QueueOffset(p.Next[int32(i+1)])
		s.next = append(s.next, min(max(at, q.Min()), q.Max()))
		if s.next[i] != at {
			s.log.Warn("progress of a delay level is outside its queue, corrected", "level", i+1, "got", at, "min", q.Min(), "max", q.Max())
		}
	}
}

func (s *scheduler) queue(i int) *consumequeue.Queue {
	return s.store.Queue(meta.ScheduleTopic, int32(i))
}

// findDelivered scans the log for deliveries of entries that are still to come;
// false when it can't be read now.
func (s *scheduler) findDelivered(from message.LogOffset) bool {
	err := s.scanDelivered(from)
	if err != nil {
		s.log.Error("log can't be scanned for deliveries, trying again", "from", int64(from), "error", err)
	}
	return err == nil
}

func (s *scheduler) scanDelivered(from message.LogOffset) error {
	clear(s.delivered)
	err := s.eachDelivery(from, func(origin, at message.LogOffset) error {
		s.delivered[origin] = at
		return nil
	})
	if err != nil {
		return err
	}
	// A committed transaction names its half message in the same field.
	for origin := range s.delivered {
		rec, err := s.store.ByOffset(origin)
		if err != nil && !errors.Is(err, engine.ErrNoRecord) {
			return err
		}
		if err != nil || !s.toCome(rec) {
			delete(s.delivered, origin)
		}
	}
	return nil
}

// toCome says whether rec is a delayed message at or behind its level's next.
func (s *scheduler) toCome(rec []byte) bool {
	id := message.QueueIDOf(rec)
	return string(message.TopicOf(rec)) == meta.ScheduleTopic && id >= 0 && int(id) < len(s.next) &&
		message.QueueOffsetOf(rec) >= s.next[id]
}

// deliverDue delivers what is due, a batch of each level in turn, and gives the
// time, Unix milliseconds, of what comes next; MaxInt64 when nothing waits.
func (s *scheduler) deliverDue() (due int64) {
	for again := true; again; {
		again, due = false, math.MaxInt64
		s.addLevels(meta.DelayProgress{})
		for i := range s.next {
			select {
			case <-s.stop:
				return due
			case <-s.progress.C:
				s.sayPassed()
				s.saveProgress()
			default:
			}
			more, at := s.deliver(i)
			again, due = again || more, min(due, at)
		}
	}
	return due
}

// deliver delivers one batch of a level. more says that there may be more of it
// that is due; otherwise due is when to look again.
func (s *scheduler) deliver(i int) (more bool, due int64) {
	now := s.now().UnixMilli()
	q := s.queue(i)
	s.next[i] = max(s.next[i], q.Min()) // retention may have passed us
	n, err := q.Read(s.entries[:], s.next[i])
	if n == 0 && err != nil {
		s.failLevel("the delay queue can't be read", i, s.next[i], err)
		return false, now + deliveryRetry.Milliseconds()
	}
	s.begin()
	s.offered = s.offered[:0]
	next, due, more := s.next[i], int64(math.MaxInt64), n == len(s.entries)
	for _, e := range s.entries[:n] {
		if s.full() {
			more = true
			break
		}
		at, err := s.dueOf(e, i, now)
		if at > now && err == nil {
			due, more = at, false
			break
		}
		if err == nil {
			err = s.offer(e, next)
		}
		if err != nil {
			s.failLevel("a message can't be read", i, next, err)
			due, more = now+deliveryRetry.Milliseconds(), false
			break
		}
		next++
	}
	if !s.putBatch() {
		if first := s.firstUnstored(next); first != next {
			s.failLevel("the log takes no messages", i, first, s.batch.Err)
			next, more, due = first, false, now+deliveryRetry.Milliseconds()
		}
	}
	for k := range next - s.next[i] {
		delete(s.delivered, s.entries[k].LogOffset)
	}
	s.moved = s.moved || next != s.next[i]
	s.next[i] = next
	return more, due
}

// dueOf is when an entry of level index i is due. A time further ahead than the
// level's delay means that the level was longer when the message came, and it
// keeps its time; or that the clock has gone back since then, and it is due.
// (Apache can't tell and delivers, ScheduleMessageService#correctDeliverTimestamp,
// 5.3.) The error is the disk's.
func (s *scheduler) dueOf(e consumequeue.Entry, i int, now int64) (due int64, err error) {
	if e.Filler() {
		return 0, nil
	}
	if delay, ok := s.levels.delay(i); e.TagsCode <= now || ok && e.TagsCode <= now+delay.Milliseconds() {
		return e.TagsCode, nil
	}
	var m message.Message
	if ok, err := s.read(e.LogOffset, &m); !ok || m.StoreMillis > now {
		return 0, err
	}
	return e.TagsCode, nil
}

// offer adds an entry's message to the batch, unless there is nothing to
// deliver for it. The error is the disk's.
func (s *scheduler) offer(e consumequeue.Entry, offset message.QueueOffset) error {
	if _, ok := s.delivered[e.LogOffset]; ok || e.Filler() {
		return nil
	}
	var m message.Message
	if ok, err := s.read(e.LogOffset, &m); !ok {
		return err
	}
	topic, queueID, why := s.realTarget(&m)
	if why != "" {
		s.passOver(why)
		return nil
	}
	tags, _ := message.Property(m.Properties, message.PropTags)
	if s.add(&m, e.LogOffset, topic, queueID, message.TagsCode(tags)) {
		s.offered = append(s.offered, offer{origin: e.LogOffset, offset: offset})
	}
	return nil
}

// firstUnstored is the offset to go on at after a batch that is only partly in
// the log; what was stored behind it is remembered as delivered. A message that
// can never be stored is passed over.
func (s *scheduler) firstUnstored(next message.QueueOffset) message.QueueOffset {
	first := next
	for i := len(s.offered) - 1; i >= 0; i-- {
		switch item := &s.batch.Items[i]; {
		case item.Status == engine.Illegal:
			s.passOver(s.batch.Err.Error())
		case !item.Status.Stored():
			first = s.offered[i].offset
		}
	}
	for i, o := range s.offered {
		if o.offset >= first && s.batch.Items[i].Status.Stored() {
			s.delivered[o.origin] = s.batch.Items[i].LogOffset
		}
	}
	return first
}

func (s *scheduler) failLevel(what string, i int, offset message.QueueOffset, err error) {
	s.fail(what, err, "level", i+1, "offset", offset)
}

// saveProgress takes a snapshot of the progress, and hands the one before to
// the tables once its deliveries are durable.
func (s *scheduler) saveProgress() {
	marks := s.store.Marks()
	if s.snapshot == nil {
		if !s.moved && int64(marks.Written)-s.saved < rescanBytesMax {
			return
		}
		s.upTo = marks.Written
		s.snapshot = &meta.DelayProgress{Next: map[int32]int64{}, ScanFrom: int64(s.scanFrom(marks.Written))}
		for i, at := range s.next {
			if at > 0 {
				s.snapshot.Next[int32(i+1)] = int64(at)
			}
		}
		s.moved = false
	}
	if marks.Durable >= s.upTo {
		s.delay.SetProgress(*s.snapshot)
		s.saved, s.snapshot = s.snapshot.ScanFrom, nil
	}
}

// scanFrom is where deliveries of entries to come begin: at the end of the log,
// but for those made already.
func (s *scheduler) scanFrom(written message.LogOffset) message.LogOffset {
	for _, at := range s.delivered {
		written = min(written, at)
	}
	return written
}
