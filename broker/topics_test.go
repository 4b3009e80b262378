package broker

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

func createFields(topic string, read, write, perm int, more ...string) []string {
	return append([]string{"topic", topic, "defaultTopic", "TBW102", "readQueueNums", fmt.Sprint(read), "writeQueueNums", fmt.Sprint(write),
		"perm", fmt.Sprint(perm), "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false"}, more...)
}

func TestCreateTopic(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	for _, tt := range []struct {
		name   string
		fields []string
		want   remoting.ResponseCode
	}{
		{"new", createFields("T", 8, 4, 6, "attributes", "+message.type=FIFO"), remoting.Success},
		{"changed", createFields("T", 16, 8, 4, "attributes", "+message.type=NORMAL"), remoting.Success},
		{"a system topic", createFields("TBW102", 8, 8, 6), remoting.InvalidParameter},
		{"the cluster's topic", createFields("DefaultCluster", 8, 8, 6), remoting.InvalidParameter},
		{"a reserved prefix", createFields("rmq_sys_mine", 8, 8, 6), remoting.InvalidParameter},
		{"a bad name", createFields("a/b", 8, 8, 6), remoting.InvalidParameter},
		{"no name", createFields("", 8, 8, 6), remoting.InvalidParameter},
		{"no queues", createFields("N", -1, -1, 6), remoting.InvalidParameter},
		{"too many queues", createFields("N", 1<<20, 8, 6), remoting.InvalidParameter},
		{"a bad perm", createFields("N", 8, 8, 99), remoting.InvalidParameter},
		{"a bad attribute", createFields("N", 8, 8, 6, "attributes", "+x=y"), remoting.SystemError},
		{"a missing field", []string{"topic", "N"}, remoting.SystemError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			call(t, c, remoting.ReqUpdateAndCreateTopic, tt.want, nil, tt.fields...)
		})
	}
	version := b.topics.Version()
	call(t, c, remoting.ReqUpdateAndCreateTopic, remoting.Success, nil, createFields("T", 16, 8, 4, "attributes", "+message.type=NORMAL")...)
	if b.topics.Version() != version {
		t.Error("the same again is a new version")
	}
	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	got := b.topics.Find("T")
	if got == nil || got.ReadQueues != 16 || got.WriteQueues != 8 || got.Perm != 4 || got.Attributes["message.type"] != "NORMAL" {
		t.Errorf("after a restart: %+v", got)
	}
	if b.topics.Find("N") != nil {
		t.Error("a refused topic was made")
	}
}

func TestDeleteTopic(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	heartbeat(t, c, "A", "cg", "T", "*")
	for range 3 {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "")...)
	}
	call(t, c, remoting.ReqUpdateConsumerOffset, remoting.Success, nil, offsetFields("cg", "T", 0, "commitOffset", "2")...)
	for _, tt := range []struct {
		topic string
		want  remoting.ResponseCode
	}{
		{"T", remoting.Success}, {"T", remoting.Success}, {"Unknown", remoting.Success},
		{"TBW102", remoting.InvalidParameter}, {"SCHEDULE_TOPIC_XXXX", remoting.InvalidParameter}, {"a/b", remoting.InvalidParameter}, {"", remoting.InvalidParameter},
	} {
		call(t, c, remoting.ReqDeleteTopicInBroker, tt.want, nil, "topic", tt.topic)
	}
	call(t, c, remoting.ReqPullMessage, remoting.TopicNotExist, nil, pullFields("T", 0, 0)...)
	if _, ok := b.offsets.Get([]byte("T"), []byte("cg"), 0); ok {
		t.Error("offsets of a deleted topic are kept")
	}
	// Made again, it begins at 0.
	resp := call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("new"), sendFields("T", 0, "")...)
	if got := resp.GetString("queueOffset"); got != "0" {
		t.Errorf("first offset of a topic made again: %s", got)
	}
	got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0)...)
	if s := fmt.Sprint(bodies(t, got)); s != "[new]" {
		t.Errorf("pulled %s", s)
	}
}

func TestAllTopicConfig(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for i := range 30 {
		call(t, c, remoting.ReqUpdateAndCreateTopic, remoting.Success, nil, createFields(fmt.Sprint("T", i), 4, 4, 6)...)
	}
	parse := func(resp *remoting.Command) (table remoting.TopicConfigTable) {
		t.Helper()
		if err := remoting.ParseBody(resp.Body, &table); err != nil {
			t.Fatal(err)
		}
		return table
	}
	all := parse(call(t, c, remoting.ReqGetAllTopicConfig, remoting.Success, nil))
	if len(all.TopicConfigTable) != b.topics.Len() || all.DataVersion != b.topics.Version() {
		t.Errorf("%d topics, version %+v", len(all.TopicConfigTable), all.DataVersion)
	}
	// In pages, until all are there, as tools do.
	paged := map[string]remoting.TopicConfig{}
	version := ""
	for seq := 0; ; {
		resp := call(t, c, remoting.ReqGetAllTopicConfig, remoting.Success, nil, "topicSeq", fmt.Sprint(seq), "maxTopicNum", "7", "dataVersion", version)
		page := parse(resp)
		if len(page.TopicConfigTable) > 7 {
			t.Fatalf("page of %d", len(page.TopicConfigTable))
		}
		maps.Copy(paged, page.TopicConfigTable)
		seq += len(page.TopicConfigTable)
		version = string(remoting.MarshalBody(page.DataVersion))
		if resp.GetString("totalTopicNum") != fmt.Sprint(b.topics.Len()) {
			t.Fatalf("totalTopicNum %s", resp.GetString("totalTopicNum"))
		}
		if seq >= b.topics.Len() {
			break
		}
	}
	if len(paged) != b.topics.Len() {
		t.Errorf("%d topics in pages, want %d", len(paged), b.topics.Len())
	}
	// A page of another version begins anew.
	stale := parse(call(t, c, remoting.ReqGetAllTopicConfig, remoting.Success, nil, "topicSeq", "20", "maxTopicNum", "1", "dataVersion", `{"counter":0,"stateVersion":0,"timestamp":0}`))
	first, _ := b.topics.Snapshot()
	if _, ok := stale.TopicConfigTable[first[0].Name]; !ok {
		t.Errorf("a stale page goes on with %v", stale.TopicConfigTable)
	}
}

