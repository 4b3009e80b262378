package message

import "bytes"

// shape is where the variable parts of a record lie.
type shape struct {
	size           int
	sysFlag        int32
	bornHost       int // bytes
	storeMillis    int // position
	storeHost      int // bytes
	bodyAt, bodyTo int
	topicAt, topTo int
	propsAt        int // properties end at size
}

// measure finds the parts of the record at the start of b and checks that they
// sum up to its size. It does not look at the CRC.
func measure(b []byte, at LogOffset, s *shape) error {
	if err := s.measureHead(b, at, len(b)); err != nil {
		return err
	}
	return s.measureTail(b[s.bodyTo:s.size], at, be.Uint32(b[posMagic:]))
}

// measureHead finds what stands before the topic. b begins with the record and is
// all of it, or HeadBytes of the have bytes that there are.
func (s *shape) measureHead(b []byte, at LogOffset, have int) error {
	if len(b) < BlankBytes {
		return &RecordError{What: "totalSize", At: at, Got: int64(len(b)), Want: MinBytes, kind: ErrShort}
	}
	size, magic := int(int32(be.Uint32(b))), be.Uint32(b[posMagic:])
	if magic != MagicV1 && magic != MagicV2 {
		e := &RecordError{What: "magic", At: at, Got: int64(int32(magic)), Want: int64(wantMagic)}
		if magic == 0 && size == 0 {
			e.kind = ErrUnwritten
		}
		return e
	}
	if size < MinBytes {
		return &RecordError{What: "totalSize", At: at, Got: int64(size), Want: MinBytes}
	}
	if size > have {
		return &RecordError{What: "totalSize", At: at, Got: int64(size), Want: int64(have), kind: ErrShort}
	}
	s.size = size
	s.sysFlag = int32(be.Uint32(b[posSysFlag:]))
	s.bornHost = hostBytes(s.sysFlag, SysFlagBornIPv6)
	s.storeHost = hostBytes(s.sysFlag, SysFlagStoreIPv6)
	s.storeMillis = posBornHost + s.bornHost
	p := s.storeMillis + 8 + s.storeHost + 12 // reconsumeTimes, preparedTransactionOffset
	if size < p+4 {
		return &RecordError{What: "totalSize", At: at, Got: int64(size), Want: int64(p + 4)}
	}
	n := int(int32(be.Uint32(b[p:])))
	s.bodyAt = p + 4
	if n < 0 || n > size-s.bodyAt {
		return &RecordError{What: "bodyLen", At: at, Got: int64(n), Want: int64(size - s.bodyAt)}
	}
	s.bodyTo = s.bodyAt + n
	return nil
}

// measureTail finds topic and properties behind the body; tail is all there.
func (s *shape) measureTail(tail []byte, at LogOffset, magic uint32) error {
	lenBytes := 1
	if magic == MagicV2 {
		lenBytes = 2
	}
	left := s.size - s.bodyTo
	if left < lenBytes+2 {
		return &RecordError{What: "topicLen", At: at, Got: int64(left), Want: int64(lenBytes + 2)}
	}
	n := int(int8(tail[0]))
	if magic == MagicV2 {
		n = int(int16(be.Uint16(tail)))
	}
	s.topicAt = s.bodyTo + lenBytes
	left -= lenBytes
	if n < 0 || n > left-2 {
		return &RecordError{What: "topicLen", At: at, Got: int64(n), Want: int64(left - 2)}
	}
	s.topTo = s.topicAt + n
	n = int(int16(be.Uint16(tail[s.topTo-s.bodyTo:])))
	s.propsAt = s.topTo + 2
	if n < 0 || s.propsAt+n != s.size {
		return &RecordError{What: "propertiesLen", At: at, Got: int64(n), Want: int64(s.size - s.propsAt)}
	}
	return nil
}

