// Package inspect answers one question: is everything in a store's directory
// as it should be, without a broker?
//
// It reads a store's files as they lie there and trusts none of them: Verify
// goes once through the CommitLog, in order, and holds each record against the
// ConsumeQueues and the key index beside it; Dump prints records, entries and
// tables; Plan and Repair do what a start would refuse to do by itself. Formats
// are those of the rooms below (message, consumequeue, engine/index).
//
//	log        record after record: sizes, magic, CRC of the body, physicalOffset
//	queues     the entry of each record stands where its queueOffset says
//	index      the keys of each record follow each other in the index files
//	tables     config/*.json can be read, offsets are not beyond their queues
//
// Both queues and index are written in the order of the log, so all of it is
// sequential reading: the log at the disk's speed, the others a fraction of it.
//
// Goroutines: one reads the log ahead of the one that called; both end with the
// call. Nothing is written but by Repair.
package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
)

// A Config says which store to look at.
type Config struct {
	FS           vfs.FS
	Dir          string // storePathRootDir
	CommitLogDir string // storePathCommitLog; Dir/commitlog when empty
	IndexSlots   int    // maxHashSlotNum; Apache's default when 0
	IndexEntries int    // maxIndexNum; Apache's default when 0

	// Live looks at a store that a broker has open: only what its dispatch mark
	// covers is judged.
	Live bool
	// NoCRC leaves the bodies' CRCs out.
	NoCRC bool
	// FindingsMax bounds the findings kept, 1000 when 0; all are counted.
	FindingsMax int
	// Progress is told how much of the log has been read, a few times a second.
	// May be nil.
	Progress func(done, total int64)
}

// Apache's sizes of an index file.
const (
	defaultIndexSlots   = 5_000_000
	defaultIndexEntries = 20_000_000
)

func (c *Config) complete() error {
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.Dir == "" {
		return errors.New("no store directory given")
	}
	if c.CommitLogDir == "" {
		c.CommitLogDir = filepath.Join(c.Dir, "commitlog")
	}
	if c.IndexSlots == 0 {
		c.IndexSlots = defaultIndexSlots
	}
	if c.IndexEntries == 0 {
		c.IndexEntries = defaultIndexEntries
	}
	if c.FindingsMax == 0 {
		c.FindingsMax = 1000
	}
	if c.Progress == nil {
		c.Progress = func(int64, int64) {}
	}
	if _, err := c.FS.Stat(c.CommitLogDir); err != nil {
		return fmt.Errorf("%s is no store: %w", c.Dir, err)
	}
	return nil
}

// ErrInUse is wrapped by the error for a store that a broker has open.
var ErrInUse = errors.New("a broker has this store open")

// lock keeps brokers out while the store is looked at. A store without a lock
// file was never opened, and stays without.
func (c *Config) lock() (unlock func() error, err error) {
	name := filepath.Join(c.Dir, "lock")
	if _, err := c.FS.Stat(name); c.Live || errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	l, err := c.FS.Lock(name)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, c.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return l.Close, nil
}

// A place is one file of a directory whose files are named by the offset of
// their first byte.
type place struct {
	path string
	base int64
	size int64
}

// listFiles gives such files in their order, and the names of what else is
// there, sub-directories left out.
func listFiles(fsys vfs.FS, dir string) (files []place, strays []string, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if e.IsDir {
			continue
		}
		base, ok := segment.ParseName(e.Name)
		if !ok {
			strays = append(strays, filepath.Join(dir, e.Name))
			continue
		}
		files = append(files, place{filepath.Join(dir, e.Name), base, e.Size})
	}
	slices.SortFunc(files, func(a, b place) int { return int(min(1, max(-1, a.base-b.base))) })
	return files, strays, nil
}

// usualSize is the size most files have.
func usualSize(files []place) int64 {
	count := map[int64]int{}
	var best int64
	for _, f := range files {
		if count[f.size]++; f.size > 0 && (best == 0 || count[f.size] > count[best]) {
			best = f.size
		}
	}
	return best
}
