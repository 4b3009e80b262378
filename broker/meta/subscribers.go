package meta

import (
	"encoding/binary"
	"fmt"
)

// A SubscriberKey is a client in a consumer group.
type SubscriberKey struct{ Group, ClientID string }

// A Subscriber is what a client has said of its subscriptions, by the
// fingerprint with which its later heartbeats leave them out (heartbeat V2).
type Subscriber struct {
	Fingerprint int32
	Data        string // a remoting.ConsumerData as JSON, at most SubscriberBytesMax
}

// SubscriberBytesMax bounds a Subscriber's data.
const SubscriberBytesMax = recordBytesMax / 2

// Subscribers remember what clients have subscribed that say it once: after a
// restart of the broker, or on another connection, they only name the
// fingerprint, and would not say it again before their next heartbeat.
type Subscribers = notes[SubscriberKey, Subscriber]

// appendSubscriber appends a subscriber's record; no data is one that is gone.
func appendSubscriber(dst []byte, key SubscriberKey, s Subscriber) []byte {
	dst, start := beginRecord(dst, recordSubscriber)
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.Fingerprint))
	dst = appendText(appendText(dst, key.Group), key.ClientID)
	return endRecord(append(dst, s.Data...), start)
}

func replaySubscriber(b []byte, r replay) error {
	t := texts{b: b}
	s := Subscriber{Fingerprint: t.int32()}
	key := SubscriberKey{Group: t.text(), ClientID: t.text()}
	if t.short {
		return fmt.Errorf("subscriber of %d bytes, want a fingerprint, two texts and its data", len(b))
	}
	if s.Data = string(t.b); s.Data == "" {
		s = Subscriber{}
	}
	r.subscriber(key, s)
	return nil
}
