package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/remoting"
)

// proxyPull pulls for a client behind a proxy and gives code and nextBeginOffset.
func proxyPull(t *testing.T, c *rpc.Conn, client string, offset int64) string {
	t.Helper()
	req := remoting.NewRequest(int32(remoting.ReqPullMessage))
	for f := pullFields("T", 0, offset, "requestSource", "1", "proxyFrowardClientId", client, "maxMsgNums", "2"); len(f) > 0; f = f[2:] {
		req.Set(f[0], f[1])
	}
	resp, err := c.Call(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.Code, " ", resp.GetString("nextBeginOffset"))
}

// Broadcast clients behind proxies don't know where they were: the broker does,
// also after a restart, where it knows of the slowest.
func TestBroadcastBehindProxy(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	fill(t, c, 1, 6)
	for _, step := range []struct {
		client string
		offset int64
		want   string
	}{
		{"new", -1, "21 0"}, // the first message is in memory
		{"new", 0, "0 2"},
		{"new", 2, "0 4"},
		{"new", -1, "21 2"},
		{"fast", 6, "19 6"},
		{"fast", 4, "0 6"}, // it goes back, which is not remembered
		{"fast", -1, "21 6"},
		{"lost", 99, "21 6"},
	} {
		if got := proxyPull(t, c, step.client, step.offset); got != step.want {
			t.Errorf("%s at %d: %s, want %s", step.client, step.offset, got, step.want)
		}
	}
	b.broadcasts.scan(time.Now())
	if got := fmt.Sprint(b.offsets.Queues("T", "cg@broadcast")); got != "map[0:2]" {
		t.Errorf("what the slowest has: %s", got)
	}
	if got := b.offsets.Groups("T"); len(got) != 0 {
		t.Errorf("groups of T: %q", got)
	}
	c.Close()
	stopBroker(t, b)
	b = startBrokerIn(t, dir, nil)
	c = dial(t, b)
	if got := proxyPull(t, c, "another", -1); got != "21 2" {
		t.Errorf("a client after a restart: %s, want 21 2", got)
	}
	proxyPull(t, c, "another", 2)
	b.broadcasts.scan(time.Now().Add(3 * time.Minute))
	if n := len(b.broadcasts.groups); n != 0 {
		t.Errorf("%d groups are left after their clients have gone", n)
	}
	if slices.Contains(b.offsets.Topics("cg@broadcast"), "T") {
		t.Error("the offsets of broadcast clients are listed")
	}
}

// With the feature off a proxy's pull is like any other.
func TestBroadcastOffsetsOff(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.EnableBroadcastOffsetStore = false })
	c := dial(t, b)
	fill(t, c, 1, 3)
	for offset, want := range map[int64]string{2: "0 3", -1: "21 0"} {
		if got := proxyPull(t, c, "me", offset); got != want {
			t.Errorf("at %d: %s, want %s", offset, got, want)
		}
	}
}
