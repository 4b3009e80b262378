package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// A Choice is a repair that gives something up, so nobody but an operator may
// ask for it.
type Choice string

// Choices.
const (
	Always      Choice = ""             // gives nothing up
	KeepNewer   Choice = "keep-newer"   // where segments are missing: the log begins behind the gap
	KeepOlder   Choice = "keep-older"   // where segments are missing: the log ends before the gap
	SkipDamaged Choice = "skip-damaged" // damaged records are given up, so that what follows can be read in order
	Tables      Choice = "tables"       // broken tables go: the broker starts with new ones
)

// A fix is what a repair does about a finding.
type fix struct {
	extend string // a file that gets its whole length back, zeros behind what it has
	size   int64
	remove string // an empty file
	fill   string // a segment that gets a record nobody reads in place of damage: size bytes at at
	base   int64  // of that segment
	at     int64
	end    bool   // the damage goes to the segment's end
	stored int64  // store time of the record before: recovery mistrusts one that goes back
	aside  string // a file or directory moved to the repair directory
	choice Choice
	// instead is another way to mend the same finding.
	instead *fix
	more    []string // further paths to move aside
}

func (f *fix) none() bool { return f.extend == "" && f.remove == "" && f.fill == "" && f.aside == "" }

// A Step is one action of a repair.
type Step struct {
	Finding Finding `json:"finding"`
	Action  string  `json:"action"`
	Choice  Choice  `json:"needs,omitempty"` // the choice it needs and wasn't given

	fix fix
}

// Plan says what Repair would do about a report, given these choices. A step
// with Choice set waits for that choice.
func Plan(r *Report, given ...Choice) (steps []Step) {
	allowed := map[Choice]bool{Always: true}
	for _, c := range given {
		allowed[c] = true
	}
	for _, f := range r.Findings {
		x := f.fix
		if x.none() {
			continue
		}
		if !allowed[x.choice] && x.instead != nil && allowed[x.instead.choice] {
			x = *x.instead
		}
		s := Step{Finding: f, Action: x.action(), fix: x}
		if !allowed[x.choice] {
			s.Choice = x.choice
		}
		steps = append(steps, s)
	}
	return steps
}

func (f *fix) action() string {
	switch {
	case f.extend != "":
		return fmt.Sprintf("extend %s to %d bytes, with zeros", f.extend, f.size)
	case f.remove != "":
		return "remove the empty " + f.remove
	case f.fill != "":
		return fmt.Sprintf("have %d bytes of %s at %d skipped; a copy of them is kept", f.size, f.fill, f.at)
	case len(f.more) > 0:
		return fmt.Sprintf("move %s and %d more aside", f.aside, len(f.more))
	default:
		return "move " + f.aside + " aside"
	}
}

// Repair verifies the store in cfg and carries out what Plan says; it tells of
// each step before it. Nothing is deleted: what has to go is moved to a
// directory repair-<time> in the store. It blocks; the store must not be open.
func Repair(ctx context.Context, cfg Config, tell func(Step), given ...Choice) (*Report, error) {
	cfg.Live = false
	dir := "repair-" + time.Now().Format("20060102150405")
	for first := true; ; first = false {
		r, err := Verify(ctx, cfg)
		if err != nil {
			return r, err
		}
		extended, err := carryOut(cfg, Plan(r, given...), dir, tell)
		if err != nil || !extended || !first {
			return r, err
		}
		// What the file now has at its end must be looked at again.
	}
}

// carryOut does the steps whose choices are made.
func carryOut(cfg Config, steps []Step, dir string, tell func(Step)) (extended bool, err error) {
	if err := cfg.complete(); err != nil {
		return false, err
	}
	unlock, err := cfg.lock()
	if err != nil {
		return false, err
	}
	for _, s := range steps {
		tell(s)
		if s.Choice != Always {
			continue
		}
		if err := s.fix.run(&cfg, filepath.Join(cfg.Dir, dir)); err != nil {
			return extended, errors.Join(fmt.Errorf("%s: %w", s.Action, err), unlock())
		}
		extended = extended || s.fix.extend != ""
	}
	return extended, unlock()
}

