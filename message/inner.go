package message

import "strconv"

// An inner batch is one record that holds several messages: its body is a
// batch's (EachBatchItem), its sysFlag has SysFlagInnerBatch and
// SysFlagNeedUnwrap, INNER_NUM says how many messages there are and INNER_BASE
// the queue offset of the first. Consumers of 5.x unwrap it.

// InnerNumMax is the most messages an inner batch may have: its entry in the
// queue counts them in an int16.
const InnerNumMax = 1<<15 - 1

// innerBaseDigits is the room AppendInnerBase keeps: the longest offset.
const innerBaseDigits = 19

// AppendInnerBase appends INNER_BASE to the property string dst with room for
// any offset, for StampInnerBase to fill in. It must be the record's last
// property.
func AppendInnerBase(dst []byte) []byte {
	return AppendProperty(dst, PropInnerBase, "0000000000000000000")
}

// StampInnerBase writes base into the INNER_BASE that AppendInnerBase made the
// last property of rec, in place, and gives the record's size, which shrinks by
// the digits base does not need.
func StampInnerBase(rec []byte, base QueueOffset) int {
	_, propsLen := topicSpan(rec)
	digits := len(rec) - 1 - innerBaseDigits
	out := append(strconv.AppendInt(rec[:digits], int64(base), 10), PropertySeparator)
	be.PutUint32(out, uint32(len(out)))
	be.PutUint16(out[propsLen:], uint16(len(out)-propsLen-2))
	return len(out)
}

// HasInnerBase says whether rec ends as AppendInnerBase made it.
func HasInnerBase(rec []byte) bool {
	const tail = PropInnerBase + "\x01" + "0000000000000000000" + "\x02"
	return len(rec) >= MinBytes+len(tail) && string(rec[len(rec)-len(tail):]) == tail
}

// ClearInner takes from rec the bits that make it an inner batch.
func ClearInner(rec []byte) {
	const bits = SysFlagInnerBatch | SysFlagNeedUnwrap
	if f := SysFlagOf(rec); f&bits != 0 {
		be.PutUint32(rec[posSysFlag:], uint32(f&^bits))
	}
}

// InnerNum gives the number of messages of a record that is an inner batch; 1
// for any other and where INNER_NUM makes no sense. It does not allocate.
func InnerNum(rec []byte) int16 {
	if SysFlagOf(rec)&SysFlagInnerBatch == 0 {
		return 1
	}
	value, _ := Property(PropertiesOf(rec), PropInnerNum)
	n, ok := ParseInnerNum(value)
	if !ok {
		return 1
	}
	return n
}

// ParseInnerNum reads the value of INNER_NUM; ok says whether it is 1 to
// InnerNumMax.
func ParseInnerNum(value []byte) (n int16, ok bool) {
	v, err := strconv.ParseInt(string(value), 10, 16)
	return int16(v), err == nil && v >= 1
}
