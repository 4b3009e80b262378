package broker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// A loop never waits for a disk: with one on which each sync and each read of what
// is not in memory takes diskDelay, no callback of the loop takes blockedMax, while one connection
// pulls what is only on the disk and another, on the same loop, sends and pulls
// what is not.
const (
	diskDelay  = 300 * time.Millisecond
	blockedMax = 150 * time.Millisecond // the machine may be busy
)

func TestLoopNeverWaitsForDisk(t *testing.T) {
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			fault := vfs.NewFault(vfs.NewMem())
			b := startOver(t, fault, flush)
			want := sendOld(t, dial(t, b))
			stopBroker(t, b)
			// A new life, which has nothing of it in memory.
			b = startOver(t, fault, flush)
			t.Cleanup(func() { stopBroker(t, b) })
			t.Cleanup(fault.Clear)
			cold, hot := dial(t, b), dial(t, b)
			call(t, hot, remoting.ReqSendMessageV2, remoting.Success, []byte("hot"), sendFields("Hot", 0, "")...)
			call(t, hot, remoting.ReqPullMessage, remoting.Success, nil, pullFields("Hot", 0, 0)...) // makes the group, on the pool
			fault.SetResident(func(string, int64, int64) (bool, bool) { return false, true })
			fault.Add(vfs.Rule{Ops: vfs.OpSync, Delay: diskDelay})
			// Of the log's segments, what is hot is in the last and in memory.
			fault.Add(vfs.Rule{Ops: vfs.OpRead, Path: segment.Name(0), Delay: diskDelay})

			// What blocks does so each time; a pause of the machine does not.
			var blocked time.Duration
			for range 3 {
				b.server.Stats() // begins BlockedMax anew
				pullOldBesideHot(t, cold, hot, want)
				st := b.server.Stats()
				if st.BlockedSamples < 20 {
					t.Fatalf("%d callbacks timed", st.BlockedSamples)
				}
				if blocked = st.BlockedMax; blocked < blockedMax {
					return
				}
			}
			t.Errorf("a loop was blocked for %v, want less than %v with a disk of %v", blocked, blockedMax, diskDelay)
		})
	}
}

// startOver runs a broker with one loop, all of whose rounds are timed, over fs.
func startOver(t *testing.T, fs vfs.FS, flush string) *Broker {
	t.Helper()
	cfg := DefaultConfig()
	cfg.StorePathRootDir, cfg.StorePathCommitLog = "/store", ""
	cfg.BrokerName, cfg.BrokerIP1, cfg.BrokerIP2, cfg.BindAddress = "broker-t", "127.0.0.1", "127.0.0.1", "127.0.0.1"
	cfg.NamesrvAddr, cfg.FlushDiskType, cfg.FlushEngine = "", flush, "syscall"
	cfg.MappedFileSizeCommitLog, cfg.EventLoops = 64<<20, 1
	cfg.FlushIntervalConsumeQueue = 100 * time.Millisecond // sweeps are slow too
	cfg.ListenPort = freePorts(t)
	cfg.Complete()
	b, err := newBroker(cfg, fs, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	b.sampleEvery = 1
	if err := b.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return b
}

// sendOld sends messages and then so much that they count as old: more than the
// engine takes for resident without asking.
func sendOld(t *testing.T, c *rpc.Conn) (bodies []string) {
	t.Helper()
	for i := range 5 {
		bodies = append(bodies, fmt.Sprintf("old %d", i))
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte(bodies[i]), sendFields("Old", 0, "")...)
	}
	zeros := make([]byte, 4<<20) // which cost a Mem nothing
	for range 34 {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, zeros, sendFields("Fill", 0, "")...)
	}
	return bodies
}

// pullOldBesideHot pulls want on cold, and until it is answered sends, pulls and
// commits on hot.
func pullOldBesideHot(t *testing.T, cold, hot *rpc.Conn, want []string) {
	t.Helper()
	type answer struct {
		resp *remoting.Command
		err  error
		took time.Duration
	}
	req := remoting.NewRequest(int32(remoting.ReqPullMessage))
	fields := pullFields("Old", 0, 0)
	for i := 0; i < len(fields); i += 2 {
		req.Set(fields[i], fields[i+1])
	}
	answers := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		began := time.Now()
		resp, err := cold.Call(ctx, req)
		answers <- answer{resp, err, time.Since(began)}
	}()
	for i := 0; ; i++ {
		body := fmt.Sprint("hot ", i)
		sent := call(t, hot, remoting.ReqSendMessageV2, remoting.Success, []byte(body), sendFields("Hot", 0, "")...)
		var at int64
		if _, err := fmt.Sscan(sent.GetString("queueOffset"), &at); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			got := call(t, hot, remoting.ReqPullMessage, remoting.Success, nil, pullFields("Hot", 0, at)...)
			if s := fmt.Sprint(bodies(t, got)); s != "["+body+"]" {
				t.Fatalf("pulled %s, want [%s]", s, body)
			}
		}
		call(t, hot, remoting.ReqUpdateConsumerOffset, remoting.Success, nil, "consumerGroup", "cg", "topic", "Hot", "queueId", "0", "commitOffset", fmt.Sprint(at))
		select {
		case a := <-answers:
			if a.err != nil {
				t.Fatal(a.err)
			}
			if got := bodies(t, a.resp); fmt.Sprint(got) != fmt.Sprint(want) || remoting.ResponseCode(a.resp.Code) != remoting.Success {
				t.Errorf("the cold pull: code %d %s, %q, want %q", a.resp.Code, a.resp.Remark, got, want)
			}
			if a.took < diskDelay {
				t.Errorf("the cold pull took %v: it was not cold", a.took)
			}
			if i >= 4 {
				return
			}
			answers <- a // a few rounds more
		default:
		}
	}
}
