package vfs

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"
)

// save is an operation made of many: the atomic write.
func save(f *Fault) error { return f.WriteFileAtomic("t", []byte("hello")) }

// Fail operation i, for i = 0, 1, 2 … until a run succeeds: each failed run
// leaves the old content or the new one, whole.
func TestFailEachOperation(t *testing.T) {
	for i := 0; ; i++ {
		m := NewMem()
		must(t, m.WriteFileAtomic("t", []byte("old")))
		f := NewFault(m)
		f.FailAt(OpChange, i, syscall.ENOSPC)
		err := save(f)
		if err == nil {
			if i < 5 {
				t.Fatalf("a run with operation %d failing succeeded", i)
			}
			return
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("operation %d: %v", i, err)
		}
		got := content(t, m.CrashClone(CrashPolicy{}, nil), "t")
		if got != "old" && got != "hello" {
			t.Fatalf("operation %d failed and left %q", i, got)
		}
	}
}

func TestFaultRules(t *testing.T) {
	f := NewFault(NewMem())
	file := open(t, f, "log/../a", ReadWrite|Create)
	other := open(t, f, "b", ReadWrite|Create)
	if _, ok := file.Fd(); ok {
		t.Fatal("a faulty file gave a descriptor to go around it")
	}
	f.Add(Rule{Ops: OpWrite, Path: "a", After: 1, Times: 2, Err: syscall.EIO, Short: 4})
	var got []bool
	for range 5 {
		_, err := file.WriteAt([]byte("0123456789"), 0)
		got = append(got, err != nil)
		if err != nil && !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{false, true, true, false, false} {
		if got[i] != want {
			t.Fatalf("failed writes %v, want the second and third", got)
		}
	}
	write(t, other, 0, "x")
	if n := f.Count(OpWrite); n != 6 {
		t.Fatalf("counted %d writes, want 6", n)
	}
	f.Clear()

	f.Add(Rule{Ops: OpWrite, Err: syscall.ENOSPC, Short: 5})
	if err := other.WriteVAt([][]byte{[]byte("abc"), []byte("def")}, 0); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	f.Clear()
	if got := content(t, f, "b"); got != "abcde" {
		t.Fatalf("a short write of 5 left %q", got)
	}
	f.Add(Rule{Ops: OpSync, Err: syscall.EIO})
	if err := errors.Join(file.SyncData(), file.Sync()); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
}

func TestFaultSlowsAndHolds(t *testing.T) {
	f := NewFault(NewMem())
	file := open(t, f, "a", ReadWrite|Create)
	f.Add(Rule{Ops: OpRead, Delay: 20 * time.Millisecond})
	start := time.Now()
	file.ReadAt(make([]byte, 1), 0)
	if d := time.Since(start); d < 20*time.Millisecond {
		t.Fatalf("a read slowed by 20 ms took %v", d)
	}
	gate := make(chan struct{})
	f.Add(Rule{Ops: OpSync, Gate: gate})
	var wg sync.WaitGroup
	synced := make(chan error, 1)
	wg.Go(func() { synced <- file.SyncData() })
	write(t, file, 0, "other operations go on")
	select {
	case <-synced:
		t.Fatal("a held sync returned")
	default:
	}
	close(gate)
	wg.Wait()
	must(t, <-synced)
	f.SetResident(func(string, int64, int64) (bool, bool) { return false, true })
	if res, known := file.Resident(0, 1); res || !known {
		t.Fatal("SetResident does not answer")
	}
}
