package engine

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/ringmq/ringmq/commitlog"
	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

const (
	// scrubTick is how often the scrubber reads a piece.
	scrubTick = time.Second
	// scrubChunk is how much it reads before it looks who else wants the disk.
	scrubChunk = 1 << 20
	// scrubFindingsMax bounds the findings kept for Scrub.
	scrubFindingsMax = 100
)

// A ScrubFinding is a place of the log whose bytes have changed since they were
// written.
type ScrubFinding struct {
	File   string // path of the segment
	Offset int64  // in the file
	At     time.Time
	What   string
}

// ScrubState is how far the background check of stored records is.
type ScrubState struct {
	At       message.LogOffset // where it is
	To       message.LogOffset // where this round ends
	Rounds   int64             // rounds through the whole log since Open
	Last     time.Time         // when the last one ended; zero before
	Bytes    int64             // read since Open
	Damaged  int64             // findings since Open, those not kept too
	Findings []ScrubFinding    // the first of them
}

// A scrubber reads all stored records again, slowly, and checks their CRCs: a
// disk that forgets is found before a consumer finds it. It is one goroutine on
// a thread of lowest priority, reads ScrubRate bytes a second at most, nothing
// while much is in flight, and gives the page cache back what it took.
type scrubber struct {
	s  *Store
	sc *commitlog.Scanner // its buffer is used again

	mu    sync.Mutex
	state ScrubState // guarded by mu
	began time.Time  // of this round
}

// Scrub tells how far the check of stored records is. Any goroutine.
func (s *Store) Scrub() ScrubState {
	b := s.scrub
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.state
	st.Findings = append([]ScrubFinding(nil), st.Findings...)
	return st
}

func (b *scrubber) run() {
	vfs.IdleThread()
	t := time.NewTicker(scrubTick)
	defer t.Stop()
	for {
		select {
		case <-b.s.stop:
			return
		case <-t.C:
		}
		b.tick(b.s.cfg.Now(), b.s.cfg.ScrubRate*int64(scrubTick)/int64(time.Second))
	}
}

// tick reads up to budget bytes, unless the round is over and the next one not
// due, or others need the disk.
func (b *scrubber) tick(now time.Time, budget int64) {
	if !b.due(now) {
		return
	}
	for budget > 0 && b.s.inFlight.Load() < drainFloor {
		n, end := b.piece(now, min(budget, scrubChunk))
		if end {
			b.finish(now)
			return
		}
		budget -= n
		select {
		case <-b.s.stop:
			return
		default:
		}
	}
}

// due says whether there is something to read, and begins a round when it is
// time for one.
func (b *scrubber) due(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.At < b.state.To {
		return true
	}
	if !b.began.IsZero() && now.Sub(b.began) < b.s.cfg.ScrubInterval {
		return false
	}
	// Up to the dispatch mark all is durable and known.
	b.s.markMu.Lock()
	to := b.s.marks.last.end
	b.s.markMu.Unlock()
	lo := b.s.log.Min()
	if lo >= to {
		return false
	}
	b.began, b.state.At, b.state.To = now, lo, to
	return true
}

func (b *scrubber) finish(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.At = b.state.To
	b.state.Rounds++
	b.state.Last = now
}

// piece checks records of about n bytes, and says how many it read and whether
// the round is over.
func (b *scrubber) piece(now time.Time, n int64) (read int64, end bool) {
	b.mu.Lock()
	from, to := max(b.state.At, b.s.log.Min()), b.state.To
	b.mu.Unlock()
	if from >= to {
		return 0, true
	}
	at := from
	resident := b.resident(from, n)
	if b.sc == nil {
		b.sc = b.s.log.Scan(from, to, true)
	}
	sc := b.sc
	sc.Reset(from, to)
	for int64(at-from) < n {
		_, _, err := sc.Next()
		if errors.Is(err, io.EOF) {
			at, end = to, true
			break
		}
		if err != nil {
			if at = b.found(now, sc.At(), err); at < b.s.log.Min() { // deleted meanwhile
				at = b.s.log.Min()
			}
			break
		}
		at = sc.At()
	}
	if !resident {
		b.forget(from, at)
	}
	b.mu.Lock()
	b.state.At = at
	b.state.Bytes += int64(at - from)
	b.mu.Unlock()
	return int64(at - from), end
}

// found notes damage at a place, unless the log has been deleted up to there,
// and says where to go on: behind it, where a record can be found there, else
// at the next segment.
func (b *scrubber) found(now time.Time, at message.LogOffset, cause error) message.LogOffset {
	lo := b.s.log.Min()
	if at < lo {
		return lo
	}
	base := b.s.log.SegmentBase(at)
	f := ScrubFinding{File: filepath.Join(b.s.cfg.CommitLogDir, segment.Name(int64(base))), Offset: int64(at - base), At: now, What: cause.Error()}
	b.s.logger.Error("a stored record is damaged: its disk has changed it", "file", f.File, "offset", f.Offset, "what", f.What,
		"remedy", "check the disk; ringmq store verify tells all that is wrong, store repair what can be done")
	b.mu.Lock()
	b.state.Damaged++
	if len(b.state.Findings) < scrubFindingsMax {
		b.state.Findings = append(b.state.Findings, f)
	}
	b.mu.Unlock()
	// The record's own size leads behind it where only its body is damaged.
	var head [message.MinBytes]byte
	if err := b.s.log.ReadAt(head[:], at); err == nil {
		next := at + message.LogOffset(message.Size(head[:]))
		if m := message.Magic(head[:]); (m == message.MagicV1 || m == message.MagicV2) && next > at && next < base+message.LogOffset(b.s.cfg.SegmentBytes) {
			var after [message.MinBytes]byte
			if err := b.s.log.ReadAt(after[:], next); err == nil && (message.PhysicalOffsetOf(after[:]) == next || message.Magic(after[:]) == message.MagicBlank) {
				return next
			}
		}
	}
	return base + message.LogOffset(b.s.cfg.SegmentBytes)
}

// resident says whether what is to be read is in memory already.
func (b *scrubber) resident(from message.LogOffset, n int64) bool {
	seg, r := b.s.log.View(from, int(n))
	if seg == nil { // it crosses a segment's end
		return false
	}
	defer seg.Release()
	resident, known := r.File.Resident(r.Off, int64(r.Len))
	return resident || !known
}

// forget gives the page cache what [from, to) took of it.
func (b *scrubber) forget(from, to message.LogOffset) {
	seg, r := b.s.log.View(from, int(to-from))
	if seg == nil {
		return
	}
	defer seg.Release()
	if err := r.File.Forget(r.Off, int64(r.Len)); err != nil {
		b.s.logger.Debug("page cache not told", "err", fmt.Errorf("scrub: %w", err))
	}
}
