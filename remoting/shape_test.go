package remoting

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// taught is a Command that has decoded header until it knows its shape.
func taught(t *testing.T, header string) *Command {
	t.Helper()
	c := new(Command)
	for range 2 * shapePatience {
		if err := Decode(frameOf(header, "b"), c); err != nil {
			t.Fatalf("%q: %v", header, err)
		}
	}
	return c
}

// checkForeseen decodes a header with a Command that knows another of its
// length, and by the plain road.
func checkForeseen(t *testing.T, c *Command, header string) {
	t.Helper()
	var general Command
	frame := frameOf(header, "b")
	err, errGeneral := Decode(frame, c), DecodeGeneral(frame, &general)
	if (err == nil) != (errGeneral == nil) {
		t.Fatalf("%q: Decode: %v, DecodeGeneral: %v", frame, err, errGeneral)
	}
	if err == nil && !bytes.Equal(Append(nil, &general), Append(nil, c)) {
		if d := cmp.Diff(general, *c, sameCommand...); d != "" {
			t.Fatalf("%q: general (-) and foreseeing (+) decoder differ:\n%s", frame, d)
		}
	}
}

// TestForeseenIsTaken: the headers clients write are learnt.
func TestForeseenIsTaken(t *testing.T) {
	for _, h := range []string{java53Send, java49Send, goSend, javaPull, javaHeartbeat} {
		c := taught(t, h)
		c.Reset()
		if !c.foreseen([]byte(h)) {
			t.Errorf("not foreseen: %s", h)
		}
	}
}

// TestForeseen replaces each byte of headers by each other one: whatever that
// makes of them, it is read as by the plain road.
func TestForeseen(t *testing.T) {
	for _, h := range append([]string{java53Send, goSend, javaPull, `{"code":1,"extFields":{},"opaque":7}`,
		`{"code":1,"extFields":{"a":"\u00e9\"x","b":"é€"},"flag":0,"opaque":-7,"version":3}`,
		` { "opaque" : 12 , "extFields" : { "a" : "b" , "c" : "d\u0001e" } , "code" : 5 } `}, oddHeaders...) {
		var probe Command
		if Decode(frameOf(h, "b"), &probe) != nil {
			continue
		}
		c := taught(t, h)
		for i := range h {
			for _, b := range []byte("09-x\"\\\x00\x1f \x7f\x80\xc3,:{}") {
				checkForeseen(t, c, h[:i]+string([]byte{b})+h[i+1:])
			}
		}
		checkForeseen(t, c, h)
	}
}

// FuzzForeseen lets one Command read any two headers in turn, and a mixture of
// them.
func FuzzForeseen(f *testing.F) {
	f.Add(java53Send, strings.Replace(java53Send, `"opaque":17`, `"opaque":18`, 1), uint16(300))
	f.Add(javaPull, strings.Replace(javaPull, "0", "1", 3), uint16(10))
	f.Add(`{"opaque":1,"extFields":{"a":"xx"}}`, `{"opaque":1,"extFields":{"a":"\n"}}`, uint16(3))
	f.Fuzz(func(t *testing.T, a, b string, cut uint16) {
		var c Command
		if Decode(frameOf(a, "b"), &c) != nil {
			return
		}
		c = *taught(t, a)
		checkForeseen(t, &c, a)
		checkForeseen(t, &c, b)
		if n := min(int(cut), len(a), len(b)); len(a) == len(b) {
			checkForeseen(t, &c, a[:n]+b[n:])
			checkForeseen(t, &c, b[:n]+a[n:])
		}
		checkForeseen(t, &c, a)
	})
}

// TestManyShapes: more headers of one length than there are places.
func TestManyShapes(t *testing.T) {
	var c Command
	for i := range 1000 {
		h := strings.Replace(java53Send, `"b":"`, `"b":"`+strings.Repeat(string(rune('A'+i%26)), i%3*shapesKept), 1)
		checkForeseen(t, &c, h)
	}
	if long := `{"opaque":1,"extFields":{"a":"` + strings.Repeat("x", shapeBytesMax) + `"}}`; taught(t, long).foreseen([]byte(long)) {
		t.Error("a header over shapeBytesMax was kept")
	}
	frame := frameOf(java53Send, "b")
	known := taught(t, java53Send)
	if n := testing.AllocsPerRun(100, func() { _ = Decode(frame, known) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if own := known.Clone(); own.shapes.kept != nil || !bytes.Equal(own.Body, known.Body) {
		t.Error("a clone shares what its original has learnt")
	}
}
