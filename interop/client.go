package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Result is how one step ended.
type Result struct {
	Step   string `json:"step"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Millis int64  `json:"millis"`
}

// Client runs steps against servers. Run returns a result for every step of the phase, also for those that never
// reported; error means that the client itself broke.
type Client interface {
	Name() string
	Run(ctx context.Context, phase string) ([]Result, error)
	Close()
}

// processClient is a client program that takes "run PHASE" lines and answers with JSON lines: a JVM with
// java/common/interop/Main.java, or the Go client's goclient.
type processClient struct {
	name  string
	proc  *Process
	in    io.WriteCloser
	lines chan []byte // closed at the end of the program's output
}

// NewJavaClient starts a JVM with one version of Apache's client. The prefix begins all names of topics and groups.
func NewJavaClient(version string, s *Servers, prefix string) (Client, error) {
	classPath, err := Classes(version)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(s.Dir, "client-"+version)
	serialize := "JSON"
	if s.Binary {
		serialize = "ROCKETMQ"
	}
	return startClient("java-"+version, s, exec.Command("java", "-Drocketmq.serialize.type="+serialize, "-Xmx384m", "-Xss512k", "-XX:TieredStopAtLevel=1",
		"-XX:+UseSerialGC", "-Duser.home="+home, "-Drocketmq.client.logRoot="+filepath.Join(home, "logs"),
		"-Drocketmq.client.localOffsetStoreDir="+filepath.Join(home, "offsets"), "-Dfile.encoding=UTF-8",
		"-cp", classPath, "interop.Main", s.Namesrv, s.Broker, BrokerName, ClusterName, prefix))
}

// NewGoClient starts the program with Apache's Go client, a process too because that client keeps its offsets of
// broadcasting below $HOME and logs to standard error, and because a panic in it should be one client's failure.
func NewGoClient(s *Servers, prefix string) (Client, error) {
	bin, err := buildGo(moduleDir(), "./goclient", "goclient")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, s.Namesrv, s.Broker, BrokerName, ClusterName, prefix)
	home := filepath.Join(s.Dir, "client-go")
	cmd.Env = append(os.Environ(), "HOME="+home, "ROCKETMQ_GO_LOG_LEVEL=warn")
	return startClient("go", s, cmd)
}

func startClient(name string, s *Servers, cmd *exec.Cmd) (Client, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	cmd.Stdout = w
	p, err := StartProcess("client-"+name, s.Dir, cmd)
	if err != nil {
		return nil, err
	}
	c := &processClient{name: name, proc: p, in: in, lines: make(chan []byte)}
	go func() {
		<-p.done
		w.Close()
	}()
	go func() {
		defer close(c.lines)
		sc := bufio.NewScanner(r)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			c.lines <- append([]byte(nil), sc.Bytes()...)
		}
	}()
	return c, nil
}

func (c *processClient) Name() string { return c.name }

func (c *processClient) Run(ctx context.Context, phase string) ([]Result, error) {
	if _, err := fmt.Fprintf(c.in, "run %s\n", phase); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", c.Name(), err, c.proc.Tail(3000))
	}
	var plan []string
	done := map[string]Result{}
	for {
		var line struct {
			Result
			Plan []string `json:"plan"`
			Done string   `json:"done"`
		}
		select {
		case b, ok := <-c.lines:
			if !ok {
				return c.fill(plan, done), fmt.Errorf("%s ended in phase %s\n%s", c.Name(), phase, c.proc.Tail(3000))
			}
			if err := json.Unmarshal(b, &line); err != nil {
				return c.fill(plan, done), fmt.Errorf("%s said %q: %w", c.Name(), b, err)
			}
		case <-ctx.Done():
			return c.fill(plan, done), fmt.Errorf("%s in phase %s: %w\n%s", c.Name(), phase, ctx.Err(), c.proc.Tail(3000))
		}
		switch {
		case line.Plan != nil:
			plan = line.Plan
		case line.Done != "":
			return c.fill(plan, done), nil
		case line.Step != "":
			done[line.Step] = line.Result
		}
	}
}

// fill gives each planned step its result, in the plan's order; a step that never reported has failed.
func (c *processClient) fill(plan []string, done map[string]Result) []Result {
	var out []Result
	for _, s := range plan {
		r, ok := done[s]
		if !ok {
			r = Result{Step: s, Detail: "no result"}
		}
		out = append(out, r)
	}
	return out
}

func (c *processClient) Close() {
	fmt.Fprintln(c.in, "quit")
	c.in.Close()
	go func() {
		for range c.lines { // let the JVM write what it still has
		}
	}()
	c.proc.Stop(10 * time.Second)
}
