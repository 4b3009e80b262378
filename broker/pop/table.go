package pop

import (
	"cmp"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// Config says where the journal is and who is told what.
type Config struct {
	FS     vfs.FS
	Dir    string       // storePathRootDir/config; it exists
	Logger *slog.Logger // slog.Default when nil

	SyncInterval time.Duration // how often the journal is synced; 1 s when 0
	CompactBytes int64         // least length of a journal that is compacted; 16 MiB when 0

	// Commit is told the place below which a group has done all of a queue,
	// whenever it is another. It is called with the queue locked and must not
	// block nor call back. Not nil.
	Commit func(topic, group string, queueID int32, offset int64)
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.SyncInterval = cmp.Or(c.SyncInterval, time.Second)
	c.CompactBytes = cmp.Or(c.CompactBytes, 16<<20)
}

// A Table is what all groups have popped. Any goroutine may call any method;
// none waits for the disk but Open, Fit, Sync and Close.
type Table struct {
	cfg     Config
	journal *journal
	flying  atomic.Int64 // messages in flight
	cursor  atomic.Int64 // see Cursor

	mu     sync.RWMutex
	groups map[string]*Group // "topic@group"
	ids    int64             // the last id given to a queue
}

// A Group is one consumer group at one topic, a retry topic being a topic of
// its own.
type Group struct {
	Topic, Name string

	t      *Table
	queues atomic.Pointer[[]*Queue] // by queueId, nil where nothing was popped; replaced as a whole under t.mu
}

// A Queue is what a group has popped of one queue. A pop locks it from Lock to
// Unlock, so that each message is delivered once; meanwhile Next, Take and the
// like may be called.
type Queue struct {
	ID int32

	g   *Group
	id  int64        // in the journal; fixed
	due atomic.Int64 // when DueQueues has it: unix milliseconds

	mu    sync.Mutex
	st    state
	busy  bool  // a pop reads it from a disk: others pass it by
	gone  bool  // dropped from the table
	told  int64 // the order's freeAt that OrderFree has told of
	saidC int64 // the place Commit was told last
}

// NoOffset is Next of a queue whose group has consumed nothing yet.
const NoOffset = -1

// Open loads the journal, or begins one, and starts its goroutine. It blocks on
// the disk. What the journal says must then be brought in line with the store:
// see Fit.
func Open(cfg Config) (*Table, error) {
	cfg.setDefaults()
	t := &Table{cfg: cfg, groups: map[string]*Group{}}
	t.cursor.Store(-1)
	t.journal = newJournal(t)
	if err := t.journal.load(); err != nil {
		return nil, err
	}
	t.each(func(q *Queue) { t.flying.Add(int64(q.st.flying)) })
	return t, nil
}

// Sync blocks until all changes made before the call are durable. It holds up
// who waits by AfterWrite, so it is for rare occasions: where what the table
// would else say after a power cut is of another life of the queues.
func (t *Table) Sync() error { return t.journal.sync() }

// Close writes what is left, syncs it and stops the goroutines. What is popped
// after it is lost with the process.
func (t *Table) Close() error { return t.journal.close() }

// AfterWrite calls w.Written once all changes made before the call are in the
// journal, as safe from the end of the process as they will be. Where the
// journal can't be written it is called all the same: what a crash then
// forgets is delivered again.
func (t *Table) AfterWrite(w Waiter) { t.journal.after(w) }

// Flying is the number of messages in flight.
func (t *Table) Flying() int64 { return t.flying.Load() }

// Group finds or makes a group of a topic.
func (t *Table) Group(topic, name string) *Group {
	if g := t.FindGroup(topic, name); g != nil {
		return g
	}
	key := topic + "@" + name
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[key]
	if g == nil {
		g = &Group{Topic: topic, Name: name, t: t}
		t.groups[key] = g
	}
	return g
}

// FindGroup is Group for one that is there already; nil when it is not. It
// doesn't allocate.
func (t *Table) FindGroup(topic, name string) *Group {
	var buf [2*nameBytesMax + 1]byte
	if len(topic)+len(name) >= len(buf) {
		return nil
	}
	key := append(append(append(buf[:0], topic...), '@'), name...)
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.groups[string(key)]
}

// Find gives the queue if something was popped of it; nil otherwise.
func (g *Group) Find(id int32) *Queue {
	if qs := g.queues.Load(); qs != nil && id >= 0 && int(id) < len(*qs) {
		return (*qs)[id]
	}
	return nil
}

// Queue finds or makes the queue; id is a queueId that its topic has.
func (g *Group) Queue(id int32) *Queue {
	if q := g.Find(id); q != nil {
		return q
	}
	t := g.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := g.Find(id); q != nil {
		return q
	}
	var qs []*Queue
	if old := g.queues.Load(); old != nil {
		qs = append(qs, *old...)
	}
	for len(qs) <= int(id) {
		qs = append(qs, nil)
	}
	t.ids++
	q := &Queue{ID: id, g: g, id: t.ids, st: state{next: NoOffset}, saidC: NoOffset}
	q.due.Store(neverMillis)
	qs[id] = q
	g.queues.Store(&qs)
	if t.journal.running.Load() {
		t.journal.mu.Lock()
		t.journal.buf = appendQueueOp(t.journal.buf, q)
		t.journal.mu.Unlock()
	}
	return q
}

// Topic and Group name the queue beside its ID.
func (q *Queue) Topic() string { return q.g.Topic }

// Group is the group's name.
func (q *Queue) Group() string { return q.g.Name }

// Groups gives the groups of a topic.
func (t *Table) Groups(topic string) (all []*Group) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, g := range t.groups {
		if g.Topic == topic {
			all = append(all, g)
		}
	}
	return all
}