// Decode reads the record at the start of b into m and returns its size. It
// checks the structure (sizes, magic), not the CRC; m's slices alias b. Errors
// are *RecordError, all of them ErrTorn. It does not allocate.
func Decode(b []byte, m *Message) (n int, err error) {
	var s shape
	if err := measure(b, 0, &s); err != nil {
		return 0, err
	}
	at := s.storeMillis + 8
	*m = Message{
		Size:                      int32(s.size),
		Magic:                     be.Uint32(b[posMagic:]),
		BodyCRC:                   be.Uint32(b[posCRC:]),
		QueueID:                   int32(be.Uint32(b[posQueueID:])),
		Flag:                      int32(be.Uint32(b[posFlag:])),
		QueueOffset:               QueueOffset(be.Uint64(b[posQueueOffset:])),
		PhysicalOffset:            LogOffset(be.Uint64(b[posPhysicalOffset:])),
		SysFlag:                   s.sysFlag,
		BornMillis:                int64(be.Uint64(b[posBornMillis:])),
		BornHost:                  parseHost(b[posBornHost:], s.bornHost),
		StoreMillis:               int64(be.Uint64(b[s.storeMillis:])),
		StoreHost:                 parseHost(b[at:], s.storeHost),
		ReconsumeTimes:            int32(be.Uint32(b[at+s.storeHost:])),
		PreparedTransactionOffset: LogOffset(be.Uint64(b[at+s.storeHost+4:])),
		Body:                      b[s.bodyAt:s.bodyTo:s.bodyTo],
		Topic:                     b[s.topicAt:s.topTo:s.topTo],
		Properties:                b[s.propsAt:s.size:s.size],
	}
	return s.size, nil
}

// Check is recovery's question: is there a whole record, or a blank, at the
// start of b, which begins at log offset at? It checks sizes, magic, that
// physicalOffset equals at and, when crc is set, the body's CRC. For a blank it
// returns the bytes the blank claims to cover. Errors are *RecordError
// (ErrTorn; ErrShort when b ends inside the record; ErrUnwritten at zeros).
func Check(b []byte, at LogOffset, crc bool) (size int, blank bool, err error) {
	if len(b) >= BlankBytes && be.Uint32(b[posMagic:]) == MagicBlank {
		size = int(int32(be.Uint32(b)))
		if size < BlankBytes {
			return 0, false, &RecordError{What: "blank size", At: at, Got: int64(size), Want: BlankBytes}
		}
		return size, true, nil
	}
	var s shape
	if err := measure(b, at, &s); err != nil {
		return 0, false, err
	}
	if p := PhysicalOffsetOf(b); p != at {
		return 0, false, &RecordError{What: "physicalOffset", At: at, Got: int64(p), Want: int64(at)}
	}
	if crc {
		if got, want := be.Uint32(b[posCRC:]), CRC(b[s.bodyAt:s.bodyTo]); got != want {
			return 0, false, &RecordError{What: "bodyCRC", At: at, Got: int64(got), Want: int64(want)}
		}
	}
	return s.size, false, nil
}

// HeadBytes is as much of a record's beginning as Tail.Find needs: all before the
// body, with addresses of IPv6.
const HeadBytes = posBornHost + 20 + 8 + 20 + 4 + 8 + 4

// A Tail is what stands behind the body of a record that isn't read whole.
type Tail struct {
	From, To int // bytes of the record
	shape    shape
	at       LogOffset
	magic    uint32
}

// Find makes t the tail of the record at log offset at, of which head is the
// first HeadBytes and size the number of its bytes, or more. It checks what Check
// checks, except for the CRC. It does not allocate.
func (t *Tail) Find(head []byte, at LogOffset, size int) error {
	if err := t.shape.measureHead(head, at, size); err != nil {
		return err
	}
	if p := PhysicalOffsetOf(head); p != at {
		return &RecordError{What: "physicalOffset", At: at, Got: int64(p), Want: int64(at)}
	}
	t.From, t.To = t.shape.bodyTo, t.shape.size
	t.at, t.magic = at, be.Uint32(head[posMagic:])
	return nil
}

// Properties returns the property string of the record whose bytes [t.From, t.To)
// are tail; it aliases tail.
func (t *Tail) Properties(tail []byte) ([]byte, error) {
	if err := t.shape.measureTail(tail, t.at, t.magic); err != nil {
		return nil, err
	}
	return tail[t.shape.propsAt-t.From:], nil
}

// sectorBytes is the least a disk writes as one.
const sectorBytes = 512

// TornProperties says whether rec, which stands at file offset at and passed
// Check, lacks a part of its properties: sectors of them that are all zeros,
// as a crash leaves them in a zero-filled file. The CRC covers the body alone;
// sizes, topic and body can't be torn without Check's seeing it, properties can.
// No property string a broker stores has whole sectors of zeros, nor ends in
// one.
func TornProperties(rec []byte, at int64) bool {
	props := PropertiesOf(rec)
	from := at + int64(len(rec)-len(props))
	for len(props) > 0 {
		n := min(int(sectorBytes-from%sectorBytes), len(props))
		piece := props[:n]
		props, from = props[n:], from+int64(n)
		if len(bytes.TrimLeft(piece, "\x00")) == 0 {
			return true
		}
	}
	return false
}

