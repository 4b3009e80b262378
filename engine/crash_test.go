package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/flush"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// The crash suite: a store over memory that forgets what was not synced. At
// each acknowledgement under SYNC_FLUSH the tree is taken as a power cut would
// leave it, and every such tree must open to a store that has all that was
// acknowledged and nothing that was not put. Each check is also run against a
// store with one sync taken out, where it must fail.

// RINGMQ_CRASH_SEEDS adds so many random seeds to the fixed ones.
const crashSeedsEnv = "RINGMQ_CRASH_SEEDS"

func crashSeeds(t *testing.T) []uint64 {
	t.Helper()
	seeds := []uint64{1, 2, 3, 4}
	if v := os.Getenv(crashSeedsEnv); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("%s=%q: want a number", crashSeedsEnv, v)
		}
		for range n {
			seeds = append(seeds, rand.Uint64())
		}
	}
	return seeds
}

// Errors of the checks, by which the proofs tell that the right one failed.
var (
	errLost     = errors.New("an acknowledged record is lost")
	errInvented = errors.New("a record is there that should not be")
	errQueues   = errors.New("queues and log disagree")
)

// ack is one record of a batch that was acknowledged as durable.
type ack struct {
	topic   string
	queueID int32
	body    string
	queue   message.QueueOffset
	log     message.LogOffset
	end     message.LogOffset // behind the record
	millis  int64
}

// moment is what a crash leaves: the tree, and what must be in it.
type moment struct {
	fs   *vfs.Mem
	must []ack
}

// crasher runs a workload over a Mem and takes its moments.
type crasher struct {
	cfg Config
	mem *vfs.Mem

	mu      sync.Mutex
	rng     *rand.Rand      // guarded by mu, as all below
	acks    []ack           // all there ever were
	allowed map[string]bool // bodies that may be found
	moments []moment
	serial  int
	before  int // acks of earlier lives
	bodyLen func(*rand.Rand) int
}

func crashConfig() Config {
	cfg := testConfig(nil)
	cfg.SyncFlush, cfg.SegmentBytes, cfg.ConsumeQueueBytes = true, 16<<10, 20*50
	cfg.BatchQueueBytes, cfg.BatchTopic = 46*7, batchTopicD
	return cfg
}

func newCrasher(seed uint64, cfg Config) *crasher {
	c := &crasher{cfg: cfg, mem: vfs.NewMem(), rng: rand.New(rand.NewPCG(seed, 99)), allowed: map[string]bool{}}
	c.bodyLen = func(rng *rand.Rand) int { return rng.IntN(2500) }
	return c
}

// life opens the store on the tree there is, checks it, runs the workload, and
// goes on with what a crash at one of the moments leaves.
func (c *crasher) life(wrap func(vfs.FS) vfs.FS, device commitDevice, work func(s *Store)) error {
	cfg := c.cfg
	cfg.FS, cfg.Device = wrap(c.mem), device
	s, err := Open(cfg)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	found, err := check(s, c.acks, c.allowed)
	if err != nil {
		return errors.Join(err, s.Close(context.Background()))
	}
	c.mu.Lock()
	c.allowed = found // what was cut stays away
	c.moments = nil
	c.mu.Unlock()
	work(s)
	if err := s.Close(context.Background()); err != nil {
		return err
	}
	for i, m := range c.moments {
		if err := c.checkMoment(m); err != nil {
			return fmt.Errorf("crash %d of %d: %w", i, len(c.moments), err)
		}
	}
	if len(c.moments) == 0 {
		return nil
	}
	last := c.moments[c.rng.IntN(len(c.moments))]
	c.mem, c.acks = last.fs, last.must
	return nil
}

// commitDevice is the Device a Config takes.
type commitDevice = flush.Device

// checkMoment opens what one crash leaves, checks it, and puts to it.
func (c *crasher) checkMoment(m moment) error {
	cfg := c.cfg
	cfg.FS = m.fs.CrashClone(vfs.CrashPolicy{}, nil) // all in it is durable: a copy
	s, err := Open(cfg)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	_, err = check(s, m.must, c.allowed)
	if err == nil {
		err = putsGoOn(s)
	}
	return errors.Join(err, s.Close(context.Background()))
}

