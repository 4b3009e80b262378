package broker

import (
	"slices"
	"strconv"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

var trueText = []byte("true")

// isRetry says whether a message was transactional once and is now sent by a
// consumer, to have it again later (clients before 4.6.1).
func (b *Broker) isRetry(found *sentProps, to *target) bool {
	if to.reconsume <= 0 || found.delay == nil {
		return false
	}
	level, err := b.levels.parse(found.delay)
	return err != nil || level > 0 // a bad level is refused as such
}

// halve sends a transaction's message to where it waits for its producer's
// decision. (As TransactionalMessageBridge#parseHalfMessageInner, 5.3.)
func (b *Broker) halve(state *loopState, h *remoting.SendHeader, found *sentProps, to *target) error {
	if b.cfg.RejectTransactionMessage {
		return refuse(remoting.NoPermission, "the broker[%s] sending transaction message is forbidden: rejectTransactionMessage is true", b.cfg.BrokerIP1)
	}
	if found.delay != nil || found.timer != nil {
		// A delay begins at the commit; a senseless one is refused now.
		if _, err := b.postpone(slices.Clone(state.props), found, new(*to), state.nowMs()); err != nil {
			return err
		}
	}
	props := message.AppendPropertyBytes(state.props, message.PropTransactionID, found.uniqKey)
	props = message.AppendProperty(props, message.PropRealTopic, to.topic.Name)
	props = message.AppendProperty(props, message.PropRealQueueID, strconv.Itoa(int(to.queueID)))
	if _, ok := message.Property(props, message.PropProducerGroup); !ok {
		props = message.AppendPropertyBytes(props, message.PropProducerGroup, h.ProducerGroup)
	}
	if len(props) > message.PropertiesBytesMax-checkRoom {
		return propsTooLong(h.Topic, len(props)+checkRoom)
	}
	state.props = props
	to.topic, to.queueID = b.topics.Find(meta.HalfTopic), 0
	return nil
}

// checkRoom is the room that a half message's properties leave for the count of
// its checks.
const checkRoom = len(message.PropTransactionCheckTimes) + 12
