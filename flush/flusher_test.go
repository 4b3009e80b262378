package flush

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// stepDevice is a Device whose syncs the test lets through one by one.
type stepDevice struct {
	Device
	started chan struct{} // one for each sync that begins
	answer  chan error    // and its result
}

func newStepDevice() *stepDevice {
	return &stepDevice{Device: NewSyscall(), started: make(chan struct{}), answer: make(chan error)}
}

func (d *stepDevice) Sync([]vfs.File) error {
	d.started <- struct{}{}
	return <-d.answer
}

// marks collects what OnDurable is told.
type marks struct {
	mu  sync.Mutex
	all []string
	c   chan struct{}
}

func newMarks() *marks { return &marks{c: make(chan struct{}, 1000)} }

func (m *marks) on(off int64, err error) {
	m.mu.Lock()
	s := fmt.Sprint(off)
	if err != nil {
		s += " failed"
	}
	m.all = append(m.all, s)
	m.mu.Unlock()
	m.c <- struct{}{}
}

func (m *marks) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.all, ", ")
}

func TestGroupCommit(t *testing.T) {
	d, m := newStepDevice(), newMarks()
	l := newOneFile(t, vfs.NewMem(), ".", 0)
	f := Start(Config{Sync: true, Log: l, Device: d, OnDurable: m.on})
	write := func(to int64) { l.written.Store(to); f.Kick() }
	write(10)
	<-d.started
	for _, to := range []int64{20, 30, 40} { // gather while the first sync runs
		write(to)
	}
	if got := f.Durable(); got != 0 {
		t.Fatalf("durable %d while the first sync runs", got)
	}
	d.answer <- nil
	<-m.c
	<-d.started
	if got := f.Durable(); got != 10 {
		t.Fatalf("durable %d after the first sync, want 10", got)
	}
	write(50)
	d.answer <- nil
	<-m.c
	<-d.started
	d.answer <- nil
	<-m.c
	must(t, f.Close())
	if got := m.String(); got != "10, 40, 50" {
		t.Fatalf("marks %q: want one sync for all that gathered", got)
	}
	if f.Syncs() != 3 {
		t.Fatalf("%d syncs", f.Syncs())
	}
}

func TestFailedSyncIsToldOnce(t *testing.T) {
	for _, sync := range []bool{true, false} {
		d, m := newStepDevice(), newMarks()
		l := newOneFile(t, vfs.NewMem(), ".", 0)
		f := Start(Config{Sync: sync, Interval: time.Millisecond, Log: l, Device: d, OnDurable: m.on})
		l.written.Store(10)
		f.Kick()
		<-d.started
		d.answer <- nil
		<-m.c
		l.written.Store(20)
		f.Kick()
		<-d.started
		d.answer <- syscall.EIO
		<-m.c
		l.written.Store(30)
		f.Kick() // nothing follows: a sync now would find no step
		err := f.Close()
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "[10, 20)") {
			t.Fatalf("close: %v", err)
		}
		if got := m.String(); got != "10, 10 failed" {
			t.Fatalf("marks %q", got)
		}
		if f.Durable() != 10 || !errors.Is(f.Err(), syscall.EIO) {
			t.Fatalf("durable %d, err %v", f.Durable(), f.Err())
		}
	}
}

func TestCloseSyncsTheRest(t *testing.T) {
	for _, sync := range []bool{true, false} {
		m := newMarks()
		l := newOneFile(t, vfs.NewMem(), ".", 0)
		f := Start(Config{Sync: sync, Log: l, Device: NewSyscall(), Durable: 5, OnDurable: m.on})
		l.written.Store(70) // nobody kicks
		must(t, f.Close())
		must(t, f.Close())
		if f.Durable() != 70 || m.String() != "70" {
			t.Fatalf("durable %d, marks %q", f.Durable(), m)
		}
	}
}

// fakeClock hands its timers to the test.
type fakeClock struct{ timers chan chan time.Time }

