package meta

// A reset is an offset that an operator has set for a group, online or not. It
// is the group's offset at once; beside that it stays pending until the first
// pull of the queue has been told where to go on, and meanwhile the consumer's
// own commits, which are of before the reset, are ignored. Pending resets are
// in the journal (record 6) and survive a kill. (As
// ConsumerOffsetManager#assignResetOffset, 5.3, which forgets them at a
// restart.)

// Reset sets the offsets of (topic, group) for the queues given, each at least
// 0, as pending ones, and calls done when they are in the journal, or could not
// be. done runs on the keeper's goroutine and must not block.
func (o *Offsets) Reset(topic, group string, queues map[int32]int64, done func(error)) {
	if e := o.entry([]byte(topic), []byte(group)); e != nil {
		kept := o.resetEntry(e, queues)
		for id, offset := range queues {
			if kept && offset >= 0 {
				o.watcher.OffsetSet(topic, group, id, offset)
			}
		}
	}
	o.afterWrite(done)
}

// resetEntry says whether the watcher keeps the entry's offsets.
func (o *Offsets) resetEntry(e *groupOffsets, queues map[int32]int64) (kept bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, offset := range queues {
		if id < 0 || id > QueueIDMax || offset < 0 {
			continue
		}
		q := e.at(id)
		if !q.reset {
			q.reset = true
			o.resets.Add(1)
		}
		q.offset = offset
		o.touch(e, q)
	}
	return e.kept
}

// TakeReset gives the pending reset of (topic, group, queueId) to the pull that
// tells its consumer; false when there is none, which costs next to nothing
// while none is pending anywhere. It doesn't allocate.
func (o *Offsets) TakeReset(topic, group string, queueID int32) (int64, bool) {
	if o.resets.Load() == 0 {
		return 0, false
	}
	e := findOffsets(o, topic, group)
	if e == nil {
		return 0, false
	}
	e.mu.Lock()
	q := e.get(queueID)
	if q == nil || !q.reset {
		e.mu.Unlock()
		return 0, false
	}
	offset := q.offset
	q.reset = false
	o.resets.Add(-1)
	wake := o.touch(e, q)
	e.mu.Unlock()
	if wake {
		o.keeper.kickDirty()
	}
	return offset, true
}

// ResetPending says whether a reset of (topic, group, queueId) waits for a pull.
func (o *Offsets) ResetPending(topic, group []byte, queueID int32) bool {
	if o.resets.Load() == 0 {
		return false
	}
	e := findOffsets(o, topic, group)
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.get(queueID)
	return q != nil && q.reset
}

// EndResets makes all pending resets plain offsets: where resets are not told by
// pulls, nothing would end them.
func (o *Offsets) EndResets() {
	for _, e := range o.entries() {
		e.mu.Lock()
		wake := false
		for i := range e.queues {
			if q := &e.queues[i]; q.reset {
				q.reset = false
				o.resets.Add(-1)
				wake = o.touch(e, q) || wake
			}
		}
		e.mu.Unlock()
		if wake {
			o.keeper.kickDirty()
		}
	}
}

// Clone gives destGroup the offsets that srcGroup has of topic, replacing its
// own. (As ConsumerOffsetManager#cloneOffset, 5.3.)
func (o *Offsets) Clone(topic, srcGroup, destGroup string) {
	for id, offset := range o.Queues(topic, srcGroup) {
		o.Commit([]byte(topic), []byte(destGroup), id, offset)
	}
}

// Pulled notes where a pull of (topic, group, queueId) ended, for statistics. It
// doesn't allocate but for a queue's first pull.
func (o *Offsets) Pulled(topic, group string, queueID int32, next int64) {
	e := findOffsets(o, topic, group)
	if e == nil {
		if e = o.entry([]byte(topic), []byte(group)); e == nil {
			return
		}
	}
	e.mu.Lock()
	if queueID >= 0 && queueID <= QueueIDMax {
		e.at(queueID).pulled = next
	}
	e.mu.Unlock()
}

// PulledTo gives where the last pull of (topic, group, queueId) ended; 0 when
// none has been seen since the start.
func (o *Offsets) PulledTo(topic, group string, queueID int32) int64 {
	e := findOffsets(o, topic, group)
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.get(queueID); q != nil {
		return q.pulled
	}
	return 0
}

// entries is a copy of the list of all entries.
func (o *Offsets) entries() []*groupOffsets {
	o.mu.RLock()
	defer o.mu.RUnlock()
	all := make([]*groupOffsets, 0, len(o.byKey))
	for _, e := range o.byKey {
		all = append(all, e)
	}
	return all
}

// dropResets uncounts the pending resets of an entry that is no longer in the
// table.
func (o *Offsets) dropResets(e *groupOffsets) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.queues {
		if q := &e.queues[i]; q.reset {
			q.reset = false
			o.resets.Add(-1)
		}
	}
}

// appendResets writes all pending resets as journal records.
func (o *Offsets) appendResets(dst []byte) []byte {
	if o.resets.Load() == 0 {
		return dst
	}
	for _, e := range o.entries() {
		e.mu.Lock()
		var pending []queueOffset
		for _, q := range e.queues {
			if q.reset {
				pending = append(pending, q)
			}
		}
		e.mu.Unlock()
		dst = appendQueues(dst, recordReset, e.key, pending)
	}
	return dst
}

// loadReset restores a pending reset. Used at start only.
func (o *Offsets) loadReset(key string, queueID int32, offset int64) {
	if queueID < 0 || queueID > QueueIDMax || offset < 0 {
		return
	}
	q := o.loading(key).at(queueID)
	if !q.reset {
		q.reset = true
		o.resets.Add(1)
	}
	q.offset = offset
}

// unload forgets a key. Used at start only.
func (o *Offsets) unload(key string) {
	if e := o.byKey[key]; e != nil {
		delete(o.byKey, key)
		o.dropResets(e)
	}
}
