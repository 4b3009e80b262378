package filter

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"strings"
	"unsafe"
)

// A kind is what a value is. Numbers keep the kinds that Java gives them, since
// the kind of the one side says how a text on the other side is read.
type kind uint8

const (
	kindNull   kind = iota
	kindFailed      // a text that is not the number it is compared with: nothing matches
	kindBool
	kindInt // 32 bits
	kindLong
	kindDouble
	kindText
)

type value struct {
	kind kind
	n    int64 // kindBool (a truth), kindInt, kindLong
	f    float64
	s    []byte // kindText; aliases the record or the expression
}

// truth is what a value says as a condition: NULL, TRUE or FALSE, or that
// something failed.
func (v value) truth() truth {
	switch v.kind {
	case kindNull:
		return isNull
	case kindBool:
		return truth(v.n)
	}
	return isFailed
}

// negated is unary minus: NULL for what is no number, a property's text too.
func (v value) negated() value {
	switch v.kind {
	case kindInt, kindLong:
		v.n = -v.n
	case kindDouble:
		v.f = -v.f
	case kindFailed:
	default:
		return value{}
	}
	return v
}

// double reads a text as a double.
func (v value) double() value {
	f, ok := parseDouble(v.s)
	if !ok {
		return value{kind: kindFailed}
	}
	return value{kind: kindDouble, f: f}
}

// compare orders two values, neither NULL nor failed, as Apache's
// ComparisonExpression#__compare; false: they can't be compared.
func compare(l, r *value) (int, bool) {
	switch {
	case l.kind == r.kind:
		return compareSame(l, r), true
	case l.kind == kindText:
		c, ok := compareText(l.s, r)
		return c, ok
	case l.kind == kindBool: // Java tries to cast it to a text, which fails
		return -1, r.kind != kindText
	case r.kind == kindText:
		c, ok := compareText(r.s, l)
		return -c, ok
	case r.kind == kindBool:
		return -1, true
	case l.kind != kindDouble && r.kind != kindDouble:
		return cmp.Compare(l.n, r.n), true
	}
	return compareDoubles(l.asDouble(), r.asDouble()), true
}

func (v *value) asDouble() float64 {
	if v.kind == kindDouble {
		return v.f
	}
	return float64(v.n)
}

func compareSame(l, r *value) int {
	switch l.kind {
	case kindText:
		return bytes.Compare(l.s, r.s)
	case kindDouble:
		return compareDoubles(l.f, r.f)
	}
	return cmp.Compare(l.n, r.n)
}

// compareText reads a text as what r is, and compares them.
func compareText(s []byte, r *value) (int, bool) {
	switch r.kind {
	case kindBool:
		var n int64
		if len(s) == 4 && strings.EqualFold(str(s), "true") {
			n = 1
		}
		return cmp.Compare(n, r.n), true
	case kindInt:
		n, ok := parseInt(s, math.MinInt32, math.MaxInt32)
		return cmp.Compare(n, r.n), ok
	case kindLong:
		n, ok := parseInt(s, math.MinInt64, math.MaxInt64)
		return cmp.Compare(n, r.n), ok
	default:
		f, ok := parseDouble(s)
		return compareDoubles(f, r.f), ok
	}
}

// compareDoubles is Java's Double.compare: NaN is above all and equal to itself,
// −0 below 0.
func compareDoubles(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return cmp.Compare(javaBits(a), javaBits(b))
}

func javaBits(f float64) int64 {
	if f != f {
		return 0x7ff8000000000000
	}
	return int64(math.Float64bits(f))
}

// parseInt is Java's Integer.valueOf and Long.valueOf: a sign and digits, no
// blanks. It does not allocate.
func parseInt(s []byte, low, high int64) (int64, bool) {
	neg := false
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		neg, s = s[0] == '-', s[1:]
	}
	if len(s) == 0 {
		return 0, false
	}
	var n int64 // counted down: the lowest number has no positive
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := int64(c - '0')
		if n < (math.MinInt64+d)/10 {
			return 0, false
		}
		n = n*10 - d
	}
	if !neg {
		if n == math.MinInt64 {
			return 0, false
		}
		n = -n
	}
	return n, n >= low && n <= high
}

// parseDouble is Java's Double.valueOf: blanks around, NaN, Infinity, hexadecimal
// and the suffixes f and d included. It does not allocate, but for a text beyond
// all doubles, which is infinite.
func parseDouble(s []byte) (float64, bool) {
	for len(s) > 0 && s[0] <= ' ' {
		s = s[1:]
	}
	for len(s) > 0 && s[len(s)-1] <= ' ' {
		s = s[:len(s)-1]
	}
	n := s
	if len(n) > 0 && (n[0] == '-' || n[0] == '+') {
		n = n[1:]
	}
	switch str(n) {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1 - 2*sign(s)), true
	}
	if last := len(n) - 1; last >= 0 && strings.IndexByte("fFdD", n[last]) >= 0 {
		s, n = s[:len(s)-1], n[:last]
	}
	if isHex(n) {
		if !isNumber(n[2:], true) {
			return 0, false
		}
	} else if !isNumber(n, false) {
		return 0, false
	}
	f, err := strconv.ParseFloat(str(s), 64) // the only error left is the range's
	return f, err == nil || math.IsInf(f, 0)
}

// sign is 1 for a text that begins with a minus.
func sign(s []byte) int {
	if len(s) > 0 && s[0] == '-' {
		return 1
	}
	return 0
}

func isHex(s []byte) bool { return len(s) > 1 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') }

// isNumber says whether s is digits with at most one point, and an exponent,
// which a hexadecimal number must have.
func isNumber(s []byte, hex bool) bool {
	digits, points, i := 0, 0, 0
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9', hex && (c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'):
			digits++
			continue
		case c == '.' && points == 0:
			points++
			continue
		}
		break
	}
	if digits == 0 {
		return false
	}
	if i == len(s) {
		return !hex
	}
	if c := s[i] | 0x20; hex && c != 'p' || !hex && c != 'e' {
		return false
	}
	if i++; i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	if i == len(s) {
		return false
	}
	for ; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// str is b as a string that lives as long as b does not change.
func str(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
