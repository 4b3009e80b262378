package remoting

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var sameCommand = []cmp.Option{cmpopts.IgnoreUnexported(Command{}), cmpopts.EquateEmpty()}

// checkAgainstGeneral tells both decoders to read a frame and compares.
func checkAgainstGeneral(t *testing.T, frame []byte) {
	t.Helper()
	var fast, general Command
	errFast, errGeneral := Decode(frame, &fast), DecodeGeneral(frame, &general)
	if (errFast == nil) != (errGeneral == nil) {
		t.Fatalf("%q: Decode: %v, DecodeGeneral: %v", frame, errFast, errGeneral)
	}
	if errFast != nil {
		var fe *FrameError
		if !errors.Is(errFast, ErrHeader) && !errors.As(errFast, &fe) {
			t.Fatalf("%q: error of no family: %v", frame, errFast)
		}
		return
	}
	if d := cmp.Diff(general, fast, sameCommand...); d != "" {
		t.Fatalf("%q: general (-) and hot (+) decoder differ:\n%s", frame, d)
	}
	// Whatever was read can be written and read again, in both serializations.
	for _, s := range []SerializeType{SerializeJSON, SerializeBinary} {
		again := *fast.Clone()
		again.Serialize = s
		var back Command
		if err := Decode(Append(nil, &again), &back); err != nil {
			t.Fatalf("%q: written as %v: %v", frame, s, err)
		}
		again.Serialize = back.Serialize // binary may have fallen back to JSON
		if len(again.Remark) == 0 {
			again.Remark = nil
		}
		if utf8Fields(&again) {
			if d := cmp.Diff(again, back, sameCommand...); d != "" {
				t.Fatalf("%q: written as %v (-) and read again (+):\n%s", frame, s, d)
			}
		}
	}
}

// utf8Fields tells whether JSON can hold all texts of c.
func utf8Fields(c *Command) bool {
	ok := bytes.Equal(bytes.ToValidUTF8(c.Remark, []byte("?")), c.Remark)
	for _, f := range c.Fields {
		ok = ok && bytes.Equal(bytes.ToValidUTF8(f.Key, []byte("?")), f.Key) &&
			bytes.Equal(bytes.ToValidUTF8(f.Value, []byte("?")), f.Value)
	}
	return ok
}

func TestDecodeAgainstGeneral(t *testing.T) {
	for _, f := range corpus() {
		checkAgainstGeneral(t, f)
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range corpus() {
		f.Add(c)
	}
	for _, es := range recorded(f) {
		for _, e := range es[:len(es)/4] { // enough to begin with
			f.Add(e.Request)
			f.Add(e.Response)
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) { checkAgainstGeneral(t, frame) })
}

// FuzzHeader fuzzes the header alone: FuzzDecode spends most of its time on
// wrong lengths.
func FuzzHeader(f *testing.F) {
	for _, h := range append([]string{java53Send, java49Send, goSend, javaPull, javaResponse}, oddHeaders...) {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, header string) { checkAgainstGeneral(t, frameOf(header, "b")) })
}

// TestHotPathIsTaken: headers as clients write them must not need the general
// decoder.
func TestHotPathIsTaken(t *testing.T) {
	for _, h := range []string{java53Send, java49Send, goSend, javaPull, javaHeartbeat, javaResponse} {
		var c Command
		if !scanJSON([]byte(h), &c) {
			t.Errorf("not scanned: %s", h)
		}
	}
}

func TestDecodeSend(t *testing.T) {
	var c Command
	if err := Decode(frameOf(java53Send, "hello"), &c); err != nil {
		t.Fatal(err)
	}
	props, _ := c.Get("i")
	want := strings.NewReplacer(`\u0001`, "\x01", `\u0002`, "\x02").Replace(javaProps)
	if string(props) != want {
		t.Errorf("properties: got %q, want %q", props, want)
	}
	if c.Code != 310 || c.Opaque != 17 || c.Version != 479 || c.Language != LanguageJava || c.Flag != 0 || string(c.Body) != "hello" {
		t.Errorf("got %+v", c)
	}
	own := c.Clone()
	if err := Decode(frameOf(javaPull, ""), &c); err != nil { // overwrites the scratch
		t.Fatal(err)
	}
	if v, _ := own.Get("i"); string(v) != want {
		t.Errorf("a clone's properties changed to %q", v)
	}
	if c.Body != nil {
		t.Errorf("body of a frame without one: %q", c.Body)
	}
}

