package meta

import (
	"encoding/binary"
	"sync"
)

// notes are small facts about clients that should outlive the broker's process:
// they are in the journal alone, and a Java broker that had the store meanwhile
// has forgotten them.
//
// Any goroutine may call; none blocks on the disk. A change is written to the
// journal at once by the keeper's goroutine, and nobody waits for it: one made in
// the very moment of a kill may be lost. The zero value of V is no note.
type notes[K, V comparable] struct {
	mu    sync.Mutex
	byKey map[K]V
	dirty map[K]bool

	record func(dst []byte, key K, value V) []byte // appends the record of a note
	keeper *keeper
}

func newNotes[K, V comparable](k *keeper, record func(dst []byte, key K, value V) []byte) *notes[K, V] {
	return &notes[K, V]{byKey: map[K]V{}, dirty: map[K]bool{}, record: record, keeper: k}
}

// Set replaces the note of a key; the zero value ends it.
func (n *notes[K, V]) Set(key K, value V) {
	n.mu.Lock()
	same := n.byKey[key] == value
	if !same {
		n.load(key, value)
		n.dirty[key] = true
	}
	n.mu.Unlock()
	if !same {
		n.keeper.kickUrgent()
	}
}

// Get finds the note of a key; the zero value when there is none.
func (n *notes[K, V]) Get(key K) V {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byKey[key]
}

// Each calls fn with every note, in no order. fn must not call back.
func (n *notes[K, V]) Each(fn func(key K, value V)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, value := range n.byKey {
		fn(key, value)
	}
}

func (n *notes[K, V]) load(key K, value V) {
	var none V
	if value == none {
		delete(n.byKey, key)
	} else {
		n.byKey[key] = value
	}
}

// drain appends what has changed to dst.
func (n *notes[K, V]) drain(dst []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.dirty {
		dst = n.record(dst, key, n.byKey[key])
	}
	clear(n.dirty)
	return dst
}

// appendAll appends all notes to dst, for a new journal.
func (n *notes[K, V]) appendAll(dst []byte) []byte {
	n.Each(func(key K, value V) { dst = n.record(dst, key, value) })
	return dst
}

func appendText(dst []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(text))), text...)
}

// texts reads counted texts and numbers from the front of b.
type texts struct {
	b     []byte
	short bool // b was too short for something
}

func (t *texts) take(n int) []byte {
	if t.short = t.short || len(t.b) < n; t.short {
		return make([]byte, n)
	}
	out := t.b[:n]
	t.b = t.b[n:]
	return out
}

func (t *texts) int32() int32 { return int32(binary.BigEndian.Uint32(t.take(4))) }

func (t *texts) text() string { return string(t.take(int(binary.BigEndian.Uint16(t.take(2))))) }
