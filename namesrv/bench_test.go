package namesrv

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/ringmq/ringmq/remoting"
)

// BenchmarkRoutes asks a NameServer for the routes of 1,000 topics over TCP:
// 8 connections with 32 queries in flight each. An operation is one answer.
func BenchmarkRoutes(b *testing.B) {
	c := newCluster(b)
	c.start()
	mustSucceed(b, c.conn("a").call(b, broker{name: "broker-a", addr: "10.0.0.1:10911", topics: 1000}.command()))
	mustSucceed(b, c.conn("b").call(b, broker{name: "broker-b", addr: "10.0.0.2:10911", topics: 1000}.command()))
	const conns, inFlight = 8, 32
	var clients sync.WaitGroup
	b.ResetTimer()
	for i := range conns {
		n := b.N / conns
		if i < b.N%conns {
			n++
		}
		clients.Go(func() {
			conn, err := net.Dial("tcp", c.srv.Addr().String())
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			if err := ask(conn, n, inFlight); err != nil {
				b.Error(err)
			}
		})
	}
	clients.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "routes/s")
}

// ask sends n queries, window at a time, and reads their answers.
func ask(conn net.Conn, n, window int) error {
	var queries [][]byte
	for i := range 1000 {
		queries = append(queries, remoting.Append(nil, routeRequest(fmt.Sprintf("topic-%05d", i))))
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	var out, head []byte
	head = make([]byte, 8)
	for done := 0; done < n; {
		batch := min(window, n-done)
		out = out[:0]
		for i := range batch {
			out = append(out, queries[(done+i)%len(queries)]...)
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
		for range batch {
			if _, err := io.ReadFull(r, head); err != nil {
				return err
			}
			if _, err := r.Discard(int(binary.BigEndian.Uint32(head)) - 4); err != nil {
				return err
			}
		}
		done += batch
	}
	return nil
}

// BenchmarkHeartbeat registers 10,000 unchanged topics again: what a large
// broker costs every 30 s, the decoding of its body apart.
func BenchmarkHeartbeat(b *testing.B) {
	r := newRig(b)
	big := broker{name: "a", addr: "1:1", topics: 10_000}
	p := newPeer()
	r.add(b, big, p, 0)
	g := &registration{RegisterBrokerHeader: *big.header(), knowsActingMaster: true, body: big.body()}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.register(g, p, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRegister decodes and registers 10,000 topics, all changed.
func BenchmarkRegister(b *testing.B) {
	r := newRig(b)
	big := broker{name: "a", addr: "1:1", topics: 10_000}
	p := newPeer()
	body := big.body().Marshal()
	b.SetBytes(int64(len(body)))
	for i := 0; b.Loop(); i++ {
		parsed, err := remoting.ParseRegisterBrokerBody(body, false, remoting.Version)
		if err != nil {
			b.Fatal(err)
		}
		parsed.TopicConfigSerializeWrapper.DataVersion.Counter = int64(i)
		g := &registration{RegisterBrokerHeader: *big.header(), knowsActingMaster: true, body: parsed}
		if _, err := r.register(g, p, 1); err != nil {
			b.Fatal(err)
		}
	}
}
