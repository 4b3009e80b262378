package broker

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/message"
)

// rollSlack is how near its time a message is delivered rather than rolled.
const rollSlack = time.Minute

// roll puts copies of what would expire before it is due, a batch in the order
// of the queue. at is when the next has to roll.
func (t *timer) roll(now int64) (at int64, more, ok bool) {
	t.dropStale()
	if t.rollAt > now && !t.isDone(t.rollItem) {
		return t.rollAt, false, true
	}
	t.begin()
	t.carried = t.carried[:0]
	first, at := t.lowest, int64(math.MaxInt64)
	t.lowest = max(t.lowest, t.queue.Min()) // retention may have passed us
	n, err := t.queue.Read(t.entries[:min(loadEntries, int(t.loaded-min(t.lowest, t.loaded)))], t.lowest)
	if n == 0 && err != nil && !errors.Is(err, consumequeue.ErrBelowMin) {
		t.fail("the timer queue can't be read", err, "offset", t.lowest)
		return 0, false, false
	}
	t.rollAt = 0
	next, low := t.lowest, t.low
	for _, e := range t.entries[:n] {
		if t.full() {
			break
		}
		item, timed, err := t.itemOf(e)
		var wait int64
		if err == nil && timed && !t.isDone(item) {
			wait, err = t.rollOne(item, now)
		}
		if err != nil {
			t.fail("a message can't be read", err, "offset", e.LogOffset)
			return 0, false, false
		}
		if wait > 0 {
			t.rollItem, t.rollAt, at = item, wait, wait
			break
		}
		next, low = next+1, max(low, e.LogOffset+1)
	}
	more = at == math.MaxInt64 && next < t.loaded
	if !t.putCarried(func(timerItem) {}) { // they are pending still
		return 0, false, false
	}
	t.lowest, t.low = next, low
	t.stale += len(t.carried)
	t.moved = t.moved || next != first
	return at, more, true
}

// rollOne adds a copy of a pending message to the batch, or says until when it
// may wait, which is never 0. The error is the disk's.
func (t *timer) rollOne(item timerItem, now int64) (wait int64, err error) {
	if item.at <= now+rollSlack.Milliseconds() {
		return now + progressInterval.Milliseconds(), nil // it will be delivered
	}
	var m message.Message
	if ok, err := t.read(item.origin(), &m); !ok {
		return 0, err
	}
	if at := m.StoreMillis + t.window.Milliseconds(); at > now {
		return at, nil
	}
	m.Properties = rolledProps(m.Properties, now)
	if t.add(&m, item.origin(), meta.TimerTopic, 0, timerTagsCode(m.Properties)) {
		t.carried = append(t.carried, item)
	}
	return 0, nil
}

// rolledProps counts one roll more. (As TimerMessageStore#convert, 5.3.)
func rolledProps(props []byte, now int64) []byte {
	value, _ := message.Property(props, message.PropTimerRollTimes)
	times, _ := strconv.ParseInt(string(value), 10, 32)
	with := setProperty(props, message.PropTimerRollTimes, strconv.FormatInt(times+1, 10))
	with = setProperty(with, message.PropTimerDequeueMs, strconv.FormatInt(now, 10))
	if len(with) > message.PropertiesBytesMax {
		return props
	}
	return with
}
