package pop

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kinds of operations in the journal; see the package comment.
const (
	opQueue  = 1
	opTake   = 2
	opSkip   = 3
	opAck    = 4
	opChange = 5
	opReset  = 6
	opOrder  = 7
	opDrop   = 8
	opCursor = 9
	opEnd    = 10
)

// nameBytesMax bounds names in the journal, as topics and groups are bounded.
const nameBytesMax = 255

// queueIDMax bounds queue ids as meta.QueueIDMax does.
const queueIDMax = 1<<16 - 1

var errBadOp = errors.New("pop journal: unreadable operation")

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendOp(dst []byte, kind byte, numbers ...int64) []byte {
	dst = append(dst, kind)
	for _, n := range numbers {
		dst = binary.AppendVarint(dst, n)
	}
	return dst
}

func appendQueueOp(dst []byte, q *Queue) []byte {
	dst = appendOp(dst, opQueue, q.id, int64(q.ID), q.st.next, q.st.floor)
	return appendText(appendText(dst, q.g.Topic), q.g.Name)
}

// appendTake writes a delivery: contiguous messages without their offsets.
func appendTake(dst []byte, id int64, c *check, next int64) []byte {
	contiguous := int64(1)
	if c.diffs != nil {
		contiguous = 0
	}
	dst = appendOp(dst, opTake, id, c.handle.Start, c.handle.PopMillis, c.until-c.handle.PopMillis,
		next-c.handle.Start, int64(c.live), int64(c.n), contiguous)
	for _, d := range c.diffs {
		dst = binary.AppendVarint(dst, int64(d))
	}
	return dst
}

func appendOrder(dst []byte, id int64, b *Batch, next int64) []byte {
	dst = appendOp(dst, opOrder, id, next, b.PopMillis, b.Invisible, int64(b.acked), int64(len(b.Offsets)))
	for i, off := range b.Offsets {
		dst = binary.AppendVarint(dst, off-b.Offsets[0])
		dst = binary.AppendVarint(dst, int64(b.Counts[i]))
		dst = binary.AppendVarint(dst, b.Visible[i])
	}
	dst = binary.AppendVarint(dst, b.Offsets[0])
	return appendText(dst, b.AttemptID)
}

// appendState writes a queue as it is: what replaces all operations before.
func appendState(dst []byte, q *Queue) []byte {
	dst = appendQueueOp(dst, q)
	for _, c := range q.st.checks {
		dst = appendTake(dst, q.id, c, q.st.next)
	}
	if q.st.order != nil {
		dst = appendOrder(dst, q.id, q.st.order, q.st.next)
	}
	return dst
}

// An opReader reads operations of one frame and keeps the first error.
type opReader struct {
	b   []byte
	err error
}

func (r *opReader) int() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *opReader) ints(to ...*int64) {
	for _, p := range to {
		*p = r.int()
	}
}

func (r *opReader) text() string {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > nameBytesMax || n > uint64(len(r.b)-size) {
		r.fail()
		return ""
	}
	s := string(r.b[size : size+int(n)])
	r.b = r.b[size+int(n):]
	return s
}

func (r *opReader) fail() {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %d bytes of its frame are left", errBadOp, len(r.b))
	}
	r.b = nil
}

// A replay builds a table out of a journal's operations. Operations of queues
// it doesn't know are of queues dropped since; see journal.go.
type replay struct {
	t     *Table
	byID  map[int64]*Queue
	ended bool // opEnd was there: the snapshot is whole
}

// frame applies the operations of one frame.
func (p *replay) frame(b []byte) error {
	r := opReader{b: b}
	for len(r.b) > 0 {
		kind := r.b[0]
		r.b = r.b[1:]
		switch kind {
		case opEnd:
			p.ended = true
		case opCursor:
			p.t.cursor.Store(r.int())
		case opQueue:
			p.queue(&r)
		default:
			p.queueOp(kind, &r)
		}
	}
	return r.err
}

func (p *replay) queue(r *opReader) {
	var id, queueID, next, floor int64
	r.ints(&id, &queueID, &next, &floor)
	topic, group := r.text(), r.text()
	if r.err != nil || queueID < 0 || queueID > queueIDMax {
		r.fail()
		return
	}
	q := p.t.Group(topic, group).Queue(int32(queueID))
	q.id, q.st = id, state{next: next, floor: floor}
	p.byID[id] = q
	p.t.ids = max(p.t.ids, id)
}

func (p *replay) queueOp(kind byte, r *opReader) {
	q := p.byID[r.int()]
	if q == nil {
		q = &Queue{g: &Group{}} // read over
	}
	var start, at, offset, n, m int64
	switch kind {
	case opTake:
		p.take(q, r)
	case opSkip:
		q.st.next = r.int()
	case opAck:
		r.ints(&start, &at, &offset)
		q.st.done(Handle{start, at}, offset)
	case opChange:
		r.ints(&start, &at, &offset, &n, &m)
		if c, bit := q.st.find(Handle{start, at}, offset); bit != 0 {
			q.st.clear(c, bit)
		}
		q.st.add(&check{handle: Handle{offset, n}, until: until(n, m), n: 1, live: 1})
	case opReset:
		q.st.reset(r.int())
	case opOrder:
		p.order(q, r)
	case opDrop:
		p.t.forget(q)
		delete(p.byID, q.id)
	default:
		r.fail()
	}
}

func (p *replay) take(q *Queue, r *opReader) {
	var start, at, invisible, next, live, n, contiguous int64
	r.ints(&start, &at, &invisible, &next, &live, &n, &contiguous)
	if r.err != nil || n < 1 || n > MsgsMax {
		r.fail()
		return
	}
	c := &check{handle: Handle{start, at}, until: until(at, invisible), n: uint8(n), live: uint32(live) & uint32(1<<n-1)}
	if contiguous == 0 {
		c.diffs = make([]uint32, n)
		for i := range c.diffs {
			c.diffs[i] = uint32(r.int())
		}
	}
	if r.err == nil {
		q.st.add(c)
		q.st.next = start + next
	}
}

func (p *replay) order(q *Queue, r *opReader) {
	var next, acked, n, first int64
	b := &Batch{}
	r.ints(&next, &b.PopMillis, &b.Invisible, &acked, &n)
	if r.err != nil || n < 1 || n > MsgsMax {
		r.fail()
		return
	}
	b.acked = uint32(acked)
	b.Offsets, b.Counts, b.Visible = make([]int64, n), make([]int32, n), make([]int64, n)
	for i := range b.Offsets {
		b.Offsets[i], b.Counts[i], b.Visible[i] = r.int(), int32(r.int()), r.int()
	}
	r.ints(&first)
	b.AttemptID = r.text()
	for i := range b.Offsets {
		b.Offsets[i] += first
	}
	if r.err == nil {
		q.st.order, q.st.next = b, next
	}
}
