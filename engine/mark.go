package engine

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// A point is a place in the log between two records, with what is needed to
// find it again: the record that ends there.
type point struct {
	end         message.LogOffset // first byte behind
	recAt       message.LogOffset // start of the record before it; -1 when there is none
	recSize     int32
	storeMillis int64 // of that record; 0 when there is none
	queues      int64 // queues that have had an entry
}

// A mark is the durable dispatch mark: every record below point.end has its
// entries in ConsumeQueues and index on disk, and is on disk itself. Recovery
// begins there, so its time does not depend on the size of the store.
//
// It is a file of our own, dispatch.mark, which Java does not know. Two slots
// are written in turn, each in a block of its own:
//
//	  0 magic        8 bytes  markMagic
//	  8 seq          uint64   the higher valid one counts
//	 16 logOffset    int64    point.end
//	 24 recordOffset int64    start of the record before it, -1 for none
//	 32 recordSize   int32
//	 36 recordCRC    uint32   CRC-32C of that whole record
//	 40 storeTime    int64    of that record
//	 48 indexEnd     int64    the index knows every record below
//	 56 queues       int64    ConsumeQueues that had an entry
//	 64 before      40 bytes  the checkpoint's bytes before this mark
//	104 after       40 bytes  the checkpoint's bytes after it
//	144 crc          uint32   CRC-32C of the 144 bytes before
//
// The mark is written first and then the checkpoint, so between two crashes the
// checkpoint holds before or after; any other bytes say that another broker
// has written here since.
type mark struct {
	point
	seq           uint64
	recCRC        uint32
	indexEnd      message.LogOffset
	before, after [checkpointUsed]byte
}

const (
	markName      = "dispatch.mark"
	markMagic     = "RINGMQM1"
	markSlotBytes = 4096
	markUsed      = 148
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m *mark) encode() (b [markUsed]byte) {
	copy(b[:], markMagic)
	be.PutUint64(b[8:], m.seq)
	be.PutUint64(b[16:], uint64(m.end))
	be.PutUint64(b[24:], uint64(m.recAt))
	be.PutUint32(b[32:], uint32(m.recSize))
	be.PutUint32(b[36:], m.recCRC)
	be.PutUint64(b[40:], uint64(m.storeMillis))
	be.PutUint64(b[48:], uint64(m.indexEnd))
	be.PutUint64(b[56:], uint64(m.queues))
	copy(b[64:], m.before[:])
	copy(b[104:], m.after[:])
	be.PutUint32(b[144:], crc32.Checksum(b[:144], castagnoli))
	return b
}

func (m *mark) decode(b []byte) bool {
	if len(b) < markUsed || string(b[:8]) != markMagic || crc32.Checksum(b[:144], castagnoli) != be.Uint32(b[144:]) {
		return false
	}
	m.seq = be.Uint64(b[8:])
	m.end = message.LogOffset(be.Uint64(b[16:]))
	m.recAt = message.LogOffset(be.Uint64(b[24:]))
	m.recSize = int32(be.Uint32(b[32:]))
	m.recCRC = be.Uint32(b[36:])
	m.storeMillis = int64(be.Uint64(b[40:]))
	m.indexEnd = message.LogOffset(be.Uint64(b[48:]))
	m.queues = int64(be.Uint64(b[56:]))
	copy(m.before[:], b[64:])
	copy(m.after[:], b[104:])
	return true
}

// markFile is dispatch.mark and the checkpoint, which are written together.
// One goroutine at a time: recovery, then the sweeper, then Close.
type markFile struct {
	slots *fixedFile
	check *fixedFile
	last  mark       // what the newest slot holds
	ok    bool       // last was read from a valid slot, or written
	cp    checkpoint // what the checkpoint file holds
	raw   [checkpointUsed]byte
}

func openMark(fsys vfs.FS, dir string) (m *markFile, err error) {
	m = &markFile{}
	if m.slots, err = openFixed(fsys, filepath.Join(dir, markName), 2*markSlotBytes); err != nil {
		return nil, err
	}
	if m.check, err = openFixed(fsys, filepath.Join(dir, "checkpoint"), checkpointBytes); err != nil {
		return nil, errors.Join(err, m.slots.f.Close())
	}
	if err = m.read(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *markFile) read() error {
	if _, err := m.check.f.ReadAt(m.raw[:], 0); err != nil {
		return fmt.Errorf("read %s: %w", m.check.f.Name(), err)
	}
	m.cp.decode(&m.raw)
	slots := make([]byte, 2*markSlotBytes)
	n, err := m.slots.f.ReadAt(slots, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", m.slots.f.Name(), err)
	}
	m.last, m.ok = newestMark(slots[:n])
	return nil
}

// newestMark gives the mark of the newest slot that is whole, from the bytes of
// the file.
func newestMark(slots []byte) (newest mark, ok bool) {
	for ; len(slots) > 0; slots = slots[min(markSlotBytes, len(slots)):] {
		var x mark
		if x.decode(slots) && (!ok || x.seq > newest.seq) {
			newest, ok = x, true
		}
	}
	return newest, ok
}

// ours says whether the checkpoint is one that we wrote beside the mark.
func (m *markFile) ours() bool {
	return bytes.Equal(m.raw[:], m.last.before[:]) || bytes.Equal(m.raw[:], m.last.after[:])
}

// advance writes the mark p and the checkpoint cp, durably. Nothing is written
// when both are what is there already.
func (m *markFile) advance(p point, recCRC uint32, indexEnd message.LogOffset, cp checkpoint) error {
	after := cp.encode()
	if m.ok && p == m.last.point && after == m.raw && indexEnd == m.last.indexEnd {
		return nil
	}
	x := mark{point: p, seq: m.last.seq + 1, recCRC: recCRC, indexEnd: indexEnd, before: m.raw, after: after}
	b := x.encode()
	if err := m.slots.write(b[:], int64(x.seq%2)*markSlotBytes); err != nil {
		return err
	}
	m.last, m.ok = x, true
	if after == m.raw {
		return nil
	}
	if err := m.check.write(after[:], 0); err != nil {
		return err
	}
	m.raw, m.cp = after, cp
	return nil
}

func (m *markFile) close() error {
	return errors.Join(m.slots.f.Close(), m.check.f.Close())
}

// A DurableMark is what the dispatch mark of a store says of it.
type DurableMark struct {
	Dispatched message.LogOffset // every record below has its entries in ConsumeQueues on the disk
	Indexed    message.LogOffset // every record below is in the key index
	Queues     int64             // ConsumeQueues that have had an entry
}

// ReadMark reads the dispatch mark of the store in dir as it lies there, for
// tools; ok is false where there is none, or none that is whole. It changes
// nothing.
func ReadMark(fsys vfs.FS, dir string) (m DurableMark, ok bool, err error) {
	b, err := fsys.ReadFile(filepath.Join(dir, markName))
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err
	}
	newest, ok := newestMark(b[:min(len(b), 2*markSlotBytes)])
	return DurableMark{Dispatched: newest.end, Indexed: newest.indexEnd, Queues: newest.queues}, ok, nil
}
