package inspect

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// Verify looks at a whole store and reports what isn't as it should be. It
// blocks for as long as reading the log takes; ctx ends it early with its
// error. The error is about what keeps it from looking (ErrInUse, the disk);
// damage is in the report.
func Verify(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	unlock, err := cfg.lock()
	if err != nil {
		return nil, err
	}
	v := &verifier{cfg: &cfg, ctx: ctx, report: &Report{Dir: cfg.Dir, most: cfg.FindingsMax}, stored: -1}
	began := time.Now()
	err = errors.Join(v.run(), unlock())
	v.report.Elapsed = time.Since(began)
	return v.report, err
}

// A verifier is one Verify under way.
type verifier struct {
	cfg    *Config
	ctx    context.Context
	report *Report

	mark    int64 // everything below is dispatched and durable; -1 when there is no mark
	indexed int64 // the index knows everything below; -1 when there is no mark
	queues  *queueCheck
	keys    *keyCheck
	last    int64 // store time of the record before
	stored  int64 // behind the last record; -1 for none
	read    int64 // bytes of the log looked at, for Progress
	total   int64
	told    time.Time
	stopped bool // the log ended; what follows was never written
	hurt    bool // records are damaged
}

func (v *verifier) run() error {
	v.report.Clean = true
	if _, err := v.cfg.FS.Stat(filepath.Join(v.cfg.Dir, "abort")); err == nil {
		v.report.Clean = false
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mark, marked, err := engine.ReadMark(v.cfg.FS, v.cfg.Dir)
	if err != nil {
		return err
	}
	if v.mark, v.indexed = int64(mark.Dispatched), int64(mark.Indexed); !marked {
		v.mark, v.indexed = -1, -1
	}
	segments, strays, err := listFiles(v.cfg.FS, v.cfg.CommitLogDir)
	if err != nil {
		return err
	}
	for _, s := range strays {
		v.report.add(Note, s, -1, "not a segment of the log: brokers leave it alone")
	}
	if v.queues, err = openQueues(v); err != nil {
		return err
	}
	defer v.queues.close()
	if v.keys, err = openKeys(v); err != nil {
		return err
	}
	defer v.keys.close()
	if err := v.log(segments); err != nil {
		return err
	}
	if err := v.queues.finish(); err != nil {
		return err
	}
	v.keys.finish()
	return v.tables()
}

// log goes through all segments.
func (v *verifier) log(segments []place) error {
	v.report.Segments = len(segments)
	size := usualSize(segments)
	for i, s := range segments {
		if s.size == size || v.oddSize(s, size, i == len(segments)-1) {
			v.total += s.size
		}
	}
	for i, s := range segments {
		if i == 0 {
			v.report.From = s.base
		} else if want := segments[i-1].base + size; s.base != want {
			v.report.add(Damage, s.path, -1, "segment missing before it: the log goes from %d to %d without what lies between", want, s.base).fix = gapFix(segments, i)
		}
		if s.size == 0 {
			continue
		}
		if err := v.segment(s); err != nil {
			return err
		}
	}
	v.report.To = max(v.stored, v.report.From)
	v.cfg.Progress(v.total, v.total)
	return nil
}

// oddSize reports a segment of another length than the others, and says whether
// there is something in it to be looked at.
func (v *verifier) oddSize(s place, size int64, last bool) bool {
	if s.size == 0 && last {
		v.report.add(Repairs, s.path, -1, "empty newest segment: it is removed").fix = fix{remove: s.path}
		return false
	}
	f := v.report.add(Damage, s.path, -1, "%d bytes long, the others have %d", s.size, size)
	if s.size < size {
		f.fix = fix{extend: s.path, size: size}
	}
	return s.size > 0
}

// segment goes through the records of one segment.
func (v *verifier) segment(s place) (err error) {
	f, err := v.cfg.FS.Open(s.path, vfs.Read)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := openSegment(f, s.base, 0, s.size)
	defer r.close()
	start := v.read
	for {
		v.read = start + r.at
		if err := v.progress(); err != nil {
			return err
		}
		at := s.base + r.at
		rec, blank, err := r.next(!v.cfg.NoCRC)
		switch {
		case err == nil && blank:
			v.read = start + s.size
			return nil
		case err == nil:
			if v.stopped {
				v.stopped = false
				v.report.add(Damage, s.path, at-s.base, "records behind the end of the log: a start cuts them off")
			}
			if err := v.record(s, at, rec); err != nil {
				return err
			}
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, message.ErrTorn):
			v.report.add(Damage, s.path, r.at, "can't be read: %v", err)
			return nil
		default:
			more, diskErr := v.badRecord(s, r, at, err)
			if diskErr != nil {
				v.report.add(Damage, s.path, r.at, "can't be read: %v", diskErr)
			}
			if !more || diskErr != nil {
				v.read = start + s.size
				return nil
			}
		}
	}
}