// each calls fn with every queue.
func (t *Table) each(fn func(q *Queue)) {
	t.mu.RLock()
	var all []*Queue
	for _, g := range t.groups {
		if qs := g.queues.Load(); qs != nil {
			all = append(all, *qs...)
		}
	}
	t.mu.RUnlock()
	for _, q := range all {
		if q != nil {
			fn(q)
		}
	}
}

// DueQueues appends to dst the queues that have messages whose invisible time
// is over, or an ordered batch that is free again, as of now.
func (t *Table) DueQueues(dst []*Queue, now int64) []*Queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, g := range t.groups {
		qs := g.queues.Load()
		if qs == nil {
			continue
		}
		for _, q := range *qs {
			if q != nil && q.due.Load() <= now {
				dst = append(dst, q)
			}
		}
	}
	return dst
}

// Cursor is the log offset from which on puts on retry topics may lie that the
// journal doesn't know to be done; -1 when there never were any.
func (t *Table) Cursor() int64 { return t.cursor.Load() }

// SetCursor moves the cursor. The caller has said Done of all that it put
// before.
func (t *Table) SetCursor(logOffset int64) {
	t.cursor.Store(logOffset)
	t.journal.add(func(b []byte) []byte { return appendOp(b, opCursor, logOffset) })
}

// DropTopic forgets all groups of a topic, with what they have in flight.
func (t *Table) DropTopic(topic string) {
	t.dropIf(func(g *Group) bool { return g.Topic == topic })
}

// Drop forgets one group at one topic.
func (t *Table) Drop(topic, group string) {
	t.dropIf(func(g *Group) bool { return g.Topic == topic && g.Name == group })
}

// DropAll forgets everything.
func (t *Table) DropAll() { t.dropIf(func(*Group) bool { return true }) }

func (t *Table) dropIf(match func(g *Group) bool) {
	var dropped []*Queue
	t.mu.Lock()
	for key, g := range t.groups {
		if !match(g) {
			continue
		}
		delete(t.groups, key)
		if qs := g.queues.Load(); qs != nil {
			dropped = append(dropped, *qs...)
		}
	}
	t.mu.Unlock()
	for _, q := range dropped {
		if q == nil {
			continue
		}
		q.mu.Lock()
		q.gone = true
		t.flying.Add(-int64(q.st.flying))
		q.st = state{next: NoOffset}
		q.due.Store(neverMillis)
		t.journal.add(func(b []byte) []byte { return appendOp(b, opDrop, q.id) })
		q.mu.Unlock()
	}
}

// forget takes a queue out while the journal is read; nothing else runs.
func (t *Table) forget(q *Queue) {
	if qs := q.g.queues.Load(); qs != nil && int(q.ID) < len(*qs) && (*qs)[q.ID] == q {
		(*qs)[q.ID] = nil
	}
}

// Fit brings the table in line with the store after Open: groups that keep
// refuses are dropped, and of the others each queue is cut to what the store
// holds: a log that lost its tail gives the offsets of lost messages to new
// ones, which nobody has popped. max answers the queue's next offset.
//
// It is durable before the store takes anything new: else the next power cut
// could take the cut back and keep the new messages, which would then pass for
// popped.
func (t *Table) Fit(keep func(topic, group string) bool, max func(topic string, queueID int32) int64) error {
	t.dropIf(func(g *Group) bool { return !keep(g.Topic, g.Name) })
	t.each(func(q *Queue) {
		q.mu.Lock()
		if most := max(q.g.Topic, q.ID); q.st.next > most {
			q.reset(most)
		}
		q.settle()
		q.mu.Unlock()
	})
	return t.Sync()
}

// Reset has the group go on at an offset: somebody else moved its place.
func (t *Table) Reset(topic, group string, queueID int32, offset int64) {
	g := t.FindGroup(topic, group)
	if g == nil {
		return
	}
	q := g.Find(queueID)
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone || q.saidC == offset {
		return
	}
	q.reset(offset)
	q.saidC = offset // it knows already
	q.settle()
}
