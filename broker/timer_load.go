package broker

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// timerTagsCode is the tagsCode of an entry of the timer topic: the due time in
// milliseconds, negative for a cancellation; 0 for a record without one. It
// depends on the record alone, since entries are made anew from the log. A Java
// broker takes no notice of it, and writes the hash of the tags, an int32.
func timerTagsCode(props []byte) (code int64) {
	cancels := false
	message.EachProperty(props, func(name, value []byte) bool {
		switch string(name) {
		case message.PropTimerOutMs:
			code, _ = remoting.ParseInt64(value)
		case message.PropTimerDelUniqKey:
			cancels = true
		}
		return true
	})
	if code = max(code, 0); cancels {
		return -code
	}
	return code
}

// isJavaTags says whether a tagsCode may be one that a Java broker wrote: no
// due time since January 1970 is an int32.
func isJavaTags(code int64) bool { return code == int64(int32(code)) }

// itemOf makes the item of a queue entry. timed is false when there is nothing
// to wait for: the record is gone, or isn't a timer's. The error is the disk's.
func (t *timer) itemOf(e consumequeue.Entry) (item timerItem, timed bool, err error) {
	switch {
	case e.Filler():
		return timerItem{}, false, nil
	case !isJavaTags(e.TagsCode):
		return timerDue(max(e.TagsCode, -e.TagsCode), e.LogOffset, e.TagsCode < 0), true, nil
	}
	var m message.Message
	if ok, err := t.read(e.LogOffset, &m); !ok {
		return timerItem{}, false, err
	}
	code := timerTagsCode(m.Properties)
	if code == 0 {
		t.passOver(message.PropTimerOutMs + " is missing, or no time")
		return timerItem{}, false, nil
	}
	item = timerDue(max(code, -code), e.LogOffset, code < 0)
	if old, ok := t.java.replaced(&m, item); ok {
		t.ahead[old.origin()] = aheadItem{item: old, at: math.MaxInt64, seen: true}
	}
	return item, true, nil
}

// javaRolls finds the timers that a Java broker has rolled: its copies don't
// name their origin, so the message that waits beside its copy is known by topic,
// key and time.
type javaRolls struct {
	after int64 // no Java broker rolls what is due sooner, milliseconds
	last  map[string]timerItem
}

// replaced says which item, if any, m is the copy of.
func (j *javaRolls) replaced(m *message.Message, item timerItem) (old timerItem, ok bool) {
	value, rolled := message.Property(m.Properties, message.PropTimerRollTimes)
	if !rolled && item.at-m.StoreMillis < j.after-timerSlotMs {
		return timerItem{}, false
	}
	topic, _ := message.Property(m.Properties, message.PropRealTopic)
	uniq, _ := message.Property(m.Properties, message.PropUniqKey)
	key := cancelKey(string(topic), string(uniq)) + strconv.FormatInt(item.at, 36)
	if times, err := strconv.Atoi(string(value)); err == nil && times > 0 && len(uniq) > 0 {
		old, ok = j.last[key]
	}
	if j.last == nil {
		j.last = map[string]timerItem{}
	}
	j.last[key] = item
	return old, ok && old != item
}

// load takes the entries up to an offset of the queue; false when they can't be
// read now.
func (t *timer) load(upTo message.QueueOffset) bool {
	return t.loadWith(upTo, func(message.QueueOffset, timerItem) bool { return false })
}

func (t *timer) loadWith(upTo message.QueueOffset, done func(message.QueueOffset, timerItem) bool) bool {
	for t.loaded = max(t.loaded, min(t.queue.Min(), upTo)); t.loaded < upTo; {
		if t.stopped() != nil {
			return false
		}
		n, err := t.queue.Read(t.entries[:min(loadEntries, int(upTo-t.loaded))], t.loaded)
		if n == 0 {
			t.fail("the timer queue can't be read", err, "offset", t.loaded)
			return false
		}
		for _, e := range t.entries[:n] {
			item, timed, err := t.itemOf(e)
			if err != nil {
				t.fail("a message can't be read", err, "offset", e.LogOffset)
				return false
			}
			if timed && !done(t.loaded, item) && !t.wasAhead(item) {
				t.pending.push(item)
			}
			t.loaded++
			t.moved = true
		}
	}
	return true
}

// wasAhead says whether a record of the log was made of the item already.
func (t *timer) wasAhead(item timerItem) bool {
	a, ok := t.ahead[item.origin()]
	if ok {
		a.item, a.seen = item, true
		t.ahead[item.origin()] = a
	}
	return ok
}

