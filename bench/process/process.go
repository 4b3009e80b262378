//go:build linux

// Package process runs the programs that are measured and tortured: started
// with their output in a file, and never left behind, whatever happens to us.
//
// Each process has one goroutine that waits for its end.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stopMax is how long a process may take to stop by itself.
const stopMax = time.Minute

// A Process is a program that was started here. Any goroutine may call its
// methods.
type Process struct {
	cmd  *exec.Cmd
	out  string
	done chan struct{} // closed when it ended; err is set before
	err  error
}

// CleanEnv is our environment without what would lead a broker to a NameServer
// that isn't meant.
func CleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NAMESRV_ADDR=") })
}

// Start starts cmd with both outputs in the file out.
func Start(cmd *exec.Cmd, out string) (*Process, error) {
	f, err := os.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, out: out, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how it ended, once Done is closed.
func (p *Process) Err() error { return p.err }

// Kill is kill -9; it returns when the process is gone.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Stop asks it to end and waits for that; after a minute it is killed, which is
// an error. A nil Process, and one that has ended, is stopped.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopMax):
	}
	return errors.Join(fmt.Errorf("%s did not stop within %v", p.cmd.Path, stopMax), p.Kill())
}

// pollInterval is between two tries of Await.
const pollInterval = 2 * time.Millisecond

// Await asks again and again until ok succeeds, at most for as long as most. A
// process that ends meanwhile is an error that shows the end of its output; also
// after a success, since someone else may listen on its port.
func (p *Process) Await(ctx context.Context, most time.Duration, ok func() error) error {
	deadline := time.Now().Add(most)
	for {
		err := ok()
		wait := pollInterval
		if err == nil {
			wait = 0
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended (%w):\n%s", p.cmd.Path, errors.Join(p.err, err), p.Tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready within %v: %w\n%s", p.cmd.Path, most, err, p.Tail())
		}
	}
}

// tailBytes is how much Tail gives.
const tailBytes = 2000

// Tail is the end of its output.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.out)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-tailBytes):])
}
