package index

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/ringmq/ringmq/message"
)

// Query returns log offsets of records whose topic and key have the asked
// hash and that were stored in [begin, end] milliseconds, give or take a
// second, newest first, at most max, each once. Whether a record really
// carries the key is the caller's to check. What is Put and not yet swept is
// found too. Any goroutine; waits for disks. After an error the offsets found
// so far are good.
func (x *Index) Query(topic, key string, max int, begin, end int64) ([]message.LogOffset, error) {
	var found []message.LogOffset
	hash := keyHash(topic, key)
	for _, f := range slices.Backward(*x.files.Load()) {
		x.mu.Lock()
		h := f.header
		x.mu.Unlock()
		if len(found) >= max || h.count > 1 && h.endMillis < begin {
			break // older files are older still
		}
		if h.count <= 1 || h.beginMillis > end {
			continue
		}
		var err error
		found, err = x.queryFile(f, h.beginMillis, hash, found, max, begin, end)
		if err != nil && !errors.Is(err, errGone) {
			return found, err
		}
	}
	return found, nil
}

// queryFile follows the chain of hash's bucket in f.
func (x *Index) queryFile(f *file, base int64, hash int32, found []message.LogOffset, max int, begin, end int64) ([]message.LogOffset, error) {
	r, err := x.acquire(f)
	if err != nil {
		return found, err
	}
	defer x.release(f)
	var b [entryBytes]byte
	n, err := x.head(f, r, uint32(hash)%uint32(x.cfg.HashSlots), b[:slotBytes])
	if err != nil {
		return found, err
	}
	for last := int32(math.MaxInt32); n > 0 && n < last && len(found) < max; {
		if !x.recent(f, n, b[:]) {
			if err := readFull(r, b[:], x.entriesAt(n)); err != nil {
				return found, err
			}
		}
		e := decodeEntry(b[:])
		from := base + 1000*int64(e.secs) // the record was stored in [from, from+1000)
		if from+999 < begin {
			break
		}
		if off := message.LogOffset(e.log); e.hash == hash && from <= end && !slices.Contains(found, off) {
			found = append(found, off)
		}
		last, n = n, e.prev
	}
	return found, nil
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
