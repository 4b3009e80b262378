// Package interop answers one question: do unmodified Apache RocketMQ clients get from ringmq what they get from
// Apache's own servers?
//
// The same steps, with the same expectations, run against two targets: an Apache 5.3.3 NameServer and broker (which
// proves the steps) and ringmq's binary. Clients are the Java client 4.9.8, the Java client 5.3.3 and the Go client,
// each in a process of its own, driven over its standard streams. Servers are processes too, with a temporary
// directory and log files, on the loopback and on ports below 32768.
//
//	go test ──┬── Servers ──── namesrv process, broker process           servers.go apache.go ringmq.go proc.go
//	          ├── Client ───── JVM or goclient: "run PHASE" in, JSON lines out     client.go build.go java/ goclient/
//	          └── Conn ─────── raw frames, for kill -9                     wire.go
//
// It is a module of its own so that the foreign client stays out of the product's dependencies.
package interop
