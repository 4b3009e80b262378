package remoting

import "bytes"

// wantPopCK is what FieldError says of a bad handle.
const wantPopCK = `7 or 8 items separated by blanks: ckStartOffset popTime invisibleTime reviveQid flag brokerName queueId queueOffset`

// A PopCK is the handle of one popped message, property POP_CK and field
// extraInfo: it names the delivery, not the message.
//
//	ckStartOffset popTime invisibleTime reviveQid flag brokerName queueId queueOffset
//
// The last item may be missing. (ExtraInfoUtil, 5.3.)
type PopCK struct {
	Start           int64 // where in its queue the pop began
	PopMillis       int64
	InvisibleMillis int64
	ReviveQueueID   int32  // PopOrderQueue: popped in order
	Retry           byte   // '0' the topic itself, '1' and '2' its retry topic of version 1 and 2
	BrokerName      []byte // aliases what was parsed
	QueueID         int32
	Offset          int64 // of the message in its queue; -1 when missing
}

// Parse reads a handle without allocation; the error is a *FieldError for
// extraInfo.
func (k *PopCK) Parse(s []byte) error {
	*k = PopCK{Offset: -1}
	rest, n := s, 0
	for more := true; more; n++ {
		var item []byte
		item, rest, more = bytes.Cut(rest, []byte{' '})
		if !k.set(n, item) {
			return &FieldError{Field: "extraInfo", Got: shown(s), Want: wantPopCK}
		}
	}
	if n < 7 {
		return &FieldError{Field: "extraInfo", Got: shown(s), Want: wantPopCK}
	}
	return nil
}

// set takes item n; false when it is none.
func (k *PopCK) set(n int, item []byte) bool {
	var err error
	switch n {
	case 0:
		k.Start, err = ParseInt64(item)
	case 1:
		k.PopMillis, err = ParseInt64(item)
	case 2:
		k.InvisibleMillis, err = ParseInt64(item)
	case 3:
		k.ReviveQueueID, err = ParseInt32(item)
	case 4:
		if len(item) != 1 || item[0] < '0' || item[0] > '2' {
			return false
		}
		k.Retry = item[0]
	case 5:
		k.BrokerName = item
		return len(item) > 0
	case 6:
		k.QueueID, err = ParseInt32(item)
	case 7:
		k.Offset, err = ParseInt64(item)
	default:
		return false
	}
	return err == nil
}

// Append writes the handle, all eight items.
func (k *PopCK) Append(dst []byte) []byte {
	for _, v := range [...]int64{k.Start, k.PopMillis, k.InvisibleMillis, int64(k.ReviveQueueID)} {
		dst = append(AppendInt(dst, v), ' ')
	}
	dst = append(dst, k.Retry, ' ')
	dst = append(append(dst, k.BrokerName...), ' ')
	dst = append(AppendInt(dst, int64(k.QueueID)), ' ')
	return AppendInt(dst, k.Offset)
}
