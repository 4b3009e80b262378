package broker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// An ending is how a transaction ended.
type ending uint8

const (
	committed ending = iota + 1
	rolledBack
	givenUp // after transactionCheckMax checks, or fileReservedTime
)

func (e ending) String() string {
	return [...]string{"", "committed", "rolled back", "given up and moved to " + meta.TransCheckMaxTopic}[e]
}

// TransactionStats counts transactions. All but Pending since the start.
type TransactionStats struct {
	Pending    int   // half messages whose producer has not decided
	Committed  int64 // through with a commit
	RolledBack int64
	Unknown    int64 // END_TRANSACTION requests that decided nothing
	Checks     int64 // copies made to ask a producer
	Asked      int64 // of those, with a producer there to be asked
	GivenUp    int64 // moved to TRANS_CHECK_MAX_TIME_TOPIC
	Refused    int64 // END_TRANSACTION requests that came second, or named nothing
}

// askedProducer picks the connection of a producer group whose turn it is in
// the order they came in,
// passing over those with more than backlogMax unsent bytes.
func (t *clientTable) askedProducer(group string, turn uint64, backlogMax int64) (c *netloop.Conn, online bool) {
	t.mu.RLock()
	conns := make([]*netloop.Conn, 0, len(t.producers[group]))
	for c := range t.producers[group] {
		conns = append(conns, c)
	}
	t.mu.RUnlock()
	slices.SortFunc(conns, func(a, b *netloop.Conn) int { return cmp.Compare(a.ID(), b.ID()) })
	for i := range conns {
		c := conns[(turn+uint64(i))%uint64(len(conns))]
		if c.Closed() {
			continue
		}
		online = true
		if c.Backlog() <= backlogMax {
			return c, true
		}
	}
	return nil, online
}

// openEntries are entries of the half queue that no op record names yet, in
// order. Entries that are through are taken out when they are many.
type openEntries struct {
	list []openEntry
	gone int // of them through
}

type openEntry struct {
	queue   message.QueueOffset
	through bool
}

// add adds an entry behind all others.
func (o *openEntries) add(q message.QueueOffset) { o.list = append(o.list, openEntry{queue: q}) }

// close marks an entry as through; one that isn't there is below all others.
func (o *openEntries) close(q message.QueueOffset) {
	i, ok := slices.BinarySearchFunc(o.list, q, func(e openEntry, q message.QueueOffset) int { return cmp.Compare(e.queue, q) })
	if !ok || o.list[i].through {
		return
	}
	o.list[i].through = true
	o.gone++
	if o.gone > 64 && o.gone > len(o.list)/2 {
		o.list = slices.DeleteFunc(o.list, func(e openEntry) bool { return e.through })
		o.gone = 0
	}
}

// first is the first entry that isn't through, or end.
func (o *openEntries) first(end message.QueueOffset) message.QueueOffset {
	for len(o.list) > 0 && o.list[0].through {
		o.list = o.list[1:]
		o.gone--
	}
	if len(o.list) == 0 {
		return end
	}
	return o.list[0].queue
}

// endedMax is how many decisions are remembered to tell a second one apart.
const endedMax = 1 << 16

// endedMemory remembers the last decisions.
type endedMemory struct {
	how  map[message.LogOffset]ending
	ring []message.LogOffset
	next int
}

func (e *endedMemory) note(origin message.LogOffset, how ending) {
	if e.how == nil {
		e.how = map[message.LogOffset]ending{}
	}
	if len(e.ring) < endedMax {
		e.ring = append(e.ring, origin)
	} else {
		delete(e.how, e.ring[e.next])
		e.ring[e.next] = origin
		e.next = (e.next + 1) % endedMax
	}
	e.how[origin] = how
}

func (e *endedMemory) of(origin message.LogOffset) ending { return e.how[origin] }

// errHalf says what of a half message can't be used.
func errHalf(at message.LogOffset, format string, args ...any) error {
	return refuse(remoting.SystemError, "the half message at %d: %s", at, fmt.Sprintf(format, args...))
}
