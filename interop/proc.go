package interop

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is one started program, its output in a log file. It dies with the test process (PDEATHSIG). Methods may be
// called from any goroutine.
type Process struct {
	Name string
	Log  string // path of the file that holds its standard output and error

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended; err is set before
	err  error
}

// spawner starts every child from one locked thread that never ends: PDEATHSIG is sent when the parent's thread ends,
// and a thread of Go's pool may.
var spawner = sync.OnceValue(func() chan func() {
	c := make(chan func())
	go func() {
		lockThread()
		for f := range c {
			f()
		}
	}()
	return c
})

// StartProcess starts cmd. If cmd.Stdout is nil, output goes to logDir/name.log, appended over restarts; standard
// error always does.
func StartProcess(name, logDir string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, Log: filepath.Join(logDir, name+".log"), cmd: cmd, done: make(chan struct{})}
	f, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fmt.Fprintf(f, "--- %s: %s\n", time.Now().Format(time.TimeOnly), strings.Join(cmd.Args, " "))
	if cmd.Stdout == nil {
		cmd.Stdout = f
	}
	cmd.Stderr = f
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Stop asks the process to end (SIGTERM) and waits; after the patience it is killed and an error says so.
func (p *Process) Stop(patience time.Duration) error {
	if p == nil {
		return nil
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.Name, patience)
	}
}

// Kill is kill -9; it returns when the process is gone.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	p.cmd.Process.Kill()
	<-p.done
}

// Alive reports whether the process has not ended, and how it ended if it has.
func (p *Process) Alive() (bool, error) {
	select {
	case <-p.done:
		return false, p.err
	default:
		return true, nil
	}
}

// Tail is the last n bytes of the log.
func (p *Process) Tail(n int64) string { return tail(p.Log, n*4) }

func tail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > n {
		f.Seek(-n, io.SeekEnd)
	}
	b, _ := io.ReadAll(f)
	var keep []string
	for _, line := range strings.Split(string(b), "\n") {
		if !strings.Contains(line, "|-INFO in") && !strings.HasPrefix(line, "\tat io.netty") { // logback about itself
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "\n")
}

// await polls until ok holds; the process, when given, must stay alive meanwhile.
func await(p *Process, patience time.Duration, what string, ok func() error) error {
	end := time.Now().Add(patience)
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if p != nil {
			if alive, how := p.Alive(); !alive {
				return fmt.Errorf("%s ended (%v) before %s; the end of %s:\n%s", p.Name, how, what, p.Log, p.Tail(3000))
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("no %s within %v: %w", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// portFree says whether the loopback port can be listened on, so that a test never talks to somebody else's server.
func portFree(port int) error {
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return l.Close()
}
