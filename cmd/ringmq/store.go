package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmq/ringmq/broker"
	"github.com/ringmq/ringmq/engine/inspect"
	"github.com/ringmq/ringmq/internal/config"
)

// storeFlags are those of every command that looks into a store.
type storeFlags struct {
	file   string
	output string
	live   bool
}

func (f *storeFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&f.file, "config", "c", "", "the broker's property file: storePathCommitLog and the index's sizes where they aren't Apache's defaults")
	c.Flags().StringVarP(&f.output, "output", "o", "text", "text or json")
}

// config is where the store lies and how it was made.
func (f *storeFlags) config(args []string) (inspect.Config, error) {
	cfg := inspect.Config{Live: f.live}
	if f.output != "text" && f.output != "json" {
		return cfg, fmt.Errorf("-o %s: want text or json", f.output)
	}
	if f.file != "" {
		settings, err := config.ReadFile(f.file)
		if err != nil {
			return cfg, err
		}
		b, _, err := broker.LoadConfig(settings)
		if err != nil {
			return cfg, err
		}
		cfg.Dir, cfg.CommitLogDir, cfg.IndexSlots, cfg.IndexEntries = b.StorePathRootDir, b.StorePathCommitLog, b.MaxHashSlotNum, b.MaxIndexNum
	}
	if len(args) > 0 {
		cfg.Dir = args[0]
		cfg.CommitLogDir = ""
	}
	if cfg.Dir == "" {
		return cfg, errors.New("which store? give its directory, or -c with the broker's file")
	}
	return cfg, nil
}

func storeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "store",
		Short: "Look into a store's files, without a broker",
		Long: `Looks into the directory of a store (storePathRootDir), of ringmq or of Apache
RocketMQ: verifies all of it, shows what is in it, and puts right what a broker
would not put right by itself.`,
	}
	c.AddCommand(storeVerifyCommand(), storeDumpCommand(), storeRepairCommand())
	return c
}

