package broker

import (
	"math"
	"strconv"

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
