// Package lint holds the house's rules that a compiler doesn't check: which
// room may import which, and who alone may touch a foreign library. They are
// tests, so that a wrong arrow fails a build and not a review.
package lint

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"strings"
	"testing"
)

const module = "github.com/ringmq/ringmq"

// levels are the floors of the house, top first: a room imports rooms of lower
// floors only, never one of its own floor (except its own sub-rooms) and never
// one above. docs/architecture.md draws the same picture.
var levels = [][]string{
	{"cmd/ringmq"},
	{"console", "bench/compare", "bench/torture", "internal/mqtest", "internal/alert"},
	{"bench", "bench/process"},
	{"broker", "namesrv", "controller"},
	{"broker/meta", "broker/pop", "engine/inspect"},
	{"engine"},
	{"commitlog", "consumequeue", "flush", "ha", "engine/index"},
	{"internal/segment"},
	{"netloop", "client", "internal/filter", "internal/config"},
	{"internal/vfs", "message", "remoting", "internal/auth", "internal/metrics", "internal/lint", "internal/mutants"},
}

// narrow lists rooms that must know less than their floor allows.
var narrow = map[string][]string{
	"netloop": {"remoting", "message", "internal/vfs"},
	"client":  {"remoting", "message"},
	// ha speaks over plain net connections.
	"ha":              {"internal/segment", "internal/vfs", "message"},
	"engine":          {"engine/index", "commitlog", "consumequeue", "flush", "ha", "internal/segment", "internal/filter", "internal/vfs", "message", "internal/metrics"},
	"namesrv":         {"netloop", "remoting", "internal/config", "internal/vfs", "client", "internal/metrics"},
	"internal/filter": {"message"},
	"broker/pop":      {"internal/vfs"},
}

// owners says which rooms alone may import a foreign package or a part of
// ours: the value's rooms, no other.
var owners = map[string][]string{
	"github.com/panjf2000/gnet/v2":     {"netloop"},
	"github.com/iceber/iouring-go":     {"flush"},
	"github.com/spf13/cobra":           {"cmd/ringmq"},
	"github.com/magiconair/properties": {"internal/config"},
}

type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var ps []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return ps
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
}

func floor(room string) int {
	for i, rooms := range levels {
		for _, r := range rooms {
			if r == room {
				return i
			}
		}
	}
	return -1
}

func room(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// TestArrows checks that imports point down, never sideways.
func TestArrows(t *testing.T) {
	for _, p := range listPackages(t) {
		from, ok := room(p.ImportPath)
		if !ok {
			continue
		}
		f := floor(from)
		if f < 0 {
			t.Errorf("%s has no floor: add the room to levels and to docs/architecture.md", from)
			continue
		}
		for _, imp := range p.Imports {
			to, ok := room(imp)
			if !ok {
				continue
			}
			if floor(to) <= f {
				t.Errorf("%s imports %s: got floor %d → %d, want an arrow that points down", from, to, f, floor(to))
			}
			if allowed, ok := narrow[from]; ok && !contains(allowed, to) {
				t.Errorf("%s imports %s: it may know only %s", from, to, strings.Join(allowed, ", "))
			}
		}
	}
}

// TestOwners checks that a foreign library stays behind the one room that
// speaks to it.
func TestOwners(t *testing.T) {
	for _, p := range listPackages(t) {
		from, ok := room(p.ImportPath)
		if !ok {
			continue
		}
		for _, imp := range append(append(p.Imports, p.TestImports...), p.XTestImports...) {
			for lib, rooms := range owners {
				if (imp == lib || strings.HasPrefix(imp, lib+"/")) && !contains(rooms, from) {
					t.Errorf("%s imports %s: only %s may", from, imp, strings.Join(rooms, ", "))
				}
			}
			// iouring-go's root does not link with today's Go: it pulls a
			// symbol by linkname. Its syscall sub-package does.
			if imp == "github.com/iceber/iouring-go" {
				t.Errorf("%s imports %s: want its syscall sub-package", from, imp)
			}
		}
	}
}

// TestStoreFiles checks that only vfs opens files of a store: the rooms of the
// store must not reach around it, or crash tests would not see what they do.
func TestStoreFiles(t *testing.T) {
	for _, p := range listPackages(t) {
		from, ok := room(p.ImportPath)
		if !ok || !contains([]string{"engine", "engine/index", "commitlog", "consumequeue", "internal/segment", "broker/meta", "broker/pop"}, from) {
			continue
		}
		for _, imp := range p.Imports {
			if imp == "os" || imp == "golang.org/x/sys/unix" || path.Base(imp) == "ioutil" {
				t.Errorf("%s imports %s: files of the store are opened by internal/vfs alone", from, imp)
			}
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
