// Package commitlog answers one question: how do records get into the log, and
// out again by their offset?
//
// The log is one sequence of bytes, cut into segments of equal size (package
// internal/segment). Records (package message) stand back to back; none crosses
// a segment. Where the next one does not fit with 8 bytes to spare, the rest of
// the segment begins with a blank and the record starts the next segment:
//
//	…| record | record | left int32, 0xCBD43194, zeros …| record | …
//	                                                    ^ a multiple of SegmentBytes
//
// Written is the log's end for its readers. It only moves forward, after the
// bytes below it have been written.
//
// Goroutines: the log has none of its own beside the segment Set's preparer.
// There is one writer at a time: who holds the token (TryLock, Lock) appends.
// Reading is for any number of goroutines.
package commitlog
