package engine

import (
	"time"

	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine/index"
)

// Stats is a snapshot of a store's figures, for metrics and the console.
// Counters count since Open.
type Stats struct {
	Marks
	Groups         int64         // groups appended
	GroupBytes     int64         // bytes in them
	Directs        int64         // groups appended by the goroutine that put them
	Syncs          int64         // syncs of the log
	Device         string        // how they are made: "syscall", "io_uring"
	AppendLast     time.Duration // the last group's write
	AppendMean     time.Duration // moving average
	AppendMax      time.Duration
	InFlight       int64 // bytes given to Put and not done
	Queued         int64 // batches waiting for the appender
	Rate           int64 // bytes done a second while busy; 0: not known
	DoneBytes      int64
	Refusals       int64 // by Admit and Put, for a bound
	CreateFails    int64 // items without a segment or without room on the disk
	Timeouts       int64 // batches answered FlushDiskTimeout
	Sweeps         int64
	SweepFails     int64
	IndexFails     int64 // keys not indexed
	SegmentsGone   int64 // deleted by retention
	DiskPath       string
	DiskUsed       float64       // 0..1; 0: not known yet
	DiskFree       int64         // bytes
	DiskFullIn     time.Duration // until no more writes are taken, at the rate of the last hour; negative: it is not filling, or not known
	Queues         consumequeue.Stats
	Index          index.Stats
	CheckpointTime int64 // store time of the last record below the dispatch mark, ms
}

// Stats reads the figures; they are not of one instant.
func (s *Store) Stats() Stats {
	st := Stats{
		Marks:        s.Marks(),
		Groups:       s.groups.Load(),
		GroupBytes:   s.groupBytes.Load(),
		Directs:      s.directs.Load(),
		Syncs:        s.flusher.Syncs(),
		Device:       s.cfg.Device.Name(),
		AppendLast:   time.Duration(s.appendLast.Load()),
		AppendMean:   time.Duration(s.appendMean.Load()),
		AppendMax:    time.Duration(s.appendMax.Load()),
		InFlight:     s.inFlight.Load(),
		Queued:       s.queued.Load(),
		Rate:         s.rate.Load(),
		DoneBytes:    s.doneBytes.Load(),
		Refusals:     s.refusals.Load(),
		CreateFails:  s.createFails.Load(),
		Timeouts:     s.timeouts.Load(),
		Sweeps:       s.sweeps.Load(),
		SweepFails:   s.sweepFails.Load(),
		IndexFails:   s.indexFails.Load(),
		SegmentsGone: s.segmentsDeleted.Load(),
		Queues:       s.queues.Stats(),
	}
	if s.index != nil {
		st.Index = s.index.Stats()
	}
	if d := s.disk.Load(); d != nil {
		st.DiskPath, st.DiskUsed, st.DiskFree, st.DiskFullIn = d.path, d.used, d.free, d.fullIn
	}
	s.markMu.Lock()
	st.CheckpointTime = s.marks.last.storeMillis
	s.markMu.Unlock()
	return st
}
