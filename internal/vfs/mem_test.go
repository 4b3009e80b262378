package vfs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// script does one thing after another to a tree, and says what a crash leaves.
func TestCrashClone(t *testing.T) {
	dropped, kept := CrashPolicy{}, CrashPolicy{Data: Kept, Entries: Kept}
	tests := map[string]struct {
		do     func(t *testing.T, m *Mem)
		policy CrashPolicy
		want   string
	}{
		"nothing synced":         {func(t *testing.T, m *Mem) { put(t, m, "f", "abc", false) }, dropped, ""},
		"bytes synced, name not": {func(t *testing.T, m *Mem) { put(t, m, "f", "abc", true) }, dropped, ""},
		"name synced, bytes not": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", false)
			must(t, m.SyncDir("."))
		}, dropped, `f=""`},
		"both synced": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", true)
			must(t, m.SyncDir("."))
		}, dropped, `f="abc"`},
		"overwritten and longer since": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", true)
			must(t, m.SyncDir("."))
			put(t, m, "f", "xyzuv", false)
		}, dropped, `f="abc"`},
		"overwritten and longer since, kept": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", true)
			must(t, m.SyncDir("."))
			put(t, m, "f", "xyzuv", false)
		}, kept, `f="xyzuv"`},
		"shorter since": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", true)
			must(t, m.SyncDir("."))
			must(t, open(t, m, "f", ReadWrite).Truncate(1))
		}, dropped, `f="abc"`},
		"shorter and longer since, kept": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", true)
			must(t, m.SyncDir("."))
			f := open(t, m, "f", ReadWrite)
			must(t, f.Truncate(1))
			must(t, f.Truncate(3))
		}, kept, `f="a\x00\x00"`},
		"removed since": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", true)
			must(t, m.SyncDir("."))
			must(t, m.Remove("f"))
		}, dropped, `f="abc"`},
		"removed durably": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", true)
			must(t, m.SyncDir("."))
			must(t, m.Remove("f"))
			must(t, m.SyncDir("."))
		}, dropped, ""},
		"renamed since": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", true)
			must(t, m.SyncDir("."))
			must(t, m.Rename("f", "g"))
		}, dropped, `f="abc"`},
		"renamed since, kept": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "abc", true)
			must(t, m.SyncDir("."))
			must(t, m.Rename("f", "g"))
		}, kept, `g="abc"`},
		"replaced by rename, dropped": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "old", true)
			put(t, m, "f.tmp", "new", true)
			must(t, m.SyncDir("."))
			must(t, m.Rename("f.tmp", "f"))
		}, dropped, `f="old" f.tmp="new"`},
		"replaced atomically": {func(t *testing.T, m *Mem) {
			put(t, m, "f", "old", true)
			must(t, m.SyncDir("."))
			must(t, m.WriteFileAtomic("f", []byte("new")))
		}, dropped, `f="new"`},
		"moved, the new directory synced alone": {func(t *testing.T, m *Mem) {
			must(t, MkdirAllSync(m, "d/e"))
			put(t, m, "d/e/f", "abc", true)
			must(t, m.SyncDir("d/e"))
			must(t, m.Rename("d/e/f", "d/f"))
			must(t, m.SyncDir("d"))
		}, dropped, `d/e/f="abc" d/f="abc"`},
		"moved, the old directory synced alone": {func(t *testing.T, m *Mem) {
			must(t, MkdirAllSync(m, "d/e"))
			put(t, m, "d/e/f", "abc", true)
			must(t, m.SyncDir("d/e"))
			must(t, m.Rename("d/e/f", "d/f"))
			must(t, m.SyncDir("d/e"))
		}, dropped, `d/f="abc"`},
		"moved over an unsynced name, the old directory synced, kept": {func(t *testing.T, m *Mem) {
			must(t, MkdirAllSync(m, "d/e"))
			put(t, m, "d/f", "old", true)
			put(t, m, "d/e/f", "new", true)
			must(t, m.Rename("d/e/f", "d/f"))
			must(t, m.SyncDir("d/e"))
		}, kept, `d/f="new"`},
		"moved, both synced": {func(t *testing.T, m *Mem) {
			must(t, MkdirAllSync(m, "d/e"))
			put(t, m, "d/e/f", "abc", true)
			must(t, m.Rename("d/e/f", "d/f"))
			must(t, m.SyncDir("d"))
			must(t, m.SyncDir("d/e"))
		}, dropped, `d/f="abc"`},
		"a directory made and not synced takes all along": {func(t *testing.T, m *Mem) {
			must(t, m.MkdirAll("d"))
			put(t, m, "d/f", "abc", true)
			must(t, m.SyncDir("d"))
		}, dropped, ""},
		"zeroed since": {func(t *testing.T, m *Mem) {
			put(t, m, "f", strings.Repeat("x", 3*pageBytes), true)
			must(t, m.SyncDir("."))
			must(t, open(t, m, "f", ReadWrite).ZeroRange(0, 3*pageBytes))
		}, dropped, fmt.Sprintf("f=%q", strings.Repeat("x", 3*pageBytes))},
		"written zeros, kept": {func(t *testing.T, m *Mem) {
			put(t, m, "f", strings.Repeat("x", pageBytes+1), true)
			must(t, m.SyncDir("."))
			put(t, m, "f", strings.Repeat("\x00", pageBytes+1), false)
		}, kept, fmt.Sprintf("f=%q", strings.Repeat("\x00", pageBytes+1))},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewMem()
			tc.do(t, m)
			before := m.Sum()
			c := m.CrashClone(tc.policy, nil)
			if got := tree(t, c); got != tc.want {
				t.Fatalf("crash left %.200s, want %.200s", got, tc.want)
			}
			if m.Sum() != before {
				t.Fatal("the crash changed the tree it was taken of")
			}
			// What a crash leaves is durable: a second one changes nothing.
			if again := c.CrashClone(CrashPolicy{}, nil); again.Sum() != c.Sum() {
				t.Fatal("a second crash left something else")
			}
		})
	}
}