func (c *fakeClock) NewTimer(time.Duration) (<-chan time.Time, func()) {
	t := make(chan time.Time, 1)
	c.timers <- t
	return t, func() {}
}

func TestAsyncInterval(t *testing.T) {
	clock, m := &fakeClock{timers: make(chan chan time.Time)}, newMarks()
	fs := vfs.NewFault(vfs.NewMem())
	l := newOneFile(t, fs, ".", 0)
	before := fs.Count(vfs.OpSync)
	f := Start(Config{Log: l, Device: NewSyscall(), OnDurable: m.on, Clock: clock, DirtyBytesMax: 1000})
	for round := range int64(3) {
		l.written.Store(100 * (round + 1))
		f.Kick()
		for range looks - 1 {
			(<-clock.timers) <- time.Time{}
		}
		tm := <-clock.timers
		if got := fs.Count(vfs.OpSync) - before; got != round {
			t.Fatalf("%d syncs before the interval is over, want %d", got, round)
		}
		tm <- time.Time{}
		<-m.c
	}
	// Too much dirty: the next look syncs, the interval or not.
	l.written.Store(300 + 999)
	f.Kick()
	tm := <-clock.timers
	l.written.Store(300 + 1000)
	tm <- time.Time{}
	<-m.c
	must(t, f.Close())
	if got := m.String(); got != "100, 200, 300, 1300" {
		t.Fatalf("marks %q", got)
	}
}

// writebackFile counts what the system is asked to write.
type writebackFile struct {
	vfs.File
	asked atomic.Int64
}

func (w *writebackFile) StartWriteback(_, _ int64) error { w.asked.Add(1); return nil }

func TestAsyncWriteback(t *testing.T) {
	clock := &fakeClock{timers: make(chan chan time.Time)}
	l := newOneFile(t, vfs.NewMem(), ".", 0)
	w := &writebackFile{File: l.file}
	l.files = []vfs.File{w}
	f := Start(Config{Log: l, Device: NewSyscall(), Clock: clock})
	asked := []int64{}
	l.written.Store(1)
	f.Kick()
	tm := <-clock.timers
	for _, to := range []int64{writebackBytes - 1, writebackBytes, writebackBytes + 5, 3 * writebackBytes} {
		l.written.Store(to)
		tm <- time.Time{}
		tm = <-clock.timers
		asked = append(asked, w.asked.Load())
	}
	must(t, f.Close())
	if !slices.Equal(asked, []int64{0, 1, 1, 2}) {
		t.Fatalf("asked for writing %v times, want once for each %d bytes", asked, writebackBytes)
	}
}

func TestFlusherAllocates(t *testing.T) {
	l := newOneFile(t, vfs.OS(), t.TempDir(), 0)
	durable := make(chan struct{}, 1)
	f := Start(Config{Sync: true, Log: l, Device: NewSyscall(), OnDurable: func(int64, error) { durable <- struct{}{} }})
	if n := testing.AllocsPerRun(50, func() {
		l.written.Add(1)
		f.Kick()
		<-durable
	}); n != 0 {
		t.Errorf("%v allocations a sync, want 0", n)
	}
	must(t, f.Close())
}

// Many writers, real syncs, both engines: nobody waits for ever, and the mark
// passes everyone.
func TestKickIsNeverLost(t *testing.T) {
	for name, d := range devices(t) {
		t.Run(name, func(t *testing.T) {
			l := newOneFile(t, vfs.OS(), t.TempDir(), 0)
			cond := sync.NewCond(&sync.Mutex{})
			var durable int64
			f := Start(Config{Sync: true, Log: l, Device: d, OnDurable: func(off int64, err error) {
				cond.L.Lock()
				durable = off
				cond.L.Unlock()
				cond.Broadcast()
			}})
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 40 {
						end := l.written.Add(1)
						f.Kick()
						cond.L.Lock()
						for durable < end {
							cond.Wait()
						}
						cond.L.Unlock()
					}
				})
			}
			wg.Wait()
			must(t, f.Close())
			if f.Durable() != 320 {
				t.Fatalf("durable %d, want 320", f.Durable())
			}
		})
	}
}

