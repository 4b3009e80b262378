package meta

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// QueueIDMax bounds the queue ids an offset is kept for, so that a wild number
// can't fill the table. Topics can't have as many queues.
const QueueIDMax = 1<<16 - 1

// keySeparator stands between topic and group in a key; neither name can hold
// it.
const keySeparator = '@'

// BroadcastSuffix makes of a group's name the one its broadcast clients' offsets
// are kept under. Such names are in the table alone: no list of groups or topics
// has them.
const BroadcastSuffix = "@broadcast"

// keyBytesMax is the longest key: two names of 255 bytes, and BroadcastSuffix.
const keyBytesMax = 2*DerivedTopicBytesMax + 1 + len(BroadcastSuffix)

// Offsets are the consumer groups' places: for each (topic, group, queueId) the
// next queue offset to consume, as Apache's ConsumerOffsetManager keeps them.
//
// Any goroutine may call any method; none blocks on the disk. A commit changes
// the table at once and is written to the journal by the keeper's goroutine a
// few milliseconds later; only the last value of each queue is. A commit to a
// queue that has one already doesn't allocate.
type Offsets struct {
	// Continued says that they were loaded as this broker left them; false in a
	// new store, or where a Java broker or a person wrote the file since.
	Continued bool

	mu    sync.RWMutex
	byKey map[string]*groupOffsets // "topic@group"

	// dirtyMu guards what the keeper will journal next. It is taken with an
	// entry's mu held, never the other way round.
	dirtyMu   sync.Mutex
	dirty     []*groupOffsets // entries with unwritten queues; at most one place each
	spare     []*groupOffsets // the list before, emptied: the two take turns
	forgotten []string        // keys deleted since
	waiters   []func(error)   // told when all of the above is written

	resets atomic.Int32 // queues whose reset is pending (resets.go)

	keeper  *keeper
	watcher Watcher
}

// A Watcher is told what others do to offsets that it keeps (SetKept). It is
// called without a lock held, must not block, and may call SetKept.
type Watcher interface {
	// OffsetSet: somebody committed another offset.
	OffsetSet(topic, group string, queueID int32, offset int64)
	// OffsetsForgotten: the offsets of a group at a topic were deleted.
	OffsetsForgotten(topic, group string)
}

// Watch sets who is told; before the table is in use.
func (o *Offsets) Watch(w Watcher) { o.watcher = w }

// groupOffsets are the queues of one topic@group.
type groupOffsets struct {
	key string

	mu      sync.Mutex
	queues  []queueOffset // sorted by id
	inDirty bool          // is in Offsets.dirty
	kept    bool          // the watcher keeps them
}

// A queueOffset is the next offset to consume of one queue.
type queueOffset struct {
	id        int32
	unwritten bool // changed since the journal last saw it
	reset     bool // offset was set by Reset, and no consumer was told yet
	offset    int64
	pulled    int64 // where the last pull ended; 0 before the first. For statistics, never saved
}

func newOffsets(k *keeper) *Offsets {
	return &Offsets{byKey: map[string]*groupOffsets{}, keeper: k}
}

// Commit sets the next offset of (topic, group, queueId). Going back is
// allowed; while a reset is pending the commit is of before it, and ignored. A
// negative offset, a queueId outside [0, QueueIDMax] or a name too
// long to be one is ignored; callers check them where they can answer.
func (o *Offsets) Commit(topic, group []byte, queueID int32, offset int64) {
	e := o.entry(topic, group)
	if e == nil || queueID < 0 || queueID > QueueIDMax || offset < 0 {
		return
	}
	changed, wake, kept := o.set(e, queueID, offset, false)
	if wake {
		o.keeper.kickDirty()
	}
	if changed && kept {
		topic, group, _ := strings.Cut(e.key, string(keySeparator))
		o.watcher.OffsetSet(topic, group, queueID, offset)
	}
}

// SetKept is Commit for the watcher: from the first one on it is told what
// others commit for the group at the topic.
func (o *Offsets) SetKept(topic, group string, queueID int32, offset int64) {
	e := o.entry([]byte(topic), []byte(group))
	if e == nil || queueID < 0 || queueID > QueueIDMax || offset < 0 {
		return
	}
	if _, wake, _ := o.set(e, queueID, offset, true); wake {
		o.keeper.kickDirty()
	}
}

// CommitWritten is Commit, and calls done once the commit has been written to
// the journal (not yet synced), or could not be. done runs on the keeper's
// goroutine and must not block.
func (o *Offsets) CommitWritten(topic, group []byte, queueID int32, offset int64, done func(error)) {
	o.Commit(topic, group, queueID, offset)
	o.afterWrite(done)
}

// Flush blocks until all changes made before the call are in the journal, or
// could not be written.
func (o *Offsets) Flush() error {
	result := make(chan error, 1)
	o.afterWrite(func(err error) { result <- err })
	return <-result
}