// check compares a store with what was acknowledged and what was put, and gives
// the bodies found.
func check(s *Store, acks []ack, allowed map[string]bool) (map[string]bool, error) {
	for _, a := range acks {
		rec, err := s.ByOffset(a.log)
		if err != nil {
			return nil, fmt.Errorf("%w: %.12s of %s-%d at %d: %w", errLost, a.body, a.topic, a.queueID, a.log, err)
		}
		if _, _, err := message.Check(rec, a.log, true); err != nil {
			return nil, fmt.Errorf("%w: %.12s at %d: %w", errLost, a.body, a.log, err)
		}
		if string(message.BodyOf(rec)) != a.body || string(message.TopicOf(rec)) != a.topic || message.QueueIDOf(rec) != a.queueID ||
			message.QueueOffsetOf(rec) != a.queue || message.StoreMillisOf(rec) != a.millis {
			return nil, fmt.Errorf("%w: at %d there is %.12s, want %.12s", errLost, a.log, message.BodyOf(rec), a.body)
		}
		if a.log%7 == 0 { // the index too, for some
			recs, _, _, err := s.QueryByKey(a.topic, keyOf(a.body), 9, math.MaxInt, 0, math.MaxInt64)
			if err != nil || len(recs) != 1 || string(message.BodyOf(recs[0])) != a.body {
				return nil, fmt.Errorf("%w: key %s found %d records: %v", errLost, keyOf(a.body), len(recs), err)
			}
		}
	}
	found := map[string]bool{}
	perQueue := map[*consumequeue.Queue]message.QueueOffset{}
	err := s.Scan(0, func(off message.LogOffset, rec []byte) error {
		if _, _, err := message.Check(rec, off, true); err != nil {
			return fmt.Errorf("%w: at %d: %w", errInvented, off, err)
		}
		body := string(message.BodyOf(rec))
		if found[body] || !allowed[body] {
			return fmt.Errorf("%w: %.12s at %d (there twice: %v)", errInvented, body, off, found[body])
		}
		found[body] = true
		q := s.FindQueue(string(message.TopicOf(rec)), message.QueueIDOf(rec))
		if q == nil {
			return fmt.Errorf("%w: no queue for the record at %d", errQueues, off)
		}
		n := perQueue[q]
		var e [1]consumequeue.Entry
		if got, err := q.Read(e[:], n); err != nil || got != 1 {
			return fmt.Errorf("%w: %s-%d has no entry %d: %v", errQueues, q.Topic(), q.ID(), n, err)
		}
		if e[0].LogOffset != off || int(e[0].Size) != len(rec) || message.QueueOffsetOf(rec) != n || e[0].Messages() != message.QueueOffset(message.InnerNum(rec)) {
			return fmt.Errorf("%w: entry %d of %s-%d says %d, the record is %d at %d", errQueues, n, q.Topic(), q.ID(),
				e[0].LogOffset, message.QueueOffsetOf(rec), off)
		}
		if err := checkInner(q, rec, n, &e); err != nil {
			return err
		}
		perQueue[q] = n + e[0].Messages()
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.queues.Each(func(q *consumequeue.Queue) bool {
		if q.Max() != perQueue[q] {
			err = fmt.Errorf("%w: %s-%d ends at %d, the log has %d records of it", errQueues, q.Topic(), q.ID(), q.Max(), perQueue[q])
		}
		return err == nil
	})
	return found, err
}

// checkInner checks what an inner batch says of itself, and that it is found
// from each of its offsets.
func checkInner(q *consumequeue.Queue, rec []byte, n message.QueueOffset, e *[1]consumequeue.Entry) error {
	if q.Batch() != (q.Topic() == "D") {
		return fmt.Errorf("%w: %s-%d is of the wrong kind", errQueues, q.Topic(), q.ID())
	}
	if message.SysFlagOf(rec)&message.SysFlagInnerBatch == 0 {
		return nil
	}
	if base, _ := message.Property(message.PropertiesOf(rec), message.PropInnerBase); string(base) != fmt.Sprint(n) {
		return fmt.Errorf("%w: INNER_BASE of record %d of %s-%d is %s", errQueues, n, q.Topic(), q.ID(), base)
	}
	into := e[0].Messages() - 1
	if got, err := q.Read(e[:], n+into); err != nil || got != 1 || message.QueueOffset(e[0].Into) != into || e[0].Size != int32(len(rec)) {
		return fmt.Errorf("%w: %s-%d at %d gave %+v: %v", errQueues, q.Topic(), q.ID(), n+into, e[0], err)
	}
	return nil
}

func keyOf(body string) string {
	key, _, _ := strings.Cut(body, " ")
	return key
}

// putsGoOn puts a record to each of some queues, one old or not, and reads it.
func putsGoOn(s *Store) error {
	for q := range int32(2) {
		want := s.Queue("A", q).Max()
		b := newWaiter().put(s, one(s, "A", q, "goes on"))
		it := b.Items[0]
		if b.Err != nil || it.Status != OK || it.QueueOffset != want {
			return fmt.Errorf("put after the crash: %v %v, offset %d, want %d", it.Status, b.Err, it.QueueOffset, want)
		}
		rec, err := s.ByOffset(it.LogOffset)
		if err != nil || string(message.BodyOf(rec)) != "goes on" {
			return fmt.Errorf("record put after the crash: %v", err)
		}
	}
	return nil
}

// flight is a batch under way, its Completer, and what its records are.
type flight struct {
	c    *crasher
	b    Batch
	recs []ack
	ch   chan struct{}
}

// PutDone takes a moment.
func (f *flight) PutDone(b *Batch) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	defer close(f.ch)
	if !b.Wait || b.Err != nil {
		return
	}
	i := 0
	for _, it := range b.Items {
		recs, off, queue := b.Buf[it.Pos:it.Pos+it.Len], it.LogOffset, it.QueueOffset
		for len(recs) > 0 {
			a := &f.recs[i]
			size := message.Size(recs)
			a.queue, a.log, a.end, a.millis = queue, off, off+message.LogOffset(size), it.StoreMillis
			recs, off, queue, i = recs[size:], off+message.LogOffset(size), queue+1, i+1
		}
	}
	f.c.acks = append(f.c.acks, f.recs...)
	if !f.c.cfg.SyncFlush {
		return // an acknowledgement says nothing of the disk
	}
	f.c.take(vfs.CrashPolicy{})
	if f.c.rng.IntN(4) == 0 { // what was not synced may also be there, or torn
		f.c.take(vfs.CrashPolicy{Data: vfs.Fate(f.c.rng.IntN(3)), Entries: vfs.Fate(f.c.rng.IntN(3))})
	}
}

// take keeps what a crash now leaves; mu is held.
func (c *crasher) take(p vfs.CrashPolicy) {
	c.moments = append(c.moments, moment{c.mem.CrashClone(p, c.rng), c.acks[:len(c.acks):len(c.acks)]})
}

// launch makes a batch of up to three items, some of them of several records or
// inner batches, and puts it.
func (c *crasher) launch(s *Store) *flight {
	f := &flight{c: c, ch: make(chan struct{})}
	f.b.Done = f
	c.mu.Lock()
	f.b.Wait, f.b.MayDirect = c.rng.IntN(8) > 0, c.rng.IntN(3) == 0
	for range 1 + c.rng.IntN(3) {
		topic, queueID := string(rune('A'+c.rng.IntN(4))), int32(c.rng.IntN(3))
		pos := len(f.b.Buf)
		count := 1
		if c.rng.IntN(6) == 0 {
			count = 1 + c.rng.IntN(4)
		}
		inner := 0
		if topic == "D" && count == 1 && c.rng.IntN(5) > 0 {
			inner = 1 + c.rng.IntN(40)
		}
		for range count {
			c.serial++
			body := fmt.Sprintf("key%d ", c.serial)
			body += strings.Repeat("0123456789", 1+c.bodyLen(c.rng)/10)
			c.allowed[body] = true
			f.recs = append(f.recs, ack{topic: topic, queueID: queueID, body: body})
			if inner > 0 {
				f.b.Buf = innerRec(f.b.Buf, topic, queueID, body, inner, message.PropKeys, keyOf(body))
			} else {
				f.b.Buf = rec(f.b.Buf, topic, queueID, body, message.PropKeys, keyOf(body))
			}
		}
		f.b.Items = append(f.b.Items, Item{Pos: int32(pos), Len: int32(len(f.b.Buf) - pos), Count: int32(count), Inner: int32(inner), Queue: s.Queue(topic, queueID)})
	}
	c.mu.Unlock()
	s.Put(&f.b)
	return f
}

// random puts from three goroutines, some in flight together, with a sweep now
// and then.
func (c *crasher) random(s *Store) {
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var flying []*flight
			for range 8 {
				flying = append(flying, c.launch(s))
				c.mu.Lock()
				waits, sweeps := c.rng.IntN(2) == 0, c.rng.IntN(10) == 0
				c.mu.Unlock()
				if waits {
					<-flying[0].ch
					flying = flying[1:]
				}
				if sweeps {
					_ = s.sweep() // a failed one leaves the mark where it is
				}
			}
			for _, f := range flying {
				<-f.ch
			}
		})
	}
	wg.Wait()
}

