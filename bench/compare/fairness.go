//go:build linux

package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringmq/ringmq/bench"
)

// FairnessConfig says how hard one client presses while others are measured.
type FairnessConfig struct {
	Binary   string        // ringmq: the broker, and the generators
	Dir      string        // scratch: store and outputs, removed at the end
	Out      string        // directory of the results
	Rounds   int           // each measures quiet, flooded and with a cold reader
	Duration time.Duration // of one measurement
	Warmup   time.Duration // before each
	Rate     int           // messages a second of each of the two measured loads
	ColdGB   int           // what the cold reader has to catch up
	Ports    int           // first port
	Note     string        // about the machine, into the report
	Progress io.Writer     // one line a measurement
}

func (c *FairnessConfig) validate() error {
	if c.Rounds < 1 || c.Duration <= 0 || c.Rate < 1 || c.ColdGB < 1 || c.Ports < 1024 || c.Ports > 32000 {
		return fmt.Errorf("fairness: got %d rounds of %v at %d a second, %d GB, ports from %d: want at least one of each, ports in [1024, 32000]",
			c.Rounds, c.Duration, c.Rate, c.ColdGB, c.Ports)
	}
	return nil
}

// The topics of the loads.
const (
	fairSend  = "FairSend"
	fairE2E   = "FairE2E"
	fairFlood = "FairFlood"
	fairCold  = "FairCold"
)

// fairRecordBytes is about what a message of 1 KB takes in the log.
const fairRecordBytes = 1300

// A pressed is what the two measured loads saw beside one other load.
type pressed struct {
	Load     string        `json:"load"` // quiet, flood, cold
	Round    int           `json:"round"`
	Send     *bench.Result `json:"send"`
	EndToEnd *bench.Result `json:"endToEnd"`
	Other    *bench.Result `json:"other,omitempty"`         // the load beside them
	Resident float64       `json:"residentShare,omitempty"` // cold: of the log, still in memory when the reader begins
}

// fairness is one run.
type fairness struct {
	c        *FairnessConfig
	s        *system
	own      []int // processors of the broker
	apart    []int // of the generators
	max      float64
	measured []pressed
}

// Fairness starts a broker, and measures a low rate of sends and of messages
// end to end: alone, beside a flood at half of what the broker takes on another
// topic, and beside a consumer that catches up on messages which are not in
// memory. It returns the report, which it has also written to c.Out when that
// is set. Generators and broker have processors of their own.
func Fairness(ctx context.Context, c FairnessConfig) (report string, err error) {
	if err := c.validate(); err != nil {
		return "", err
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return "", fmt.Errorf("fairness: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", fmt.Errorf("fairness: %w", err)
	}
	defer func() {
		_ = os.Remove(filepath.Join(c.Dir, pageCacheFile))
		_ = os.Remove(c.Dir) // fails where others have left something: right
	}()
	f := &fairness{c: &c, s: ringmqSystem(filepath.Join(c.Dir, "fairness"), c.Binary, c.Ports)}
	if f.own, f.apart, err = processors(); err != nil {
		return "", err
	}
	if err := fillPageCache(ctx, c.Dir); err != nil {
		return "", err
	}
	err = pinned(f.own, 0, func() error { _, err := f.s.start(ctx, false, true); return err })
	defer func() { err = errors.Join(err, f.s.stop(), os.RemoveAll(f.s.dir)) }()
	if err != nil {
		return "", err
	}
	if err := f.run(ctx); err != nil {
		return "", err
	}
	machine, err := newReport(&Config{Dir: c.Dir, Binary: c.Binary, Rounds: c.Rounds, Duration: c.Duration})
	if err != nil {
		return "", err
	}
	return f.write(machine)
}

// processors shares out what this process may run on: a quarter, at least one,
// for the generators.
func processors() (own, apart []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, nil, fmt.Errorf("fairness: %w", err)
	}
	var all []int
	for i := 0; len(all) < set.Count(); i++ {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	if len(all) < 2 {
		return nil, nil, errors.New("fairness: one processor: generators and broker can't be kept apart")
	}
	n := max(1, len(all)/4)
	return all[:len(all)-n], all[len(all)-n:], nil
}

// probeNice is the niceness of what measures: it shares processors with the
// flood's generator, and must not wait for that to be scheduled.
const probeNice = -15

// pinned calls start on a thread that runs on the given processors only, and
// with that niceness where the system permits it: processes that it starts
// inherit both.
func pinned(processors []int, nice int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid()); err == nil && nice != 0 && unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice) == nil {
		// The system call gives 20 - nice, so that it's never negative.
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 20-raw) }()
	}
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("fairness: %w", err)
	}
	for _, i := range processors {
		set.Set(i)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("fairness: processors %v: %w", processors, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }() // what it was
	return start()
}

func (f *fairness) run(ctx context.Context) error {
	for topic, queues := range map[string]int{fairSend: 4, fairE2E: 4, fairFlood: 8, fairCold: 8} {
		o := bench.Options{Addr: f.s.addr(), Topic: topic, Queues: queues}
		if err := bench.CreateTopic(ctx, &o); err != nil {
			return err
		}
	}
	full, err := f.load(ctx, "send", fairFlood, "--conns=8", "--inflight=32", "--duration="+f.c.Duration.String(), "--warmup="+f.c.Warmup.String())
	if err != nil {
		return err
	}
	most := full.wait()
	if most.err != nil {
		return most.err
	}
	f.max = most.res.MessagesPerSecond
	f.say("most: %.0f messages a second", f.max)
	o := bench.Options{Addr: f.s.addr(), Topic: fairCold, Queues: 8}
	o.Defaults()
	if err := bench.Fill(ctx, o, f.c.ColdGB*1e9/fairRecordBytes); err != nil {
		return err
	}
	f.say("%d GB to catch up are stored", f.c.ColdGB)
	for round := range f.c.Rounds {
		for _, name := range []string{"quiet", "flood", "cold"} {
			if err := f.measure(ctx, round+1, name); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, name, err)
			}
		}
	}
	return nil
}

