package meta

import (
	"maps"
	"sync"
)

// DelayProgress says how far delayed messages have been delivered. It is a
// hint: the log is the state. Next may lag behind what was delivered, never
// lead; ScanFrom is where in the CommitLog the deliveries of the entries at and
// after Next begin.
type DelayProgress struct {
	// Next holds, by level (from 1), the next queue offset of the level's queue
	// of SCHEDULE_TOPIC_XXXX (queueId level-1).
	Next map[int32]int64
	// ScanFrom is a log offset: every delivery of an entry at or behind Next
	// lies at or behind it. -1 when not known: a Java broker wrote the file.
	ScanFrom int64
}

// Delay is the saved progress of the delay levels. Any goroutine may call.
type Delay struct {
	mu    sync.Mutex
	p     DelayProgress
	dirty bool

	keeper *keeper
}

// Progress gives a copy of what was last set or loaded.
func (d *Delay) Progress() DelayProgress {
	d.mu.Lock()
	defer d.mu.Unlock()
	return DelayProgress{Next: maps.Clone(d.p.Next), ScanFrom: d.p.ScanFrom}
}

// SetProgress replaces the progress; the journal sees it within milliseconds.
// The caller makes sure that the deliveries before p.Next are durable.
func (d *Delay) SetProgress(p DelayProgress) {
	d.mu.Lock()
	d.p = DelayProgress{Next: maps.Clone(p.Next), ScanFrom: p.ScanFrom}
	d.dirty = true
	d.mu.Unlock()
	d.keeper.kickDirty()
}

// drain appends the progress to dst when it has changed.
func (d *Delay) drain(dst []byte) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dirty {
		return dst
	}
	d.dirty = false
	return appendDelay(dst, d.p)
}
