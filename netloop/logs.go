package netloop

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// logKind is a kind of log line that peers can cause at will.
type logKind int

const (
	logProtocol logKind = iota
	logBound
	logRead
	logConns
	logAccept
	logKinds
)

// logEvery is the least time between two lines of one kind.
const logEvery = time.Second

// limiter writes at most one line of a kind in logEvery, and tells with the
// next one how many it left out. Any goroutine.
type limiter struct {
	log *slog.Logger

	mu   sync.Mutex
	last [logKinds]time.Time
	left [logKinds]int
}

func (x *limiter) warn(kind logKind, msg string, args ...any) {
	x.mu.Lock()
	now := time.Now()
	if now.Sub(x.last[kind]) < logEvery {
		x.left[kind]++
		x.mu.Unlock()
		return
	}
	left := x.left[kind]
	x.last[kind], x.left[kind] = now, 0
	x.mu.Unlock()
	if left > 0 {
		args = append(args, "notLogged", left)
	}
	x.log.Warn(msg, args...)
}

// gnetLogger gives gnet's own lines to slog. Its chatter about starting and
// stopping is debugging here.
type gnetLogger struct{ log *slog.Logger }

func (g gnetLogger) Debugf(f string, a ...any) { g.log.Debug("gnet", "text", fmt.Sprintf(f, a...)) }
func (g gnetLogger) Infof(f string, a ...any)  { g.log.Debug("gnet", "text", fmt.Sprintf(f, a...)) }
func (g gnetLogger) Warnf(f string, a ...any)  { g.log.Warn("gnet", "text", fmt.Sprintf(f, a...)) }
func (g gnetLogger) Errorf(f string, a ...any) { g.log.Error("gnet", "text", fmt.Sprintf(f, a...)) }
func (g gnetLogger) Fatalf(f string, a ...any) { g.log.Error("gnet", "text", fmt.Sprintf(f, a...)) }
