// Package consumequeue answers one question: where in the log is the n-th
// message of a queue?
//
// A Queue is the list of the records of one (topic, queueId); a Set holds all
// queues of a store. The bytes are Apache RocketMQ's (ConsumeQueue, 5.3):
//
//	consumequeue/<topic>/<queueId>/<20 digits>   the name is the byte offset of the file in its queue
//
//	file of 6,000,000 bytes, pre-sized, unwritten units are zeros
//	+--------+--------+--------+-- ... --+
//	| unit 0 | unit 1 | unit 2 |         |     unit n of a queue stands at byte 20·n
//	+--------+--------+--------+-- ... --+
//
//	unit of 20 bytes, big-endian
//	+--------------------+---------------+--------------------+
//	| log offset   int64 | size    int32 | tags code    int64 |
//	+--------------------+---------------+--------------------+
//
// A unit is valid when its log offset is not negative and its size is positive.
// When the first file of a queue does not begin with the queue's first message,
// the units before it are fillers (0, 0x7FFFFFFF, 0); a filler also stands for
// an offset that dispatch never saw.
//
// The queues of a topic with queue.type=BatchCQ are batch queues: a record may
// hold several messages, and a unit stands for all of them (BatchConsumeQueue,
// 5.3):
//
//	batchconsumequeue/<topic>/<queueId>/<20 digits>   files of 13,800,000 bytes
//
//	unit of 46 bytes: log offset 8, size 4, tags code 8, store time 8,
//	offset of the first message 8, count of messages 2, -1 4, 0 4
//
// They have the same methods and, inside, the same machinery, which numbers
// units; only offsets, which count messages, are kept and searched beside it
// (batchMarks). They need no fillers: each unit says where it stands.
//
// # Memory first
//
// Files are not mapped: a store has up to 80,000 queues, more than a process
// may map or open. Put appends to a ring in memory, the queue's tail, from
// which hot reads are answered; Sweep writes the tails of all queues that
// changed and syncs their files, many at once. A tail keeps its newest entries
// after they were written, until the queue has been idle for a while. When a
// tail is full of unwritten entries, Put writes them itself (without a sync),
// so memory stays bounded. Everything here can be built again from the log, so
// an entry needs to be durable only when the dispatch mark moves past it.
//
// # Goroutines
//
// The package starts none that outlive a call. Put belongs to one goroutine at
// a time, the dispatcher; Assign to the holder of the log's write token; Read
// to anyone; Sweep, TruncateAbove, CorrectMin, DeleteBelow and DeleteTopic to
// anyone, one after the other. Locks, in the order they are taken:
//
//	Set.sweepMu    sweeps and structural changes, held across disk work
//	Set.fileLocks  one of a few by queue: who writes this queue's files
//	Queue.mu       the tail and the marks, never held across disk work
//	files.mu, dirMu, dirtyMu, shard.mu   leaves
package consumequeue
