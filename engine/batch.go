package engine

import (
	"fmt"
	"time"

	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/message"
)

// Status says how the put of one item ended. The zero value is OK.
type Status uint8

// The ends of a put. OK, FlushDiskTimeout, FlushSlaveTimeout and
// SlaveNotAvailable mean that the record is in the log.
const (
	OK                  Status = iota // appended, visible, and durable where that was asked for
	FlushDiskTimeout                  // appended, but not known durable within SyncFlushTimeout
	FlushSlaveTimeout                 // appended, but no replica confirmed it in time
	SlaveNotAvailable                 // appended, but there is no replica to confirm it
	ServiceNotAvailable               // the log takes no writes, or the disk has no room for this one; Batch.Err says why
	CreateFailed                      // there was no segment to append to; Batch.Err says why
	Illegal                           // the records can never fit a segment
	Busy                              // too many bytes wait for the log; Batch.Err is a *Refusal
)

var statusNames = [...]string{"OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE",
	"SERVICE_NOT_AVAILABLE", "CREATE_MAPPED_FILE_FAILED", "MESSAGE_ILLEGAL", "OS_PAGE_CACHE_BUSY"}

// String is RocketMQ's name of the status (PutMessageStatus).
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("STATUS_%d", uint8(s))
}

// Stored says whether the record is in the log.
func (s Status) Stored() bool { return s <= SlaveNotAvailable }

// A Completer is told that a batch is through.
type Completer interface {
	// PutDone is called exactly once for each Batch given to Put, on the
	// goroutine that moved the last mark the batch waited for: the appender's,
	// the flusher's, the store's ticker (timeouts), or inside Put itself. It
	// must be short and must not block; it may call Put. From here on the batch
	// is the caller's again.
	PutDone(b *Batch)
}

// A Batch is one hand-over of records to the log, at best all that one read
// event of a connection brought. From Put until PutDone it belongs to the
// store; afterwards it may be used again: only Buf, Items, Wait, MayDirect and
// Done need to be set anew.
type Batch struct {
	// Buf holds encoded records back to back (message.Append), their queue
	// offset, physical offset and store time blank; the store fills them in
	// place. Bytes no item points at are not stored.
	Buf []byte
	// Items are appended in this order.
	Items []Item
	// Wait asks under SYNC_FLUSH for durable records. False (messages with
	// WAIT=false) is done as soon as the records are appended.
	Wait bool
	// MayDirect lets Put append on the caller's goroutine when nothing else
	// waits and recent appends were short. The caller may then be held up by
	// one pwrite, and PutDone may run inside Put.
	MayDirect bool
	// Done is told when the batch is through. Not nil.
	Done Completer

	// Err says why items are not OK; nil when all are.
	Err error

	next  *Batch            // in the queue to the appender; written by Put
	bytes int64             // counted as in flight; written by Put
	end   message.LogOffset // behind its last record in the log, 0 when it has none there; written by the token holder
	at    time.Duration     // since the store's start: when the batch was appended; written by the token holder
}

// An Item is one record of a batch, or the records of one classic batch
// message.
type Item struct {
	// Pos and Len say where in Batch.Buf the item's records stand.
	Pos, Len int32
	// Count is the number of records in it, 0 counting as 1. Several records
	// belong to one queue, get consecutive queue offsets, and are all or
	// nothing in a segment.
	Count int32
	// Queue is the records' ConsumeQueue, not nil unless NoQueue.
	Queue *consumequeue.Queue
	// Inner is for a record that is an inner batch (message.StampInnerBase): how
	// many messages it holds, and so how many offsets it takes of Queue, a batch
	// queue. Put writes INNER_BASE and shortens Len by the digits not needed. 0
	// for any other record; one that says of itself that it is an inner batch, as
	// a copy of one does, is stored as the one message it is put as: Put clears
	// its flags, so that it counts as it was counted.
	Inner int32
	// NoQueue is for prepared and rollback records: queue offset 0, no entry
	// in a queue.
	NoQueue bool
	// TagsCode is what the queue entry carries: message.TagsCode of the TAGS
	// property, the due time in milliseconds for SCHEDULE_TOPIC_XXXX. Read for
	// a single record only; for more, Config.TagsCode is asked for each.
	TagsCode int64

	// Results, valid from PutDone on. QueueOffset and LogOffset are those of
	// the first record and only meaningful when Status.Stored().
	QueueOffset message.QueueOffset
	LogOffset   message.LogOffset
	StoreMillis int64
	Status      Status
}

// Reset makes b ready for the next use, keeping the room of its slices.
func (b *Batch) Reset() {
	clear(b.Items) // no queue is kept alive by a pooled batch
	*b = Batch{Buf: b.Buf[:0], Items: b.Items[:0]}
}

// A Refusal is an error that says which bound was reached, by how much, and
// which configuration key moves it.
type Refusal struct {
	What  string // what is full, in words
	Got   int64  // what it would have been, or is
	Limit int64  // the bound it passed
	Unit  string // of Got and Limit: "bytes", "ms"
	Key   string // the configuration key, "" where there is none
}

func (r *Refusal) Error() string {
	s := fmt.Sprintf("%s: %d %s, limit %d %s", r.What, r.Got, r.Unit, r.Limit, r.Unit)
	if r.Key != "" {
		s += ", raise " + r.Key
	}
	return s
}
