package engine

import (
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/ringmq/ringmq/commitlog"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/message"
)

// ErrNoRecord says that no visible record begins at an offset.
var ErrNoRecord = errors.New("no record at this offset")

// visible is the log offset below which records may be shown.
func (s *Store) visible() message.LogOffset {
	if s.cfg.SyncFlush {
		return message.LogOffset(s.flusher.Durable())
	}
	return message.LogOffset(s.log.Written())
}

// ByOffset gives a copy of the record that begins at off. The error wraps
// ErrNoRecord when none does. May wait for the disk.
func (s *Store) ByOffset(off message.LogOffset) ([]byte, error) {
	return s.recordAt(off, s.visible())
}

func (s *Store) recordAt(off, visible message.LogOffset) ([]byte, error) {
	var head [message.MinBytes]byte
	if off < s.log.Min() || off+message.LogOffset(len(head)) > visible {
		return nil, fmt.Errorf("%w: %d, the log is [%d, %d)", ErrNoRecord, off, s.log.Min(), visible)
	}
	if err := s.log.ReadAt(head[:], off); err != nil {
		return nil, notThere(err, off)
	}
	size := int64(message.Size(head[:]))
	if m := message.Magic(head[:]); m != message.MagicV1 && m != message.MagicV2 || message.PhysicalOffsetOf(head[:]) != off ||
		size < message.MinBytes || off+message.LogOffset(size) > visible {
		return nil, fmt.Errorf("%w: %d", ErrNoRecord, off)
	}
	rec := make([]byte, size)
	if err := s.log.ReadAt(rec, off); err != nil {
		return nil, notThere(err, off)
	}
	if _, _, err := message.Check(rec, off, false); err != nil {
		return nil, fmt.Errorf("%w: %d: %w", ErrNoRecord, off, err)
	}
	return rec, nil
}

// notThere makes a failed read of the log ErrNoRecord where the bytes are gone
// or cannot be a record's; not where the disk failed.
func notThere(err error, off message.LogOffset) error {
	if !errors.Is(err, commitlog.ErrGone) {
		return err
	}
	return fmt.Errorf("%w: %d: %w", ErrNoRecord, off, err)
}

// recordCRC is the CRC-32C of the record that ends at p; 0 when there is none.
func (s *Store) recordCRC(p point) (uint32, error) {
	if p.recAt < 0 {
		return 0, nil
	}
	rec := make([]byte, p.recSize)
	if err := s.log.ReadAt(rec, p.recAt); err != nil {
		return 0, err
	}
	return crc32.Checksum(rec, castagnoli), nil
}

// storeMillisAt reads the store time of the record at off.
func (s *Store) storeMillisAt(off message.LogOffset) (int64, error) {
	var head [76]byte // up to the store time behind an IPv6 born host
	if err := s.log.ReadAt(head[:], off); err != nil {
		return 0, err
	}
	return message.StoreMillisOf(head[:]), nil
}

// A timedRecord is where a record of a queue stands and when it was stored.
type timedRecord struct {
	first, next message.QueueOffset // of its messages, and behind them
	millis      int64
}

// timeOf finds the record of q that holds off, or the first one behind it and
// below end. ok is false when there is none.
func (s *Store) timeOf(q *consumequeue.Queue, off, end message.QueueOffset) (rec timedRecord, ok bool, err error) {
	var e [1]consumequeue.Entry
	for off < end {
		n, err := q.Read(e[:], off)
		if err != nil || n == 0 {
			return rec, false, err
		}
		first := off - message.QueueOffset(e[0].Into)
		off = first + e[0].Messages()
		if e[0].Filler() {
			continue
		}
		millis, err := s.storeMillisAt(e[0].LogOffset)
		return timedRecord{first: first, next: off, millis: millis}, err == nil, err
	}
	return rec, false, nil
}

// StoreMillisAt gives the store time of the message of q at off; -1 when there
// is none. May wait for the disk.
func (s *Store) StoreMillisAt(q *consumequeue.Queue, off message.QueueOffset) (int64, error) {
	if q == nil || off < q.Min() || off >= q.Max() {
		return -1, nil
	}
	rec, ok, err := s.timeOf(q, off, off+1)
	if !ok {
		return -1, err
	}
	return rec.millis, nil
}