func TestGetLastWins(t *testing.T) {
	var c Command
	if err := Decode(frameOf(`{"extFields":{"a":"1","a":"2"}}`, ""), &c); err != nil {
		t.Fatal(err)
	}
	if v, ok := c.Get("a"); !ok || string(v) != "2" {
		t.Errorf("got %q, %v, want the last value", v, ok)
	}
	if _, ok := c.Get("b"); ok {
		t.Error("found a field that is not there")
	}
	c.Set("a", "3")
	c.Set("c", "4")
	if c.GetString("a") != "3" || c.GetString("c") != "4" {
		t.Errorf("after Set: %q", c.Fields)
	}
}

func TestDecodeAllocs(t *testing.T) {
	send, long, pull := frameOf(java53Send, "x"), frameOf(goSend, "x"), frameOf(javaPull, "")
	var general Command
	if err := DecodeGeneral(send, &general); err != nil {
		t.Fatal(err)
	}
	general.Serialize = SerializeBinary
	binarySend := Append(nil, &general)
	var c Command
	var sh SendHeader
	var ph PullHeader
	out := make([]byte, 0, 4096)
	fields := []Field{{Key: []byte("queueId"), Value: []byte("1")}, {Key: []byte("msgId"), Value: []byte("7F000001")}}
	decodeSend := func(frame []byte) func() error {
		return func() error {
			if err := Decode(frame, &c); err != nil {
				return err
			}
			return sh.Decode(&c)
		}
	}
	tests := []struct {
		name string
		fn   func() error
	}{
		{"send short", decodeSend(send)},
		{"send long", decodeSend(long)},
		{"send binary", decodeSend(binarySend)},
		{"pull", func() error {
			if err := Decode(pull, &c); err != nil {
				return err
			}
			return ph.Decode(&c)
		}},
		{"reply", func() error {
			out = AppendReply(out[:0], c.ReplyTo(), Success, "a remark", fields, nil)
			return nil
		}},
		{"reply writer", func() error {
			w := BeginReply(out[:0], c.ReplyTo(), Success, "")
			(&SendReply{MsgID: "7F000001", QueueOffset: 7, Region: "DefaultRegion"}).Write(&w)
			(&PullReply{MaxOffset: 9}).Write(&w)
			out = w.End(0)
			return nil
		}},
		{"append", func() error { out = Append(out[:0], &c); return nil }},
	}
	for _, tt := range tests {
		if err := tt.fn(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if n := testing.AllocsPerRun(200, func() { _ = tt.fn() }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", tt.name, n)
		}
	}
}

func BenchmarkDecodeSend(b *testing.B) {
	var frames [4][]byte // as one client's follow each other
	for i := range frames {
		digit := string(rune('0' + i))
		h := strings.NewReplacer("3D1E0000", "3D1E000"+digit, `"opaque":17`, `"opaque":2`+digit, "0123", "012"+digit).Replace(java53Send)
		frames[i] = frameOf(h, strings.Repeat("x", 1024))
	}
	var c Command
	var h SendHeader
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := Decode(frames[i%len(frames)], &c); err != nil {
			b.Fatal(err)
		}
		if err := h.Decode(&c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodePull(b *testing.B) {
	frame := frameOf(javaPull, "")
	var c Command
	var h PullHeader
	b.ReportAllocs()
	for b.Loop() {
		if err := Decode(frame, &c); err != nil {
			b.Fatal(err)
		}
		if err := h.Decode(&c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSendReply(b *testing.B) {
	out := make([]byte, 0, 1024)
	to := ReplyTo{Opaque: 12345}
	r := SendReply{MsgID: "7F00000100002A9F0000000000001234", QueueID: 3, QueueOffset: 123456,
		TransactionID: "C0A8000A1A2B18B4AAC27F5C3D1E0000", Region: "DefaultRegion"}
	b.ReportAllocs()
	for b.Loop() {
		w := BeginReply(out[:0], to, Success, "")
		r.Write(&w)
		out = w.End(0)
	}
}
