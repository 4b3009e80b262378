package namesrv

import (
	"fmt"

	"github.com/ringmq/ringmq/remoting"
)

// registerBroker answers 103.
func registerBroker(s *Server, q *request) (*response, error) {
	g := registration{}
	if err := g.Decode(q.cmd); err != nil {
		return nil, err
	}
	for _, f := range []struct{ name, value string }{{"brokerName", g.BrokerName}, {"brokerAddr", g.BrokerAddr}, {"clusterName", g.ClusterName}} {
		if f.value == "" {
			return nil, refuse(remoting.SystemError, "header field "+f.name+": empty, want a name")
		}
	}
	if g.BodyCRC32 != 0 && g.BodyCRC32 != remoting.BodyCRC32(q.cmd.Body) {
		s.log.Warn("registration refused: crc32 not match", "remote", q.remote, "brokerName", g.BrokerName,
			"got", remoting.BodyCRC32(q.cmd.Body), "want", g.BodyCRC32)
		return nil, refuse(remoting.SystemError, "crc32 not match")
	}
	_, g.knowsActingMaster = q.cmd.Get("enableActingMaster")
	body, err := remoting.ParseRegisterBrokerBody(q.cmd.Body, g.Compressed, q.cmd.Version)
	if err != nil {
		return nil, err
	}
	g.body = body
	m, err := s.reg.register(&g, q.peer, s.now().UnixMilli())
	if err != nil {
		return nil, err
	}
	resp := &response{}
	if m.addr != "" {
		resp.fields = append(field("haServerAddr", []byte(m.haAddr)), field("masterAddr", []byte(m.addr))...)
	}
	if s.cfg.Load().ReturnOrderTopicConfigToBroker {
		if table, ok := s.kv.namespace(orderNamespace); ok {
			resp.body = remoting.MarshalBody(remoting.KVTable{Table: table})
		}
	}
	return resp, nil
}

// unregisterBroker answers 104.
func unregisterBroker(s *Server, q *request) (*response, error) {
	var h remoting.UnregisterBrokerHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	s.reg.unregister(&h)
	return &response{}, nil
}

// queryDataVersion answers 322: has the broker anything to register?
func queryDataVersion(s *Server, q *request) (*response, error) {
	var h remoting.QueryDataVersionHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	var theirs remoting.DataVersion
	if err := remoting.ParseBody(q.cmd.Body, &theirs); err != nil {
		return nil, err
	}
	ours, known := s.reg.heartbeat(h.ClusterName, h.BrokerAddr, s.now().UnixMilli())
	if !known {
		return &response{fields: field("changed", []byte("true"))}, nil
	}
	changed := "false"
	if ours != theirs {
		changed = "true"
	}
	return &response{fields: field("changed", []byte(changed)), body: remoting.MarshalBody(ours)}, nil
}

// brokerHeartbeat answers 904.
func brokerHeartbeat(s *Server, q *request) (*response, error) {
	var h remoting.BrokerHeartbeatHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	s.reg.heartbeat(h.ClusterName, h.BrokerAddr, s.now().UnixMilli())
	return &response{}, nil
}

// clusterInfo answers 106.
func clusterInfo(s *Server, _ *request) (*response, error) {
	return &response{body: s.reg.clusterInfo()}, nil
}

// memberGroup answers 901.
func memberGroup(s *Server, q *request) (*response, error) {
	var h remoting.BrokerMemberGroupHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	return &response{body: s.reg.members(h.ClusterName, h.BrokerName)}, nil
}

// wipeWritePerm answers 205.
func wipeWritePerm(s *Server, q *request) (*response, error) {
	var h remoting.BrokerNameHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	n := s.reg.wipePerm(h.BrokerName)
	s.log.Info("write permission wiped from routes", "brokerName", h.BrokerName, "topics", n, "remote", q.remote)
	return &response{fields: field("wipeTopicCount", remoting.AppendInt(nil, int64(n)))}, nil
}

// addWritePerm answers 327.
func addWritePerm(s *Server, q *request) (*response, error) {
	var h remoting.BrokerNameHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	n := s.reg.addPerm(h.BrokerName)
	s.log.Info("write permission added to routes", "brokerName", h.BrokerName, "topics", n, "remote", q.remote)
	return &response{fields: field("addTopicCount", remoting.AppendInt(nil, int64(n)))}, nil
}

