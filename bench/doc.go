// Package bench answers one question: how fast is a running broker, and what
// does it cost? It loads a broker or NameServer over raw TCP connections with
// the frames Java clients send, Apache's and ours alike, and reads what the load
// costs from /proc.
//
// One goroutine does everything: it owns all connections through one epoll
// instance (loop.go), writes frames that were encoded beforehand with a few
// bytes patched (wire.go), and reads answers by looking at two fields. It has to
// be that cheap because it shares the machine with what it measures. A driver
// says what to write when: closed loop, open loop, pulls, end to end, routes.
//
// Latency of a closed loop runs from the write of the request to the read of its
// answer; of an open loop from the moment the message was due, so that a stall
// is charged to every message that had to wait for it.
//
// It needs Linux: epoll, /proc/PID, /proc/diskstats.
package bench