func storeVerifyCommand() *cobra.Command {
	var f storeFlags
	var noCRC bool
	c := &cobra.Command{
		Use:   "verify [DIR]",
		Short: "Check every record, queue entry, key and table",
		Long: `Reads the whole log once, in order: sizes, CRCs and places of its records, and
holds each against the ConsumeQueues and the key index. Names what is damaged
(exit code 1), and what the next start of a broker puts right by itself.

A store that a broker has open is refused; with --live it is looked at all the
same, and only what is known to be on the disk is judged.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := f.config(args)
			if err != nil {
				return err
			}
			bar := newProgress(c.ErrOrStderr())
			cfg.NoCRC, cfg.Progress = noCRC, bar.tell
			r, err := inspect.Verify(c.Context(), cfg)
			bar.end()
			if errors.Is(err, inspect.ErrInUse) {
				return fmt.Errorf("%w: stop it, or look at what is on the disk already with --live", err)
			}
			if err != nil {
				return err
			}
			if err := printReport(c.OutOrStdout(), r, f.output); err != nil {
				return err
			}
			if !r.OK() {
				return errSaid
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVar(&f.live, "live", false, "look at a store that a broker has open")
	c.Flags().BoolVar(&noCRC, "no-crc", false, "leave out the CRCs of the bodies")
	return c
}

func printReport(w io.Writer, r *inspect.Report, output string) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	for _, f := range r.Findings {
		fmt.Fprintln(w, f)
	}
	if kept := r.Damaged + r.Repairs + r.Notes; kept > int64(len(r.Findings)) {
		fmt.Fprintf(w, "… and %d more\n", kept-int64(len(r.Findings)))
	}
	stop := "stopped cleanly"
	if !r.Clean {
		stop = "not stopped cleanly: the next start recovers"
	}
	fmt.Fprintf(w, "%s: %s\n", r.Dir, stop)
	fmt.Fprintf(w, "log      %d records, %s in %d segments, offsets %d to %d\n", r.Records, sizeText(r.Bytes), r.Segments, r.From, r.To)
	fmt.Fprintf(w, "queues   %d with %d entries\n", r.Queues, r.Entries)
	fmt.Fprintf(w, "index    %d files with %d keys\n", r.IndexFiles, r.IndexEntries)
	fmt.Fprintf(w, "tables   %d\n", r.Tables)
	verdict := "everything is as it should be"
	switch {
	case !r.OK():
		verdict = fmt.Sprintf("%d DAMAGED; `ringmq store repair` says what can be done", r.Damaged)
	case r.Repairs > 0:
		verdict = fmt.Sprintf("nothing is lost; the next start puts %d things right", r.Repairs)
	}
	_, err := fmt.Fprintf(w, "%s (%s, %s/s)\n", verdict, r.Elapsed.Round(time.Millisecond), sizeText(int64(float64(r.Bytes)/max(r.Elapsed.Seconds(), 1e-9))))
	return err
}

func storeDumpCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dump",
		Short: "Show records, queue entries and tables",
	}
	c.AddCommand(dumpLogCommand(), dumpQueueCommand(), dumpTablesCommand())
	return c
}

// dumper prints what a dump gives: a line each, JSON or text.
func dumper(w io.Writer, output string) func(v fmt.Stringer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return func(v fmt.Stringer) error {
		if output == "json" {
			return e.Encode(v)
		}
		_, err := fmt.Fprintln(w, v)
		return err
	}
}

func dumpLogCommand() *cobra.Command {
	var f storeFlags
	sel := inspect.Selection{QueueID: -1}
	c := &cobra.Command{
		Use:   "log [DIR]",
		Short: "Records of the CommitLog, in its order",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := f.config(args)
			if err != nil {
				return err
			}
			print := dumper(c.OutOrStdout(), f.output)
			return inspect.DumpLog(c.Context(), cfg, sel, func(r *inspect.Record) error { return print(r) })
		},
	}
	f.add(c)
	c.Flags().Int64Var(&sel.From, "from", 0, "first log offset")
	c.Flags().Int64Var(&sel.To, "to", 0, "log offset to end before (default: the log's end)")
	c.Flags().StringVarP(&sel.Topic, "topic", "t", "", "only records of a topic")
	c.Flags().Int32VarP(&sel.QueueID, "queue", "q", -1, "only records of a queue of that topic")
	c.Flags().StringVarP(&sel.Key, "key", "k", "", "only records with this key or unique id")
	c.Flags().IntVarP(&sel.Limit, "limit", "n", 0, "at most so many (default: all)")
	c.Flags().BoolVar(&sel.Body, "body", false, "with bodies: as text where they are, else in hex")
	return c
}

func dumpQueueCommand() *cobra.Command {
	var f storeFlags
	var from int64
	var limit int
	c := &cobra.Command{
		Use:   "queue DIR TOPIC QUEUEID",
		Short: "Entries of a ConsumeQueue",
		Args:  cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := f.config(args)
			if err != nil {
				return err
			}
			id, err := strconv.ParseInt(args[2], 10, 32)
			if err != nil {
				return fmt.Errorf("queueId %q: want a number", args[2])
			}
			print := dumper(c.OutOrStdout(), f.output)
			return inspect.DumpQueue(cfg, args[1], int32(id), from, limit, func(e inspect.QueueEntry) error { return print(e) })
		},
	}
	f.add(c)
	c.Flags().Int64Var(&from, "from", 0, "first queue offset")
	c.Flags().IntVarP(&limit, "limit", "n", 0, "at most so many (default: all)")
	return c
}

func dumpTablesCommand() *cobra.Command {
	var f storeFlags
	c := &cobra.Command{
		Use:   "tables [DIR]",
		Short: "The saved tables as JSON, by file name",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := f.config(args)
			if err != nil {
				return err
			}
			tables, err := inspect.DumpTables(cfg)
			if err != nil {
				return err
			}
			e := json.NewEncoder(c.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(tables)
		},
	}
	f.add(c)
	return c
}

func storeRepairCommand() *cobra.Command {
	var f storeFlags
	var yes, tables, skip bool
	var keep string
	c := &cobra.Command{
		Use:   "repair [DIR]",
		Short: "Put right what a broker would refuse to start with",
		Long: `Verifies a store and says what would be done about each thing that is wrong;
with --yes it is done. Nothing is deleted: what must go is moved to a directory
repair-<time> inside the store. Queues and keys that are wrong are made anew from
the log by the next start of a broker.

Where a segment of the log is missing, only you can say which side to keep:
--keep newer moves the segments before the gap aside, --keep older those behind.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := f.config(args)
			if err != nil {
				return err
			}
			choices, err := repairChoices(keep, skip, tables)
			if err != nil {
				return err
			}
			bar := newProgress(c.ErrOrStderr())
			cfg.Progress = bar.tell
			w := c.OutOrStdout()
			steps := 0
			tell := func(s inspect.Step) {
				bar.end()
				steps++
				fmt.Fprintf(w, "%s\n  %s\n", s.Finding, s.Action+needs(s.Choice))
			}
			var r *inspect.Report
			if yes {
				r, err = inspect.Repair(c.Context(), cfg, tell, choices...)
			} else if r, err = inspect.Verify(c.Context(), cfg); err == nil {
				for _, s := range inspect.Plan(r, choices...) {
					tell(s)
				}
			}
			bar.end()
			if err != nil {
				return err
			}
			switch {
			case steps == 0 && r.OK():
				fmt.Fprintln(w, "nothing to repair")
			case steps == 0:
				fmt.Fprintf(w, "%d findings, none that a repair could mend; `ringmq store verify` lists them\n", r.Damaged)
			case !yes:
				fmt.Fprintln(w, "nothing was changed: --yes does it")
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do it")
	c.Flags().StringVar(&keep, "keep", "", "newer or older: which side of a missing segment stays")
	c.Flags().BoolVar(&skip, "skip-damaged", false, "give damaged records up, so that what follows them can be read in order")
	c.Flags().BoolVar(&tables, "tables", false, "move broken tables aside, so that the broker begins new ones")
	return c
}

func repairChoices(keep string, skip, tables bool) (choices []inspect.Choice, err error) {
	switch keep {
	case "":
	case "newer":
		choices = append(choices, inspect.KeepNewer)
	case "older":
		choices = append(choices, inspect.KeepOlder)
	default:
		return nil, fmt.Errorf("--keep %s: want newer or older", keep)
	}
	if skip {
		choices = append(choices, inspect.SkipDamaged)
	}
	if tables {
		choices = append(choices, inspect.Tables)
	}
	return choices, nil
}

// needs says which flag a step waits for.
func needs(c inspect.Choice) string {
	switch c {
	case inspect.KeepNewer, inspect.KeepOlder:
		return " (waits for --keep newer or --keep older)"
	case inspect.SkipDamaged:
		return " (waits for --skip-damaged)"
	case inspect.Tables:
		return " (waits for --tables)"
	}
	return ""
}

// A progress is a line at the bottom of a terminal that says how far something
// is; nothing where stderr is no terminal.
type progress struct {
	w     io.Writer
	began time.Time
	shown bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, began: time.Now()}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return p
		}
	}
	p.w = nil
	return p
}

const progressWidth = 30

func (p *progress) tell(done, total int64) {
	if p.w == nil || total <= 0 {
		return
	}
	p.shown = true
	seconds := time.Since(p.began).Seconds()
	rate := float64(done) / max(seconds, 1e-3)
	filled := int(progressWidth * done / total)
	fmt.Fprintf(p.w, "\r[%s%s] %3d %%  %s of %s, %s/s, %.0f s left   ", strings.Repeat("#", filled), strings.Repeat(" ", progressWidth-filled),
		100*done/total, sizeText(done), sizeText(total), sizeText(int64(rate)), float64(total-done)/max(rate, 1))
}

func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, units := float64(n), "KMGTP"
	i := -1
	for value >= unit && i < len(units)-1 {
		value /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[i])
}
