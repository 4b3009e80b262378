package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	stdsync "sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringmq/ringmq/commitlog"
	"github.com/ringmq/ringmq/internal/vfs"
)

// TestFaults fails operation i of a run, for i = 0, 1, 2 … until a run meets no
// fault. No put is answered OK that is not there after a crash and a reopening;
// once a write or sync met the fault all later puts are refused, and reads go on.
func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		name string
		rule vfs.Rule
		step int
	}{
		{"write", vfs.Rule{Ops: vfs.OpWrite, Path: "commitlog/", Err: syscall.EIO}, 1},
		{"short write", vfs.Rule{Ops: vfs.OpWrite, Path: "commitlog/", Err: syscall.ENOSPC, Short: 100}, 1},
		{"sync", vfs.Rule{Ops: vfs.OpSync, Path: "commitlog/", Err: syscall.EIO}, 1},
		{"room", vfs.Rule{Ops: vfs.OpTruncate, Path: "commitlog/", Err: syscall.ENOSPC}, 1},
		{"segments", vfs.Rule{Ops: vfs.OpChange, Path: "prepared", Err: syscall.ENOSPC}, 1},
		{"queues", vfs.Rule{Ops: vfs.OpChange, Path: "consumequeue", Err: syscall.EIO}, 3},
		{"index", vfs.Rule{Ops: vfs.OpChange, Path: "index", Err: syscall.EIO}, 3},
		{"mark", vfs.Rule{Ops: vfs.OpChange, Path: markName, Err: syscall.EIO}, 1},
		{"anything", vfs.Rule{Ops: vfs.OpChange, Err: syscall.EIO}, 7},
	} {
		for _, sync := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/sync=%v", tc.name, sync), func(t *testing.T) {
				for i := 0; ; i += tc.step {
					rule := tc.rule
					rule.After, rule.Times = i, 1
					if !faultRun(t, rule, sync) || i > 2000 {
						if i == 0 {
							t.Error("no run met a fault")
						}
						return
					}
				}
			})
		}
	}
}

// faultRun says whether the rule's fault was met.
func faultRun(t *testing.T, rule vfs.Rule, sync bool) bool {
	t.Helper()
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	gate := make(chan struct{}, 1) // the fault takes what is in it
	gate <- struct{}{}
	rule.Gate = gate
	fault.Add(rule)
	ev := &recorder{}
	cfg := testConfig(fault)
	cfg.SyncFlush, cfg.SegmentBytes, cfg.Events, cfg.FlushInterval = sync, 4096, ev, time.Hour
	s, err := Open(cfg)
	if err != nil {
		if !errors.Is(err, rule.Err) {
			t.Fatalf("operation %d: Open: %v", rule.After, err)
		}
		reopenAfterFault(t, mem, cfg, sync, nil, rule.After)
		return true
	}
	var acked []string
	refused := false
	for i := range 40 {
		b := one(s, "T", 0, fmt.Sprintf("%03d", i), "KEYS", fmt.Sprint("k", i))
		b.MayDirect = i%2 == 0
		newWaiter().put(s, b)
		switch b.Items[0].Status {
		case OK:
			acked = append(acked, fmt.Sprintf("%03d", i))
			if refused && s.Err() != nil {
				t.Fatalf("operation %d: message %d is OK after the log was closed", rule.After, i)
			}
		case ServiceNotAvailable:
			if errors.Is(b.Err, commitlog.ErrNoSpace) && errors.Is(b.Err, rule.Err) {
				break // nothing was written, and the log stays open
			}
			refused = true
			if b.Err == nil || !errors.Is(b.Err, rule.Err) || !errors.Is(b.Err, ErrLogClosed) {
				t.Fatalf("operation %d: refused with %v", rule.After, b.Err)
			}
		case CreateFailed:
			if !errors.Is(b.Err, rule.Err) {
				t.Fatalf("operation %d: no segment: %v", rule.After, b.Err)
			}
		default:
			t.Fatalf("operation %d: %v, %v", rule.After, b.Items[0].Status, b.Err)
		}
		if i%10 == 9 && s.Err() == nil {
			if err := s.sweep(); err != nil {
				s.fail(err)
			}
		}
	}
	if got := bodies(t, s, "T", 0); !slices.Equal(got, acked) {
		t.Fatalf("operation %d: reads give %q, acknowledged were %q", rule.After, got, acked)
	}
	if s.Err() != nil && len(ev.closed) != 1 {
		t.Fatalf("operation %d: Closed was told %d times", rule.After, len(ev.closed))
	}
	policy := vfs.CrashPolicy{}
	if !sync { // acknowledged when written, not when durable: a killed process
		policy = vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}
	}
	clone := mem.CrashClone(policy, nil)
	_ = s.Close(context.Background())
	reopenAfterFault(t, clone, cfg, sync, acked, rule.After)
	return len(gate) == 0
}

func reopenAfterFault(t *testing.T, mem *vfs.Mem, cfg Config, sync bool, acked []string, op int) {
	t.Helper()
	cfg.FS, cfg.Events = mem.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil), nil
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("operation %d: reopening: %v", op, err)
	}
	defer mustClose(t, s)
	got := bodies(t, s, "T", 0)
	for _, want := range acked {
		if !slices.Contains(got, want) {
			t.Fatalf("operation %d: %q was acknowledged and is gone; there are %q", op, want, got)
		}
	}
	if !slices.IsSorted(got) {
		t.Fatalf("operation %d: out of order: %q", op, got)
	}
	send(t, s, "T", 0, "zzz")
}

// TestFaultsConcurrent fails a write or a sync under several senders, some of
// which append themselves.
func TestFaultsConcurrent(t *testing.T) {
	for _, ops := range []vfs.Op{vfs.OpWrite, vfs.OpSync} {
		for _, sync := range []bool{true, false} {
			for after := 0; after < 120; after += 9 {
				mem := vfs.NewMem()
				fault := vfs.NewFault(mem)
				cfg := testConfig(fault)
				cfg.SyncFlush, cfg.SegmentBytes = sync, 8<<10
				s, err := Open(cfg)
				if err != nil {
					t.Fatal(err)
				}
				fault.Add(vfs.Rule{Ops: ops, Path: "commitlog/", After: after, Err: syscall.EIO, Short: 77})
				acked := make([][]string, 4)
				var senders stdsync.WaitGroup
				for g := range acked {
					senders.Go(func() {
						for i := range 60 {
							b := one(s, "T", int32(g), fmt.Sprintf("%03d", i))
							b.MayDirect = g%2 == 0
							if newWaiter().put(s, b); b.Items[0].Status == OK {
								acked[g] = append(acked[g], fmt.Sprintf("%03d", i))
							}
						}
					})
				}
				senders.Wait()
				policy := vfs.CrashPolicy{}
				if !sync {
					policy = vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}
				}
				clone := mem.CrashClone(policy, nil)
				_ = s.Close(context.Background())
				cfg.FS = clone
				s = mustOpen(t, cfg)
				for g, want := range acked {
					got := bodies(t, s, "T", int32(g))
					if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
						t.Errorf("%v %d sync=%v: queue %d has %q, acknowledged were %q", ops, after, sync, g, got, want)
					}
				}
				mustClose(t, s)
			}
		}
	}
}
