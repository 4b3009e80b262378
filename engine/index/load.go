package index

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// Open loads the index in cfg.Dir: it reads the headers, and after a crash of
// ringmq the slots of the newest file. Files that cannot be an index file are
// named in the log; a damaged one is moved to the directory's sibling
// <Dir>.damaged, see RebuildFrom. Files of one other size throughout give
// ErrConfig.
func Open(cfg Config) (*Index, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	x := &Index{cfg: cfg, fs: cfg.FS, log: cfg.Logger}
	x.setFiles(nil)
	if err := vfs.MkdirAllSync(x.fs, cfg.Dir); err != nil {
		return nil, err
	}
	entries, err := x.list()
	if err != nil {
		return nil, err
	}
	var files []*file
	for i, e := range entries {
		f, why, err := x.loadFile(e)
		if err != nil {
			return nil, err
		}
		if why == "" {
			files = append(files, f)
			continue
		}
		if err := x.setAside(e.Name, why, i == len(entries)-1, files); err != nil {
			return nil, err
		}
	}
	x.setFiles(files)
	if err := x.trust(); err != nil {
		return nil, err
	}
	if f := x.newest(); f != nil {
		x.endLog = f.endLog
	}
	for _, f := range *x.files.Load() {
		if f != x.cur && !slices.Contains(x.retired, f) && (f != x.newest() || int(f.count) >= cfg.Entries) {
			x.safe.Store(f.endMillis)
		}
	}
	return x, nil
}

// list gives the files that look like index files by name, sorted.
func (x *Index) list() ([]vfs.DirEntry, error) {
	all, err := x.fs.ReadDir(x.cfg.Dir)
	if err != nil {
		return nil, err
	}
	var files []vfs.DirEntry
	var other int64 // the one size all files have, -1 when they differ
	for _, e := range all {
		if e.IsDir || !isName(e.Name) {
			x.log.Warn("not an index file, left alone", "path", filepath.Join(x.cfg.Dir, e.Name))
			continue
		}
		files = append(files, e)
		if other == 0 {
			other = e.Size
		} else if other != e.Size {
			other = -1
		}
	}
	if other > headerBytes && other != x.cfg.fileBytes() && (other-headerBytes)%slotBytes == 0 {
		return nil, fmt.Errorf("%w: index files such as %s have %d bytes, configured are %d (40 + 4·maxHashSlotNum + 20·maxIndexNum): set the values they were made with, or move the index directory away to begin a new one",
			ErrConfig, filepath.Join(x.cfg.Dir, files[0].Name), other, x.cfg.fileBytes())
	}
	return files, nil
}

