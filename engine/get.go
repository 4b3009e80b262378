package engine

import (
	"errors"
	"fmt"

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
	Offsets  bool                // fill in GetResult.Offsets
}

// A GetResult is the answer to a Get. Its slices are reused by the next Get;
// the zero value is ready for use. Release must be called before the result is
// dropped or used again, when Ranges are no longer needed: until then the
// files of Ranges are kept open.
type GetResult struct {
	Status         GetStatus
	Next, Min, Max message.QueueOffset
	Count, Bytes   int                   // messages, those of an inner batch counted each, and bytes
	Ranges         []vfs.Range           // whole records, in queue order; contiguous ones merged
	Offsets        []message.QueueOffset // of each record, where the request asked for them
	Far            int64                 // bytes from the first record to the end of the log; 0 unless records were looked at
	Disk           bool                  // the limits for data on disk were applied
	Err            error                 // the cause of FoundNull and of an unexpected Removing

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
	r.Ranges, r.Offsets = r.Ranges[:0], r.Offsets[:0]
}

// scanEntriesMax is how many entries a Get looks at for a filter, as Apache's
// maxFilterMessageSize allows.
const scanEntriesMax = 800

// What a Get reads of records that its filter then drops, at most: their number
// and bytes, but for the last. A loop does this between two other requests, or a
// disk reads it: after it the Get ends, and goes on at Next.
const (
	droppedRecordsMax = 256
	droppedBytesMax   = 1 << 20
)

// wholeBytes is up to which size a record is read with one read for its
// properties; of a larger one, what stands before and behind its body.
const wholeBytes = 16 << 10

// residentChunk is the piece of the log whose residency is asked at once.
const residentChunk = 256 << 10

// Get looks up records of one queue. It copies nothing: res.Ranges says where
// in which files they lie. Without req.Cold it does not wait for a disk, as far
// as the system can tell what would: it then answers NeedCold. Any goroutine;
// with a reused res it does not allocate.
func (s *Store) Get(req *GetRequest, res *GetResult) {
	res.Release()
	res.Status, res.Next, res.Min, res.Max = NoQueue, 0, 0, 0
	res.Count, res.Bytes, res.Far, res.Disk, res.Err = 0, 0, 0, false, nil
	q := req.Queue
	if q == nil {
		return
	}
	res.Min, res.Max = q.Min(), q.Max()
	switch off := req.Offset; {
	case res.Max == 0:
		res.Status = Empty
	case off < res.Min:
		res.Status, res.Next = TooSmall, res.Min
	case off == res.Max:
		res.Status, res.Next = OverflowOne, off
	case off > res.Max:
		res.Status, res.Next = OverflowBadly, res.Max
	default:
		g := getter{s: s, req: req, res: res, written: message.LogOffset(s.log.Written())}
		g.run()
	}
}

// getter is one Get under way. It lives on the stack.
type getter struct {
	s       *Store
	req     *GetRequest
	res     *GetResult
	written message.LogOffset

	seg      *segment.Segment // held by res; the one of the last record
	chunk    int64            // log offset of the chunk asked last, +1; 0: none
	resident bool             // what was answered for it
	removed  bool             // an entry's record is gone

	dropped      int // records that were read for the filter and did not match
	droppedBytes int // what was read of them
}

// run goes through the entries from req.Offset on.
func (g *getter) run() {
	res, next := g.res, g.req.Offset
	left := max(scanEntriesMax, g.req.MaxMsgs)
	for more := true; more && left > 0; {
		dst := res.entries[:min(getEntries, left)]
		if g.req.Filter == nil { // no more than can be taken
			dst = dst[:min(len(dst), max(1, min(g.req.MaxMsgs, g.s.cfg.TransferCountInMemory)-res.Count))]
		}
		n, err := g.read(dst, next)
		if n == 0 {
			if err != nil && res.Count == 0 {
				g.failed(err, next)
				return
			}
			break
		}
		left -= n
		for i := range dst[:n] {
			count := res.Count
			if more = g.take(&dst[i]); !more {
				break
			}
			if g.req.Offsets && res.Count > count {
				res.Offsets = append(res.Offsets, next)
			}
			next += dst[i].Messages() - message.QueueOffset(dst[i].Into)
		}
	}
	res.Next = next
	switch {
	case res.Count > 0:
		res.Status = Found
	case res.Status == NeedCold || res.Status == FoundNull:
	case g.removed:
		res.Status = Removing
	default:
		res.Status = NoMatched
	}
}

func (g *getter) read(dst []consumequeue.Entry, from message.QueueOffset) (int, error) {
	if g.req.Cold {
		return g.req.Queue.Read(dst, from)
	}
	return g.req.Queue.TryRead(dst, from)
}

// failed answers for entries that cannot be read.
func (g *getter) failed(err error, next message.QueueOffset) {
	res := g.res
	res.Next = next
	switch {
	case errors.Is(err, consumequeue.ErrCold):
		res.Status = NeedCold
	case errors.Is(err, consumequeue.ErrGone):
		res.Status, res.Next = NoQueue, 0
	case errors.Is(err, consumequeue.ErrBelowMin): // deleted since Min was read
		res.Min = g.req.Queue.Min()
		res.Status, res.Next = TooSmall, res.Min
	default:
		res.Status, res.Err = FoundNull, err
	}
}

