// Package message answers one question: what do the bytes of a record mean?
// A record is the same on disk (CommitLog), on the wire (answers to pulls and
// queries) and in the client. The package does no I/O and starts no goroutine;
// every function may be called from any goroutine.
//
// All integers are big-endian. Version 1, both hosts IPv4:
//
//	 0  totalSize       int32   whole record
//	 4  magic           int32   MagicV1 or MagicV2
//	 8  bodyCRC         int32   CRC-32 (IEEE) of the body & 0x7FFFFFFF
//	12  queueId         int32
//	16  flag            int32   the client's, opaque
//	20  queueOffset     int64   records; stamped at append
//	28  physicalOffset  int64   bytes; stamped at append
//	36  sysFlag         int32
//	40  bornTimestamp   int64   ms
//	48  bornHost        4 (16 when SysFlagBornIPv6) address bytes, int32 port
//	56  storeTimestamp  int64   ms; stamped at append (68 with an IPv6 bornHost)
//	64  storeHost       4 (16 when SysFlagStoreIPv6) address bytes, int32 port
//	72  reconsumeTimes  int32
//	76  preparedTransactionOffset int64
//	84  bodyLen int32, body
//	    topicLen 1 byte (V2: 2 bytes), topic
//	    propertiesLen int16, properties
//
// A segment's unused tail begins with a blank: int32 bytes left, MagicBlank.
package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
)

// LogOffset is a byte position in the CommitLog.
type LogOffset int64

// QueueOffset counts records in a ConsumeQueue.
type QueueOffset int64

// Magic numbers of a record, and of the blank that ends a segment.
const (
	MagicV1    = uint32(0xDAA320A7)
	MagicV2    = uint32(0xDAA320AB)
	MagicBlank = uint32(0xCBD43194)
)

// BlankBytes is what a blank writes: its size and its magic. An appender
// leaves at least this much behind the last record of a segment.
const BlankBytes = 8

// Limits of the format itself; the broker's own limits may be lower.
const (
	TopicBytesMaxV1    = 127   // the length is a signed byte
	TopicBytesMaxV2    = 32767 // the length is a signed int16
	PropertiesBytesMax = 32767 // the length is a signed int16
)

// sysFlag bits.
const (
	SysFlagCompressed = int32(0x1) // the body is compressed by the client
	SysFlagMultiTags  = int32(0x2) // the topic's filter type is MULTI_TAG

	SysFlagTransactionMask     = int32(0xC)
	SysFlagTransactionNone     = int32(0x0)
	SysFlagTransactionPrepared = int32(0x4)
	SysFlagTransactionCommit   = int32(0x8)
	SysFlagTransactionRollback = int32(0xC)

	SysFlagBornIPv6   = int32(0x10)
	SysFlagStoreIPv6  = int32(0x20)
	SysFlagNeedUnwrap = int32(0x40) // inner batch: the client must split it
	SysFlagInnerBatch = int32(0x80)

	SysFlagCompressionMask = int32(0x700) // 0 and Zlib both mean zlib
	SysFlagCompressionLZ4  = int32(0x100)
	SysFlagCompressionZstd = int32(0x200)
	SysFlagCompressionZlib = int32(0x300)
)

// Message is one record, decoded. Body, Topic and Properties alias the input
// of Decode.
type Message struct {
	Size           int32  // set by Decode; ignored by Append
	Magic          uint32 // set by Decode; ignored by Append
	BodyCRC        uint32 // set by Decode; ignored by Append
	QueueID        int32
	Flag           int32
	QueueOffset    QueueOffset
	PhysicalOffset LogOffset
	SysFlag        int32 // Append sets and clears the two host bits itself
	BornMillis     int64
	BornHost       netip.AddrPort
	StoreMillis    int64
	StoreHost      netip.AddrPort
	ReconsumeTimes int32
	// PreparedTransactionOffset is where the half message of a committed
	// transaction lies; 0 elsewhere.
	PreparedTransactionOffset LogOffset
	Body                      []byte
	Topic                     []byte
	Properties                []byte
}

// ErrTorn is the family of all faults of a record: errors.Is(err, ErrTorn)
// holds for every error of Decode and Check.
var ErrTorn = errors.New("message: torn or damaged record")

// ErrShort marks a record that claims more bytes than were given. It is also
// ErrTorn: only the caller knows whether more bytes exist.
var ErrShort = errors.New("message: record is longer than the bytes given")

// ErrUnwritten marks zeros where a record would begin: the clean end of a
// zero-filled log. It is also ErrTorn.
var ErrUnwritten = errors.New("message: nothing was written here")

// RecordError says what of a record is wrong.
type RecordError struct {
	What string    // the field, as in the package comment
	At   LogOffset // where the record begins; 0 when the caller did not say
	Got  int64
	Want int64 // the nearest value that would have been right
	kind error // ErrShort, ErrUnwritten or nil
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("message: record at %d: %s: got %d, want %d", e.At, e.What, e.Got, e.Want)
}

// Is makes every RecordError an ErrTorn, and some also ErrShort or ErrUnwritten.
func (e *RecordError) Is(target error) bool {
	return target == ErrTorn || (e.kind != nil && target == e.kind)
}

