//go:build linux

package compare

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmq/ringmq/bench"
)

func TestFairnessReport(t *testing.T) {
	load := func(p50, p99 float64) *bench.Result { return &bench.Result{Latency: bench.Latency{P50: p50, P99: p99}} }
	f := &fairness{c: &FairnessConfig{Rounds: 3, Duration: 8 * time.Second, Warmup: time.Second, Rate: 500, ColdGB: 5, Note: "A note."},
		own: []int{0}, apart: []int{1}, max: 100_000}
	for round, noise := range []float64{1, 50, 1} { // the median leaves the loud round out
		f.measured = append(f.measured,
			pressed{Load: "quiet", Round: round, Send: load(50, 100*noise), EndToEnd: load(60, 200*noise)},
			pressed{Load: "flood", Round: round, Send: load(70, 250*noise), EndToEnd: load(90, 400*noise), Other: &bench.Result{MessagesPerSecond: 50_000}},
			pressed{Load: "cold", Round: round, Send: load(70, 120*noise), EndToEnd: load(90, 700*noise),
				Other: &bench.Result{MBPerSecond: 300, Seconds: 7}, Resident: 0.25})
	}
	text := f.markdown(&Report{Begun: time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)})
	for _, want := range []string{
		"# Fairness, 2026-11-30 20:00", "A note.",
		"| nothing | 50 | 100 | | 60 | 200 |",
		"a flood of 50000 messages a second on another topic | 70 | 250 | 2.5 | 90 | 400 | 2.0 | ≤ 3 × | yes |",
		"catches up on 5 GB, 300 MB/s | 70 | 120 | 1.2 | 90 | 700 | 3.5 | ≤ 3 × | **no** |",
		"over after 7.0 s", "25 % of the log could not be dropped",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

func TestFairnessConfig(t *testing.T) {
	good := FairnessConfig{Rounds: 1, Duration: time.Second, Rate: 1, ColdGB: 1, Ports: 26000}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*FairnessConfig){
		func(c *FairnessConfig) { c.Rounds = 0 }, func(c *FairnessConfig) { c.Duration = 0 }, func(c *FairnessConfig) { c.Rate = 0 },
		func(c *FairnessConfig) { c.ColdGB = 0 }, func(c *FairnessConfig) { c.Ports = 80 },
	} {
		c := good
		if change(&c); c.validate() == nil {
			t.Errorf("accepted: %+v", c)
		}
	}
}

func TestPinned(t *testing.T) {
	own, apart, err := processors()
	if err != nil {
		t.Skip(err)
	}
	for _, i := range own {
		if slices.Contains(apart, i) {
			t.Errorf("processor %d is the broker's and the generators'", i)
		}
	}
	if err := pinned(apart, 0, func() error {
		var now unix.CPUSet
		if err := unix.SchedGetaffinity(0, &now); err != nil {
			return err
		}
		if now.Count() != len(apart) || !now.IsSet(apart[0]) {
			t.Errorf("runs on %d processors, want %v", now.Count(), apart)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestDropFile: a file that was just written leaves the page cache, where its
// file system has one to leave; what stays is counted.
func TestDropFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 64*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	in, all, err := dropFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if all != 64 || in > all {
		t.Errorf("%d of %d pages, want at most all of 64", in, all)
	}
	if _, _, err := dropFile(name + "x"); err == nil {
		t.Error("a file that isn't there was dropped")
	}
}
