//go:build linux

// Package torture answers one question: does this machine's broker lose what it
// has acknowledged when it is killed?
//
// A round loads a SYNC_FLUSH broker of this binary over raw connections, kills
// it (SIGKILL) at a random moment, starts it again and reads back, as a client,
// everything that was stored in the round: each acknowledged message must be at
// the place its answer named, with the bytes it was sent with, and so must the
// consumer offset and the topic whose changes were answered. In some rounds the
// broker is killed a second time, while it recovers. At the end everything is
// read once more, the broker is stopped, and its files are verified.
//
// kill -9 proves recovery. It does not prove syncing: the kernel keeps what a
// dead process wrote. The crash suites of the store do that, over a file system
// that forgets; docs/testing.md names them.
//
// Goroutines: one for each request in flight, ended when the broker is killed.
package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringmq/ringmq/bench"
	"github.com/ringmq/ringmq/bench/process"
	"github.com/ringmq/ringmq/engine/inspect"
)

// A Config says what to do to which binary.
type Config struct {
	Binary   string        // ringmq; its command broker is started
	Dir      string        // store and logs, on the disk in question; must not exist or be empty
	Keep     bool          // leave Dir behind; it always stays after a loss
	Port     int           // of the broker; it takes Port-2 and Port+1 too
	Rounds   int           // kills
	Seed     uint64        // of moments and bodies; 0 picks one
	Conns    int           // connections
	InFlight int           // requests in flight on each
	KillMax  time.Duration // the longest a round's load lasts, from its first acknowledgement
	Progress io.Writer     // a line a round
}

func (c *Config) complete() error {
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Rounds < 1 || c.Conns < 1 || c.InFlight < 1 || c.KillMax < killMin {
		return fmt.Errorf("torture: want at least one round, connection and request in flight, and %v of load", killMin)
	}
	if entries, err := os.ReadDir(c.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("torture: %s is not empty: give a new directory", c.Dir)
	}
	return nil
}

const (
	killMin = 20 * time.Millisecond
	// Every so many rounds the broker is killed again while it starts.
	killAgainEvery = 5
	killAgainMax   = 40 * time.Millisecond
	// segmentBytes is small, so that kills meet changes of segment.
	segmentBytes = 8 << 20
	startMax     = 2 * time.Minute
)

// A Result is what a run has shown.
type Result struct {
	Seed         uint64          `json:"seed"`
	Rounds       int             `json:"rounds"`
	Kills        int             `json:"kills"`
	Acknowledged int             `json:"acknowledged"`
	Stored       int             `json:"stored"` // found at the end: what was stored and not answered too
	Refused      map[string]int  `json:"refused,omitempty"`
	Recovery     []time.Duration `json:"recoveryNanos"` // from the start of the process to its first accepted send
	Gaps         []time.Duration `json:"gapNanos"`      // from the last acknowledgement before a kill to the first after it
	Problems     []string        `json:"problems,omitempty"`
	Files        *inspect.Report `json:"files,omitempty"`
	Dir          string          `json:"dir"`
}

// OK says that nothing was lost.
func (r *Result) OK() bool { return len(r.Problems) == 0 }

// Print writes the result for people.
func (r *Result) Print(w io.Writer) error {
	for _, p := range r.Problems[:min(len(r.Problems), 20)] {
		fmt.Fprintln(w, "LOST:", p)
	}
	if len(r.Problems) > 20 {
		fmt.Fprintf(w, "… and %d more\n", len(r.Problems)-20)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Refused)) {
		fmt.Fprintf(w, "refused  %d times %s\n", r.Refused[name], name)
	}
	verdict := "nothing that was acknowledged is lost"
	if !r.OK() {
		verdict = fmt.Sprintf("%d PROBLEMS; everything is left in %s", len(r.Problems), r.Dir)
	}
	_, err := fmt.Fprintf(w, `kills         %d in %d rounds, seed %d
acknowledged  %d messages, %d stored
recovery      p50 %v, longest %v, from the process's start to its first accepted send
largest gap   %v without an acknowledgement
%s
`, r.Kills, r.Rounds, r.Seed, r.Acknowledged, r.Stored, median(r.Recovery), longest(r.Recovery), longest(r.Gaps), verdict)
	return err
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return s[len(s)/2].Round(time.Millisecond)
}

func longest(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Max(d).Round(time.Millisecond)
}

// Run does all rounds, or ends at the first loss. The error is about what kept
// it from going on; a loss is in the result.
func Run(ctx context.Context, cfg Config) (res *Result, err error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	t := &torture{cfg: &cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0)), told: newTold(cfg.Seed),
		res: &Result{Seed: cfg.Seed, Refused: map[string]int{}, Dir: cfg.Dir}}
	defer func() { err = errors.Join(err, t.broker.Stop()) }()
	if err := t.prepare(ctx); err != nil {
		return t.res, err
	}
	for round := range cfg.Rounds {
		if err := t.round(ctx, round); err != nil {
			return t.res, fmt.Errorf("round %d: %w", round+1, err)
		}
		if !t.res.OK() {
			return t.res, nil
		}
	}
	if err := t.finish(ctx); err != nil {
		return t.res, err
	}
	if t.res.OK() && !cfg.Keep {
		return t.res, os.RemoveAll(cfg.Dir)
	}
	return t.res, nil
}

