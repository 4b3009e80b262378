package broker

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// transactions knows every half message whose producer has not decided yet,
// takes the decisions (END_TRANSACTION, txn_end.go), asks producers that stay
// silent (txn_check.go) and writes down what is through (txn_op.go).
//
// A half message waits in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, with the topic and
// queue it is meant for in its properties. A check appends a copy of it, with
// one more TRANSACTION_CHECK_TIMES, at the end of that queue. Copies and
// original are one transaction, known by where the original lies (origin): a
// decision that names any of them counts, the first one only. An entry of the
// half queue is through when an op record in RMQ_SYS_TRANS_OP_HALF_TOPIC names
// its queue offset. All these records are Apache's, so that either broker can go
// on with the other's store; the progress is, as there, the offsets of
// CID_RMQ_SYS_TRANS in both queues.
//
// Exactly once, also across a crash (txn_recover.go): a committed record and one
// that was given up name the half message in preparedTransactionOffset, a copy
// names its origin, an op record says from where on in the log decisions lie
// that have no op record yet. So a restart finds each decision whose op record
// didn't reach the disk. Progress is saved when what it stands for is durable.
//
// The half message itself is never kept: about 100 bytes of memory for each that
// waits. One goroutine owns checks, op records and progress; decisions come from
// the pool and share mu with it.
type transactions struct {
	b    *Broker
	log  *slog.Logger
	half *consumequeue.Queue
	op   *consumequeue.Queue
	// producer finds a connection to ask: nil with online false where no
	// producer of the group is there, with true where none has room.
	producer func(group string) (c checkTarget, online bool)

	wake chan struct{}
	stop chan struct{}
	done sync.WaitGroup

	failing atomic.Bool // said so; until the log takes something again

	settledMu sync.Mutex // short: taken where nothing may wait
	settled   []settlement

	mu       sync.Mutex
	seen     message.QueueOffset                     // entries of the half queue below it are known
	halves   map[message.LogOffset]*half             // the undecided, by origin
	aliases  map[message.LogOffset]message.LogOffset // halves that Apache's broker copied before the start: to their origin here
	open     openEntries                             // entries below seen without an op record in the log
	ahead    map[message.QueueOffset]bool            // copies of ours whose entries are not seen yet; true: through already
	checked  chan struct{}                           // closed when the check batch under way is in the log; nil when there is none
	ending   map[*half]bool                          // halves on their way to be committed or given up
	ended    endedMemory                             // the last decisions
	ops      []opEntry                               // entries that are through, their op records to be written
	opBytes  int                                     // their size in op records
	opSince  time.Time                               // when the first of them came
	opUrgent bool                                    // somebody waits for one of them
	stats    TransactionStats
	scanFrom message.LogOffset      // where a start would begin to scan the log
	scanMax  int64                  // bytes that it should at most
	entries  [64]consumequeue.Entry // of catchUp

	// Owned by the goroutine.
	batch    engine.Batch // of append
	put      chan struct{}
	turn     uint64    // counts producers asked
	buf      []byte    // of op bodies
	opMarks  []opMark  // op records that may still be needed
	snapshot *progress // becomes the saved progress when the log is durable
	saved    progress
}

// A checkTarget is a producer's connection.
type checkTarget interface{ Send(frame []byte) }

// A half is a transaction that is not through. mu guards it.
type half struct {
	origin message.LogOffset   // where the producer's own half message lies; its key
	at     message.LogOffset   // where its last copy lies, or itself
	queue  message.QueueOffset // of that
	scan   message.LogOffset   // halfEnding: what ends it lies at or behind it
	due    int64               // ms: not to be looked at before; 0 until its record was read
	stored int64               // ms: when it was stored, the first time that is known; 0 likewise
	state  halfState
}

type halfState uint8

const (
	halfPending  halfState = iota // its producer is to decide
	halfChecking                  // a copy of it is on its way to the log
	halfEnding                    // what ends it is on its way to the log
)

// A settlement is what became of a claimed transaction.
type settlement struct {
	half *half
	how  ending // 0: nothing, it is undecided again
}

