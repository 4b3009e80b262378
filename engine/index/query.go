package index

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/ringmq/ringmq/message"
)

// Query gives take the log offsets of records whose topic and key have the asked
// hash and that were stored in [begin, end] milliseconds, give or take a
// second, newest first, each once, until take returns false. Whether a record
// really carries the key is take's to check. What is Put and not yet swept is
// found too. Any goroutine; waits for disks, and take may. After an error the
// offsets given so far are good.
func (x *Index) Query(topic, key string, begin, end int64, take func(message.LogOffset) bool) error {
	w := walk{hash: keyHash(topic, key), begin: begin, end: end, last: -1, take: take}
	for _, f := range slices.Backward(*x.files.Load()) {
		x.mu.Lock()
		h := f.header
		x.mu.Unlock()
		if w.over || h.count > 1 && h.endMillis < begin {
			break // older files are older still
		}
		if h.count <= 1 || h.beginMillis > end {
			continue
		}
		if err := x.queryFile(f, h.beginMillis, &w); err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	return nil
}

// A walk is one Query under way.
type walk struct {
	hash       int32
	begin, end int64
	last       message.LogOffset // given last: a record's keys of one hash follow each other
	over       bool              // take wants no more
	take       func(message.LogOffset) bool
}

// queryFile follows the chain of the hash's bucket in f.
func (x *Index) queryFile(f *file, base int64, w *walk) error {
	r, err := x.acquire(f)
	if err != nil {
		return err
	}
	defer x.release(f)
	var b [entryBytes]byte
	n, err := x.head(f, r, uint32(w.hash)%uint32(x.cfg.HashSlots), b[:slotBytes])
	if err != nil {
		return err
	}
	for last := int32(math.MaxInt32); n > 0 && n < last && !w.over; {
		if !x.recent(f, n, b[:]) {
			if err := readFull(r, b[:], x.entriesAt(n)); err != nil {
				return err
			}
		}
		e := decodeEntry(b[:])
		from := base + 1000*int64(e.secs) // the record was stored in [from, from+1000)
		if from+999 < w.begin {
			break
		}
		if off := message.LogOffset(e.log); e.hash == w.hash && from <= w.end && off != w.last {
			w.last, w.over = off, !w.take(off)
		}
		last, n = n, e.prev
	}
	return nil
}

// head is the number of the newest entry in slot, 0 for none.
func (x *Index) head(f *file, r io.ReaderAt, slot uint32, b []byte) (int32, error) {
	x.mu.Lock()
	count, inMemory := f.count, f.table != nil
	n := int32(0)
	if inMemory {
		n = f.table[slot]
	}
	x.mu.Unlock()
	if !inMemory {
		if err := readFull(r, b, headerBytes+slotBytes*int64(slot)); err != nil {
			return 0, err
		}
		n = int32(binary.BigEndian.Uint32(b))
	}
	if n >= count {
		return 0, nil
	}
	return n, nil
}

// recent copies entry n into b if it is in memory.
func (x *Index) recent(f *file, n int32, b []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f.ring == nil || n < max(f.ringLow, f.count-ringEntries) {
		return false
	}
	copy(b, f.ring[n%ringEntries*entryBytes:])
	return true
}
