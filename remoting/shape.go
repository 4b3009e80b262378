package remoting

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// A client writes nearly the same header again and again: what differs are some
// digits of a time, an opaque, a queue, a message's key. So a Command that is
// used again keeps the headers it has seen, with where their parts stand, and a
// header that differs from one of the same length only within values is not
// scanned: its parts stand at the same places. Any doubt leads back to the
// scanner.

const (
	// shapesKept is how many headers a Command keeps, each at the place its
	// length gives.
	shapesKept = 16
	// shapeBytesMax is the longest header that is kept.
	shapeBytesMax = 2048
	// shapePatience is after how many headers that were not as foreseen a place
	// is given to another: clients of many topics would else cost a lesson each.
	shapePatience = 8
)

// A shape is one header and where its parts stand. All positions are in bytes of
// the header, so that a header is at most shapeBytesMax long.
type shape struct {
	missed uint8  // headers of this place's length that were not as foreseen, since the last lesson or hit
	header []byte // empty: nothing learnt
	may    []byte // 1 where a byte may be another plain one, else 0

	fixed    Command // code, language, version, flag, remark, as they are in header
	opaque   span
	fields   []shapeField
	escapes  []shapeEscape // of all values, in the order they stand
	unescape int           // bytes of scratch that the escaped values need
}

type span struct{ from, to uint16 }

func (s span) of(b []byte) []byte { return b[s.from:s.to:s.to] }

type shapeField struct {
	key, value span
	escapes    uint16 // so many of shape.escapes belong to the value
}

// A shapeEscape stands for one byte.
type shapeEscape struct {
	at, to uint16
	is     byte
}

// shapes is what a Command has learnt.
type shapes struct {
	missed uint8 // headers before anything was kept
	kept   *[shapesKept]shape
}

// foreseen decodes a header that is as one seen before. False leaves c as Reset
// has made it, but for its scratch.
func (c *Command) foreseen(h []byte) bool {
	if c.shapes.kept == nil {
		return false
	}
	s := &c.shapes.kept[len(h)%shapesKept]
	if len(s.header) != len(h) || !s.like(h) {
		return false
	}
	n, ok := jsonInt32(s.opaque.of(h))
	if !ok {
		return false
	}
	s.missed = 0
	c.Code, c.Language, c.Version, c.Flag = s.fixed.Code, s.fixed.Language, s.fixed.Version, s.fixed.Flag
	c.Remark, c.Opaque = s.fixed.Remark, n
	c.Fields, c.scratch = s.read(h, c.Fields, c.scratch)
	return true
}

// like tells whether h differs from the shape's header only where it may.
func (s *shape) like(h []byte) bool {
	t, may := s.header[:len(h)], s.may[:len(h)]
	i := 0
	for ; len(h)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(h[i:])
		x := w ^ binary.LittleEndian.Uint64(t[i:])
		if x == 0 {
			continue
		}
		// ff where a byte differs: the low seven bits carry into the eighth.
		differs := ((x&^highs + ^uint64(highs)) | x) & highs >> 7 * 0xff
		if differs&^(binary.LittleEndian.Uint64(may[i:])*0xff) != 0 {
			return false
		}
		if special(w&differs|ones*'0'&^differs) != 0 {
			return false
		}
	}
	for ; i < len(h); i++ {
		if b := h[i]; b != t[i] && (may[i] == 0 || b < 0x20 || b >= utf8.RuneSelf || b == '"' || b == '\\') {
			return false
		}
	}
	return true
}

// read gives the fields of a header that is like the shape's.
func (s *shape) read(h []byte, fields []Field, scratch []byte) ([]Field, []byte) {
	if cap(scratch) < s.unescape {
		scratch = make([]byte, 0, 2*s.unescape) // at once: fields alias it
	}
	escapes := s.escapes
	for i := range s.fields {
		f := &s.fields[i]
		v := f.value.of(h)
		if f.escapes > 0 {
			at, from := len(scratch), f.value.from
			for _, e := range escapes[:f.escapes] {
				scratch = append(append(scratch, h[from:e.at]...), e.is)
				from = e.to
			}
			scratch = append(scratch, h[from:f.value.to]...)
			escapes = escapes[f.escapes:]
			v = scratch[at:len(scratch):len(scratch)]
		}
		fields = append(fields, Field{Key: f.key.of(h), Value: v})
	}
	return fields, scratch
}

