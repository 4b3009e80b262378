package engine

import (
	"context"

	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/message"
)

// Store: signatures first; bodies move to their own files.
type Store struct{}

// Open opens or creates the store in cfg.Dir, recovers it and starts its goroutines.
func Open(cfg Config) (*Store, error) { return nil, nil }

// Close: no more puts; waits for what is in flight, flushes, leaves a store Java opens.
func (s *Store) Close(ctx context.Context) error { return nil }

// Put: any goroutine; never blocks.
func (s *Store) Put(b *Batch) {}

// Admit says whether bytes more may be put: nil or *Refusal.
func (s *Store) Admit(bytes int) error { return nil }

// Get: any goroutine; with req.Cold it may wait for the disk.
func (s *Store) Get(req *GetRequest, res *GetResult) {}

// Queue finds or makes a queue; FindQueue gives nil where there is none.
func (s *Store) Queue(topic string, id int32) *consumequeue.Queue     { return nil }
func (s *Store) FindQueue(topic string, id int32) *consumequeue.Queue { return nil }

// ByOffset copies the record at off (checked to be one). ErrNoRecord.
func (s *Store) ByOffset(off message.LogOffset) ([]byte, error) { return nil, nil }

// QueryByKey: records of topic whose UNIQ_KEY or one of KEYS is key, stored in [begin, end] ms.
func (s *Store) QueryByKey(topic, key string, max int, begin, end int64) (recs [][]byte, lastMillis int64, lastOffset message.LogOffset, err error) {
	return nil, 0, 0, nil
}

// OffsetByTime, EarliestMillis: may wait for the disk.
func (s *Store) OffsetByTime(q *consumequeue.Queue, millis int64, upper bool) (message.QueueOffset, error) {
	return 0, nil
}
func (s *Store) EarliestMillis(q *consumequeue.Queue) (int64, error) { return -1, nil }

// StoreMillisAt: store time of the record at a queue's offset, -1 if none (pull statistics, consume lag).
func (s *Store) StoreMillisAt(q *consumequeue.Queue, off message.QueueOffset) (int64, error) {
	return -1, nil
}

// DeleteTopic removes the queues of topic; may wait for the disk.
func (s *Store) DeleteTopic(topic string) error { return nil }

// Writable: false with a reason in words (closed log, full disk).
func (s *Store) Writable() (bool, string) { return true, "" }

// Marks are the places the log's workers have reached.
type Marks struct{ Min, Written, Durable, Dispatched message.LogOffset }

func (s *Store) Marks() Marks { return Marks{} }

// Stats is a snapshot for metrics.
type Stats struct{}

func (s *Store) Stats() Stats { return Stats{} }