// afterWrite calls done when all changes made before the call are written.
func (o *Offsets) afterWrite(done func(error)) {
	o.dirtyMu.Lock()
	o.waiters = append(o.waiters, done)
	o.dirtyMu.Unlock()
	if !o.keeper.kickUrgent() {
		o.dirtyMu.Lock()
		ws := o.waiters
		o.waiters = nil
		o.dirtyMu.Unlock()
		for _, w := range ws {
			w(ErrClosed)
		}
	}
}

// entry finds or makes the entry of a key.
func (o *Offsets) entry(topic, group []byte) *groupOffsets {
	if e := findOffsets(o, topic, group); e != nil {
		return e
	}
	if len(topic)+1+len(group) > keyBytesMax {
		return nil
	}
	key := Key(topic, group)
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.byKey[key]
	if e == nil {
		e = &groupOffsets{key: key}
		o.byKey[key] = e
	}
	return e
}

// findOffsets finds the entry of a key without allocation; nil when there is
// none.
func findOffsets[T string | []byte](o *Offsets, topic, group T) *groupOffsets {
	var buf [keyBytesMax]byte
	if len(topic)+1+len(group) > len(buf) {
		return nil
	}
	key := append(append(append(buf[:0], topic...), keySeparator), group...)
	o.mu.RLock()
	e := o.byKey[string(key)]
	o.mu.RUnlock()
	return e
}

// set stores one offset and says whether it is another, whether the keeper must
// be woken, and whether the watcher keeps the entry's offsets.
func (o *Offsets) set(e *groupOffsets, queueID int32, offset int64, keep bool) (changed, wake, kept bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = e.kept || keep
	q := e.at(queueID)
	if q.offset == offset || q.reset {
		return false, false, e.kept
	}
	q.offset = offset
	return true, o.touch(e, q), e.kept
}

// touch has a changed queue journaled, and says whether the keeper must be
// woken. The caller holds e.mu.
func (o *Offsets) touch(e *groupOffsets, q *queueOffset) (wake bool) {
	q.unwritten = true
	if e.inDirty {
		return false
	}
	e.inDirty = true
	o.dirtyMu.Lock()
	o.dirty = append(o.dirty, e)
	wake = len(o.dirty) == 1
	o.dirtyMu.Unlock()
	return wake
}

// at is the place of a queue, made with offset -1 when there is none. The
// caller holds e.mu.
func (e *groupOffsets) at(id int32) *queueOffset {
	// Queues are nearly always 0..n-1, so the id is its own place.
	if int(id) < len(e.queues) && e.queues[id].id == id {
		return &e.queues[id]
	}
	i, ok := slices.BinarySearchFunc(e.queues, id, func(q queueOffset, id int32) int { return cmp.Compare(q.id, id) })
	if !ok {
		e.queues = slices.Insert(e.queues, i, queueOffset{id: id, offset: -1})
	}
	return &e.queues[i]
}

// Get gives the next offset of (topic, group, queueId), false when none is
// known. It doesn't allocate.
func (o *Offsets) Get(topic, group []byte, queueID int32) (int64, bool) {
	e := findOffsets(o, topic, group)
	if e == nil {
		return 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.get(queueID); q != nil && q.offset >= 0 {
		return q.offset, true
	}
	return 0, false
}

// get finds a queue; nil when there is none. The caller holds e.mu.
func (e *groupOffsets) get(id int32) *queueOffset {
	i, ok := slices.BinarySearchFunc(e.queues, id, func(q queueOffset, id int32) int { return cmp.Compare(q.id, id) })
	if !ok {
		return nil
	}
	return &e.queues[i]
}

// Queues gives a copy of all offsets of (topic, group).
func (o *Offsets) Queues(topic, group string) map[int32]int64 {
	e := findOffsets(o, topic, group)
	if e == nil {
		return nil
	}
	return e.copy()
}

func (e *groupOffsets) copy() map[int32]int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := make(map[int32]int64, len(e.queues))
	for _, q := range e.queues {
		if q.offset >= 0 {
			m[q.id] = q.offset
		}
	}
	return m
}

// Topics gives the topics the group has offsets of, in order.
func (o *Offsets) Topics(group string) []string {
	return o.matching(func(topic, g string) (string, bool) { return topic, g == group })
}

// Groups gives the groups that have offsets of the topic, in order.
func (o *Offsets) Groups(topic string) []string {
	return o.matching(func(t, group string) (string, bool) { return group, t == topic })
}

func (o *Offsets) matching(pick func(topic, group string) (string, bool)) []string {
	var out []string
	o.mu.RLock()
	for key, e := range o.byKey {
		topic, group, _ := strings.Cut(key, string(keySeparator))
		if name, ok := pick(topic, group); ok && !strings.HasSuffix(group, BroadcastSuffix) && e.committed() {
			out = append(out, name)
		}
	}
	o.mu.RUnlock()
	slices.Sort(out)
	return out
}

// committed says whether any offset is known: pulls alone are none.
func (e *groupOffsets) committed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.queues, func(q queueOffset) bool { return q.offset >= 0 })
}

