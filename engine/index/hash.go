package index

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// text is a topic or key as it stands in a record or comes from a caller.
type text interface{ ~[]byte | ~string }

// keyHash is the hash of topic#key without building that string.
func keyHash[T text](topic, key T) int32 {
	h := javaHash(31*javaHash(0, topic)+'#', key)
	switch {
	case h == math.MinInt32: // Math.abs leaves it negative, IndexFile makes it 0
		return 0
	case h < 0:
		return -h
	}
	return h
}

// Powers of 31.
const (
	p1 = 31
	p2 = p1 * 31
	p3 = p2 * 31
	p4 = p3 * 31
)

// javaHash goes on with Java's String.hashCode from h over the UTF-8 text s:
// 31·h + unit for each UTF-16 unit. Four ASCII bytes are done at once: the
// multiplications of one step depend on each other and take most of Put's time
// otherwise.
func javaHash[T text](h int32, s T) int32 {
	i := 0
	for ; i+4 <= len(s); i += 4 {
		a, b, c, d := s[i], s[i+1], s[i+2], s[i+3]
		if a|b|c|d >= utf8.RuneSelf {
			break
		}
		h = h*p4 + int32(a)*p3 + int32(b)*p2 + int32(c)*p1 + int32(d)
	}
	for i < len(s) {
		if c := s[i]; c < utf8.RuneSelf {
			h = p1*h + int32(c)
			i++
			continue
		}
		r, n := utf8.DecodeRune([]byte(s[i:min(len(s), i+utf8.UTFMax)]))
		i += n
		if r >= 0x10000 { // a surrogate pair
			r -= 0x10000
			h = p1*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = p1*h + r
	}
	return h
}

// A header is the first 40 bytes of a file. The first entry sets the begins,
// each entry the ends; a new file begins with the ends of the one before.
type header struct {
	beginMillis, endMillis int64
	beginLog, endLog       int64
	slotsUsed              int32
	count                  int32 // number of the next entry; 1 in an empty file
}

func (h *header) append(dst []byte) []byte {
	for _, v := range [...]int64{h.beginMillis, h.endMillis, h.beginLog, h.endLog} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.slotsUsed))
	return binary.BigEndian.AppendUint32(dst, uint32(h.count))
}

func (h *header) decode(b []byte) {
	for i, v := range [...]*int64{&h.beginMillis, &h.endMillis, &h.beginLog, &h.endLog} {
		*v = int64(binary.BigEndian.Uint64(b[8*i:]))
	}
	h.slotsUsed = int32(binary.BigEndian.Uint32(b[32:]))
	h.count = max(1, int32(binary.BigEndian.Uint32(b[36:]))) // 0 in a file never written
}

// An entry is 20 bytes of a file.
type entry struct {
	hash int32
	log  int64
	secs int32 // since the header's beginMillis
	prev int32 // the bucket's entry before, 0 for none
}

func (e entry) put(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(e.hash))
	binary.BigEndian.PutUint64(b[4:], uint64(e.log))
	binary.BigEndian.PutUint32(b[12:], uint32(e.secs))
	binary.BigEndian.PutUint32(b[16:], uint32(e.prev))
}

func decodeEntry(b []byte) entry {
	return entry{
		hash: int32(binary.BigEndian.Uint32(b)),
		log:  int64(binary.BigEndian.Uint64(b[4:])),
		secs: int32(binary.BigEndian.Uint32(b[12:])),
		prev: int32(binary.BigEndian.Uint32(b[16:])),
	}
}
