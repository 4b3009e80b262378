package meta

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
)

// TimerProgress says which entries of the timer topic's queue are done with:
// delivered, rolled to a later entry, or cancelled. It is a hint: the log is the
// state. Entries are ordered by due time, then by where their record lies.
//
// Done are all entries below Lowest, and of those below Loaded the ones that
// come up to (DoneAt, DoneOffset) in that order.
type TimerProgress struct {
	DoneAt     int64 // Unix milliseconds
	DoneOffset int64 // a log offset, or the complement of a cancellation's
	Loaded     int64 // a queue offset
	Lowest     int64 // a queue offset
	// ScanFrom is a log offset: every record made of an entry that isn't done
	// by the above lies at or behind it. -1 when not known: a Java broker wrote
	// the progress, or nobody did.
	ScanFrom int64
}

// Timer is the saved progress of the timer. Any goroutine may call.
type Timer struct {
	mu    sync.Mutex
	p     TimerProgress
	dirty bool

	keeper *keeper
}

// Progress gives what was last set or loaded.
func (t *Timer) Progress() TimerProgress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.p
}

// SetProgress replaces the progress; the journal sees it within milliseconds.
// The caller makes sure that what it stands for is durable.
func (t *Timer) SetProgress(p TimerProgress) {
	t.mu.Lock()
	t.p, t.dirty = p, true
	t.mu.Unlock()
	t.keeper.kickDirty()
}

// drain appends the progress to dst when it has changed.
func (t *Timer) drain(dst []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dirty {
		return dst
	}
	t.dirty = false
	return appendTimer(dst, t.p)
}

func appendTimer(dst []byte, p TimerProgress) []byte {
	dst, start := beginRecord(dst, recordTimer)
	for _, n := range [...]int64{p.DoneAt, p.DoneOffset, p.Loaded, p.Lowest, p.ScanFrom} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	return endRecord(dst, start)
}

func replayTimer(b []byte, r replay) error {
	if len(b) != 40 {
		return fmt.Errorf("timer progress of %d bytes, want 40", len(b))
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
	r.timer(TimerProgress{DoneAt: at(0), DoneOffset: at(1), Loaded: at(2), Lowest: at(3), ScanFrom: at(4)})
	return nil
}

// timerCheckBytes is the size of config/timercheck; the first 56 bytes mean
// something: lastReadTimeMs, lastTimerLogFlushPos, lastTimerQueueOffset,
// masterTimerQueueOffset, stateVersion, timestamp, counter. (As
// TimerCheckpoint, 5.3.)
const timerCheckBytes = 4096

// decodeTimerCheck takes what a Java broker knew: it has delivered what is due
// before lastReadTimeMs, of the entries before lastTimerQueueOffset.
func decodeTimerCheck(b []byte, p *TimerProgress) error {
	if len(b) < 56 {
		return fmt.Errorf("timer checkpoint of %d bytes, want %d", len(b), timerCheckBytes)
	}
	*p = TimerProgress{Loaded: int64(binary.BigEndian.Uint64(b[16:])), ScanFrom: -1}
	if at := int64(binary.BigEndian.Uint64(b)); at > 0 {
		p.DoneAt, p.DoneOffset = at-1, math.MaxInt64
	}
	return nil
}

// encodeTimerCheck gives config/timercheck's content, for a Java broker that
// follows: it looks again at the entries from the lowest on that may be pending,
// and delivers at once those whose time is over. Without progress of our own it
// is what was there, nil for nothing.
func (k *keeper) encodeTimerCheck() []byte {
	p := k.timer.Progress()
	if p.ScanFrom < 0 {
		return k.timerCheck
	}
	now := k.cfg.Now().UnixMilli()
	k.timerChecks++
	b := make([]byte, timerCheckBytes)
	for i, n := range [...]int64{min(p.DoneAt, now) / 1000 * 1000, 0, p.Lowest, p.Lowest, 0, now, k.timerChecks} {
		binary.BigEndian.PutUint64(b[8*i:], uint64(n))
	}
	return b
}