// measure runs the two measured loads beside one other.
func (f *fairness) measure(ctx context.Context, round int, name string) (err error) {
	p := pressed{Load: name, Round: round}
	var other *generator
	beside := f.c.Warmup + f.c.Duration + 2*time.Second
	switch name {
	case "flood":
		other, err = f.load(ctx, "send", fairFlood, "--conns=8", "--rate="+strconv.Itoa(int(f.max/2)), "--warmup=0s", "--duration="+beside.String())
	case "cold":
		if p.Resident, err = f.dropCache(); err != nil {
			return err
		}
		other, err = f.load(ctx, "pull", fairCold, "--conns=4", "--once", "--warmup=0s", "--duration="+(10*time.Minute).String())
	}
	if err != nil {
		return err
	}
	rate, window := "--rate="+strconv.Itoa(f.c.Rate), []string{"--duration=" + f.c.Duration.String(), "--warmup=" + f.c.Warmup.String()}
	send, err := f.probe(ctx, "send", fairSend, append(window, rate, "--conns=2", "--queues=4")...)
	if err != nil {
		return err
	}
	e2e, err := f.probe(ctx, "e2e", fairE2E, append(window, rate, "--conns=2", "--queues=4")...)
	if err != nil {
		return err
	}
	s, e := send.wait(), e2e.wait()
	p.Send, p.EndToEnd = s.res, e.res
	err = errors.Join(s.err, e.err)
	if other != nil {
		o := other.wait()
		p.Other, err = o.res, errors.Join(err, o.err)
	}
	if err != nil {
		return err
	}
	f.measured = append(f.measured, p)
	f.say("round %d  %-5s  send p99 %.0f µs, end to end p99 %.0f µs", round, name, p.Send.Latency.P99, p.EndToEnd.Latency.P99)
	return nil
}

// A generator is a load in a process of its own.
type generator struct {
	cmd      *exec.Cmd
	out, log bytes.Buffer
}

// load starts `ringmq bench MODE` on the generators' processors.
func (f *fairness) load(ctx context.Context, mode, topic string, flags ...string) (*generator, error) {
	return f.generate(ctx, 0, mode, topic, flags)
}

// probe is load for what measures: before the others on their processors.
func (f *fairness) probe(ctx context.Context, mode, topic string, flags ...string) (*generator, error) {
	return f.generate(ctx, probeNice, mode, topic, flags)
}

func (f *fairness) generate(ctx context.Context, nice int, mode, topic string, flags []string) (*generator, error) {
	g := &generator{cmd: exec.CommandContext(ctx, f.c.Binary, append([]string{"bench", mode, "--output=json", "--create=false",
		"--addr=" + f.s.addr(), "--topic=" + topic}, flags...)...)}
	g.cmd.Stdout, g.cmd.Stderr = &g.out, &g.log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // never left behind
	return g, pinned(f.apart, nice, g.cmd.Start)
}

type outcome struct {
	res *bench.Result
	err error
}

// wait waits for the load's end and reads what it saw.
func (g *generator) wait() outcome {
	if err := g.cmd.Wait(); err != nil {
		return outcome{err: fmt.Errorf("fairness: %s: %w: %s", g.cmd.Args[2], err, g.log.String())}
	}
	res := new(bench.Result)
	if err := json.Unmarshal(g.out.Bytes(), res); err != nil {
		return outcome{err: fmt.Errorf("fairness: %s: %w", g.cmd.Args[2], err)}
	}
	if n := res.Refused(); n > 0 {
		return outcome{err: fmt.Errorf("fairness: %s: %d requests were refused: %v", g.cmd.Args[2], n, res.Refusals)}
	}
	return outcome{res: res}
}

// dropCache takes the log out of the page cache and says which share of it has
// stayed: pages that are mapped, or that the kernel would not give up.
func (f *fairness) dropCache() (resident float64, err error) {
	files, err := filepath.Glob(filepath.Join(f.s.store(), "commitlog", "[0-9]*"))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("fairness: no log in %s: %w", f.s.store(), err)
	}
	var in, all int64
	for _, name := range files {
		i, n, err := dropFile(name)
		if err != nil {
			return 0, fmt.Errorf("fairness: %s: %w", name, err)
		}
		in, all = in+i, all+n
	}
	return float64(in) / float64(max(all, 1)), nil
}

// dropFile counts in pages.
func dropFile(name string) (in, all int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil || st.Size() == 0 {
		return 0, 0, err
	}
	fd := int(file.Fd())
	if err := unix.Fdatasync(fd); err != nil { // dirty pages stay
		return 0, 0, err
	}
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		return 0, 0, err
	}
	m, err := unix.Mmap(fd, 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(m)) }()
	pages := make([]byte, (len(m)+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		return 0, 0, errno
	}
	for _, p := range pages {
		in += int64(p & 1)
	}
	return in, int64(len(pages)), nil
}

func (f *fairness) say(format string, a ...any) {
	if f.c.Progress != nil {
		_, _ = fmt.Fprintf(f.c.Progress, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, a...))
	}
}
