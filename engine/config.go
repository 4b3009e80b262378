package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/ringmq/ringmq/commitlog"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/flush"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// Events tells the room above what happened. All methods are called on the
// store's goroutines or inside Put; they must be short, must not block, and of
// the Store may call nothing but Put, Get, Marks and Writable.
type Events interface {
	// Arrived says that q, which had waiters (q.Waiters > 0), has new visible
	// entries. It comes before the PutDone of the batch that brought them.
	Arrived(q *consumequeue.Queue)
	// Closed says, once, that a failed write or sync has closed the log for
	// writes for good. Reads go on.
	Closed(err error)
}

// A Config says where a store lives and how it behaves. Zero values mean the
// defaults named with each field.
type Config struct {
	FS           vfs.FS // default vfs.OS()
	Dir          string // storePathRootDir; required
	CommitLogDir string // storePathCommitLog; default Dir/commitlog

	SegmentBytes      int64 // mappedFileSizeCommitLog; bytes; default 1 GiB
	ConsumeQueueBytes int64 // mappedFileSizeConsumeQueue; bytes, a multiple of 20; default 6,000,000
	BatchQueueBytes   int64 // mapperFileSizeBatchConsumeQueue; bytes, a multiple of 46; default 13,800,000
	OpenFilesMax      int   // ConsumeQueue files held open; default the consumequeue's own
	TailBytesMax      int64 // consumeQueueTailBytesMax; ConsumeQueue entries held in memory; default the consumequeue's own

	SyncFlush        bool             // flushDiskType=SYNC_FLUSH
	Device           commitlog.Device // how bytes reach the disk, a flush.Switch where that may change; default flush.NewSyscall(). The store closes it
	FlushInterval    time.Duration    // flushIntervalCommitLog; ASYNC_FLUSH: the longest a byte stays unsynced; default 500 ms
	DirtyBytesMax    int64            // dirtyBytesMax; ASYNC_FLUSH: unsynced bytes that start a sync at once; at dirtyHard times as many Admit refuses; default the flusher's own
	SyncFlushTimeout time.Duration    // syncFlushTimeout; default 5 s
	SweepInterval    time.Duration    // flushIntervalConsumeQueue; default 1 s

	MaxBytesInFlight int64         // maxBytesInFlight; bytes handed to Put and not done; default 64 MiB
	DrainMax         time.Duration // Admit refuses when the backlog would take longer; default 3 s

	NoIndex      bool // messageIndexEnable=false
	IndexSlots   int  // maxHashSlotNum; default 5,000,000
	IndexEntries int  // maxIndexNum; default 20,000,000

	TransferBytesInMemory int // maxTransferBytesOnMessageInMemory; default 262144
	TransferCountInMemory int // maxTransferCountOnMessageInMemory; default 32
	TransferBytesOnDisk   int // maxTransferBytesOnMessageInDisk; default 65536
	TransferCountOnDisk   int // maxTransferCountOnMessageInDisk; default 8
	// HotBytes is the distance from the end of the log within which bytes
	// count as resident without being asked for; default 128 MiB.
	HotBytes int64
	// MemoryBytes is the distance beyond which records count as on disk where
	// residency cannot be asked (accessMessageInMemoryMaxRatio of RAM);
	// default 1 GiB.
	MemoryBytes int64

	FileReservedTime time.Duration // fileReservedTime; default 72 h
	DeleteWhen       []int         // deleteWhen; hours of the day, 0..23; default 4
	CleanInterval    time.Duration // cleanResourceInterval; default 10 s
	DeleteBatchMax   int           // deleteFileBatchMax; segments deleted a round; default 10
	DeletePause      time.Duration // deleteCommitLogFilesInterval; between two deletions; default 100 ms
	DiskMaxUsed      float64       // diskMaxUsedSpaceRatio; 0..1; default 0.75
	DiskForceClean   float64       // diskSpaceCleanForciblyRatio; 0..1; default 0.85
	DiskFull         float64       // diskSpaceWarningLevelRatio; 0..1; default 0.90
	DiskFreeMin      int64         // diskFreeBytesMin; bytes that stay free: fewer, and no writes are taken; below twice that unexpired segments go; default 0, none
	ReserveBytes     int64         // diskReserveBytes; kept for when the disk is full (reserve); default 8 MiB, negative for none
	ScrubRate        int64         // scrubBytesPerSecond; how fast stored records are read again and checked; default 4 MiB, negative for never
	ScrubInterval    time.Duration // scrubInterval; from the beginning of one round through the log to the next; default 24 h
	KeepFilesForced  bool          // cleanFileForciblyEnable=false: unexpired segments stay even beyond DiskForceClean

	// Locked, unless nil, is called by Open when the directory is ours and nothing
	// in it was read: what else lives there may be opened now. Open gives back
	// its error.
	Locked func() error

	// TagsCode gives the value a record's queue entry carries; used in recovery
	// and for classic batches. Default: message.TagsCode of the TAGS property.
	// It must not keep rec. Called on any of the store's goroutines.
	TagsCode func(rec []byte) int64

	// BatchTopic says whether a topic's queues are batch queues
	// (queue.type=BatchCQ); known is false for a topic nobody knows. Default:
	// none is known. It must not call the Store.
	BatchTopic func(topic string) (batch, known bool)

	Events Events           // default: none is told
	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default slog.Default()
	Pid    int              // written to the abort file; default the process's
}

