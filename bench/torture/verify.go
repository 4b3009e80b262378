//go:build linux

package torture

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// readBack reads every queue from where read says up to its end, holds it
// against what was acknowledged, and moves read on.
func (t *torture) readBack(ctx context.Context, read *[queues]int64) (n int, err error) {
	c, err := client.Dial(ctx, t.addr(), client.Options{})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for q := range int32(queues) {
		j := newJudge(t.told, q, read[q])
		if err := pullAll(ctx, c, q, read[q], j.message); err != nil {
			return n, fmt.Errorf("queue %d: %w", q, err)
		}
		for _, p := range j.end() {
			t.problem("%s", p)
		}
		n += int(j.next - read[q])
		read[q] = j.next
	}
	return n, nil
}

// pullAll pulls a queue from an offset to its maximum.
func pullAll(ctx context.Context, c *client.Conn, queue int32, from int64, fn func(m *message.Message)) error {
	th := remoting.TopicQueueHeader{Topic: topic, QueueID: queue}
	resp, err := call(ctx, c, th.Command(remoting.ReqGetMaxOffset))
	if err != nil {
		return err
	}
	end, err := fieldInt(resp, "offset")
	if err != nil {
		return err
	}
	for at := from; at < end; {
		h := remoting.PullHeader{ConsumerGroup: []byte(group), Topic: []byte(topic), QueueID: queue, QueueOffset: at, MaxMsgNums: 32,
			SysFlag: remoting.PullSubscription, Subscription: []byte("*")}
		resp, err := call(ctx, c, h.Command(remoting.ReqPullMessage))
		if err != nil {
			return err
		}
		next, err := fieldInt(resp, "nextBeginOffset")
		if err != nil || resp.Code != int32(remoting.Success) || next <= at {
			return fmt.Errorf("pull at %d of %d: code %d %s, next %d", at, end, resp.Code, resp.Remark, next)
		}
		for b := resp.Body; len(b) > 0; {
			var m message.Message
			size, err := message.Decode(b, &m)
			if err != nil {
				return fmt.Errorf("pull at %d: %w", at, err)
			}
			fn(&m)
			b = b[size:]
		}
		at = next
	}
	return nil
}

// A judge holds one queue, read in order, against what was acknowledged.
type judge struct {
	told     *told
	queue    int32
	from     int64
	next     int64 // the offset to come
	found    map[int64]uint64
	problems []string
	scratch  []byte
}

func newJudge(t *told, queue int32, from int64) *judge {
	return &judge{told: t, queue: queue, from: from, next: from, found: map[int64]uint64{}}
}

func (j *judge) wrong(format string, args ...any) {
	j.problems = append(j.problems, fmt.Sprintf("queue %d: ", j.queue)+fmt.Sprintf(format, args...))
}

func (j *judge) message(m *message.Message) {
	off := int64(m.QueueOffset)
	if m.QueueID != j.queue || off != j.next {
		j.wrong("a message of queue %d with offset %d where %d is due", m.QueueID, off, j.next)
	}
	j.next = off + 1
	name, _, _ := bytes.Cut(m.Body, []byte("|"))
	id, err := strconv.ParseUint(string(name), 10, 64)
	if err != nil {
		j.wrong("offset %d: a body that was never sent", off)
		return
	}
	if j.scratch = j.told.body(j.scratch[:0], id); !bytes.Equal(j.scratch, m.Body) || m.BodyCRC != message.CRC(m.Body) {
		j.wrong("offset %d: the body is not what message %d was sent with", off, id)
	}
	j.found[off] = id
}

// end looks for what was acknowledged and not met.
func (j *judge) end() []string {
	j.told.mu.Lock()
	defer j.told.mu.Unlock()
	for off, id := range j.told.acked[j.queue] {
		if off < j.from {
			continue
		}
		switch got, ok := j.found[off]; {
		case !ok:
			j.wrong("offset %d: message %d was acknowledged and is not there", off, id)
		case got != id:
			j.wrong("offset %d: message %d was acknowledged, there is %d", off, id, got)
		}
	}
	return j.problems
}

// checkTables holds consumer offset and topics against what was answered.
func (t *torture) checkTables(ctx context.Context, round int) (err error) {
	c, err := client.Dial(ctx, t.addr(), client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	if t.committed > 0 {
		h := remoting.QueryConsumerOffsetHeader{ConsumerGroup: group, Topic: topic}
		resp, err := call(ctx, c, h.Command())
		if err != nil {
			return err
		}
		if got, err := fieldInt(resp, "offset"); err != nil || got < t.committed {
			t.problem("consumer offset %d was answered for, now there is %d (%d %s)", t.committed, got, resp.Code, resp.Remark)
		}
	}
	for n := range t.topics[round] {
		name := topicOf(round, n)
		pull := remoting.PullHeader{ConsumerGroup: []byte(group), Topic: []byte(name), MaxMsgNums: 1, SysFlag: remoting.PullSubscription, Subscription: []byte("*")}
		resp, err := call(ctx, c, pull.Command(remoting.ReqPullMessage))
		if err != nil {
			return err
		}
		if resp.Code == int32(remoting.TopicNotExist) {
			t.problem("topic %s was made and answered for, now it is gone", name)
		}
	}
	return nil
}
