package meta

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/ringmq/ringmq/remoting"
)

// A LockKey is a queue that one client of a group may hold.
type LockKey struct {
	Group string
	Queue remoting.MessageQueue
}

// LockBytesMax bounds each text of a lock: client id and names.
const LockBytesMax = 1 << 10

// Locks remembers which client holds which queue of an orderly group, so that
// a broker that was killed doesn't give a queue away while its holder still
// consumes. When a lock ends is not its business. They are in the journal alone:
// a Java broker forgets them.
//
// Any goroutine may call; none blocks on the disk. A change is written to the
// journal at once by the keeper's goroutine, and nobody waits for it: a lock
// granted in the very moment of a kill may be forgotten.
type Locks struct {
	mu      sync.Mutex
	holders map[LockKey]string
	dirty   map[LockKey]bool

	keeper *keeper
}

// Set says who holds a queue from now on; "" is nobody.
func (l *Locks) Set(key LockKey, clientID string) {
	l.mu.Lock()
	l.load(key, clientID)
	l.dirty[key] = true
	l.mu.Unlock()
	l.keeper.kickUrgent()
}

func (l *Locks) load(key LockKey, clientID string) {
	if clientID == "" {
		delete(l.holders, key)
	} else {
		l.holders[key] = clientID
	}
}

// Each calls fn with every lock there is, in no order. fn must not call back.
func (l *Locks) Each(fn func(key LockKey, clientID string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, clientID := range l.holders {
		fn(key, clientID)
	}
}

// drain appends what has changed to dst.
func (l *Locks) drain(dst []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.dirty {
		dst = appendLock(dst, key, l.holders[key])
	}
	clear(l.dirty)
	return dst
}

// appendAll appends all locks to dst, for a new journal.
func (l *Locks) appendAll(dst []byte) []byte {
	l.Each(func(key LockKey, clientID string) { dst = appendLock(dst, key, clientID) })
	return dst
}

func appendLock(dst []byte, key LockKey, clientID string) []byte {
	dst, start := beginRecord(dst, recordLock)
	dst = binary.BigEndian.AppendUint32(dst, uint32(key.Queue.QueueID))
	for _, text := range []string{key.Group, key.Queue.Topic, key.Queue.BrokerName, clientID} {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(text)))
		dst = append(dst, text...)
	}
	return endRecord(dst, start)
}

func replayLock(b []byte, r replay) error {
	size := len(b)
	bad := fmt.Errorf("lock of %d bytes, want a queueId and four texts", size)
	if len(b) < 4 {
		return bad
	}
	id := int32(binary.BigEndian.Uint32(b))
	b = b[4:]
	var texts [4]string
	for i := range texts {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return bad
		}
		n := int(binary.BigEndian.Uint16(b))
		texts[i], b = string(b[2:2+n]), b[2+n:]
	}
	if len(b) > 0 {
		return bad
	}
	r.lock(LockKey{Group: texts[0], Queue: remoting.MessageQueue{Topic: texts[1], BrokerName: texts[2], QueueID: id}}, texts[3])
	return nil
}
