package broker

import (
	"math"
	"strconv"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
)

// A timer delivers messages with a time of their own: those of the topic
// rmq_sys_wheel_timer go to their REAL_TOPIC and REAL_QID at TIMER_OUT_MS, in the
// order of that time, those of equal times as they came.
//
// What is pending is a heap of 16 bytes an entry, filled from the topic's one
// queue, whose entries carry the due time in their tagsCode (timerTagsCode); a
// record isn't read before it is due. Apache's timerwheel and timerlog are not
// needed: the queue is the list of timers.
//
// A message that must wait longer than its segment lives rolls: before that, a
// copy is put at the end of the timer topic, with the same time. Rolling goes
// through the queue in order (lowest), since the oldest record expires first.
//
// Exactly once, also across a crash: delivered records and copies name their
// origin (carrier). Progress (meta.TimerProgress) is a place in the order of
// delivery and one in the queue, saved only when what was made up to there is
// durable. A restart loads the queue from the lowest entry that may be pending
// and passes over what is done: by the progress, or by what it finds in the log
// behind it.
//
// A recall is a message too, a cancellation: it carries TIMER_DEL_UNIQKEY, waits
// for the same second as its target, acts before it, and leaves nothing behind.
//
// One goroutine owns everything below the line. It loads behind the start of the
// broker, which serves meanwhile; delivery begins when all that was there is
// loaded.
type timer struct {
	carrier
	saved  *meta.Timer
	window time.Duration // how old a record gets before it rolls

	// ----
	queue *consumequeue.Queue

	pending timerHeap
	acted   timerItem           // the last in order that was taken from pending, or was done at the start
	loaded  message.QueueOffset // entries below are in pending, or done
	lowest  message.QueueOffset // entries below are done: what rolling has reached
	low     message.LogOffset   // records of the topic below are done; items of pending below are stale
	stale   int                 // about how many there are

	ahead map[message.LogOffset]aheadItem // done although pending[0] doesn't say so, by origin
	java  javaRolls

	cancelled     map[string]struct{} // keys of cancellations, all of one slot
	cancelledSlot int64

	rollItem timerItem // the entry at lowest, when it is pending
	rollAt   int64     // when it rolls; 0 when rollItem isn't known

	carried  []timerItem // what the batch's items are made of
	entries  [loadEntries]consumequeue.Entry
	moved    bool                // something was done since the last snapshot
	snapshot *meta.TimerProgress // becomes the saved progress when the log is durable
	upTo     message.LogOffset   // to here
	scanFrom int64               // of the saved progress
	ticker   *time.Ticker
}

// An aheadItem is an entry that was delivered or rolled before others that come
// earlier; or one that a Java broker has rolled.
type aheadItem struct {
	item timerItem
	at   message.LogOffset // of the record made of it
	seen bool              // its entry was loaded; else it may be no timer's origin
}

// loadEntries is how many queue entries are read at a time.
const loadEntries = 1024

func newTimer(b *Broker) *timer {
	window := min(time.Duration(b.cfg.TimerRollWindowSlot)*time.Second, b.cfg.FileReservedTime/2)
	return &timer{
		carrier: newCarrier(b, "timer"), saved: b.tables.Timer,
		window: window, java: javaRolls{after: b.cfg.TimerRollWindowSlot * 1000}, cancelled: map[string]struct{}{},
	}
}

// arrived is the store's word that a queue has new entries; it wakes the timer
// when the queue is its own. It doesn't block.
func (t *timer) arrived(q *consumequeue.Queue) {
	if q.Topic() == meta.TimerTopic {
		t.kick()
	}
}

// start begins to load and deliver, until close.
func (t *timer) start() {
	t.done.Go(t.run)
}

func (t *timer) run() {
	t.queue = t.store.Queue(meta.TimerTopic, 0)
	// While it has entries to come, each of its arrivals is told.
	t.queue.Waiters.Add(1)
	if !t.restore() {
		return
	}
	t.ticker = time.NewTicker(progressInterval)
	defer t.ticker.Stop()
	for {
		next, more := t.turn()
		if more {
			select {
			case <-t.ticker.C:
				t.look()
			case <-t.stop:
				t.finish(t.saveProgress, t.left)
				return
			default:
			}
			continue
		}
		var due <-chan time.Time
		if next != math.MaxInt64 {
			due = time.After(time.Duration(min(max(next-t.now().UnixMilli(), 1), time.Hour.Milliseconds())) * time.Millisecond)
		}
		select {
		case <-t.wake:
		case <-due:
		case <-t.ticker.C:
			t.look()
		case <-t.stop:
			t.finish(t.saveProgress, t.left)
			return
		}
	}
}

// look is what is done about once a second.
func (t *timer) look() {
	t.sayPassed()
	t.saveProgress()
}

// turn loads what has come, and delivers a batch of what is due, or rolls one.
// more says that there may be more to do now; otherwise next is when to look
// again, Unix milliseconds, MaxInt64 when nothing waits.
func (t *timer) turn() (next int64, more bool) {
	now := t.now().UnixMilli()
	retry := now + deliveryRetry.Milliseconds()
	if !t.load(t.queue.Max()) {
		return retry, false
	}
	if more, ok := t.deliver(now); more || !ok {
		return retry, ok
	}
	rollAt, more, ok := t.roll(now)
	if more || !ok {
		return retry, ok
	}
	next = rollAt
	if len(t.pending) > 0 {
		next = min(next, t.pending[0].at)
	}
	return next, false
}

