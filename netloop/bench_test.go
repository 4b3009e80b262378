package netloop

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// BenchmarkEcho is the ceiling: frames of 1 KB come in with a Java client's
// headers, are cut and decoded, and a small answer goes out. conns connections
// have inFlight requests open each. CPU per message is the server's loops'
// share: thread time of the loops, without the load generator's.
func BenchmarkEcho(b *testing.B) {
	for _, loops := range []int{1, 2} {
		for _, shape := range []struct{ conns, inFlight int }{{1, 1}, {8, 32}, {64, 1}} {
			b.Run(fmt.Sprintf("loops=%d/conns=%d/inFlight=%d", loops, shape.conns, shape.inFlight), func(b *testing.B) {
				benchEcho(b, loops, shape.conns, shape.inFlight)
			})
		}
	}
}

// BenchmarkHandOver is the shape of a send: ReadEnd hands what was read to an
// appender goroutine, which works for a few microseconds a batch and posts the
// answers back. It compares rounds that end after each read event with those
// that end together.
func BenchmarkHandOver(b *testing.B) {
	for _, conns := range []int{1, 16, 64} {
		for _, deferConns := range []int{1 << 30, deferConns} {
			b.Run(fmt.Sprintf("conns=%d/deferAbove=%d", conns, deferConns), func(b *testing.B) {
				benchHandOver(b, conns, deferConns)
			})
		}
	}
}

type handOver struct {
	loop    *Loop
	conns   []*Conn
	replies []remoting.ReplyTo
}

func (h *handOver) RunOnLoop(l *Loop) {
	for i, c := range h.conns {
		c.SetOut(remoting.AppendReply(c.Out(), h.replies[i], remoting.Success, "", benchFields, nil))
	}
	h.conns, h.replies = h.conns[:0], h.replies[:0]
	l.User.(*handOvers).free = append(l.User.(*handOvers).free, h)
}

type handOvers struct {
	now  *handOver
	free []*handOver
}

func benchHandOver(b *testing.B, conns, deferConns int) {
	file, _ := testFile(b, 1<<20)
	work := make(chan *handOver, 1024)
	var appender sync.WaitGroup
	appender.Go(func() {
		record := make([]byte, 64<<10)
		for h := range work {
			_, _ = file.WriteAt(record[:1200*min(len(h.conns), 50)], 0)
			h.loop.Post(h)
		}
	})
	defer appender.Wait()
	defer close(work)
	benchLoad(b, &handler{
		serve: func(c *Conn, req *remoting.Command) {
			x, _ := c.Loop().User.(*handOvers)
			if x == nil {
				x = new(handOvers)
				c.Loop().User = x
			}
			if x.now == nil {
				if n := len(x.free); n > 0 {
					x.now, x.free = x.free[n-1], x.free[:n-1]
				} else {
					x.now = &handOver{loop: c.Loop()}
				}
			}
			x.now.conns, x.now.replies = append(x.now.conns, c), append(x.now.replies, req.ReplyTo())
		},
		readEnd: func(l *Loop) {
			x := l.User.(*handOvers)
			work <- x.now
			x.now = nil
		},
	}, 1, deferConns, conns, 1)
}

func sendRequest(opaque int32) []byte {
	r := remoting.NewRequest(310)
	r.Language, r.Version, r.Opaque = remoting.LanguageJava, 399, opaque
	for _, kv := range [][2]string{{"a", "bench_group"}, {"b", "bench_topic"}, {"c", "TBW102"}, {"d", "8"}, {"e", "3"}, {"f", "0"},
		{"g", "1700000000000"}, {"h", "0"}, {"i", "UNIQ_KEY\x017F0000010B1A18B4AAC27A9D3E410000\x02WAIT\x01true"}, {"j", "0"}, {"k", "false"}, {"m", "false"}} {
		r.Set(kv[0], kv[1])
	}
	r.Body = make([]byte, 1024)
	return remoting.Append(nil, r)
}

var benchFields = []remoting.Field{{Key: []byte("queueId"), Value: []byte("3")}, {Key: []byte("queueOffset"), Value: []byte("123456")}}

func benchEcho(b *testing.B, loops, conns, inFlight int) {
	benchLoad(b, &handler{serve: func(c *Conn, req *remoting.Command) {
		c.SetOut(remoting.AppendReply(c.Out(), req.ReplyTo(), remoting.Success, "", benchFields, nil))
	}}, loops, deferConns, conns, inFlight)
}

func benchLoad(b *testing.B, h *handler, loops, deferConns, conns, inFlight int) {
	var rounds atomic.Int64
	readEnd := h.readEnd
	h.readEnd = func(l *Loop) {
		rounds.Add(1)
		if readEnd != nil {
			readEnd(l)
		}
	}
	s := listen(b, Config{Loops: loops, Handler: h})
	s.deferConns = deferConns
	replyBytes := len(remoting.AppendReply(nil, remoting.ReplyTo{Opaque: 1}, remoting.Success, "", benchFields, nil))
	frame := sendRequest(1)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	begin, cpu := time.Now(), cpuTime()
	for range conns {
		nc, err := net.Dial("tcp", s.Addr(0).String())
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			defer nc.Close()
			burst := make([]byte, 0, inFlight*len(frame))
			buf := make([]byte, 64<<10)
			open, got := 0, 0
			for done := false; ; {
				n := 0
				for ; open+n < inFlight && !done; n++ {
					if left.Add(-1) < 0 {
						done = true
						break
					}
				}
				if n > 0 {
					burst = burst[:0]
					for range n {
						burst = append(burst, frame...)
					}
					if _, err := nc.Write(burst); err != nil {
						b.Error(err)
						return
					}
					open += n
				}
				if open == 0 {
					return
				}
				k, err := nc.Read(buf)
				if err != nil && err != io.EOF {
					b.Error(err)
					return
				}
				got += k
				open -= got / replyBytes
				got %= replyBytes
			}
		})
	}
	wg.Wait()
	took, used := time.Since(begin), cpuTime()-cpu
	b.StopTimer()
	st := s.Stats()
	b.ReportMetric(float64(b.N)/took.Seconds(), "msg/s")
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/msg")
	b.ReportMetric(float64(b.N)/float64(max(rounds.Load(), 1)), "msg/round")
	b.ReportMetric(float64(st.Wakes)/float64(b.N), "wakes/msg")
}

// cpuTime is the process's, generator included.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