// AppendBlank appends the 8 bytes that end a segment with left bytes to spare.
func AppendBlank(dst []byte, left int32) []byte {
	dst = be.AppendUint32(dst, uint32(left))
	return be.AppendUint32(dst, MagicBlank)
}

// The peeks below read one field of a record that Append made or Decode or
// Check accepted; they panic on shorter input.

// Size returns totalSize; b needs 4 bytes.
func Size(b []byte) int32 { return int32(be.Uint32(b)) }

// Magic returns the magic number; b needs 8 bytes.
func Magic(b []byte) uint32 { return be.Uint32(b[posMagic:]) }

// QueueIDOf returns queueId.
func QueueIDOf(rec []byte) int32 { return int32(be.Uint32(rec[posQueueID:])) }

// QueueOffsetOf returns queueOffset.
func QueueOffsetOf(rec []byte) QueueOffset { return QueueOffset(be.Uint64(rec[posQueueOffset:])) }

// PhysicalOffsetOf returns physicalOffset.
func PhysicalOffsetOf(rec []byte) LogOffset { return LogOffset(be.Uint64(rec[posPhysicalOffset:])) }

// SysFlagOf returns sysFlag.
func SysFlagOf(rec []byte) int32 { return int32(be.Uint32(rec[posSysFlag:])) }

// BornMillisOf returns bornTimestamp.
func BornMillisOf(rec []byte) int64 { return int64(be.Uint64(rec[posBornMillis:])) }

// StoreMillisOf returns storeTimestamp.
func StoreMillisOf(rec []byte) int64 {
	return int64(be.Uint64(rec[posBornHost+hostBytes(SysFlagOf(rec), SysFlagBornIPv6):]))
}

// StoreHostOf returns storeHost.
func StoreHostOf(rec []byte) (h []byte) {
	f := SysFlagOf(rec)
	at := posBornHost + hostBytes(f, SysFlagBornIPv6) + 8
	n := hostBytes(f, SysFlagStoreIPv6)
	return rec[at : at+n : at+n]
}

// bodySpan returns where the body lies.
func bodySpan(rec []byte) (from, to int) {
	f := SysFlagOf(rec)
	p := posBornHost + hostBytes(f, SysFlagBornIPv6) + 8 + hostBytes(f, SysFlagStoreIPv6) + 12
	return p + 4, p + 4 + int(be.Uint32(rec[p:]))
}

// topicSpan returns where the topic lies.
func topicSpan(rec []byte) (from, to int) {
	_, p := bodySpan(rec)
	if Magic(rec) == MagicV2 {
		return p + 2, p + 2 + int(be.Uint16(rec[p:]))
	}
	return p + 1, p + 1 + int(rec[p])
}

// EntersQueue says whether a record gets an entry in its ConsumeQueue: those of
// transaction types none and commit do.
func EntersQueue(rec []byte) bool {
	t := SysFlagOf(rec) & SysFlagTransactionMask
	return t != SysFlagTransactionPrepared && t != SysFlagTransactionRollback
}

// EntersIndex says whether a record is found by its keys: one that rolls a
// transaction back isn't (IndexService#buildIndex, 5.3).
func EntersIndex(rec []byte) bool {
	return SysFlagOf(rec)&SysFlagTransactionMask != SysFlagTransactionRollback
}

// BodyOf returns the body; it aliases rec.
func BodyOf(rec []byte) []byte {
	from, to := bodySpan(rec)
	return rec[from:to:to]
}

// TopicOf returns the topic; it aliases rec.
func TopicOf(rec []byte) []byte {
	from, to := topicSpan(rec)
	return rec[from:to:to]
}

// PropertiesOf returns the property string; it aliases rec.
func PropertiesOf(rec []byte) []byte {
	_, p := topicSpan(rec)
	from := p + 2
	to := from + int(be.Uint16(rec[p:]))
	return rec[from:to:to]
}

// Stamp fills, in place, the three fields only the log's writer knows.
func Stamp(rec []byte, q QueueOffset, p LogOffset, storeMillis int64) {
	be.PutUint64(rec[posQueueOffset:], uint64(q))
	be.PutUint64(rec[posPhysicalOffset:], uint64(p))
	at := posBornHost + hostBytes(SysFlagOf(rec), SysFlagBornIPv6)
	be.PutUint64(rec[at:], uint64(storeMillis))
}

// wantMagic is MagicV1 as the signed number that Java's tools print.
const wantMagic = int32(int64(MagicV1) - 1<<32)
