package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// journalName is the file under config/ that Java ignores. See the package
// comment for its layout.
const journalName = "ringmq-progress.journal"

// journalMagic starts the file: "RMQJ", format 1.
const journalMagic = "RMQJ\x00\x00\x00\x01"

// Kinds of journal records.
const (
	recordBase       = 1 // a JSON file this journal continues
	recordCommit     = 2 // offsets of one topic@group
	recordForget     = 3 // one topic@group is gone
	recordDelay      = 4 // progress of the delay levels
	recordLock       = 5 // who holds a queue
	recordSubscriber = 7 // what a client subscribes
	recordReset      = 6 // offsets of one topic@group that were reset and not yet told to a consumer
	recordTimer      = 8 // progress of the timer
)

// journalHead is length and CRC in front of each record.
const journalHead = 8

// recordBytesMax bounds a record: a commit record is split far below it. A
// longer length is damage.
const recordBytesMax = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTornJournal ends a replay: what follows was never whole. It is expected
// after a crash, and cut.
var errTornJournal = errors.New("torn journal record")

// A fingerprint names the content of one saved JSON file. A journal tells by
// it whether the file beside it is the one it continues, or was written later
// by a Java broker (or by hand). DataVersion can't tell: Apache moves it only
// with every 500th commit, so a short run of Java changes offsets under the
// same version.
type fingerprint struct {
	bytes uint64
	crc   uint32
}

func fingerprintOf(content []byte) fingerprint {
	return fingerprint{bytes: uint64(len(content)), crc: crc32.Checksum(content, castagnoli)}
}

// Files a base record can name.
const (
	fileOffsets = 1 // consumerOffset.json
	fileDelay   = 2 // delayOffset.json
	fileTimer   = 3 // timercheck
)

// beginRecord reserves the head of a record and writes its kind.
func beginRecord(dst []byte, kind byte) (out []byte, start int) {
	start = len(dst)
	dst = append(dst, make([]byte, journalHead)...)
	return append(dst, kind), start
}

// endRecord fills the head in.
func endRecord(dst []byte, start int) []byte {
	payload := dst[start+journalHead:]
	binary.BigEndian.PutUint32(dst[start:], uint32(len(payload)))
	binary.BigEndian.PutUint32(dst[start+4:], crc32.Checksum(payload, castagnoli))
	return dst
}

func appendBase(dst []byte, file byte, f fingerprint) []byte {
	dst, start := beginRecord(dst, recordBase)
	dst = append(dst, file)
	dst = binary.BigEndian.AppendUint64(dst, f.bytes)
	dst = binary.BigEndian.AppendUint32(dst, f.crc)
	return endRecord(dst, start)
}

func appendForget(dst []byte, key string) []byte {
	dst, start := beginRecord(dst, recordForget)
	dst = append(dst, key...)
	return endRecord(dst, start)
}

// appendCommit writes the given queue offsets of one key, those that are pending
// resets as such.
func appendCommit(dst []byte, key string, qs []queueOffset) []byte {
	pending := func(q queueOffset) bool { return q.reset }
	if slices.ContainsFunc(qs, pending) {
		resets := slices.DeleteFunc(slices.Clone(qs), func(q queueOffset) bool { return !q.reset })
		dst = appendQueues(dst, recordReset, key, resets)
		qs = slices.DeleteFunc(slices.Clone(qs), pending)
	}
	return appendQueues(dst, recordCommit, key, qs)
}

func appendQueues(dst []byte, kind byte, key string, qs []queueOffset) []byte {
	const queuesMax = 4096 // keeps a record far below recordBytesMax
	for chunk := range slices.Chunk(qs, queuesMax) {
		var start int
		dst, start = beginRecord(dst, kind)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(key)))
		dst = append(dst, key...)
		for _, q := range chunk {
			dst = binary.BigEndian.AppendUint32(dst, uint32(q.id))
			dst = binary.BigEndian.AppendUint64(dst, uint64(q.offset))
		}
		dst = endRecord(dst, start)
	}
	return dst
}

