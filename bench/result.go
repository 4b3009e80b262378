//go:build linux

package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringmq/ringmq/remoting"
)

// Options say where the load goes and how large it is. Each mode reads what
// concerns it.
type Options struct {
	Addr       string        // host:port of the broker or NameServer
	Namesrv    string        // NameServer, where a mode needs both
	PID        int           // process to account for; 0: none
	NamesrvPID int           // the same for a load on Namesrv
	Dir        string        // a directory on the device to account for; "": none
	Conns      int           // connections
	InFlight   int           // requests in flight on each
	Rate       int           // messages a second; 0: closed loop
	Bytes      int           // of a body
	Warmup     time.Duration // load before the window that counts
	Duration   time.Duration // the window that counts
	Topic      string
	Topics     int // route: topics registered
	Queues     int
	Broker     string // the name requests carry
	Group      string
	Batch      int  // pull: messages asked for
	Preload    int  // pull: messages sent first
	Once       bool // pull: end with the queues, whatever Duration says
}

// Defaults fills what was left zero.
func (o *Options) Defaults() {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Conns, 1)
	def(&o.InFlight, 1)
	def(&o.Bytes, 1024)
	def(&o.Queues, 8)
	def(&o.Topics, 1000)
	def(&o.Batch, 32)
	if o.Duration == 0 {
		o.Duration = 10 * time.Second
	}
	for v, d := range map[*string]string{&o.Topic: "BenchTopic", &o.Broker: "broker-a", &o.Group: "bench_consumer"} {
		if *v == "" {
			*v = d
		}
	}
}

// Latency is a histogram's summary in microseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"meanMicros"`
	P50   float64 `json:"p50Micros"`
	P90   float64 `json:"p90Micros"`
	P99   float64 `json:"p99Micros"`
	P999  float64 `json:"p999Micros"`
	Max   float64 `json:"maxMicros"`
}

// Result is what one load showed within its window.
type Result struct {
	Mode     string  `json:"mode"`
	Conns    int     `json:"conns"`
	InFlight int     `json:"inFlight"`
	Rate     int     `json:"ratePerSecond,omitempty"` // asked for
	Bytes    int     `json:"bodyBytes"`
	Seconds  float64 `json:"seconds"`

	Messages          int64            `json:"messages"`
	MessagesPerSecond float64          `json:"messagesPerSecond"`
	MBPerSecond       float64          `json:"megabytesPerSecond,omitempty"`
	Refusals          map[string]int64 `json:"refusals,omitempty"` // by code, warm-up included
	Lost              int64            `json:"lost,omitempty"`     // e2e: sent, not received
	Latency           Latency          `json:"latency"`

	CPUMicrosPerMessage float64 `json:"cpuMicrosPerMessage,omitempty"` // of PID
	OwnMicrosPerMessage float64 `json:"generatorMicrosPerMessage"`
	RSSAnonBytes        int64   `json:"rssAnonBytes,omitempty"` // at the window's end
	RSSFileBytes        int64   `json:"rssFileBytes,omitempty"`
	DeviceFlushes       int64   `json:"deviceFlushes,omitempty"`
	DeviceWrites        int64   `json:"deviceWrites,omitempty"`
	DeviceBytes         int64   `json:"deviceBytes,omitempty"`
	AcksPerFlush        float64 `json:"acksPerFlush,omitempty"`
}

// Refused sums the refusals.
func (r *Result) Refused() (n int64) {
	for _, c := range r.Refusals {
		n += c
	}
	return n
}

// Print writes a result for people.
func (r *Result) Print(w io.Writer) error {
	p := func(err error, format string, a ...any) error {
		if err == nil {
			_, err = fmt.Fprintf(w, format, a...)
		}
		return err
	}
	err := p(nil, "%s: %d messages in %.1f s: %.0f a second", r.Mode, r.Messages, r.Seconds, r.MessagesPerSecond)
	if r.MBPerSecond > 0 {
		err = p(err, ", %.0f MB/s", r.MBPerSecond)
	}
	l := r.Latency
	err = p(err, "\nlatency µs: p50 %.0f  p90 %.0f  p99 %.0f  p99.9 %.0f  max %.0f\n", l.P50, l.P90, l.P99, l.P999, l.Max)
	err = p(err, "CPU µs a message: target %.2f, generator %.2f\n", r.CPUMicrosPerMessage, r.OwnMicrosPerMessage)
	if r.RSSAnonBytes > 0 {
		err = p(err, "memory: RssAnon %.1f MB, RssFile %.1f MB\n", float64(r.RSSAnonBytes)/1e6, float64(r.RSSFileBytes)/1e6)
	}
	if r.DeviceWrites > 0 || r.DeviceFlushes > 0 {
		err = p(err, "device: %d flushes, %d writes, %.0f MB, %.1f messages a flush\n", r.DeviceFlushes, r.DeviceWrites, float64(r.DeviceBytes)/1e6, r.AcksPerFlush)
	}
	for _, code := range slices.Sorted(maps.Keys(r.Refusals)) {
		err = p(err, "refused: %s × %d\n", code, r.Refusals[code])
	}
	if r.Lost != 0 {
		err = p(err, "LOST: %d messages were sent and not received\n", r.Lost)
	}
	return err
}

