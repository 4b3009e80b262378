package interop

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMoves takes a store from one broker to the other, in place: what one has written and was still to do when it
// was stopped, or killed, the other finds and does. The steps are those of a restart: messages at their places,
// offsets, keys, delays, timers, transactions, batches, filters; clients live through it. What is popped and not
// acknowledged isn't taken over (docs/compatibility.md), so the client that pops isn't among them.
func TestMoves(t *testing.T) {
	if len(targets(t)) < 2 {
		t.Skip("INTEROP_TARGET leaves one of the two out")
	}
	for _, m := range []struct {
		from, to, round string
		known           map[string]knownFailure
	}{
		{"apache", "ringmq", "stop", nil},
		{"apache", "ringmq", "kill", nil},
		{"ringmq", "apache", "stop", map[string]knownFailure{
			"timer": {doubledTimers, "Apache delivers again what is due behind the oldest pending timer: docs/compatibility.md"}}},
	} {
		t.Run(m.from+"-to-"+m.to+"-after-"+m.round, func(t *testing.T) { move(t, m.from, m.to, m.round, m.known) })
	}
}

func launcherOf(target string) launcher {
	if target == "apache" {
		return apache{}
	}
	return ringmq{}
}

func move(t *testing.T, from, to, round string, known map[string]knownFailure) {
	s := startServers(t, from, nil)
	var clients []Client
	for _, name := range []string{"java-" + Java4, "go"} {
		c, err := newClient(name, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	if !runPhase(t, clients, "before "+round, true) {
		t.Fatal("no move without its preparation")
	}
	if round == "stop" {
		if err := s.StopBroker(); err != nil {
			t.Fatal(err)
		}
	} else {
		s.KillBroker()
	}
	verifyStore(t, s, round == "stop")
	s.launch = launcherOf(to)
	if err := s.StartBroker(t.Context()); err != nil {
		t.Fatal(err)
	}
	runPhaseBut(t, clients, "after "+round, true, known)
}

// verifyStore lets ringmq store verify judge what a broker left behind.
func verifyStore(t *testing.T, s *Servers, clean bool) {
	t.Helper()
	bin, err := Ringmq()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bin, "store", "verify", filepath.Join(s.Dir, "store")).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil && clean {
		t.Errorf("the store that %s left is not sound:\n%s", s.Target, out)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "store", "abort")); (err == nil) == clean {
		t.Errorf("abort file: %v, stopped cleanly: %v", err == nil, clean)
	}
	t.Logf("%s", out)
}
