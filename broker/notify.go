package broker

import (
	"sync"
	"time"

	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// noticeInterval is how long changes of a group are gathered before its
// consumers are told to share out their queues anew: many that start together
// cause a few notices, and one that leaves is replaced in a fraction of a
// second.
const noticeInterval = 100 * time.Millisecond

// A notifier tells the consumers of a group that the group has changed
// (NOTIFY_CONSUMER_IDS_CHANGED, 40). Changes are gathered by its one goroutine,
// which sleeps while there are none.
type notifier struct {
	conns func(group string) []*netloop.Conn
	send  func(c *netloop.Conn, frame []byte)

	mu      sync.Mutex
	pending map[string]bool // groups to be told; as many as there are groups

	wake chan struct{}
	stop chan struct{}
	done sync.WaitGroup
}

func newNotifier(conns func(group string) []*netloop.Conn) *notifier {
	return &notifier{
		conns:   conns,
		send:    (*netloop.Conn).Send,
		pending: map[string]bool{},
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
	}
}

// notify has the group told soon. Any goroutine; it doesn't block.
func (n *notifier) notify(group string) {
	n.mu.Lock()
	n.pending[group] = true
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) start() {
	n.done.Go(func() {
		for {
			select {
			case <-n.wake:
			case <-n.stop:
				return
			}
			select {
			case <-time.After(noticeInterval):
			case <-n.stop:
				return
			}
			n.flush()
		}
	})
}

// close stops the notifier. Notices that wait are dropped: their consumers are
// about to lose their connection.
func (n *notifier) close() {
	close(n.stop)
	n.done.Wait()
}

func (n *notifier) flush() {
	n.mu.Lock()
	groups := n.pending
	n.pending = map[string]bool{}
	n.mu.Unlock()
	for group := range groups {
		h := remoting.ConsumerGroupHeader{ConsumerGroup: group}
		cmd := h.Command(remoting.ReqNotifyConsumerIDsChanged)
		cmd.Flag |= remoting.FlagOneway
		frame := remoting.Append(nil, cmd)
		for _, c := range n.conns(group) {
			n.send(c, frame)
		}
	}
}
