package engine

import (
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/internal/filter"
	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// GetStatus says how a Get ended.
type GetStatus uint8

// The ends of a Get.
const (
	Found         GetStatus = iota // Ranges hold at least one record
	NoMatched                      // entries were read, the filter let none pass; go on at Next
	Removing                       // the records at Offset are being deleted; go on at Next
	Empty                          // the queue holds nothing and never did (max = 0)
	OverflowOne                    // Offset = max: nothing there yet
	OverflowBadly                  // Offset > max
	TooSmall                       // Offset < min
	NoQueue                        // Queue is nil
	FoundNull                      // the ConsumeQueue cannot be read at Offset; GetResult.Err says why
	NeedCold                       // answering may wait for the disk: run again with Cold on a goroutine that may
)

var getStatusNames = [...]string{"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "NO_MESSAGE_IN_QUEUE",
	"OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY", "OFFSET_TOO_SMALL", "NO_MATCHED_LOGIC_QUEUE", "OFFSET_FOUND_NULL", "NEED_COLD"}

// String is RocketMQ's name of the status (GetMessageStatus).
func (s GetStatus) String() string {
	if int(s) < len(getStatusNames) {
		return getStatusNames[s]
	}
	return "GET_STATUS_UNKNOWN"
}

// A GetRequest asks for records of one queue.
type GetRequest struct {
	Queue    *consumequeue.Queue // nil answers NoQueue
	Offset   message.QueueOffset // the first wanted
	MaxMsgs  int                 // at most so many records; <= 0 counts as 1
	MaxBytes int                 // at most so many bytes, at least one record; <= 0: only the store's own limits
	Filter   filter.Filter       // nil passes all
	Cold     bool                // the caller may wait for the disk
}

// A GetResult is the answer to a Get. Its slices are reused by the next Get;
// the zero value is ready for use. Release must be called before the result is
// dropped or used again, when Ranges are no longer needed: until then the
// files of Ranges are kept open.
type GetResult struct {
	Status         GetStatus
	Next, Min, Max message.QueueOffset
	Count, Bytes   int
	Ranges         []vfs.Range // whole records, in queue order; contiguous ones merged
	Far            int64       // bytes from the first record to the end of the log; 0 unless records were looked at
	Disk           bool        // the limits for data on disk were applied
	Err            error       // the cause of FoundNull and of an unexpected Removing

	held    []*segment.Segment
	scratch []byte // records read for the filter
	entries [getEntries]consumequeue.Entry
}

// getEntries is how many queue entries a Get reads at a time.
const getEntries = 64

// Release gives back the files behind Ranges. It may be called twice.
func (r *GetResult) Release() {
	for i, s := range r.held {
		s.Release()
		r.held[i] = nil
	}
	r.held = r.held[:0]
	clear(r.Ranges)
	r.Ranges = r.Ranges[:0]
}
