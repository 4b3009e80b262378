package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/vfs"
)

// TestStoreCommands runs the commands that look into a store over a real
// directory: sound, open, and damaged.
func TestStoreCommands(t *testing.T) {
	dir := t.TempDir()
	s, err := engine.Open(engine.Config{FS: vfs.OS(), Dir: dir, SegmentBytes: 1 << 20, ConsumeQueueBytes: 20 * 100, IndexSlots: 97, IndexEntries: 1000})
	if err != nil {
		t.Fatal(err)
	}
	store := func(want int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if got := run(append([]string{"store"}, args...), &out, &errs); got != want {
			t.Errorf("ringmq store %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, want, &out, &errs)
		}
		return out.String() + errs.String()
	}
	if out := store(1, "verify", dir); !strings.Contains(out, "--live") {
		t.Errorf("an open store: %s", out)
	}
	store(0, "verify", "--live", dir)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if out := store(0, "verify", dir); !strings.Contains(out, "everything is as it should be") {
		t.Errorf("a sound store: %s", out)
	}
	if out := store(0, "repair", dir); !strings.Contains(out, "nothing to repair") {
		t.Errorf("repair of a sound store: %s", out)
	}
	empty := filepath.Join(dir, "commitlog", "00000000000001048576")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := store(0, "repair", dir); !strings.Contains(out, "nothing was changed") {
		t.Errorf("a plan: %s", out)
	}
	store(0, "repair", "--yes", dir)
	if _, err := os.Stat(empty); err == nil {
		t.Error("repair --yes left the empty segment")
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "commitlog", "00000000000000000000"), make([]byte, 1<<19), 0o644),
		os.WriteFile(empty, make([]byte, 1<<20), 0o644)); err != nil {
		t.Fatal(err)
	}
	var r struct{ Damaged int }
	if err := json.Unmarshal([]byte(store(1, "verify", "-o", "json", dir)), &r); err != nil || r.Damaged == 0 {
		t.Errorf("a cut segment: %+v, %v", r, err)
	}
	store(0, "dump", "log", dir)
	store(0, "dump", "tables", dir)
	store(1, "dump", "queue", dir, "T", "0")
	store(1, "dump", "queue", dir, "T", "x")
	store(1, "repair", "--keep", "both", dir)
	store(1, "verify", "-o", "xml", dir)
	store(1, "verify", filepath.Join(dir, "nothing"))
	store(1, "verify")
}
