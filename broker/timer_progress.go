package broker

import (
	"errors"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/message"
)

// restore finds out what is pending. False: the timer was stopped first.
func (t *timer) restore() bool {
	p := t.takeOver(t.saved.Progress())
	t.acted = timerItem{at: p.DoneAt, off: message.LogOffset(p.DoneOffset)}
	t.lowest = min(max(message.QueueOffset(p.Lowest), t.queue.Min()), t.queue.Max())
	t.loaded = t.lowest
	t.ahead = map[message.LogOffset]aheadItem{}
	upTo := t.queue.Max()
	began := t.now()
	isDone := func(offset message.QueueOffset, item timerItem) bool {
		return offset < message.QueueOffset(p.Loaded) && t.isCovered(item)
	}
	if !t.insist(func() bool { return t.scanAhead(p.ScanFrom) }) || !t.insist(func() bool { return t.loadWith(upTo, isDone) }) {
		return false
	}
	for origin, a := range t.ahead {
		if !a.seen {
			delete(t.ahead, origin) // not a timer's
		}
	}
	if n := len(t.pending); n > 0 {
		t.log.Info("pending timers loaded", "timers", n, "entries", upTo-t.lowest, "took", t.now().Sub(began))
	}
	t.moved = true
	t.saveProgress()
	return true
}

var errTimerStopped = errors.New("the timer was stopped")

func (t *timer) stopped() error {
	select {
	case <-t.stop:
		return errTimerStopped
	default:
		return nil
	}
}

// scanAhead looks through the log for what was made after the progress was
// saved; false when it can't be read now.
func (t *timer) scanAhead(from int64) bool {
	clear(t.ahead)
	err := t.eachDelivery(message.LogOffset(from), func(origin, at message.LogOffset) error {
		t.ahead[origin] = aheadItem{at: at}
		return t.stopped()
	})
	if err != nil && !errors.Is(err, errTimerStopped) {
		t.fail("the log can't be scanned for deliveries", err, "from", from)
	}
	return err == nil
}

// takeOver gives the progress to start from where this broker left none: the
// one of a Java broker, whose deliveries name no origin, so that its time is all
// that is known; else the log's beginning, since every delivery of ours is found
// there. From then on the log is scanned from here, which must be known to the
// next start before the first delivery is made.
func (t *timer) takeOver(p meta.TimerProgress) meta.TimerProgress {
	if p.ScanFrom >= 0 {
		return p
	}
	marks := t.store.Marks()
	if p.DoneAt > 0 || p.Loaded > 0 {
		t.log.Info("timers are taken over from a Java broker", "lastReadTimeMs", p.DoneAt, "lastTimerQueueOffset", p.Loaded)
		p.ScanFrom = int64(marks.Durable)
	} else if t.queue.Max() > 0 {
		p.ScanFrom = int64(marks.Min)
	} else {
		p.ScanFrom = int64(marks.Durable)
	}
	t.saved.SetProgress(p)
	if err := t.fold(); err != nil {
		t.log.Error("timer progress not saved", "error", err)
	}
	return p
}

// saveProgress takes a snapshot of the progress, and hands the one before to
// the tables once what it stands for is durable.
func (t *timer) saveProgress() {
	marks := t.store.Marks()
	if t.snapshot == nil {
		if !t.moved && int64(marks.Written)-t.scanFrom < rescanBytesMax {
			return
		}
		if !t.inOrder() {
			return
		}
		t.upTo = marks.Written
		t.snapshot = &meta.TimerProgress{
			DoneAt: t.acted.at, DoneOffset: int64(t.acted.off), Loaded: int64(t.loaded), Lowest: int64(t.lowest),
			ScanFrom: int64(t.pruneAhead(marks.Written)),
		}
		t.moved = false
	}
	if marks.Durable >= t.upTo {
		t.saved.SetProgress(*t.snapshot)
		t.scanFrom, t.snapshot = t.snapshot.ScanFrom, nil
	}
}

// inOrder says whether acted says what is done. It doesn't while something is
// pending that came late, behind others of later times that are done; that is
// the next to be delivered.
func (t *timer) inOrder() bool {
	t.dropStale()
	return len(t.pending) == 0 || t.acted.before(t.pending[0])
}

// isCovered says whether acted says of an item that it is done; a cancellation
// is of use to the end of its slot.
func (t *timer) isCovered(i timerItem) bool {
	if i.cancels() {
		return i.slot() < t.acted.slot()
	}
	return !t.acted.before(i)
}

// pruneAhead forgets what acted says is done, and gives the log offset from
// which on what was made of the rest lies.
func (t *timer) pruneAhead(written message.LogOffset) message.LogOffset {
	for origin, a := range t.ahead {
		if origin < t.low || t.isCovered(a.item) {
			delete(t.ahead, origin)
			continue
		}
		written = min(written, a.at)
	}
	return written
}

// left says whether there is progress to be saved yet.
func (t *timer) left() bool { return t.snapshot != nil || t.moved && t.inOrder() }
