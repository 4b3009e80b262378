package remoting

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// MaxFrameBytes is Apache's limit of a whole frame, its length field included.
const MaxFrameBytes = 16 << 20

// LengthBytes is the size of a frame's length field.
const LengthBytes = 4

// headBytes is everything before the header.
const headBytes = 8

var be = binary.BigEndian

// FrameError says that what came is no frame: the connection is lost. Seen names
// what it looks like.
type FrameError struct {
	Seen string // "HTTP request", "TLS handshake", "frame too large", ...
	Got  int64  // a number that proves it, where there is one
	Want int64
}

func (e *FrameError) Error() string {
	if e.Got == 0 && e.Want == 0 {
		return "remoting: not a frame: " + e.Seen
	}
	return fmt.Sprintf("remoting: not a frame: %s: got %d, want at most %d", e.Seen, e.Got, e.Want)
}

// FrameSize looks at the start of a frame: total is the size of the whole frame,
// the length field included, when ok. Without ok and error more bytes are needed.
// The error is a *FrameError. b may hold more than one frame. It allocates only
// for the error.
func FrameSize(b []byte, limit int) (total int, ok bool, err error) {
	if len(b) < LengthBytes {
		if len(b) > 0 && b[0] != 0 {
			// The length of a legal frame begins with 0 as long as the limit is
			// 16 MiB. TLS and texts are told apart by a few more bytes.
			if seen := foreign(b); seen != "" {
				return 0, false, &FrameError{Seen: seen}
			}
		}
		return 0, false, nil
	}
	n := int64(int32(be.Uint32(b)))
	if n+LengthBytes > int64(limit) || n < LengthBytes {
		if seen := foreign(b); seen != "" {
			return 0, false, &FrameError{Seen: seen}
		}
		if n < LengthBytes {
			return 0, false, &FrameError{Seen: "bad length", Got: n, Want: int64(limit) - LengthBytes}
		}
		return 0, false, &FrameError{Seen: "frame too large", Got: n + LengthBytes, Want: int64(limit)}
	}
	if len(b) >= headBytes {
		if s := b[4]; s > uint8(SerializeBinary) {
			return 0, false, &FrameError{Seen: "unknown serialize type", Got: int64(s), Want: int64(SerializeBinary)}
		}
		if h := headerLen(b); int64(h) > n-4 {
			return 0, false, &FrameError{Seen: "header longer than the frame", Got: int64(h), Want: n - 4}
		}
	}
	return int(n) + LengthBytes, true, nil
}

func headerLen(b []byte) int { return int(be.Uint32(b[4:]) & 0xFFFFFF) }

// foreign names another protocol by its first bytes, "" when none is known.
func foreign(b []byte) string {
	if b[0] == 0x16 && (len(b) < 2 || b[1] == 3) {
		return "TLS handshake"
	}
	for _, p := range foreignTexts {
		n := min(len(b), len(p.text))
		if n >= 3 && bytes.Equal(b[:n], []byte(p.text[:n])) {
			return p.seen
		}
	}
	return ""
}

var foreignTexts = []struct{ text, seen string }{
	{"PRI * HTTP/2", "HTTP/2 preface"},
	{"GET ", "HTTP request"},
	{"HEAD ", "HTTP request"},
	{"POST ", "HTTP request"},
	{"PUT ", "HTTP request"},
	{"PATCH ", "HTTP request"},
	{"DELETE ", "HTTP request"},
	{"OPTIONS ", "HTTP request"},
	{"CONNECT ", "HTTP request"},
	{"PROXY ", "PROXY protocol header"},
	{"\r\n\r\n\x00\r\nQUIT\n", "PROXY protocol header"},
	{"SSH-", "SSH banner"},
	{"MQTT", "MQTT connect"},
	{"AMQP", "AMQP header"},
}
