package remoting

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// exchange is one recorded request and its answer; see testdata/frames/README.md.
type exchange struct {
	Server, From      string
	Code              int32
	Request, Response []byte
}

// recorded reads every exchange between Apache's clients and Apache's servers.
func recorded(t testing.TB) map[string][]exchange {
	t.Helper()
	files, err := filepath.Glob("testdata/frames/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded frames: %v", err)
	}
	all := map[string][]exchange{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var es []exchange
		if err := json.Unmarshal(b, &es); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all[filepath.Base(f)] = es
	}
	return all
}

// TestRecordedFrames: what Apache writes is measured and decoded, the hot way
// where it is JSON, and both decoders agree.
func TestRecordedFrames(t *testing.T) {
	for name, es := range recorded(t) {
		for i, e := range es {
			for _, frame := range [][]byte{e.Request, e.Response} {
				if len(frame) == 0 {
					continue
				}
				if total, ok, err := FrameSize(frame, MaxFrameBytes); total != len(frame) || !ok || err != nil {
					t.Fatalf("%s %d: FrameSize: %d, %v, %v, want %d", name, i, total, ok, err, len(frame))
				}
				checkAgainstGeneral(t, frame)
				var c Command
				if err := Decode(frame, &c); err != nil {
					t.Fatalf("%s %d: %v", name, i, err)
				}
				var hot Command
				if c.Serialize == SerializeJSON && !scanJSON(frame[headBytes:headBytes+headerLen(frame)], &hot) {
					t.Errorf("%s %d: code %d needs the general decoder: %q", name, i, e.Code, frame)
				}
			}
		}
	}
}

// TestRecordedHeaders: every recorded request's header is understood by its type.
func TestRecordedHeaders(t *testing.T) {
	types := map[int32]func() interface{ Decode(*Command) error }{
		ReqSendMessage:             func() interface{ Decode(*Command) error } { return &SendHeader{} },
		ReqSendMessageV2:           func() interface{ Decode(*Command) error } { return &SendHeader{} },
		ReqSendBatchMessage:        func() interface{ Decode(*Command) error } { return &SendHeader{} },
		ReqPullMessage:             func() interface{ Decode(*Command) error } { return &PullHeader{} },
		ReqLitePullMessage:         func() interface{ Decode(*Command) error } { return &PullHeader{} },
		ReqQueryConsumerOffset:     func() interface{ Decode(*Command) error } { return &QueryConsumerOffsetHeader{} },
		ReqUpdateConsumerOffset:    func() interface{ Decode(*Command) error } { return &UpdateConsumerOffsetHeader{} },
		ReqSearchOffsetByTimestamp: func() interface{ Decode(*Command) error } { return &SearchOffsetHeader{} },
		ReqGetMaxOffset:            func() interface{ Decode(*Command) error } { return &TopicQueueHeader{} },
		ReqGetMinOffset:            func() interface{ Decode(*Command) error } { return &TopicQueueHeader{} },
		ReqGetEarliestMsgStoreTime: func() interface{ Decode(*Command) error } { return &TopicQueueHeader{} },
		ReqQueryMessage:            func() interface{ Decode(*Command) error } { return &QueryMessageHeader{} },
		ReqViewMessageByID:         func() interface{ Decode(*Command) error } { return &ViewMessageHeader{} },
		ReqUnregisterClient:        func() interface{ Decode(*Command) error } { return &UnregisterClientHeader{} },
		ReqConsumerSendMsgBack:     func() interface{ Decode(*Command) error } { return &SendBackHeader{} },
		ReqEndTransaction:          func() interface{ Decode(*Command) error } { return &EndTransactionHeader{} },
		ReqGetConsumerListByGroup:  func() interface{ Decode(*Command) error } { return &ConsumerGroupHeader{} },
		ReqNotifyConsumerIDsChanged: func() interface{ Decode(*Command) error } {
			return &ConsumerGroupHeader{}
		},
		ReqUpdateAndCreateTopic: func() interface{ Decode(*Command) error } { return &CreateTopicHeader{} },
		ReqRegisterBroker:       func() interface{ Decode(*Command) error } { return &RegisterBrokerHeader{} },
		ReqUnregisterBroker:     func() interface{ Decode(*Command) error } { return &UnregisterBrokerHeader{} },
		ReqGetRouteInfoByTopic:  func() interface{ Decode(*Command) error } { return &RouteHeader{} },
		ReqQueryDataVersion:     func() interface{ Decode(*Command) error } { return &QueryDataVersionHeader{} },
	}
	seen := map[int32]int{}
	for name, es := range recorded(t) {
		for i, e := range es {
			var c Command
			if err := Decode(e.Request, &c); err != nil {
				t.Fatalf("%s %d: %v", name, i, err)
			}
			if h := types[c.Code]; h != nil {
				seen[c.Code]++
				if err := h().Decode(&c); err != nil {
					t.Errorf("%s %d: code %d: %v: %q", name, i, c.Code, err, e.Request)
				}
			}
		}
	}
	for _, code := range []int32{ReqSendMessage, ReqSendMessageV2, ReqSendBatchMessage, ReqPullMessage, ReqUpdateConsumerOffset, ReqRegisterBroker} {
		if seen[code] == 0 {
			t.Errorf("no recorded request of code %d", code)
		}
	}
}

