package broker

import (
	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/remoting"
)

// handleHeartbeat is HEART_BEAT (34): it answers at once, since a client whose
// heartbeat is slow skips the next and then can't pull with its new
// subscription. What it creates is saved behind the answer, and on its way to
// the NameServers before it. (As ClientManageProcessor#heartBeat, 5.3.)
func handleHeartbeat(b *Broker, r *request) (*response, error) {
	var hb remoting.HeartbeatData
	if err := remoting.ParseBody(r.cmd.Body, &hb); err != nil {
		return nil, err
	}
	if hb.ClientID == "" {
		return nil, refuse(remoting.InvalidParameter, "a heartbeat needs a clientID")
	}
	who := clientInfo{conn: r.conn, id: hb.ClientID, language: r.cmd.Language, version: r.cmd.Version, beat: b.now()}
	resend := false
	for i := range hb.ConsumerDataSet {
		data := &hb.ConsumerDataSet[i]
		if b.joinable(data) {
			resend = b.clients.registerConsumer(who, data, hb.HeartbeatFingerprint, hb.WithoutSub) || resend
		}
	}
	for _, p := range hb.ProducerDataSet {
		if meta.CheckLiveGroup(p.GroupName) == nil {
			b.clients.registerProducer(who, p.GroupName)
		}
	}
	subChange := "true"
	if hb.HeartbeatFingerprint != 0 && !resend {
		subChange = "false"
	}
	return &response{fields: []remoting.Field{
		{Key: []byte("IS_SUPPORT_HEART_BEAT_V2"), Value: []byte("true")},
		{Key: []byte("IS_SUB_CHANGE"), Value: []byte(subChange)},
	}}, nil
}

// joinable makes the group and its retry topic, and says whether consumers may
// join. A group that may not be is passed over: its pulls are refused with the
// reason, and the other groups of the client must go on.
func (b *Broker) joinable(data *remoting.ConsumerData) bool {
	group := b.groups.Find(data.GroupName)
	if group == nil {
		if meta.CheckLiveGroup(data.GroupName) != nil || !b.cfg.AutoCreateSubscriptionGroup {
			return false
		}
		group, _ = b.groups.PutAbsent(meta.NewGroup(data.GroupName))
	}
	retry := meta.RetryTopic(data.GroupName)
	if b.topics.Find(retry) == nil {
		t := meta.NewTopic(retry, max(1, group.RetryQueueNums), remoting.PermRead|remoting.PermWrite)
		if data.UnitMode {
			t.SysFlag = topicUnitSub
		}
		for _, s := range data.SubscriptionDataSet {
			if subscribed := b.topics.Find(s.Topic); subscribed != nil && subscribed.Order {
				t.Order = true
			}
		}
		b.topics.PutAbsent(t)
	}
	return true
}

// topicUnitSub marks a topic that unit-mode consumers have subscribed
// (TopicSysFlag).
const topicUnitSub = 2

// handleUnregisterClient is UNREGISTER_CLIENT (35): it takes the connection it
// comes on out of the groups it names.
func handleUnregisterClient(b *Broker, r *request) (*response, error) {
	var h remoting.UnregisterClientHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	b.clients.unregister(r.conn, h.ProducerGroup, h.ConsumerGroup)
	return &response{}, nil
}

// handleCheckClientConfig is CHECK_CLIENT_CONFIG (46): may this expression be
// used?
func handleCheckClientConfig(b *Broker, r *request) (*response, error) {
	var body remoting.CheckClientBody
	if err := remoting.ParseBody(r.cmd.Body, &body); err != nil {
		return nil, err
	}
	if err := b.allowExpression(body.SubscriptionData.ExpressionType); err != nil {
		return nil, err
	}
	if _, err := compileExpression(body.SubscriptionData.ExpressionType, body.SubscriptionData.SubString); err != nil {
		return nil, err
	}
	return &response{}, nil
}

// handleConsumerListByGroup is GET_CONSUMER_LIST_BY_GROUP (38).
func handleConsumerListByGroup(b *Broker, r *request) (*response, error) {
	var h remoting.ConsumerGroupHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	ids := b.clients.consumerIDs(h.ConsumerGroup)
	if len(ids) == 0 {
		return nil, refuse(remoting.SystemError, "no consumer for this group, %s", h.ConsumerGroup)
	}
	return &response{body: remoting.MarshalBody(remoting.ConsumerIDList{ConsumerIDList: ids})}, nil
}

// noticesWanted says whether the group's consumers want to be told of changes.
func (b *Broker) noticesWanted(group string) bool {
	if !b.cfg.NotifyConsumerIdsChangedEnable {
		return false
	}
	g := b.groups.Find(group)
	return g == nil || g.NotifyConsumerIDsChangedEnable
}
