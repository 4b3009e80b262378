package interop

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// targets is what INTEROP_TARGET asks for: apache, ringmq, or both (the default).
func targets(t *testing.T) []string {
	switch v := os.Getenv("INTEROP_TARGET"); v {
	case "", "both":
		return []string{"apache", "ringmq"}
	case "apache", "ringmq":
		return []string{v}
	default:
		t.Fatalf("INTEROP_TARGET=%s: want apache, ringmq or both", v)
		return nil
	}
}

// clientNames is what INTEROP_CLIENTS asks for, comma-separated; all by default.
func clientNames() []string {
	if v := os.Getenv("INTEROP_CLIENTS"); v != "" {
		return strings.Split(v, ",")
	}
	return []string{"java-" + Java4, "java-" + Java5, "go"}
}

// wanted says whether INTEROP_PHASES, a regular expression, asks for a phase: steady, alone, outage, stop or kill.
func wanted(t *testing.T, phase string) bool {
	t.Helper()
	re, err := regexp.Compile(os.Getenv("INTEROP_PHASES"))
	if err != nil {
		t.Fatalf("INTEROP_PHASES: %v", err)
	}
	return re.MatchString(phase)
}

func newClient(name string, s *Servers) (Client, error) {
	switch name {
	case "go":
		return NewGoClient(s, "go")
	case "java-" + Java4:
		return NewJavaClient(Java4, s, "j4")
	case "java-" + Java5:
		return NewJavaClient(Java5, s, "j5")
	}
	return nil, fmt.Errorf("client %q: want go, java-%s or java-%s", name, Java4, Java5)
}

// TestInterop runs every client's steps against every target.
func TestInterop(t *testing.T) {
	for _, target := range targets(t) {
		t.Run(target, func(t *testing.T) { runTarget(t, target) })
	}
}

// TestServer runs one client's steps against `ringmq server`.
func TestServer(t *testing.T) {
	if !slices.Contains(targets(t), "ringmq") {
		t.Skip("INTEROP_TARGET leaves ringmq out")
	}
	s := startServers(t, "server", nil)
	c, err := newClient("go", s)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	runPhase(t, []Client{c}, "steady", true)
}

// startServers starts servers for a test, and prints their logs when it fails.
func startServers(t *testing.T, target string, change func(*Servers)) *Servers {
	t.Helper()
	s, err := NewServers(target, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.Logs())
		}
	})
	begin := time.Now()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is ready after %d ms", target, time.Since(begin).Milliseconds())
	return s
}

func runTarget(t *testing.T, target string) {
	s := startServers(t, target, nil)
	var clients []Client
	for _, name := range clientNames() {
		c, err := newClient(name, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	ok := true
	if wanted(t, "steady") {
		ok = runPhase(t, clients, "steady", true)
	}
	if wanted(t, "alone") {
		ok = runPhase(t, clients, "alone", false) && ok
	}
	if wanted(t, "outage") {
		ok = runPhase(t, clients, "before outage", true) && ok
		s.KillNamesrv()
		ok = runPhase(t, clients, "during outage", true) && ok
		if err := s.StartNamesrv(t.Context()); err != nil {
			t.Fatal(err)
		}
		ok = runPhase(t, clients, "after outage", true) && ok
	}
	for _, round := range []string{"stop", "kill"} {
		if !wanted(t, round) {
			continue
		}
		if !runPhase(t, clients, "before "+round, true) {
			t.Errorf("no round %q without its preparation", round)
			return
		}
		begin := time.Now()
		if round == "stop" {
			if err := s.StopBroker(); err != nil {
				t.Error(err)
			}
		} else {
			if err := s.AwaitOffsetsSaved(); err != nil {
				t.Error(err)
			}
			s.KillBroker()
		}
		if err := s.StartBroker(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("broker is back %d ms after %s", time.Since(begin).Milliseconds(), round)
		var known map[string]knownFailure
		if target == "apache" && round == "kill" {
			known = map[string]knownFailure{"timer": {doubledTimers, "Apache may deliver a timer twice after a kill: its progress is saved each second"}}
		}
		ok = runPhaseBut(t, clients, "after "+round, true, known) && ok
	}
	if !ok {
		t.Errorf("%s failed", target)
	}
}

// runPhase lets the clients run one phase, at once or one by one, and makes a subtest of each step.
func runPhase(t *testing.T, clients []Client, phase string, together bool) bool {
	return runPhaseBut(t, clients, phase, together, nil)
}

// A knownFailure is one way in which a step may fail, and why. Any other failure counts.
type knownFailure struct {
	detail *regexp.Regexp
	why    string
}

// doubledTimers is a list of the restart's timers in which some come more than once.
var doubledTimers = regexp.MustCompile(`timers: want .*, got \[timed5(, timed5)*(, timed17)+(, timed20)+\]`)

// runPhaseBut is runPhase for a phase in which some steps are known to fail in one way.
func runPhaseBut(t *testing.T, clients []Client, phase string, together bool, known map[string]knownFailure) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	results := make([][]Result, len(clients))
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { results[i], errs[i] = c.Run(ctx, phase) })
		if !together {
			wg.Wait()
		}
	}
	wg.Wait()
	ok := true
	for i, c := range clients {
		pass := t.Run(c.Name()+"/"+strings.ReplaceAll(phase, " ", "-"), func(t *testing.T) {
			if errs[i] != nil {
				t.Error(errs[i])
			}
			// Only phase "alone" may be empty for a client; when steps were picked, so may others.
			if len(results[i]) == 0 && phase != "alone" && os.Getenv("INTEROP_STEPS") == "" {
				t.Error("no step ran")
			}
			report(t, results[i], known)
		})
		ok = ok && pass
	}
	return ok
}

func report(t *testing.T, results []Result, known map[string]knownFailure) {
	slices.SortStableFunc(results, func(a, b Result) int { return int(b.Millis - a.Millis) })
	for _, r := range results {
		t.Run(r.Step, func(t *testing.T) {
			if k, ok := known[r.Step]; ok && !r.OK && k.detail.MatchString(r.Detail) {
				t.Skipf("%s (%s)", k.why, r.Detail)
			}
			if !r.OK {
				t.Errorf("after %d ms: %s", r.Millis, r.Detail)
				return
			}
			t.Logf("%d ms %s", r.Millis, r.Detail)
		})
	}
}
