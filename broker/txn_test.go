package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// inTxnWorld runs a test in a world of its own, with a clock of its own.
func inTxnWorld(t *testing.T, change func(*Config), test func(t *testing.T, w *txnWorld)) {
	synctest.Test(t, func(t *testing.T) {
		w := newTxnWorld(t, vfs.NewMem(), change)
		defer w.close()
		test(t, w)
	})
}

func TestCommit(t *testing.T) {
	inTxnWorld(t, nil, func(t *testing.T, w *txnWorld) {
		h := w.send("x")
		w.want("T", 1)
		_, m := w.got(meta.HalfTopic, 0)
		props(t, &m, map[string]string{"REAL_TOPIC": "T", "REAL_QID": "1", "__transactionId__": "x", "TRAN_MSG": "true", "PGROUP": "pg"})
		if m.SysFlag&message.SysFlagTransactionMask != 0 {
			t.Errorf("half message's sysFlag %#x", m.SysFlag)
		}
		w.mustEnd(h, commitIt)
		w.want("T", 1, "x")
		_, m = w.got("T", 1)
		props(t, &m, map[string]string{"REAL_TOPIC": "T", "REAL_QID": "1", "TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "x", "TAGS": "tag"})
		if m.SysFlag&message.SysFlagTransactionMask != commitIt || m.PreparedTransactionOffset != h.at || m.QueueOffset != 0 || m.QueueID != 1 || m.Flag != 7 {
			t.Errorf("committed %+v", m)
		}
		var res engine.GetResult
		w.b.store.Get(&engine.GetRequest{Queue: w.b.store.FindQueue("T", 1), MaxMsgs: 1, Filter: mustFilter(t, "tag")}, &res)
		if res.Status != engine.Found {
			t.Errorf("a committed message is not found by its tag: %v", res.Status)
		}
		res.Release()
		w.refused(h, commitIt, remoting.SystemError, "was committed before")
		w.refused(h, rollItBack, remoting.SystemError, "was committed before")
		w.want("T", 1, "x")
		w.wantStats(TransactionStats{Committed: 1, Refused: 2})
		// Its op record comes with others, in time.
		w.want(meta.OpHalfTopic, 0)
		time.Sleep(4 * time.Second)
		w.want(meta.OpHalfTopic, 0, "0,")
		_, m = w.got(meta.OpHalfTopic, 0)
		props(t, &m, map[string]string{"TAGS": "d"})
		time.Sleep(time.Hour)
		if c := w.checks(); len(c) > 0 {
			t.Errorf("%d checks of a committed message", len(c))
		}
	})
}

func TestRollback(t *testing.T) {
	inTxnWorld(t, nil, func(t *testing.T, w *txnWorld) {
		h := w.send("x")
		began := time.Now()
		w.mustEnd(h, rollItBack)
		if took := time.Since(began); took > time.Second {
			t.Errorf("an answer that is waited for took %v", took)
		}
		w.want(meta.OpHalfTopic, 0, "0,")
		w.refused(h, commitIt, remoting.SystemError, "was rolled back before")
		w.want("T", 1)
		time.Sleep(time.Hour)
		if c := w.checks(); len(c) > 0 {
			t.Errorf("%d checks of what was rolled back", len(c))
		}
		w.wantStats(TransactionStats{RolledBack: 1, Refused: 1})
	})
}

func TestEndRefusals(t *testing.T) {
	inTxnWorld(t, nil, func(t *testing.T, w *txnWorld) {
		h := w.send("x")
		for _, tt := range []struct {
			name  string
			alter func(*sentHalf)
			words string
		}{
			{"wrong group", func(s *sentHalf) { s.group = "other" }, "got other, want pg"},
			{"wrong queue offset", func(s *sentHalf) { s.queue++ }, "got 1, want 0"},
			{"no record there", func(s *sentHalf) { s.at++ }, "find prepared transaction message failed"},
			{"negative", func(s *sentHalf) { s.at = -1 }, "find prepared transaction message failed"},
			{"far behind the log", func(s *sentHalf) { s.at = 1 << 60 }, "find prepared transaction message failed"},
		} {
			s := h
			s.body = tt.name
			tt.alter(&s)
			w.refused(s, commitIt, remoting.SystemError, tt.words)
		}
		w.scheduleWorld.store("T", 0, 0, nil, "ordinary")
		s := h
		s.at = 0
		for at := h.at; s.at == 0; at++ {
			if rec, err := w.b.store.ByOffset(at); err == nil && string(message.TopicOf(rec)) == "T" {
				s.at = at
			}
		}
		w.refused(s, commitIt, remoting.SystemError, "of topic T lies there")
		for _, how := range []int32{0, 4, 1 << 20} {
			if err := w.x.decide(&remoting.EndTransactionHeader{CommitOrRollback: how}, func(error) { t.Error("answered") }); err != nil {
				t.Errorf("%d: %v", how, err)
			}
		}
		w.wantStats(TransactionStats{Pending: 1, Refused: 6, Unknown: 3})
		w.mustEnd(h, commitIt)
		w.want("T", 1, "x")
	})
}

// A deleted topic, a bad target: the half message stays, and is checked on.
func TestCommitThatCantBe(t *testing.T) {
	inTxnWorld(t, nil, func(t *testing.T, w *txnWorld) {
		h := w.send("x")
		topic := w.b.topics.Find("T")
		w.b.topics.Delete("T")
		w.refused(h, commitIt, remoting.TopicNotExist, "stays undecided")
		w.wantStats(TransactionStats{Pending: 1, Refused: 1})
		w.b.topics.Put(topic)
		w.mustEnd(h, commitIt)
		w.want("T", 1, "x")
	})
}

// A delay begins at the commit.
func TestCommitWithDelay(t *testing.T) {
	inTxnWorld(t, nil, func(t *testing.T, w *txnWorld) {
		h, none := w.send("late", "DELAY=1"), w.send("now", "DELAY=0")
		time.Sleep(20 * time.Second)
		w.mustEnd(h, commitIt)
		w.mustEnd(none, commitIt)
		w.want("T", 1, "now")
		time.Sleep(9 * time.Second)
		w.want("T", 1, "now")
		time.Sleep(2 * time.Second)
		w.want("T", 1, "now", "late")
		_, m := w.got("T", 1)
		props(t, &m, map[string]string{"REAL_TOPIC": "T", "REAL_QID": "1", "TRAN_MSG": "", "PGROUP": "pg"})
	})
}

func TestImmunity(t *testing.T) {
	inTxnWorld(t, nil, func(t *testing.T, w *txnWorld) {
		long, short, bad := w.send("long", "CHECK_IMMUNITY_TIME_IN_SECONDS=100"), w.send("short", "CHECK_IMMUNITY_TIME_IN_SECONDS=1"), w.send("bad", "CHECK_IMMUNITY_TIME_IN_SECONDS=x")
		time.Sleep(31 * time.Second)
		var names []string
		for _, c := range w.checks() {
			s, _ := answer(&c)
			names = append(names, s.body)
		}
		if !slices.Equal(names, []string{"short", "bad"}) {
			t.Errorf("checked %q, want those without long immunity", names)
		}
		w.refused(short, commitIt, remoting.IllegalOperation, "CHECK_IMMUNITY_TIME")
		w.refused(bad, commitIt, remoting.IllegalOperation, "CHECK_IMMUNITY_TIME")
		if err := w.end(short, commitIt, true); err != nil {
			t.Errorf("answer to a check: %v", err)
		}
		w.mustEnd(long, commitIt)
		w.want("T", 1, "short", "long")
	})
}

// The schedule, the limit and what a check says.
func TestChecks(t *testing.T) {
	inTxnWorld(t, func(c *Config) { c.TransactionCheckMax = 3 }, func(t *testing.T, w *txnWorld) {
		first := w.send("x")
		time.Sleep(25 * time.Second)
		w.send("young") // 5 s old at the first round
		if c := w.checks(); len(c) > 0 {
			t.Errorf("%d checks before transactionCheckInterval", len(c))
		}
		for round := range 3 {
			time.Sleep(6 * time.Second)
			cs := w.checks()
			if want := min(round, 1) + 1; len(cs) != want {
				t.Fatalf("round %d: %d checks, want %d", round+1, len(cs), want)
			}
			s, m := answer(&cs[len(cs)-1])
			if round == 0 {
				var h remoting.CheckTransactionHeader
				if err := h.Decode(&cs[0]); err != nil {
					t.Fatal(err)
				}
				if h.Topic != meta.HalfTopic || h.MsgID != "x" || h.TransactionID != "x" || h.BrokerName != "b" || h.TranStateTableOffset != 2 ||
					h.OffsetMsgID != string(message.AppendOffsetID(nil, testAddr, s.at)) || !cs[0].IsOneway() || cs[0].Code != remoting.ReqCheckTransactionState {
					t.Errorf("check %+v, flag %d", h, cs[0].Flag)
				}
				if string(m.Topic) != "T" || m.QueueID != 1 || m.PhysicalOffset != s.at || m.QueueOffset != 2 || m.Flag != 7 || m.StoreMillis == 0 {
					t.Errorf("body of a check %+v", m)
				}
				props(t, &m, map[string]string{"PGROUP": "pg", "UNIQ_KEY": "x", "TRANSACTION_CHECK_TIMES": "1"})
				if s.at == first.at {
					t.Error("a check names the original")
				}
			}
			time.Sleep(24 * time.Second)
		}
		w.want("TRANS_CHECK_MAX_TIME_TOPIC", 0)
		time.Sleep(6 * time.Second)
		w.want("TRANS_CHECK_MAX_TIME_TOPIC", 0, "x")
		_, m := w.got("TRANS_CHECK_MAX_TIME_TOPIC", 0)
		props(t, &m, map[string]string{"TRANSACTION_CHECK_TIMES": "3", "REAL_TOPIC": "T", "TRAN_MSG": "true"})
		w.refused(first, commitIt, remoting.SystemError, "was given up")
		time.Sleep(time.Minute)
		w.want("TRANS_CHECK_MAX_TIME_TOPIC", 0, "x", "young")
		w.want("T", 1)
		w.wantStats(TransactionStats{Checks: 6, Asked: 6, GivenUp: 2, Refused: 1})
	})
}

// A producer may name the original or any copy; the first decision counts.
func TestLateDecisionOnTheOriginal(t *testing.T) {
	inTxnWorld(t, nil, func(t *testing.T, w *txnWorld) {
		first := w.send("x")
		time.Sleep(65 * time.Second)
		cs := w.checks()
		if len(cs) != 2 {
			t.Fatalf("%d checks, want 2", len(cs))
		}
		one, _ := answer(&cs[0])
		two, _ := answer(&cs[1])
		w.mustEnd(first, commitIt)
		w.refused(one, commitIt, remoting.SystemError, "was committed before")
		w.refused(two, rollItBack, remoting.SystemError, "was committed before")
		time.Sleep(time.Hour)
		w.want("T", 1, "x")
		if cs := w.checks(); len(cs) > 0 {
			t.Errorf("%d checks of what was committed by its original", len(cs))
		}
		// All entries are through: nothing is left for a restart.
		if half, op := w.saved(); half != 3 || op != int64(w.x.op.Max()) {
			t.Errorf("saved progress: got %d and %d, want 3 and %d", half, op, w.x.op.Max())
		}
	})
}

// Without a producer checks are counted as on Apache; while all producers are
// too busy to read they aren't.
func TestChecksWithoutProducer(t *testing.T) {
	inTxnWorld(t, func(c *Config) { c.TransactionCheckMax = 2 }, func(t *testing.T, w *txnWorld) {
		w.busy = true
		w.send("x")
		time.Sleep(10*time.Minute + 15*time.Second)
		w.wantStats(TransactionStats{Pending: 1})
		w.mu.Lock()
		w.busy, w.gone = false, true
		w.mu.Unlock()
		time.Sleep(65 * time.Second)
		w.wantStats(TransactionStats{Pending: 1, Checks: 2})
		time.Sleep(time.Minute)
		w.want("TRANS_CHECK_MAX_TIME_TOPIC", 0, "x")
		w.wantStats(TransactionStats{Checks: 2, GivenUp: 1})
	})
}

// A clock that is wrong by hours is no reason to ask at once, or to give up.
func TestWrongProducerClock(t *testing.T) {
	inTxnWorld(t, nil, func(t *testing.T, w *txnWorld) {
		time.Sleep(27 * time.Second)
		w.sendAt("ahead", time.Now().Add(10*time.Hour))
		w.sendAt("behind", time.Now().Add(-100*time.Hour))
		time.Sleep(4 * time.Second)
		cs := w.checks()
		if len(cs) != 1 {
			t.Fatalf("%d checks at 3 s, want that of the message that seems old", len(cs))
		}
		time.Sleep(30 * time.Second)
		if cs = w.checks(); len(cs) != 2 {
			t.Errorf("%d checks at 33 s, want both", len(cs))
		}
	})
}

func TestTooOld(t *testing.T) {
	inTxnWorld(t, func(c *Config) { c.FileReservedTime = time.Hour }, func(t *testing.T, w *txnWorld) {
		w.send("x", "CHECK_IMMUNITY_TIME_IN_SECONDS=100000")
		time.Sleep(59 * time.Minute)
		w.want("TRANS_CHECK_MAX_TIME_TOPIC", 0)
		time.Sleep(2 * time.Minute)
		w.want("TRANS_CHECK_MAX_TIME_TOPIC", 0, "x")
		w.wantStats(TransactionStats{GivenUp: 1})
	})
}

// Op records hold many decisions, each at most transactionOpMsgMaxSize long.
func TestOpBatches(t *testing.T) {
	inTxnWorld(t, func(c *Config) { c.TransactionOpMsgMaxSize = 32 }, func(t *testing.T, w *txnWorld) {
		for i := range 100 {
			w.mustEnd(w.send(fmt.Sprint("m", i)), commitIt)
		}
		time.Sleep(4 * time.Second)
		bodies, _ := w.got(meta.OpHalfTopic, 0)
		next := 0
		for _, body := range bodies {
			if len(body) > 32 || !strings.HasSuffix(body, ",") {
				t.Errorf("op record %q", body)
			}
			for _, n := range strings.Split(strings.TrimSuffix(body, ","), ",") {
				if n != fmt.Sprint(next) {
					t.Errorf("op record names %s, want %d", n, next)
				}
				next++
			}
		}
		if next != 100 || len(bodies) > 50 {
			t.Errorf("%d op records name %d half messages, want 100 in few", len(bodies), next)
		}
		time.Sleep(2 * progressInterval) // a snapshot, then what it is once durable
		if half, op := w.saved(); half != 100 || op != int64(len(bodies)) {
			t.Errorf("saved progress: got %d and %d, want 100 and %d", half, op, len(bodies))
		}
	})
}

// Two decisions at once: one is taken, the other refused, whatever they are.
func TestDecisionsAtOnce(t *testing.T) {
	inTxnWorld(t, nil, func(t *testing.T, w *txnWorld) {
		commits := 0
		for i := range 200 {
			h := w.send(fmt.Sprint(i))
			errs := make(chan error, 4)
			for k := range 4 {
				how := int32(commitIt)
				if k%2 == 1 {
					how = rollItBack
				}
				go func() { errs <- w.end(h, how, false) }()
			}
			ok := 0
			for range 4 {
				if err := <-errs; err == nil {
					ok++
				}
			}
			if ok != 1 {
				t.Fatalf("%d decisions were taken, want 1", ok)
			}
		}
		st := w.x.Stats()
		commits = int(st.Committed)
		if st.Committed+st.RolledBack != 200 || st.Refused != 600 {
			t.Errorf("counts %+v", st)
		}
		if got, _ := w.got("T", 1); len(got) != commits {
			t.Errorf("%d messages came of %d commits", len(got), commits)
		}
	})
}

// A random life: sends, decisions in time and late, checks that are answered or
// not, clean stops and crashes with all unsynced bytes lost, kept or torn. In the
// end each commit that was acknowledged is there once, nothing rolled back is,
// and what was never decided was given up, once.
func TestTransactionsAreExactlyOnceAcrossCrashes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	config := func(c *Config) {
		c.TransactionCheckMax, c.TransactionOpMsgMaxSize = 4, 64
		c.TransactionCheckInterval, c.TransactionTimeOut = 3*time.Second, time.Second
	}
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newTxnWorld(t, fs, config)
		var open []sentHalf
		decided := map[string]int32{} // acknowledged
		all := map[string]bool{}
		n := 0
		decide := func(s sentHalf, check bool) {
			how := int32(commitIt)
			if rng.IntN(3) == 0 {
				how = rollItBack
			}
			err := w.end(s, how, check)
			if err == nil {
				if old, twice := decided[s.body]; twice {
					t.Fatalf("seed %d: %s was decided twice: %d, %d", seed, s.body, old, how)
				}
				decided[s.body] = how
			}
		}
		for range 60 {
			for range rng.IntN(20) {
				var more []string
				if rng.IntN(4) == 0 {
					more = []string{"CHECK_IMMUNITY_TIME_IN_SECONDS=20"}
				}
				s := w.send(fmt.Sprint("m", n), more...)
				n++
				all[s.body] = true
				switch rng.IntN(3) {
				case 0:
					decide(s, false)
				case 1:
					open = append(open, s)
				}
			}
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			for _, c := range w.checks() {
				if s, _ := answer(&c); rng.IntN(3) == 0 {
					decide(s, true)
				}
			}
			for len(open) > 0 && rng.IntN(3) > 0 { // late, on the original, sometimes again
				decide(open[0], false)
				if rng.IntN(3) > 0 {
					open = open[1:]
				}
			}
			if rng.IntN(2) == 0 {
				policies := []vfs.CrashPolicy{{}, {Data: vfs.Kept, Entries: vfs.Kept}, {Data: vfs.Torn, Entries: vfs.Torn}}
				crashed := fs.CrashClone(policies[rng.IntN(len(policies))], rng)
				w.close()
				fs = crashed
			} else {
				w.close()
			}
			w.asked = nil
			w = newTxnWorld(t, fs, config)
		}
		time.Sleep(2 * time.Minute)
		if p := w.x.Stats().Pending; p != 0 {
			t.Errorf("seed %d: %d transactions never end", seed, p)
		}
		got, _ := w.got("T", 1)
		lost, _ := w.got("TRANS_CHECK_MAX_TIME_TOPIC", 0)
		count := map[string]int{}
		for _, body := range got {
			count[body]++
		}
		for _, body := range lost {
			count[body] += 1000
		}
		for body := range all {
			want := map[int32]int{commitIt: 1, rollItBack: 0, 0: 1000}[decided[body]]
			if count[body] != want {
				t.Errorf("seed %d: %s, decided %d, is there %d times, want %d", seed, body, decided[body], count[body], want)
			}
		}
		w.close()
	})
}

