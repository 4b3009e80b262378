//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmq/ringmq/bench/torture"
)

// tortureCommand is `ringmq bench torture`: kill -9 until something is lost.
func tortureCommand() *cobra.Command {
	var c torture.Config
	var output string
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Kill a loaded SYNC_FLUSH broker again and again and look for losses",
		Long: `Starts a SYNC_FLUSH broker of this binary in a new directory, loads it, kills it
(kill -9) at a random moment, starts it again and reads everything back, --rounds
times; sometimes it is killed a second time while it recovers. Every acknowledged
message must be at the place its answer named, whole, and so must consumer
offsets and topics that were answered for. At the end its files are verified.

Run it on the disk you mean to use. Exit code 0: nothing was lost. What is left
in --dir after a loss is the evidence.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if c.Binary == "" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				c.Binary = self
			}
			dir, err := filepath.Abs(c.Dir)
			if err != nil {
				return err
			}
			c.Dir, c.Progress = dir, cmd.ErrOrStderr()
			r, err := torture.Run(ctx, c)
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(r)
			} else {
				err = r.Print(cmd.OutOrStdout())
			}
			if err == nil && !r.OK() {
				return errSaid
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.Rounds, "rounds", 100, "kills")
	f.StringVar(&c.Dir, "dir", "torture-scratch", "a new directory on the disk in question; removed unless something is lost")
	f.BoolVar(&c.Keep, "keep", false, "leave the directory")
	f.IntVar(&c.Port, "port", 24911, "port of the broker under torture; it takes port-2 too")
	f.IntVar(&c.Conns, "conns", 8, "connections")
	f.IntVar(&c.InFlight, "inflight", 8, "requests in flight on each connection")
	f.DurationVar(&c.KillMax, "kill-max", 800*time.Millisecond, "the longest a round's load lasts")
	f.Uint64Var(&c.Seed, "seed", 0, "of the random moments and bodies (0: a new one)")
	f.StringVar(&c.Binary, "binary", "", "ringmq to torture (default: this one)")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