// DeleteTopic forgets all offsets of a topic.
func (o *Offsets) DeleteTopic(topic string) {
	o.deleteIf(func(t, _ string) bool { return t == topic })
}

// DeleteGroup forgets all offsets of a group.
func (o *Offsets) DeleteGroup(group string) {
	o.deleteIf(func(_, g string) bool { return g == group })
}

func (o *Offsets) deleteIf(match func(topic, group string) bool) {
	removed := o.removeIf(match)
	for _, e := range removed {
		o.dropResets(e)
	}
	if o.watcher == nil {
		return
	}
	for _, e := range removed {
		topic, group, _ := strings.Cut(e.key, string(keySeparator))
		o.watcher.OffsetsForgotten(topic, group)
	}
}

func (o *Offsets) removeIf(match func(topic, group string) bool) (removed []*groupOffsets) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dirtyMu.Lock()
	defer o.dirtyMu.Unlock()
	for key, e := range o.byKey {
		if topic, group, _ := strings.Cut(key, string(keySeparator)); match(topic, group) {
			delete(o.byKey, key)
			o.forgotten = append(o.forgotten, key)
			removed = append(removed, e)
		}
	}
	if len(removed) > 0 {
		o.keeper.kickDirty()
	}
	return removed
}

// drain moves what is unwritten into dst as journal records. Called by the
// keeper alone, which tells the waiters after the write.
func (o *Offsets) drain(dst []byte) (out []byte, waiters []func(error)) {
	o.dirtyMu.Lock()
	dirty, forgotten := o.dirty, o.forgotten
	waiters = o.waiters
	o.dirty, o.spare, o.forgotten, o.waiters = o.spare[:0], nil, nil, nil
	o.dirtyMu.Unlock()
	// Deleted first: an entry made again after its deletion is in dirty and
	// must win; one deleted while dirty is no longer in the table.
	for _, key := range forgotten {
		dst = appendForget(dst, key)
	}
	for _, e := range dirty {
		unwritten := e.takeUnwritten()
		if o.alive(e) {
			dst = appendCommit(dst, e.key, unwritten)
		}
	}
	clear(dirty) // deleted entries are not kept from the collector
	o.dirtyMu.Lock()
	o.spare = dirty[:0]
	o.dirtyMu.Unlock()
	return dst, waiters
}

func (o *Offsets) alive(e *groupOffsets) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.byKey[e.key] == e
}

// Cut takes back offsets beyond the end of their queue: a log that lost its tail
// gives the offsets of lost messages to new ones, which nobody has consumed. max
// answers a queue's next offset. It is called at start, before Watch; where it
// cut any, the caller makes that durable (Tables.Fold) before the store takes
// anything new.
func (o *Offsets) Cut(max func(topic string, queueID int32) int64) (cut int) {
	for _, e := range o.entries() {
		topic, _, _ := strings.Cut(e.key, string(keySeparator))
		e.mu.Lock()
		for i := range e.queues {
			q := &e.queues[i]
			if q.offset <= 0 {
				continue
			}
			if most := max(topic, q.id); q.offset > most {
				q.offset = most
				o.touch(e, q)
				cut++
			}
		}
		e.mu.Unlock()
	}
	return cut
}

func (e *groupOffsets) takeUnwritten() (dst []queueOffset) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inDirty = false
	for i := range e.queues {
		if q := &e.queues[i]; q.unwritten {
			q.unwritten = false
			dst = append(dst, *q)
		}
	}
	return dst
}

// snapshot copies the whole table: what consumerOffset.json holds.
func (o *Offsets) snapshot() map[string]intMap {
	entries := o.entries()
	out := make(map[string]intMap, len(entries))
	for _, e := range entries {
		if queues := e.copy(); len(queues) > 0 {
			out[e.key] = queues
		}
	}
	return out
}

// Each calls fn with every (topic, group) and a copy of its offsets, in no
// order.
func (o *Offsets) Each(fn func(topic, group string, queues map[int32]int64)) {
	for key, queues := range o.snapshot() {
		topic, group, _ := strings.Cut(key, string(keySeparator))
		fn(topic, group, queues)
	}
}

// Len is the number of (topic, group) pairs.
func (o *Offsets) Len() int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.byKey)
}

// load replaces what is known of a key. Used at start only.
func (o *Offsets) load(key string, queues map[int32]int64) {
	e := o.loading(key)
	for id, offset := range queues {
		if id >= 0 && id <= QueueIDMax {
			q := e.at(id)
			if q.reset {
				q.reset = false
				o.resets.Add(-1)
			}
			q.offset = offset
		}
	}
}

func (o *Offsets) loading(key string) *groupOffsets {
	e := o.byKey[key]
	if e == nil {
		e = &groupOffsets{key: key}
		o.byKey[key] = e
	}
	return e
}

// Key is the table's key, as consumerOffset.json has it.
func Key(topic, group []byte) string {
	b := make([]byte, 0, len(topic)+1+len(group))
	return string(append(append(append(b, topic...), keySeparator), group...))
}
