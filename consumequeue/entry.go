package consumequeue

import (
	"encoding/binary"
	"math"

	"github.com/ringmq/ringmq/message"
)

// EntryBytes is the size of an entry in a file.
const EntryBytes = 20

// An Entry says where a record of a queue stands in the log.
type Entry struct {
	LogOffset message.LogOffset
	Size      int32 // bytes of the record
	TagsCode  int64 // message.TagsCode of its tags, or what the dispatcher put in its place
}

// filler stands at offsets of a queue that have no record.
var filler = Entry{Size: math.MaxInt32}

// Filler says whether e stands for an offset that has no record; readers pass
// over it.
func (e Entry) Filler() bool { return e.LogOffset == 0 && e.Size == math.MaxInt32 }

// End is the log offset behind the record.
func (e Entry) End() message.LogOffset { return e.LogOffset + message.LogOffset(e.Size) }

// valid says whether e was ever written.
func (e Entry) valid() bool { return e.LogOffset >= 0 && e.Size > 0 }

func appendEntry(dst []byte, e Entry) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.LogOffset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Size))
	return binary.BigEndian.AppendUint64(dst, uint64(e.TagsCode))
}

// decodeEntry reads the entry at the start of b, which has EntryBytes.
func decodeEntry(b []byte) Entry {
	_ = b[EntryBytes-1]
	return Entry{
		LogOffset: message.LogOffset(binary.BigEndian.Uint64(b)),
		Size:      int32(binary.BigEndian.Uint32(b[8:])),
		TagsCode:  int64(binary.BigEndian.Uint64(b[12:])),
	}
}
