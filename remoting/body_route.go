package remoting

import (
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"
)

// BrokerData is the brokers of one name, by id.
type BrokerData struct {
	BrokerAddrs        map[int64]string `json:"brokerAddrs"`
	BrokerName         string           `json:"brokerName"`
	Cluster            string           `json:"cluster"`
	EnableActingMaster bool             `json:"enableActingMaster"`
	ZoneName           string           `json:"zoneName,omitempty"`
}

// QueueData is a topic's queues on the brokers of one name.
type QueueData struct {
	BrokerName     string `json:"brokerName"`
	Perm           int32  `json:"perm"`
	ReadQueueNums  int32  `json:"readQueueNums"`
	TopicSysFlag   int32  `json:"topicSysFlag"`
	WriteQueueNums int32  `json:"writeQueueNums"`
}

// RouteData is the body of GET_ROUTEINFO_BY_TOPIC's (105) answer.
type RouteData struct {
	BrokerDatas               []BrokerData               `json:"brokerDatas"`
	FilterServerTable         map[string][]string        `json:"filterServerTable"`
	OrderTopicConf            string                     `json:"orderTopicConf,omitempty"`
	QueueDatas                []QueueData                `json:"queueDatas"`
	TopicQueueMappingByBroker map[string]json.RawMessage `json:"topicQueueMappingByBroker,omitempty"`
}

// Append writes the body. strict quotes integer keys and escapes non-ASCII, for
// requesters from V4_9_4 on or with acceptStandardJsonOnly; older ones expect
// {0:"addr"}. It allocates only when dst is too small, or to sort more than
// eight brokers of one name.
func (r *RouteData) Append(dst []byte, strict bool) []byte {
	dst = append(dst, `{"brokerDatas":[`...)
	for i := range r.BrokerDatas {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.BrokerDatas[i].append(dst, strict)
	}
	dst = append(dst, `],"filterServerTable":{`...)
	if len(r.FilterServerTable) > 0 {
		dst = appendStringLists(dst, r.FilterServerTable, strict)
	}
	dst = append(dst, '}')
	if r.OrderTopicConf != "" {
		dst = appendRouteText(append(dst, `,"orderTopicConf":`...), r.OrderTopicConf, strict)
	}
	dst = append(dst, `,"queueDatas":[`...)
	for i := range r.QueueDatas {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.QueueDatas[i].append(dst, strict)
	}
	dst = append(dst, ']')
	if len(r.TopicQueueMappingByBroker) > 0 {
		dst = append(dst, `,"topicQueueMappingByBroker":`...)
		dst = append(dst, MarshalBody(r.TopicQueueMappingByBroker)...)
	}
	return append(dst, '}')
}

// ParseRouteData reads a route in either form.
func ParseRouteData(b []byte) (*RouteData, error) {
	r := &RouteData{}
	if err := ParseBody(b, r); err != nil {
		return nil, err
	}
	return r, nil
}

func (d *BrokerData) append(dst []byte, strict bool) []byte {
	dst = appendAddrs(append(dst, `{"brokerAddrs":`...), d.BrokerAddrs, strict)
	dst = appendRouteText(append(dst, `,"brokerName":`...), d.BrokerName, strict)
	dst = appendRouteText(append(dst, `,"cluster":`...), d.Cluster, strict)
	if d.EnableActingMaster {
		dst = append(dst, `,"enableActingMaster":true`...)
	} else {
		dst = append(dst, `,"enableActingMaster":false`...)
	}
	if d.ZoneName != "" {
		dst = appendRouteText(append(dst, `,"zoneName":`...), d.ZoneName, strict)
	}
	return append(dst, '}')
}

func (q *QueueData) append(dst []byte, strict bool) []byte {
	dst = appendRouteText(append(dst, `{"brokerName":`...), q.BrokerName, strict)
	dst = AppendInt(append(dst, `,"perm":`...), int64(q.Perm))
	dst = AppendInt(append(dst, `,"readQueueNums":`...), int64(q.ReadQueueNums))
	dst = AppendInt(append(dst, `,"topicSysFlag":`...), int64(q.TopicSysFlag))
	dst = AppendInt(append(dst, `,"writeQueueNums":`...), int64(q.WriteQueueNums))
	return append(dst, '}')
}

