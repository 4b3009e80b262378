package remoting

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Append appends c as a whole frame, its header written as c.Serialize says, and
// returns the longer slice. JSON headers have their keys in alphabetical order,
// as Java's; absent remark and fields are left out. It allocates only when dst
// is too small. A header that the binary form cannot hold (code or version
// beyond 16 bits, a key beyond 32767 bytes) is written as JSON.
func Append(dst []byte, c *Command) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	if c.Serialize == SerializeBinary && binaryHolds(c.Code, c.Version, c.Fields) {
		dst = appendBinaryHeader(dst, c.Code, c.Language, c.Version, c.Opaque, c.Flag, c.Remark, c.Fields)
		return finish(append(dst, c.Body...), at, SerializeBinary, len(c.Body), 0)
	}
	dst = append(dst, `{"code":`...)
	dst = AppendInt(dst, int64(c.Code))
	if len(c.Fields) > 0 {
		dst = appendJSONFields(append(dst, `,"extFields":`...), c.Fields)
	}
	dst = append(dst, `,"flag":`...)
	dst = AppendInt(dst, int64(c.Flag))
	dst = append(dst, `,"language":"`...)
	dst = append(dst, c.Language.String()...)
	dst = append(dst, `","opaque":`...)
	dst = AppendInt(dst, int64(c.Opaque))
	if len(c.Remark) > 0 {
		dst = AppendJSONBytes(append(dst, `,"remark":`...), c.Remark)
	}
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = AppendInt(dst, int64(c.Version))
	dst = append(dst, '}')
	return finish(append(dst, c.Body...), at, SerializeJSON, len(c.Body), 0)
}

// finish writes the head of the frame that begins at at and ends at dst's end:
// bodyHere bytes of body are there already, bodyLater will follow it.
func finish(dst []byte, at int, s SerializeType, bodyHere, bodyLater int) []byte {
	total := len(dst) - at - LengthBytes + bodyLater
	be.PutUint32(dst[at:], uint32(total))
	be.PutUint32(dst[at+4:], uint32(s)<<24|uint32(len(dst)-at-headBytes-bodyHere))
	return dst
}

func appendJSONFields(dst []byte, fields []Field) []byte {
	dst = append(dst, '{')
	for i := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendJSONBytes(dst, fields[i].Key)
		dst = append(dst, ':')
		dst = AppendJSONBytes(dst, fields[i].Value)
	}
	return append(dst, '}')
}

func binaryHolds(code, version int32, fields []Field) bool {
	if code != int32(int16(code)) || version != int32(int16(version)) {
		return false
	}
	for i := range fields {
		if len(fields[i].Key) > 1<<15-1 {
			return false
		}
	}
	return true
}

func appendBinaryHeader(dst []byte, code int32, l Language, version, opaque, flag int32, remark []byte, fields []Field) []byte {
	dst = be.AppendUint16(dst, uint16(code))
	dst = append(dst, byte(l))
	dst = be.AppendUint16(dst, uint16(version))
	dst = be.AppendUint32(dst, uint32(opaque))
	dst = be.AppendUint32(dst, uint32(flag))
	dst = be.AppendUint32(dst, uint32(len(remark)))
	dst = append(dst, remark...)
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range fields {
		dst = be.AppendUint16(dst, uint16(len(fields[i].Key)))
		dst = append(dst, fields[i].Key...)
		dst = be.AppendUint32(dst, uint32(len(fields[i].Value)))
		dst = append(dst, fields[i].Value...)
	}
	be.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// AppendJSONString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendJSONString(dst []byte, s string) []byte { return appendJSONText(dst, s) }

// AppendJSONBytes is AppendJSONString for bytes.
func AppendJSONBytes(dst, s []byte) []byte { return appendJSONText(dst, s) }

func appendJSONText[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		if n := plainRun(s, i); n > 0 {
			i += n
			continue
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := decodeRune(s[i:])
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			dst = append(dst, s[from:i]...)
			dst = append(dst, "\uFFFD"...)
			i++
			from = i
			continue
		}
		dst = append(dst, s[from:i]...)
		dst = appendEscape(dst, c)
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// plainRun returns how many bytes from i on need no escaping and are ASCII.
func plainRun[T string | []byte](s T, i int) int {
	from := i
	var w [8]byte
	for len(s)-i >= 8 {
		copy(w[:], s[i:i+8])
		if m := special(binary.LittleEndian.Uint64(w[:])); m != 0 {
			return i - from + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(s) && s[i] != '"' && s[i] != '\\' && s[i] >= 0x20 && s[i] < utf8.RuneSelf {
		i++
	}
	return i - from
}

func decodeRune[T string | []byte](s T) (rune, int) {
	var b [utf8.UTFMax]byte
	return utf8.DecodeRune(b[:copy(b[:], s)])
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
