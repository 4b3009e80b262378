package flush

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ringmq/ringmq/internal/vfs"
)

// EngineConfig says which Device to use. All fields but OnChoice are required.
type EngineConfig struct {
	// Engine is flushEngine: auto, syscall or io_uring.
	Engine string
	FS     vfs.FS
	// Dir is the store root, where the choice is remembered; made when missing.
	Dir    string
	Logger *slog.Logger
	// Ready, when closed, lets auto begin to measure: when the directory is
	// known to be ours. nil: at once.
	Ready <-chan struct{}
	// OnChoice is told the choice, once, when it is made; may be nil. Under
	// auto on a goroutine of the Engine's, which Close waits for.
	OnChoice func(Choice)
}

// Engine is the Device a broker runs on, and how it was chosen. Under auto it
// starts as the syscall one at once, measures in the background, and changes
// over where io_uring is faster.
type Engine struct {
	*Switch
	choice atomic.Pointer[Choice]
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once
	err    error // of Close
}

// Open opens the Device that cfg asks for. Asked for io_uring where there is
// none it fails with ErrRingUnavailable; under auto it goes on without, and the
// choice says why.
func Open(cfg EngineConfig) (*Engine, error) {
	e := &Engine{Switch: NewSwitch(NewSyscall()), stop: make(chan struct{}), done: make(chan struct{})}
	c := Choice{Engine: cfg.Engine, Reason: "configured"}
	switch cfg.Engine {
	case EngineSyscall:
	case EngineRing:
		ring, err := NewRing(0)
		if err != nil {
			return nil, err
		}
		e.Switch = NewSwitch(ring)
	case EngineAuto:
		e.choice.Store(&Choice{Engine: EngineSyscall, Reason: "being measured"})
		go e.measure(cfg)
		return e, nil
	default:
		return nil, fmt.Errorf("flush: engine %q: want %s, %s or %s", cfg.Engine, EngineAuto, EngineSyscall, EngineRing)
	}
	close(e.done)
	e.chosen(cfg, c)
	return e, nil
}

// Choice is the engine in use and why; while it is being measured, syscall. Any
// goroutine.
func (e *Engine) Choice() Choice { return *e.choice.Load() }

// Close ends the measuring and gives back what the Device holds. The store
// closes its Device; who opened it may do so again, for the case that no store
// came of it.
func (e *Engine) Close() error {
	e.once.Do(func() {
		close(e.stop)
		<-e.done
		e.err = e.Switch.Close()
	})
	return e.err
}

// measure is the goroutine under auto.
func (e *Engine) measure(cfg EngineConfig) {
	defer close(e.done)
	if cfg.Ready != nil {
		select {
		case <-cfg.Ready:
		case <-e.stop:
			return
		}
	}
	c, err := Measure(cfg.FS, cfg.Dir, e.stop)
	select {
	case <-e.stop:
		return
	default:
	}
	if err != nil {
		// A store that cannot be measured still runs; the log says why not.
		cfg.Logger.Warn("flush engines not measured", "err", err)
		c.Engine, c.Reason = EngineSyscall, err.Error()
	}
	if c.Engine == EngineRing {
		ring, err := NewRing(0)
		if err == nil {
			err = e.Use(ring)
		}
		if err != nil {
			c.Engine, c.Reason = EngineSyscall, err.Error()
		}
	}
	e.chosen(cfg, c)
}

func (e *Engine) chosen(cfg EngineConfig, c Choice) {
	e.choice.Store(&c)
	cfg.Logger.Info("flush engine", "engine", c.Engine, "reason", c.Reason,
		"syscallP50", c.SyscallP50, "ringP50", c.RingP50, "remembered", c.Remembered)
	if cfg.OnChoice != nil {
		cfg.OnChoice(c)
	}
}