// window measures one load: a warm-up, then a stretch that counts.
type window struct {
	o        *Options
	hist     *hdrhistogram.Histogram
	messages int64
	bytes    int64
	refusals map[string]int64
	remark   string // of the first refusal

	from, to int64 // loop time
	state    int   // 0 warming up, 1 counting, 2 over
	device   *Device
	start    counters
	end      counters
	err      error // reading the counters failed
}

type counters struct {
	usage Usage
	own   time.Duration
	disk  Disk
}

func newWindow(o *Options, now int64) (*window, error) {
	w := &window{o: o, hist: hdrhistogram.New(1, int64(120*time.Second), 3), refusals: map[string]int64{}}
	w.from = now + int64(o.Warmup)
	w.to = w.from + int64(o.Duration)
	if o.Dir != "" {
		var err error
		if w.device, err = DeviceOf(o.Dir); err != nil {
			return nil, err
		}
	}
	_, err := w.read() // fail early
	return w, err
}

func (w *window) read() (c counters, err error) {
	if w.o.PID != 0 {
		if c.usage, err = UsageOf(w.o.PID); err != nil {
			return c, err
		}
	}
	if w.device != nil {
		if c.disk, err = w.device.Read(); err != nil {
			return c, err
		}
	}
	c.own = selfCPU()
	return c, nil
}

// tick opens and closes the window; over tells that it is closed, or that the
// load must end since w.err is set.
func (w *window) tick(now int64) (over bool) {
	switch {
	case w.state == 0 && now >= w.from:
		w.state, w.from = 1, now
		w.start, w.err = w.read()
	case w.state == 1 && now >= w.to:
		w.state, w.to = 2, now
		w.end, w.err = w.read()
	}
	if w.err != nil {
		w.state = 2
	}
	return w.state == 2
}

// boundary is when the state changes next.
func (w *window) boundary() int64 {
	if w.state == 0 {
		return w.from
	}
	return w.to
}

// drained tells, once the window is over, whether the load may end: nothing is in
// flight, or it has been waited for long enough.
func (w *window) drained(flying int, now int64) bool {
	return w.err != nil || flying == 0 || now > w.to+int64(drainMax)
}

// done counts messages answered well, of one request that took nanos.
func (w *window) done(messages, bytes int, nanos int64) {
	if w.state != 1 {
		return
	}
	w.messages += int64(messages)
	w.bytes += int64(bytes)
	_ = w.hist.RecordValue(max(nanos, 1)) // fails above two minutes: no load waits so long
}

func (w *window) refused(code remoting.ResponseCode, remark []byte) {
	w.refusals[code.Name()]++
	if w.remark == "" {
		w.remark = firstLine(remark)
	}
}

// result sums up; what is the noun for the error when nothing was counted.
func (w *window) result(mode, what string) (*Result, error) {
	if w.err != nil {
		return nil, w.err
	}
	if w.messages == 0 {
		return nil, fmt.Errorf("bench: no %s: %v %s", what, w.refusals, w.remark)
	}
	sec := float64(w.to-w.from) / 1e9
	r := &Result{Mode: mode, Conns: w.o.Conns, InFlight: w.o.InFlight, Rate: w.o.Rate, Bytes: w.o.Bytes, Seconds: sec,
		Messages: w.messages, MessagesPerSecond: float64(w.messages) / sec, MBPerSecond: float64(w.bytes) / sec / 1e6, Refusals: w.refusals}
	if len(r.Refusals) == 0 {
		r.Refusals = nil
	}
	us := func(v int64) float64 { return float64(v) / 1e3 }
	r.Latency = Latency{Count: w.hist.TotalCount(), Mean: w.hist.Mean() / 1e3, P50: us(w.hist.ValueAtQuantile(50)), P90: us(w.hist.ValueAtQuantile(90)),
		P99: us(w.hist.ValueAtQuantile(99)), P999: us(w.hist.ValueAtQuantile(99.9)), Max: us(w.hist.Max())}
	n := float64(max(w.messages, 1))
	r.OwnMicrosPerMessage = float64((w.end.own - w.start.own).Microseconds()) / n
	if w.o.PID != 0 {
		r.CPUMicrosPerMessage = float64((w.end.usage.CPU - w.start.usage.CPU).Microseconds()) / n
		r.RSSAnonBytes, r.RSSFileBytes = w.end.usage.RSSAnon, w.end.usage.RSSFile
	}
	if w.device != nil {
		r.DeviceFlushes = w.end.disk.Flushes - w.start.disk.Flushes
		r.DeviceWrites = w.end.disk.Writes - w.start.disk.Writes
		r.DeviceBytes = w.end.disk.Bytes - w.start.disk.Bytes
		if r.DeviceFlushes > 0 {
			r.AcksPerFlush = float64(w.messages) / float64(r.DeviceFlushes)
		}
	}
	return r, nil
}
