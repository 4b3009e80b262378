package index

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Sweep makes durable what was Put before the call. It blocks on the disk;
// Put and Query go on meanwhile. A failed write may be tried again by the next
// Sweep; after a failed sync this and all later ones return the error.
func (x *Index) Sweep() error {
	x.sweepMu.Lock()
	defer x.sweepMu.Unlock()
	return x.sweep(false)
}

// Close writes everything, the slots included, and closes the files. No other
// call may be under way or follow.
func (x *Index) Close() error {
	x.sweepMu.Lock()
	defer x.sweepMu.Unlock()
	err := x.sweep(true)
	x.fdMu.Lock()
	defer x.fdMu.Unlock()
	for _, f := range *x.files.Load() {
		x.closeFile(f)
	}
	return err
}

// sweep holds sweepMu. all writes the slots of the newest file too.
func (x *Index) sweep(all bool) error {
	if x.failed != nil {
		return x.failed
	}
	x.mu.Lock()
	cur, retired, dir := x.cur, x.retired, x.dirDirty
	x.mu.Unlock()
	for _, f := range retired {
		if err := x.sweepFile(f, true); err != nil {
			return err
		}
		x.mu.Lock()
		f.table, f.dirty = nil, nil
		x.retired = x.retired[1:]
		x.mu.Unlock()
		x.release(f)
		x.safe.Store(f.endMillis)
	}
	if cur != nil {
		if err := x.sweepFile(cur, all); err != nil {
			return err
		}
	}
	if !dir {
		return nil
	}
	if err := x.fs.SyncDir(x.cfg.Dir); err != nil {
		return x.fail(x.cfg.Dir, err)
	}
	x.mu.Lock()
	x.dirDirty = false
	x.mu.Unlock()
	return nil
}

func (x *Index) fail(path string, err error) error {
	x.failed = fmt.Errorf("sync of index %s: %w", path, err)
	return x.failed
}

// sweepFile makes f's entries durable, then what the header says of them.
// Holds sweepMu; f is pinned, being cur or retired.
func (x *Index) sweepFile(f *file, slots bool) error {
	x.mu.Lock()
	h := f.header
	x.mu.Unlock()
	if h.count == f.durable && !slots {
		return nil
	}
	if err := x.writeEntries(f); err != nil {
		return err
	}
	slots = slots || int(h.count)/x.cfg.SlotEvery != int(f.durable)/x.cfg.SlotEvery
	if slots {
		if err := x.writeSlots(f); err != nil {
			return err
		}
	}
	if err := f.f.SyncData(); err != nil {
		return x.fail(f.path, err)
	}
	if h.count == f.durable {
		return nil
	}
	if _, err := f.f.WriteAt(h.append(make([]byte, 0, headerBytes)), 0); err != nil {
		return err
	}
	if err := f.f.SyncData(); err != nil {
		return x.fail(f.path, err)
	}
	f.durable = h.count
	return nil
}

// writeEntries writes the entries of f that only memory has, without a sync.
// mu must not be held.
func (x *Index) writeEntries(f *file) error {
	x.writeMu.Lock()
	defer x.writeMu.Unlock()
	x.mu.Lock()
	// Put writes no entry of this range: it waits while the ring is full.
	ring, from, to := f.ring, f.written, f.count
	x.mu.Unlock()
	for from < to {
		n := min(to-from, ringEntries-from%ringEntries)
		part := ring[from%ringEntries*entryBytes:][:n*entryBytes]
		if _, err := f.f.WriteAt(part, x.entriesAt(from)); err != nil {
			return err
		}
		from += n
		x.mu.Lock()
		f.written = from
		x.mu.Unlock()
	}
	return nil
}

// slotRun is how many pages of slots are written at once.
const slotRun = 16

// writeSlots writes the changed pages of the slots, without a sync. It may
// write slots of entries newer than the header will tell; after a crash that
// is noticed.
func (x *Index) writeSlots(f *file) error {
	buf := make([]byte, 0, slotRun*pageSlots*slotBytes)
	for page := 0; ; {
		x.mu.Lock()
		first := f.nextDirty(page)
		if first < 0 {
			x.mu.Unlock()
			return nil
		}
		buf = buf[:0]
		for page = first; page < first+slotRun && f.isDirty(page); page++ {
			f.dirty[page/64] &^= 1 << (page % 64)
			for _, v := range f.table[page*pageSlots : min(len(f.table), (page+1)*pageSlots)] {
				buf = binary.BigEndian.AppendUint32(buf, uint32(v))
			}
		}
		x.mu.Unlock()
		if _, err := f.f.WriteAt(buf, headerBytes+slotBytes*pageSlots*int64(first)); err != nil {
			x.mu.Lock()
			for ; first < page; first++ {
				f.touch(uint32(first * pageSlots))
			}
			x.mu.Unlock()
			return err
		}
	}
}

func (f *file) isDirty(page int) bool {
	return page/64 < len(f.dirty) && f.dirty[page/64]&(1<<(page%64)) != 0
}

// nextDirty is the first changed page from page on, -1 when there is none.
func (f *file) nextDirty(page int) int {
	for i := page / 64; i < len(f.dirty); i++ {
		w := f.dirty[i]
		if i == page/64 {
			w &= ^uint64(0) << (page % 64)
		}
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}