// EarliestMillis gives the store time of q's first message; -1 when there is
// none. May wait for the disk.
func (s *Store) EarliestMillis(q *consumequeue.Queue) (int64, error) {
	if q == nil {
		return -1, nil
	}
	rec, ok, err := s.timeOf(q, q.Min(), q.Max())
	if !ok {
		return -1, err
	}
	return rec.millis, nil
}

// OffsetByTime searches q for a time. The lower boundary is the first message
// stored at or after millis, the upper the last one stored at or before it.
// After the last message LOWER gives Max, before the first it gives Min and
// UPPER 0, as Apache. A queue whose messages are all gone has only its end to
// give to LOWER; UPPER is 0 there, as both are for one that isn't there. Of an inner batch it is the first message. May wait for the disk.
func (s *Store) OffsetByTime(q *consumequeue.Queue, millis int64, upper bool) (message.QueueOffset, error) {
	if q == nil {
		return 0, nil
	}
	lo, hi := q.Min(), q.Max()
	first := lo
	// The first offset whose message is stored at or after millis (upper: after
	// millis). Fillers count with the message behind them.
	for lo < hi {
		mid := lo + (hi-lo)/2
		rec, ok, err := s.timeOf(q, mid, hi)
		switch {
		case errors.Is(err, commitlog.ErrGone): // older than anything
			lo = mid + 1
		case err != nil:
			return 0, err
		case !ok: // nothing but fillers up to hi
			hi = mid
		case rec.millis < millis || upper && rec.millis == millis:
			lo = rec.next
		default:
			hi = min(mid, rec.first)
		}
	}
	if !upper {
		return lo, nil
	}
	if lo == first {
		return 0, nil
	}
	var e [1]consumequeue.Entry
	if _, err := q.Read(e[:], lo-1); err != nil {
		return 0, err
	}
	return lo - 1 - message.QueueOffset(e[0].Into), nil
}

// queryLooksMax bounds the records that one QueryByKey reads: messages whose
// keys collide with the one that is looked for are easily made.
const queryLooksMax = 10_000

// QueryByKey gives copies of at most most records of topic that carry key as
// UNIQ_KEY or as one of KEYS and were stored in [begin, end], milliseconds: the
// newest that do, the oldest of them first, as Apache; and store time and log
// offset of the newest record dispatched. Keys whose hashes collide neither
// come through nor count. Where the records together have more than bytesMax
// bytes the oldest stay out, all but the newest if need be. May wait for the
// disk.
func (s *Store) QueryByKey(topic, key string, most, bytesMax int, begin, end int64) (recs [][]byte, lastMillis int64, lastOffset message.LogOffset, err error) {
	s.dispatchMu.Lock()
	lastMillis, lastOffset = s.last.storeMillis, max(s.last.recAt, 0)
	s.dispatchMu.Unlock()
	if s.index == nil || most <= 0 || key == "" {
		return nil, lastMillis, lastOffset, nil
	}
	var lost error
	looks, bytes, visible := 0, 0, s.visible()
	err = s.index.Query(topic, key, begin, end, func(off message.LogOffset) bool {
		rec, rerr := s.recordAt(off, visible)
		switch {
		case rerr == nil:
			if t := message.StoreMillisOf(rec); t >= begin && t <= end && string(message.TopicOf(rec)) == topic && hasKey(rec, key) {
				if bytes += len(rec); bytes > bytesMax && len(recs) > 0 {
					return false
				}
				recs = append(recs, rec)
			}
		case errors.Is(rerr, ErrNoRecord): // deleted with its segment, or cut
		default:
			lost = errors.Join(lost, rerr)
		}
		looks++
		return len(recs) < most && looks < queryLooksMax
	})
	slices.Reverse(recs)
	return recs, lastMillis, lastOffset, errors.Join(err, lost)
}

// hasKey says whether key is the record's UNIQ_KEY or one of its KEYS.
func hasKey(rec []byte, key string) (has bool) {
	message.EachKey(rec, func(k []byte) { has = has || string(k) == key })
	return has
}
