package message

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

const upperHex = "0123456789ABCDEF"

func appendHex(dst, b []byte) []byte {
	for _, c := range b {
		dst = append(dst, upperHex[c>>4], upperHex[c&15])
	}
	return dst
}

// AppendOffsetID appends the offsetMsgId of a record: upper-case hexadecimal of
// the store host's address (4 or 16 bytes), its port (4) and the physical
// offset (8); 32 or 56 characters. Tools connect to that host and port.
func AppendOffsetID(dst []byte, host netip.AddrPort, p LogOffset) []byte {
	var raw [hostBytesV6 + 8]byte
	b := AppendHost(raw[:0], host)
	b = be.AppendUint64(b, uint64(p))
	return appendHex(dst, b)
}

// ErrOffsetID is returned for a text that is no offsetMsgId.
var ErrOffsetID = errors.New("message: not an offset message id")

// ParseOffsetID reads an offsetMsgId of 32 (IPv4) or 56 (IPv6) characters.
func ParseOffsetID(id string) (netip.AddrPort, LogOffset, error) {
	if len(id) != 32 && len(id) != 56 {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: got %d characters, want 32 or 56", ErrOffsetID, len(id))
	}
	b, err := hex.DecodeString(id)
	if err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %q: %w", ErrOffsetID, id, err)
	}
	n := len(b) - 8
	if port := be.Uint32(b[n-4:]); port > 65535 {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %q: port %d, want at most 65535", ErrOffsetID, id, port)
	}
	return parseHost(b, n), LogOffset(be.Uint64(b[n:])), nil
}

// IDs makes UNIQ_KEYs as Java clients do: upper-case hexadecimal of address (4
// or 16 bytes), process id (2), a number of this generator (4), milliseconds
// since the start of the month in local time (4), counter (2). Any goroutine
// may use it.
type IDs struct {
	fixed   []byte // hexadecimal, immutable
	counter atomic.Uint32
	month   atomic.Pointer[month]
}

type month struct{ from, to int64 } // ms, [from, to)

// NewIDs returns a generator for a host's address. The 4 bytes that are a class
// loader's hash in Java are random here, so that two generators in one process
// differ.
func NewIDs(host netip.Addr) *IDs {
	b := AppendHost(nil, netip.AddrPortFrom(host, 0))
	b = b[:len(b)-4] // the address alone
	b = be.AppendUint16(b, uint16(os.Getpid()))
	b = be.AppendUint32(b, rand.Uint32())
	return &IDs{fixed: appendHex(nil, b)}
}

// AppendTo appends a new UNIQ_KEY; it reads the clock.
func (g *IDs) AppendTo(dst []byte) []byte { return g.AppendAt(dst, time.Now().UnixMilli()) }

// AppendAt appends a new UNIQ_KEY made at nowMillis: the hot path has the time
// already. It allocates at most once a month.
func (g *IDs) AppendAt(dst []byte, nowMillis int64) []byte {
	m := g.month.Load()
	if m == nil || nowMillis < m.from || nowMillis >= m.to {
		m = monthOf(nowMillis)
		g.month.Store(m)
	}
	var raw [6]byte
	be.PutUint32(raw[:], uint32(nowMillis-m.from))
	be.PutUint16(raw[4:], uint16(g.counter.Add(1)-1))
	return appendHex(append(dst, g.fixed...), raw[:])
}

func monthOf(ms int64) *month {
	t := time.UnixMilli(ms)
	from := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, t.Location())
	return &month{from: from.UnixMilli(), to: from.AddDate(0, 1, 0).UnixMilli()}
}
