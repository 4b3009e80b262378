//go:build linux

package compare

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmq/ringmq/bench"
)

// Report is all that one comparison saw.
type Report struct {
	Machine Machine   `json:"machine"`
	Begun   time.Time `json:"begun"`
	Rounds  int       `json:"rounds"`
	Seconds float64   `json:"secondsALoad"`
	Figures []Figures `json:"figures"`
	Loads   []Load    `json:"loads"`
}

// Figures are one measure of one system in one round.
type Figures struct {
	System  string `json:"system"`
	Measure string `json:"measure"`
	Round   int    `json:"round"`
	Values  values `json:"values,omitempty"`
	Invalid string `json:"invalid,omitempty"` // why it does not count
}

// Load is the whole result of one load.
type Load struct {
	System  string        `json:"system"`
	Measure string        `json:"measure"`
	Round   int           `json:"round"`
	Result  *bench.Result `json:"result"`
}

// Machine describes where it ran; it names no host.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	MemoryGB   int64  `json:"memoryGB"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"fileSystem"`
	Device     string `json:"device"`
	Java       string `json:"java,omitempty"`
	Ringmq     string `json:"ringmq,omitempty"`
	Heap       string `json:"apacheHeap,omitempty"`
}

func newReport(c *Config) (*Report, error) {
	m := Machine{Cores: runtime.NumCPU(), Heap: c.Heap}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				m.CPU = strings.TrimSpace(v)
				break
			}
		}
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryGB = (int64(info.Totalram)*int64(info.Unit) + 1<<29) >> 30
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	var st unix.Statfs_t
	if unix.Statfs(c.Dir, &st) == nil {
		m.FileSystem = fileSystemName(int64(st.Type))
	}
	d, err := bench.DeviceOf(c.Dir)
	if err != nil {
		return nil, err
	}
	m.Device = d.Name
	if out, err := exec.Command("java", "-version").CombinedOutput(); err == nil {
		m.Java, _, _ = strings.Cut(string(out), "\n")
	}
	if out, err := exec.Command(c.Binary, "--version").Output(); err == nil {
		m.Ringmq, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	}
	return &Report{Machine: m, Begun: time.Now(), Rounds: c.Rounds, Seconds: c.Duration.Seconds()}, nil
}

func fileSystemName(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	}
	return fmt.Sprintf("%#x", magic)
}

// samples are the values of one figure of one system over the rounds. Apache's
// refused runs are kept: the promise about refusals is ours.
func (r *Report) samples(system, measure, figure string) (v []float64, bad int) {
	for _, f := range r.Figures {
		if f.System != system || f.Measure != measure {
			continue
		}
		if f.Values == nil || f.Invalid != "" && system == Ringmq {
			bad++
			continue
		}
		v = append(v, f.Values[figure])
	}
	return v, bad
}

// median is the middle value, or the mean of the two; ok is false without any.
func median(v []float64) (float64, bool) {
	if len(v) == 0 {
		return 0, false
	}
	v = slices.Clone(v)
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2, true
}

// Markdown writes the table.
func (r *Report) Markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "# ringmq beside Apache RocketMQ, %s\n\n", r.Begun.Format("2006-01-02 15:04"))
	fmt.Fprintf(&b, "%s, %d cores, %d GB, Linux %s, %s on %s. Apache: %s, %s heap. ringmq: %s. %d interleaved rounds, %.0f s a load, bodies of 1 KB, JSON headers, 8 queues; medians, lowest and highest in parentheses.\n\n",
		m.CPU, m.Cores, m.MemoryGB, m.Kernel, m.FileSystem, m.Device, m.Java, m.Heap, m.Ringmq, r.Rounds, r.Seconds)
	b.WriteString("| measure | unit | Apache | ringmq | ratio | promised | kept |\n|---|---|---:|---:|---:|---|---|\n")
	for _, me := range measures() {
		for _, ro := range me.rows {
			r.tableRow(&b, &me, &ro)
		}
	}
	var notes []string
	for _, f := range r.Figures {
		if f.Invalid != "" {
			notes = append(notes, fmt.Sprintf("- %s, %s, round %d: %s", f.System, f.Measure, f.Round, strings.ReplaceAll(f.Invalid, "\n", " ")))
		}
	}
	if len(notes) > 0 {
		fmt.Fprintf(&b, "\nRuns that are invalid or failed:\n\n%s\n", strings.Join(notes, "\n"))
	}
	return b.String()
}

func (r *Report) tableRow(b *strings.Builder, m *measure, ro *row) {
	apache, _ := r.samples(Apache, m.key, ro.figure)
	ours, bad := r.samples(Ringmq, m.key, ro.figure)
	if len(apache)+len(ours)+bad == 0 {
		return
	}
	a, haveA := median(apache)
	o, haveO := median(ours)
	ratio := ""
	better := 0.0 // how many times better ours is
	if haveA && haveO && a > 0 && o > 0 {
		better = o / a
		if ro.better == lower {
			better = a / o
		}
		ratio = fmt.Sprintf("%.2f ×", o/a)
	}
	promised, kept := ro.promise(), ""
	if promised != "" && haveO && (haveA || ro.ratio == 0) {
		ok := true
		switch {
		case ro.ratio > 0:
			ok = better >= ro.ratio
		case ro.floor > 0:
			fl, _ := r.samples(Ringmq, m.key, "floor")
			f, _ := median(fl)
			ok = o <= ro.floor*f
			ratio = fmt.Sprintf("%.2f floors", o/f)
		case ro.better == lower:
			ok = o <= ro.limit
		default:
			ok = o >= ro.limit
		}
		kept = map[bool]string{true: "yes", false: "**no**"}[ok]
	}
	if bad > 0 {
		kept += fmt.Sprintf(" (%d invalid)", bad)
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", ro.title, ro.unit, spread(apache), spread(ours), ratio, promised, kept)
}

func (ro *row) promise() string {
	switch {
	case ro.ratio > 1 && ro.better == higher:
		return fmt.Sprintf("≥ %g × Apache", ro.ratio)
	case ro.ratio > 1:
		return fmt.Sprintf("≤ 1/%g of Apache", ro.ratio)
	case ro.ratio == 1:
		return "better than Apache"
	case ro.floor > 0:
		return fmt.Sprintf("≤ %g floors", ro.floor)
	case ro.limit > 0 && ro.better == higher:
		return "≥ " + number(ro.limit)
	case ro.limit > 0:
		return "≤ " + number(ro.limit)
	}
	return ""
}

// spread is a median with its extremes.
func spread(v []float64) string {
	m, ok := median(v)
	if !ok {
		return "–"
	}
	if len(v) == 1 {
		return number(m)
	}
	return fmt.Sprintf("%s (%s–%s)", number(m), number(slices.Min(v)), number(slices.Max(v)))
}

func number(v float64) string {
	switch {
	case v == 0 || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// line is a measure's figures for the progress.
func (f *Figures) line(m *measure) string {
	if f.Values == nil {
		return "FAILED: " + f.Invalid
	}
	var parts []string
	for _, ro := range m.rows {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", ro.figure, number(f.Values[ro.figure]), ro.unit)))
	}
	s := strings.Join(parts, "  ")
	if f.Invalid != "" {
		s += "  INVALID: " + f.Invalid
	}
	return s
}

// Write stores the table and all figures in dir, named by the time it began.
func (r *Report) Write(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	name := filepath.Join(dir, r.Begun.Format("2006-01-02-1504"))
	if err := os.WriteFile(name+".md", []byte(r.Markdown()), 0o644); err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	if err := os.WriteFile(name+".json", append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	return nil
}
