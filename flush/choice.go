package flush

import (
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// ChoiceFile is the file under the store root in which choices are kept. Java
// does not look at it.
const ChoiceFile = "ringmq.flush.json"

// switchGain is how much faster the ring must be to be taken: less is noise.
const switchGain = 1.10

// Choice is which engine is used and why. The figures are the times a durable
// group took, the write of the next one running beside its sync; 0 where an
// engine was not measured.
type Choice struct {
	Engine     string        `json:"engine"`
	Reason     string        `json:"reason"`
	SyscallP50 time.Duration `json:"syscallP50Nanos"`
	RingP50    time.Duration `json:"ringP50Nanos"`
	Device     string        `json:"device"` // block device of the store, major:minor
	Kernel     string        `json:"kernel"` // release
	Remembered bool          `json:"-"`      // read from ChoiceFile, not measured now
}

const (
	measureRounds     = 12
	measureCycles     = 24 // groups a round and engine
	measureGroupBytes = 16 << 10
	measureFileBytes  = 4 << 20
	measureRest       = 5 * time.Millisecond // between rounds, for those who share the disk
)

// Measure gives the engine for the store in dir: what was remembered for this
// device and kernel, else what is measured now, in a file of its own under dir,
// in less than a second of the disk's time, and then remembered. A closed stop
// ends it with an error. Blocks; the caller gives it a goroutine.
func Measure(fs vfs.FS, dir string, stop <-chan struct{}) (Choice, error) {
	if err := vfs.MkdirAllSync(fs, dir); err != nil { // a broker's first start
		return Choice{Engine: EngineSyscall}, fmt.Errorf("flush: measuring engines: %w", err)
	}
	c := Choice{Engine: EngineSyscall, Device: deviceOf(dir), Kernel: kernelRelease()}
	ring, err := NewRing(0)
	if err != nil {
		c.Reason = err.Error()
		return c, nil // not remembered: permissions change without the kernel
	}
	defer ring.Close()
	if old, ok := recall(fs, dir, c); ok {
		return old, nil
	}
	if err := measure(fs, dir, ring, &c, stop); err != nil {
		return c, fmt.Errorf("flush: measuring engines: %w", err)
	}
	return c, remember(fs, dir, c)
}

// measure fills in the figures and decides.
func measure(fs vfs.FS, dir string, ring Device, c *Choice, stop <-chan struct{}) (err error) {
	name := filepath.Join(dir, "ringmq.flush.measure")
	f, err := fs.Open(name, vfs.ReadWrite|vfs.Create)
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if rerr := fs.Remove(name); err == nil {
			err = rerr
		}
	}()
	if _, ok := f.Fd(); !ok {
		c.Reason = "files of this store have no descriptor"
		return nil
	}
	if _, err := f.WriteAt(make([]byte, measureFileBytes), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	m := measuring{file: f, group: [][]byte{make([]byte, measureGroupBytes)}}
	var sys, rng []time.Duration
	for range measureRounds { // in turn, so that a busy moment meets both
		if sys, err = m.round(NewSyscall(), sys); err != nil {
			return err
		}
		if rng, err = m.round(ring, rng); err != nil {
			return err
		}
		select {
		case <-stop:
			return errors.New("stopped")
		case <-time.After(measureRest):
		}
	}
	c.SyscallP50, c.RingP50 = median(sys), median(rng)
	gain := float64(c.SyscallP50) / float64(c.RingP50)
	if gain >= switchGain {
		c.Engine = EngineRing
		c.Reason = fmt.Sprintf("io_uring is %.0f %% faster here", (gain-1)*100)
	} else {
		c.Reason = fmt.Sprintf("io_uring is not 10 %% faster here (%+.0f %%)", (gain-1)*100)
	}
	return nil
}

// measuring is the load of a busy log on one file.
type measuring struct {
	file  vfs.File
	group [][]byte
	off   int64
}

// round times groups: the sync of one runs while the next is written.
func (m *measuring) round(d Device, lat []time.Duration) ([]time.Duration, error) {
	files := []vfs.File{m.file}
	start, synced := make(chan struct{}), make(chan error)
	go func() {
		for range start {
			synced <- d.Sync(files)
		}
	}()
	defer close(start)
	for range measureCycles {
		begin := time.Now()
		start <- struct{}{}
		werr := d.WriteV(m.file, m.group, m.off)
		serr := <-synced
		lat = append(lat, time.Since(begin))
		if err := errors.Join(werr, serr); err != nil {
			return lat, err
		}
		m.off = (m.off + measureGroupBytes) % measureFileBytes
	}
	return lat, nil
}

func median(lat []time.Duration) time.Duration {
	slices.Sort(lat)
	return lat[len(lat)/2]
}

// recall finds the choice kept for c's device and kernel.
func recall(fs vfs.FS, dir string, c Choice) (Choice, bool) {
	for _, old := range kept(fs, dir) {
		if old.Device == c.Device && old.Kernel == c.Kernel && (old.Engine == EngineSyscall || old.Engine == EngineRing) {
			old.Remembered = true
			return old, true
		}
	}
	return Choice{}, false
}

// kept reads ChoiceFile; one that cannot be read counts as empty, since its
// content can be measured again.
func kept(fs vfs.FS, dir string) []Choice {
	var all []Choice
	b, err := fs.ReadFile(filepath.Join(dir, ChoiceFile))
	if err != nil || json.Unmarshal(b, &all) != nil {
		return nil
	}
	return all
}

// remember keeps c in place of an older choice for its device and kernel.
func remember(fs vfs.FS, dir string, c Choice) error {
	all := slices.DeleteFunc(kept(fs, dir), func(old Choice) bool {
		return old.Device == c.Device && old.Kernel == c.Kernel
	})
	const keep = 16 // kernels come and go
	all = append(all, c)
	if len(all) > keep {
		all = all[len(all)-keep:]
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return fs.WriteFileAtomic(filepath.Join(dir, ChoiceFile), append(b, '\n'))
}

// Forget removes what was remembered, so that the next start measures.
func Forget(fs vfs.FS, dir string) error {
	err := fs.Remove(filepath.Join(dir, ChoiceFile))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return err
}