func newTransactions(b *Broker) *transactions {
	t := &transactions{
		b: b, log: b.log.With("room", "transactions"),
		half: b.store.Queue(meta.HalfTopic, 0), op: b.store.Queue(meta.OpHalfTopic, 0),
		scanMax: 4 * rescanBytesMax,
		wake:    make(chan struct{}, 1), stop: make(chan struct{}), put: make(chan struct{}, 1),
		halves: map[message.LogOffset]*half{}, aliases: map[message.LogOffset]message.LogOffset{}, ahead: map[message.QueueOffset]bool{}, ending: map[*half]bool{},
	}
	t.producer = func(group string) (checkTarget, bool) {
		t.turn++
		c, online := b.clients.askedProducer(group, t.turn, int64(b.cfg.ConnOutboundBytesMax)/4)
		if c == nil {
			return nil, online
		}
		return c, true
	}
	return t
}

// Stats gives the counts as of now; it may wait for the disk.
func (t *transactions) Stats() TransactionStats {
	t.lock()
	defer t.mu.Unlock()
	t.catchUpOrLog()
	t.stats.Pending = len(t.halves)
	return t.stats
}

// lock takes mu and learns what was settled meanwhile.
func (t *transactions) lock() {
	t.mu.Lock()
	t.settledMu.Lock()
	list := t.settled
	t.settled = nil
	t.settledMu.Unlock()
	for _, s := range list {
		if s.how != 0 {
			t.end(s.half, s.how, nil)
			continue
		}
		s.half.state = halfPending
		delete(t.ending, s.half)
	}
}

// settle ends a claimed transaction, or with how 0 makes it undecided again.
// Any goroutine; it doesn't wait for mu.
func (t *transactions) settle(h *half, how ending) {
	t.settledMu.Lock()
	t.settled = append(t.settled, settlement{h, how})
	first := len(t.settled) == 1
	t.settledMu.Unlock()
	if first {
		t.kick()
	}
}

// start begins to check, until close. recover has run.
func (t *transactions) start() { t.done.Go(t.run) }

// close ends the checks, writes the op records and saves the progress. Decisions
// that are on their way to the log are waited for, but not for ever: the next
// start finds them there.
func (t *transactions) close() {
	close(t.stop)
	t.done.Wait()
}

func (t *transactions) run() {
	check := time.NewTicker(t.b.cfg.TransactionCheckInterval)
	defer check.Stop()
	save := time.NewTicker(progressInterval)
	defer save.Stop()
	for {
		var opTimer <-chan time.Time
		if wait, any := t.writeDueOps(); any {
			opTimer = time.After(wait)
		}
		select {
		case <-t.wake:
		case <-opTimer:
		case <-check.C:
			t.check()
		case <-save.C:
			t.boundScan()
			t.saveProgress()
		case <-t.stop:
			t.finish()
			return
		}
	}
}