const (
	posMagic          = 4
	posCRC            = 8
	posQueueID        = 12
	posFlag           = 16
	posQueueOffset    = 20
	posPhysicalOffset = 28
	posSysFlag        = 36
	posBornMillis     = 40
	posBornHost       = 48
	hostBytesV4       = 8
	hostBytesV6       = 20
	// Fixed bytes with IPv4 hosts and a V1 topic.
	fixedBytes = 91
)

// MinBytes is the size of the smallest record.
const MinBytes = fixedBytes

var be = binary.BigEndian

// CRC is the checksum a record keeps of its body.
func CRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & 0x7FFFFFFF }

func hostBytes(sysFlag, bit int32) int {
	if sysFlag&bit != 0 {
		return hostBytesV6
	}
	return hostBytesV4
}

// hostIsIPv6 tells whether a host takes 20 bytes. IPv4-mapped addresses, as
// dual-stack listeners report them, are stored as IPv4.
func hostIsIPv6(h netip.AddrPort) bool { return h.Addr().Is6() && !h.Addr().Is4In6() }

// HostFlags returns the sysFlag host bits that belong to two addresses.
func HostFlags(born, store netip.AddrPort) int32 {
	var f int32
	if hostIsIPv6(born) {
		f |= SysFlagBornIPv6
	}
	if hostIsIPv6(store) {
		f |= SysFlagStoreIPv6
	}
	return f
}

// EncodedSize returns the bytes Append will add for m.
func EncodedSize(m *Message) int {
	n := fixedBytes + len(m.Body) + len(m.Topic) + len(m.Properties)
	if len(m.Topic) > TopicBytesMaxV1 {
		n++
	}
	if hostIsIPv6(m.BornHost) {
		n += hostBytesV6 - hostBytesV4
	}
	if hostIsIPv6(m.StoreHost) {
		n += hostBytesV6 - hostBytesV4
	}
	return n
}

// ErrTooLong is returned by Append for a topic, property string or body whose
// length the format cannot hold.
var ErrTooLong = errors.New("message: too long for the record format")

// Append encodes m behind dst and returns the longer slice. It chooses the
// version by the topic's length, computes the body's CRC and sets the host bits
// of sysFlag from the addresses; queue offset, physical offset and store time
// are written as they are in m (0 before Stamp). It allocates only when dst is
// too small.
func Append(dst []byte, m *Message) ([]byte, error) {
	if len(m.Topic) > TopicBytesMaxV2 || len(m.Properties) > PropertiesBytesMax {
		return dst, fmt.Errorf("%w: topic %d bytes (max %d), properties %d bytes (max %d)",
			ErrTooLong, len(m.Topic), TopicBytesMaxV2, len(m.Properties), PropertiesBytesMax)
	}
	size := EncodedSize(m)
	if size > 1<<31-1 {
		return dst, fmt.Errorf("%w: record of %d bytes", ErrTooLong, size)
	}
	magic := MagicV1
	if len(m.Topic) > TopicBytesMaxV1 {
		magic = MagicV2
	}
	sysFlag := m.SysFlag&^(SysFlagBornIPv6|SysFlagStoreIPv6) | HostFlags(m.BornHost, m.StoreHost)

	dst = be.AppendUint32(dst, uint32(size))
	dst = be.AppendUint32(dst, magic)
	dst = be.AppendUint32(dst, CRC(m.Body))
	dst = be.AppendUint32(dst, uint32(m.QueueID))
	dst = be.AppendUint32(dst, uint32(m.Flag))
	dst = be.AppendUint64(dst, uint64(m.QueueOffset))
	dst = be.AppendUint64(dst, uint64(m.PhysicalOffset))
	dst = be.AppendUint32(dst, uint32(sysFlag))
	dst = be.AppendUint64(dst, uint64(m.BornMillis))
	dst = AppendHost(dst, m.BornHost)
	dst = be.AppendUint64(dst, uint64(m.StoreMillis))
	dst = AppendHost(dst, m.StoreHost)
	dst = be.AppendUint32(dst, uint32(m.ReconsumeTimes))
	dst = be.AppendUint64(dst, uint64(m.PreparedTransactionOffset))
	dst = be.AppendUint32(dst, uint32(len(m.Body)))
	dst = append(dst, m.Body...)
	if magic == MagicV1 {
		dst = append(dst, byte(len(m.Topic)))
	} else {
		dst = be.AppendUint16(dst, uint16(len(m.Topic)))
	}
	dst = append(dst, m.Topic...)
	dst = be.AppendUint16(dst, uint16(len(m.Properties)))
	return append(dst, m.Properties...), nil
}

// AppendHost appends a host as records hold it: 4 or 16 address bytes and an
// int32 port. The zero AddrPort becomes 0.0.0.0:0.
func AppendHost(dst []byte, h netip.AddrPort) []byte {
	if hostIsIPv6(h) {
		a := h.Addr().As16()
		dst = append(dst, a[:]...)
	} else {
		var a [4]byte
		if h.Addr().IsValid() {
			a = h.Addr().Unmap().As4()
		}
		dst = append(dst, a[:]...)
	}
	return be.AppendUint32(dst, uint32(h.Port()))
}

// parseHost reads a host of 8 or 20 bytes. Ports are 16 bits; the upper half
// of the int32 is dropped.
func parseHost(b []byte, n int) netip.AddrPort {
	port := uint16(be.Uint32(b[n-4:]))
	if n == hostBytesV6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), port)
}
