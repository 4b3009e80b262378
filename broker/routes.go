package broker

import (
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// A hotFunc serves a request code on its connection's loop and answers by
// itself, without allocation.
type hotFunc func(b *Broker, c *netloop.Conn, cmd *remoting.Command)

// A route says how one request code is served: by hot on the loop, or by
// handle on lane.
type route struct {
	code   remoting.RequestCode
	lane   netloop.Lane
	hot    hotFunc
	handle handlerFunc
}

// routes is every request code this broker serves. A code that is not in it is
// answered 3; what this version knowingly leaves out is in unserved, with the
// reason. A test checks that each code a client may send has its row in one of
// the two.
var routes = []route{
	{code: remoting.ReqSendMessage, hot: (*Broker).serveSend},
	{code: remoting.ReqSendMessageV2, hot: (*Broker).serveSend},
	{code: remoting.ReqSendBatchMessage, hot: (*Broker).serveSend},
	{code: remoting.ReqSendReplyMessage, hot: (*Broker).serveReply},
	{code: remoting.ReqSendReplyMessageV2, hot: (*Broker).serveReply},
	{code: remoting.ReqPullMessage, hot: (*Broker).servePull},
	{code: remoting.ReqLitePullMessage, hot: (*Broker).servePull},

	{code: remoting.ReqRecallMessage, lane: netloop.OnPool, handle: handleRecall},
	{code: remoting.ReqEndTransaction, lane: netloop.OnPool, handle: handleEndTransaction},
	{code: remoting.ReqConsumerSendMsgBack, lane: netloop.OnPool, handle: handleConsumerSendMsgBack},

	{code: remoting.ReqPopMessage, hot: (*Broker).servePop},
	{code: remoting.ReqAckMessage, hot: (*Broker).serveAck},
	{code: remoting.ReqChangeMessageInvisibleTime, hot: (*Broker).serveChangeInvisible},
	{code: remoting.ReqNotification, hot: (*Broker).serveNotification},
	{code: remoting.ReqBatchAckMessage, lane: netloop.OnLoop, handle: handleBatchAck},
	{code: remoting.ReqPeekMessage, lane: netloop.OnPool, handle: handlePeek},
	{code: remoting.ReqPollingInfo, lane: netloop.OnPool, handle: handlePollingInfo},
	{code: remoting.ReqQueryAssignment, lane: netloop.OnPool, handle: handleQueryAssignment},
	{code: remoting.ReqSetMessageRequestMode, lane: netloop.OnPool, handle: handleSetRequestMode},

	{code: remoting.ReqQueryConsumerOffset, lane: netloop.OnLoop, handle: handleQueryConsumerOffset},
	{code: remoting.ReqUpdateConsumerOffset, lane: netloop.OnLoop, handle: handleUpdateConsumerOffset},
	{code: remoting.ReqGetMaxOffset, lane: netloop.OnLoop, handle: handleMaxOffset},
	{code: remoting.ReqGetMinOffset, lane: netloop.OnLoop, handle: handleMinOffset},
	{code: remoting.ReqSearchOffsetByTimestamp, lane: netloop.OnPool, handle: handleSearchOffset},
	{code: remoting.ReqGetEarliestMsgStoreTime, lane: netloop.OnPool, handle: handleEarliestStoreTime},

	{code: remoting.ReqHeartBeat, lane: netloop.OnLoop, handle: handleHeartbeat}, // before the pulls behind it
	{code: remoting.ReqUnregisterClient, lane: netloop.OnLoop, handle: handleUnregisterClient},
	{code: remoting.ReqCheckClientConfig, lane: netloop.OnLoop, handle: handleCheckClientConfig},
	{code: remoting.ReqGetConsumerListByGroup, lane: netloop.OnLoop, handle: handleConsumerListByGroup},
	{code: remoting.ReqLockBatchMQ, lane: netloop.OnLoop, handle: handleLockBatch},
	{code: remoting.ReqUnlockBatchMQ, lane: netloop.OnLoop, handle: handleUnlockBatch},

	{code: remoting.ReqGetConsumerConnectionList, lane: netloop.OnPool, handle: handleConsumerConnections},
	{code: remoting.ReqGetProducerConnectionList, lane: netloop.OnPool, handle: handleProducerConnections},
	{code: remoting.ReqGetAllProducerInfo, lane: netloop.OnPool, handle: handleAllProducers},
	{code: remoting.ReqQueryTopicConsumeByWho, lane: netloop.OnPool, handle: handleTopicConsumers},
	{code: remoting.ReqQueryTopicsByConsumer, lane: netloop.OnPool, handle: handleConsumerTopics},
	{code: remoting.ReqQuerySubscriptionByConsumer, lane: netloop.OnPool, handle: handleConsumerSubscription},
	{code: remoting.ReqGetConsumeStats, lane: netloop.OnPool, handle: handleConsumeStats},
	{code: remoting.ReqGetBrokerConsumeStats, lane: netloop.OnPool, handle: handleBrokerConsumeStats},
	{code: remoting.ReqQueryConsumeTimeSpan, lane: netloop.OnPool, handle: handleConsumeTimeSpan},
	{code: remoting.ReqQueryCorrectionOffset, lane: netloop.OnPool, handle: handleCorrectionOffset},
	{code: remoting.ReqQueryConsumeQueue, lane: netloop.OnPool, handle: handleQueryConsumeQueue},

	{code: remoting.ReqInvokeBrokerToResetOffset, lane: netloop.OnPool, handle: handleResetOffset},
	{code: remoting.ReqCloneGroupOffset, lane: netloop.OnPool, handle: handleCloneOffset},
	{code: remoting.ReqInvokeBrokerToGetConsumerStatus, lane: netloop.OnPool, handle: handleConsumerStatus},
	{code: remoting.ReqGetConsumerRunningInfo, lane: netloop.OnPool, handle: handleRunningInfo},
	{code: remoting.ReqConsumeMessageDirectly, lane: netloop.OnPool, handle: handleConsumeDirectly},

	{code: remoting.ReqQueryMessage, lane: netloop.OnPool, handle: handleQueryMessage},
	{code: remoting.ReqViewMessageByID, lane: netloop.OnPool, handle: handleViewMessage},

	{code: remoting.ReqUpdateAndCreateTopic, lane: netloop.OnPool, handle: handleCreateTopic},
	{code: remoting.ReqUpdateAndCreateTopicList, lane: netloop.OnPool, handle: handleCreateTopicList},
	{code: remoting.ReqDeleteTopicInBroker, lane: netloop.OnPool, handle: handleDeleteTopic},
	{code: remoting.ReqGetAllTopicConfig, lane: netloop.OnPool, handle: handleAllTopicConfig},
	{code: remoting.ReqGetTopicConfig, lane: netloop.OnLoop, handle: handleTopicConfig},
	{code: remoting.ReqGetSystemTopicListFromBroker, lane: netloop.OnPool, handle: handleSystemTopics},

	{code: remoting.ReqUpdateAndCreateSubscriptionGroup, lane: netloop.OnPool, handle: handleUpdateGroup},
	{code: remoting.ReqUpdateAndCreateSubscriptionGroupList, lane: netloop.OnPool, handle: handleUpdateGroupList},
	{code: remoting.ReqGetAllSubscriptionGroupConfig, lane: netloop.OnPool, handle: handleAllGroups},
	{code: remoting.ReqGetSubscriptionGroupConfig, lane: netloop.OnPool, handle: handleGroup},
	{code: remoting.ReqDeleteSubscriptionGroup, lane: netloop.OnPool, handle: handleDeleteGroup},
	{code: remoting.ReqUpdateAndGetGroupForbidden, lane: netloop.OnPool, handle: handleGroupForbidden},
}

// unserved are codes that clients know and this version leaves out: answered 3
// with the reason, so that nobody takes the refusal for a fault.
var unserved = map[remoting.RequestCode]string{}

var routeOf = func() map[int32]*route {
	m := make(map[int32]*route, len(routes))
	for i := range routes {
		m[int32(routes[i].code)] = &routes[i]
	}
	return m
}()

// Lane is netloop's question where a request is served.
func (b *Broker) Lane(code int32) netloop.Lane {
	if r := routeOf[code]; r != nil {
		return r.lane
	}
	return netloop.OnLoop
}

// Serve is netloop's call for each request, on the lane its row names.
func (b *Broker) Serve(c *netloop.Conn, cmd *remoting.Command) {
	r := routeOf[cmd.Code]
	switch {
	case r == nil:
		reason := unserved[remoting.RequestCode(cmd.Code)]
		if reason != "" {
			reason = ": " + reason
		}
		b.answer(c, cmd, netloop.OnLoop, &response{code: remoting.RequestCodeNotSupported,
			remark: " request type " + remoting.RequestCode(cmd.Code).String() + " not supported" + reason})
	case r.hot != nil:
		r.hot(b, c, cmd)
	default:
		b.serveCold(c, cmd, r)
	}
}