func isName(s string) bool {
	if len(s) != len("20060102150405000") {
		return false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// loadFile reads the header of a file; why says what is wrong with it.
func (x *Index) loadFile(e vfs.DirEntry) (f *file, why string, err error) {
	if e.Size != x.cfg.fileBytes() {
		return nil, fmt.Sprintf("it has %d bytes, not %d", e.Size, x.cfg.fileBytes()), nil
	}
	f = &file{path: filepath.Join(x.cfg.Dir, e.Name)}
	r, err := x.fs.Open(f.path, vfs.Read)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var b [headerBytes]byte
	if err := readFull(r, b[:], 0); err != nil {
		return nil, "", fmt.Errorf("%s: %w", f.path, err)
	}
	f.header.decode(b[:])
	f.written, f.durable = f.count, f.count
	switch {
	case int(f.count) > x.cfg.Entries || int(f.slotsUsed) > x.cfg.HashSlots || f.slotsUsed < 0,
		f.beginLog < 0 || f.endLog < f.beginLog:
		return nil, fmt.Sprintf("its header cannot be: %d entries, %d slots, log offsets %d to %d", f.count, f.slotsUsed, f.beginLog, f.endLog), nil
	case f.count == 1:
		return f, "", nil
	}
	if err := readFull(r, b[:entryBytes], x.entriesAt(f.count-1)); err != nil {
		return nil, "", fmt.Errorf("%s: %w", f.path, err)
	}
	if last := decodeEntry(b[:]); last.log != f.endLog || last.hash < 0 || last.prev >= f.count-1 {
		return nil, fmt.Sprintf("its last entry, number %d, has log offset %d and not the header's %d", f.count-1, last.log, f.endLog), nil
	}
	return f, "", nil
}

// setAside moves a damaged file out of the way.
func (x *Index) setAside(name, why string, newest bool, before []*file) error {
	dir := x.cfg.Dir + ".damaged"
	if newest {
		x.rebuild, x.rebuildFrom = true, 0
		if n := len(before); n > 0 {
			x.rebuildFrom = message.LogOffset(before[n-1].endLog)
		}
		x.log.Warn("damaged index file moved away, its keys are indexed again from the log",
			"path", filepath.Join(x.cfg.Dir, name), "to", dir, "reason", why, "from", int64(x.rebuildFrom))
	} else {
		x.log.Warn("damaged index file moved away, its keys cannot be found any more",
			"path", filepath.Join(x.cfg.Dir, name), "to", dir, "reason", why)
	}
	if err := vfs.MkdirAllSync(x.fs, dir); err != nil {
		return err
	}
	if err := x.fs.Rename(filepath.Join(x.cfg.Dir, name), filepath.Join(dir, name)); err != nil {
		return err
	}
	if err := x.fs.SyncDir(dir); err != nil {
		return err
	}
	return x.fs.SyncDir(x.cfg.Dir)
}

// trust drops or completes what an unclean end left.
func (x *Index) trust() error {
	for f := x.newest(); f != nil; f = x.newest() {
		java := !x.cfg.Clean && !x.cfg.Ours && f.endMillis > x.cfg.SafeMillis
		if f.count > 1 && !java {
			break
		}
		if java {
			x.log.Info("removing index file that an unclean stop may have left incomplete", "path", f.path)
		}
		if err := x.remove(f); err != nil {
			return err
		}
		if java {
			x.rebuild, x.rebuildFrom = true, message.LogOffset(f.beginLog)
		}
	}
	f := x.newest()
	if f == nil || x.cfg.Clean || !x.cfg.Ours {
		return nil
	}
	if err := x.reopen(f, true); err != nil {
		return x.giveUp(f, err)
	}
	if int(f.count) >= x.cfg.Entries { // only its slots may be missing
		f.ring = nil
		x.retired, x.cur = append(x.retired, f), nil
	}
	return nil
}

// giveUp sets the newest file f aside if err says that it is damaged; any other
// error comes back.
func (x *Index) giveUp(f *file, err error) error {
	if !errors.Is(err, ErrDamaged) {
		return err
	}
	x.forget(f)
	if err := x.setAside(filepath.Base(f.path), err.Error(), true, *x.files.Load()); err != nil {
		return err
	}
	x.mu.Lock()
	x.endLog = int64(x.rebuildFrom)
	x.mu.Unlock()
	return nil
}

// remove deletes f, which is the oldest or the newest file.
func (x *Index) remove(f *file) error {
	if err := x.fs.Remove(f.path); err != nil {
		return err
	}
	x.forget(f)
	return nil
}

// forget takes f off the list; its name is gone already, or about to go.
func (x *Index) forget(f *file) {
	x.mu.Lock()
	x.dirDirty = true
	x.setFiles(slices.DeleteFunc(slices.Clone(*x.files.Load()), func(g *file) bool { return g == f }))
	pinned := f == x.cur
	if pinned {
		x.cur = nil
	}
	if i := slices.Index(x.retired, f); i >= 0 {
		pinned = true
		x.retired = slices.Delete(x.retired, i, i+1)
	}
	x.mu.Unlock()
	x.fdMu.Lock()
	f.dead = true
	if f.users == 0 {
		x.closeFile(f)
	}
	x.fdMu.Unlock()
	if pinned {
		x.release(f)
	}
}

// DeleteBelow removes files, the newest excepted, whose records are all below
// minLog, and returns how many went. Put and Query may go on.
func (x *Index) DeleteBelow(minLog message.LogOffset) (deleted int, err error) {
	x.sweepMu.Lock()
	defer x.sweepMu.Unlock()
	files := *x.files.Load()
	for i, f := range files {
		x.mu.Lock()
		keep := i == len(files)-1 || f.table != nil || f.endLog >= int64(minLog)
		x.mu.Unlock()
		if keep {
			break
		}
		if err := x.remove(f); err != nil {
			return deleted, err
		}
		deleted++
	}
	if deleted == 0 {
		return 0, nil
	}
	if err := x.fs.SyncDir(x.cfg.Dir); err != nil {
		return deleted, x.fail(x.cfg.Dir, err)
	}
	return deleted, nil
}

// TruncateAbove forgets, durably, the records at or above log; a newest file
// that proves damaged is set aside, see RebuildFrom. No Put or Sweep may be
// under way. Blocks on the disk.
func (x *Index) TruncateAbove(log message.LogOffset) error {
	x.sweepMu.Lock()
	defer x.sweepMu.Unlock()
	f := x.newest()
	for ; f != nil && (f.count <= 1 || f.beginLog >= int64(log)); f = x.newest() {
		if err := x.remove(f); err != nil {
			return err
		}
	}
	x.mu.Lock()
	x.endLog = 0
	if f != nil {
		x.endLog = f.endLog
	}
	x.mu.Unlock()
	if f == nil || f.endLog < int64(log) {
		return x.sweep(true)
	}
	if err := x.takeEntries(f); err != nil {
		return err
	}
	if err := x.cut(f, int64(log)); err != nil {
		return x.giveUp(f, fmt.Errorf("%s: %w", f.path, err))
	}
	f.durable = 0 // the header goes out in any case
	return x.sweep(true)
}

// takeEntries makes f, the newest file, cur.
func (x *Index) takeEntries(f *file) error {
	if f == x.cur {
		return x.writeEntries(f)
	}
	x.mu.Lock()
	i := slices.Index(x.retired, f)
	if i >= 0 {
		x.retired = slices.Delete(x.retired, i, i+1)
		f.ring = make([]byte, ringEntries*entryBytes)
		f.ringLow = f.count
		x.cur = f
	}
	x.mu.Unlock()
	if i >= 0 {
		return nil
	}
	return x.reopen(f, false)
}

// cut takes the entries at or above log out of f, which is cur and fully
// written.
func (x *Index) cut(f *file, log int64) error {
	var b [entryBytes]byte
	at := func(n int32) (entry, error) {
		err := readFull(f.f, b[:], x.entriesAt(n))
		return decodeEntry(b[:]), err
	}
	lo, hi := int32(1), f.count // the first entry at or above log
	for lo < hi {
		mid := lo + (hi-lo)/2
		e, err := at(mid)
		if err != nil {
			return err
		}
		if e.log >= log {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	last, err := at(lo - 1) // lo > 1: the file begins below log
	if err != nil {
		return err
	}
	heads, err := x.headsBelow(f, lo)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for slot, head := range heads {
		f.table[slot] = head
		f.touch(slot)
		if head == 0 {
			f.slotsUsed--
		}
	}
	f.count, f.written, f.ringLow = lo, lo, lo
	f.endLog = last.log
	f.endMillis = min(f.endMillis, f.beginMillis+1000*int64(last.secs)+999)
	x.endLog = f.endLog
	return nil
}

// headsBelow gives, for each slot that the entries from number cut on are in,
// its newest entry below cut: what the first of them names as previous.
func (x *Index) headsBelow(f *file, cut int32) (map[uint32]int32, error) {
	heads := map[uint32]int32{}
	err := x.eachEntry(f.f, cut, f.count, func(n int32, e entry) error {
		if e.hash < 0 || e.prev < 0 || e.prev >= n {
			return fmt.Errorf("%w: entry %d: hash %d, previous entry %d", ErrDamaged, n, e.hash, e.prev)
		}
		slot := uint32(e.hash) % uint32(len(f.table))
		if _, ok := heads[slot]; !ok {
			heads[slot] = e.prev
		}
		return nil
	})
	return heads, err
}
