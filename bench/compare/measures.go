//go:build linux

package compare

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ringmq/ringmq/bench"
)

// values are the figures of one measure, by name.
type values map[string]float64

// measure is one load, or one look at a process.
type measure struct {
	key  string
	what string // for people
	sync bool   // needs a broker with SYNC_FLUSH
	once bool   // first round only: it takes minutes
	run  func(ctx context.Context, r *run, s *system) (values, error)
	rows []row
}

// row is one line of the table: one figure of a measure and what is promised.
type row struct {
	figure string // key in values
	title  string
	unit   string
	better direction
	ratio  float64 // promised: ringmq better by this factor; 0: none
	limit  float64 // promised: ringmq not above (or below) this; 0: none
	floor  float64 // promised: ringmq not above this many floors; 0: none
}

type direction int

const (
	higher direction = iota
	lower
)

// load makes a measure of a bench load; set changes the defaults.
func load(mode func(context.Context, bench.Options) (*bench.Result, error), set func(o *bench.Options)) func(context.Context, *run, *system) (values, error) {
	return func(ctx context.Context, r *run, s *system) (values, error) {
		o := r.options(s)
		set(&o)
		res, err := mode(ctx, o)
		if err != nil {
			return nil, err
		}
		r.keep(s, res)
		return figures(res), nil
	}
}

// figures flattens a result.
func figures(res *bench.Result) values {
	return values{
		"rate": res.MessagesPerSecond, "mb": res.MBPerSecond, "cpu": res.CPUMicrosPerMessage, "own": res.OwnMicrosPerMessage,
		"p50": res.Latency.P50, "p99": res.Latency.P99, "p999": res.Latency.P999, "refused": float64(res.Refused()), "lost": float64(res.Lost),
		"anon": float64(res.RSSAnonBytes) / 1e6, "flushes": float64(res.DeviceFlushes) / res.Seconds, "acksPerFlush": res.AcksPerFlush,
		"inFlight": float64(res.Conns * res.InFlight),
	}
}

func closed(conns, inFlight int) func(o *bench.Options) {
	return func(o *bench.Options) { o.Conns, o.InFlight = conns, inFlight }
}

// Measures lists every measure in the order they run: latency first, before
// heaps have grown, the largest load last, since memory is looked at after it.
func measures() []measure {
	return []measure{
		{key: "start-empty", what: "start, empty store", rows: []row{
			{"seconds", "start to first accepted send, empty", "s", lower, 0, 0.5, 0}}},
		{key: "idle", what: "memory when idle", run: memory, rows: []row{
			{"anon", "RssAnon, idle", "MB", lower, 0, 40, 0}}},
		{key: "async-1x1", what: "ASYNC_FLUSH, 1 × 1", run: load(bench.Send, closed(1, 1)), rows: []row{
			{"p50", "ASYNC, one connection, one in flight: p50", "µs", lower, 2, 0, 0},
			{"rate", "… throughput", "msg/s", higher, 0, 0, 0}}},
		{key: "open", what: "ASYNC_FLUSH, open loop 8,000/s", run: load(bench.Send, func(o *bench.Options) { o.Conns, o.Rate = 8, 8000 }), rows: []row{
			{"p99", "ASYNC, open loop 8,000 msg/s: p99", "µs", lower, 8, 0, 0},
			{"p999", "… p99.9", "µs", lower, 8, 0, 0},
			{"p50", "… p50", "µs", lower, 0, 0, 0}}},
		{key: "e2e", what: "end to end, 1,000/s", run: load(bench.EndToEnd, func(o *bench.Options) { o.Rate = 1000 }), rows: []row{
			{"p50", "end to end at 1,000 msg/s: p50", "µs", lower, 4, 0, 0},
			{"p99", "… p99", "µs", lower, 4, 0, 0},
			{"lost", "… lost", "", lower, 0, 0, 0}}},
		{key: "async-64x1", what: "ASYNC_FLUSH, 64 × 1", run: load(bench.Send, closed(64, 1)), rows: []row{
			{"rate", "ASYNC, 64 connections × 1: throughput", "msg/s", higher, 2, 0, 0},
			{"cpu", "… CPU a message", "µs", lower, 4, 0, 0},
			{"p99", "… p99", "µs", lower, 0, 0, 0}}},
		{key: "async-8x32", what: "ASYNC_FLUSH, 8 × 32", run: load(bench.Send, closed(8, 32)), rows: []row{
			{"rate", "ASYNC, 8 connections × 32: throughput", "msg/s", higher, 8, 0, 0},
			{"cpu", "… CPU a message", "µs", lower, 12, 0, 0},
			{"p99", "… p99", "µs", lower, 1, 0, 0},
			{"refused", "… refusals", "", lower, 0, 0, 0},
			{"own", "… generator CPU a message", "µs", lower, 0, 0, 0}}},
		{key: "pull", what: "pull, 4 connections", run: load(bench.Pull, func(o *bench.Options) { o.Conns, o.Preload = 4, 100_000 }), rows: []row{
			{"mb", "pull, 4 connections, 32 a request", "MB/s", higher, 4, 0, 0},
			{"cpu", "… CPU a message", "µs", lower, 6, 0, 0}}},
		{key: "memory", what: "memory after the load", run: memory, rows: []row{
			{"anon", "RssAnon after the load", "MB", lower, 0, 150, 0}}},
		{key: "route", what: "NameServer routes", run: load(bench.Route, func(o *bench.Options) {
			o.Addr, o.PID = o.Namesrv, o.NamesrvPID
			o.Conns, o.InFlight = 8, 8
		}), rows: []row{
			{"rate", "routes, 1,000 topics, 8 × 8", "1/s", higher, 0, 50_000, 0},
			{"cpu", "… CPU a route", "µs", lower, 0, 0, 0}}},
		{key: "start-2g", what: "start with 2 GB stored", once: true, run: startFull, rows: []row{
			{"seconds", "start to first accepted send, 2 GB stored", "s", lower, 0, 1, 0}}},
		{key: "sync-1x1", what: "SYNC_FLUSH, 1 × 1", sync: true, run: durable(1, 1), rows: []row{
			{"p50", "SYNC, one connection, one in flight: p50", "µs", lower, 0, 0, 1.6},
			{"floor", "… bare pwrite+fdatasync of the same run: p50", "µs", lower, 0, 0, 0},
			{"rate", "… throughput", "msg/s", higher, 0, 0, 0},
			{"flushes", "… device flushes a second", "", lower, 0, 0, 0}}},
		{key: "sync-64x1", what: "SYNC_FLUSH, 64 × 1", sync: true, run: durable(64, 1), rows: []row{
			{"rate", "SYNC, 64 connections × 1: throughput", "msg/s", higher, 4, 0, 0},
			{"p50", "… p50", "µs", lower, 0, 0, 0},
			{"flushes", "… device flushes a second", "", lower, 0, 0, 0}}},
		{key: "sync-8x32", what: "SYNC_FLUSH, 8 × 32", sync: true, run: durable(8, 32), rows: []row{
			{"rate", "SYNC, 8 connections × 32: throughput", "msg/s", higher, 8, 0, 0},
			{"p50", "… p50", "µs", lower, 0, 0, 0},
			{"refused", "… refusals", "", lower, 0, 0, 0},
			{"flushes", "… device flushes a second", "", lower, 0, 0, 0},
			{"acksPerFlush", "… acknowledgements a flush", "", higher, 0, 0, 0}}},
	}
}

