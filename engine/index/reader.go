package index

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// KeyHash is the hash under which the index files have topic#key.
func KeyHash(topic, key []byte) int32 { return keyHash(topic, key) }

// FileNames gives the index files of a directory in their order; none where
// there is no such directory.
func FileNames(fsys vfs.FS, dir string) (names []string, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir && isName(e.Name) {
			names = append(names, filepath.Join(dir, e.Name))
		}
	}
	slices.SortFunc(names, strings.Compare)
	return names, nil
}

// A FileReader reads the entries of one index file in their order, without an
// Index, for tools. One goroutine; Close it.
type FileReader struct {
	header
	f       vfs.File
	name    string
	entries int64 // offset of entry 0
	next    int32 // number of the entry that buf begins with
	buf     []byte
	room    []byte
}

// OpenFile opens an index file made with so many slots and entries. ErrDamaged
// where its length or its header can't be.
func OpenFile(fsys vfs.FS, name string, slots, entries int) (*FileReader, error) {
	f, err := fsys.Open(name, vfs.Read)
	if err != nil {
		return nil, err
	}
	r := &FileReader{f: f, name: name, next: 1, entries: headerBytes + slotBytes*int64(slots)}
	want := r.entries + entryBytes*int64(entries)
	size, err := f.Size()
	if err == nil && size != want {
		err = fmt.Errorf("%w: %d bytes long, want %d for %d slots and %d entries", ErrDamaged, size, want, slots, entries)
	}
	var b [headerBytes]byte
	if err == nil {
		err = readFull(f, b[:], 0)
	}
	if err == nil {
		if r.decode(b[:]); int(r.count) > entries || r.endLog < r.beginLog {
			err = fmt.Errorf("%w: its header says %d entries of %d, log offsets %d to %d", ErrDamaged, r.count, entries, r.beginLog, r.endLog)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// Name is the path of the file.
func (r *FileReader) Name() string { return r.name }

// Count is the number of entries by the file's header.
func (r *FileReader) Count() int { return int(r.count) - 1 }

// Span is the log offsets of the first and the last record in it, by its
// header.
func (r *FileReader) Span() (first, last message.LogOffset) {
	return message.LogOffset(r.beginLog), message.LogOffset(r.endLog)
}

// Next gives the next entry, and ok false behind the last one.
func (r *FileReader) Next() (hash int32, off message.LogOffset, ok bool, err error) {
	if r.next >= r.count {
		return 0, 0, false, nil
	}
	if len(r.buf) == 0 {
		n := min(int(r.count-r.next), readerBytes/entryBytes) * entryBytes
		if r.room == nil {
			r.room = make([]byte, readerBytes)
		}
		if err := readFull(r.f, r.room[:n], r.entries+entryBytes*int64(r.next)); err != nil {
			return 0, 0, false, fmt.Errorf("read %s: %w", r.name, err)
		}
		r.buf = r.room[:n]
	}
	e := decodeEntry(r.buf)
	r.buf = r.buf[entryBytes:]
	r.next++
	return e.hash, message.LogOffset(e.log), true, nil
}

// readerBytes is what a FileReader reads at a time; a multiple of an entry.
const readerBytes = 64 << 10 / entryBytes * entryBytes

// Close closes the file.
func (r *FileReader) Close() error { return r.f.Close() }
