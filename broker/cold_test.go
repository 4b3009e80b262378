package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringmq/ringmq/netloop"
)

// TestColdLane: of one consumer's many reads only some hold goroutines of the
// pool, and another's few don't stand behind them all.
func TestColdLane(t *testing.T) {
	lane := newColdLane(4, 100)
	greedy, modest := new(netloop.Conn), new(netloop.Conn)
	release, done := make(chan bool), make(chan string, 100)
	var works []func()
	start := func(work func()) bool { works = append(works, work); return true }
	submit := func(c *netloop.Conn, name string) {
		t.Helper()
		if !lane.submit(c, func() { <-release; done <- name }, start) {
			t.Fatalf("%s was refused", name)
		}
	}
	for i := range 20 {
		submit(greedy, fmt.Sprint("greedy ", i))
	}
	submit(modest, "modest")
	if len(works) != 2 {
		t.Fatalf("%d goroutines of the pool's 4 were taken, want 2", len(works))
	}
	// One goroutine stays in its first read, the other does the rest.
	go works[0]()
	finished := make(chan bool)
	go func() { works[1](); close(finished) }()
	var order []string
	for range 21 {
		release <- true
		order = append(order, <-done)
	}
	<-finished
	if at := slices.Index(order, "modest"); at < 0 || at > 4 {
		t.Errorf("the other connection's read came at place %d of %v", at, order)
	}
	slices.Sort(order)
	if len(slices.Compact(order)) != 21 {
		t.Errorf("got %v, want each read once", order)
	}
	for lane.mu.Lock(); lane.running > 0; lane.mu.Lock() {
		lane.mu.Unlock()
	}
	defer lane.mu.Unlock()
	if lane.count != 0 || len(lane.turn) != 0 || len(lane.waiting) != 0 {
		t.Errorf("left behind: %d, %d, %d", lane.count, len(lane.turn), len(lane.waiting))
	}
}

// TestColdLaneIsBounded: what the pool or the list does not take is refused,
// and leaves nothing behind.
func TestColdLaneIsBounded(t *testing.T) {
	lane := newColdLane(1, 2)
	c := new(netloop.Conn)
	no := func(func()) bool { return false }
	if lane.submit(c, func() {}, no) {
		t.Error("a read was taken that the pool refused")
	}
	var work func()
	ran := 0
	for i, want := range []bool{true, true, true, false} {
		if got := lane.submit(c, func() { ran++ }, func(w func()) bool { work = w; return true }); got != want {
			t.Errorf("read %d: taken %v, want %v", i, got, want)
		}
	}
	work()
	if ran != 3 || lane.running != 0 {
		t.Errorf("%d reads ran, %d goroutines held, want 3, 0", ran, lane.running)
	}
}