// TestRecordedBodies: recorded JSON bodies are read, requests and answers.
func TestRecordedBodies(t *testing.T) {
	request := map[int32]func(b []byte, version int32, compressed bool) error{
		ReqHeartBeat:         func(b []byte, _ int32, _ bool) error { return ParseBody(b, &HeartbeatData{}) },
		ReqLockBatchMQ:       func(b []byte, _ int32, _ bool) error { return ParseBody(b, &LockBatchBody{}) },
		ReqUnlockBatchMQ:     func(b []byte, _ int32, _ bool) error { return ParseBody(b, &LockBatchBody{}) },
		ReqCheckClientConfig: func(b []byte, _ int32, _ bool) error { return ParseBody(b, &CheckClientBody{}) },
		ReqQueryDataVersion:  func(b []byte, _ int32, _ bool) error { return ParseBody(b, &DataVersion{}) },
		ReqUpdateAndCreateSubscriptionGroup: func(b []byte, _ int32, _ bool) error {
			return ParseBody(b, &SubscriptionGroupConfig{})
		},
		ReqRegisterBroker: func(b []byte, version int32, compressed bool) error {
			_, err := ParseRegisterBrokerBody(b, compressed, version)
			return err
		},
	}
	answer := map[int32]func(b []byte) error{
		ReqGetRouteInfoByTopic: func(b []byte) error {
			r, err := ParseRouteData(b)
			if err == nil && (len(r.BrokerDatas) == 0 || r.BrokerDatas[0].BrokerAddrs[0] == "") {
				t.Errorf("a route without a master: %s", b)
			}
			return err
		},
		ReqGetBrokerClusterInfo:   func(b []byte) error { _, err := ParseClusterInfo(b); return err },
		ReqLockBatchMQ:            func(b []byte) error { return ParseBody(b, &LockBatchReply{}) },
		ReqGetConsumerListByGroup: func(b []byte) error { return ParseBody(b, &ConsumerIDList{}) },
		ReqGetAllTopicConfig:      func(b []byte) error { return ParseBody(b, &TopicConfigTable{}) },
	}
	n := 0
	for name, es := range recorded(t) {
		for i, e := range es {
			var c Command
			if err := Decode(e.Request, &c); err != nil {
				t.Fatal(err)
			}
			if parse := request[c.Code]; parse != nil && len(c.Body) > 0 {
				n++
				if err := parse(c.Body, c.Version, c.GetString("compressed") == "true"); err != nil {
					t.Errorf("%s %d: body of %d: %v", name, i, c.Code, err)
				}
			}
			if parse := answer[c.Code]; parse != nil && len(e.Response) > 0 {
				if err := Decode(e.Response, &c); err != nil {
					t.Fatal(err)
				}
				if len(c.Body) > 0 {
					n++
					if err := parse(c.Body); err != nil {
						t.Errorf("%s %d: body of the answer to %d: %v: %s", name, i, e.Code, err, c.Body)
					}
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d bodies were looked at", n)
	}
}
