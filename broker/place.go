package broker

import (
	"bytes"
	"math"
	"strconv"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// A target is where a message really goes.
type target struct {
	topic     *meta.Topic
	queueID   int32
	tagsCode  int64
	reconsume int32
}

// redirect sends a message elsewhere than its client said: a consumer's retry
// to the DLQ after the limit, a delayed message to the topic where it waits.
func (b *Broker) redirect(state *loopState, h *remoting.SendHeader, cmd *remoting.Command, found *sentProps, to *target) error {
	isDLQ := false
	if bytes.HasPrefix(h.Topic, retryPrefix) {
		topic, queueID, dlq, err := b.retryTarget(h, cmd.Version)
		if err != nil {
			return err
		}
		if isDLQ = dlq; dlq {
			to.topic, to.queueID = topic, queueID
			props := message.DeleteProperty(state.scratch[:0], state.props, message.PropDelay)
			state.props, state.scratch = message.AppendProperty(props, message.PropDelay, "-1"), state.props
		}
	}
	if isDLQ {
		return nil
	}
	if bytes.EqualFold(found.tran, trueText) && !b.isRetry(found, to) {
		return b.halve(state, h, found, to)
	}
	var err error
	state.props, err = b.postpone(state.props, found, to, state.nowMs())
	return err
}

// postpone sends a message that is to be delivered later to where it waits, and
// gives its properties with REAL_TOPIC and REAL_QID added. A message that asks
// for no delay, or for a time that is over, stays as it is. A level wins over a
// time. The error is a refusal; props may have been changed then. Any goroutine.
// (As HookUtils#handleScheduleMessage, 5.3.)
func (b *Broker) postpone(props []byte, found *sentProps, to *target, nowMillis int64) ([]byte, error) {
	if found.delay == nil && found.timer == nil {
		return props, nil
	}
	level := int32(0)
	if found.delay != nil {
		var err error
		if level, err = b.levels.parse(found.delay); err != nil {
			return props, err
		}
	}
	if level > 0 {
		if found.timer != nil {
			for _, name := range []string{message.PropTimerDeliverMs, message.PropTimerDelayMs, message.PropTimerDelaySec} {
				props = message.DeleteProperty(props[:0], props, name)
			}
		}
		props = appendReal(props, found, to)
		to.topic, to.queueID, to.tagsCode = b.schedule.target(level, nowMillis)
		return props, nil
	}
	if found.timer == nil || found.timerOut || to.topic.Name == meta.TimerTopic {
		return props, nil
	}
	due, err := b.timerOutMs(found, nowMillis)
	if err != nil || due == 0 {
		return props, err
	}
	props = appendReal(props, found, to)
	props = message.AppendProperty(props, message.PropTimerOutMs, strconv.FormatInt(due, 10))
	if to.tagsCode = due; found.timerCancels {
		to.tagsCode = -due
	}
	to.topic, to.queueID = b.topics.Find(meta.TimerTopic), 0
	return props, nil
}

// appendReal adds the place a message is on its way to.
func appendReal(props []byte, found *sentProps, to *target) []byte {
	if found.real { // of an earlier wait
		props = message.DeleteProperty(props[:0], props, message.PropRealTopic)
		props = message.DeleteProperty(props[:0], props, message.PropRealQueueID)
	}
	props = message.AppendProperty(props, message.PropRealTopic, to.topic.Name)
	return message.AppendProperty(props, message.PropRealQueueID, strconv.Itoa(int(to.queueID)))
}

// timerOutMs is when a message that asks for a time is due; 0 when that is over,
// as a negative delay always is. No sum can wrap: a delay is compared before it
// is added. (As HookUtils#transformTimerMessage, 5.3, which wraps, and rounds to
// timerPrecisionMs.)
func (b *Broker) timerOutMs(found *sentProps, nowMillis int64) (due int64, err error) {
	if !b.cfg.TimerWheelEnable {
		return 0, refuse(remoting.SystemError, "accurate timer message is not enabled, timerWheelEnable is false")
	}
	n, err := remoting.ParseInt64(found.timer)
	if err != nil {
		return 0, refuse(remoting.MessageIllegal, "timer message illegal: got %.40q, want a number of milliseconds, or of seconds in %s", found.timer, message.PropTimerDelaySec)
	}
	var delay int64
	switch found.timerBy {
	case byDelaySec:
		delay = min(max(n, math.MinInt64/1000), math.MaxInt64/1000) * 1000
	case byDelayMs:
		delay = n
	case byDeliverMs:
		delay = max(n, nowMillis) - nowMillis
	}
	limit := b.cfg.TimerMaxDelaySec * 1000
	switch {
	case delay > limit || delay <= 0 && found.timerCancels:
		return 0, refuse(remoting.MessageIllegal, "timer message illegal, the delay time should not be bigger than the max delay %dms (timerMaxDelaySec); or if set del msg, the delay time should be bigger than the current time: got %.40q", limit, found.timer)
	case delay <= 0:
		return 0, nil
	}
	return nowMillis + delay, nil
}
