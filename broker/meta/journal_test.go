package meta

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringmq/ringmq/remoting"
)

// recorder writes down what a replay hands it.
type recorder struct{ got []string }

func (r *recorder) base(file byte, f fingerprint) {
	r.got = append(r.got, fmt.Sprintf("base %d %d %08x", file, f.bytes, f.crc))
}
func (r *recorder) commit(key string, queue int32, offset int64) {
	r.got = append(r.got, fmt.Sprintf("commit %s %d %d", key, queue, offset))
}
func (r *recorder) reset(key string, queue int32, offset int64) {
	r.got = append(r.got, fmt.Sprintf("reset %s %d %d", key, queue, offset))
}
func (r *recorder) forget(key string) { r.got = append(r.got, "forget "+key) }
func (r *recorder) delay(p DelayProgress) {
	r.got = append(r.got, fmt.Sprintf("delay %d %v", p.ScanFrom, p.Next))
}
func (r *recorder) lock(key LockKey, clientID string) {
	r.got = append(r.got, fmt.Sprintf("lock %s %s/%s/%d %q", key.Group, key.Queue.BrokerName, key.Queue.Topic, key.Queue.QueueID, clientID))
}
func (r *recorder) subscriber(key SubscriberKey, s Subscriber) {
	r.got = append(r.got, fmt.Sprintf("subscriber %s %s %d %q", key.Group, key.ClientID, s.Fingerprint, s.Data))
}

func (r *recorder) timer(p TimerProgress) { r.got = append(r.got, fmt.Sprintf("timer %+v", p)) }

func sampleJournal() []byte {
	b := []byte(journalMagic)
	b = appendBase(b, fileOffsets, fingerprintOf([]byte("{}")))
	b = appendCommit(b, "T@g", []queueOffset{{id: 0, offset: 5}, {id: 7, offset: 1 << 40}})
	b = appendForget(b, "T@g")
	b = appendDelay(b, DelayProgress{ScanFrom: 1234, Next: map[int32]int64{1: 10, 18: 3}})
	key := LockKey{Group: "g", Queue: remoting.MessageQueue{BrokerName: "b", QueueID: 3, Topic: "T"}}
	b = appendLock(appendLock(b, key, "client"), key, "")
	who := SubscriberKey{Group: "g", ClientID: "client"}
	b = appendSubscriber(appendSubscriber(b, who, Subscriber{Fingerprint: -5, Data: "{}"}), who, Subscriber{})
	b = appendTimer(b, TimerProgress{DoneAt: 1 << 62, DoneOffset: 5, Loaded: 6, Lowest: 7, ScanFrom: 8})
	return appendCommit(b, "T2@g", []queueOffset{{id: 1, offset: 0}, {id: 2, offset: 8, reset: true}})
}

var sampleReplay = []string{
	"base 1 2 297bd0aa", "commit T@g 0 5", "commit T@g 7 1099511627776", "forget T@g",
	"delay 1234 map[1:10 18:3]", `lock g b/T/3 "client"`, `lock g b/T/3 ""`,
	`subscriber g client -5 "{}"`, `subscriber g client 0 ""`, "timer {DoneAt:4611686018427387904 DoneOffset:5 Loaded:6 Lowest:7 ScanFrom:8}", "reset T2@g 2 8", "commit T2@g 1 0",
}

func TestJournalRoundTrip(t *testing.T) {
	var r recorder
	b := sampleJournal()
	whole, err := replayJournal(b, &r)
	if err != nil || whole != len(b) {
		t.Fatalf("whole %d of %d, error %v", whole, len(b), err)
	}
	if !slices.Equal(r.got, sampleReplay) {
		t.Errorf("got %q, want %q", r.got, sampleReplay)
	}
}

// A journal cut anywhere gives the records before the cut, and the place to
// cut it to.
func TestJournalCutAnywhere(t *testing.T) {
	b := sampleJournal()
	for n := 1; n < len(b); n++ {
		var r recorder
		whole, err := replayJournal(b[:n], &r)
		if whole > n || !slices.Equal(r.got, sampleReplay[:len(r.got)]) {
			t.Fatalf("cut at %d: whole %d, got %q", n, whole, r.got)
		}
		if (err == nil) != (whole == n) || err != nil && !errors.Is(err, errTornJournal) {
			t.Fatalf("cut at %d: whole %d, error %v", n, whole, err)
		}
	}
}

// A flipped bit ends the replay at its record: nothing wrong comes out.
func TestJournalFlippedBit(t *testing.T) {
	good := sampleJournal()
	for i := range len(good) * 8 {
		b := slices.Clone(good)
		b[i/8] ^= 1 << (i % 8)
		var r recorder
		if _, err := replayJournal(b, &r); err == nil {
			t.Fatalf("bit %d flipped and not seen", i)
		}
		if !slices.Equal(r.got, sampleReplay[:len(r.got)]) {
			t.Fatalf("bit %d flipped: got %q", i, r.got)
		}
	}
}

func FuzzJournal(f *testing.F) {
	f.Add(sampleJournal())
	f.Add([]byte(journalMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again recorder
		whole, err := replayJournal(b, &r)
		if whole > len(b) || (err == nil) != (whole == len(b) && whole > 0) {
			t.Fatalf("whole %d of %d, error %v", whole, len(b), err)
		}
		if whole == 0 {
			return
		}
		if _, err := replayJournal(b[:whole], &again); err != nil {
			t.Fatalf("the whole part: %v", err)
		}
		if !slices.Equal(r.got, again.got) {
			t.Fatalf("the whole part replays %q, all %q", again.got, r.got)
		}
	})
}
