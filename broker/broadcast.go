package broker

import (
	"sync"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/remoting"
)

// broadcastGroup is the name under which the offsets of a group's broadcast
// clients behind proxies are kept: no group can be called so.
func broadcastGroup(group string) string { return group + meta.BroadcastSuffix }

// broadcastTable knows how far each client behind a proxy has pulled each queue
// that its group consumes by broadcast: such clients have no disk to remember
// it on, and their proxy may be another at their next pull. What the slowest
// client of a group has is kept with the consumer offsets, as group@broadcast,
// so that a restart is survived and a new client begins there.
// (As BroadcastOffsetManager, 5.3, without its part for clients that talk to
// the broker themselves: those remember by themselves.)
//
// Any goroutine may call; nothing blocks.
type broadcastTable struct {
	b *Broker

	mu     sync.Mutex
	groups map[[2]string]map[string]*broadcastClient // by topic and group, by client id
}

// A broadcastClient is one client's place in a topic.
type broadcastClient struct {
	at      time.Time // of its last pull
	offsets map[int32]int64
}

func newBroadcastTable(b *Broker) *broadcastTable {
	return &broadcastTable{b: b, groups: map[[2]string]map[string]*broadcastClient{}}
}

// pull notes a proxy's pull for a client, and says where the client must begin
// instead when it doesn't know itself.
func (t *broadcastTable) pull(p *pull, h *remoting.PullHeader) (begin int64, ok bool) {
	key, id := [2]string{p.topic.Name, p.group.GroupName}, string(h.ProxyClientID)
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.groups[key][id]
	if h.QueueOffset < 0 {
		return t.begin(c, p), true
	}
	if c == nil {
		c = &broadcastClient{offsets: map[int32]int64{}}
		if t.groups[key] == nil {
			t.groups[key] = map[string]*broadcastClient{}
		}
		t.groups[key][id] = c
	}
	c.at = t.b.now()
	c.offsets[h.QueueID] = max(c.offsets[h.QueueID], min(h.QueueOffset, int64(p.queue.Max())))
	return 0, false
}

// begin is where a client goes on: where it was, else where the slowest of its
// group is, else at the first message while that is in memory, else at the end.
func (t *broadcastTable) begin(c *broadcastClient, p *pull) int64 {
	if c != nil {
		if offset, ok := c.offsets[p.queue.ID()]; ok {
			return offset
		}
	}
	if offset, ok := t.b.offsets.Get([]byte(p.topic.Name), []byte(broadcastGroup(p.group.GroupName)), p.queue.ID()); ok {
		return offset
	}
	if t.b.firstInMemory(p.topic.Name, p.queue.ID()) {
		return 0
	}
	return int64(p.queue.Max())
}

// scan keeps what the slowest client of each group has, and forgets clients that
// have not pulled for broadcastOffsetExpireSecond.
func (t *broadcastTable) scan(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, clients := range t.groups {
		slowest := map[int32]int64{}
		for id, c := range clients {
			if now.Sub(c.at) >= t.b.cfg.BroadcastOffsetExpireSecond {
				delete(clients, id)
			}
			for queue, offset := range c.offsets {
				if have, ok := slowest[queue]; !ok || offset < have {
					slowest[queue] = offset
				}
			}
		}
		for queue, offset := range slowest {
			t.b.offsets.Commit([]byte(key[0]), []byte(broadcastGroup(key[1])), queue, offset)
		}
		if len(clients) == 0 {
			delete(t.groups, key)
		}
	}
}
