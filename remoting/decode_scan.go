package remoting

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// scanner walks one JSON header. Every method returns ok=false for what it does
// not understand, right or wrong: the general decoder then looks at the header
// from its start.
type scanner struct {
	b []byte
	i int
	c *Command
}

// scanJSON reads a header of the shape clients write: one object of integers,
// strings, nulls and one extFields object of strings. It returns false, with c in
// no defined state, for anything else.
func scanJSON(header []byte, c *Command) bool {
	s := scanner{b: header, c: c}
	s.space()
	if !s.skip('{') {
		return false
	}
	s.space()
	if s.skip('}') {
		s.space()
		return s.i == len(s.b)
	}
	seenExt := false
	for {
		key, ok := s.key()
		if !ok || !s.member(key, &seenExt) {
			return false
		}
		s.space()
		if s.skip(',') {
			s.space()
			continue
		}
		if !s.skip('}') {
			return false
		}
		s.space()
		return s.i == len(s.b)
	}
}

// key reads a string and the colon behind it.
func (s *scanner) key() ([]byte, bool) {
	if !s.skip('"') {
		return nil, false
	}
	k, ok := s.text()
	s.space()
	if !ok || !s.skip(':') {
		return nil, false
	}
	s.space()
	return k, true
}

// member reads the value of one top-level key.
func (s *scanner) member(key []byte, seenExt *bool) (ok bool) {
	c := s.c
	switch string(key) {
	case "code":
		c.Code, ok = s.int32()
	case "flag":
		c.Flag, ok = s.int32()
	case "opaque":
		c.Opaque, ok = s.int32()
	case "version":
		c.Version, ok = s.int32()
	case "language":
		var v []byte
		if !s.skip('"') {
			return false
		}
		v, ok = s.text()
		c.Language = languageOf(v)
	case "remark":
		c.Remark = nil
		if s.skip('n') {
			return s.literal("ull")
		}
		if !s.skip('"') {
			return false
		}
		c.Remark, ok = s.text()
	case "extFields":
		if *seenExt { // which one counts is the general decoder's to say
			return false
		}
		*seenExt = true
		if s.skip('n') {
			return s.literal("ull")
		}
		return s.fields()
	default: // serializeTypeCurrentRPC, and what may come
		if !s.skip('"') {
			return false
		}
		_, ok = s.text()
	}
	return ok
}

// fields reads the extFields object.
func (s *scanner) fields() bool {
	if !s.skip('{') {
		return false
	}
	s.space()
	if s.skip('}') {
		return true
	}
	fields := s.c.Fields
	defer func() { s.c.Fields = fields }()
	for {
		k, ok := s.fieldKey()
		if !ok {
			return false
		}
		v, ok := s.text()
		if !ok {
			return false
		}
		fields = append(fields, Field{Key: k, Value: v})
		if b := s.b[s.i:]; len(b) >= 2 && b[0] == ',' && b[1] == '"' {
			s.i++
			continue
		}
		s.space()
		if s.skip(',') {
			s.space()
			continue
		}
		return s.skip('}')
	}
}

// fieldKey reads a key, its colon and the opening quote of a string value.
func (s *scanner) fieldKey() ([]byte, bool) {
	if b := s.b[s.i:]; len(b) >= 5 && b[0] == '"' && b[2] == '"' && b[3] == ':' && b[4] == '"' && b[1] > '"' && b[1] < utf8.RuneSelf && b[1] != '\\' {
		s.i += 5 // a one-letter key, as sends have them
		return b[1:2:2], true
	}
	k, ok := s.key()
	return k, ok && s.skip('"')
}

// space skips white space: mostly none, so that the look at one byte is inlined.
func (s *scanner) space() {
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return
	}
	s.spaces()
}

//go:noinline
func (s *scanner) spaces() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) skip(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) literal(rest string) bool {
	if len(s.b)-s.i >= len(rest) && string(s.b[s.i:s.i+len(rest)]) == rest {
		s.i += len(rest)
		return true
	}
	return false
}