// take looks at one entry; false ends the Get before it.
func (g *getter) take(e *consumequeue.Entry) bool {
	res, f := g.res, g.req.Filter
	if e.Filler() || f != nil && !f.MatchCode(e.TagsCode) {
		return true
	}
	if res.Count > 0 && res.Count+int(e.Messages()) > g.req.MaxMsgs {
		return false
	}
	r, ok := g.find(e)
	if !ok {
		g.removed = true
		return true
	}
	disk := g.onDisk(e)
	if disk && !g.req.Cold {
		if res.Count == 0 {
			res.Status = NeedCold
		}
		return false
	}
	if g.full(int(e.Size), disk) {
		return false
	}
	if f != nil && f.NeedsProperties() {
		if g.dropped >= droppedRecordsMax || g.droppedBytes >= droppedBytesMax {
			return false
		}
		match, err := g.matches(r, e.LogOffset)
		if err != nil {
			if res.Count == 0 {
				res.Status, res.Err = FoundNull, err
			}
			return res.Count == 0 && errors.Is(err, message.ErrTorn) // pass over it: it will never be readable
		}
		if !match {
			return true
		}
	}
	g.add(r)
	res.Count += int(e.Messages())
	res.Far = int64(g.written - e.LogOffset)
	res.Disk = res.Disk || disk
	return true
}

// find gives the record's place; false when it is no longer in the log.
func (g *getter) find(e *consumequeue.Entry) (vfs.Range, bool) {
	at := int64(e.LogOffset)
	if g.seg == nil || at < g.seg.Base || at >= g.seg.End() {
		seg, r := g.s.log.View(e.LogOffset, int(e.Size))
		if seg == nil {
			return vfs.Range{}, false
		}
		g.seg = seg
		g.res.held = append(g.res.held, seg)
		return r, true
	}
	if at+int64(e.Size) > g.seg.End() {
		return vfs.Range{}, false
	}
	return vfs.Range{File: g.seg.File(), Off: at - g.seg.Base, Len: int(e.Size)}, true
}

// onDisk says whether reading the record would wait for a disk.
func (g *getter) onDisk(e *consumequeue.Entry) bool {
	far := int64(g.written - e.LogOffset)
	if far <= g.s.cfg.HotBytes {
		return false
	}
	in := int64(e.LogOffset) - g.seg.Base
	from := in / residentChunk * residentChunk
	if g.chunk == g.seg.Base+from+1 && in+int64(e.Size) <= from+residentChunk {
		return !g.resident
	}
	n := min(max(residentChunk, in+int64(e.Size)-from), g.seg.Size-from)
	resident, known := g.seg.File().Resident(from, n)
	if !known {
		resident = far <= g.s.cfg.MemoryBytes
	}
	g.chunk, g.resident = g.seg.Base+from+1, resident
	return !resident
}

// full says whether a record of size bytes is too much. The first never is.
func (g *getter) full(size int, disk bool) bool {
	res, c := g.res, &g.s.cfg
	if res.Count == 0 {
		return false
	}
	bytes, count := c.TransferBytesInMemory, c.TransferCountInMemory
	if disk {
		bytes, count = c.TransferBytesOnDisk, c.TransferCountOnDisk
	}
	if g.req.MaxBytes > 0 {
		bytes = min(bytes, g.req.MaxBytes)
	}
	return res.Count >= count || res.Bytes+size > bytes
}

// matches asks the filter about the record's properties.
func (g *getter) matches(r vfs.Range, at message.LogOffset) (bool, error) {
	props, read, err := g.properties(r, at)
	if err != nil {
		return false, err
	}
	match := g.req.Filter.MatchProperties(props)
	if !match {
		g.dropped++
		g.droppedBytes += read
	}
	return match, nil
}

// properties reads a record's properties, into res.scratch; read is how many
// bytes that took.
func (g *getter) properties(r vfs.Range, at message.LogOffset) (props []byte, read int, err error) {
	if r.Len <= wholeBytes {
		rec, err := g.readRecord(r.File, r.Off, r.Len, at)
		if err != nil {
			return nil, 0, err
		}
		if _, _, err := message.Check(rec, at, false); err != nil {
			return nil, 0, err
		}
		return message.PropertiesOf(rec), r.Len, nil
	}
	head, err := g.readRecord(r.File, r.Off, message.HeadBytes, at)
	if err != nil {
		return nil, 0, err
	}
	var tail message.Tail
	if err := tail.Find(head, at, r.Len); err != nil {
		return nil, 0, err
	}
	b, err := g.readRecord(r.File, r.Off+int64(tail.From), tail.To-tail.From, at)
	if err != nil {
		return nil, 0, err
	}
	props, err = tail.Properties(b)
	return props, message.HeadBytes + len(b), err
}

// readRecord reads n bytes of the record at log offset at.
func (g *getter) readRecord(f vfs.File, off int64, n int, at message.LogOffset) ([]byte, error) {
	res := g.res
	if cap(res.scratch) < n {
		res.scratch = make([]byte, max(n, 4096))
	}
	b := res.scratch[:n]
	if got, err := f.ReadAt(b, off); got < n {
		return nil, fmt.Errorf("read record at %d: got %d bytes, want %d: %w", at, got, n, err)
	}
	return b, nil
}

// add adds a record to the result, to the last range where it follows on it.
func (g *getter) add(r vfs.Range) {
	res := g.res
	res.Bytes += r.Len
	if n := len(res.Ranges); n > 0 {
		if last := &res.Ranges[n-1]; last.File == r.File && last.Off+int64(last.Len) == r.Off {
			last.Len += r.Len
			return
		}
	}
	res.Ranges = append(res.Ranges, r)
}
