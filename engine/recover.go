package engine

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/ringmq/ringmq/commitlog"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/message"
)

// recovery brings a store to a consistent state: it finds the end of the log,
// cuts what is behind, and makes the entries that queues and index lack.
//
// With a dispatch mark that is true (marked) all records below it need no look.
// Behind it a record is believed when its bytes are whole, it says itself that
// it stands where it stands, its store time does not go back, and its queue
// offset continues its queue: an intact record of an earlier life of the log,
// behind a torn one, fails that, and was never acknowledged.
//
// Without such a mark Apache's rules give the place to begin. Java's clock may
// have gone back while it wrote, and its queues have gaps, so there a record is
// only refused when both speak against it.
type recovery struct {
	s      *Store
	clean  bool   // no abort file
	marked bool   // the dispatch mark is to be trusted
	why    string // why it is not
	began  time.Time

	from   message.LogOffset // where the scan begins
	strict message.LogOffset // from here on records were written by ringmq
	end    message.LogOffset // of the log; set by scan
	last   point             // the last record before end
	newest int64             // the highest store time met
	told   time.Time         // when progress was logged
	count  int64             // records scanned
}

// checkMark says whether the dispatch mark fits what is there, and if not why.
// That another broker, or nobody, wrote a mark is no fault.
func (s *Store) checkMark() (ok bool, why string) {
	m := &s.marks.last
	switch {
	case !s.marks.ok:
		return false, "there is no dispatch mark"
	case !s.marks.ours():
		return false, "another broker has written the checkpoint since"
	case m.end < s.log.Min() || m.end > s.log.SegmentsEnd():
		return false, fmt.Sprintf("dispatch mark %d is outside of the log [%d, %d)", m.end, s.log.Min(), s.log.SegmentsEnd())
	case m.recAt < 0 || m.recAt < s.log.Min(): // nothing before it, or deleted
		return true, ""
	}
	rec := make([]byte, m.recSize)
	if err := s.log.ReadAt(rec, m.recAt); err != nil {
		return false, "the record before the dispatch mark cannot be read: " + err.Error()
	}
	if crc := crc32.Checksum(rec, castagnoli); crc != m.recCRC {
		return false, fmt.Sprintf("the record before the dispatch mark has CRC %08x, want %08x", crc, m.recCRC)
	}
	return true, ""
}

// run recovers.
func (r *recovery) run() error {
	s := r.s
	if len(s.log.Bases()) == 0 {
		return r.empty()
	}
	r.plan()
	s.queuesSeen = r.countQueues()
	scanned := r.from
	if err := r.scan(); err != nil {
		return err
	}
	if err := r.cut(); err != nil {
		return err
	}
	s.queues.ResetNext()
	if err := s.queues.CorrectMin(s.log.Min()); err != nil {
		return err
	}
	if err := s.log.Start(r.end); err != nil {
		return err
	}
	if err := r.finish(); err != nil {
		return err
	}
	if !r.clean || r.count > 0 || !r.marked && r.end > 0 {
		s.logger.Info("store recovered", "dir", s.cfg.Dir, "cleanStop", r.clean, "from", int64(scanned), "end", int64(r.end),
			"records", r.count, "took", time.Since(r.began).Round(time.Millisecond), "mark", r.markWord())
	}
	return nil
}

func (r *recovery) markWord() string {
	if r.marked {
		return "valid"
	}
	return r.why
}

// empty recovers a store without a log: as Apache does, its queues go.
func (r *recovery) empty() error {
	s := r.s
	if s.queues.MaxLogOffset() > 0 {
		s.logger.Warn("no CommitLog, ConsumeQueues dropped", "dir", s.cfg.Dir)
	}
	if err := s.queues.TruncateAbove(0); err != nil {
		return err
	}
	if s.index != nil {
		if err := s.index.TruncateAbove(0); err != nil {
			return err
		}
	}
	s.queues.ResetNext()
	r.last = point{recAt: -1}
	if err := s.log.Start(0); err != nil {
		return err
	}
	return r.finish()
}

