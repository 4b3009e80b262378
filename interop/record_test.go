package interop

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var recordDir = flag.String("record", "", "directory that gets frames recorded between Apache's clients and servers")

// TestRecord makes the fixtures of remoting/testdata/frames. It runs only when asked:
//
//	go test -run TestRecord -record ../remoting/testdata/frames .
func TestRecord(t *testing.T) {
	if *recordDir == "" {
		t.Skip("a generator of fixtures, run with -record DIR")
	}
	for _, tc := range []struct {
		name, client string
		binary       bool
	}{
		{"java-4.9.8", "java-" + Java4, false},
		{"java-5.3.3", "java-" + Java5, false},
		{"java-5.3.3-binary", "java-" + Java5, true},
		{"go", "go", false},
	} {
		t.Run(tc.name, func(t *testing.T) { recordClient(t, tc.name, tc.client, tc.binary) })
	}
}

func recordClient(t *testing.T, name, client string, binary bool) {
	const namesrvProxy, brokerProxy = "127.0.0.1:22676", "127.0.0.1:22711"
	r := NewRecorder()
	s := startServers(t, "apache", func(s *Servers) {
		for _, p := range [][4]string{{namesrvProxy, "namesrv", s.Namesrv, s.Broker}, {brokerProxy, "broker", s.Broker, ""}} {
			new := ""
			if p[3] != "" {
				new = brokerProxy
			}
			if err := r.Proxy(p[0], p[1], p[2], p[3], new); err != nil {
				t.Fatal(err)
			}
		}
		s.RegisterAt = namesrvProxy
	})
	told := *s
	told.Namesrv, told.Broker, told.Binary = namesrvProxy, brokerProxy, binary
	c, err := newClient(client, &told)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, phase := range []string{"steady", "alone"} {
		results, err := c.Run(t.Context(), phase)
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range results {
			if !res.OK {
				t.Logf("%s: %s", res.Step, res.Detail) // steps that look at addresses see the proxy's; frames are true
			}
		}
	}
	c.Close()
	all := r.Close()
	slices.SortStableFunc(all, func(a, b Exchange) int { return a.Code - b.Code })
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(*recordDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*recordDir, name+".json"), append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	codes := map[int]bool{}
	for _, e := range all {
		codes[e.Code] = true
	}
	t.Logf("%d exchanges of %d codes, %d bytes", len(all), len(codes), len(b))
}