func same(fs vfs.FS) vfs.FS { return fs }

// TestCrashAtEachAck is the suite's main test.
func TestCrashAtEachAck(t *testing.T) {
	for _, seed := range crashSeeds(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := newCrasher(seed, crashConfig())
			for life := range 4 {
				if err := c.life(same, flush.NewSyscall(), c.random); err != nil {
					t.Fatalf("seed %d, life %d: %v", seed, life, err)
				}
			}
		})
	}
}

// noSync is a Device without its sync.
type noSync struct{ flush.Device }

func (noSync) Sync([]vfs.File) error { return nil }

// without is an FS with one kind of call taken out.
type without struct {
	vfs.FS
	syncDir func(dir string) bool // where it does nothing
	zero    bool                  // ZeroRange does nothing
}

func (w without) SyncDir(dir string) error {
	if w.syncDir != nil && w.syncDir(dir) {
		return nil
	}
	return w.FS.SyncDir(dir)
}

func (w without) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := w.FS.Open(name, flag)
	if err == nil && w.zero {
		f = noZero{f}
	}
	return f, err
}

type noZero struct{ vfs.File }

func (noZero) ZeroRange(_, _ int64) error { return nil }

// rolled leaves out the names of all segments but the first.
func rolled(fs vfs.FS) vfs.FS {
	var mu sync.Mutex
	seen := 0
	return without{FS: fs, syncDir: func(dir string) bool {
		if !strings.Contains(dir, "commitlog") {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		seen++
		return seen > 3 // making the first one takes these
	}}
}

// The suite proves itself: with a sync taken out it finds records lost.
func TestCrashSuiteMissesNoSync(t *testing.T) {
	tests := map[string]struct {
		wrap   func(vfs.FS) vfs.FS
		device flush.Device
	}{
		"the sync of the log":       {same, noSync{flush.NewSyscall()}},
		"the names of new segments": {rolled, flush.NewSyscall()},
		"the name of the store": {func(fs vfs.FS) vfs.FS {
			return without{FS: fs, syncDir: func(dir string) bool { return dir == "/" }}
		}, flush.NewSyscall()},
		"the last file of each sync": {same, lessSync{flush.NewSyscall()}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCrasher(1, crashConfig())
			err := c.life(tc.wrap, tc.device, c.random)
			if err != nil && strings.Contains(err.Error(), "is missing between") {
				return // a whole segment, with others behind it: it does not even open
			}
			if !errors.Is(err, errLost) {
				t.Fatalf("without %s: %v, want %v", name, err, errLost)
			}
		})
	}
}