// finish writes and saves what is left.
func (t *transactions) finish() {
	deadline := time.Now().Add(closeWait)
	for {
		t.lock()
		under := len(t.ending)
		t.mu.Unlock()
		wrote := t.writeOps()
		t.saveProgress()
		if under == 0 && wrote && t.snapshot == nil && t.progress() == t.saved {
			return
		}
		if time.Now().After(deadline) {
			t.log.Warn("the last transactions are not durable yet; the next start looks for them in the log", "ending", under)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// kick wakes the goroutine.
func (t *transactions) kick() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// catchUp gets to know the half messages stored since it last ran. mu is held;
// it may wait for the disk where very many have come.
func (t *transactions) catchUp() error {
	for {
		n, err := t.half.Read(t.entries[:], t.seen)
		for _, e := range t.entries[:n] {
			if err := t.meet(e); err != nil {
				return err
			}
			t.seen++
		}
		if low := t.half.Min(); t.seen < low {
			t.log.Warn("half messages were deleted before they were looked at", "from", t.seen, "to", low)
			t.seen = low
			continue
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// meet takes in the entry at seen.
func (t *transactions) meet(e consumequeue.Entry) error {
	if through, ours := t.ahead[t.seen]; ours {
		delete(t.ahead, t.seen)
		if !through {
			t.open.add(t.seen)
		}
		return nil
	}
	switch {
	case e.Filler():
		return nil
	case t.checked != nil:
		// A check's copy that it doesn't know the place of yet?
		rec, err := t.b.store.ByOffset(e.LogOffset)
		if err != nil {
			return err
		}
		var m message.Message
		if _, err := message.Decode(rec, &m); err != nil {
			return err
		}
		if m.PreparedTransactionOffset > 0 && t.halves[m.PreparedTransactionOffset-1] != nil {
			t.open.add(t.seen)
			return nil
		}
	}
	t.open.add(t.seen)
	t.halves[e.LogOffset] = &half{origin: e.LogOffset, at: e.LogOffset, queue: t.seen}
	return nil
}

// catchUpOrLog is catchUp for who can go on without. mu is held.
func (t *transactions) catchUpOrLog() {
	if err := t.catchUp(); err != nil {
		t.fail("the half queue can't be read", err)
	}
}

// fail says what holds transactions up, once until something works again.
func (t *transactions) fail(what string, err error) {
	if !t.failing.Swap(true) {
		t.log.Error("transactions are held up", "cause", what, "error", err)
	}
}

// claim takes the undecided transaction of a half message for who ends it. It
// waits for a check's copy under way. The error is the refusal of a second
// decision, or of one on what never was.
func (t *transactions) claim(origin message.LogOffset, scan message.LogOffset) (*half, error) {
	t.lock()
	defer t.mu.Unlock()
	if copied, ok := t.aliases[origin]; ok {
		origin = copied
	}
	for {
		if err := t.catchUp(); err != nil {
			return nil, err
		}
		h := t.halves[origin]
		switch {
		case h == nil:
			if how := t.ended.of(origin); how != 0 {
				return nil, refuse(remoting.SystemError, "the transaction is through: its half message at %d was %s before; the first decision counts", origin, how)
			}
			return nil, refuse(remoting.SystemError, "the half message at %d is not pending: it was committed, rolled back or given up before", origin)
		case h.state == halfEnding:
			return nil, refuse(remoting.SystemError, "the transaction of the half message at %d is just being ended by an earlier request; the first decision counts", origin)
		case h.state == halfChecking:
			wait := t.checked
			t.mu.Unlock()
			<-wait
			t.lock()
		default:
			h.state, h.scan = halfEnding, scan
			t.ending[h] = true
			return h, nil
		}
	}
}

// end is the end of a claimed transaction: what ends it is in the log. done may
// be nil; it is told when the op record is as durable as a send. mu is held.
func (t *transactions) end(h *half, how ending, done func(error)) {
	delete(t.ending, h)
	delete(t.halves, h.origin)
	t.ended.note(h.origin, how)
	switch how {
	case committed:
		t.stats.Committed++
	case rolledBack:
		t.stats.RolledBack++
	case givenUp:
		t.stats.GivenUp++
	}
	t.through(opEntry{queue: h.queue, scan: h.scan, done: done})
}

// through notes an entry of the half queue for the next op record. mu is held.
func (t *transactions) through(e opEntry) {
	if len(t.ops) == 0 {
		t.opSince = t.b.now()
	}
	t.ops = append(t.ops, e)
	t.opBytes += e.bytes()
	t.opUrgent = t.opUrgent || e.done != nil
	if len(t.ops) == 1 || e.done != nil || t.opBytes >= t.b.cfg.TransactionOpMsgMaxSize {
		t.kick()
	}
}

// pending lists the undecided in the order of their entries.
// The goroutine's.
func (t *transactions) pending() []*half {
	t.lock()
	t.catchUpOrLog()
	list := make([]*half, 0, len(t.halves))
	for _, h := range t.halves {
		list = append(list, h)
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b *half) int { return cmp.Compare(a.queue, b.queue) })
	return list
}
