package namesrv

import (
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// request is one request on its way through a handler. On the loop cmd is
// netloop's and valid until the handler returns, on the pool an owned copy.
type request struct {
	cmd    *remoting.Command
	peer   *peer
	remote string
}

// response is what a handler answers; the zero value is SUCCESS with nothing
// in it. Body and fields are copied before the handler's caller goes on.
type response struct {
	code   remoting.ResponseCode
	remark string
	fields []remoting.Field
	body   []byte
}

// route says how one request code is served. An error becomes an answer in one
// place, refusal.
type route struct {
	code   int32
	lane   netloop.Lane
	handle func(*Server, *request) (*response, error)
}

// routes is every request code a NameServer serves, except 105, which
// serveRoute answers. All others are answered 3. What changes the registry or
// walks through it all is on the pool, whose one goroutine keeps the order of
// registrations.
var routes = []route{
	{remoting.ReqPutKVConfig, netloop.OnPool, putKV},
	{remoting.ReqGetKVConfig, netloop.OnLoop, getKV},
	{remoting.ReqDeleteKVConfig, netloop.OnPool, deleteKV},
	{remoting.ReqRegisterBroker, netloop.OnPool, registerBroker},
	{remoting.ReqUnregisterBroker, netloop.OnPool, unregisterBroker},
	{remoting.ReqGetBrokerClusterInfo, netloop.OnPool, clusterInfo},
	{remoting.ReqWipeWritePermOfBroker, netloop.OnPool, wipeWritePerm},
	{remoting.ReqGetAllTopicListFromNameServer, netloop.OnPool, allTopics},
	{remoting.ReqDeleteTopicInNamesrv, netloop.OnPool, deleteTopic},
	{remoting.ReqRegisterTopicInNamesrv, netloop.OnPool, registerTopic},
	{remoting.ReqGetKVListByNamespace, netloop.OnLoop, kvNamespace},
	{remoting.ReqGetTopicsByCluster, netloop.OnPool, topicsByCluster},
	{remoting.ReqGetSystemTopicListFromNS, netloop.OnPool, systemTopics},
	{remoting.ReqGetUnitTopicList, netloop.OnPool, unitTopics(func(f int32) bool { return f&flagUnit != 0 })},
	{remoting.ReqGetHasUnitSubTopicList, netloop.OnPool, unitTopics(func(f int32) bool { return f&flagUnitSub != 0 })},
	{remoting.ReqGetHasUnitSubUnunitTopicList, netloop.OnPool, unitTopics(func(f int32) bool { return f&(flagUnit|flagUnitSub) == flagUnitSub })},
	{remoting.ReqUpdateNamesrvConfig, netloop.OnPool, updateConfig},
	{remoting.ReqGetNamesrvConfig, netloop.OnPool, getConfig},
	{remoting.ReqQueryDataVersion, netloop.OnLoop, queryDataVersion},
	{remoting.ReqAddWritePermOfBroker, netloop.OnPool, addWritePerm},
	{remoting.ReqGetBrokerMemberGroup, netloop.OnLoop, memberGroup},
	{remoting.ReqBrokerHeartbeat, netloop.OnLoop, brokerHeartbeat},
}

var routeOf = func() map[int32]*route {
	m := make(map[int32]*route, len(routes))
	for i := range routes {
		m[routes[i].code] = &routes[i]
	}
	return m
}()

func field(key string, value []byte) []remoting.Field {
	return []remoting.Field{{Key: []byte(key), Value: value}}
}

func refuse(code remoting.ResponseCode, remark string) error {
	return &remoting.Error{Code: code, Remark: remark}
}