// ErrLocked says that another broker, ringmq's or Apache's, uses the
// directory. The error returned wraps it and names directory and key.
var ErrLocked = errors.New("store directory is used by another broker")

// ErrConfig is wrapped by the error for a Config that makes no sense.
var ErrConfig = errors.New("bad store configuration")

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// complete fills in defaults and refuses what makes no sense.
func (c *Config) complete() error {
	if c.Dir == "" {
		return fmt.Errorf("%w: Dir (storePathRootDir) is empty", ErrConfig)
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	orDefault(&c.CommitLogDir, filepath.Join(c.Dir, "commitlog"))
	orDefault(&c.SegmentBytes, 1<<30)
	orDefault(&c.ConsumeQueueBytes, 300_000*consumequeue.EntryBytes)
	orDefault(&c.BatchQueueBytes, 300_000*consumequeue.BatchUnitBytes)
	orDefault(&c.FlushInterval, 500*time.Millisecond)
	orDefault(&c.DirtyBytesMax, flush.DefaultDirtyBytesMax)
	orDefault(&c.SyncFlushTimeout, 5*time.Second)
	orDefault(&c.SweepInterval, time.Second)
	orDefault(&c.MaxBytesInFlight, 64<<20)
	orDefault(&c.DrainMax, 3*time.Second)
	orDefault(&c.IndexSlots, 5_000_000)
	orDefault(&c.IndexEntries, 20_000_000)
	orDefault(&c.TransferBytesInMemory, 262144)
	orDefault(&c.TransferCountInMemory, 32)
	orDefault(&c.TransferBytesOnDisk, 65536)
	orDefault(&c.TransferCountOnDisk, 8)
	orDefault(&c.HotBytes, 128<<20)
	orDefault(&c.MemoryBytes, 1<<30)
	orDefault(&c.FileReservedTime, 72*time.Hour)
	orDefault(&c.CleanInterval, 10*time.Second)
	orDefault(&c.DeleteBatchMax, 10)
	orDefault(&c.DeletePause, 100*time.Millisecond)
	orDefault(&c.DiskMaxUsed, 0.75)
	orDefault(&c.DiskForceClean, 0.85)
	orDefault(&c.DiskFull, 0.90)
	orDefault(&c.ReserveBytes, 8<<20)
	orDefault(&c.ScrubRate, 4<<20)
	orDefault(&c.ScrubInterval, 24*time.Hour)
	if c.DeleteWhen == nil {
		c.DeleteWhen = []int{4}
	}
	if c.TagsCode == nil {
		c.TagsCode = tagsCodeOf
	}
	if c.Events == nil {
		c.Events = noEvents{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c.check()
}

func (c *Config) check() error {
	switch {
	case c.SegmentBytes < minSegmentBytes || c.SegmentBytes > 1<<31-1:
		return fmt.Errorf("%w: SegmentBytes (mappedFileSizeCommitLog) is %d, want %d..%d", ErrConfig, c.SegmentBytes, minSegmentBytes, int64(1<<31-1))
	case c.ConsumeQueueBytes <= 0 || c.ConsumeQueueBytes%consumequeue.EntryBytes != 0:
		return fmt.Errorf("%w: ConsumeQueueBytes (mappedFileSizeConsumeQueue) is %d, want a multiple of %d", ErrConfig, c.ConsumeQueueBytes, consumequeue.EntryBytes)
	case c.BatchQueueBytes <= 0 || c.BatchQueueBytes%consumequeue.BatchUnitBytes != 0:
		return fmt.Errorf("%w: BatchQueueBytes (mapperFileSizeBatchConsumeQueue) is %d, want a multiple of %d", ErrConfig, c.BatchQueueBytes, consumequeue.BatchUnitBytes)
	case c.DirtyBytesMax < 0:
		return fmt.Errorf("%w: DirtyBytesMax (dirtyBytesMax) is %d", ErrConfig, c.DirtyBytesMax)
	case c.DiskFreeMin < 0:
		return fmt.Errorf("%w: DiskFreeMin (diskFreeBytesMin) is %d", ErrConfig, c.DiskFreeMin)
	case c.MaxBytesInFlight < 0:
		return fmt.Errorf("%w: MaxBytesInFlight (maxBytesInFlight) is %d", ErrConfig, c.MaxBytesInFlight)
	case c.DiskMaxUsed > c.DiskForceClean || c.DiskForceClean > c.DiskFull || c.DiskFull > 1:
		return fmt.Errorf("%w: disk ratios are %.2f, %.2f, %.2f (diskMaxUsedSpaceRatio, diskSpaceCleanForciblyRatio, diskSpaceWarningLevelRatio), want them rising and at most 1",
			ErrConfig, c.DiskMaxUsed, c.DiskForceClean, c.DiskFull)
	}
	for _, h := range c.DeleteWhen {
		if h < 0 || h > 23 {
			return fmt.Errorf("%w: DeleteWhen (deleteWhen) has hour %d, want 0..23", ErrConfig, h)
		}
	}
	return nil
}

// minSegmentBytes keeps room for a record and the blank one behind it; only
// tests use segments so small.
const minSegmentBytes = 4096

func tagsCodeOf(rec []byte) int64 {
	tags, _ := message.Property(message.PropertiesOf(rec), message.PropTags)
	return message.TagsCode(tags)
}

type noEvents struct{}

func (noEvents) Arrived(*consumequeue.Queue) {}
func (noEvents) Closed(error)                {}
