package meta

import (
	"encoding/binary"
	"fmt"

	"github.com/ringmq/ringmq/remoting"
)

// A LockKey is a queue that one client of a group may hold.
type LockKey struct {
	Group string
	Queue remoting.MessageQueue
}

// LockBytesMax bounds each text of a lock: client id and names.
const LockBytesMax = 1 << 10

// Locks remember which client holds which queue of an orderly group, so that
// a broker that was killed doesn't give a queue away while its holder still
// consumes. When a lock ends is not their business.
type Locks = notes[LockKey, string]

// appendLock appends a lock's record; no client is a lock that has ended.
func appendLock(dst []byte, key LockKey, clientID string) []byte {
	dst, start := beginRecord(dst, recordLock)
	dst = binary.BigEndian.AppendUint32(dst, uint32(key.Queue.QueueID))
	for _, text := range []string{key.Group, key.Queue.Topic, key.Queue.BrokerName, clientID} {
		dst = appendText(dst, text)
	}
	return endRecord(dst, start)
}

func replayLock(b []byte, r replay) error {
	t := texts{b: b}
	id := t.int32()
	key := LockKey{Group: t.text(), Queue: remoting.MessageQueue{Topic: t.text(), BrokerName: t.text(), QueueID: id}}
	clientID := t.text()
	if t.short || len(t.b) > 0 {
		return fmt.Errorf("lock of %d bytes, want a queueId and four texts", len(b))
	}
	r.lock(key, clientID)
	return nil
}