func put(t testing.TB, m *Mem, name, data string, sync bool) {
	t.Helper()
	f := open(t, m, name, ReadWrite|Create)
	write(t, f, 0, data)
	if sync {
		must(t, f.SyncData())
	}
}

// tree shows the files of a tree, not its directories.
func tree(t testing.TB, m *Mem) string {
	var names []string
	m.mu.RLock()
	m.root.walk("", func(path string, e memEntry) {
		if e.file != nil {
			names = append(names, path)
		}
	})
	m.mu.RUnlock()
	for i, n := range names {
		names[i] = fmt.Sprintf("%s=%q", n, content(t, m, n))
	}
	return strings.Join(names, " ")
}

func TestCrashTornBySector(t *testing.T) {
	m := NewMem()
	const sectors = 64
	put(t, m, "f", strings.Repeat("o", sectors*sectorBytes), true)
	must(t, m.SyncDir("."))
	put(t, m, "f", strings.Repeat("n", sectors*sectorBytes), false)
	policy := CrashPolicy{Data: Torn}
	seen := map[string]bool{}
	for seed := range uint64(20) {
		c := m.CrashClone(policy, rand.New(rand.NewPCG(seed, 1)))
		again := m.CrashClone(policy, rand.New(rand.NewPCG(seed, 1)))
		if c.Sum() != again.Sum() {
			t.Fatalf("seed %d: two clones differ", seed)
		}
		seen[c.Sum()] = true
		got := []byte(content(t, c, "f"))
		olds := 0
		for s := range sectors {
			b := got[s*sectorBytes : (s+1)*sectorBytes]
			if n := bytes.Count(b, []byte("o")); n != 0 && n != sectorBytes {
				t.Fatalf("seed %d: sector %d is torn inside", seed, s)
			} else if n != 0 {
				olds++
			}
		}
		if olds < sectors/8 || olds > sectors*7/8 {
			t.Fatalf("seed %d: %d of %d sectors old", seed, olds, sectors)
		}
	}
	if len(seen) < 20 {
		t.Fatalf("20 seeds gave %d outcomes", len(seen))
	}
}

func TestCrashTornEntriesAreIndependent(t *testing.T) {
	m := NewMem()
	for _, n := range []string{"a", "b", "c"} {
		put(t, m, n, n, true)
	}
	seen := map[string]bool{}
	for seed := range uint64(64) {
		c := m.CrashClone(CrashPolicy{Entries: Torn}, rand.New(rand.NewPCG(seed, 2)))
		seen[tree(t, c)] = true
	}
	if len(seen) != 8 {
		t.Fatalf("three unsynced names gave %d of 8 outcomes: %v", len(seen), seen)
	}
}

// A rename whose halves lie in two directories never loses the file.
func TestCrashTornRenameIsWhole(t *testing.T) {
	m := NewMem()
	must(t, MkdirAllSync(m, "d"))
	put(t, m, "d/f", "abc", true)
	must(t, m.SyncDir("d"))
	must(t, m.Rename("d/f", "f"))
	seen := map[string]bool{}
	for seed := range uint64(64) {
		c := m.CrashClone(CrashPolicy{Entries: Torn}, rand.New(rand.NewPCG(seed, 3)))
		seen[tree(t, c)] = true
	}
	if len(seen) != 2 || !seen[`d/f="abc"`] || !seen[`f="abc"`] {
		t.Fatalf("outcomes %v", seen)
	}
}

func TestMemIsSparse(t *testing.T) {
	m := NewMem()
	f := open(t, m, "f", ReadWrite|Create)
	must(t, f.Truncate(1<<30))
	zero := make([]byte, 1<<20)
	for off := int64(0); off < 1<<30; off += 1 << 20 {
		if _, err := f.WriteAt(zero, off); err != nil {
			t.Fatal(err)
		}
	}
	write(t, f, 1<<29, "abc")
	total, free, err := m.Usage(".")
	must(t, err)
	if used := total - free; used > pageBytes {
		t.Fatalf("a zero-filled GiB and three bytes take %d bytes", used)
	}
	must(t, f.Sync())
	if _, free2, _ := m.Usage("."); free2 != free {
		t.Fatalf("the sync took %d bytes", free-free2)
	}
}

func TestCrashWhileWriting(t *testing.T) {
	m := NewMem()
	f := open(t, m, "f", ReadWrite|Create)
	must(t, m.SyncDir("."))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := f.WriteAt([]byte("0123456789"), int64(g*1000+i%50*10)); err != nil {
					t.Error(err)
				}
				if i%10 == 0 {
					f.SyncData()
				}
			}
		})
	}
	for seed := range uint64(50) {
		c := m.CrashClone(CrashPolicy{Data: Torn, Entries: Torn}, rand.New(rand.NewPCG(seed, 4)))
		_ = tree(t, c)
	}
	close(stop)
	wg.Wait()
}
