package remoting

import (
	"bytes"
	"encoding/base64"
	"errors"
	"unicode"
)

// RecallHeader is RECALL_MESSAGE (370).
type RecallHeader struct {
	ProducerGroup string // optional
	Topic         string
	RecallHandle  string // of the send's answer
}

// Decode reads the header; the error is a *FieldError.
func (h *RecallHeader) Decode(c *Command) error {
	r := reader{c: c}
	*h = RecallHeader{ProducerGroup: r.opt("producerGroup"), Topic: r.need("topic"), RecallHandle: r.need("recallHandle")}
	return r.err
}

// Command returns the request.
func (h *RecallHeader) Command() *Command {
	var b builder
	b.text("producerGroup", h.ProducerGroup)
	b.text("topic", h.Topic)
	b.text("recallHandle", h.RecallHandle)
	return b.command(ReqRecallMessage)
}

// A RecallHandle names a message that can be taken back: on the wire it is its
// words, "v1 topic brokerName millis uniqKey", in base64 of the URL alphabet.
type RecallHandle struct {
	Topic      string
	BrokerName string
	Millis     string // when the message is due, Unix milliseconds, as its broker wrote it
	UniqKey    string
}

// ErrRecallHandle is returned for a handle that isn't one. The text is Apache's.
var ErrRecallHandle = errors.New("recall handle is invalid")

const recallVersion = "v1"

// String is the handle as clients carry it.
func (h *RecallHandle) String() string {
	return base64.URLEncoding.EncodeToString([]byte(recallVersion + " " + h.Topic + " " + h.BrokerName + " " + h.Millis + " " + h.UniqKey))
}

// ParseRecallHandle reads a handle; the error is ErrRecallHandle. (As
// RecallMessageHandle#decodeHandle, 5.3: padding may be missing, words behind
// the fifth are ignored. Its parts become properties of a message, so bytes that
// separate those are refused here.)
func ParseRecallHandle(s string) (*RecallHandle, error) {
	text := bytes.TrimRight([]byte(s), "=")
	if pad := len(s) - len(text); pad > 2 || pad > 0 && len(s)%4 != 0 {
		return nil, ErrRecallHandle
	}
	raw := make([]byte, base64.RawURLEncoding.DecodedLen(len(text)))
	n, err := base64.RawURLEncoding.Decode(raw, text)
	words := bytes.Split(raw[:n], []byte(" "))
	if err != nil || bytes.IndexFunc(raw[:n], unicode.IsControl) >= 0 || bytes.ContainsAny(text, "\r\n") || len(words) < 5 || string(words[0]) != recallVersion {
		return nil, ErrRecallHandle
	}
	return &RecallHandle{Topic: string(words[1]), BrokerName: string(words[2]), Millis: string(words[3]), UniqKey: string(words[4])}, nil
}
