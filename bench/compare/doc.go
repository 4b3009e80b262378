// Package compare answers one question: how does ringmq stand beside Apache
// RocketMQ on this machine? It starts both in turn, each in processes of its own
// with a fresh store, applies the same loads (package bench) and writes one table
// of medians and ratios.
//
// Only ratios within one run count: the rounds alternate between the systems so
// that a slow minute of the machine hits both. One goroutine runs everything;
// every process it starts is waited for.
package compare
