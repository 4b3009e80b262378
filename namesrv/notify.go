package namesrv

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// minIDChange is a NOTIFY_MIN_BROKER_ID_CHANGE (905) to be sent to brokers.
type minIDChange struct {
	header remoting.MinBrokerIDChangeHeader
	to     []string // addresses
}

const (
	notifyTimeout  = 300 * time.Millisecond // for one broker, as Apache's
	notifyQueueMax = 1024
)

// minChange describes the group's smallest id to some of its brokers: after
// one with the address offline left, or after one that listens for slaves on
// ha came.
func (g *group) minChange(offline, ha string, to []string) minIDChange {
	id, addr := g.min()
	return minIDChange{header: remoting.MinBrokerIDChangeHeader{MinBrokerID: id, BrokerName: g.name, MinBrokerAddr: addr,
		OfflineBrokerAddr: offline, HABrokerAddr: ha}, to: to}
}

// notifier tells brokers, one after another, on one goroutine: such changes
// are rare, and a broker that cannot be reached must not delay the registry.
// The message goes to the broker's own port, on a connection of its own.
type notifier struct {
	log   *slog.Logger
	queue chan minIDChange // registry -> notifier
	stop  chan struct{}
	done  sync.WaitGroup
	send  func(addr string, frame []byte) error
}

func newNotifier(log *slog.Logger) *notifier {
	return &notifier{log: log, queue: make(chan minIDChange, notifyQueueMax), stop: make(chan struct{}), send: sendOneway}
}

func (n *notifier) start() { n.done.Go(n.run) }

// close ends the goroutine; what is still queued is dropped.
func (n *notifier) close() {
	close(n.stop)
	n.done.Wait()
}

// tell queues a change. It does not block: when a thousand changes wait,
// brokers are unreachable, and they learn the change from their next request.
func (n *notifier) tell(c minIDChange) {
	select {
	case n.queue <- c:
	default:
		n.log.Warn("brokers not told of their group's smallest id: too many notices wait", "brokerName", c.header.BrokerName)
	}
}

func (n *notifier) run() {
	for {
		select {
		case <-n.stop:
			return
		case c := <-n.queue:
			n.notify(c)
		}
	}
}

func (n *notifier) notify(c minIDChange) {
	cmd := c.header.Command()
	cmd.Flag = remoting.FlagOneway
	frame := remoting.Append(nil, cmd)
	for _, addr := range c.to {
		select {
		case <-n.stop:
			return
		default:
		}
		err := n.send(addr, frame)
		if err != nil {
			n.log.Warn("broker not told of its group's smallest id", "brokerName", c.header.BrokerName, "brokerAddr", addr, "error", err)
			continue
		}
		n.log.Info("broker told of its group's smallest id", "brokerName", c.header.BrokerName, "brokerAddr", addr,
			"minBrokerId", c.header.MinBrokerID)
	}
}

// sendOneway writes one frame that nobody answers.
func sendOneway(addr string, frame []byte) error {
	conn, err := net.DialTimeout("tcp", addr, notifyTimeout)
	if err != nil {
		return err
	}
	if err = conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err == nil {
		_, err = conn.Write(frame)
	}
	if cerr := conn.Close(); err == nil {
		err = cerr
	}
	return err
}