// int32 reads a JSON integer: no leading zero, fraction or exponent.
func (s *scanner) int32() (int32, bool) {
	from := s.i
	s.skip('-')
	digits := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	if s.i == digits || (s.b[digits] == '0' && s.i > digits+1) {
		return 0, false
	}
	if s.i < len(s.b) {
		switch s.b[s.i] {
		case '.', 'e', 'E':
			return 0, false
		}
	}
	n, ok := parseInt(s.b[from:s.i], 1<<31-1)
	return int32(n), ok
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special returns the highs bit of each byte of w that ends the plain run of a
// JSON string: a quote, a backslash, a control character or non-ASCII. Bytes
// behind the first marked one may be marked wrongly.
func special(w uint64) uint64 {
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w - ones*0x20) | w) & highs
}

// plain advances over ordinary ASCII, eight bytes at a time, to the next byte
// that needs a look, or to the end.
func (s *scanner) plain() {
	for len(s.b)-s.i >= 8 {
		if m := special(binary.LittleEndian.Uint64(s.b[s.i:])); m != 0 {
			s.i += bits.TrailingZeros64(m) >> 3
			return
		}
		s.i += 8
	}
	for s.i < len(s.b) {
		if c := s.b[s.i]; c == '"' || c == '\\' || c < 0x20 || c >= utf8.RuneSelf {
			return
		}
		s.i++
	}
}

// text reads the rest of a string, whose opening quote is behind. The result
// aliases the header, or the scratch if something had to be unescaped.
func (s *scanner) text() ([]byte, bool) {
	// Most keys and values end within eight bytes.
	if i := s.i; len(s.b)-i >= 8 {
		if m := special(binary.LittleEndian.Uint64(s.b[i:])); m != 0 {
			if to := i + bits.TrailingZeros64(m)>>3; s.b[to] == '"' {
				s.i = to + 1
				return s.b[i:to:to], true
			}
		}
	}
	return s.longText()
}

func (s *scanner) longText() ([]byte, bool) {
	from := s.i
	ascii := true
	for {
		s.plain()
		if s.i >= len(s.b) {
			return nil, false
		}
		switch c := s.b[s.i]; {
		case c == '"':
			v := s.b[from:s.i:s.i]
			s.i++
			return v, ascii || utf8.Valid(v)
		case c == '\\':
			return s.unescape(from, ascii)
		case c < 0x20:
			return nil, false
		default:
			ascii = false
			for s.i < len(s.b) && s.b[s.i] >= utf8.RuneSelf {
				s.i++
			}
		}
	}
}

// unescape reads the rest of a string that holds escapes into the scratch; s.i
// is at the first backslash. Surrogates are left to the general decoder.
func (s *scanner) unescape(from int, ascii bool) ([]byte, bool) {
	out := s.c.scratch
	at := len(out)
	out = append(out, s.b[from:s.i]...)
	defer func() { s.c.scratch = out }()
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			v := out[at:len(out):len(out)]
			return v, ascii || utf8.Valid(v)
		case c == '\\':
			r, ok := s.escape()
			if !ok {
				return nil, false
			}
			if r < utf8.RuneSelf {
				out = append(out, byte(r))
			} else {
				out = utf8.AppendRune(out, r)
			}
		case c < 0x20:
			return nil, false
		default:
			run := s.i
			if c >= utf8.RuneSelf {
				ascii = false
				s.i++
			}
			s.plain()
			out = append(out, s.b[run:s.i]...)
		}
	}
	return nil, false
}

// escape reads one escape sequence at s.i.
func (s *scanner) escape() (rune, bool) {
	if len(s.b)-s.i < 2 {
		return 0, false
	}
	c := s.b[s.i+1]
	s.i += 2
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'n':
		return '\n', true
	case 't':
		return '\t', true
	case 'r':
		return '\r', true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'u':
	default:
		return 0, false
	}
	if len(s.b)-s.i < 4 {
		return 0, false
	}
	if h := s.b[s.i : s.i+4]; h[0] == '0' && h[1] == '0' && h[2] == '0' && h[3]-'0' <= 9 {
		s.i += 4 // the separators of a property string
		return rune(h[3] - '0'), true
	}
	var r rune
	for _, c := range s.b[s.i : s.i+4] {
		d := hexValues[c]
		if d < 0 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	s.i += 4
	return r, r < 0xD800 || r > 0xDFFF
}

var hexValues = func() (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for i := range 10 {
		t['0'+i] = int8(i)
	}
	for i := range 6 {
		t['a'+i], t['A'+i] = int8(10+i), int8(10+i)
	}
	return t
}()
