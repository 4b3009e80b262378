package broker

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
)

// recovery is the start of transactions over a store.
type recovery struct {
	t        *transactions
	from, to message.QueueOffset          // of the half queue
	named    []uint64                     // bit i: an op record names from+i
	below    map[message.QueueOffset]bool // that op records name below from
	scan     message.LogOffset            // decisions at or behind it may have no op record; -1 when not known
	byAt     map[message.LogOffset]*half
}

// recover finds out what is pending, before any request is served. It blocks on
// the disk: it reads op records and half messages from the saved progress on,
// and the log from where the last op record says that decisions begin which no
// op record names.
func (t *transactions) recover() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &recovery{t: t, scan: -1, below: map[message.QueueOffset]bool{}, byAt: map[message.LogOffset]*half{}}
	r.from, r.to = t.savedOffset(meta.HalfTopic, t.half), t.half.Max()
	r.named = make([]uint64, (r.to-r.from+63)/64)
	t.seen = r.to
	if err := r.readOps(); err != nil {
		return fmt.Errorf("op records of transactions: %w", err)
	}
	if err := r.readHalves(); err != nil {
		return fmt.Errorf("half messages: %w", err)
	}
	if err := r.findEnds(); err != nil {
		return fmt.Errorf("ends of transactions in the log: %w", err)
	}
	if n := len(t.halves); n > 0 || len(t.ops) > 0 {
		t.log.Info("transactions recovered", "pending", n, "withoutOpRecord", len(t.ops))
	}
	return nil
}

// savedOffset is the saved progress in a queue, within the queue.
func (t *transactions) savedOffset(topic string, q *consumequeue.Queue) message.QueueOffset {
	at, ok := t.b.offsets.Get([]byte(topic), []byte(transGroup), 0)
	if !ok {
		return q.Min()
	}
	return min(max(message.QueueOffset(at), q.Min()), q.Max())
}

// readOps notes which half messages op records name.
func (r *recovery) readOps() error {
	at := r.t.savedOffset(meta.OpHalfTopic, r.t.op)
	err := r.each(r.t.op, at, r.t.op.Max(), func(q message.QueueOffset, m *message.Message) error {
		mark := opMark{at: q, last: -1}
		opNames(m, func(half message.QueueOffset) {
			mark.last = max(mark.last, half)
			switch {
			case half < r.from:
				r.below[half] = true
			case half < r.to:
				r.named[(half-r.from)/64] |= 1 << ((half - r.from) % 64)
			}
		})
		r.t.opMarks = append(r.t.opMarks, mark)
		return nil
	})
	if err != nil {
		return err
	}
	// The last one may lie before the progress: nothing that it names is needed.
	return r.each(r.t.op, max(r.t.op.Max()-1, r.t.op.Min()), r.t.op.Max(), func(_ message.QueueOffset, m *message.Message) error {
		r.scan = -1 - m.PreparedTransactionOffset
		return nil
	})
}

func (r *recovery) isNamed(q message.QueueOffset) bool {
	if q < r.from {
		return r.below[q]
	}
	return q < r.to && r.named[(q-r.from)/64]&(1<<((q-r.from)%64)) != 0
}

// readHalves takes in the half messages that no op record names. Of the copies
// of one the last counts.
func (r *recovery) readHalves() error {
	t := r.t
	return r.eachEntry(t.half, r.from, r.to, func(q message.QueueOffset, e consumequeue.Entry) error {
		if r.isNamed(q) {
			return nil
		}
		t.open.add(q)
		m, err := r.read(e)
		if err != nil {
			return err
		}
		if m == nil {
			t.through(opEntry{queue: q, scan: scanNothing})
			return nil
		}
		origin := originOf(m)
		if first, ok := preparedQueue(m); ok {
			if r.isNamed(first) { // ended by its first half message
				t.through(opEntry{queue: q, scan: scanNothing})
				return nil
			}
			if err := r.alias(first, origin); err != nil {
				return err
			}
		}
		h := t.halves[origin]
		if h == nil {
			h = &half{origin: origin, stored: m.StoreMillis}
			t.halves[origin] = h
		} else {
			t.through(opEntry{queue: h.queue, scan: scanNothing})
			delete(r.byAt, h.at)
		}
		h.at, h.queue = e.LogOffset, q
		r.byAt[h.at] = h
		return nil
	})
}