// learn takes note of a header that the scanner has decoded into c.
func (c *Command) learn(h []byte) {
	if len(h) > shapeBytesMax {
		return
	}
	missed := &c.shapes.missed
	if c.shapes.kept != nil {
		missed = &c.shapes.kept[len(h)%shapesKept].missed
	}
	if *missed++; *missed < shapePatience {
		return
	}
	*missed = 0
	if c.shapes.kept == nil {
		c.shapes.kept = new([shapesKept]shape)
	}
	c.shapes.kept[len(h)%shapesKept].study(h, c)
}

// study makes s the shape of h, which was decoded into c; or leaves it empty.
func (s *shape) study(h []byte, c *Command) {
	*s = shape{header: s.header[:0], may: s.may[:0], fields: s.fields[:0], escapes: s.escapes[:0]}
	scan := scanner{b: h, c: new(Command)}
	if !s.studyMembers(&scan) || scan.i != len(h) || s.opaque.to == 0 || len(s.fields) != len(c.Fields) {
		return
	}
	s.fixed = Command{Code: c.Code, Language: c.Language, Version: c.Version, Flag: c.Flag}
	if c.Remark != nil {
		s.fixed.Remark = []byte{} // Go's client writes one
	}
	s.mark(h)
	s.header = append(s.header, h...)
}

// studyMembers walks the header as scanJSON does; false where it can't be
// foreseen.
func (s *shape) studyMembers(scan *scanner) bool {
	seenExt := false
	for scan.skip('{'); ; scan.skip(',') { // scanJSON has seen that they are there
		scan.space()
		key, ok := scan.key()
		from := scan.i
		switch {
		case !ok:
			return false
		case string(key) == "opaque":
			if _, ok := scan.int32(); !ok || s.opaque.to > 0 {
				return false
			}
			s.opaque = span{uint16(from), uint16(scan.i)}
		case string(key) == "extFields":
			if !s.studyFields(scan) {
				return false
			}
		default:
			if !scan.member(key, &seenExt) || len(scan.c.Remark) > 0 {
				return false
			}
		}
		scan.space()
		if scan.skip('}') {
			return true
		}
	}
}

// studyFields notes where the extFields stand.
func (s *shape) studyFields(scan *scanner) bool {
	if !scan.skip('{') {
		return false
	}
	for {
		scan.space()
		if scan.skip('}') {
			return len(s.fields) == 0
		}
		keyFrom := scan.i + 1
		key, ok := scan.fieldKey()
		f := shapeField{key: span{uint16(keyFrom), uint16(keyFrom + len(key))}}
		if !ok || !bytes.Equal(f.key.of(scan.b[:min(len(scan.b), keyFrom+len(key))]), key) { // an escaped key
			return false
		}
		from := scan.i
		if _, ok := scan.text(); !ok {
			return false
		}
		f.value = span{uint16(from), uint16(scan.i - 1)}
		if !s.studyEscapes(scan, &f) {
			return false
		}
		s.fields = append(s.fields, f)
		scan.space()
		if !scan.skip(',') {
			return scan.skip('}')
		}
	}
}

// studyEscapes notes the escapes of a value; false where one is no single byte.
func (s *shape) studyEscapes(scan *scanner, f *shapeField) bool {
	inner := scanner{b: scan.b[:f.value.to], i: int(f.value.from), c: scan.c}
	for ; inner.i < len(inner.b); inner.i++ {
		at := bytes.IndexByte(inner.b[inner.i:], '\\')
		if at < 0 {
			break
		}
		inner.i += at
		from := inner.i
		r, ok := inner.escape()
		if !ok || r >= utf8.RuneSelf {
			return false
		}
		s.escapes = append(s.escapes, shapeEscape{uint16(from), uint16(inner.i), byte(r)})
		f.escapes++
		inner.i--
	}
	if f.escapes > 0 {
		s.unescape += int(f.value.to - f.value.from)
	}
	return true
}

// mark says where h may differ: the plain bytes of values, and the opaque.
func (s *shape) mark(h []byte) {
	s.may = append(s.may, make([]byte, len(h))...)
	allow := func(v span) {
		for i := v.from; i < v.to; i++ {
			if h[i] < utf8.RuneSelf { // a part of a longer character may not be replaced
				s.may[i] = 1
			}
		}
	}
	allow(s.opaque)
	for _, f := range s.fields {
		allow(f.value)
	}
	for _, e := range s.escapes {
		clear(s.may[e.at:e.to])
	}
}

// jsonInt32 reads an integer as JSON has it, and nothing else.
func jsonInt32(b []byte) (int32, bool) {
	s := scanner{b: b}
	n, ok := s.int32()
	return n, ok && s.i == len(b)
}