// dropStale makes the first item of pending one that is pending.
func (t *timer) dropStale() {
	for len(t.pending) > 0 && t.isStale(t.pending[0]) {
		t.pending.pop()
	}
	if len(t.pending) == 0 {
		t.stale = 0
	}
	// Timers of a year leave an item behind at each roll; and the room of a
	// million isn't kept for ten.
	if t.stale > len(t.pending)/2+1024 || cap(t.pending) > 4*len(t.pending)+4096 {
		t.pending.keep(func(i timerItem) bool { return !t.isStale(i) })
		t.stale = 0
	}
}

func (t *timer) isStale(i timerItem) bool {
	if i.origin() < t.low {
		return true
	}
	_, ok := t.ahead[i.origin()]
	return ok
}

// isDone says whether an entry has been dealt with; it may say no for one that
// is due and has. dropStale was called, and no batch is under way.
func (t *timer) isDone(i timerItem) bool {
	if len(t.pending) == 0 || i.origin() < t.low {
		return true
	}
	if _, ok := t.ahead[i.origin()]; ok {
		return true
	}
	if i.cancels() { // of use to the end of its slot
		return i.slot() < t.pending[0].slot()
	}
	return i.before(t.pending[0])
}

// deliver delivers one batch of what is due; more says that there may be more.
// ok is false when something holds it up.
func (t *timer) deliver(now int64) (more, ok bool) {
	t.begin()
	t.carried = t.carried[:0]
	ok = true
	for ok && !t.full() {
		t.dropStale()
		if len(t.pending) == 0 || t.pending[0].at > now {
			break
		}
		item := t.pending.pop()
		if err := t.act(item, now); err != nil {
			t.pending.push(item)
			t.fail("a message can't be read", err, "offset", item.origin())
			ok = false
		} else if t.acted.before(item) {
			t.acted = item
		}
		t.moved = true
	}
	more = t.full()
	return more, t.putCarried(func(item timerItem) { t.pending.push(item) }) && ok
}

// act cancels, or adds a message to the batch, unless there is nothing to
// deliver for it. The error is the disk's.
func (t *timer) act(item timerItem, now int64) error {
	if slot := item.slot(); slot > t.cancelledSlot {
		clear(t.cancelled)
		t.cancelledSlot = slot
	}
	var m message.Message
	if ok, err := t.read(item.origin(), &m); !ok {
		return err
	}
	if item.cancels() {
		if key, _ := message.Property(m.Properties, message.PropTimerDelUniqKey); item.slot() == t.cancelledSlot {
			t.cancelled[string(key)] = struct{}{}
		}
		return nil
	}
	topic, queueID, why := t.realTarget(&m)
	if why != "" {
		t.passOver(why)
		return nil
	}
	if len(t.cancelled) > 0 {
		key, _ := message.Property(m.Properties, message.PropUniqKey)
		if _, ok := t.cancelled[cancelKey(topic, string(key))]; ok {
			return nil
		}
	}
	m.Properties = deliveredProps(m.Properties, m.StoreMillis, now)
	tags, _ := message.Property(m.Properties, message.PropTags)
	if t.add(&m, item.origin(), topic, queueID, message.TagsCode(tags)) {
		t.carried = append(t.carried, item)
	}
	return nil
}

// cancelKey is what a cancellation of a message carries. (As
// TimerMessageStore#buildDeleteKey, 5.3.)
func cancelKey(topic, uniqKey string) string { return topic + "+" + uniqKey }

// deliveredProps are the properties of a timer message as it leaves, with the
// times it came and left. (As TimerMessageStore#convert, 5.3, which takes REAL_TOPIC
// and REAL_QID off its map, but not off what it stores.)
func deliveredProps(props []byte, stored, now int64) []byte {
	with := setProperty(props, message.PropTimerEnqueueMs, strconv.FormatInt(stored, 10))
	with = setProperty(with, message.PropTimerDequeueMs, strconv.FormatInt(now, 10))
	if len(with) > message.PropertiesBytesMax {
		return props
	}
	return with
}

// putCarried puts the batch, and says whether all of it is in the log. What is
// although something before it isn't, is remembered; lost takes what isn't.
func (t *timer) putCarried(lost func(timerItem)) bool {
	return t.putBatch() || t.settle(lost)
}

// settle goes through a batch that came back with an error.
func (t *timer) settle(lost func(timerItem)) bool {
	all := true
	for i, item := range t.carried {
		switch it := &t.batch.Items[i]; {
		case it.Status.Stored():
			t.ahead[item.origin()] = aheadItem{item: item, at: it.LogOffset, seen: true}
		case it.Status == engine.Illegal:
			t.passOver(t.batch.Err.Error())
		default:
			all = false
			lost(item)
		}
	}
	if !all {
		t.fail("the log takes no messages", t.batch.Err)
	}
	return all
}
