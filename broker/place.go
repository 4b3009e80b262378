package broker

import (
	"bytes"
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
// to the DLQ after the limit, a delayed message to the schedule topic. What
// isn't served yet is refused, never delivered as something else.
func (b *Broker) redirect(state *loopState, h *remoting.SendHeader, cmd *remoting.Command, found *sentProps, to *target) error {
	if found.timer != nil && found.delay == nil {
		return refuse(remoting.SystemError, "timer messages are not served by this version: topic %s; delay levels (%s) are", h.Topic, message.PropDelay)
	}
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
// gives its properties with REAL_TOPIC and REAL_QID added. A message without a
// delay stays as it is. Any goroutine. (As HookUtils#handleScheduleMessage, 5.3.)
func (b *Broker) postpone(props []byte, found *sentProps, to *target, nowMillis int64) ([]byte, error) {
	if found.delay == nil {
		return props, nil
	}
	level, err := b.levels.parse(found.delay)
	if err != nil || level == 0 {
		return props, err
	}
	props = message.AppendProperty(props, message.PropRealTopic, to.topic.Name)
	props = message.AppendProperty(props, message.PropRealQueueID, strconv.Itoa(int(to.queueID)))
	to.topic, to.queueID, to.tagsCode = b.schedule.target(level, nowMillis)
	return props, nil
}