// badRecord judges the place where no record stands: the log's end, or damage.
// It says whether a record follows in the same segment.
func (v *verifier) badRecord(s place, r *logReader, at int64, why error) (more bool, err error) {
	if errors.Is(why, message.ErrUnwritten) && at >= v.mark {
		// The end, but for records behind it, which the next segments show.
		v.stopped = true
		return false, nil
	}
	from := r.at
	passed, found, err := r.resync()
	switch {
	case err != nil:
		return false, err
	case found:
		v.hurt = true
		v.report.add(Damage, s.path, from, "%d bytes are no records: %v", passed, why).fix = fix{fill: s.path, at: from, base: s.base, size: passed, stored: v.last, choice: SkipDamaged}
		return true, nil
	case at < v.mark:
		v.hurt = true
		v.report.add(Damage, s.path, from, "the segment's last %d bytes are no records, and the log is known to go on to %d: %v", passed, v.mark, why).fix =
			fix{fill: s.path, at: from, base: s.base, size: passed, stored: v.last, end: true, choice: SkipDamaged}
		return false, nil
	case v.cfg.Live:
	case v.report.Clean:
		v.report.add(Damage, s.path, from, "no record up to the segment's end, though the broker stopped cleanly: %v", why)
	default:
		v.report.add(Repairs, s.path, from, "a torn record at the end of the log, cut at the next start: %v", why)
	}
	v.stopped = true
	return false, nil
}

// record holds one record against what the rooms beside the log say of it.
func (v *verifier) record(s place, at int64, rec []byte) error {
	v.report.Records++
	v.report.Bytes += int64(len(rec))
	v.stored = at + int64(len(rec))
	stored := message.StoreMillisOf(rec)
	if stored < v.last {
		v.report.add(Note, s.path, at-s.base, "store time goes back by %d ms: search by time is not exact around it", v.last-stored)
	}
	v.last = max(v.last, stored)
	if err := v.queues.record(s, at, rec); err != nil {
		return err
	}
	v.keys.record(s, at, rec)
	return nil
}

// known says whether entries for a record ending at end must be on the disk.
func (v *verifier) known(end int64) bool {
	return v.report.Clean && !v.cfg.Live || end <= v.mark
}

func (v *verifier) progress() error {
	if v.report.Records%1024 != 0 {
		return nil
	}
	if err := v.ctx.Err(); err != nil {
		return err
	}
	if now := time.Now(); now.Sub(v.told) > 100*time.Millisecond {
		v.told = now
		v.cfg.Progress(v.read, v.total)
	}
	return nil
}

// gapFix moves one side of a gap aside.
func gapFix(segments []place, i int) fix {
	var older, newer []string
	for k, s := range segments {
		if k < i {
			older = append(older, s.path)
		} else {
			newer = append(newer, s.path)
		}
	}
	return fix{aside: older[0], more: older[1:], choice: KeepNewer,
		instead: &fix{aside: newer[0], more: newer[1:], choice: KeepOlder}}
}