// noRing is why there is no ring here, or nil.
func noRing() error {
	d, err := NewRing(0)
	if err == nil {
		err = d.Close()
	}
	return err
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestMeasureRemembers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	c, err := Measure(vfs.OS(), dir, nil)
	must(t, err)
	if c.Reason == "" || c.Engine == "" {
		t.Fatalf("choice %+v", c)
	}
	if noRing() != nil {
		if c.Engine != EngineSyscall || !strings.Contains(c.Reason, ErrRingUnavailable.Error()) {
			t.Fatalf("without a ring: %+v", c)
		}
		return
	}
	if c.SyscallP50 <= 0 || c.RingP50 <= 0 || c.Kernel == "" {
		t.Fatalf("choice without figures: %+v", c)
	}
	faster := float64(c.SyscallP50) >= float64(c.RingP50)*switchGain
	if faster != (c.Engine == EngineRing) {
		t.Fatalf("choice %+v does not follow its figures", c)
	}
	again, err := Measure(vfs.OS(), dir, nil)
	must(t, err)
	c.Remembered = true
	if again != c {
		t.Fatalf("remembered %+v, want %+v", again, c)
	}
	des, _ := os.ReadDir(dir)
	if len(des) != 1 || des[0].Name() != ChoiceFile {
		t.Fatalf("measuring left %v", des)
	}
	must(t, Forget(vfs.OS(), dir))
	must(t, Forget(vfs.OS(), dir))
	must(t, os.WriteFile(filepath.Join(dir, ChoiceFile), []byte("{torn"), 0o644))
	if again, err = Measure(vfs.OS(), dir, nil); err != nil || again.Remembered {
		t.Fatalf("a torn file was believed: %+v %v", again, err)
	}
}

func TestMeasureStops(t *testing.T) {
	if err := noRing(); err != nil {
		t.Skip(err)
	}
	dir, stop := t.TempDir(), make(chan struct{})
	close(stop)
	if _, err := Measure(vfs.OS(), dir, stop); err == nil {
		t.Fatal("measured to the end")
	}
	if des, _ := os.ReadDir(dir); len(des) != 0 {
		t.Fatalf("left %v", des)
	}
}

func TestOpenEngine(t *testing.T) {
	ringErr := noRing()
	tests := map[string]string{EngineSyscall: EngineSyscall, EngineRing: EngineRing, EngineAuto: "", "uring": "error"}
	for engine, want := range tests {
		t.Run(engine, func(t *testing.T) {
			chosen := make(chan Choice, 1)
			dir := t.TempDir()
			e, err := Open(EngineConfig{Engine: engine, FS: vfs.OS(), Dir: dir, Logger: discard(), OnChoice: func(c Choice) { chosen <- c }})
			if want == "error" {
				if err == nil || !strings.Contains(err.Error(), "uring") {
					t.Fatal(err)
				}
				return
			}
			if engine == EngineRing && ringErr != nil {
				if !errors.Is(err, ErrRingUnavailable) {
					t.Fatal(err)
				}
				return
			}
			must(t, err)
			c := <-chosen
			if want != "" && c.Engine != want || e.Name() != c.Engine || e.Choice() != c {
				t.Fatalf("chosen %+v, in use %s, said %+v", c, e.Name(), e.Choice())
			}
			f := create(t, vfs.OS(), dir, "f")
			must(t, e.WriteV(f, [][]byte{[]byte("abc")}, 0))
			must(t, e.Sync([]vfs.File{f}))
			must(t, e.Close())
			must(t, e.Close())
		})
	}
	// Closed while it measures.
	e, err := Open(EngineConfig{Engine: EngineAuto, FS: vfs.OS(), Dir: t.TempDir(), Logger: discard()})
	must(t, err)
	must(t, e.Close())
}