func appendDelay(dst []byte, p DelayProgress) []byte {
	dst, start := beginRecord(dst, recordDelay)
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.ScanFrom))
	for _, level := range sortedKeys(p.Next) {
		dst = binary.BigEndian.AppendUint32(dst, uint32(level))
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.Next[level]))
	}
	return endRecord(dst, start)
}

// A replay takes the records of a journal in their order.
type replay interface {
	base(file byte, f fingerprint)
	commit(key string, queue int32, offset int64)
	reset(key string, queue int32, offset int64)
	forget(key string)
	delay(p DelayProgress)
	lock(key LockKey, clientID string)
	subscriber(key SubscriberKey, s Subscriber)
	timer(p TimerProgress)
}

// replayJournal hands the records of b to r, and says how many bytes are whole.
// The error is errTornJournal, wrapped with what is wrong where, when bytes
// remain.
func replayJournal(b []byte, r replay) (whole int, err error) {
	if len(b) < len(journalMagic) || string(b[:len(journalMagic)]) != journalMagic {
		return 0, fmt.Errorf("%w at 0: got %q, want %q", errTornJournal, b[:min(len(b), len(journalMagic))], journalMagic)
	}
	at := len(journalMagic)
	for at < len(b) {
		rest := b[at:]
		if len(rest) < journalHead {
			return at, fmt.Errorf("%w at %d: %d bytes left, want %d", errTornJournal, at, len(rest), journalHead)
		}
		n := int(binary.BigEndian.Uint32(rest))
		if n < 1 || n > recordBytesMax || n > len(rest)-journalHead {
			return at, fmt.Errorf("%w at %d: length %d, %d bytes left", errTornJournal, at, n, len(rest)-journalHead)
		}
		payload := rest[journalHead : journalHead+n]
		if got, want := crc32.Checksum(payload, castagnoli), binary.BigEndian.Uint32(rest[4:]); got != want {
			return at, fmt.Errorf("%w at %d: crc %08x, want %08x", errTornJournal, at, got, want)
		}
		if err := replayRecord(payload, r); err != nil {
			return at, fmt.Errorf("%w at %d: %w", errTornJournal, at, err)
		}
		at += journalHead + n
	}
	return at, nil
}

func replayRecord(payload []byte, r replay) error {
	kind, b := payload[0], payload[1:]
	switch kind {
	case recordBase:
		if len(b) != 13 {
			return fmt.Errorf("base of %d bytes, want 13", len(b))
		}
		r.base(b[0], fingerprint{bytes: binary.BigEndian.Uint64(b[1:]), crc: binary.BigEndian.Uint32(b[9:])})
	case recordForget:
		r.forget(string(b))
	case recordCommit:
		return replayCommit(b, r.commit)
	case recordReset:
		return replayCommit(b, r.reset)
	case recordDelay:
		return replayDelay(b, r)
	case recordLock:
		return replayLock(b, r)
	case recordSubscriber:
		return replaySubscriber(b, r)
	case recordTimer:
		return replayTimer(b, r)
	default:
		return fmt.Errorf("kind %d is not known", kind)
	}
	return nil
}

func replayCommit(b []byte, each func(key string, queue int32, offset int64)) error {
	if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
		return fmt.Errorf("commit of %d bytes, too short for its key", len(b))
	}
	n := int(binary.BigEndian.Uint16(b))
	key, b := string(b[2:2+n]), b[2+n:]
	if len(b)%12 != 0 {
		return fmt.Errorf("commit with %d bytes of offsets, want a multiple of 12", len(b))
	}
	for ; len(b) > 0; b = b[12:] {
		each(key, int32(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint64(b[4:])))
	}
	return nil
}

func replayDelay(b []byte, r replay) error {
	if len(b) < 8 || (len(b)-8)%12 != 0 {
		return fmt.Errorf("delay progress of %d bytes, want 8 and a multiple of 12", len(b))
	}
	p := DelayProgress{ScanFrom: int64(binary.BigEndian.Uint64(b)), Next: map[int32]int64{}}
	for b = b[8:]; len(b) > 0; b = b[12:] {
		p.Next[int32(binary.BigEndian.Uint32(b))] = int64(binary.BigEndian.Uint64(b[4:]))
	}
	r.delay(p)
	return nil
}
