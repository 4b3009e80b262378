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

func benchEcho(b *testing.B, loops, conns, inFlight int) {
	var rounds atomic.Int64
	fields := []remoting.Field{{Key: []byte("queueId"), Value: []byte("3")}, {Key: []byte("queueOffset"), Value: []byte("123456")}}
	s := listen(b, Config{Loops: loops, Handler: &handler{
		serve: func(c *Conn, req *remoting.Command) {
			c.SetOut(remoting.AppendReply(c.Out(), req.ReplyTo(), remoting.Success, "", fields, nil))
		},
		readEnd: func(*Loop) { rounds.Add(1) },
	}})
	replyBytes := len(remoting.AppendReply(nil, remoting.ReplyTo{Opaque: 1}, remoting.Success, "", fields, nil))
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