// torture is a run.
type torture struct {
	cfg    *Config
	rng    *rand.Rand
	conf   string
	broker *process.Process
	told   *told
	res    *Result
	read   [queues]int64 // per queue: everything below was read back

	committed int64 // highest consumer offset that was answered for
	topics    []int // per round: topics that were answered for
}

func (t *torture) addr() string { return fmt.Sprintf("127.0.0.1:%d", t.cfg.Port) }

func (t *torture) prepare(ctx context.Context) error {
	if err := os.MkdirAll(t.cfg.Dir, 0o755); err != nil {
		return err
	}
	if bench.Listening(ctx, t.addr()) == nil {
		return fmt.Errorf("torture: something listens on %s already: give another --port", t.addr())
	}
	store := filepath.Join(t.cfg.Dir, "store")
	t.conf = filepath.Join(t.cfg.Dir, "broker.conf")
	text := fmt.Sprintf(`brokerName=torture
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort=%d
storePathRootDir=%s
storePathCommitLog=%s
mappedFileSizeCommitLog=%d
flushDiskType=SYNC_FLUSH
`, t.cfg.Port, store, filepath.Join(store, "commitlog"), segmentBytes)
	if err := os.WriteFile(t.conf, []byte(text), 0o644); err != nil {
		return err
	}
	if _, err := t.start(ctx); err != nil {
		return err
	}
	return bench.CreateTopic(ctx, &bench.Options{Addr: t.addr(), Topic: topic, Queues: queues})
}

// launch starts the broker's process.
func (t *torture) launch() error {
	cmd := exec.Command(t.cfg.Binary, "broker", "-c", t.conf)
	cmd.Env = process.CleanEnv()
	var err error
	t.broker, err = process.Start(cmd, filepath.Join(t.cfg.Dir, "broker.out"))
	return err
}

// start starts the broker and says how long it took until it accepted a send.
func (t *torture) start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := t.launch(); err != nil {
		return 0, err
	}
	err := t.broker.Await(ctx, startMax, func() error {
		return bench.SendOne(ctx, &bench.Options{Addr: t.addr(), Topic: "TortureStart", Broker: "torture"})
	})
	return time.Since(began), err
}

// round loads, kills, starts and reads back.
func (t *torture) round(ctx context.Context, round int) error {
	moment := killMin + time.Duration(t.rng.Int64N(int64(t.cfg.KillMax-killMin)+1))
	before := t.told.count()
	l, err := t.load(ctx, round)
	if err != nil {
		return err
	}
	l.killAfter(ctx, moment)
	if err := errors.Join(ctx.Err(), l.wait()); err != nil {
		return err
	}
	t.res.Kills++
	last := t.told.last()
	again := ""
	if round%killAgainEvery == killAgainEvery-1 {
		if err := t.launch(); err != nil {
			return err
		}
		after := time.Duration(t.rng.Int64N(int64(killAgainMax)))
		time.Sleep(after)
		if err := t.broker.Kill(); err != nil {
			return err
		}
		t.res.Kills++
		again = fmt.Sprintf(", and again %v into the start", after.Round(time.Millisecond))
	}
	back, err := t.start(ctx)
	if err != nil {
		return err
	}
	gap := time.Since(last)
	t.res.Rounds++
	t.res.Recovery = append(t.res.Recovery, back)
	t.res.Gaps = append(t.res.Gaps, gap)
	n, err := t.readBack(ctx, &t.read)
	if err != nil {
		return err
	}
	if err := t.checkTables(ctx, round); err != nil {
		return err
	}
	t.res.Acknowledged = t.told.count()
	t.res.Refused = t.told.refusals()
	fmt.Fprintf(t.cfg.Progress, "round %d: killed after %v%s, %d acknowledged; accepts sends %v after its start; %d stored, all that was acknowledged is there\n",
		round+1, moment.Round(time.Millisecond), again, t.res.Acknowledged-before, back.Round(time.Millisecond), n)
	return nil
}

// finish reads everything once more, stops the broker and verifies its files.
func (t *torture) finish(ctx context.Context) (err error) {
	var all [queues]int64
	if t.res.Stored, err = t.readBack(ctx, &all); err != nil {
		return err
	}
	if err := t.broker.Stop(); err != nil {
		return err
	}
	t.res.Files, err = inspect.Verify(ctx, inspect.Config{Dir: filepath.Join(t.cfg.Dir, "store")})
	if err != nil {
		return err
	}
	for _, f := range t.res.Files.Findings {
		if f.Severity == inspect.Damage {
			t.problem("%s", f)
		}
	}
	return nil
}

func (t *torture) problem(format string, args ...any) {
	t.res.Problems = append(t.res.Problems, fmt.Sprintf(format, args...))
}
