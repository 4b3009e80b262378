package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ringmq/ringmq/internal/vfs"
)

var (
	// errGone is returned by acquire for a deleted file.
	errGone = errors.New("index file was deleted")
	// ErrDamaged is wrapped by errors about bytes that cannot be.
	ErrDamaged = errors.New("damaged index file")
)

// chunkBytes is how much of a file is read at once; a multiple of an entry.
const chunkBytes = 1 << 15 * entryBytes

func (x *Index) entriesAt(n int32) int64 {
	return headerBytes + slotBytes*int64(x.cfg.HashSlots) + entryBytes*int64(n)
}

// acquire opens f, or counts one more user of it; release gives it back. May
// wait for a disk.
func (x *Index) acquire(f *file) (vfs.File, error) {
	x.fdMu.Lock()
	defer x.fdMu.Unlock()
	if f.dead {
		return nil, errGone
	}
	if f.f == nil {
		w, err := x.fs.Open(f.path, vfs.ReadWrite)
		if err != nil {
			return nil, err
		}
		f.f = w
	}
	f.users++
	return f.f, nil
}

func (x *Index) release(f *file) {
	x.fdMu.Lock()
	defer x.fdMu.Unlock()
	f.users--
	x.uses++
	f.lastUse = x.uses
	if f.users > 0 {
		return
	}
	if f.dead {
		x.closeFile(f)
		return
	}
	x.limitOpen()
}

// limitOpen closes the file idle for longest when too many are open. Holds
// fdMu.
func (x *Index) limitOpen() {
	var open int
	var old *file
	for _, f := range *x.files.Load() {
		if f.f == nil {
			continue
		}
		open++
		if f.users == 0 && (old == nil || f.lastUse < old.lastUse) {
			old = f
		}
	}
	if open > x.cfg.OpenFilesMax && old != nil {
		x.closeFile(old)
	}
}

// closeFile holds fdMu. What was written through the descriptor is synced, or
// is of no use any more.
func (x *Index) closeFile(f *file) {
	if f.f != nil {
		_ = f.f.Close()
		f.f = nil
	}
}

// reopen makes f, the newest file, take entries: it reads the slots into
// memory, and with replay makes those that a crash left behind from the
// entries.
func (x *Index) reopen(f *file, replay bool) error {
	w, err := x.acquire(f) // until the file is full and swept
	if err != nil {
		return err
	}
	var g file
	g.allocate(x.cfg.HashSlots)
	ahead, err := x.readSlots(w, g.table, f.count)
	if err == nil && replay {
		from := max(1, f.count/int32(x.cfg.SlotEvery)*int32(x.cfg.SlotEvery))
		if ahead {
			from = 1
			clear(g.table)
		}
		err = x.replay(f, w, &g, from)
	}
	if err != nil {
		x.release(f)
		return fmt.Errorf("%s: %w", f.path, err)
	}
	x.mu.Lock()
	f.table, f.dirty, f.ring = g.table, g.dirty, g.ring
	f.written, f.ringLow = f.count, f.count
	if replay {
		f.slotsUsed = 0
		for _, v := range f.table {
			if v > 0 {
				f.slotsUsed++
			}
		}
	}
	x.cur = f
	x.mu.Unlock()
	return nil
}

// readSlots fills table from the file; ahead says that a slot names an entry
// at or above count.
func (x *Index) readSlots(r io.ReaderAt, table []int32, count int32) (ahead bool, err error) {
	buf := make([]byte, min(chunkBytes, slotBytes*len(table)))
	for i := 0; i < len(table); {
		part := buf[:min(len(buf), slotBytes*(len(table)-i))]
		if err := readFull(r, part, headerBytes+slotBytes*int64(i)); err != nil {
			return false, err
		}
		for ; len(part) > 0; part = part[slotBytes:] {
			v := int32(binary.BigEndian.Uint32(part))
			ahead = ahead || v >= count
			table[i] = v
			i++
		}
	}
	return ahead, nil
}

// replay sets the slots of the entries of f from number from on.
func (x *Index) replay(f *file, r io.ReaderAt, g *file, from int32) error {
	return x.eachEntry(r, from, f.count, func(n int32, e entry) error {
		if e.hash < 0 || e.prev < 0 || e.prev >= n {
			return fmt.Errorf("%w: entry %d: hash %d, previous entry %d", ErrDamaged, n, e.hash, e.prev)
		}
		slot := uint32(e.hash) % uint32(len(g.table))
		g.table[slot] = n
		g.touch(slot)
		return nil
	})
}

// touch marks the page of slot as changed. Holds mu where f is shared.
func (f *file) touch(slot uint32) {
	page := slot / pageSlots
	f.dirty[page/64] |= 1 << (page % 64)
}

// eachEntry reads entries [from, to) in large pieces.
func (x *Index) eachEntry(r io.ReaderAt, from, to int32, fn func(n int32, e entry) error) error {
	buf := make([]byte, min(chunkBytes, entryBytes*int64(max(0, to-from))))
	for from < to {
		part := buf[:min(int64(len(buf)), entryBytes*int64(to-from))]
		if err := readFull(r, part, x.entriesAt(from)); err != nil {
			return err
		}
		for ; len(part) > 0; part = part[entryBytes:] {
			if err := fn(from, decodeEntry(part)); err != nil {
				return err
			}
			from++
		}
	}
	return nil
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
