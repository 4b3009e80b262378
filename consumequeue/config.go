package consumequeue

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/bits"
	"path/filepath"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// TrustAll as Config.Trust: the store was stopped cleanly. TrustNothing: no
// entry is known to be durable, all are built again.
const (
	TrustAll     = message.LogOffset(math.MaxInt64)
	TrustNothing = message.LogOffset(-1)
)

// A Config says where the queues are and how much they may hold. Zero values
// mean the defaults named with each field.
type Config struct {
	FS  vfs.FS // default vfs.OS()
	Dir string // <storePathRootDir>/consumequeue; required; made when missing

	FileBytes int64 // mappedFileSizeConsumeQueue; bytes, a multiple of 20; default 6,000,000

	BatchDir       string // <storePathRootDir>/batchconsumequeue; default that beside Dir; made with its first file
	BatchFileBytes int64  // mapperFileSizeBatchConsumeQueue; bytes, a multiple of 46; default 13,800,000
	// BatchTopic says whether the queues of a topic are batch queues; known is
	// false for a topic that nobody knows, whose files or records then tell.
	// Default: nothing is known. It is called when a queue is loaded or made,
	// with locks held: it must not call the Set.
	BatchTopic func(topic string) (batch, known bool)

	// Trust says what of the files may be believed at Open. Entries of records
	// below this log offset are known to be durable; entries at or above it are
	// dropped, and the caller dispatches the log again from here. TrustAll
	// after a clean stop. 0, nothing is known: each queue is walked from its
	// third-last file to the first invalid unit, as Apache's broker does.
	Trust message.LogOffset

	OpenFilesMax   int   // descriptors held open; 16 or more; default 1024
	TailEntriesMax int   // entries in memory per active queue, rounded up to a power of two; default 512
	TailBytesMax   int64 // bytes of all tails beyond which tails do not grow and idle ones go first; default 64 MiB
	IdleSweeps     int   // sweeps without a Put after which a tail is given up; default 60
	LoadParallel   int   // goroutines of Open; default 16
	SyncParallel   int   // syncs of Sweep under way at once; default 32

	Logger *slog.Logger // default slog.Default()
}

// ErrConfig is wrapped by the error for a Config that makes no sense, a store
// with files of another size among them.
var ErrConfig = errors.New("bad ConsumeQueue configuration")

// tailEntriesMin is the first size of a tail.
const tailEntriesMin = 16

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// complete fills in defaults and refuses what makes no sense.
func (c *Config) complete() error {
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	orDefault(&c.FileBytes, 300_000*EntryBytes)
	orDefault(&c.BatchDir, filepath.Join(filepath.Dir(c.Dir), "batchconsumequeue"))
	orDefault(&c.BatchFileBytes, 300_000*BatchUnitBytes)
	if c.BatchTopic == nil {
		c.BatchTopic = func(string) (batch, known bool) { return false, false }
	}
	orDefault(&c.OpenFilesMax, 1024)
	orDefault(&c.TailEntriesMax, 512)
	orDefault(&c.TailBytesMax, 64<<20)
	orDefault(&c.IdleSweeps, 60)
	orDefault(&c.LoadParallel, 16)
	orDefault(&c.SyncParallel, 32)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Dir == "":
		return fmt.Errorf("%w: Dir is empty", ErrConfig)
	case c.FileBytes < EntryBytes || c.FileBytes%EntryBytes != 0:
		return fmt.Errorf("%w: FileBytes (mappedFileSizeConsumeQueue) is %d, want a multiple of %d", ErrConfig, c.FileBytes, EntryBytes)
	case c.BatchFileBytes < BatchUnitBytes || c.BatchFileBytes%BatchUnitBytes != 0:
		return fmt.Errorf("%w: BatchFileBytes (mapperFileSizeBatchConsumeQueue) is %d, want a multiple of %d", ErrConfig, c.BatchFileBytes, BatchUnitBytes)
	case c.OpenFilesMax < 16:
		return fmt.Errorf("%w: OpenFilesMax is %d, want 16 or more", ErrConfig, c.OpenFilesMax)
	case c.TailEntriesMax < 1 || c.TailEntriesMax > 1<<20:
		return fmt.Errorf("%w: TailEntriesMax is %d, want 1 to %d", ErrConfig, c.TailEntriesMax, 1<<20)
	case c.Trust < TrustNothing || c.TailBytesMax < 0 || c.IdleSweeps < 1 || c.LoadParallel < 1 || c.SyncParallel < 1:
		return fmt.Errorf("%w: a negative bound", ErrConfig)
	}
	c.TailEntriesMax = 1 << bits.Len(uint(c.TailEntriesMax-1))
	return nil
}
