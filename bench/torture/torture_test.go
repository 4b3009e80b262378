//go:build linux

package torture

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringmq/ringmq/message"
)

// TestJudge shows that reading back sees each kind of loss.
func TestJudge(t *testing.T) {
	stored := func(told *told, off int64, id uint64) *message.Message {
		body := told.body(nil, id)
		return &message.Message{QueueID: 1, QueueOffset: message.QueueOffset(off), Body: body, BodyCRC: message.CRC(body)}
	}
	for _, c := range []struct {
		name   string
		change func(ms []*message.Message) []*message.Message
		want   int
	}{
		{"nothing wrong", func(ms []*message.Message) []*message.Message { return ms }, 0},
		{"the last lost", func(ms []*message.Message) []*message.Message { return ms[:2] }, 1},
		{"the first lost", func(ms []*message.Message) []*message.Message { return ms[1:] }, 2},
		{"all lost", func(ms []*message.Message) []*message.Message { return nil }, 3},
		{"a torn body", func(ms []*message.Message) []*message.Message { ms[1].Body[20]++; return ms }, 1},
		{"a CRC of other bytes", func(ms []*message.Message) []*message.Message { ms[1].BodyCRC++; return ms }, 1},
		{"bodies swapped", func(ms []*message.Message) []*message.Message {
			ms[0].Body, ms[1].Body = ms[1].Body, ms[0].Body
			ms[0].BodyCRC, ms[1].BodyCRC = ms[1].BodyCRC, ms[0].BodyCRC
			return ms
		}, 2},
		{"an offset twice", func(ms []*message.Message) []*message.Message { return append(ms, ms[2]) }, 1},
		{"another queue's", func(ms []*message.Message) []*message.Message { ms[2].QueueID = 2; return ms }, 1},
		{"a body never sent", func(ms []*message.Message) []*message.Message { ms[2].Body = []byte("hello"); return ms }, 2},
		{"one more, not answered for", func(ms []*message.Message) []*message.Message {
			return append(ms, stored(newTold(7), 3, 99))
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			told := newTold(7)
			var ms []*message.Message
			for off := range int64(3) {
				if err := told.ack(1, off, uint64(off+10)); err != nil {
					t.Fatal(err)
				}
				ms = append(ms, stored(told, off, uint64(off+10)))
			}
			j := newJudge(told, 1, 0)
			for _, m := range c.change(ms) {
				j.message(m)
			}
			if got := j.end(); len(got) != c.want {
				t.Errorf("got %q, want %d problems", got, c.want)
			}
		})
	}
}

// TestAckTwice holds that one place can't be answered for twice.
func TestAckTwice(t *testing.T) {
	told := newTold(1)
	if err := told.ack(0, 5, 1); err != nil {
		t.Fatal(err)
	}
	if told.ack(0, 5, 2) == nil || told.ack(queues, 0, 3) == nil || told.ack(-1, 0, 3) == nil {
		t.Error("an answer that can't be was taken")
	}
}

// TestRun tortures the real binary, shortly.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and kills the binary")
	}
	binary := filepath.Join(t.TempDir(), "ringmq")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/ringmq/ringmq/cmd/ringmq").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, err := Run(ctx, Config{Binary: binary, Dir: filepath.Join(t.TempDir(), "scratch"), Port: 24931, Rounds: 5, Conns: 2, InFlight: 4,
		KillMax: 150 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || r.Kills != 6 || r.Acknowledged == 0 || r.Stored < r.Acknowledged || r.Files == nil {
		t.Errorf("%+v", r)
	}
}
