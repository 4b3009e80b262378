package netloop

import (
	"errors"
	"sync/atomic"
	"time"
)

// loopStats are a loop's counters: written by the loop, read by any goroutine.
type loopStats struct {
	accepted, frames, replies, tasks  atomic.Int64
	bytesIn, bytesOut, sentFile       atomic.Int64
	stalls, wakes                     atomic.Int64
	samples, blockedNanos, blockedMax atomic.Int64
	lagNanos                          atomic.Int64
	closed                            [closeKinds]atomic.Int64
	_                                 [64]byte // two loops' counters share no cache line
}

type closeKind int

const (
	closedByPeer closeKind = iota
	closedIdle
	closedProtocol
	closedBound
	closedShutdown
	closedOther
	closeKinds
)

func (s *loopStats) closedBy(cause error) {
	kind := closedOther
	switch {
	case errors.Is(cause, ErrPeerClosed):
		kind = closedByPeer
	case errors.Is(cause, ErrIdle):
		kind = closedIdle
	case errors.Is(cause, ErrProtocol):
		kind = closedProtocol
	case errors.Is(cause, ErrBound):
		kind = closedBound
	case errors.Is(cause, ErrShutdown):
		kind = closedShutdown
	}
	s.closed[kind].Add(1)
}

// blocked notes the time of one timed callback; on the loop.
func (s *loopStats) blocked(d time.Duration) {
	s.samples.Add(1)
	s.blockedNanos.Add(int64(d))
	if int64(d) > s.blockedMax.Load() {
		s.blockedMax.Store(int64(d))
	}
}

// Stats are a Server's counters since its start, and a few values of now.
type Stats struct {
	Conns    int64 // open now
	Accepted int64
	Refused  int64 // connections over ConnsMax
	// closed connections, by cause
	ClosedByPeer, ClosedIdle, ClosedProtocol, ClosedBound, ClosedShutdown, ClosedOther int64

	BytesIn, BytesOut int64
	SentFileBytes     int64 // of BytesOut, by sendfile
	Frames            int64 // decoded
	Replies           int64 // frames sent
	Tasks             int64 // posted tasks run
	Wakes             int64 // wake-ups of loops (one eventfd write each)
	Stalls            int64 // times a connection's frames were held back because it did not read
	WaitingBytes      int64 // now: what TotalBytesMax bounds
	SlowConns         int64 // now: connections with unread bytes

	PoolQueued  int64 // now
	PoolServed  int64
	PoolRefused int64

	// Time that timed callbacks took, one in SampleEvery: their number, sum
	// and longest since the last Stats. While a callback runs, the other
	// connections of its loop wait.
	BlockedSamples int64
	Blocked        time.Duration
	BlockedMax     time.Duration
	// Lag is the longest that the keeper's last task waited for a loop.
	Lag time.Duration
}

// Stats sums up the counters. Any goroutine. It resets BlockedMax, so one
// caller should be the one that reports it.
func (s *Server) Stats() Stats {
	st := Stats{
		Conns: int64(s.conns.Load()), Refused: s.refused.Load(),
		WaitingBytes: s.total.Load(), SlowConns: int64(s.slow.Load()),
		PoolQueued: int64(len(s.pool.jobs)), PoolServed: s.pool.begun.Load(), PoolRefused: s.pool.full.Load(),
	}
	for _, l := range s.loops {
		x := &l.stats
		st.Accepted += x.accepted.Load()
		st.ClosedByPeer += x.closed[closedByPeer].Load()
		st.ClosedIdle += x.closed[closedIdle].Load()
		st.ClosedProtocol += x.closed[closedProtocol].Load()
		st.ClosedBound += x.closed[closedBound].Load()
		st.ClosedShutdown += x.closed[closedShutdown].Load()
		st.ClosedOther += x.closed[closedOther].Load()
		st.BytesIn += x.bytesIn.Load()
		st.BytesOut += x.bytesOut.Load()
		st.SentFileBytes += x.sentFile.Load()
		st.Frames += x.frames.Load()
		st.Replies += x.replies.Load()
		st.Tasks += x.tasks.Load()
		st.Wakes += x.wakes.Load()
		st.Stalls += x.stalls.Load()
		st.BlockedSamples += x.samples.Load()
		st.Blocked += time.Duration(x.blockedNanos.Load())
		st.BlockedMax = max(st.BlockedMax, time.Duration(x.blockedMax.Swap(0)))
		st.Lag = max(st.Lag, time.Duration(x.lagNanos.Load()))
	}
	return st
}
