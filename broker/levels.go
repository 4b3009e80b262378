package broker

import (
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// delayLevels are the delays of messageDelayLevel; any goroutine reads them,
// setDelayLevels replaces them. The zero value has none.
type delayLevels struct {
	p atomic.Pointer[[]time.Duration]
}

func (l *delayLevels) set(levels []time.Duration) { l.p.Store(&levels) }

// count is the highest level.
func (l *delayLevels) count() int { return len(l.all()) }

func (l *delayLevels) all() []time.Duration {
	if p := l.p.Load(); p != nil {
		return *p
	}
	return nil
}

// parse reads a message's DELAY: the level, at most the highest there is, 0 for
// none. (As Message#getDelayTimeLevel and HookUtils#transformDelayLevelMessage,
// 5.3.)
func (l *delayLevels) parse(delay []byte) (int32, error) {
	highest := int32(l.count())
	level, err := remoting.ParseInt32(delay)
	if err != nil {
		return 0, refuse(remoting.MessageIllegal, "property %s: got %.40q, want a delay level of 1 to %d", message.PropDelay, delay, highest)
	}
	return min(max(level, 0), highest), nil
}

// due is when a message of a level that is stored at millis has waited long
// enough; level counts from 1, one above the highest counts as the highest.
func (l *delayLevels) due(level int32, millis int64) int64 {
	all := l.all()
	return millis + all[min(int(level), len(all))-1].Milliseconds()
}

// delay is the delay of level i+1; false when there is no such level any more.
func (l *delayLevels) delay(i int) (time.Duration, bool) {
	if all := l.all(); i < len(all) {
		return all[i], true
	}
	return 0, false
}

// setDelayLevels takes another messageDelayLevel while the broker runs: sends
// from now on wait by it. What waits already keeps its time, also in levels
// that are no longer there; a level's messages stay in order, so that behind
// those of a level that was longer the new ones wait longer too. The error says what of the text is wrong; nothing is
// changed then. Any goroutine.
func (b *Broker) setDelayLevels(text string) error {
	levels, err := parseDelayLevels(text)
	if err != nil {
		return err
	}
	// The queues first: a send may take the highest level at once.
	topic := *b.topics.Find(meta.ScheduleTopic)
	n := int32(len(levels))
	topic.ReadQueues, topic.WriteQueues = max(topic.ReadQueues, n), max(topic.WriteQueues, n)
	b.topics.Put(&topic)
	b.levels.set(levels)
	b.schedule.kick()
	return nil
}
