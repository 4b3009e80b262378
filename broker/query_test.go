package broker

import (
	"fmt"
	"testing"

	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

func TestQueries(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for i, p := range []string{"KEYS=k1 k2;UNIQ_KEY=u1", "KEYS=k1;UNIQ_KEY=u2", "KEYS=k3;UNIQ_KEY=u3"} {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, fmt.Append(nil, "m", i), sendFields("T", 0, p)...)
	}
	ask := func(want remoting.ResponseCode, topic, key string, most int, more ...string) []string {
		t.Helper()
		resp := call(t, c, remoting.ReqQueryMessage, want, nil, append([]string{"topic", topic, "key", key, "maxNum", fmt.Sprint(most),
			"beginTimestamp", "0", "endTimestamp", fmt.Sprint(int64(1) << 60)}, more...)...)
		if want != remoting.Success {
			return nil
		}
		if resp.GetString("indexLastUpdateTimestamp") == "" || resp.GetString("indexLastUpdatePhyoffset") == "" {
			t.Errorf("answer without the index's figures: %q", resp.Fields)
		}
		return bodies(t, resp)
	}
	if got := ask(remoting.Success, "T", "k1", 32); len(got) != 2 {
		t.Errorf("by k1: %q", got)
	}
	if got := ask(remoting.Success, "T", "k1", 1); len(got) != 1 {
		t.Errorf("by k1, at most one: %q", got)
	}
	if got := ask(remoting.Success, "T", "u3", 1, "_UNIQUE_KEY_QUERY", "true"); len(got) != 1 || got[0] != "m2" {
		t.Errorf("by u3: %q", got)
	}
	ask(remoting.QueryNotFound, "T", "none", 32)
	ask(remoting.QueryNotFound, "Other", "k1", 32)
	call(t, c, remoting.ReqQueryMessage, remoting.QueryNotFound, nil, "topic", "T", "key", "k1", "maxNum", "32", "beginTimestamp", "0", "endTimestamp", "1")
}

func TestViewMessage(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	var ids []string
	for i := range 3 {
		resp := call(t, c, remoting.ReqSendMessageV2, remoting.Success, fmt.Append(nil, "m", i), sendFields("T", 0, "")...)
		ids = append(ids, resp.GetString("msgId"))
	}
	for i, id := range ids {
		_, at, err := message.ParseOffsetID(id)
		if err != nil {
			t.Fatal(err)
		}
		resp := call(t, c, remoting.ReqViewMessageByID, remoting.Success, nil, "offset", fmt.Sprint(int64(at)))
		if got := bodies(t, resp); len(got) != 1 || got[0] != fmt.Sprint("m", i) {
			t.Errorf("message %d: %q", i, got)
		}
		call(t, c, remoting.ReqViewMessageByID, remoting.SystemError, nil, "offset", fmt.Sprint(int64(at)+1))
	}
	call(t, c, remoting.ReqViewMessageByID, remoting.SystemError, nil, "offset", "-1")
	call(t, c, remoting.ReqViewMessageByID, remoting.SystemError, nil, "offset", fmt.Sprint(int64(1)<<50))
}
