package engine

import (
	"errors"
	"io"

	"github.com/ringmq/ringmq/message"
)

// Scan calls fn with each visible record from the log offset from on, in log
// order, until fn returns an error, which Scan returns, or the records end as
// of the call. A record must begin at from; offsets before the log's first
// count as that. rec is valid until fn returns. It blocks on the disk; any
// goroutine.
func (s *Store) Scan(from message.LogOffset, fn func(off message.LogOffset, rec []byte) error) error {
	scanner := s.log.Scan(max(from, s.log.Min()), s.visible(), false)
	for {
		off, rec, err := scanner.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(off, rec); err != nil {
			return err
		}
	}
}