// A crash after each step of a commit, of a check and of a giving-up.
func TestCrashBetweenEndAndOpRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newTxnWorld(t, fs, func(c *Config) { c.TransactionCheckMax = 1 })
		c, r, p := w.send("committed"), w.send("rolled back"), w.send("pending")
		w.mustEnd(r, rollItBack)
		w.mustEnd(c, commitIt)
		w.want(meta.OpHalfTopic, 0, "1,")
		crashed := fs.CrashClone(vfs.CrashPolicy{}, nil)
		w.close()
		w = newTxnWorld(t, crashed, func(c *Config) { c.TransactionCheckMax = 1 })
		w.wantStats(TransactionStats{Pending: 1})
		w.refused(c, commitIt, remoting.SystemError, "was committed before")
		w.refused(r, commitIt, remoting.SystemError, "not pending")
		time.Sleep(31 * time.Second) // a copy of the pending one
		crashed = w.fs.CrashClone(vfs.CrashPolicy{}, nil)
		w.close()
		w = newTxnWorld(t, crashed, func(c *Config) { c.TransactionCheckMax = 1 })
		w.wantStats(TransactionStats{Pending: 1})
		time.Sleep(30*time.Second + time.Millisecond) // given up
		w.want("TRANS_CHECK_MAX_TIME_TOPIC", 0, "pending")
		crashed = w.fs.CrashClone(vfs.CrashPolicy{}, nil)
		w.close()
		w = newTxnWorld(t, crashed, func(c *Config) { c.TransactionCheckMax = 1 })
		w.wantStats(TransactionStats{})
		w.refused(p, commitIt, remoting.SystemError, "before")
		w.want("T", 1, "committed")
		w.want("TRANS_CHECK_MAX_TIME_TOPIC", 0, "pending")
		w.close()
	})
}

