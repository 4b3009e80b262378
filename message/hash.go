package message

import "unicode/utf8"

// JavaHash is Java's String.hashCode of a UTF-8 text: 31·h + unit over its
// UTF-16 units.
func JavaHash(s []byte) int32 {
	var h int32
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			h = 31*h + int32(c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		i += n
		if r >= 0x10000 { // a surrogate pair
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
	}
	return h
}

// TagsCode is what a ConsumeQueue entry keeps of the TAGS property: its
// JavaHash, sign-extended; 0 when there are no tags.
func TagsCode(tags []byte) int64 { return int64(JavaHash(tags)) }
