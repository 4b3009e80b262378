// Package segment answers one question: how do files of equal size make one
// address space?
//
// A Set is a directory of files named by the offset of their first byte, 20
// digits, each exactly size bytes long from birth:
//
//	commitlog/00000000000000000000   [0, size)
//	commitlog/00000000001073741824   [size, 2*size)
//	commitlog/prepared/…             the next one, while it is being made
//
// A segment is made in the sub-directory "prepared" (Apache's load skips
// sub-directories), set to its length or filled with zeros, synced, renamed
// into place, and its directory synced before anyone gets to write to it.
// Bytes never written read as zero: what is cut off is zeroed, and a file is
// never used again under another name.
//
// Space comes before bytes: what the writer is about to write has its room on
// the disk before (zeros written there, or allocated), so that a full disk is
// met by Reserve and Next, where nothing has changed yet, and not in the middle
// of a write:
//
//	base      claimed          room                       end
//	| written | being written  | allocated ahead … sparse |
//	          ^ the writer     ^ moved by the preparer, by Reserve where it is behind
//
// Goroutines: one owner makes the structural changes (Next, TruncateTo,
// DeleteBefore, Close); the list of segments is an atomic snapshot that any
// goroutine reads. With Options.Spare the Set has one goroutine of its own, the
// preparer, that makes the next segment and keeps room, or zeros, ahead of the
// writer; Close waits for it.
package segment

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/ringmq/ringmq/internal/vfs"
)

// NameDigits is the length of a segment's file name.
const NameDigits = 20

// Name is the file name of the segment that starts at base.
func Name(base int64) string { return fmt.Sprintf("%020d", base) }

// ParseName gives the base that a file name stands for; ok is false for names
// that are no segment's.
func ParseName(name string) (base int64, ok bool) {
	if len(name) != NameDigits {
		return 0, false
	}
	for i := 0; i < len(name); i++ {
		if name[i] < '0' || name[i] > '9' {
			return 0, false
		}
	}
	base, err := strconv.ParseInt(name, 10, 64)
	return base, err == nil
}

// Segment is one file of a Set: the bytes [Base, Base+Size) of its address
// space. File offsets are positions less Base.
type Segment struct {
	Base int64 // position of the first byte
	Size int64 // bytes

	file vfs.File
	name string
	// room is the position up to which every byte from the writer's place on has
	// its room on the disk. Only rises, but for TruncateTo; under the Set's mu.
	room int64
	// refs counts the Set's own reference and those of readers. Whoever takes
	// it to zero closes the file; from zero it never rises again.
	refs atomic.Int64
}

func newSegment(f vfs.File, name string, base, size int64) *Segment {
	s := &Segment{Base: base, Size: size, file: f, name: name, room: base}
	s.refs.Store(1)
	return s
}

// End is the position behind the last byte.
func (s *Segment) End() int64 { return s.Base + s.Size }

// File is the open file, usable while the caller holds a reference.
func (s *Segment) File() vfs.File { return s.file }

// Acquire takes a reference, so that the file stays open until Release even if
// the segment is deleted meanwhile. It is false when the segment is gone. Any
// goroutine; does not block.
func (s *Segment) Acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives a reference back. The last one closes the file.
func (s *Segment) Release() {
	switch n := s.refs.Add(-1); {
	case n == 0:
		// Nothing is lost by a failed close: what had to be durable was synced.
		_ = s.file.Close()
	case n < 0:
		panic("BUG: segment " + s.name + " released more often than acquired")
	}
}
