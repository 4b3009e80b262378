package inspect

import (
	"errors"
	"fmt"
	"io"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

const (
	// chunkBytes is what is read of the log at a time, chunksAhead how many
	// such pieces may wait for the one that looks at them.
	chunkBytes  = 4 << 20
	chunksAhead = 3
)

// A logReader gives the bytes of one segment in order, read ahead by a
// goroutine that ends at the segment's end or at close.
type logReader struct {
	chunks chan chunk
	free   chan []byte
	stop   chan struct{}

	base int64  // of the segment
	at   int64  // position of buf[0] in the segment
	buf  []byte // not consumed yet
	room []byte // the chunk that buf is a part of; nil when it is joined
	join []byte // holds what crosses two chunks
	err  error  // ends what comes
}

type chunk struct {
	b   []byte
	err error
}

// openSegment begins to read a file at start, of size bytes altogether.
func openSegment(f vfs.File, base, start, size int64) *logReader {
	r := &logReader{at: start, chunks: make(chan chunk, chunksAhead), free: make(chan []byte, chunksAhead+2), stop: make(chan struct{}), base: base}
	go func() {
		defer close(r.chunks)
		for off := start; off < size; {
			var b []byte
			select {
			case b = <-r.free:
			default:
				b = make([]byte, chunkBytes)
			}
			b = b[:min(int64(chunkBytes), size-off)]
			n, err := f.ReadAt(b, off)
			if n == len(b) || errors.Is(err, io.EOF) {
				err = nil
			}
			select {
			case r.chunks <- chunk{b[:n], err}:
			case <-r.stop:
				return
			}
			if err != nil || n < len(b) {
				return
			}
			off += int64(n)
		}
	}()
	return r
}

// close ends the goroutine and waits for it.
func (r *logReader) close() {
	close(r.stop)
	for range r.chunks {
	}
}

// peek gives at least n bytes from the place of the reader on, fewer only at
// the segment's end. They are valid until the next call.
func (r *logReader) peek(n int) ([]byte, error) {
	for len(r.buf) < n && r.err == nil {
		c, ok := <-r.chunks
		if !ok {
			r.err = io.EOF
			break
		}
		if c.err != nil {
			r.err = fmt.Errorf("at %d: %w", r.base+r.at+int64(len(r.buf)), c.err)
			break
		}
		if len(r.buf) == 0 {
			r.giveBack()
			r.buf, r.room = c.b, c.b
			continue
		}
		joined := append(append(r.join[:0:cap(r.join)], r.buf...), c.b...)
		r.giveBack()
		r.free <- c.b[:cap(c.b)]
		r.join, r.buf = joined, joined
	}
	if len(r.buf) >= n || errors.Is(r.err, io.EOF) {
		return r.buf, nil
	}
	return r.buf, r.err
}

func (r *logReader) giveBack() {
	if r.room != nil {
		r.free <- r.room[:cap(r.room)]
		r.room = nil
	}
}

func (r *logReader) skip(n int) {
	r.buf = r.buf[n:]
	r.at += int64(n)
}

// next gives the record, or the blank, at the reader's place, and moves on to
// behind it. Errors are message.Check's, with what is there left unread, or the
// disk's.
func (r *logReader) next(crc bool) (rec []byte, blank bool, err error) {
	at := message.LogOffset(r.base + r.at)
	b, err := r.peek(message.BlankBytes)
	if err != nil {
		return nil, false, err
	}
	if len(b) < message.BlankBytes {
		return nil, false, io.EOF
	}
	if m := message.Magic(b); m == message.MagicV1 || m == message.MagicV2 {
		if n := message.Size(b); int(n) > len(b) && n <= recordBytesMax {
			if b, err = r.peek(int(n)); err != nil {
				return nil, false, err
			}
		}
	}
	n, blank, err := message.Check(b, at, crc)
	if err != nil || blank {
		return nil, blank, err
	}
	rec = b[:n:n]
	r.skip(n)
	return rec, false, nil
}

// recordBytesMax is more than any record may have: a longer one is damage.
const recordBytesMax = 64 << 20

// resync looks for the next record behind damage: bytes that have a record's
// magic and say that they stand where they stand. It says how much it passed
// over, and whether it found one before the segment's end.
func (r *logReader) resync() (passed int64, found bool, err error) {
	const head = message.MinBytes
	began := r.at
	for {
		b, err := r.peek(chunkBytes)
		if err != nil {
			return r.at - began, false, err
		}
		for i := 1; i+head <= len(b); i++ {
			m := message.Magic(b[i:])
			if (m == message.MagicV1 || m == message.MagicV2) && int64(message.PhysicalOffsetOf(b[i:])) == r.base+r.at+int64(i) {
				r.skip(i)
				return r.at - began, true, nil
			}
		}
		if len(b) < chunkBytes { // the segment's end
			r.skip(len(b))
			return r.at - began, false, nil
		}
		r.skip(len(b) - head)
	}
}
