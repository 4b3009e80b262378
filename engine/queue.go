package engine

import "sync/atomic"

// putQueue is how batches get from any goroutine to the appender: a stack that
// is pushed by one compare-and-swap and taken whole by one swap, so neither
// end ever waits for the other. It holds no more than the bytes in flight
// allow, which Put sees to.
type putQueue struct {
	head atomic.Pointer[Batch]
	wake chan struct{} // buffered 1: the queue was empty and is not
}

// shut is the head of a queue that takes no more.
var shut = new(Batch)

// push puts b at the end; false when the queue is shut.
func (q *putQueue) push(b *Batch) bool {
	for {
		old := q.head.Load()
		if old == shut {
			return false
		}
		b.next = old
		if !q.head.CompareAndSwap(old, b) {
			continue
		}
		if old == nil {
			select {
			case q.wake <- struct{}{}:
			default:
			}
		}
		return true
	}
}

// takeAll takes what is there, first come first; nil when there is nothing or
// the queue is shut.
func (q *putQueue) takeAll() *Batch {
	if h := q.head.Load(); h == nil || h == shut {
		return nil
	}
	return reverse(q.head.Swap(nil))
}

// shutDown takes what is there and lets nothing in any more. It is called once,
// by the goroutine that takes.
func (q *putQueue) shutDown() *Batch { return reverse(q.head.Swap(shut)) }

func reverse(b *Batch) *Batch {
	var r *Batch
	for b != nil {
		next := b.next
		b.next = r
		r, b = b, next
	}
	return r
}

// A batchList is a list through Batch.next.
type batchList struct{ first, last *Batch }

func (l *batchList) add(b *Batch) {
	b.next = nil
	if l.last == nil {
		l.first = b
	} else {
		l.last.next = b
	}
	l.last = b
}
