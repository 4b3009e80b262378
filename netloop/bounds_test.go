package netloop

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// Four connections pipeline requests with large answers and never read. They
// must not grow the process beyond its bounds, nor slow a fifth.
func TestPeersThatDoNotRead(t *testing.T) {
	const answer, outbound = 256 << 10, 8 << 20
	file, _ := testFile(t, answer)
	for _, how := range []string{"gathered", "sendfile"} {
		t.Run(how, func(t *testing.T) {
			body := make([]byte, answer)
			s := listen(t, Config{
				Loops: 1, ConnOutboundBytesMax: outbound, TotalBytesMax: 64 << 20,
				Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
					switch {
					case req.Code == 1:
						echo(c, req)
					case how == "sendfile":
						c.SendFile(remoting.AppendReplyHead(nil, req.ReplyTo(), remoting.Success, "", nil, answer),
							[]vfs.Range{{File: file, Len: answer}})
					default:
						c.SetOut(remoting.AppendReply(c.Out(), req.ReplyTo(), remoting.Success, "", nil, body))
					}
				}},
			})
			debug.FreeOSMemory()
			before := heapBytes()
			for range 4 {
				p := dial(t, s)
				go func() {
					for i := int32(0); i < 20_000; i++ { // 5 GB of answers
						if _, err := p.Write(request(2, i, make([]byte, 200))); err != nil {
							return
						}
					}
				}()
			}
			eventually(t, "all four are held back", func() bool { return s.Stats().Stalls >= 4 })
			fifth := dial(t, s)
			var trips []time.Duration
			for i := range int32(500) {
				begin := time.Now()
				fifth.send(request(1, i, nil))
				fifth.mustRead(i)
				trips = append(trips, time.Since(begin))
			}
			slices.Sort(trips)
			median, worst := trips[len(trips)/2], trips[len(trips)-1]
			st := s.Stats()
			// Requests held back: 5 MB each, in a buffer that doubles.
			limit := int64(4 * (outbound/2 + answer + gatherBytes + 8<<20))
			if st.WaitingBytes > limit {
				t.Errorf("waiting: got %d bytes, limit %d", st.WaitingBytes, limit)
			}
			if grown := heapBytes() - before; grown > limit+32<<20 { // garbage of growing included
				t.Errorf("the heap has grown by %d bytes, want at most the bounds", grown)
			}
			if median > 50*time.Millisecond { // hundreds of times what it is alone
				t.Errorf("the fifth connection's round trip: median %v", median)
			}
			t.Logf("heap +%d MiB, waiting %d MiB, round trip: median %v, worst %v", (heapBytes()-before)>>20, st.WaitingBytes>>20, median, worst)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			_ = s.Close(ctx) // they will not read
			s.closeErr = nil
		})
	}
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// A peer that was held back gets all its answers once it reads.
func TestStalledPeerGoesOn(t *testing.T) {
	s := listen(t, Config{ConnOutboundBytesMax: 1 << 20, Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
		c.SetOut(remoting.AppendReply(c.Out(), req.ReplyTo(), remoting.Success, "", nil, make([]byte, 200_000)))
	}}})
	p := dial(t, s)
	const n = 300
	go func() {
		for i := range int32(n) {
			if _, err := p.Write(request(2, i, make([]byte, 1000))); err != nil {
				return
			}
		}
	}()
	eventually(t, "held back", func() bool { return s.Stats().Stalls > 0 })
	for i := range int32(n) {
		if got := p.mustRead(i); len(got.Body) != 200_000 {
			t.Fatalf("answer %d: %d bytes", i, len(got.Body))
		}
	}
	eventually(t, "nothing waits", func() bool { return s.Stats().WaitingBytes == 0 && s.Stats().SlowConns == 0 })
}

func TestOutboundBoundCloses(t *testing.T) {
	log := new(logText)
	conns := make(chan *Conn, 1)
	s := listen(t, Config{
		ConnOutboundBytesMax: 1 << 20, Keys: Keys{ConnOutboundBytesMax: "outKey"},
		Logger: slog.New(slog.NewTextHandler(log, nil)), Handler: &handler{open: func(c *Conn) { conns <- c }},
	})
	dial(t, s)
	c := <-conns
	for range 1000 { // answers nobody asked for: only closing helps
		c.Send(make([]byte, 100_000))
	}
	eventually(t, "closed", c.Closed)
	wantLog(t, log, "over its bound", "outKey", "limit=1048576")
	eventually(t, "nothing waits", func() bool { return s.Stats().WaitingBytes == 0 })
	if got := s.Stats().ClosedBound; got != 1 {
		t.Errorf("ClosedBound: got %d", got)
	}
}

func TestTotalBoundClosesTheOneThatAdds(t *testing.T) {
	log := new(logText)
	var mu sync.Mutex
	var conns []*Conn
	var open atomic.Int32
	s := listen(t, Config{
		FrameBytesMax: 1 << 20, ConnInboundBytesMax: 2 << 20, ConnOutboundBytesMax: 2 << 20, TotalBytesMax: 5 << 20,
		Keys: Keys{TotalBytesMax: "sumKey"}, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Handler: &handler{
			open: func(c *Conn) {
				c.Suspend()
				mu.Lock()
				conns = append(conns, c)
				mu.Unlock()
				open.Add(1)
			},
			closed: func(*Conn, error) { open.Add(-1) },
		},
	})
	for i := range int32(8) {
		p := dial(t, s)
		eventually(t, "open", func() bool { return s.Stats().Accepted == int64(i+1) })
		p.send(request(1, 1, make([]byte, 900_000)))
	}
	eventually(t, "some are closed", func() bool { return open.Load() < 8 })
	eventually(t, "the sum is in its bound", func() bool { return s.Stats().WaitingBytes <= 5<<20 })
	wantLog(t, log, "sumKey", "limit=5242880")
	if open.Load() < 2 {
		t.Errorf("only %d connections are left", open.Load())
	}
}
