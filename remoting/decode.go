package remoting

import (
	"errors"
	"fmt"
)

// ErrHeader is the family of faults in a frame's header. The connection is lost:
// who writes a broken header cannot be answered.
var ErrHeader = errors.New("remoting: undecodable header")

// Decode reads one whole frame, as FrameSize measured it, into c. c's slices
// alias frame or c's scratch. Headers as clients write them are scanned in one
// pass without allocation, or not even that where c has decoded nearly the same
// before (shape.go); anything unusual goes through DecodeGeneral, with the same
// result. Errors are *FrameError or ErrHeader.
func Decode(frame []byte, c *Command) error {
	header, body, serialize, err := split(frame)
	if err != nil {
		return err
	}
	c.Reset()
	c.Serialize, c.Body = serialize, body
	if serialize == SerializeBinary {
		return decodeBinary(header, c)
	}
	if c.foreseen(header) {
		return nil
	}
	if scanJSON(header, c) {
		c.learn(header)
		return nil
	}
	return decodeJSONGeneral(header, c)
}

// DecodeGeneral is Decode by the plain road: encoding/json for JSON headers. It
// allocates. Decode is tested against it.
func DecodeGeneral(frame []byte, c *Command) error {
	header, body, serialize, err := split(frame)
	if err != nil {
		return err
	}
	if serialize == SerializeBinary {
		c.Reset()
		c.Serialize, c.Body = serialize, body
		return decodeBinary(header, c)
	}
	c.Body = body
	return decodeJSONGeneral(header, c)
}

// split cuts a frame into header and body; an empty body is nil.
func split(frame []byte) (header, body []byte, serialize SerializeType, err error) {
	if len(frame) < headBytes {
		return nil, nil, 0, &FrameError{Seen: "frame shorter than its head", Got: int64(len(frame)), Want: headBytes}
	}
	if n := int64(int32(be.Uint32(frame))) + LengthBytes; n != int64(len(frame)) {
		return nil, nil, 0, &FrameError{Seen: "length differs from the frame", Got: n, Want: int64(len(frame))}
	}
	serialize = SerializeType(frame[4])
	if serialize > SerializeBinary {
		return nil, nil, 0, &FrameError{Seen: "unknown serialize type", Got: int64(serialize), Want: int64(SerializeBinary)}
	}
	to := headBytes + headerLen(frame)
	if to > len(frame) {
		return nil, nil, 0, &FrameError{Seen: "header longer than the frame", Got: int64(to - headBytes), Want: int64(len(frame) - headBytes)}
	}
	if to < len(frame) {
		body = frame[to:len(frame):len(frame)]
	}
	return frame[headBytes:to:to], body, serialize, nil
}

// decodeBinary reads a ROCKETMQ header; its layout is in the package comment.
func decodeBinary(h []byte, c *Command) error {
	const fixed = 21
	if len(h) < fixed {
		return fmt.Errorf("%w: binary header: got %d bytes, want at least %d", ErrHeader, len(h), fixed)
	}
	c.Code = int32(int16(be.Uint16(h)))
	c.Language = LanguageOther
	if int(h[2]) < len(languageNames) {
		c.Language = Language(h[2])
	}
	c.Version = int32(int16(be.Uint16(h[3:])))
	c.Opaque = int32(be.Uint32(h[5:]))
	c.Flag = int32(be.Uint32(h[9:]))
	remark, rest, ok := cut32(h[13:])
	if !ok || len(rest) < 4 {
		return fmt.Errorf("%w: binary header: remarkLen %d, %d bytes left", ErrHeader, int32(be.Uint32(h[13:])), len(h)-17)
	}
	if len(remark) > 0 {
		c.Remark = remark
	}
	ext, rest, ok := cut32(rest)
	if !ok || len(rest) != 0 {
		return fmt.Errorf("%w: binary header: extLen does not reach the header's end", ErrHeader)
	}
	for len(ext) > 0 {
		if len(ext) < 2 {
			return fmt.Errorf("%w: binary header: ext field cut off", ErrHeader)
		}
		n := int(int16(be.Uint16(ext)))
		if n < 0 || 2+n > len(ext) {
			return fmt.Errorf("%w: binary header: keyLen %d, %d bytes left", ErrHeader, n, len(ext)-2)
		}
		key := ext[2 : 2+n : 2+n]
		value, rest, ok := cut32(ext[2+n:])
		if !ok {
			return fmt.Errorf("%w: binary header: value of %.40q cut off", ErrHeader, key)
		}
		c.Fields = append(c.Fields, Field{Key: key, Value: value})
		ext = rest
	}
	return nil
}

// cut32 cuts off an int32 length and that many bytes.
func cut32(b []byte) (v, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int(int32(be.Uint32(b)))
	if n < 0 || n > len(b)-4 {
		return nil, nil, false
	}
	return b[4 : 4+n : 4+n], b[4+n:], true
}