// preparedQueue is the queue offset of the half message of which Apache's broker
// made m, which it does again and again while its checking time has not come.
func preparedQueue(m *message.Message) (message.QueueOffset, bool) {
	v, ok := message.Property(m.Properties, message.PropTranPreparedQueueOffset)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return message.QueueOffset(n), err == nil && n >= 0 && message.QueueOffset(n) < m.QueueOffset
}

// alias lets a decision name the half message at a queue offset, which its
// producer knows, for the transaction known by origin here.
func (r *recovery) alias(first message.QueueOffset, origin message.LogOffset) error {
	var e [1]consumequeue.Entry
	n, err := r.t.half.Read(e[:], first)
	if n == 1 && !e[0].Filler() {
		r.t.aliases[e[0].LogOffset] = origin
	}
	if errors.Is(err, consumequeue.ErrBelowMin) {
		return nil
	}
	return err
}

// findEnds scans the log for what ended transactions that have no op record yet.
func (r *recovery) findEnds() error {
	r.t.scanFrom = r.t.b.store.Marks().Written
	if len(r.byAt) == 0 {
		return nil
	}
	// What ends a transaction lies behind its half message.
	from := slices.Min(slices.AppendSeq(slices.Collect(maps.Keys(r.byAt)), maps.Keys(r.t.aliases)))
	from = max(r.scan, from)
	if from > r.t.scanFrom {
		return nil
	}
	r.t.scanFrom = from
	var m message.Message
	return r.t.b.store.Scan(from, func(_ message.LogOffset, rec []byte) error {
		if _, err := message.Decode(rec, &m); err != nil {
			return err
		}
		how, at := endOf(&m)
		h := r.byAt[at]
		if origin, ok := r.t.aliases[at]; ok {
			h = r.t.halves[origin]
		}
		if how == 0 || h == nil {
			return nil
		}
		// A client may write anything into a message's sysFlag.
		half, err := r.t.b.store.ByOffset(h.at)
		if err != nil {
			return err
		}
		ours, _ := message.Property(message.PropertiesOf(half), message.PropUniqKey)
		if its, _ := message.Property(m.Properties, message.PropUniqKey); !bytes.Equal(ours, its) {
			return nil
		}
		delete(r.byAt, h.at)
		delete(r.t.halves, h.origin)
		r.t.ended.note(h.origin, how)
		r.t.through(opEntry{queue: h.queue, scan: h.at})
		return nil
	})
}

// endOf says whether a record ended a transaction, and where that one's half
// message lies.
func endOf(m *message.Message) (how ending, at message.LogOffset) {
	switch {
	case m.SysFlag&message.SysFlagTransactionMask == message.SysFlagTransactionCommit:
		return committed, m.PreparedTransactionOffset
	case string(m.Topic) == meta.TransCheckMaxTopic:
		return givenUp, m.PreparedTransactionOffset - 1
	}
	return 0, 0
}

// eachEntry calls fn with the entries [from, to) of a queue, fillers left out.
func (r *recovery) eachEntry(q *consumequeue.Queue, from, to message.QueueOffset, fn func(message.QueueOffset, consumequeue.Entry) error) error {
	for from < to {
		n, err := q.Read(r.t.entries[:], from)
		if n == 0 {
			return err
		}
		for _, e := range r.t.entries[:n] {
			if !e.Filler() {
				if err := fn(from, e); err != nil {
					return err
				}
			}
			from++
		}
	}
	return nil
}

// each is eachEntry with the records, those that can't be read left out.
func (r *recovery) each(q *consumequeue.Queue, from, to message.QueueOffset, fn func(message.QueueOffset, *message.Message) error) error {
	return r.eachEntry(q, from, to, func(at message.QueueOffset, e consumequeue.Entry) error {
		m, err := r.read(e)
		if err != nil || m == nil {
			return err
		}
		return fn(at, m)
	})
}

// read reads an entry's record; nil when it is gone or no record.
func (r *recovery) read(e consumequeue.Entry) (*message.Message, error) {
	rec, err := r.t.b.store.ByOffset(e.LogOffset)
	if errors.Is(err, engine.ErrNoRecord) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := new(message.Message)
	_, err = message.Decode(rec, m)
	return m, err
}
