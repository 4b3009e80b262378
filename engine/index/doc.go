// Package index answers one question: where in the log are the records that
// carry a key?
//
// The bytes are Apache RocketMQ's (IndexFile, 5.3). A file is a hash table for
// 20 million entries, named by the local time it was made at, sparse until
// used:
//
//	index/<yyyyMMddHHmmssSSS>      40 + 4·slots + 20·entries = 420,000,040 bytes
//	+--------+--------------------------+---------------------------------+
//	| header | slot 0, slot 1, ...      | entry 0 (unused), entry 1, ...  |
//	+--------+--------------------------+---------------------------------+
//
//	header, 40 bytes   begin millis 8, end millis 8, begin log offset 8, end log offset 8,
//	                   slots used 4, next entry number 4
//	slot, 4 bytes      number of the newest entry of this bucket, 0 for none
//	entry, 20 bytes    key hash 4, log offset 8, seconds since begin 4, previous entry of the bucket 4
//
// All big-endian. The key is topic#key, its hash Java's String.hashCode made
// positive, its bucket the hash modulo the slots. Only hashes are compared, so
// who asks must look at the records' keys.
//
// # Memory and order of writes
//
// Nothing is mapped: a full disk must be an error, not a signal. Of the newest
// file the slots (20 MB) and the latest entries are in memory, from the first
// Put on; Sweep writes entries, syncs, writes the header, and syncs again.
// Every so many entries, when a file is full, and at Close the changed pages of
// the slots go out between the two. So after a crash the header's count says
// which entries are there, and the slots, if behind, are made again from them:
// at most those since the last multiple of Config.SlotEvery, or all, when slots
// tell of entries the header does not. Apache's broker after our crash sees the
// abort file and deletes the newest file, as it does after its own.
//
// # Goroutines
//
// The package starts none. Put belongs to the dispatcher; Query to anyone, it
// waits for disks; Sweep, DeleteBelow, TruncateAbove to anyone, one after the
// other. Locks, in the order they are taken: sweepMu (held across disk work),
// writeMu (who writes entries of the newest file), mu (memory only), fdMu.
package index
