//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmq/ringmq/bench"
	"github.com/ringmq/ringmq/bench/compare"
)

// benchFlags is what the bench sub-commands share.
type benchFlags struct {
	o      bench.Options
	output string
	create bool
}

// benchCommand is `ringmq bench`: load against a running broker or NameServer.
func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Load a running broker or NameServer and show what it does and costs",
		Long: `Loads a running broker or NameServer, ours or Apache's, over raw connections
with the frames Java clients send. Latency of a closed loop is from write to
answer, of an open loop (--rate) from the time a message was due.`,
	}
	cmd.AddCommand(
		benchMode("send", "Send messages: closed loop, or open loop with --rate", bench.Send),
		benchMode("pull", "Pull a topic again and again (see --preload)", bench.Pull),
		benchMode("e2e", "Send at --rate and receive by held pulls", bench.EndToEnd),
		benchMode("route", "Ask a NameServer for the routes of --topics topics", bench.Route),
		benchMode("floor", "Bare pwrite and fdatasync in --dir", bench.Floor),
		compareCommand(),
		tortureCommand(),
		fairnessCommand(),
	)
	return cmd
}

// benchMode makes one sub-command; all have the same flags, since most modes read
// most of them.
func benchMode(name, short string, run func(context.Context, bench.Options) (*bench.Result, error)) *cobra.Command {
	f := &benchFlags{}
	addr := "127.0.0.1:10911"
	if name == "route" {
		addr = "127.0.0.1:9876"
	}
	cmd := &cobra.Command{
		Use:          name,
		Short:        short,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.create && name != "route" && name != "floor" {
				if err := bench.CreateTopic(cmd.Context(), &f.o); err != nil {
					return err
				}
			}
			res, err := run(cmd.Context(), f.o)
			if err != nil {
				return err
			}
			return f.print(cmd.OutOrStdout(), res)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.o.Addr, "addr", addr, "where the load goes, host:port")
	fl.IntVar(&f.o.PID, "pid", 0, "process whose CPU and memory are read from /proc (0: none)")
	fl.StringVar(&f.o.Dir, "dir", "", "a directory on the device whose writes and flushes are counted")
	fl.IntVar(&f.o.Conns, "conns", 1, "connections")
	fl.IntVar(&f.o.InFlight, "inflight", 1, "requests in flight on each connection")
	fl.IntVar(&f.o.Rate, "rate", 0, "messages a second over all connections (0: closed loop)")
	fl.IntVar(&f.o.Bytes, "bytes", 1024, "bytes of a body")
	fl.DurationVar(&f.o.Duration, "duration", 10*time.Second, "how long to measure")
	fl.DurationVar(&f.o.Warmup, "warmup", 2*time.Second, "load before measuring")
	fl.StringVar(&f.o.Topic, "topic", "BenchTopic", "topic")
	fl.BoolVar(&f.create, "create", true, "create the topic first, with --queues queues")
	fl.IntVar(&f.o.Queues, "queues", 8, "queues of the topic")
	fl.StringVar(&f.o.Broker, "broker", "broker-a", "brokerName that requests carry")
	fl.StringVar(&f.o.Group, "group", "bench_consumer", "consumer group")
	fl.IntVar(&f.o.Batch, "batch", 32, "messages asked for in one pull")
	fl.IntVar(&f.o.Preload, "preload", 0, "messages to send before pulling")
	fl.BoolVar(&f.o.Once, "once", false, "pull every queue once and end")
	fl.IntVar(&f.o.Topics, "topics", 1000, "topics of the NameServer load")
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
	return cmd
}

func (f *benchFlags) print(w io.Writer, res *bench.Result) error {
	switch f.output {
	case "text":
		return res.Print(w)
	case "json":
		b, err := json.MarshalIndent(res, "", "  ")
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		_, err = w.Write(append(b, '\n'))
		return err
	}
	return errors.New("--output: want text or json, got " + f.output)
}

// compareCommand is `ringmq bench compare`: both systems in turn, one table.
func compareCommand() *cobra.Command {
	c := compare.Config{}
	quick := false
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Run Apache RocketMQ and this binary in turn and write one table with ratios",
		Long: `Starts Apache RocketMQ (its jars come from --jars, RINGMQ_BENCH_JARS or Maven)
and this binary in turn, each with a fresh store, applies the same loads and
writes a table of medians and ratios and all figures under --out. Measures:
` + strings.Join(compare.Keys(), ", ") + ".",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if quick {
				c.Rounds, c.Duration, c.Warmup = 1, 3*time.Second, time.Second
			}
			if c.Binary == "" {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("bench: %w", err)
				}
				c.Binary = self
			}
			c.Progress = cmd.ErrOrStderr()
			rep, err := compare.Run(ctx, c)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), rep.Markdown())
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Jars, "jars", os.Getenv("RINGMQ_BENCH_JARS"), "directory of Apache RocketMQ's jars; filled by Maven where it has none")
	f.StringVar(&c.Binary, "binary", "", "ringmq to compare (default: this one)")
	f.StringVar(&c.Dir, "dir", "bench-scratch", "scratch directory on the disk to be measured; stores are removed at the end")
	f.StringVar(&c.Out, "out", "", "directory for the results (default: none are written)")
	f.StringVar(&c.Heap, "heap", "4g", "heap of Apache's broker")
	f.IntVar(&c.Rounds, "rounds", 5, "interleaved rounds")
	f.DurationVar(&c.Duration, "duration", 8*time.Second, "of one load")
	f.DurationVar(&c.Warmup, "warmup", 3*time.Second, "before each load, not counted")
	f.DurationVar(&c.Settle, "settle", 3*time.Second, "rest before memory is looked at")
	f.IntVar(&c.Ports, "ports", 26240, "first of the 32 ports used")
	f.StringSliceVar(&c.Measures, "measures", nil, "measures to run (default: all)")
	f.StringSliceVar(&c.Systems, "systems", nil, "apache, ringmq (default: both)")
	f.BoolVar(&quick, "quick", false, "one round of short loads")
	return cmd
}

// fairnessCommand is `ringmq bench fairness`: what others feel of one that asks
// for more than its share.
func fairnessCommand() *cobra.Command {
	c := compare.FairnessConfig{}
	cmd := &cobra.Command{
		Use:   "fairness",
		Short: "Measure a low rate beside a flood and beside a cold catch-up",
		Long: `Starts a broker of this binary on processors of its own and measures sends and
messages end to end at a low rate: alone, beside a flood at half of what the
broker takes, on another topic, and beside a consumer that catches up on
messages that are not in memory. Each p99 should stay within 3 times the quiet
one.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("bench: %w", err)
			}
			c.Binary, c.Progress = self, cmd.ErrOrStderr()
			report, err := compare.Fairness(ctx, c)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), report)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "bench-scratch", "scratch directory; its disk is the one that is read cold")
	f.StringVar(&c.Out, "out", "", "directory for the results (default: none are written)")
	f.IntVar(&c.Rounds, "rounds", 3, "rounds of quiet, flooded, cold")
	f.DurationVar(&c.Duration, "duration", 8*time.Second, "of one measurement")
	f.DurationVar(&c.Warmup, "warmup", time.Second, "before each, not counted")
	f.IntVar(&c.Rate, "rate", 500, "messages a second of each of the two measured loads")
	f.IntVar(&c.ColdGB, "cold-gb", 5, "gigabytes to catch up on")
	f.IntVar(&c.Ports, "ports", 26440, "first of the 32 ports used")
	f.StringVar(&c.Note, "note", "", "a sentence about the machine, for the report")
	return cmd
}
