package engine

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"

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
// After the last message both give Max (Apache's UPPER gives Max-1), before the
// first LOWER gives Min and UPPER 0, as Apache; 0 for a queue that holds
// nothing. Of an inner batch it is the first message. May wait for the disk.
func (s *Store) OffsetByTime(q *consumequeue.Queue, millis int64, upper bool) (message.QueueOffset, error) {
	if q == nil {
		return 0, nil
	}
	lo, hi := q.Min(), q.Max()
	first, end := lo, hi
	if first == end {
		return 0, nil
	}
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
	if !upper || lo == end {
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

// QueryByKey gives copies of at most most records of topic that carry key as
// UNIQ_KEY or as one of KEYS and were stored in [begin, end], milliseconds, the
// newest first; and store time and log offset of the newest record dispatched.
// Keys whose hashes collide do not come through. May wait for the disk.
func (s *Store) QueryByKey(topic, key string, most int, begin, end int64) (recs [][]byte, lastMillis int64, lastOffset message.LogOffset, err error) {
	s.dispatchMu.Lock()
	lastMillis, lastOffset = s.last.storeMillis, max(s.last.recAt, 0)
	s.dispatchMu.Unlock()
	if s.index == nil || most <= 0 || key == "" {
		return nil, lastMillis, lastOffset, nil
	}
	offs, err := s.index.Query(topic, key, most, begin, end)
	seen := message.LogOffset(-1)
	for _, off := range offs {
		if off == seen { // UNIQ_KEY and a KEY are equal
			continue
		}
		seen = off
		rec, rerr := s.recordAt(off, s.visible())
		if rerr != nil {
			if !errors.Is(rerr, ErrNoRecord) {
				err = errors.Join(err, rerr)
			}
			continue // deleted with its segment, or cut
		}
		if t := message.StoreMillisOf(rec); t < begin || t > end || string(message.TopicOf(rec)) != topic || !hasKey(rec, key) {
			continue
		}
		recs = append(recs, rec)
	}
	return recs, lastMillis, lastOffset, err
}

// hasKey says whether key is the record's UNIQ_KEY or one of its KEYS.
func hasKey(rec []byte, key string) bool {
	props := message.PropertiesOf(rec)
	if uniq, ok := message.Property(props, message.PropUniqKey); ok && string(uniq) == key {
		return true
	}
	keys, _ := message.Property(props, message.PropKeys)
	for part := range bytes.SplitSeq(keys, []byte(" ")) {
		if string(part) == key {
			return true
		}
	}
	return false
}
