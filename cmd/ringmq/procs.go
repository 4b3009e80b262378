package main

import (
	"log/slog"
	"os"
	"runtime"
)

// procsMin is the least number of threads that may run Go code at once. A
// broker's goroutines wait in system calls (pwrite, fdatasync, epoll), and one
// that does keeps its place until the runtime's monitor takes it away, up to 10
// ms later: with as many places as processors a small machine stands still
// meanwhile. Beside a flood, on one processor: p99 of a low rate 68 ms with 1,
// 45 ms with 2, 9 ms with 4; a lone send on two: p50 58 µs with 2, 33 µs with 4.
const procsMin = 4

// spareProcs raises GOMAXPROCS on small machines, unless the environment says
// otherwise.
func spareProcs(log *slog.Logger) {
	if n := runtime.GOMAXPROCS(0); n < procsMin && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(procsMin)
		log.Debug("more threads than processors, since many wait in system calls", "processors", n, "GOMAXPROCS", procsMin)
	}
}
