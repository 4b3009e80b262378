// Package pop keeps what consumer groups have popped: for each group and queue
// where the next pop begins, which messages are in flight and until when, and
// the last batch popped in order. It knows no messages and no wire; package
// broker pops, answers and puts on retry topics what nobody acknowledged.
//
// A pop costs one small record of the journal, an acknowledgement some twenty
// bytes; they are written, not synced, before they are answered (AfterWrite),
// many with one write, and synced every second (at once by Fit and Sync). So nothing that was answered is
// forgotten when the process is killed. When the machine loses power the last
// second may be: its messages are delivered again, never lost, since what
// the journal forgets is that they were popped or acknowledged.
//
// One goroutine, the journal's, owned by Table, whose Close waits for it; it
// starts a helper for each sync and each snapshot, and waits for it.
//
// Two files under config/, ringmq-pop-a.journal and ringmq-pop-b.journal, take
// turns; Java ignores them. Numbers of the heads are big-endian, those of
// operations zigzag varints (v), texts a varint length and bytes (s):
//
//	file     "RMQP" 00 00 00 01 | turn int64 | frame...
//	frame    length of payload int32 | CRC-32C of payload int32 | operation...
//
//	1 queue  v id | v queueId | v next | v floor | s topic | s group: what id means; all known of it before is void
//	2 take   v id | v start | v popTime | v invisible | v next-start | v live bits | v n | v contiguous | n × v diff unless contiguous
//	3 skip   v id | v next
//	4 ack    v id | v start | v popTime | v offset: acknowledged, or on its retry topic
//	5 change v id | v start | v popTime | v offset | v new popTime | v new invisible
//	6 reset  v id | v next
//	7 order  v id | v next | v popTime | v invisible | v acked bits | v n | n × (v offset-first | v count | v visible) | v first | s attemptId
//	8 drop   v id
//	9 cursor v log offset
//	10 end
//
// A file begins with a snapshot, queue by queue, and what happened meanwhile;
// `end` says that this is complete. The file with the higher turn that has it
// is read at start, its torn tail cut. When it has grown long, the other one is
// begun.
package pop