func TestAlterAttributes(t *testing.T) {
	old := map[string]string{"message.type": "NORMAL", "queue.type": "SimpleCQ"}
	for _, tt := range []struct {
		name   string
		create bool
		old    map[string]string
		text   string
		want   map[string]string // nil: refused
	}{
		{"nothing", true, nil, "", map[string]string{}},
		{"add", true, nil, "+message.type=FIFO,+reserve.time=1000", map[string]string{"message.type": "FIFO", "reserve.time": "1000"}},
		{"change", false, old, "+message.type=DELAY", map[string]string{"message.type": "DELAY", "queue.type": "SimpleCQ"}},
		{"remove", false, old, "-message.type", map[string]string{"queue.type": "SimpleCQ"}},
		{"same fixed value", false, old, "+queue.type=SimpleCQ", old},
		{"remove at creation", true, nil, "-message.type", nil},
		{"remove what isn't there", false, old, "-reserve.time", nil},
		{"change a fixed one", false, old, "+queue.type=BatchCQ", nil},
		{"remove a fixed one", false, old, "-queue.type", nil},
		{"batch queues", true, nil, "+queue.type=BatchCQ", map[string]string{"queue.type": "BatchCQ"}},
		{"compaction", true, nil, "+cleanup.policy=COMPACTION", nil},
		{"mixed", true, nil, "+message.type=MIXED", nil},
		{"unknown", true, nil, "+colour=red", nil},
		{"bad value", true, nil, "+message.type=RED", nil},
		{"no number", true, nil, "+reserve.time=long", nil},
		{"no sign", true, nil, "message.type=FIFO", nil},
		{"wrong sign", true, nil, "-message.type=FIFO", nil},
		{"a lone sign", true, nil, "+", nil},
		{"a lone equals", true, nil, "=", nil},
	} {
		got, err := alterAttributes(tt.create, tt.old, tt.text)
		if (err == nil) != (tt.want != nil) || err == nil && !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if len(old) != 2 || old["message.type"] != "NORMAL" {
		t.Error("the old attributes were changed in place")
	}
}

// Many producers send the first message of a topic at once: it is made once, and
// all that was acknowledged is there, each connection's in order.
func TestConcurrentFirstSends(t *testing.T) {
	b := startBroker(t, nil)
	const producers, each = 20, 25
	conns := make([]*rpc.Conn, producers)
	for i := range conns {
		conns[i] = dial(t, b)
	}
	version := b.topics.Version().Counter
	failed := make(chan error, producers*each)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for p, c := range conns {
		wg.Go(func() {
			<-begin
			for i := range each {
				req := remoting.NewRequest(remoting.ReqSendMessageV2)
				for f := sendFields("New", p%4, ""); len(f) > 0; f = f[2:] {
					req.Set(f[0], f[1])
				}
				req.Body = fmt.Appendf(nil, "%d %d", p, i)
				if _, err := c.Go(req, func(resp *remoting.Command, err error) {
					if err == nil && resp.Code != 0 {
						err = fmt.Errorf("code %d %s", resp.Code, resp.Remark)
					}
					failed <- err
				}); err != nil {
					failed <- err
				}
			}
		})
	}
	close(begin)
	wg.Wait()
	for range producers * each {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	if got := b.topics.Version().Counter; got != version+1 {
		t.Errorf("the topic table changed %d times, want once", got-version)
	}
	next := map[int]int{}
	for q := range 4 {
		for at := int64(0); at < producers/4*each; {
			got := bodies(t, call(t, conns[0], remoting.ReqPullMessage, remoting.Success, nil, pullFields("New", q, at)...))
			for _, body := range got {
				var p, i int
				if _, err := fmt.Sscan(body, &p, &i); err != nil || i != next[p] {
					t.Fatalf("queue %d: %q came, want number %d of its producer (%v)", q, body, next[p], err)
				}
				next[p]++
				at++
			}
		}
	}
}

// A broker without the permission to write refuses sends to ordered topics: their
// producers must not go to another broker's queues. Others it takes; their
// producers see it in the routes.
func TestOrderedTopicWithoutWritePermission(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	call(t, c, remoting.ReqUpdateAndCreateTopic, remoting.Success, nil, createFields("Ordered", 4, 4, 6, "order", "true")...)
	call(t, c, remoting.ReqUpdateAndCreateTopic, remoting.Success, nil, createFields("Plain", 4, 4, 6)...)
	stopBroker(t, b)
	c = dial(t, startBrokerIn(t, dir, func(c *Config) { c.BrokerPermission = 4 }))
	call(t, c, remoting.ReqSendMessageV2, remoting.NoPermission, []byte("x"), sendFields("Ordered", 0, "")...)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("Plain", 0, "")...)
}