// plan chooses where the scan begins and what it trusts.
func (r *recovery) plan() {
	s := r.s
	r.last = point{recAt: -1}
	if r.marked {
		m := &s.marks.last
		r.from, r.strict = m.end, m.end
		r.last, r.newest = m.point, m.storeMillis
		if n := r.countQueues(); n < m.queues {
			s.logger.Warn("ConsumeQueues are missing, rebuilt from the CommitLog", "dir", s.cfg.Dir, "got", n, "want", m.queues)
			r.from = s.log.Min()
		}
	} else {
		r.from, r.strict = r.apacheStart(), s.log.SegmentsEnd()
		if s.marks.ok || r.from > s.log.Min() {
			s.logger.Info("dispatch mark not used", "dir", s.cfg.Dir, "why", r.why, "from", int64(r.from))
		}
	}
	if at, ok := s.queues.RedispatchFrom(); ok && at < r.from {
		s.logger.Warn("ConsumeQueues were damaged, rebuilt from the CommitLog", "dir", s.cfg.Dir, "from", int64(at))
		r.from = at
	}
	if at := r.indexStart(); at < r.from {
		s.logger.Warn("index is missing, rebuilt from the CommitLog", "dir", s.cfg.Dir, "from", int64(at))
		r.from = at
	}
	if r.from < s.log.Min() {
		r.from = s.log.Min()
	}
	r.from = r.recordStart(r.from)
	if r.from < r.strict {
		r.last = point{recAt: -1}
	}
}

// recordStart makes off a place where a record begins: itself where one does,
// else the start of its segment.
func (r *recovery) recordStart(off message.LogOffset) message.LogOffset {
	if r.marked && off == r.s.marks.last.end || off == r.s.log.SegmentsEnd() {
		return off
	}
	var head [36]byte
	if err := r.s.log.ReadAt(head[:], off); err == nil && message.PhysicalOffsetOf(head[:]) == off {
		if m := message.Magic(head[:]); m == message.MagicV1 || m == message.MagicV2 {
			return off
		}
	}
	return r.s.log.SegmentBase(off)
}

// indexStart is where the index must be built from: what it had, as the mark
// says, and no longer has.
func (r *recovery) indexStart() message.LogOffset {
	s := r.s
	if s.index == nil {
		return r.from
	}
	at := r.from
	if from, ok := s.index.RebuildFrom(); ok {
		at = min(at, from)
	}
	if end := s.index.EndLog(); r.marked && end < s.marks.last.indexEnd {
		at = min(at, end)
	}
	return at
}

// countQueues counts the queues that have had an entry.
func (r *recovery) countQueues() (n int64) {
	r.s.queues.Each(func(q *consumequeue.Queue) bool {
		if q.MaxLogOffset() > 0 {
			n++
		}
		return true
	})
	return n
}

// apacheStart is where Apache's broker would begin (CommitLog.recoverNormally
// and recoverAbnormally, 5.3): after a clean stop the last segment that begins
// at or before the highest log offset in a queue; else the last segment whose
// first record was stored 3 s or more before the checkpoint.
func (r *recovery) apacheStart() message.LogOffset {
	s := r.s
	bases := s.log.Bases()
	until := max(0, min(s.marks.cp.PhysicMillis, s.marks.cp.LogicsMillis)-3000)
	p := s.queues.MaxLogOffset()
	for i := len(bases) - 1; i > 0; i-- {
		if r.clean {
			if bases[i] <= p {
				return bases[i]
			}
			continue
		}
		var head [message.MinBytes]byte
		if err := s.log.ReadAt(head[:], bases[i]); err != nil {
			continue
		}
		if m := message.Magic(head[:]); m != message.MagicV1 && m != message.MagicV2 {
			continue
		}
		if t := message.StoreMillisOf(head[:]); t != 0 && t <= until {
			return bases[i]
		}
	}
	return bases[0]
}

// scan reads the log from from on and dispatches what queues and index lack,
// until a record is not to be believed. An error is of the disk: then nothing
// may be cut.
func (r *recovery) scan() error {
	s := r.s
	sc := s.log.Scan(r.from, s.log.SegmentsEnd(), true)
	r.told = time.Now()
	for {
		off, rec, err := sc.Next()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, message.ErrUnwritten):
			r.end = sc.At()
			return nil
		case errors.Is(err, message.ErrTorn):
			if r.clean && sc.SkipMalformed() {
				// A stop that was clean tore nothing: a broker wrote it so, and
				// its neighbours must not go with it.
				s.logger.Warn("malformed record passed over", "dir", s.cfg.Dir, "next", int64(sc.At()), "what", err.Error())
				continue
			}
			r.end = sc.At()
			s.logger.Warn("torn record ends the CommitLog", "dir", s.cfg.Dir, "at", int64(r.end), "what", err.Error())
			return r.checkTorn(sc)
		default:
			return err
		}
		if r.mayBeTorn(off) && message.TornProperties(rec, int64(off-s.log.SegmentBase(off))) {
			r.end = off
			s.logger.Warn("torn record ends the CommitLog", "dir", s.cfg.Dir, "at", int64(r.end), "what", "its properties are zeros in part")
			return nil
		}
		q, err := r.queueFor(off, rec)
		if err == nil {
			err = r.stale(off, rec, q)
		}
		if errors.Is(err, errStale) {
			r.end = off
			s.logger.Warn("record of an earlier life ends the CommitLog", "dir", s.cfg.Dir, "at", int64(off), "what", err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		r.take(off, rec, q)
	}
}

