//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

const (
	topic  = "Torture"
	group  = "torture_consumer"
	queues = 4
	// bodyMin and bodyMax bound a body's random length.
	bodyMin, bodyMax = 100, 3000
	callMax          = 20 * time.Second
)

// told is what the load was answered: acknowledged messages by place. Its
// methods may be called from any goroutine.
type told struct {
	seed uint64
	next atomic.Uint64 // id of the next message

	mu      sync.Mutex
	acked   [queues]map[int64]uint64 // queue offset to the message's id
	ends    [queues]int64            // behind the highest acknowledged offset
	refused map[string]int
	lastAck time.Time
}

func newTold(seed uint64) *told {
	t := &told{seed: seed, refused: map[string]int{}}
	for q := range t.acked {
		t.acked[q] = map[int64]uint64{}
	}
	return t
}

func (t *told) ack(queue int32, offset int64, id uint64) error {
	if queue < 0 || queue >= queues {
		return fmt.Errorf("an answer names queue %d, want 0 to %d", queue, queues-1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if other, ok := t.acked[queue][offset]; ok {
		return fmt.Errorf("messages %d and %d were both answered with offset %d of queue %d", other, id, offset, queue)
	}
	t.acked[queue][offset] = id
	t.ends[queue] = max(t.ends[queue], offset+1)
	t.lastAck = time.Now()
	return nil
}

// end is behind the highest offset of a queue that was acknowledged.
func (t *told) end(queue int32) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ends[queue]
}

func (t *told) refuse(what string) {
	t.mu.Lock()
	t.refused[what]++
	t.mu.Unlock()
}

func (t *told) count() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.acked {
		n += len(m)
	}
	return n
}

func (t *told) last() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastAck
}

func (t *told) refusals() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.refused)
}

// body is what message id is sent with: its id and bytes that follow from it, so
// that a torn or mixed record shows.
func (t *told) body(dst []byte, id uint64) []byte {
	r := rand.New(rand.NewPCG(t.seed, id))
	dst = strconv.AppendUint(dst, id, 10)
	dst = append(dst, '|')
	for n := bodyMin + r.IntN(bodyMax-bodyMin); n > 0; n -= 8 {
		v := r.Uint64()
		dst = append(dst, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
	}
	return dst
}

// A load is the requests of one round under way.
type load struct {
	t     *torture
	round int
	conns []*client.Conn
	wg    sync.WaitGroup
	first chan struct{} // closed at the round's first acknowledgement
	once  sync.Once

	mu        sync.Mutex
	err       error // what must not happen
	committed int64 // highest consumer offset whose commit was answered
	topics    int   // topics whose creation was answered
}

// load begins a round's requests: they go on until the broker is gone.
func (t *torture) load(ctx context.Context, round int) (*load, error) {
	l := &load{t: t, round: round, first: make(chan struct{})}
	for range t.cfg.Conns + 1 {
		c, err := client.Dial(ctx, t.addr(), client.Options{})
		if err != nil {
			l.close()
			return nil, err
		}
		l.conns = append(l.conns, c)
	}
	for _, c := range l.conns[:t.cfg.Conns] {
		for range t.cfg.InFlight {
			l.wg.Go(func() { l.sends(ctx, c) })
		}
	}
	l.wg.Go(func() { l.commits(ctx, l.conns[t.cfg.Conns]) })
	return l, nil
}

// sends sends one message after the other.
func (l *load) sends(ctx context.Context, c *client.Conn) {
	var body []byte
	for {
		id := l.t.told.next.Add(1)
		body = l.t.told.body(body[:0], id)
		h := remoting.SendHeader{ProducerGroup: []byte("torture_producer"), Topic: []byte(topic), DefaultTopic: []byte("TBW102"),
			DefaultTopicQueueNums: queues, QueueID: int32(id % queues), BornMillis: time.Now().UnixMilli(), MaxReconsumeTimes: -1,
			Properties: message.AppendProperty(nil, message.PropKeys, "k"+strconv.FormatUint(id, 10))}
		resp, err := call(ctx, c, h.Command(remoting.ReqSendMessageV2, body))
		if err != nil {
			return // the broker is gone
		}
		if resp.Code != int32(remoting.Success) {
			// No acknowledgement: a refusal may be true, a false SEND_OK may not.
			l.t.told.refuse(fmt.Sprintf("%d %s", resp.Code, resp.Remark))
			continue
		}
		queue, err1 := fieldInt(resp, "queueId")
		offset, err2 := fieldInt(resp, "queueOffset")
		err = errors.Join(err1, err2)
		if err == nil {
			err = l.t.told.ack(int32(queue), offset, id)
		}
		if err != nil {
			l.fail(err)
			return
		}
		l.once.Do(func() { close(l.first) })
	}
}

// commits commits consumer offsets that only grow, up to what was acknowledged
// of their queue, and makes topics.
func (l *load) commits(ctx context.Context, c *client.Conn) {
	for n := int64(1); ; n++ {
		h := remoting.UpdateConsumerOffsetHeader{ConsumerGroup: group, Topic: topic, QueueID: 0, CommitOffset: l.t.told.end(0)}
		resp, err := call(ctx, c, h.Command())
		if err != nil {
			return
		}
		if resp.Code == int32(remoting.Success) {
			l.mu.Lock()
			l.committed = h.CommitOffset
			l.mu.Unlock()
		}
		if n%64 != 1 {
			continue
		}
		made := remoting.CreateTopicHeader{Topic: topicOf(l.round, l.topics), DefaultTopic: "TBW102", ReadQueueNums: 1, WriteQueueNums: 1,
			Perm: remoting.PermRead | remoting.PermWrite, TopicFilterType: remoting.FilterSingleTag}
		if resp, err = call(ctx, c, made.Command()); err != nil {
			return
		}
		if resp.Code == int32(remoting.Success) {
			l.mu.Lock()
			l.topics++
			l.mu.Unlock()
		}
	}
}

func topicOf(round, n int) string { return fmt.Sprintf("Torture_%d_%d", round, n) }

func (l *load) fail(err error) {
	l.mu.Lock()
	l.err = errors.Join(l.err, err)
	l.mu.Unlock()
}

// killAfter kills the broker at the moment, counted from the first
// acknowledgement: a broker that has just come back may need longer for it than
// the moment is.
func (l *load) killAfter(ctx context.Context, moment time.Duration) {
	select {
	case <-l.first:
	case <-ctx.Done():
	case <-time.After(callMax):
	}
	select {
	case <-ctx.Done():
	case <-time.After(moment):
	}
	if err := l.t.broker.Kill(); err != nil {
		l.fail(err)
	}
}

// wait waits for the requests to end, and notes what the round was told.
func (l *load) wait() error {
	l.wg.Wait()
	l.close()
	l.t.committed = max(l.t.committed, l.committed)
	l.t.topics = append(l.t.topics, l.topics)
	select {
	case <-l.first:
	default:
		l.err = errors.Join(l.err, errors.New("nothing was acknowledged in this round"))
	}
	return l.err
}

func (l *load) close() {
	for _, c := range l.conns {
		c.Close()
	}
}

func call(ctx context.Context, c *client.Conn, req *remoting.Command) (*remoting.Command, error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	return c.Call(ctx, req)
}

func fieldInt(resp *remoting.Command, name string) (int64, error) {
	v, _ := resp.Get(name)
	n, err := remoting.ParseInt64(v)
	if err != nil {
		return 0, fmt.Errorf("answer with %s %q: %w", name, v, err)
	}
	return n, nil
}