func (f *fix) run(c *Config, dir string) error {
	switch {
	case f.extend != "":
		return extend(c.FS, f.extend, f.size)
	case f.remove != "":
		if err := c.FS.Remove(f.remove); err != nil {
			return err
		}
		return c.FS.SyncDir(filepath.Dir(f.remove))
	case f.fill != "":
		return f.skipDamage(c, dir)
	}
	for _, path := range append([]string{f.aside}, f.more...) {
		if err := moveAside(c, path, dir); err != nil {
			return err
		}
	}
	return nil
}

// damagedTopic is the topic of records that stand in place of damage.
const damagedTopic = "rmq_sys_DAMAGED"

// skipDamage keeps a copy of damaged bytes, and makes one record of them that
// enters no queue and no index: Apache's way to have no queue for a record is
// its transaction type rollback. Up to the segment's end a blank does it.
func (f *fix) skipDamage(c *Config, dir string) (err error) {
	w, err := c.FS.Open(f.fill, vfs.ReadWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	old := make([]byte, f.size)
	if _, err := w.ReadAt(old, f.at); err != nil {
		return err
	}
	if err := vfs.MkdirAllSync(c.FS, dir); err != nil {
		return err
	}
	if err := c.FS.WriteFileAtomic(filepath.Join(dir, fmt.Sprintf("damaged-%020d", f.base+f.at)), old); err != nil {
		return err
	}
	var b []byte
	if f.end {
		b = message.AppendBlank(nil, int32(f.size))
	} else if b, err = standIn(old, message.LogOffset(f.base+f.at), f.stored); err != nil {
		return err
	}
	if _, err := w.WriteAt(b, f.at); err != nil {
		return err
	}
	return w.Sync()
}

// standIn makes a record of exactly as many bytes as old has, with what fits of
// them as its body.
func standIn(old []byte, at message.LogOffset, stored int64) ([]byte, error) {
	topic := damagedTopic
	if left := len(old) - message.MinBytes; left < len(topic) {
		topic = topic[:max(left, 0)]
	}
	n := len(old) - message.MinBytes - len(topic)
	if n < 0 || topic == "" {
		return nil, fmt.Errorf("%d damaged bytes: too few to be made a record, want at least %d", len(old), message.MinBytes+1)
	}
	host := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	b, err := message.Append(nil, &message.Message{SysFlag: message.SysFlagTransactionRollback, BornHost: host, StoreHost: host,
		Topic: []byte(topic), Body: old[len(old)-n:]})
	if err == nil && len(b) != len(old) {
		err = fmt.Errorf("BUG: a stand-in of %d bytes, want %d", len(b), len(old))
	}
	if err != nil {
		return nil, err
	}
	message.Stamp(b, 0, at, stored)
	return b, nil
}

func extend(fsys vfs.FS, name string, size int64) (err error) {
	w, err := fsys.Open(name, vfs.ReadWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.Truncate(size); err != nil {
		return err
	}
	return w.Sync()
}

// moveAside moves a path into dir, under the name it has in the store.
func moveAside(c *Config, path, dir string) error {
	rel, err := filepath.Rel(c.Dir, path)
	if err != nil || !filepath.IsLocal(rel) { // a CommitLog outside of the store's directory
		rel = filepath.Base(path)
	}
	to := filepath.Join(dir, rel)
	if err := vfs.MkdirAllSync(c.FS, filepath.Dir(to)); err != nil {
		return err
	}
	if err := c.FS.Rename(path, to); err != nil {
		return err
	}
	return errors.Join(c.FS.SyncDir(filepath.Dir(to)), c.FS.SyncDir(filepath.Dir(path)))
}