// What is not durable doesn't count as progress.
func TestProgressNeverLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		async := engine.Config{FlushInterval: time.Minute}
		w := newTxnWorldOver(t, fs, nil, async)
		h := w.send("x")
		time.Sleep(70 * time.Second) // durable
		w.mustEnd(h, commitIt)
		time.Sleep(5 * time.Second)
		w.want(meta.OpHalfTopic, 0, "0,", "1,", "2,") // with those of two copies
		crashed := fs.CrashClone(vfs.CrashPolicy{}, nil)
		w.close()
		w = newTxnWorldOver(t, crashed, nil, async)
		w.wantStats(TransactionStats{Pending: 1})
		w.mustEnd(h, commitIt)
		w.want("T", 1, "x")
		w.close()
	})
}

func scanFrom(x *transactions) message.LogOffset {
	x.lock()
	defer x.mu.Unlock()
	return x.scanFrom
}

// While half messages wait for long, a start needn't scan all of the log since.
func TestScanIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newTxnWorld(t, fs, nil)
		w.x.lock()
		w.x.scanMax = 10_000
		w.x.mu.Unlock()
		h := w.send("x", "CHECK_IMMUNITY_TIME_IN_SECONDS=100000")
		for range 20 {
			w.scheduleWorld.store("T", 0, 0, nil, strings.Repeat("x", 1000))
			time.Sleep(time.Second)
		}
		w.want(meta.OpHalfTopic, 0, "-1,", "-1,") // after 10,000 bytes each
		from := scanFrom(w.x)
		if from < h.at+20_000 {
			t.Errorf("a start would scan from %d", from)
		}
		crashed := fs.CrashClone(vfs.CrashPolicy{}, nil)
		w.close()
		w = newTxnWorld(t, crashed, nil)
		if got := scanFrom(w.x); got != from {
			t.Errorf("the start scanned from %d, want %d", got, from)
		}
		w.wantStats(TransactionStats{Pending: 1})
		w.mustEnd(h, commitIt)
		w.want("T", 1, "x")
		w.close()
	})
}