// memory looks at the broker at rest.
func memory(ctx context.Context, r *run, s *system) (values, error) {
	select { // let a burst's garbage go
	case <-time.After(r.cfg.Settle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	u, err := bench.UsageOf(s.pid())
	if err != nil {
		return nil, err
	}
	return values{"anon": float64(u.RSSAnon) / 1e6, "file": float64(u.RSSFile) / 1e6}, nil
}

// recordBytes is about what the log takes for a message of 1 KiB.
const recordBytes = 1240

// durable is a closed loop under SYNC_FLUSH between two measurements of the
// floor; their mean is the floor of this run.
func durable(conns, inFlight int) func(context.Context, *run, *system) (values, error) {
	return func(ctx context.Context, r *run, s *system) (values, error) {
		floor := func() (float64, error) {
			res, err := bench.Floor(ctx, bench.Options{Dir: s.dir, Bytes: recordBytes, Duration: r.cfg.Duration / 4, Warmup: r.cfg.Duration / 8})
			if err != nil {
				return 0, err
			}
			return res.Latency.P50, nil
		}
		before, err := floor()
		if err != nil {
			return nil, err
		}
		v, err := load(bench.Send, closed(conns, inFlight))(ctx, r, s)
		if err != nil {
			return nil, err
		}
		after, err := floor()
		if err != nil {
			return nil, err
		}
		v["floor"] = (before + after) / 2
		return v, nil
	}
}

// invalid says why a durable run does not count, "" when it does: acknowledging
// faster than the disk can, or more than were in flight with one flush, is not
// durable.
func invalid(m *measure, v values) string {
	if !m.sync || v == nil {
		return ""
	}
	switch {
	case v["p50"] < v["floor"]:
		return fmt.Sprintf("p50 %.0f µs is below the disk's %.0f µs", v["p50"], v["floor"])
	case v["acksPerFlush"] > v["inFlight"]:
		return fmt.Sprintf("%.1f acknowledgements a flush with %.0f in flight", v["acksPerFlush"], v["inFlight"])
	case v["flushes"] == 0 && v["acksPerFlush"] == 0:
		return "the device was not flushed at all"
	case v["refused"] > 0:
		return fmt.Sprintf("%.0f refusals", v["refused"])
	}
	return ""
}

// fullBytes is what startFull wants stored.
const fullBytes = 2 << 30

// startFull sends until the log holds 2 GB, stops the broker well and measures
// its next start.
func startFull(ctx context.Context, r *run, s *system) (values, error) {
	have, err := written(filepath.Join(s.store(), "commitlog"))
	if err != nil {
		return nil, err
	}
	if left := fullBytes - have; left > 0 {
		o := r.options(s)
		o.PID, o.Dir = 0, ""
		if err := bench.Fill(ctx, o, int(left/recordBytes)); err != nil {
			return nil, err
		}
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	took, err := s.start(ctx, false, false)
	if err != nil {
		return nil, err
	}
	return values{"seconds": took.Seconds()}, nil
}

// written sums the bytes the files of a directory take on the disk: segments are
// sparse or zero-filled ahead, so that this is only about right.
func written(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := os.Stat(path)
		if err == nil {
			n += allocated(info)
		}
		return err
	})
	return n, err
}
