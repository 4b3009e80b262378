package interop

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const killQueues = 4

// place is where an answer says that a message is.
type place struct {
	queue  int32
	offset int64
}

// journal is what the load was told: acknowledged messages by place, over all rounds.
type journal struct {
	mu    sync.Mutex
	acked map[place]string // the message's name
	end0  int64            // behind the highest offset of queue 0 that was acknowledged
	codes map[int]int      // answers by code
}

func (j *journal) ack(p place, name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.codes[0]++
	j.acked[p] = name
	if p.queue == 0 {
		j.end0 = max(j.end0, p.offset+1)
	}
}

// count is how many messages were acknowledged.
func (j *journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.acked)
}

// end is behind what was acknowledged of queue 0: as far as a consumer can have come.
func (j *journal) end() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end0
}

// killBody is a message's body: its name and bytes that follow from it, so that a torn or mixed record shows.
func killBody(name string) []byte {
	h := fnv.New64a()
	h.Write([]byte(name))
	seed := h.Sum64()
	r := rand.New(rand.NewPCG(seed, 1))
	b := append([]byte(name), '|')
	for n := 100 + seed%1100; n > 0; n-- {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// verify compares what was pulled, queue by queue in the order of the pulls, with what was acknowledged.
func verify(acked map[place]string, found [][]record) (problems []string) {
	at := map[place]string{}
	for q, rs := range found {
		for i, r := range rs {
			name, _, _ := strings.Cut(string(r.body), "|")
			p := place{r.queueID, r.queueOffset}
			switch {
			case int(r.queueID) != q || r.queueOffset != rs[0].queueOffset+int64(i):
				problems = append(problems, fmt.Sprintf("queue %d, message %d is marked %+v", q, i, p))
			case !bytes.Equal(r.body, killBody(name)):
				problems = append(problems, fmt.Sprintf("the body at %+v is not what %s was sent with", p, name))
			}
			at[p] = name
		}
		if len(rs) > 0 && rs[0].queueOffset != 0 {
			problems = append(problems, fmt.Sprintf("queue %d begins at %d", q, rs[0].queueOffset))
		}
	}
	for p, name := range acked {
		if at[p] != name {
			problems = append(problems, fmt.Sprintf("%s was acknowledged at %+v, there is %q", name, p, at[p]))
		}
	}
	return problems
}

// TestVerify shows that the verification sees each kind of loss.
func TestVerify(t *testing.T) {
	good := func() [][]record {
		return [][]record{{{queueOffset: 0, body: killBody("a")}, {queueOffset: 1, body: killBody("b")}}}
	}
	acked := map[place]string{{0, 0}: "a", {0, 1}: "b"}
	for _, tc := range []struct {
		name   string
		change func(f [][]record) [][]record
		want   int
	}{
		{"nothing wrong", func(f [][]record) [][]record { return f }, 0},
		{"last lost", func(f [][]record) [][]record { f[0] = f[0][:1]; return f }, 1},
		{"first lost", func(f [][]record) [][]record { f[0] = f[0][1:]; return f }, 2},
		{"torn body", func(f [][]record) [][]record { f[0][1].body[40]++; return f }, 1},
		{"swapped", func(f [][]record) [][]record {
			f[0][0].body, f[0][1].body = f[0][1].body, f[0][0].body
			return f
		}, 2},
		{"one more, not acknowledged", func(f [][]record) [][]record {
			f[0] = append(f[0], record{queueOffset: 2, body: killBody("c")})
			return f
		}, 0},
		{"offset doubled", func(f [][]record) [][]record {
			f[0] = append(f[0], record{queueOffset: 1, body: killBody("b")})
			return f
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := verify(acked, tc.change(good())); len(got) != tc.want {
				t.Errorf("want %d problems, got %q", tc.want, got)
			}
		})
	}
}

// TestKill9 kills the broker at random moments under SYNC_FLUSH load and wants every acknowledged message back, at its
// place, whole. Apache runs two rounds, which proves the test; ringmq runs twenty.
func TestKill9(t *testing.T) {
	for _, target := range targets(t) {
		rounds := 20
		if target == "apache" {
			rounds = 2
		}
		t.Run(target, func(t *testing.T) { killRounds(t, target, rounds) })
	}
}

func killRounds(t *testing.T, target string, rounds int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := startServers(t, target, func(s *Servers) {
		s.FlushDisk = "SYNC_FLUSH"
		s.SegmentBytes = 5 << 20 // some kills meet a change of segment
	})
	if err := CreateTopic(t.Context(), s.Broker, "kill9", killQueues); err != nil {
		t.Fatal(err)
	}
	j := &journal{acked: map[place]string{}, codes: map[int]int{}}
	var committed int64
	for round := range rounds {
		moment := time.Duration(20+rng.IntN(600)) * time.Millisecond
		before := len(j.acked)
		off, err := loadUntilKilled(t.Context(), s, j, round, moment)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		committed = max(committed, off)
		begin := time.Now()
		if err := s.StartBroker(t.Context()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		back := time.Since(begin)
		total := checkAfterKill(t, s, j, round, committed)
		t.Logf("round %d: killed after %v, %d acknowledged, back after %d ms, %d of %d stored were acknowledged", round,
			moment, len(j.acked)-before, back.Milliseconds(), len(j.acked), total)
		if t.Failed() {
			return
		}
		if len(j.acked) == before {
			t.Errorf("round %d: nothing was acknowledged", round)
		}
	}
	if err := s.StopBroker(); err != nil {
		t.Error(err)
	}
	if err := s.StartBroker(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkAfterKill(t, s, j, rounds-1, committed)
	t.Logf("answers by code: %v", j.codes)
}

// loadUntilKilled sends on four connections, four at a time each, kills the broker at the moment, and returns the
// highest consumer offset whose commit was answered. A topic is created and answered for in each round.
func loadUntilKilled(ctx context.Context, s *Servers, j *journal, round int, moment time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	before := j.count()
	if err := CreateTopic(ctx, s.Broker, "kill9_round"+strconv.Itoa(round), 1); err != nil {
		return 0, err
	}
	if held, err := lockKill(ctx, s, "holder", round); err != nil || !held {
		return 0, fmt.Errorf("queue lock: granted %v, error %v", held, err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var conns []*Conn
	for range 5 {
		c, err := Dial(ctx, s.Broker)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		conns = append(conns, c)
	}
	for i, c := range conns[:4] {
		for lane := range 4 {
			wg.Go(func() {
				for n := 0; sendKill(ctx, c, j, fmt.Sprintf("r%d-%d-%d-%d", round, i, lane, n), n%killQueues); n++ {
				}
			})
		}
	}
	var committed atomic.Int64
	wg.Go(func() {
		for off := j.end(); commitKill(ctx, conns[4], off); off = j.end() {
			committed.Store(off)
		}
	})
	// The moment counts from the round's first acknowledgement: a broker that has
	// just come back may need longer for it than the moment is.
	for j.count() == before && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(moment)
	s.KillBroker()
	wg.Wait()
	return committed.Load(), nil
}

// sendKill sends one message and notes an acknowledgement; false when the connection is over.
func sendKill(ctx context.Context, c *Conn, j *journal, name string, queue int) bool {
	f, err := c.Call(ctx, 310, map[string]string{"a": "kill9_p", "b": "kill9", "c": "TBW102", "d": "4",
		"e": strconv.Itoa(queue), "f": "0", "g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0",
		"i": "UNIQ_KEY\x01" + name + "\x02WAIT\x01true", "j": "0", "k": "false", "m": "false"}, killBody(name))
	if err != nil {
		return false
	}
	if f.Code != 0 { // no acknowledgement: a refusal may be true, a false SEND_OK may not
		j.mu.Lock()
		j.codes[f.Code]++
		j.mu.Unlock()
		return true
	}
	q, err1 := strconv.Atoi(f.ExtFields["queueId"])
	off, err2 := strconv.ParseInt(f.ExtFields["queueOffset"], 10, 64)
	if err1 != nil || err2 != nil {
		j.ack(place{-1, -1}, fmt.Sprintf("%s with the answer %v", name, f.ExtFields))
		return false
	}
	j.ack(place{int32(q), off}, name)
	return true
}

func commitKill(ctx context.Context, c *Conn, off int64) bool {
	f, err := c.Call(ctx, 15, map[string]string{"consumerGroup": "CID_ONSAPI_PULL", "topic": "kill9", "queueId": "0",
		"commitOffset": strconv.FormatInt(off, 10)}, nil)
	return err == nil && f.Code == 0
}

// lockKill asks for a queue lock (41) as an orderly consumer does, and says whether the client holds it then.
func lockKill(ctx context.Context, s *Servers, client string, queue int) (bool, error) {
	f, err := Ask(ctx, s.Broker, 41, nil, fmt.Appendf(nil,
		`{"clientId":%q,"consumerGroup":"kill9_locks","mqSet":[{"brokerName":%q,"queueId":%d,"topic":"kill9"}]}`, client, BrokerName, queue))
	if err != nil || f.Code != 0 {
		return false, fmt.Errorf("answer %+v, error %v", f, err)
	}
	return bytes.Contains(f.Body, []byte(`"queueId":`)), nil
}

func checkAfterKill(t *testing.T, s *Servers, j *journal, round int, committed int64) (total int) {
	t.Helper()
	found := make([][]record, killQueues)
	for q := range found {
		rs, err := pullAll(t.Context(), s.Broker, "kill9", q)
		if err != nil {
			t.Fatalf("round %d, queue %d: %v", round, q, err)
		}
		found[q] = rs
		total += len(rs)
	}
	problems := verify(j.acked, found)
	for i, p := range problems {
		if i < 10 {
			t.Errorf("round %d: %s", round, p)
		}
	}
	if len(problems) > 10 {
		t.Errorf("round %d: %d problems", round, len(problems))
	}
	for r := range round + 1 {
		if err := HasRoute(t.Context(), s.Namesrv, "kill9_round"+strconv.Itoa(r)); err != nil {
			t.Errorf("round %d: a created topic is gone: %v", round, err)
		}
	}
	if s.Target == "apache" {
		return total // Apache saves consumer offsets every 5 s and no locks; ringmq has offsets before it answers
	}
	for client, want := range map[string]bool{"other": false, "holder": true} {
		if held, err := lockKill(t.Context(), s, client, round); err != nil || held != want {
			t.Errorf("round %d: the %s client is given the queue that was locked before the kill: %v, want %v (%v)", round, client, held, want, err)
		}
	}
	f, err := Ask(t.Context(), s.Broker, 14, map[string]string{"consumerGroup": "CID_ONSAPI_PULL", "topic": "kill9",
		"queueId": "0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := strconv.ParseInt(f.ExtFields["offset"], 10, 64); f.Code != 0 || got < committed {
		t.Errorf("round %d: consumer offset %d was answered for, now code %d offset %d", round, committed, f.Code, got)
	}
	return total
}

// pullAll reads a queue from its minimum to its maximum.
func pullAll(ctx context.Context, broker, topic string, queue int) ([]record, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	c, err := Dial(ctx, broker)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	q := strconv.Itoa(queue)
	limit := map[string]int64{}
	for name, code := range map[string]int{"min": 31, "max": 30} {
		f, err := c.Call(ctx, code, map[string]string{"topic": topic, "queueId": q}, nil)
		if err != nil {
			return nil, err
		}
		if limit[name], err = strconv.ParseInt(f.ExtFields["offset"], 10, 64); err != nil {
			return nil, fmt.Errorf("%s offset: code %d %s: %w", name, f.Code, f.Remark, err)
		}
	}
	var all []record
	for at := limit["min"]; at < limit["max"]; {
		f, err := c.Call(ctx, 11, map[string]string{"consumerGroup": "CID_ONSAPI_PULL", "topic": topic, "queueId": q,
			"queueOffset": strconv.FormatInt(at, 10), "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
			"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}, nil)
		if err != nil {
			return nil, err
		}
		next, err := strconv.ParseInt(f.ExtFields["nextBeginOffset"], 10, 64)
		if err != nil || f.Code != 0 || next <= at {
			return nil, fmt.Errorf("pull at %d of [%d, %d): code %d %s, next %d", at, limit["min"], limit["max"],
				f.Code, f.Remark, next)
		}
		rs, err := parseRecords(f.Body)
		if err != nil {
			return nil, fmt.Errorf("pull at %d: %w", at, err)
		}
		all = append(all, rs...)
		at = next
	}
	return all, nil
}
