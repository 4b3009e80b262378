//go:build linux

package compare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
		ok   bool
	}{{nil, 0, false}, {[]float64{3}, 3, true}, {[]float64{9, 1, 5}, 5, true}, {[]float64{4, 1, 2, 3}, 2.5, true}} {
		if got, ok := median(tt.in); got != tt.want || ok != tt.ok {
			t.Errorf("%v: got %v, %v", tt.in, got, ok)
		}
	}
}

func TestInvalid(t *testing.T) {
	good := values{"p50": 200, "floor": 180, "acksPerFlush": 0.9, "inFlight": 1, "flushes": 900}
	tests := []struct {
		name string
		key  string
		to   float64
		want string
	}{
		{"good", "p50", 200, ""},
		{"faster than the disk", "p50", 100, "below the disk"},
		{"more acknowledged than in flight", "acksPerFlush", 1.5, "acknowledgements a flush"},
		{"refusals", "refused", 1, "refusals"},
	}
	for _, tt := range tests {
		v := values{}
		for k, x := range good {
			v[k] = x
		}
		v[tt.key] = tt.to
		got := invalid(&measure{sync: true}, v)
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q", tt.name, got)
		}
		if got := invalid(&measure{}, v); got != "" {
			t.Errorf("%s, ASYNC_FLUSH: %q", tt.name, got)
		}
	}
	if got := invalid(&measure{sync: true}, values{"p50": 2, "floor": 1, "inFlight": 1}); got == "" {
		t.Error("a run without any flush is valid")
	}
}

func TestReport(t *testing.T) {
	r := &Report{Begun: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC), Rounds: 3}
	add := func(system, key string, round int, v values, bad string) {
		r.Figures = append(r.Figures, Figures{system, key, round, v, bad})
	}
	for i, rate := range []float64{10000, 12000, 30000} {
		add(Apache, "async-8x32", i+1, values{"rate": rate, "cpu": 80, "p99": 30000}, "")
		add(Ringmq, "async-8x32", i+1, values{"rate": rate * 10, "cpu": 4, "p99": 40000}, "")
	}
	add(Apache, "sync-8x32", 1, values{"rate": 3000, "refused": 7}, "7 refusals")
	add(Ringmq, "sync-8x32", 1, values{"rate": 90000}, "p50 below")
	add(Ringmq, "sync-1x1", 1, values{"p50": 300, "floor": 200}, "")
	add(Ringmq, "memory", 1, values{"anon": 151}, "")
	add(Apache, "idle", 1, nil, "it ended")
	md := r.Markdown()
	for _, want := range []string{
		"| ASYNC, 8 connections × 32: throughput | msg/s | 12000 (10000–30000) | 120000 (100000–300000) | 10.00 × | ≥ 8 × Apache | yes |",
		"| … CPU a message | µs | 80.0 (80.0–80.0) | 4.00 (4.00–4.00) | 0.05 × | ≤ 1/12 of Apache | yes |",
		"| … p99 | µs | 30000 (30000–30000) | 40000 (40000–40000) | 1.33 × | better than Apache | **no** |",
		"| SYNC, 8 connections × 32: throughput | msg/s | 3000 | – |  | ≥ 8 × Apache |  (1 invalid) |",
		"| SYNC, one connection, one in flight: p50 | µs | – | 300 | 1.50 floors | ≤ 1.6 floors | yes |",
		"| RssAnon after the load | MB | – | 151 |  | ≤ 150 | **no** |",
		"- apache, idle, round 1: it ended",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("no line %q in\n%s", want, md)
		}
	}
	dir := t.TempDir()
	if err := r.Write(filepath.Join(dir, "results")); err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".md", ".json"} {
		if _, err := os.Stat(filepath.Join(dir, "results", "2024-01-02-0304"+ext)); err != nil {
			t.Error(err)
		}
	}
}

// TestMeasures: each row names a figure its measure can give, each key is unique.
func TestMeasures(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range measures() {
		if seen[m.key] || m.key == "" || len(m.rows) == 0 {
			t.Errorf("measure %q is there twice or empty", m.key)
		}
		seen[m.key] = true
		if m.run == nil && m.key != "start-empty" {
			t.Errorf("measure %q does nothing", m.key)
		}
	}
}

func TestConfig(t *testing.T) {
	good := Config{Rounds: 1, Duration: time.Second, Ports: 20000}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.Rounds = 0 }, func(c *Config) { c.Duration = 0 }, func(c *Config) { c.Ports = 40000 },
		func(c *Config) { c.Measures = []string{"nothing"} }, func(c *Config) { c.Systems = []string{"kafka"} },
	} {
		c := good
		change(&c)
		if err := c.validate(); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