// A store that Apache's broker had meanwhile: its copies bear no origin, but for
// those made while the checking time hasn't come, which name their first half
// message; producers name that one too.
func TestHalvesOfApache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		w := newTxnWorld(t, fs, nil)
		var first []sentHalf
		for i := range 5 {
			first = append(first, w.send(fmt.Sprint("m", i), "CHECK_IMMUNITY_TIME_IN_SECONDS=1000"))
		}
		copyOf := func(s sentHalf) {
			rec, err := w.b.store.ByOffset(s.at)
			if err != nil {
				t.Fatal(err)
			}
			p := setProperty(message.PropertiesOf(rec), message.PropTranPreparedQueueOffset, fmt.Sprint(s.queue))
			w.scheduleWorld.store(meta.HalfTopic, 0, 0, p, s.body)
		}
		op := func(body string) {
			w.scheduleWorld.store(meta.OpHalfTopic, 0, 0, message.AppendProperty(nil, message.PropTags, "d"), body)
		}
		w.mustEnd(first[4], commitIt) // after which Apache's broker copies it once more
		w.close()
		w = newTxnWorld(t, fs, nil)
		for _, s := range first {
			copyOf(s)
		}
		op("1,") // decided by its first
		op("7")  // by its copy, as 4.x writes it
		w.x.close()
		w.b.offsets.Commit([]byte(meta.HalfTopic), []byte(transGroup), 0, 5)
		w.b.offsets.Commit([]byte(meta.OpHalfTopic), []byte(transGroup), 0, 1)
		w.b.transactions = newTransactions(w.b)
		w.x = w.b.transactions
		if err := w.x.recover(); err != nil {
			t.Fatal(err)
		}
		w.x.start()
		w.wantStats(TransactionStats{Pending: 2}) // m0 and m3
		w.mustEnd(first[0], commitIt)
		w.refused(first[0], rollItBack, remoting.SystemError, "was committed before")
		for _, i := range []int{1, 2, 4} {
			w.refused(first[i], commitIt, remoting.SystemError, "before")
		}
		w.mustEnd(first[3], rollItBack)
		w.wantStats(TransactionStats{Committed: 1, RolledBack: 1, Refused: 4})
		w.want("T", 1, "m4", "m0")
		w.close()
	})
}
