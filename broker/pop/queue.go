package pop

// Lock begins a pop; false when another one reads the queue from a disk, or it
// was dropped.
func (q *Queue) Lock() bool {
	q.mu.Lock()
	if q.busy || q.gone {
		q.mu.Unlock()
		return false
	}
	return true
}

// Unlock ends a pop.
func (q *Queue) Unlock() {
	q.settle()
	q.mu.Unlock()
}

// LeaveBusy unlocks the queue for as long as its pop waits for a disk, until
// BackFromDisk.
func (q *Queue) LeaveBusy() {
	q.busy = true
	q.Unlock()
}

// BackFromDisk locks the queue again for the pop that called LeaveBusy. next
// says where it began: false when the queue was reset or dropped meanwhile,
// and the pop must deliver nothing.
func (q *Queue) BackFromDisk(next int64) bool {
	q.mu.Lock()
	q.busy = false
	return !q.gone && q.st.next == next
}

// settle brings up to date what others see of a queue. Locked.
func (q *Queue) settle() {
	due := q.st.nextDue()
	if b := q.st.order; b != nil {
		if at := b.freeAt(); at > q.told {
			due = min(due, at)
		}
	}
	q.due.Store(due)
	if at := q.st.committed(); at != q.saidC && at >= 0 && !q.gone {
		q.saidC = at
		q.g.t.cfg.Commit(q.g.Topic, q.g.Name, q.ID, at)
	}
}

// add journals an operation. Locked, so that a queue's operations are in order.
func (q *Queue) add(kind byte, numbers ...int64) {
	j := q.g.t.journal
	j.mu.Lock()
	j.buf = appendOp(j.buf, kind, numbers...)
	j.mu.Unlock()
	j.kick()
}

func (q *Queue) flown(before int) { q.g.t.flying.Add(int64(q.st.flying - before)) }

// Next is where the next pop begins; NoOffset when nothing was ever popped.
// Locked.
func (q *Queue) Next() int64 { return q.st.next }

// Flying is the number of its messages in flight. Locked.
func (q *Queue) Flying() int { return q.st.flying }

// PeekNext is Next for who doesn't pop.
func (q *Queue) PeekNext() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.st.next
}

// Take delivers the messages at offsets, 1 to MsgsMax of them, found by reading
// from start to next. Locked.
func (q *Queue) Take(start, next, popMillis, invisible int64, offsets []int64) {
	before := q.st.flying
	h := Handle{Start: start, PopMillis: popMillis}
	q.st.take(h, until(popMillis, invisible), next, offsets)
	q.flown(before)
	j := q.g.t.journal
	j.mu.Lock()
	j.buf = appendTake(j.buf, q.id, q.st.checks[h], next)
	j.mu.Unlock()
	j.kick()
}

// Skip moves on over what there is nothing of for the group. Locked.
func (q *Queue) Skip(next int64) {
	if q.st.next == next {
		return
	}
	q.st.next = next
	q.add(opSkip, q.id, next)
}

// Begin sets where a new group begins, or one whose place is outside the queue.
// Locked.
func (q *Queue) Begin(next int64) { q.reset(next) }

func (q *Queue) reset(next int64) {
	before := q.st.flying
	q.st.reset(next)
	q.flown(before)
	q.add(opReset, q.id, next)
}

// Ack ends a message in flight. False: its handle has expired, nothing changed.
func (q *Queue) Ack(h Handle, offset int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.st.flying
	if !q.st.ack(h, offset) {
		return false
	}
	q.flown(before)
	q.add(opAck, q.id, h.Start, h.PopMillis, offset)
	q.settle()
	return true
}

// Change gives a message in flight another invisible time from popMillis on,
// and the handle it has from now on. False: the old handle has expired.
func (q *Queue) Change(h Handle, offset, popMillis, invisible int64) (Handle, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed, ok := q.st.change(h, offset, popMillis, invisible)
	if ok {
		q.add(opChange, q.id, h.Start, h.PopMillis, offset, changed.PopMillis, max(invisible, 0))
		q.settle()
	}
	return changed, ok
}

// A Flight is a message whose invisible time is over.
type Flight struct {
	Handle
	Offset int64
}

// TakeDue appends to dst up to most messages whose invisible time is over.
// They are the caller's until it says Done or Release of each; no
// acknowledgement of them counts any more.
func (q *Queue) TakeDue(dst []Flight, now int64, most int) []Flight {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.st.due(now, func(h Handle, offset int64) bool {
		if len(dst) >= most {
			return false
		}
		dst = append(dst, Flight{h, offset})
		return true
	})
	q.settle()
	return dst
}

// Done ends a message that TakeDue gave and that is durable on its retry topic.
func (q *Queue) Done(f Flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.st.flying
	q.st.done(f.Handle, f.Offset)
	q.flown(before)
	q.add(opAck, q.id, f.Start, f.PopMillis, f.Offset)
	q.settle()
}

// Release gives back a message that TakeDue gave; it is due again at a time.
func (q *Queue) Release(f Flight, at int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.st.release(f.Handle, f.Offset, at)
	q.settle()
}

// FlightAt finds deliveries of the message at an offset that are in flight and
// were due by storeMillis: a record put on the retry topic then was made of
// one of them.
func (q *Queue) FlightAt(offset, storeMillis int64) (Flight, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for h, c := range q.st.checks {
		if c.until <= storeMillis && c.bit(offset)&c.live != 0 {
			return Flight{h, offset}, true
		}
	}
	return Flight{}, false
}

// Blocked says whether an ordered pop must wait for the batch before. Locked.
func (q *Queue) Blocked(attemptID string, now int64) bool { return q.st.order.blocks(attemptID, now) }

// BlockedNow is Blocked for who doesn't pop.
func (q *Queue) BlockedNow(attemptID string, now int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.st.order.blocks(attemptID, now)
}

// TakeOrdered delivers the messages at offsets in order, 1 to MsgsMax of them.
// The answer must not be changed. Locked.
func (q *Queue) TakeOrdered(attemptID string, popMillis, invisible int64, offsets []int64) *Batch {
	b := q.st.takeOrdered(attemptID, popMillis, invisible, offsets)
	q.addOrder()
	return b
}

func (q *Queue) addOrder() {
	j := q.g.t.journal
	j.mu.Lock()
	j.buf = appendOrder(j.buf, q.id, q.st.order, q.st.next)
	j.mu.Unlock()
	j.kick()
}

// AckOrdered acknowledges a message popped in order. known is false when the
// batch of that time has no such message; free says that the next may be
// popped.
func (q *Queue) AckOrdered(popMillis, offset, now int64) (known, free bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.st.ackOrdered(popMillis, offset) {
	case orderUnknown:
		return false, false
	case orderExpired:
		return true, false
	}
	q.addOrder()
	free = !q.st.order.blocks("", now)
	if free {
		q.told = q.st.order.freeAt()
	}
	q.settle()
	return true, free
}

// ChangeOrdered has a message popped in order become visible at another time;
// false when its handle has expired.
func (q *Queue) ChangeOrdered(popMillis, offset, visible int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.st.changeOrdered(popMillis, offset, visible) {
		return false
	}
	q.addOrder()
	q.settle()
	return true
}

// OrderFree says, once for each batch, that its time is over and the queue may
// be popped in order again.
func (q *Queue) OrderFree(now int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.st.order == nil {
		return false
	}
	at := q.st.order.freeAt()
	free := at > q.told && at <= now
	if free {
		q.told = at
	}
	q.settle()
	return free
}