// lessSync forgets one file: the segment that was just begun.
type lessSync struct{ flush.Device }

func (d lessSync) Sync(files []vfs.File) error { return d.Device.Sync(files[:len(files)-1]) }

// holdDevice stops syncing when told, and lets Sync return when let go.
type holdDevice struct {
	flush.Device
	mu   sync.Mutex
	held chan struct{}
}

func (d *holdDevice) hold() (release func()) {
	ch := make(chan struct{})
	d.mu.Lock()
	d.held = ch
	d.mu.Unlock()
	return func() { close(ch) }
}

func (d *holdDevice) Sync(files []vfs.File) error {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if held != nil {
		<-held
	}
	return d.Device.Sync(files)
}

// twoCrashes puts records of one size, so that they take each other's places
// exactly: some acknowledged, some written and torn by the first crash. The
// next life puts fewer of them over the torn ones before the second crash. An
// intact record behind the torn one must not come back.
func twoCrashes(seed uint64, wrap func(vfs.FS) vfs.FS) error {
	cfg := crashConfig()
	now := time.UnixMilli(1_700_000_000_000)
	cfg.Now = func() time.Time { return now } // store times tell the lives not apart
	c := newCrasher(seed, cfg)
	put := func(s *Store, wait bool) *flight {
		f := &flight{c: c, ch: make(chan struct{})}
		f.b = Batch{Wait: true, Done: f}
		c.mu.Lock()
		c.serial++
		key := fmt.Sprintf("key%04d", c.serial)
		// 1024 bytes a record: two sectors, none shared.
		body := key + " " + strings.Repeat("x", 1023-len(rec(nil, "A", 0, key, message.PropKeys, key)))
		c.allowed[body] = true
		c.mu.Unlock()
		f.recs = []ack{{topic: "A", queueID: 0, body: body}}
		f.b.Buf = rec(nil, "A", 0, body, message.PropKeys, key)
		f.b.Items = []Item{{Len: int32(len(f.b.Buf)), Count: 1, Queue: s.Queue("A", 0)}}
		s.Put(&f.b)
		if wait {
			<-f.ch
		}
		return f
	}
	device := &holdDevice{Device: flush.NewSyscall()}
	err := c.life(wrap, device, func(s *Store) {
		for range 3 {
			put(s, true)
		}
		release := device.hold()
		var flying []*flight
		before := s.Marks().Written
		for range 5 {
			flying = append(flying, put(s, false))
		}
		for s.Marks().Written < before+5*1024 {
			time.Sleep(50 * time.Microsecond) // the appender writes them; the sync is held
		}
		c.mu.Lock()
		c.moments = nil
		c.take(vfs.CrashPolicy{Data: vfs.Torn, Entries: vfs.Kept})
		torn := c.moments[0]
		c.mu.Unlock()
		release()
		for _, f := range flying {
			<-f.ch
		}
		c.moments = []moment{torn}
	})
	if err != nil {
		return fmt.Errorf("first crash: %w", err)
	}
	for i := range 3 {
		err := c.life(wrap, flush.NewSyscall(), func(s *Store) {
			put(s, true)
			c.moments = c.moments[:1] // the crash right at its acknowledgement
		})
		if err != nil {
			return fmt.Errorf("crash %d: %w", i+2, err)
		}
	}
	return nil
}

func TestTwoCrashesInARow(t *testing.T) {
	const seeds = 40
	for seed := range uint64(seeds) {
		if err := twoCrashes(seed, same); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	// It proves itself: without the zeros behind a cut, records come back.
	back := 0
	for seed := range uint64(seeds) {
		err := twoCrashes(seed, func(fs vfs.FS) vfs.FS { return without{FS: fs, zero: true} })
		if errors.Is(err, errInvented) {
			back++
		} else if err != nil {
			t.Fatalf("seed %d without zeroing: %v, want %v", seed, err, errInvented)
		}
	}
	if back == 0 {
		t.Fatalf("without zeros behind a cut none of %d seeds brought a record back: the test sees nothing", seeds)
	}
}
