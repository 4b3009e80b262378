package main

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// timerSlackNanos is how late the kernel may end a sleep of ours, for the sake
// of saving power; 50 µs is its default. Go's scheduler sleeps 3 µs before it
// takes over work from a busy processor, and a lone durable send meets that
// sleep: measured on two cores, 190 instead of 290 µs CPU a send, and 10 % off
// its latency.
const timerSlackNanos = 1000

// init runs on the first thread, from which later ones inherit. The runtime's
// monitor thread exists already; changing it takes a privilege (CAP_SYS_NICE),
// without which the threads that it starts keep the default.
func init() {
	if unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlackNanos, 0, 0, 0) != nil {
		return
	}
	tasks, _ := filepath.Glob("/proc/self/task/*")
	for _, t := range tasks {
		_ = os.WriteFile("/proc/"+filepath.Base(t)+"/timerslack_ns", strconv.AppendInt(nil, timerSlackNanos, 10), 0)
	}
}