// appendAddrs writes a map with integer keys, sorted, quoted when strict.
func appendAddrs(dst []byte, addrs map[int64]string, strict bool) []byte {
	var few [8]int64
	ids := few[:0]
	for id := range addrs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	dst = append(dst, '{')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		if strict {
			dst = append(AppendInt(append(dst, '"'), id), '"')
		} else {
			dst = AppendInt(dst, id)
		}
		dst = appendRouteText(append(dst, ':'), addrs[id], strict)
	}
	return append(dst, '}')
}

func appendStringLists(dst []byte, lists map[string][]string, strict bool) []byte {
	for i, k := range slices.Sorted(maps.Keys(lists)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendRouteText(dst, k, strict), ':', '[')
		for j, v := range lists[k] {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = appendRouteText(dst, v, strict)
		}
		dst = append(dst, ']')
	}
	return dst
}

// appendRouteText appends a JSON string; ascii escapes everything else, as
// fastjson's BrowserCompatible does.
func appendRouteText(dst []byte, s string, ascii bool) []byte {
	at := len(dst)
	dst = AppendJSONString(dst, s)
	if !ascii || isASCII(dst[at:]) {
		return dst
	}
	quoted := string(dst[at:])
	dst = dst[:at]
	for _, r := range quoted {
		switch {
		case r < utf8.RuneSelf:
			dst = append(dst, byte(r))
		case r >= 0x10000:
			r -= 0x10000
			dst = appendUnit(dst, 0xD800+r>>10)
			dst = appendUnit(dst, 0xDC00+r&0x3FF)
		default:
			dst = appendUnit(dst, r)
		}
	}
	return dst
}

func appendUnit(dst []byte, u rune) []byte {
	const hex = "0123456789ABCDEF"
	return append(dst, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// ClusterInfo is the body of GET_BROKER_CLUSTER_INFO's (106) answer.
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData `json:"brokerAddrTable"`
	ClusterAddrTable map[string][]string   `json:"clusterAddrTable"`
}

// Append writes the body with raw integer keys, as Java always does here.
func (c *ClusterInfo) Append(dst []byte) []byte {
	dst = append(dst, `{"brokerAddrTable":{`...)
	for i, name := range slices.Sorted(maps.Keys(c.BrokerAddrTable)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		d := c.BrokerAddrTable[name]
		dst = d.append(append(AppendJSONString(dst, name), ':'), false)
	}
	dst = append(dst, `},"clusterAddrTable":{`...)
	dst = appendStringLists(dst, c.ClusterAddrTable, false)
	return append(dst, '}', '}')
}

// ParseClusterInfo reads the body of 106's answer.
func ParseClusterInfo(b []byte) (*ClusterInfo, error) {
	c := &ClusterInfo{}
	if err := ParseBody(b, c); err != nil {
		return nil, err
	}
	return c, nil
}

// BrokerMemberGroup is the body of GET_BROKER_MEMBER_GROUP's (901) answer, inside
// {"brokerMemberGroup":…}.
type BrokerMemberGroup struct {
	BrokerAddrs map[int64]string `json:"brokerAddrs"`
	BrokerName  string           `json:"brokerName"`
	Cluster     string           `json:"cluster"`
}

// Append writes the body with raw integer keys.
func (g *BrokerMemberGroup) Append(dst []byte) []byte {
	dst = appendAddrs(append(dst, `{"brokerMemberGroup":{"brokerAddrs":`...), g.BrokerAddrs, false)
	dst = AppendJSONString(append(dst, `,"brokerName":`...), g.BrokerName)
	dst = AppendJSONString(append(dst, `,"cluster":`...), g.Cluster)
	return append(dst, '}', '}')
}

// ParseBrokerMemberGroup reads the body of 901's answer.
func ParseBrokerMemberGroup(b []byte) (*BrokerMemberGroup, error) {
	var body struct {
		BrokerMemberGroup BrokerMemberGroup `json:"brokerMemberGroup"`
	}
	if err := ParseBody(b, &body); err != nil {
		return nil, err
	}
	return &body.BrokerMemberGroup, nil
}