// restore finds out what is pending. False: the timer was stopped first.
func (t *timer) restore() bool {
	p := t.takeOver(t.saved.Progress())
	t.acted = timerItem{at: p.DoneAt, off: message.LogOffset(p.DoneOffset)}
	t.lowest = min(max(message.QueueOffset(p.Lowest), t.queue.Min()), t.queue.Max())
	t.loaded = t.lowest
	t.ahead = map[message.LogOffset]aheadItem{}
	upTo := t.queue.Max()
	began := t.now()
	isDone := func(offset message.QueueOffset, item timerItem) bool {
		return offset < message.QueueOffset(p.Loaded) && t.isCovered(item)
	}
	if !t.insist(func() bool { return t.scanAhead(p.ScanFrom) }) || !t.insist(func() bool { return t.loadWith(upTo, isDone) }) {
		return false
	}
	for origin, a := range t.ahead {
		if !a.seen {
			delete(t.ahead, origin) // not a timer's
		}
	}
	if n := len(t.pending); n > 0 {
		t.log.Info("pending timers loaded", "timers", n, "entries", upTo-t.lowest, "took", t.now().Sub(began))
	}
	t.moved = true
	t.saveProgress()
	return true
}

// insist does what the disk may fail, until it succeeds. False: the timer was
// stopped.
func (t *timer) insist(do func() bool) bool {
	for !do() {
		select {
		case <-time.After(deliveryRetry):
		case <-t.stop:
			return false
		}
	}
	return true
}

var errTimerStopped = errors.New("the timer was stopped")

func (t *timer) stopped() error {
	select {
	case <-t.stop:
		return errTimerStopped
	default:
		return nil
	}
}

// scanAhead looks through the log for what was made after the progress was
// saved; false when it can't be read now.
func (t *timer) scanAhead(from int64) bool {
	clear(t.ahead)
	err := t.eachDelivery(message.LogOffset(from), func(origin, at message.LogOffset) error {
		t.ahead[origin] = aheadItem{at: at}
		return t.stopped()
	})
	if err != nil && !errors.Is(err, errTimerStopped) {
		t.fail("the log can't be scanned for deliveries", err, "from", from)
	}
	return err == nil
}

// takeOver gives the progress to start from where this broker left none: the
// one of a Java broker, whose deliveries name no origin, so that its time is all
// that is known; else the log's beginning, since every delivery of ours is found
// there. From then on the log is scanned from here, which must be known to the
// next start before the first delivery is made.
func (t *timer) takeOver(p meta.TimerProgress) meta.TimerProgress {
	if p.ScanFrom >= 0 {
		return p
	}
	marks := t.store.Marks()
	if p.DoneAt > 0 || p.Loaded > 0 {
		t.log.Info("timers are taken over from a Java broker", "lastReadTimeMs", p.DoneAt, "lastTimerQueueOffset", p.Loaded)
		p.ScanFrom = int64(marks.Durable)
	} else if t.queue.Max() > 0 {
		p.ScanFrom = int64(marks.Min)
	} else {
		p.ScanFrom = int64(marks.Durable)
	}
	t.saved.SetProgress(p)
	if err := t.fold(); err != nil {
		t.log.Error("timer progress not saved", "error", err)
	}
	return p
}

// saveProgress takes a snapshot of the progress, and hands the one before to
// the tables once what it stands for is durable.
func (t *timer) saveProgress() {
	marks := t.store.Marks()
	if t.snapshot == nil {
		if !t.moved && int64(marks.Written)-t.scanFrom < rescanBytesMax {
			return
		}
		if !t.inOrder() {
			return
		}
		t.upTo = marks.Written
		t.snapshot = &meta.TimerProgress{
			DoneAt: t.acted.at, DoneOffset: int64(t.acted.off), Loaded: int64(t.loaded), Lowest: int64(t.lowest),
			ScanFrom: int64(t.pruneAhead(marks.Written)),
		}
		t.moved = false
	}
	if marks.Durable >= t.upTo {
		t.saved.SetProgress(*t.snapshot)
		t.scanFrom, t.snapshot = t.snapshot.ScanFrom, nil
	}
}

// inOrder says whether acted says what is done. It doesn't while something is
// pending that came late, behind others of later times that are done; that is
// the next to be delivered.
func (t *timer) inOrder() bool {
	t.dropStale()
	return len(t.pending) == 0 || t.acted.before(t.pending[0])
}

// isCovered says whether acted says of an item that it is done; a cancellation
// is of use to the end of its slot.
func (t *timer) isCovered(i timerItem) bool {
	if i.cancels() {
		return i.slot() < t.acted.slot()
	}
	return !t.acted.before(i)
}

// pruneAhead forgets what acted says is done, and gives the log offset from
// which on what was made of the rest lies.
func (t *timer) pruneAhead(written message.LogOffset) message.LogOffset {
	for origin, a := range t.ahead {
		if origin < t.low || t.isCovered(a.item) {
			delete(t.ahead, origin)
			continue
		}
		written = min(written, a.at)
	}
	return written
}

// finish saves the last progress.
func (t *timer) finish() {
	timeout := time.After(closeWait)
	for t.saveProgress(); t.snapshot != nil || t.moved && t.inOrder(); t.saveProgress() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-timeout:
			t.log.Warn("the last delayed messages are not durable yet; the next start looks for them in the log")
			return
		}
	}
}
