package broker

import (
	"sync"

	"github.com/ringmq/ringmq/netloop"
)

// A coldLane lets only some of the pool's goroutines wait for the disk on
// behalf of consumers that read what is not in memory. One that catches up asks
// for as much as it gets: without a bound its reads would take the whole pool,
// and what others need from it (a topic, a message sent back, a query) would
// stand behind them. Connections take turns.
type coldLane struct {
	max     int // reads at once
	waitMax int // reads that may wait, over all connections

	mu      sync.Mutex
	running int
	count   int                        // of waiting
	waiting map[*netloop.Conn][]func() // in the order of their coming
	turn    []*netloop.Conn            // who has reads waiting, the next first
}

func newColdLane(poolWorkers, waitMax int) *coldLane {
	return &coldLane{max: max(1, poolWorkers/2), waitMax: waitMax, waiting: map[*netloop.Conn][]func(){}}
}

// run has read called on a pool goroutine, now or after others. On c's loop; it
// doesn't block. False says that too much waits already.
func (l *coldLane) run(c *netloop.Conn, read func()) bool {
	return l.submit(c, read, func(work func()) bool { return c.Loop().Go(work) })
}

// submit is run with another pool; start must not block.
func (l *coldLane) submit(c *netloop.Conn, read func(), start func(work func()) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running < l.max {
		if !start(func() { l.work(read) }) {
			return false
		}
		l.running++
		return true
	}
	if l.count >= l.waitMax {
		return false
	}
	if len(l.waiting[c]) == 0 {
		l.turn = append(l.turn, c)
	}
	l.waiting[c] = append(l.waiting[c], read)
	l.count++
	return true
}

// work reads until nothing waits; on a pool goroutine.
func (l *coldLane) work(read func()) {
	for ; read != nil; read = l.next() {
		read()
	}
}

// next takes a read of the connection whose turn it is, or gives the goroutine
// back.
func (l *coldLane) next() (read func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.turn) == 0 {
		l.running--
		return nil
	}
	c := l.turn[0]
	l.turn[0] = nil
	l.turn = l.turn[1:]
	reads := l.waiting[c]
	read, reads[0] = reads[0], nil
	l.count--
	if len(reads) > 1 {
		l.waiting[c] = reads[1:]
		l.turn = append(l.turn, c)
	} else {
		delete(l.waiting, c)
	}
	return read
}