// mayBeTorn says whether a crash can have torn the record at off.
func (r *recovery) mayBeTorn(off message.LogOffset) bool {
	return !r.clean && (!r.marked || off >= r.strict)
}

// checkTorn refuses to cut a log below the mark: what is there was durable, so
// the disk, not a crash, has damaged it.
func (r *recovery) checkTorn(sc *commitlog.Scanner) error {
	if r.marked && sc.At() < r.strict {
		return fmt.Errorf("CommitLog is damaged at %d, below the dispatch mark %d", sc.At(), r.strict)
	}
	return nil
}

var errStale = errors.New("not written in this life")

// queueFor finds the queue of a record, nil when it enters none.
func (r *recovery) queueFor(off message.LogOffset, rec []byte) (*consumequeue.Queue, error) {
	s := r.s
	q := s.queueOf(rec)
	if q == nil || message.QueueOffsetOf(rec) != 0 || q.Max() == 0 || off < q.MaxLogOffset() || message.StoreMillisOf(rec) < r.newest {
		return q, nil
	}
	// A queue that begins anew: its topic was deleted and made again.
	topic := q.Topic()
	s.logger.Info("topic was deleted and made again, its earlier queues dropped", "topic", topic, "at", int64(off))
	if err := s.queues.DeleteTopic(topic); err != nil {
		return nil, err
	}
	s.queuesSeen = r.countQueues()
	return s.queueOf(rec), nil
}

// stale says whether a record is a remnant that must not come back. Below the
// mark none is: all of it was durable when the mark was written.
func (r *recovery) stale(off message.LogOffset, rec []byte, q *consumequeue.Queue) error {
	if r.marked && off < r.strict {
		return nil
	}
	stored, strict := message.StoreMillisOf(rec), off >= r.strict
	back := stored < r.newest
	gap := false
	if q != nil && off >= q.MaxLogOffset() && q.Max() > 0 {
		gap = message.QueueOffsetOf(rec) != q.Max()
	}
	switch {
	case back && (strict || gap):
		return fmt.Errorf("%w: store time %d after %d", errStale, stored, r.newest)
	case gap && strict:
		return fmt.Errorf("%w: queue offset %d of %s-%d, want %d", errStale, message.QueueOffsetOf(rec), q.Topic(), q.ID(), q.Max())
	}
	return nil
}

// take dispatches a record where that was not done, and goes on behind it.
func (r *recovery) take(off message.LogOffset, rec []byte, q *consumequeue.Queue) {
	s := r.s
	r.count++
	s.dispatchRecord(rec, q, off, message.QueueOffsetOf(rec), s.cfg.TagsCode(rec))
	r.last = s.last
	r.newest = max(r.newest, message.StoreMillisOf(rec))
	if r.count&0x3fff != 0 {
		return
	}
	if now := time.Now(); now.Sub(r.told) > 2*time.Second {
		r.told = now
		s.logger.Info("recovering", "dir", s.cfg.Dir, "at", int64(off), "from", int64(r.from), "to", int64(s.log.SegmentsEnd()), "records", r.count)
	}
}

// cut removes what is behind the end, in log, queues and index.
func (r *recovery) cut() error {
	s := r.s
	if r.clean && r.marked && r.end == s.marks.last.end {
		return nil // what is behind was zeros when it stopped
	}
	if err := s.log.TruncateTo(r.end); err != nil {
		return err
	}
	if err := s.queues.TruncateAbove(r.end); err != nil {
		return err
	}
	if s.index == nil {
		return nil
	}
	return s.index.TruncateAbove(r.end)
}

// finish sets the marks to the end of the log, the durable dispatch mark too:
// from here on all that is behind it was written by ringmq.
func (r *recovery) finish() error {
	s := r.s
	s.last = r.last
	s.last.end = r.end
	s.queuesSeen = r.countQueues()
	s.last.queues = s.queuesSeen
	s.storeMillis = r.newest
	s.dispatched.Store(int64(r.end))
	if r.last.recAt >= 0 {
		s.marks.cp.ConfirmOffset = int64(r.last.recAt)
	}
	if err := s.sweepRooms(); err != nil {
		return err
	}
	s.swept = s.last
	return s.writeMark(s.swept)
}
