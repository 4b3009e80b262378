package remoting

import "encoding/json"

// relaxDepthMax bounds nesting in RelaxJSON; bodies are a few levels deep.
// relaxKeyDepthMax bounds keys inside keys: each level doubles the escapes.
const (
	relaxDepthMax    = 64
	relaxKeyDepthMax = 2
)

// RelaxJSON turns fastjson's dialect into strict JSON: map keys written without
// quotes ({0:"a"}) are quoted, map keys that are objects ({{"topic":"t"}:1})
// become strings that hold the object's JSON. Strict JSON, and anything it cannot
// make sense of, is returned as it is (the parser behind will complain). The
// result may alias b, which is not changed.
func RelaxJSON(b []byte) []byte {
	if json.Valid(b) {
		return b
	}
	r := relaxer{in: b, out: make([]byte, 0, len(b)+len(b)/8)}
	if !r.value(0) {
		return b
	}
	r.space()
	if r.i != len(r.in) {
		return b
	}
	return r.out
}

type relaxer struct {
	in   []byte
	i    int
	out  []byte
	keys int // keys we are inside of
}

func (r *relaxer) space() {
	for r.i < len(r.in) {
		switch r.in[r.i] {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return
		}
	}
}

// copy copies n bytes to the output.
func (r *relaxer) copy(n int) {
	r.out = append(r.out, r.in[r.i:r.i+n]...)
	r.i += n
}

// next tells whether c stands here and copies it.
func (r *relaxer) next(c byte) bool {
	if r.space(); r.i < len(r.in) && r.in[r.i] == c {
		r.copy(1)
		return true
	}
	return false
}

func (r *relaxer) value(depth int) bool {
	if r.space(); r.i >= len(r.in) || depth > relaxDepthMax {
		return false
	}
	switch r.in[r.i] {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		return r.text()
	}
	return r.bare()
}

func (r *relaxer) object(depth int) bool {
	r.copy(1)
	if r.next('}') {
		return true
	}
	for {
		if !r.key(depth) || !r.next(':') || !r.value(depth+1) {
			return false
		}
		if r.next(',') {
			continue
		}
		return r.next('}')
	}
}

// key copies a key, as a string whatever it was.
func (r *relaxer) key(depth int) bool {
	if r.space(); r.i >= len(r.in) {
		return false
	}
	if r.in[r.i] == '"' {
		return r.text()
	}
	if r.keys++; r.keys > relaxKeyDepthMax {
		return false
	}
	at := len(r.out)
	if !r.value(depth + 1) {
		return false
	}
	r.keys--
	key := string(r.out[at:])
	r.out = AppendJSONString(r.out[:at], key)
	return true
}

func (r *relaxer) array(depth int) bool {
	r.copy(1)
	if r.next(']') {
		return true
	}
	for {
		if !r.value(depth + 1) {
			return false
		}
		if r.next(',') {
			continue
		}
		return r.next(']')
	}
}

// text copies a quoted string.
func (r *relaxer) text() bool {
	for j := r.i + 1; j < len(r.in); j++ {
		switch r.in[j] {
		case '\\':
			j++
		case '"':
			r.copy(j + 1 - r.i)
			return true
		}
	}
	return false
}

// bare copies a number or literal.
func (r *relaxer) bare() bool {
	from := r.i
	for j := r.i; ; j++ {
		if j < len(r.in) {
			c := r.in[j]
			if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.' || c == '_' || c == '@' || c == '$' || c == '%' {
				continue
			}
		}
		r.copy(j - from)
		return j > from
	}
}
