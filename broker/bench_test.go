package broker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/ringmq/ringmq/remoting"
)

// BenchmarkSend drives a broker over loopback with frames as Java's clients
// send them: conns × in flight. The generator shares the processors, so the
// figures are for profiles and comparisons, not for claims (those are bench's).
func BenchmarkSend(b *testing.B) {
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		for _, load := range []struct{ conns, inFlight int }{{1, 1}, {8, 32}, {64, 1}} {
			b.Run(fmt.Sprintf("%s/%dx%d", flush, load.conns, load.inFlight), func(b *testing.B) {
				benchmarkSend(b, flush, load.conns, load.inFlight)
			})
		}
	}
}

func benchmarkSend(b *testing.B, flush string, conns, inFlight int) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	cfg := DefaultConfig()
	cfg.StorePathRootDir, cfg.StorePathCommitLog = b.TempDir(), ""
	cfg.BrokerName, cfg.BrokerIP1, cfg.BindAddress = "broker-t", "127.0.0.1", "127.0.0.1"
	cfg.NamesrvAddr, cfg.FlushDiskType, cfg.ListenPort = "", flush, freePorts(b)
	cfg.Complete()
	br, err := New(cfg, slog.Default())
	if err != nil {
		b.Fatal(err)
	}
	if err := br.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer stopBroker(b, br)
	frames := make([][]byte, 8) // one a queue
	for q := range frames {
		req := remoting.NewRequest(remoting.ReqSendMessageV2)
		for f := sendFields("BenchmarkTest", q, "UNIQ_KEY=7F00000100002A139A5512D51DAB0001;WAIT=true;TAGS=TagA"); len(f) > 0; f = f[2:] {
			req.Set(f[0], f[1])
		}
		req.Body = make([]byte, 1024)
		frames[q] = remoting.Append(nil, req)
	}
	errs := make(chan error, conns)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range conns {
		n := b.N / conns
		if i < b.N%conns {
			n++
		}
		go func() { errs <- drive(br.Addrs()[0].String(), frames, n, inFlight) }()
	}
	for range conns {
		if err := <-errs; err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
}

// drive sends n frames with inFlight of them unanswered, on one connection.
func drive(addr string, frames [][]byte, n, inFlight int) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	w := bufio.NewWriterSize(c, 64<<10)
	var head [4]byte
	for sent, got := 0, 0; got < n; got++ {
		if sent-got <= inFlight/2 {
			for ; sent < n && sent-got < inFlight; sent++ {
				if _, err := w.Write(frames[sent%len(frames)]); err != nil {
					return err
				}
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		if _, err := r.Discard(int(binary.BigEndian.Uint32(head[:]))); err != nil {
			return err
		}
	}
	return nil
}
