package engine

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/ringmq/ringmq/internal/vfs"
)

// pinnedMark is the bytes of a slot: they must not change without a new magic.
const pinnedMark = "52494e474d514d310000000000000007000000000000100000000000000000f80000010811223344" +
	"0000019122334455000000000000100000000000000000030000000000000001000000000000000200000000000000030000000000000004" +
	"0000000000000005000000000000000b000000000000000c000000000000000d000000000000000e000000000000000f"

func someMark() mark {
	before := checkpoint{1, 2, 3, 4, 5}
	after := checkpoint{11, 12, 13, 14, 15}
	return mark{point: point{end: 0x1000, recAt: 0xf8, recSize: 0x108, storeMillis: 0x19122334455, queues: 3},
		seq: 7, recCRC: 0x11223344, indexEnd: 0x1000, before: before.encode(), after: after.encode()}
}

func TestMarkBytes(t *testing.T) {
	m := someMark()
	b := m.encode()
	if got := hex.EncodeToString(b[:144]); got != pinnedMark {
		t.Errorf("got\n%s, want\n%s", got, pinnedMark)
	}
	var back mark
	if !back.decode(b[:]) || back != m {
		t.Errorf("came back as %+v", back)
	}
	for i := range b {
		c := b
		c[i] ^= 0x10
		if back.decode(c[:]) {
			t.Errorf("byte %d changed, and still valid", i)
		}
	}
}

func FuzzMark(f *testing.F) {
	m := someMark()
	b := m.encode()
	f.Add(b[:])
	f.Add([]byte(markMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m mark
		if m.decode(b) {
			if again := m.encode(); !bytes.Equal(again[:], b[:markUsed]) {
				t.Errorf("%x came back as %x", b[:markUsed], again)
			}
		}
	})
}

// TestCheckpointBytes decodes what Apache's 5.3.3 wrote after 200 messages.
func TestCheckpointBytes(t *testing.T) {
	raw, err := hex.DecodeString("000001a22bfc261e000001a22bfc262b" + strings.Repeat("00", 24))
	if err != nil {
		t.Fatal(err)
	}
	var c checkpoint
	c.decode((*[checkpointUsed]byte)(raw))
	if want := (checkpoint{PhysicMillis: 1796034274846, LogicsMillis: 1796034274859}); c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	if b := c.encode(); !bytes.Equal(b[:], raw) {
		t.Errorf("came back as %x", b)
	}
}

// TestMarkSlots tears each of the writes of an advance: the mark before it, or
// the new one, is there.
func TestMarkSlots(t *testing.T) {
	mem := vfs.NewMem()
	if err := vfs.MkdirAllSync(mem, "/store"); err != nil {
		t.Fatal(err)
	}
	m, err := openMark(mem, "/store")
	if err != nil || m.ok {
		t.Fatalf("%v, found a mark: %v", err, m.ok)
	}
	for i := range int64(5) {
		p := point{end: 100, recAt: -1, queues: i + 1}
		if err := m.advance(p, 0, 0, checkpoint{PhysicMillis: i + 1}); err != nil {
			t.Fatal(err)
		}
		clone := mem.CrashClone(vfs.CrashPolicy{}, nil)
		again, err := openMark(clone, "/store")
		if err != nil || !again.ok || !again.ours() || again.last.point != p || again.cp.PhysicMillis != i+1 {
			t.Errorf("advance %d: %v, %+v", i, err, again.last)
		}
		// Without its newest slot the one before counts, and its checkpoint is
		// the one from before this advance: another broker's, as it were.
		if _, err := again.slots.f.WriteAt(make([]byte, markUsed), int64(again.last.seq%2)*markSlotBytes); err != nil {
			t.Fatal(err)
		}
		if err := again.close(); err != nil {
			t.Fatal(err)
		}
		older, err := openMark(clone, "/store")
		if err != nil || older.ok != (i > 0) || i > 0 && (older.last.queues != i || older.ours()) {
			t.Errorf("advance %d, newest slot torn: %v, %+v", i, err, older.last)
		}
		if err := older.close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
}
