package consumequeue

import (
	"hash/maphash"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// fileLocks is the number of locks that the writers of files share.
const fileLocks = 64

// A Set is all queues of a store.
type Set struct {
	cfg          Config
	fs           vfs.FS
	log          *slog.Logger
	plain, batch *kind

	seed   maphash.Seed
	shards [64]shard

	files     *files
	fileLocks [fileLocks]sync.Mutex // who writes a queue's files; by Queue.lock
	made      atomic.Uint32         // queues made so far

	sweepMu sync.Mutex    // sweeps and structural changes
	sweeps  atomic.Uint64 // number of the running or last sweep
	active  []*Queue      // queues with a tail, as of the last sweep; owned by sweepMu
	failed  error         // a failed sync; owned by sweepMu

	dirtyMu   sync.Mutex
	dirty     []*Queue // changed since the last sweep
	activated []*Queue // got a tail since the last sweep

	dirMu sync.Mutex
	dirs  map[string]struct{} // whose names changed since their last sync

	tailBytes    atomic.Int64
	redispatch   message.LogOffset // see RedispatchFrom; written by Open
	repairedCuts int               // queues cut by Open

	stats counters
}

type counters struct {
	repeated, filled, dropped, spills atomic.Int64

	mu    sync.Mutex
	where string // of the newest gap
	told  int64  // gaps logged so far; owned by sweepMu
}

// Stats is what a Set holds and met so far.
type Stats struct {
	Topics, Queues int
	OpenFiles      int
	TailBytes      int64
	Repeated       int64 // entries passed over because their offset was taken
	Filled         int64 // gaps filled
	Dropped        int64 // entries not believed
	Spills         int64 // tails written by Put because they were full
}

const entryMemory = int64(unsafe.Sizeof(Entry{}))

// A shard maps topics to their queues.
type shard struct {
	mu     sync.RWMutex
	topics map[string]*topicQueues
}

type topicQueues struct {
	name   string
	queues []*Queue // sorted by id; guarded by the shard's mu
}

// find returns the queue id or nil, and where it stands or would stand.
func (t *topicQueues) find(id int32) (*Queue, int) {
	if int(id) < len(t.queues) && id >= 0 && t.queues[id].id == id { // ids are nearly always 0..n-1
		return t.queues[id], int(id)
	}
	i, ok := slices.BinarySearchFunc(t.queues, id, func(q *Queue, id int32) int { return int(q.id) - int(id) })
	if !ok {
		return nil, i
	}
	return t.queues[i], i
}

func (s *Set) shardOf(topic string) *shard {
	return &s.shards[maphash.String(s.seed, topic)%uint64(len(s.shards))]
}

// Queue returns the queue id of topic, made in memory when it is missing and
// create says so; nil otherwise, and always nil for a topic that cannot be the
// name of a directory or a negative id. Any goroutine; does not block.
func (s *Set) Queue(topic string, id int32, create bool) *Queue {
	return s.queue(topic, id, create, false)
}

// Make is Queue that makes what is missing; a queue of a topic that
// Config.BatchTopic does not know is made a batch queue where batch says so.
func (s *Set) Make(topic string, id int32, batch bool) *Queue {
	return s.queue(topic, id, true, batch)
}

func (s *Set) queue(topic string, id int32, create, batch bool) *Queue {
	sh := s.shardOf(topic)
	sh.mu.RLock()
	t := sh.topics[topic]
	var q *Queue
	if t != nil {
		q, _ = t.find(id)
	}
	sh.mu.RUnlock()
	if q != nil || !create || id < 0 || !safeName(topic) {
		return q
	}
	if is, known := s.cfg.BatchTopic(topic); known {
		batch = is
	}
	k := s.plain
	if batch {
		k = s.batch
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return s.create(sh, strings.Clone(topic), id, k)
}

// Find is Queue without creating, for a topic as it stands in a frame or a
// record; allocation free.
func (s *Set) Find(topic []byte, id int32) *Queue {
	sh := &s.shards[maphash.Bytes(s.seed, topic)%uint64(len(s.shards))]
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	t := sh.topics[string(topic)]
	if t == nil {
		return nil
	}
	q, _ := t.find(id)
	return q
}

// create makes a queue where there is none, of whichever kind. It holds sh.mu.
func (s *Set) create(sh *shard, topic string, id int32, k *kind) *Queue {
	t := sh.topics[topic]
	if t == nil {
		t = &topicQueues{name: topic}
		sh.topics[topic] = t
	}
	q, i := t.find(id)
	if q == nil {
		q = &Queue{set: s, topic: t, id: id, kind: k, firstLog: -1, lock: uint8(s.made.Add(1) % fileLocks)}
		if k.batch {
			q.batch = &batchMarks{}
		}
		t.queues = slices.Insert(t.queues, i, q)
	}
	return q
}

// safeName says whether topic may become the name of a directory.
func safeName(topic string) bool {
	return topic != "" && len(topic) <= 255 && topic != "." && topic != ".." && !strings.ContainsAny(topic, "/\\\x00")
}

// Each calls fn for every queue, in no order, until fn says false. Queues made
// or deleted meanwhile may be missed or seen. Any goroutine; fn may call
// anything of the Set.
func (s *Set) Each(fn func(*Queue) bool) {
	var some []*Queue
	for i := range s.shards {
		sh := &s.shards[i]
		some = some[:0]
		sh.mu.RLock()
		for _, t := range sh.topics {
			some = append(some, t.queues...)
		}
		sh.mu.RUnlock()
		for _, q := range some {
			if !fn(q) {
				return
			}
		}
	}
}

// Of returns the queues of topic, sorted by id; the slice is the caller's.
func (s *Set) Of(topic string) []*Queue {
	sh := s.shardOf(topic)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	if t := sh.topics[topic]; t != nil {
		return slices.Clone(t.queues)
	}
	return nil
}

// Topics returns the topics that have queues, sorted.
func (s *Set) Topics() []string {
	var names []string
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		for name := range sh.topics {
			names = append(names, name)
		}
		sh.mu.RUnlock()
	}
	slices.Sort(names)
	return names
}

// MaxLogOffset is the highest MaxLogOffset of all queues: Apache's P of
// recovery.
func (s *Set) MaxLogOffset() message.LogOffset {
	var p message.LogOffset
	s.Each(func(q *Queue) bool {
		p = max(p, q.MaxLogOffset())
		return true
	})
	return p
}

// ResetNext sets Next of every queue to its Max: the end of recovery. Nothing
// else may be going on.
func (s *Set) ResetNext() {
	s.Each(func(q *Queue) bool {
		q.next = q.Max()
		return true
	})
}

// RedispatchFrom says from where the log must be dispatched again because Open
// had to cut damaged queues; ok is false when it cut none. Dispatching more
// than that is harmless.
func (s *Set) RedispatchFrom() (from message.LogOffset, ok bool) {
	return s.redispatch, s.repairedCuts > 0
}

// Stats counts; it looks at every topic.
func (s *Set) Stats() Stats {
	st := Stats{
		OpenFiles: s.files.count(),
		TailBytes: s.tailBytes.Load(),
		Repeated:  s.stats.repeated.Load(),
		Filled:    s.stats.filled.Load(),
		Dropped:   s.stats.dropped.Load(),
		Spills:    s.stats.spills.Load(),
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		st.Topics += len(sh.topics)
		for _, t := range sh.topics {
			st.Queues += len(t.queues)
		}
		sh.mu.RUnlock()
	}
	return st
}

// Close sweeps a last time and closes the files. No other call may be under
// way or follow.
func (s *Set) Close() error {
	err := s.Sweep()
	if cerr := s.files.closeAll(); err == nil {
		err = cerr
	}
	return err
}

// note counts a gap and remembers where it was, for Sweep to log.
func (s *Set) note(c *atomic.Int64, q *Queue, off int64) {
	c.Add(1)
	s.stats.mu.Lock()
	s.stats.where = q.topic.name + "-" + strconv.Itoa(int(q.id)) + " at " + strconv.FormatInt(off, 10) + ", expected " + strconv.FormatInt(int64(q.Max()), 10)
	s.stats.mu.Unlock()
}

func (s *Set) activate(q *Queue) {
	s.tailBytes.Add(q.tail.bytes())
	s.dirtyMu.Lock()
	s.activated = append(s.activated, q)
	s.dirtyMu.Unlock()
}

func (s *Set) markDirty(q *Queue) {
	s.dirtyMu.Lock()
	s.dirty = append(s.dirty, q)
	s.dirtyMu.Unlock()
}

// queueLock is the lock under which q's files are written.
func (s *Set) queueLock(q *Queue) *sync.Mutex { return &s.fileLocks[q.lock] }

func (q *Queue) dir() string {
	return filepath.Join(q.kind.dir, q.topic.name, strconv.Itoa(int(q.id)))
}
