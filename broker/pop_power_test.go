package broker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// Power cuts at the moments where the log, the pop journal, the offsets and the
// tables, each with its own syncs, keep more or less than the others.

// openPopGroup is openPopBroker with topic T and group g, and m0 in it, durable.
func openPopGroup(t *testing.T, fs vfs.FS, flush string) *Broker {
	t.Helper()
	b := openPopBroker(t, fs, flush)
	b.topics.PutAbsent(meta.NewTopic("T", 1, 6))
	if _, err := b.groups.GetOrCreate("g"); err != nil {
		t.Fatal(err)
	}
	if err := b.tables.Save(); err != nil {
		t.Fatal(err)
	}
	storeMessage(t, b, "T", 0, "m0")
	waitFor(t, "m0 is durable", func() bool { m := b.store.Marks(); return m.Durable == m.Written })
	return b
}

// popOf pops until m0 comes as often delivered as said, letting go of it before.
func (w *popWorld) popOf(times int32) (got taken) {
	w.Helper()
	waitFor(w.T, fmt.Sprint("m0 is popped, delivered ", times, " times before"), func() bool {
		for _, m := range w.pop(32, 1) {
			if m.times >= times {
				got = m
				return true
			}
		}
		return false
	})
	return got
}

// loseLog gives what a power cut leaves of the moment when m0 was popped of its
// retry topic and acknowledged, before its record there was durable; durable
// makes durable what shall be of the rest.
func loseLog(t *testing.T, durable func(b *Broker) error) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	b := openPopGroup(t, fault, "ASYNC_FLUSH")
	fault.Add(vfs.Rule{Ops: vfs.OpSync, Path: "commitlog", Delay: 2 * time.Second})
	w := newPopWorld(t, b)
	m := w.popOf(1)
	acked := w.ack(m)
	w.written()
	err := durable(b)
	crashed := mem.CrashClone(vfs.CrashPolicy{}, nil)
	marks := b.store.Marks()
	fault.Clear()
	closePopBroker(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if !acked || marks.Durable == marks.Written {
		t.Fatalf("acknowledged %v with the log durable to %d of %d: want it before the record is", acked, marks.Durable, marks.Written)
	}
	return crashed
}

// The pop journal knew that a message of the retry topic was done, the log lost
// it. The message is put there again; a second power cut keeps it, and takes
// what was not synced since the first: the message is popped all the same.
func TestPopTwoPowerCuts(t *testing.T) {
	mem := loseLog(t, func(b *Broker) error { return b.pops.Sync() })
	b := openPopBroker(t, mem, "ASYNC_FLUSH")
	waitFor(t, "m0 is on its retry topic again", func() bool {
		m := b.store.Marks()
		return b.pops.Flying() == 0 && m.Durable == m.Written
	})
	crashed := mem.CrashClone(vfs.CrashPolicy{}, nil)
	closePopBroker(t, b)
	b = openPopBroker(t, crashed, "ASYNC_FLUSH")
	defer closePopBroker(t, b)
	newPopWorld(t, b).popOf(1)
}

// The offsets knew it, the pop journal had not even heard of the queue.
func TestPopOffsetsBeyondTheLog(t *testing.T) {
	mem := loseLog(t, func(b *Broker) error { return b.tables.Fold() })
	b := openPopBroker(t, mem, "ASYNC_FLUSH")
	defer closePopBroker(t, b)
	if at, _ := b.offsets.Get([]byte("%RETRY%g_T"), []byte("g"), 0); at != 0 {
		t.Errorf("committed of a queue that lost its messages: got %d, want 0", at)
	}
	newPopWorld(t, b).popOf(1)
}

// A message counts as put on a retry topic only where that topic is saved too.
func TestPopRetryTopicIsSaved(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	b := openPopGroup(t, fault, "SYNC_FLUSH")
	fault.Add(vfs.Rule{Ops: vfs.OpSync, Path: "topics.json", Delay: 500 * time.Millisecond})
	w := newPopWorld(t, b)
	if len(w.pop(1, 1)) != 1 {
		t.Fatal("not popped")
	}
	waitFor(t, "m0 is on its retry topic", func() bool { return b.pops.Flying() == 0 })
	if err := b.pops.Sync(); err != nil {
		t.Fatal(err)
	}
	crashed := mem.CrashClone(vfs.CrashPolicy{}, nil)
	fault.Clear()
	closePopBroker(t, b)
	b = openPopBroker(t, crashed, "SYNC_FLUSH")
	defer closePopBroker(t, b)
	newPopWorld(t, b).popOf(1)
}

// A deleted topic's pops and offsets don't come back after a power cut, for a
// new topic of that name.
func TestPopOfATopicMadeAgain(t *testing.T) {
	mem := vfs.NewMem()
	b := openPopGroup(t, mem, "SYNC_FLUSH")
	w := newPopWorld(t, b)
	ms := w.pop(32, 60_000)
	if len(ms) != 1 || !w.ack(ms[0]) {
		t.Fatal("not popped")
	}
	if err := errors.Join(b.pops.Sync(), b.tables.Fold()); err != nil {
		t.Fatal(err)
	}
	cmd := remoting.NewRequest(int32(remoting.ReqDeleteTopicInBroker))
	cmd.Set("topic", "T")
	if _, err := handleDeleteTopic(b, &request{cmd: cmd}); err != nil {
		t.Fatal(err)
	}
	b.topics.PutAbsent(meta.NewTopic("T", 1, 6))
	if err := b.tables.Save(); err != nil {
		t.Fatal(err)
	}
	storeMessage(t, b, "T", 0, "m1")
	crashed := mem.CrashClone(vfs.CrashPolicy{}, nil)
	closePopBroker(t, b)
	b = openPopBroker(t, crashed, "SYNC_FLUSH")
	defer closePopBroker(t, b)
	if ms := newPopWorld(t, b).pop(32, 60_000); len(ms) != 1 || ms[0].body != "m1" {
		t.Errorf("popped %v, want m1", ms)
	}
}
