//go:build linux

package compare

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringmq/ringmq/bench"
)

// fairFactor is the promise: a p99 is at most so many times the quiet one.
const fairFactor = 3

// fairFigures are the medians over the rounds of one load.
type fairFigures struct{ sendP50, sendP99, e2eP50, e2eP99, otherRate, otherMB, otherSeconds, resident float64 }

func (f *fairness) figures(load string) fairFigures {
	of := func(get func(p *pressed) float64) float64 {
		var v []float64
		for i := range f.measured {
			if f.measured[i].Load == load {
				v = append(v, get(&f.measured[i]))
			}
		}
		m, _ := median(v)
		return m
	}
	other := func(get func(r *bench.Result) float64) float64 {
		return of(func(p *pressed) float64 {
			if p.Other == nil {
				return 0
			}
			return get(p.Other)
		})
	}
	return fairFigures{
		sendP50:      of(func(p *pressed) float64 { return p.Send.Latency.P50 }),
		sendP99:      of(func(p *pressed) float64 { return p.Send.Latency.P99 }),
		e2eP50:       of(func(p *pressed) float64 { return p.EndToEnd.Latency.P50 }),
		e2eP99:       of(func(p *pressed) float64 { return p.EndToEnd.Latency.P99 }),
		otherRate:    other(func(r *bench.Result) float64 { return r.MessagesPerSecond }),
		otherMB:      other(func(r *bench.Result) float64 { return r.MBPerSecond }),
		otherSeconds: other(func(r *bench.Result) float64 { return r.Seconds }),
		resident:     of(func(p *pressed) float64 { return p.Resident }),
	}
}

// markdown is the report for people.
func (f *fairness) markdown(rep *Report) string {
	var b strings.Builder
	m := rep.Machine
	fmt.Fprintf(&b, "# Fairness, %s\n\n", rep.Begun.Format("2006-01-02 15:04"))
	fmt.Fprintf(&b, "%s, %d cores, %d GB, Linux %s, %s on %s. ringmq: %s. Broker on processors %v, generators on %v. %d rounds of %v, medians; "+
		"messages of 1 KB, ASYNC_FLUSH.", m.CPU, m.Cores, m.MemoryGB, m.Kernel, m.FileSystem, m.Device, m.Ringmq, f.own, f.apart, f.c.Rounds, f.c.Duration)
	if f.c.Note != "" {
		b.WriteString(" " + f.c.Note)
	}
	fmt.Fprintf(&b, "\n\nMeasured: sends at %d a second, and at %d a second messages from due to received by a held pull, each on a topic of its own. "+
		"The most the broker takes here: %.0f messages a second.\n\n", f.c.Rate, f.c.Rate, f.max)
	b.WriteString("| beside | send p50 µs | p99 µs | × quiet | end to end p50 µs | p99 µs | × quiet | promised | kept |\n|---|---:|---:|---:|---:|---:|---:|---|---|\n")
	quiet := f.figures("quiet")
	fmt.Fprintf(&b, "| nothing | %.0f | %.0f | | %.0f | %.0f | | | |\n", quiet.sendP50, quiet.sendP99, quiet.e2eP50, quiet.e2eP99)
	flood, cold := f.figures("flood"), f.figures("cold")
	f.line(&b, fmt.Sprintf("a flood of %.0f messages a second on another topic", flood.otherRate), quiet, flood)
	f.line(&b, fmt.Sprintf("a consumer that catches up on %d GB, %.0f MB/s", f.c.ColdGB, cold.otherMB), quiet, cold)
	if cold.otherSeconds < (f.c.Duration + f.c.Warmup).Seconds() {
		fmt.Fprintf(&b, "\nThe catch-up was over after %.1f s, before the measurement beside it was.\n", cold.otherSeconds)
	}
	if cold.resident > 0.01 {
		fmt.Fprintf(&b, "\n%.0f %% of the log could not be dropped from the page cache before the catch-up.\n", 100*cold.resident)
	}
	return b.String()
}

func (f *fairness) line(b *strings.Builder, what string, quiet, v fairFigures) {
	send, e2e := v.sendP99/quiet.sendP99, v.e2eP99/quiet.e2eP99
	kept := "yes"
	if send > fairFactor || e2e > fairFactor {
		kept = "**no**"
	}
	fmt.Fprintf(b, "| %s | %.0f | %.0f | %.1f | %.0f | %.0f | %.1f | ≤ %d × | %s |\n", what, v.sendP50, v.sendP99, send, v.e2eP50, v.e2eP99, e2e, fairFactor, kept)
}

// write writes the report beside all figures, when a directory is given.
func (f *fairness) write(rep *Report) (string, error) {
	text := f.markdown(rep)
	if f.c.Out == "" {
		return text, nil
	}
	all, err := json.MarshalIndent(struct {
		Machine  Machine   `json:"machine"`
		Most     float64   `json:"mostMessagesPerSecond"`
		Measured []pressed `json:"measured"`
	}{rep.Machine, f.max, f.measured}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("fairness: %w", err)
	}
	name := filepath.Join(f.c.Out, rep.Begun.Format("2006-01-02-1504")+"-fairness")
	if err := os.WriteFile(name+".json", append(all, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("fairness: %w", err)
	}
	if err := os.WriteFile(name+".md", []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("fairness: %w", err)
	}
	return text, nil
}
