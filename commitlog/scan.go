package commitlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/ringmq/ringmq/message"
)

// scanBytes is what a Scanner reads at a time.
const scanBytes = 1 << 20

// A Scanner reads records in log order. It is for one goroutine; it blocks on
// the disk.
type Scanner struct {
	log  *Log
	at   int64 // log offset of the next record
	end  int64 // log offset to stop at
	crc  bool
	buf  []byte // what was read: the log's bytes from bufAt on
	room []byte
	from int64 // log offset of buf[0]
}

// Scan reads records from the offset from, which must be where a record
// begins, up to to. With crc each body is checked against its CRC.
func (l *Log) Scan(from, to message.LogOffset, crc bool) *Scanner {
	return &Scanner{log: l, at: int64(from), end: int64(to), crc: crc}
}

// Reset lets s scan another range with the buffer it has.
func (s *Scanner) Reset(from, to message.LogOffset) {
	s.at, s.end, s.buf = int64(from), int64(to), nil
}

// Next returns the next record and its offset; the bytes are valid until the
// next call. Blanks are passed over. It returns io.EOF at the end of the range
// or of the last segment, a message.ErrTorn where no valid record stands, and
// other errors from reading. After an error At is where it stopped.
func (s *Scanner) Next() (message.LogOffset, []byte, error) {
	for {
		if s.at >= s.end {
			return 0, nil, io.EOF
		}
		segEnd := s.log.segmentEnd(s.at)
		b, err := s.fill(message.BlankBytes, segEnd)
		if err != nil {
			return 0, nil, err
		}
		if message.Magic(b) == message.MagicBlank {
			if !s.log.has(segEnd) {
				return 0, nil, io.EOF // the blank was the last that was written
			}
			s.at = segEnd
			continue
		}
		if n := int64(message.Size(b)); n > int64(len(b)) && n <= segEnd-s.at && s.isRecord(b) {
			if b, err = s.fill(int(n), segEnd); err != nil {
				return 0, nil, err
			}
		}
		n, _, err := message.Check(b, message.LogOffset(s.at), s.crc)
		if err != nil {
			return 0, nil, err
		}
		at := s.at
		s.at += int64(n)
		return message.LogOffset(at), b[:n:n], nil
	}
}

func (s *Scanner) isRecord(b []byte) bool {
	m := message.Magic(b)
	return m == message.MagicV1 || m == message.MagicV2
}

// At is the offset of the next record, or of what stopped the scan.
func (s *Scanner) At() message.LogOffset { return message.LogOffset(s.at) }

// Back undoes the last Next: its record was not wanted.
func (s *Scanner) Back(at message.LogOffset) { s.at = int64(at) }

// fill makes at least n bytes from s.at available and returns all that is. A
// range that ends before gives what there is when that is not nothing.
func (s *Scanner) fill(n int, segEnd int64) ([]byte, error) {
	if have := s.from + int64(len(s.buf)) - s.at; s.at >= s.from && have >= int64(n) {
		return s.buf[s.at-s.from:], nil
	}
	want := min(int64(max(n, scanBytes)), segEnd-s.at)
	if left := s.end - s.at; left >= int64(n) { // nothing behind the range is wanted
		want = min(want, left)
	}
	if int64(cap(s.room)) < want {
		s.room = make([]byte, max(want, scanBytes))
	}
	s.buf, s.from = s.room[:want], s.at
	got, err := s.log.set.ReadAt(s.buf, s.at)
	s.buf = s.buf[:got]
	if got >= n {
		return s.buf, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	return nil, fmt.Errorf("read CommitLog at %d: got %d bytes, want %d: %w", s.at, got, n, err)
}

// SkipMalformed passes over the bytes at At when they are a record by their
// size and magic, though not a valid one, and a valid record or a blank stands
// right behind: then the log goes on, and only this record is bad.
func (s *Scanner) SkipMalformed() bool {
	segEnd := s.log.segmentEnd(s.at)
	b, err := s.fill(message.BlankBytes, segEnd)
	if err != nil || !s.isRecord(b) {
		return false
	}
	n := int64(message.Size(b))
	if n < message.BlankBytes || s.at+n+message.BlankBytes > segEnd {
		return false
	}
	was := s.at
	s.at += n
	if b, err = s.fill(message.BlankBytes, segEnd); err == nil {
		if size := int64(message.Size(b)); size > int64(len(b)) && size <= segEnd-s.at {
			b, err = s.fill(int(size), segEnd)
		}
	}
	if err == nil {
		_, _, err = message.Check(b, message.LogOffset(s.at), true)
	}
	if err != nil {
		s.at = was
	}
	return err == nil
}
