//go:build linux

package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringmq/ringmq/bench"
)

// Config says what to compare, how long, and where to write.
type Config struct {
	Jars     string        // directory of Apache's jars; fetched with Maven when empty or missing
	Binary   string        // ringmq
	Dir      string        // scratch: stores and outputs, removed at the end
	Out      string        // directory of the results
	Heap     string        // Apache's broker heap
	Rounds   int           // each round runs both systems
	Duration time.Duration // of one load
	Warmup   time.Duration // before each load
	Settle   time.Duration // before memory is looked at
	Ports    int           // first port
	Measures []string      // keys; empty: all
	Systems  []string      // Apache, Ringmq; empty: both
	Progress io.Writer     // one line a measure
}

// Keys lists the measures by name.
func Keys() (keys []string) {
	for _, m := range measures() {
		keys = append(keys, m.key)
	}
	return keys
}

func (c *Config) validate() error {
	if c.Rounds < 1 || c.Duration <= 0 || c.Ports < 1024 || c.Ports > 32000 {
		return fmt.Errorf("compare: got %d rounds of %v on ports from %d, want at least one, above 0, in [1024, 32000]", c.Rounds, c.Duration, c.Ports)
	}
	for _, k := range c.Measures {
		if !slices.Contains(Keys(), k) {
			return fmt.Errorf("compare: measure %q: want some of %s", k, strings.Join(Keys(), ", "))
		}
	}
	for _, s := range c.Systems {
		if s != Apache && s != Ringmq {
			return fmt.Errorf("compare: system %q: want %s or %s", s, Apache, Ringmq)
		}
	}
	return nil
}

// run is one comparison.
type run struct {
	cfg     *Config
	systems []*system
	report  *Report
	round   int
	key     string // of the measure that runs
}

// Run compares and returns the report, which it has also written to c.Out (as
// .md and .json) when that is set.
func Run(ctx context.Context, c Config) (rep *Report, err error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	// The systems' directories are removed as they stop; what others left stays.
	defer func() {
		_ = os.Remove(filepath.Join(c.Dir, pageCacheFile))
		_ = os.Remove(c.Dir) // fails where it is not empty: right
	}()
	r := &run{cfg: &c}
	if len(c.Systems) == 0 || slices.Contains(c.Systems, Apache) {
		if c.Jars, err = fetchJars(ctx, c.Jars, c.Progress); err != nil {
			return nil, err
		}
		r.systems = append(r.systems, apacheSystem(filepath.Join(c.Dir, Apache), c.Jars, c.Heap, c.Ports))
	}
	if len(c.Systems) == 0 || slices.Contains(c.Systems, Ringmq) {
		r.systems = append(r.systems, ringmqSystem(filepath.Join(c.Dir, Ringmq), c.Binary, c.Ports))
	}
	if r.report, err = newReport(&c); err != nil {
		return nil, err
	}
	for r.round = range c.Rounds {
		order := slices.Clone(r.systems)
		if r.round%2 == 1 { // so that neither always runs on the warmer machine
			slices.Reverse(order)
		}
		for _, sync := range []bool{false, true} {
			for _, s := range order {
				if err := r.phase(ctx, s, sync); err != nil {
					return nil, fmt.Errorf("round %d: %w", r.round+1, err)
				}
			}
		}
	}
	return r.report, r.report.Write(c.Out)
}

// wanted lists the measures of one phase.
func (r *run) wanted(sync bool) (ms []measure) {
	for _, m := range measures() {
		if m.sync == sync && (len(r.cfg.Measures) == 0 || slices.Contains(r.cfg.Measures, m.key)) && !(m.once && r.round > 0) {
			ms = append(ms, m)
		}
	}
	return ms
}

// phase runs one system with one flush mode through its measures.
func (r *run) phase(ctx context.Context, s *system, sync bool) (err error) {
	ms := r.wanted(sync)
	if len(ms) == 0 {
		return nil
	}
	if err := fillPageCache(ctx, r.cfg.Dir); err != nil {
		return err
	}
	took, err := s.start(ctx, sync, true)
	defer func() { err = errors.Join(err, s.stop(), os.RemoveAll(s.dir)) }()
	if err != nil {
		return err
	}
	o := r.options(s)
	if err := bench.CreateTopic(ctx, &o); err != nil {
		return err
	}
	warm := false
	for i := range ms {
		m := &ms[i]
		r.key = m.key
		if m.run == nil { // the start was measured already
			r.take(s, m, values{"seconds": took.Seconds()}, nil)
			continue
		}
		if !warm && m.key != "idle" {
			warm = true
			if err := r.warm(ctx, s); err != nil {
				return err
			}
		}
		v, err := m.run(ctx, r, s)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.take(s, m, v, err)
	}
	return nil
}

// warm lets a JVM compile before anything counts; both systems get it.
func (r *run) warm(ctx context.Context, s *system) error {
	o := r.options(s)
	o.PID, o.Dir, o.Warmup, o.Duration = 0, "", 0, 2*r.cfg.Warmup
	o.Conns, o.InFlight = 8, 32
	if o.Duration == 0 {
		return nil
	}
	_, err := bench.Send(ctx, o)
	return err
}

// options are what all loads on s share.
func (r *run) options(s *system) bench.Options {
	o := bench.Options{Addr: s.addr(), Namesrv: s.namesrvAddr(), PID: s.pid(), NamesrvPID: s.namesrv.PID(), Dir: s.dir,
		Duration: r.cfg.Duration, Warmup: r.cfg.Warmup}
	o.Defaults()
	return o
}

// keep stores a load's whole result in the report.
func (r *run) keep(s *system, res *bench.Result) {
	r.report.Loads = append(r.report.Loads, Load{System: s.name, Measure: r.key, Round: r.round + 1, Result: res})
}

// take stores the figures of one measure, or why there are none.
func (r *run) take(s *system, m *measure, v values, err error) {
	f := Figures{System: s.name, Measure: m.key, Round: r.round + 1, Values: v, Invalid: invalid(m, v)}
	if err != nil {
		f.Invalid = err.Error()
	}
	r.report.Figures = append(r.report.Figures, f)
	if r.cfg.Progress != nil {
		_, _ = fmt.Fprintf(r.cfg.Progress, "%s  round %d  %-7s %-28s %s\n", time.Now().Format("15:04:05"), r.round+1, s.name, m.what, f.line(m))
	}
}

// allocated is the space a file takes on its device.
func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
