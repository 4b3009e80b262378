package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/ringmq/ringmq/commitlog"
	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/engine/index"
	"github.com/ringmq/ringmq/flush"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// Open opens the store in cfg.Dir, making it when it is missing, brings it to a
// consistent state, and starts its goroutines. The directory's lock is taken
// before anything in it is read; ErrLocked when another broker has it. It
// blocks on the disk: milliseconds after a clean stop, otherwise the time to
// read what was written since the last dispatch mark (a second before the
// crash); where that mark is missing or another broker wrote here since,
// Apache's rules say from where.
func Open(cfg Config) (*Store, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if cfg.Device == nil {
		cfg.Device = flush.NewSyscall()
	}
	s := &Store{cfg: cfg, fs: cfg.FS, logger: cfg.Logger, epoch: cfg.Now(), stop: make(chan struct{}), closed: make(chan struct{})}
	s.puts.wake = make(chan struct{}, 1)
	if err := vfs.MkdirAllSync(s.fs, cfg.Dir); err != nil {
		return nil, fmt.Errorf("make storePathRootDir: %w", err)
	}
	lock, err := s.fs.Lock(filepath.Join(cfg.Dir, "lock"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: %s; give each broker its own storePathRootDir", ErrLocked, cfg.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", cfg.Dir, err)
	}
	s.lock = lock
	s.reserve = newReserve(s.fs, cfg.Dir, cfg.ReserveBytes)
	if _, free, err := s.fs.Usage(cfg.Dir); err == nil && free < cfg.ReserveBytes && s.reserve.spend() {
		s.logger.Warn("disk full: what was kept in reserve is used for the start", "dir", cfg.Dir, "free", free)
	}
	if err := s.openRooms(); err != nil {
		return nil, errors.Join(err, s.closeRooms(false), lock.Close())
	}
	s.start()
	return s, nil
}

// openRooms opens what is below and recovers it.
func (s *Store) openRooms() error {
	began := time.Now()
	if s.cfg.Locked != nil {
		if err := s.cfg.Locked(); err != nil {
			return err
		}
	}
	clean, err := s.wasClean()
	if err != nil {
		return err
	}
	if s.marks, err = openMark(s.fs, s.cfg.Dir); err != nil {
		return err
	}
	s.log, err = commitlog.Open(commitlog.Config{FS: s.fs, Dir: s.cfg.CommitLogDir, SegmentBytes: s.cfg.SegmentBytes,
		Device: s.cfg.Device, Sync: s.cfg.SyncFlush, Logger: s.logger})
	if err != nil {
		return err
	}
	s.wasStopped = clean
	r := recovery{s: s, clean: clean, began: began}
	r.marked, r.why = s.checkMark()
	if err := s.openQueues(&r); err != nil {
		return err
	}
	if err := r.run(); err != nil {
		return fmt.Errorf("recover %s: %w", s.cfg.Dir, err)
	}
	return s.writeAbort()
}

// openQueues opens ConsumeQueues and index.
func (s *Store) openQueues(r *recovery) (err error) {
	trust := message.LogOffset(0)
	if r.marked {
		switch trust = s.marks.last.end; {
		case r.clean:
			trust = consumequeue.TrustAll
		case trust == 0:
			trust = consumequeue.TrustNothing
		}
	}
	s.queues, err = consumequeue.Open(consumequeue.Config{FS: s.fs, Dir: filepath.Join(s.cfg.Dir, "consumequeue"),
		FileBytes: s.cfg.ConsumeQueueBytes, BatchDir: filepath.Join(s.cfg.Dir, "batchconsumequeue"), BatchFileBytes: s.cfg.BatchQueueBytes,
		BatchTopic: s.cfg.BatchTopic, Trust: trust, OpenFilesMax: s.cfg.OpenFilesMax,
		TailBytesMax: s.cfg.TailBytesMax, Logger: s.logger})
	if err != nil || s.cfg.NoIndex {
		return err
	}
	s.index, err = index.Open(index.Config{FS: s.fs, Dir: filepath.Join(s.cfg.Dir, "index"),
		HashSlots: s.cfg.IndexSlots, Entries: s.cfg.IndexEntries, Clean: r.clean, Ours: r.marked, SafeMillis: s.marks.cp.IndexMillis,
		Now: s.cfg.Now, Logger: s.logger})
	return err
}

func (s *Store) abortName() string { return filepath.Join(s.cfg.Dir, "abort") }

// wasClean says whether the last broker here stopped cleanly: no abort file.
func (s *Store) wasClean() (bool, error) {
	_, err := s.fs.Stat(s.abortName())
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// writeAbort marks the store as in use: the process's id as text, as Apache's.
func (s *Store) writeAbort() error {
	pid := s.cfg.Pid
	if pid == 0 {
		pid = syscall.Getpid()
	}
	if err := s.fs.WriteFileAtomic(s.abortName(), strconv.AppendInt(nil, int64(pid), 10)); err != nil {
		return fmt.Errorf("write abort: %w", err)
	}
	return nil
}

func (s *Store) removeAbort() error {
	if err := s.fs.Remove(s.abortName()); err != nil {
		return err
	}
	return s.fs.SyncDir(s.cfg.Dir)
}

// start starts the goroutines.
func (s *Store) start() {
	s.flusher = flush.Start(flush.Config{Sync: s.cfg.SyncFlush, Interval: s.cfg.FlushInterval, DirtyBytesMax: s.cfg.DirtyBytesMax,
		Log: s.log, Device: s.cfg.Device, Durable: s.log.Written(), OnDurable: s.onDurable})
	s.lookAtDisk()
	s.appending.Go(s.appender)
	s.running.Go(s.ticker)
	s.running.Go(s.sweeper)
	s.running.Go(s.cleaner)
	s.scrub = &scrubber{s: s}
	if s.cfg.ScrubRate > 0 {
		s.running.Go(s.scrub.run)
	}
}
