// Package mutants answers one question: would the tests see it, if somebody
// broke what keeps acknowledged messages safe?
//
// A mutant is one such mistake: a piece of source and what it becomes. Each is
// compiled in place of the true file (go test -overlay), the named tests run,
// and at least one of them must fail. That takes minutes: `make mutants`. Every
// `go test` holds that the pieces still stand in the source, each once, so that
// the list does not rot.
package mutants

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant is one mistake.
type mutant struct {
	name     string
	file     string // from the module's root
	old, new string
	test     string // package
	run      string // of its tests; all when empty
}

const root = "../.."

var mutants = []mutant{
	{name: "SEND_OK before the sync", file: "engine/dispatch.go",
		old: "case s.cfg.SyncFlush && !b.Wait:", new: "case s.cfg.SyncFlush:",
		test: "./engine", run: "Crash"},
	{name: "the log is not synced", file: "flush/flusher.go",
		old: "err := f.cfg.Device.Sync(files)", new: "err := error(nil)\n\t_ = files",
		test: "./engine", run: "Crash"},
	{name: "a failed sync is passed over", file: "flush/flusher.go",
		old: "if err != nil {\n\t\tf.fail(from,", new: "if false {\n\t\tf.fail(from,",
		test: "./engine", run: "Fault|Fail|Error|Sync"},
	{name: "a new segment's name is not synced", file: "internal/segment/change.go",
		old: "for _, dir := range []string{s.dir, filepath.Dir(m.name)} {", new: "for _, dir := range []string{} {",
		test: "./engine", run: "Crash"},
	{name: "the last record of a group is not written", file: "commitlog/append.go",
		old: "WriteV(g.seg.File(), g.bufs, g.start", new: "WriteV(g.seg.File(), g.bufs[:len(g.bufs)-1], g.start",
		test: "./engine", run: "Crash"},
	{name: "bytes behind a cut stay", file: "internal/segment/change.go",
		old: "if err := last.file.ZeroRange(off-last.Base, last.End()-off); err != nil {", new: "if err := error(nil); err != nil {",
		test: "./engine"},
	{name: "the mark moves before entries are durable", file: "engine/tick.go",
		old: "if err := s.sweepRooms(); err != nil {\n\t\treturn err\n\t}\n\ts.sweeps.Add(1)", new: "s.sweeps.Add(1)",
		test: "./engine"},
	{name: "the mark moves beyond what is durable", file: "engine/tick.go",
		old: "if !s.due || int64(s.swept.end) > s.flusher.Durable() {", new: "if !s.due {",
		test: "./engine"},
	{name: "ConsumeQueues are not synced", file: "consumequeue/sweep.go",
		old: "return j.h.SyncData()", new: "return nil",
		test: "./engine"},
	{name: "recovery takes records out of order", file: "engine/recover.go",
		old: "case gap && strict:", new: "case false:",
		test: "./engine"},
	{name: "recovery takes torn bodies", file: "engine/recover.go",
		old: "s.log.Scan(r.from, s.log.SegmentsEnd(), true)", new: "s.log.Scan(r.from, s.log.SegmentsEnd(), false)",
		test: "./engine"},
	{name: "recovery takes records from elsewhere", file: "message/record.go",
		old: "if p := PhysicalOffsetOf(b); p != at {", new: "if p := PhysicalOffsetOf(b); false {",
		test: "./engine"},
	{name: "durable records below the mark are cut", file: "engine/recover.go",
		old: "if r.marked && off < r.strict {\n\t\treturn nil\n\t}\n\tstored, strict", new: "stored, strict",
		test: "./engine", run: "Recover|Rebuild"},
	{name: "torn properties are taken", file: "engine/recover.go",
		old: "return !r.clean && (!r.marked || off >= r.strict)", new: "return false",
		test: "./engine", run: "Torn"},
	{name: "queue entries that nobody synced are believed", file: "engine/open.go",
		old: "trust = consumequeue.TrustNothing", new: "trust = 0",
		test: "./engine", run: "Believed"},
	{name: "store time goes back", file: "engine/put.go",
		old: "s.storeMillis = max(s.storeMillis, began.UnixMilli())", new: "s.storeMillis = began.UnixMilli()",
		test: "./engine"},
	{name: "a small file is renamed before it is synced", file: "internal/vfs/vfs.go",
		old: "if err == nil {\n\t\terr = f.Sync()\n\t}\n\tif cerr", new: "if cerr",
		test: "./broker/meta"},
	{name: "an offset's commit is answered before it is written", file: "broker/meta/keeper.go",
		old: "err := k.append(b)\n\tfor _, w", new: "err := error(nil)\n\tdefer k.append(b)\n\tfor _, w",
		test: "./broker/meta"},
	{name: "a delivered message forgets its origin", file: "broker/carrier.go",
		old: "queueID, c.addr, origin+1", new: "queueID, c.addr, origin*0",
		test: "./broker", run: "Schedule|Deliver|Delay"},
	{name: "a committed transaction forgets its half message", file: "broker/txn_end.go",
		old: "r.PreparedTransactionOffset = h.at", new: "r.PreparedTransactionOffset = 0",
		test: "./broker", run: "Txn|Transaction"},
}

func source(t *testing.T, m *mutant) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestMutantsStand holds that each mutant's piece stands in the source once.
func TestMutantsStand(t *testing.T) {
	for _, m := range mutants {
		if n := strings.Count(source(t, &m), m.old); n != 1 {
			t.Errorf("%s: %q stands %d times in %s, want once", m.name, m.old, n, m.file)
		}
	}
}

// TestMutants runs the tests against each mutant.
func TestMutants(t *testing.T) {
	if os.Getenv("RINGMQ_MUTANTS") == "" {
		t.Skip("takes minutes: make mutants")
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) { m.mustFail(t) })
	}
}

func (m *mutant) mustFail(t *testing.T) {
	abs, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mutated, overlay := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(mutated, []byte(strings.Replace(source(t, m), m.old, m.new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{abs: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, b, 0o644); err != nil {
		t.Fatal(err)
	}
	run := m.run
	if run == "" {
		run = "."
	}
	cmd := exec.Command("go", "test", "-count=1", "-timeout=3m", "-failfast", "-overlay", overlay, "-run", run, m.test)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("no test of %s sees it", m.test)
	case strings.Contains(string(out), "[build failed]"):
		t.Errorf("doesn't compile:\n%s", out)
	default:
		t.Logf("caught by %s", firstFailed(string(out)))
	}
}

// firstFailed is the deepest test of the first failure.
func firstFailed(out string) string {
	name := "a timeout or a panic"
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			name, _, _ = strings.Cut(rest, " ")
			continue
		}
		if strings.HasPrefix(name, "Test") {
			break
		}
	}
	return name
}
