package consumequeue

import (
	"encoding/binary"
	"math"

	"github.com/ringmq/ringmq/message"
)

// EntryBytes is the size of an entry in a file, BatchUnitBytes that of a unit
// in a batch queue's.
const (
	EntryBytes     = 20
	BatchUnitBytes = 46
)

// An Entry says where a record of a queue stands in the log.
type Entry struct {
	LogOffset message.LogOffset
	Size      int32 // bytes of the record
	Span            // zero in a plain queue
	TagsCode  int64 // message.TagsCode of its tags, or what the dispatcher put in its place
}

// A Span is what an entry of a batch queue says of its record's messages. (It is
// a struct of its own because the compiler keeps no more than four fields in
// registers.)
type Span struct {
	Count int16 // how many there are; 0 counts as 1
	Into  int16 // set by reads: how many of them stand before the offset asked for
}

// Messages is how many offsets of its queue e stands for.
func (e Entry) Messages() message.QueueOffset { return message.QueueOffset(max(1, e.Count)) }

// filler stands at offsets of a queue that have no record.
var filler = Entry{Size: math.MaxInt32}

// Filler says whether e stands for an offset that has no record; readers pass
// over it.
func (e Entry) Filler() bool { return e.LogOffset == 0 && e.Size == math.MaxInt32 }

// End is the log offset behind the record.
func (e Entry) End() message.LogOffset { return e.LogOffset + message.LogOffset(e.Size) }

// Valid says whether e was ever written.
func (e Entry) Valid() bool { return e.LogOffset >= 0 && e.Size > 0 }

func appendEntry(dst []byte, e Entry) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.LogOffset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Size))
	return binary.BigEndian.AppendUint64(dst, uint64(e.TagsCode))
}

// DecodeEntry reads the entry at the start of b, which has EntryBytes.
func DecodeEntry(b []byte) Entry {
	_ = b[EntryBytes-1]
	return Entry{
		LogOffset: message.LogOffset(binary.BigEndian.Uint64(b)),
		Size:      int32(binary.BigEndian.Uint32(b[8:])),
		TagsCode:  int64(binary.BigEndian.Uint64(b[12:])),
	}
}

// A unit is an entry with what only a batch queue keeps beside it.
type unit struct {
	Entry
	batchPart
}

// A batchPart is what a unit of a batch queue has beside its entry and count;
// zero elsewhere.
type batchPart struct {
	base   int64 // offset of the record's first message
	stored int64 // store time of the record, milliseconds
}

// end is the offset behind a batch queue's record.
func (u *unit) end() int64 { return u.base + int64(u.Messages()) }

// A kind is how the queues of one kind lie on disk.
type kind struct {
	dir       string
	unitBytes int64
	fileBytes int64
	units     int64  // in a file
	key       string // the configuration key of fileBytes
	batch     bool
}

func newKind(dir string, unitBytes, fileBytes int64, key string) *kind {
	return &kind{dir: dir, unitBytes: unitBytes, fileBytes: fileBytes, units: fileBytes / unitBytes, key: key, batch: unitBytes == BatchUnitBytes}
}

// DecodeBatchUnit reads the unit of a batch queue at the start of b, which has
// BatchUnitBytes: its entry, and the offset of the record's first message.
func DecodeBatchUnit(b []byte) (e Entry, base message.QueueOffset) {
	u := batchKind.decode(b)
	return u.Entry, message.QueueOffset(u.base)
}

var batchKind = kind{batch: true}

// appendUnit appends a batch queue's unit as files hold it.
func appendUnit(dst []byte, u unit) []byte {
	dst = appendEntry(dst, u.Entry)
	dst = binary.BigEndian.AppendUint64(dst, uint64(u.stored))
	dst = binary.BigEndian.AppendUint64(dst, uint64(u.base))
	dst = binary.BigEndian.AppendUint16(dst, uint16(u.Messages()))
	dst = binary.BigEndian.AppendUint32(dst, math.MaxUint32) // compactedOffset: none
	return binary.BigEndian.AppendUint32(dst, 0)
}

// decode reads the unit at the start of b. One of a batch queue whose base or
// count is none is not valid.
func (k *kind) decode(b []byte) unit {
	u := unit{Entry: DecodeEntry(b)}
	if !k.batch {
		return u
	}
	_ = b[BatchUnitBytes-1]
	u.stored = int64(binary.BigEndian.Uint64(b[20:]))
	u.base = int64(binary.BigEndian.Uint64(b[28:]))
	u.Count = int16(binary.BigEndian.Uint16(b[36:]))
	if u.base < 0 || u.Count <= 0 {
		u.Size = 0
	}
	return u
}
