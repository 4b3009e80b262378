package remoting

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrNumber is returned for a text that is no number, or too large a one.
var ErrNumber = errors.New("remoting: not a number")

// AppendInt appends v in decimal.
func AppendInt(dst []byte, v int64) []byte { return strconv.AppendInt(dst, v, 10) }

// parseInt reads decimal text as Java's Long.parseLong: an optional sign and
// digits, nothing else, within [-limit-1, limit].
func parseInt(v []byte, limit uint64) (int64, bool) {
	neg := false
	if len(v) > 0 && (v[0] == '-' || v[0] == '+') {
		neg = v[0] == '-'
		v = v[1:]
	}
	if len(v) == 0 {
		return 0, false
	}
	var n uint64
	for len(v) > 18 && v[0] == '0' { // 19 digits cannot overflow n
		v = v[1:]
	}
	if len(v) > 19 {
		return 0, false
	}
	for _, c := range v {
		d := c - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + uint64(d)
	}
	if neg {
		return -int64(n), n <= limit+1
	}
	return int64(n), n <= limit
}

// ParseInt32 reads a decimal int32 as Java's Integer.parseInt; the error is
// ErrNumber. It allocates only for the error.
func ParseInt32(v []byte) (int32, error) {
	n, ok := parseInt(v, 1<<31-1)
	if !ok {
		return 0, fmt.Errorf("%w: got %.40q, want an int32", ErrNumber, v)
	}
	return int32(n), nil
}

// ParseInt64 reads a decimal int64 as Java's Long.parseLong; the error is
// ErrNumber. It allocates only for the error.
func ParseInt64(v []byte) (int64, error) {
	n, ok := parseInt(v, 1<<63-1)
	if !ok {
		return 0, fmt.Errorf("%w: got %.40q, want an int64", ErrNumber, v)
	}
	return n, nil
}

// ParseBool is Java's Boolean.parseBoolean: true only for "true" in any case.
func ParseBool(v []byte) bool {
	return len(v) == 4 && v[0]|0x20 == 't' && v[1]|0x20 == 'r' && v[2]|0x20 == 'u' && v[3]|0x20 == 'e'
}
