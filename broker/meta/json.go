package meta

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// intMap is a map with integer keys in fastjson's dialect: {0:5,1:6}, keys not
// quoted. That is no JSON, so a value of it can't be part of what
// encoding/json writes; it is appended by hand.
type intMap map[int32]int64

func (m intMap) appendTo(dst []byte) []byte {
	keys := make([]int32, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(k), 10)
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, m[k], 10)
	}
	return append(dst, '}')
}

// UnmarshalJSON takes the map after remoting.RelaxJSON has quoted its keys. A
// key that is no number, or a value that is none, refuses the file.
func (m *intMap) UnmarshalJSON(b []byte) error {
	var raw map[string]json.Number
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	out := make(intMap, len(raw))
	for k, v := range raw {
		key, err := strconv.ParseInt(k, 10, 32)
		if err != nil {
			return fmt.Errorf("key %q: want a 32-bit number", k)
		}
		value, err := v.Int64()
		if err != nil {
			return fmt.Errorf("value %q of key %s: want a 64-bit number", v, k)
		}
		out[int32(key)] = value
	}
	*m = out
	return nil
}

// pretty lays compact JSON out as fastjson 1.2.83 does in Apache's config
// files: TAB indent, no blank after the colon, no newline at the end; sets stay
// on one line, maps with integer keys too but for their closing brace. Only
// white space is added.
func pretty(src []byte) []byte {
	dst := make([]byte, 0, len(src)+len(src)/4)
	var inline []bool // per open bracket: its members stay on the line
	newline := func() {
		dst = append(dst, '\n')
		for range inline {
			dst = append(dst, '\t')
		}
	}
	for i := 0; i < len(src); i++ {
		c := src[i]
		switch c {
		case '"':
			end := i + stringEnd(src[i:])
			dst = append(dst, src[i:end]...)
			i = end - 1
		case '{', '[':
			dst = append(dst, c)
			if src[i+1] == c+2 { // "{}" and "[]"
				dst = append(dst, c+2)
				i++
				continue
			}
			inline = append(inline, c == '[' || src[i+1] != '"')
			if !inline[len(inline)-1] {
				newline()
			}
		case '}', ']':
			inline = inline[:len(inline)-1]
			if c == '}' {
				newline()
			}
			dst = append(dst, c)
		case ',':
			dst = append(dst, c)
			if !inline[len(inline)-1] {
				newline()
			}
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// stringEnd is the length of the JSON string at the start of b, quotes
// included.
func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}
