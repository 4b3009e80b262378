package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// part is a room that runs: a NameServer, a broker.
type part interface {
	Start(context.Context) error
	Close(context.Context) error
	Describe() []string
}

// opener makes a part, which may take long (a broker recovers its store).
type opener struct {
	name string
	open func() (part, error)
}

// repeatWithin: a signal that comes so soon after the first is the same one,
// delivered to the process and to its group.
const repeatWithin = 250 * time.Millisecond

// serve opens and starts the parts in order, says ready and waits for SIGINT
// or SIGTERM, or for ctx. Then it closes them in the opposite order, so that a
// broker unregisters while its NameServer still listens, each given drain. A
// second signal ends the process at once. What has been started is closed when
// a later part fails.
func serve(ctx context.Context, log *slog.Logger, drain time.Duration, parts []opener, ready func([]part)) (err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	closed := make(chan struct{})
	watching.Go(func() { watch(signals, closed, log, stop) })
	defer watching.Wait()
	defer close(closed)
	defer signal.Stop(signals)
	defer stop()

	var running []part
	defer func() {
		for i := len(running) - 1; i >= 0; i-- {
			err = errors.Join(err, closePart(running[i], drain))
		}
	}()
	for _, p := range parts {
		made, err := p.open()
		if err != nil {
			return err
		}
		running = append(running, made)
		if ctx.Err() != nil {
			return nil // told to stop while it recovered
		}
		if err := made.Start(ctx); err != nil {
			return err
		}
	}
	ready(running)
	<-ctx.Done()
	return nil
}

// watch turns the first signal into a stop and a later one into an exit, until
// everything is closed.
func watch(signals <-chan os.Signal, closed <-chan struct{}, log *slog.Logger, stop func()) {
	var first time.Time
	for {
		select {
		case <-closed:
			return
		case s := <-signals:
			switch {
			case first.IsZero():
				first = time.Now()
				log.Info("stopping: requests under way are answered; another signal ends at once", "signal", s.String())
				stop()
			case time.Since(first) > repeatWithin:
				log.Error("ended by another signal; recovery will follow at the next start", "signal", s.String())
				os.Exit(1)
			}
		}
	}
}

func closePart(p part, drain time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	return p.Close(ctx)
}

// newLog makes the process's logger. level is a value of the logLevel key.
func newLog(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level: got %q, want debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
