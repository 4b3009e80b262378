package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/ringmq/ringmq/internal/vfs"
)

var be = binary.BigEndian

// checkpointBytes is the size of Apache's checkpoint file; only the first
// checkpointUsed bytes mean something, the rest is zero.
const (
	checkpointBytes = 4096
	checkpointUsed  = 40
)

// A checkpoint is Apache's (StoreCheckpoint, 5.3). We keep its fields true so
// that a Java broker may follow us; we ourselves read it only where our own
// dispatch mark is not to be trusted.
//
//	 0 physicMsgTimestamp int64  store time of the newest record known durable
//	 8 logicsMsgTimestamp int64  store time of the last durable ConsumeQueue entry
//	16 indexMsgTimestamp  int64  store time of the last durable index entry
//	24 masterFlushedOffset int64
//	32 confirmPhyOffset   int64  start of the last valid record, set by recovery
type checkpoint struct {
	PhysicMillis, LogicsMillis, IndexMillis int64
	MasterFlushed, ConfirmOffset            int64
}

func (c *checkpoint) encode() (b [checkpointUsed]byte) {
	be.PutUint64(b[0:], uint64(c.PhysicMillis))
	be.PutUint64(b[8:], uint64(c.LogicsMillis))
	be.PutUint64(b[16:], uint64(c.IndexMillis))
	be.PutUint64(b[24:], uint64(c.MasterFlushed))
	be.PutUint64(b[32:], uint64(c.ConfirmOffset))
	return b
}

func (c *checkpoint) decode(b *[checkpointUsed]byte) {
	c.PhysicMillis = int64(be.Uint64(b[0:]))
	c.LogicsMillis = int64(be.Uint64(b[8:]))
	c.IndexMillis = int64(be.Uint64(b[16:]))
	c.MasterFlushed = int64(be.Uint64(b[24:]))
	c.ConfirmOffset = int64(be.Uint64(b[32:]))
}

// fixedFile is a small file of fixed size that is written in place: its pieces
// fit a sector each and are checked by who reads them.
type fixedFile struct {
	f    vfs.File
	made bool // it was not there before
}

// openFixed opens name, making it durably with size zero bytes when it is
// missing or too short.
func openFixed(fsys vfs.FS, name string, size int64) (*fixedFile, error) {
	_, err := fsys.Stat(name)
	made := errors.Is(err, fs.ErrNotExist)
	if err != nil && !made {
		return nil, err
	}
	f, err := fsys.Open(name, vfs.ReadWrite|vfs.Create)
	if err != nil {
		return nil, err
	}
	n, err := f.Size()
	if err == nil && n < size {
		if err = f.Truncate(size); err == nil {
			err = f.Sync()
		}
		if err == nil {
			err = fsys.SyncDir(filepath.Dir(name))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare %s: %w", name, err), f.Close())
	}
	return &fixedFile{f: f, made: made}, nil
}

// write puts b at off and makes it durable.
func (x *fixedFile) write(b []byte, off int64) error {
	if _, err := x.f.WriteAt(b, off); err != nil {
		return fmt.Errorf("write %s: %w", x.f.Name(), err)
	}
	if err := x.f.SyncData(); err != nil {
		return &syncError{name: x.f.Name(), err: err}
	}
	return nil
}

// A syncError is a sync that failed. What it covered is unknown from then on,
// and no retry can tell, so it ends the store's writes.
type syncError struct {
	name string
	err  error
}

func (e *syncError) Error() string { return "sync " + e.name + ": " + e.err.Error() }
func (e *syncError) Unwrap() error { return e.err }
