//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// floorFileBytes is the zero-filled file that the floor is measured in.
const floorFileBytes = 64 << 20

// Floor measures what a durable append costs at least in o.Dir: pwrite of
// o.Bytes and fdatasync, one after the other, in a file that was filled with
// zeros and synced before.
func Floor(ctx context.Context, o Options) (res *Result, err error) {
	o.Defaults()
	if o.Dir == "" {
		return nil, errors.New("bench: the floor needs a directory")
	}
	f, err := os.CreateTemp(o.Dir, "bench-floor-*")
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	zeros := make([]byte, 1<<20)
	for range floorFileBytes / len(zeros) {
		if _, err := f.Write(zeros); err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	o.Conns, o.InFlight = 1, 1
	begin := time.Now()
	w, err := newWindow(&o, 0)
	if err != nil {
		return nil, err
	}
	rec := make([]byte, o.Bytes)
	fd := int(f.Fd())
	for off := int64(0); ctx.Err() == nil; off += int64(len(rec)) {
		if off+int64(len(rec)) > floorFileBytes {
			off = 0
		}
		from := int64(time.Since(begin))
		if w.tick(from) {
			return w.result("floor", "write was synced")
		}
		if _, err := unix.Pwrite(fd, rec, off); err != nil {
			return nil, fmt.Errorf("bench: pwrite: %w", err)
		}
		if err := unix.Fdatasync(fd); err != nil {
			return nil, fmt.Errorf("bench: fdatasync: %w", err)
		}
		w.done(1, len(rec), int64(time.Since(begin))-from)
	}
	return nil, ctx.Err()
}