// registerTopic answers 217.
func registerTopic(s *Server, q *request) (*response, error) {
	name, ok := q.cmd.Get("topic")
	if !ok || len(name) == 0 {
		return nil, &remoting.FieldError{Field: "topic", Want: "a string"}
	}
	if len(q.cmd.Body) == 0 {
		return &response{}, nil
	}
	data, err := remoting.ParseRouteData(q.cmd.Body)
	if err != nil {
		return nil, err
	}
	s.reg.addTopic(string(name), data.QueueDatas)
	return &response{}, nil
}

// deleteTopic answers 216.
func deleteTopic(s *Server, q *request) (*response, error) {
	var h remoting.DeleteTopicInNamesrvHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	s.reg.deleteTopic(h.Topic, h.ClusterName)
	s.log.Info("topic deleted from routes", "topic", h.Topic, "clusterName", h.ClusterName, "remote", q.remote)
	return &response{}, nil
}

func topicList(names []string) *response {
	return &response{body: remoting.MarshalBody(remoting.TopicList{TopicList: names})}
}

var errDisabled = refuse(remoting.SystemError, "disable")

// allTopics answers 206.
func allTopics(s *Server, _ *request) (*response, error) {
	if !s.cfg.Load().EnableAllTopicList {
		return nil, errDisabled
	}
	return topicList(s.reg.topicNames(func(*topic) bool { return true })), nil
}

// topicsByCluster answers 224.
func topicsByCluster(s *Server, q *request) (*response, error) {
	if !s.cfg.Load().EnableTopicList {
		return nil, errDisabled
	}
	var h remoting.ClusterHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	return topicList(s.reg.topicsOfCluster(h.Cluster)), nil
}

// unitTopics answers 311, 312 and 313.
func unitTopics(pick func(sysFlag int32) bool) func(*Server, *request) (*response, error) {
	return func(s *Server, _ *request) (*response, error) {
		if !s.cfg.Load().EnableTopicList {
			return nil, errDisabled
		}
		return topicList(s.reg.topicNames(func(t *topic) bool { return pick(t.sysFlag()) })), nil
	}
}

// systemTopics answers 304.
func systemTopics(s *Server, _ *request) (*response, error) {
	return &response{body: remoting.MarshalBody(s.reg.systemTopics())}, nil
}

// putKV answers 100.
func putKV(s *Server, q *request) (*response, error) {
	namespace, ok1 := q.cmd.Get("namespace")
	key, ok2 := q.cmd.Get("key")
	if !ok1 || !ok2 {
		return nil, refuse(remoting.SystemError, "namespace or key is null")
	}
	value, ok := q.cmd.Get("value")
	if !ok {
		return nil, &remoting.FieldError{Field: "value", Want: "a string"}
	}
	if err := s.kv.put(string(namespace), string(key), string(value)); err != nil {
		return nil, err
	}
	s.kvChanged(string(namespace), string(key), "put", q)
	return &response{}, nil
}

// deleteKV answers 102.
func deleteKV(s *Server, q *request) (*response, error) {
	var h remoting.KVHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	if err := s.kv.remove(h.Namespace, h.Key); err != nil {
		return nil, err
	}
	s.kvChanged(h.Namespace, h.Key, "delete", q)
	return &response{}, nil
}

func (s *Server) kvChanged(namespace, key, what string, q *request) {
	s.log.Info("key/value configuration changed", "change", what, "namespace", namespace, "key", key, "remote", q.remote)
	if namespace == orderNamespace {
		s.reg.forgetAnswer(key)
	}
}

// getKV answers 101.
func getKV(s *Server, q *request) (*response, error) {
	var h remoting.KVHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	v, ok := s.kv.get(h.Namespace, h.Key)
	if !ok {
		return nil, refuse(remoting.QueryNotFound, fmt.Sprintf("No config item, Namespace: %s Key: %s", h.Namespace, h.Key))
	}
	return &response{fields: field("value", []byte(v))}, nil
}

// kvNamespace answers 219.
func kvNamespace(s *Server, q *request) (*response, error) {
	var h remoting.NamespaceHeader
	if err := h.Decode(q.cmd); err != nil {
		return nil, err
	}
	table, ok := s.kv.namespace(h.Namespace)
	if !ok {
		return nil, refuse(remoting.QueryNotFound, "No config item, Namespace: "+h.Namespace)
	}
	return &response{body: remoting.MarshalBody(remoting.KVTable{Table: table})}, nil
}
