package vfs

import (
	"io"
	"strings"
	"sync"
	"time"
)

// Op is a set of kinds of operations.
type Op uint32

// Kinds of operations that Fault counts and fails.
const (
	OpOpen     Op = 1 << iota // Open without making the file
	OpCreate                  // Open with Create
	OpRemove                  // Remove
	OpRename                  // Rename
	OpMkdir                   // MkdirAll
	OpReadDir                 // ReadDir, Stat, Usage
	OpLock                    // Lock
	OpSyncDir                 // SyncDir
	OpRead                    // ReadAt, ReadFile
	OpWrite                   // WriteAt, WriteVAt
	OpSync                    // SyncData, Sync
	OpTruncate                // Truncate, Allocate
	OpZero                    // ZeroRange
	OpClose                   // Close of a file
	OpAll      Op = 1<<iota - 1
	// OpChange is every kind that changes the disk.
	OpChange = OpCreate | OpRemove | OpRename | OpMkdir | OpSyncDir | OpWrite | OpSync | OpTruncate | OpZero
)

// A Rule says what befalls some of the operations of a Fault.
type Rule struct {
	Ops  Op     // kinds it is for
	Path string // only for names that contain it; "" is all
	// After lets so many matching operations pass; Times then takes so many,
	// or all that follow when it is 0.
	After, Times int
	// Delay is slept before the operation.
	Delay time.Duration
	// Gate, where not nil, holds the operation until it can be received from
	// (closed, say).
	Gate <-chan struct{}
	// Err fails the operation. It does not take place, except that a write
	// puts its first Short bytes in place.
	Err   error
	Short int
}

// Fault wraps an FS to count, fail and slow its operations. Its files have no
// descriptor (Fd), so that no operation goes around it. Safe for any number of
// goroutines; WriteFileAtomic counts as the operations it is made of.
type Fault struct {
	fs FS

	mu       sync.Mutex
	rules    []*rule
	counts   map[Op]int64
	resident func(name string, off, n int64) (resident, known bool)
}

type rule struct {
	Rule
	seen int
}

// NewFault wraps fs, with no rule yet.
func NewFault(fs FS) *Fault { return &Fault{fs: fs, counts: map[Op]int64{}} }

// Add puts a rule in force behind those that are; its After counts from now.
// Where several rules fit an operation, the delays add up and the first error
// wins.
func (f *Fault) Add(r Rule) {
	f.mu.Lock()
	f.rules = append(f.rules, &rule{Rule: r})
	f.mu.Unlock()
}

// FailAt fails operation i (0 is the next) of the kinds with err, once.
func (f *Fault) FailAt(ops Op, i int, err error) { f.Add(Rule{Ops: ops, After: i, Times: 1, Err: err}) }

// Clear takes all rules away.
func (f *Fault) Clear() {
	f.mu.Lock()
	f.rules = nil
	f.mu.Unlock()
}

// Count is how many operations of the kinds were asked for so far.
func (f *Fault) Count(ops Op) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := int64(0)
	for op, c := range f.counts {
		if op&ops != 0 {
			n += c
		}
	}
	return n
}

// SetResident makes fn answer File.Resident; nil asks the wrapped file again.
func (f *Fault) SetResident(fn func(name string, off, n int64) (resident, known bool)) {
	f.mu.Lock()
	f.resident = fn
	f.mu.Unlock()
}

// before runs the rules for one operation; short is for writes.
func (f *Fault) before(op Op, name string) (short int, err error) {
	f.mu.Lock()
	f.counts[op]++
	var delay time.Duration
	var gates []<-chan struct{}
	for _, r := range f.rules {
		if r.Ops&op == 0 || !strings.Contains(name, r.Path) {
			continue
		}
		i := r.seen
		r.seen++
		if i < r.After || r.Times > 0 && i >= r.After+r.Times {
			continue
		}
		delay += r.Delay
		if r.Gate != nil {
			gates = append(gates, r.Gate)
		}
		if err == nil && r.Err != nil {
			err = pathErr("fault", name, r.Err)
			short = r.Short
		}
	}
	f.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	for _, g := range gates {
		<-g
	}
	return short, err
}

func (f *Fault) do(op Op, name string) error {
	_, err := f.before(op, name)
	return err
}

// Open implements FS.
func (f *Fault) Open(name string, flag Flag) (File, error) {
	op := OpOpen
	if flag&Create != 0 {
		op = OpCreate
	}
	if err := f.do(op, name); err != nil {
		return nil, err
	}
	file, err := f.fs.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, f: f}, nil
}

// Remove implements FS.
func (f *Fault) Remove(name string) error {
	if err := f.do(OpRemove, name); err != nil {
		return err
	}
	return f.fs.Remove(name)
}

// Rename implements FS.
func (f *Fault) Rename(oldName, newName string) error {
	if err := f.do(OpRename, newName); err != nil {
		return err
	}
	return f.fs.Rename(oldName, newName)
}

// MkdirAll implements FS.
func (f *Fault) MkdirAll(dir string) error {
	if err := f.do(OpMkdir, dir); err != nil {
		return err
	}
	return f.fs.MkdirAll(dir)
}

// ReadDir implements FS.
func (f *Fault) ReadDir(dir string) ([]DirEntry, error) {
	if err := f.do(OpReadDir, dir); err != nil {
		return nil, err
	}
	return f.fs.ReadDir(dir)
}

// Stat implements FS.
func (f *Fault) Stat(name string) (Info, error) {
	if err := f.do(OpReadDir, name); err != nil {
		return Info{}, err
	}
	return f.fs.Stat(name)
}

// SyncDir implements FS.
func (f *Fault) SyncDir(dir string) error {
	if err := f.do(OpSyncDir, dir); err != nil {
		return err
	}
	return f.fs.SyncDir(dir)
}

// Lock implements FS.
func (f *Fault) Lock(name string) (io.Closer, error) {
	if err := f.do(OpLock, name); err != nil {
		return nil, err
	}
	return f.fs.Lock(name)
}

// Usage implements FS.
func (f *Fault) Usage(dir string) (total, free int64, err error) {
	if err := f.do(OpReadDir, dir); err != nil {
		return 0, 0, err
	}
	return f.fs.Usage(dir)
}

// ReadFile implements FS.
func (f *Fault) ReadFile(name string) ([]byte, error) {
	if err := f.do(OpRead, name); err != nil {
		return nil, err
	}
	return f.fs.ReadFile(name)
}

// WriteFileAtomic implements FS.
func (f *Fault) WriteFileAtomic(name string, data []byte) error {
	return writeFileAtomic(f, name, data)
}

// faultFile is a file of a Fault. What it does not name goes straight through.
type faultFile struct {
	File
	f *Fault
}

func (w *faultFile) Fd() (int, bool) { return -1, false }

// Map implements File: none, or reads would pass by the faults.
func (w *faultFile) Map() []byte { return nil }

func (w *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := w.f.do(OpRead, w.Name()); err != nil {
		return 0, err
	}
	return w.File.ReadAt(p, off)
}

func (w *faultFile) WriteAt(p []byte, off int64) (int, error) {
	short, err := w.f.before(OpWrite, w.Name())
	if err != nil {
		n, _ := w.File.WriteAt(p[:min(short, len(p))], off)
		return n, err
	}
	return w.File.WriteAt(p, off)
}

func (w *faultFile) WriteVAt(bufs [][]byte, off int64) error {
	short, err := w.f.before(OpWrite, w.Name())
	if err == nil {
		return w.File.WriteVAt(bufs, off)
	}
	for _, b := range bufs {
		c := min(short, len(b))
		_, _ = w.File.WriteAt(b[:c], off) // the injected error is the answer
		off += int64(c)
		short -= c
	}
	return err
}

func (w *faultFile) SyncData() error {
	if err := w.f.do(OpSync, w.Name()); err != nil {
		return err
	}
	return w.File.SyncData()
}

func (w *faultFile) Sync() error {
	if err := w.f.do(OpSync, w.Name()); err != nil {
		return err
	}
	return w.File.Sync()
}

func (w *faultFile) Truncate(size int64) error {
	if err := w.f.do(OpTruncate, w.Name()); err != nil {
		return err
	}
	return w.File.Truncate(size)
}

func (w *faultFile) Allocate(off, n int64) error {
	if err := w.f.do(OpTruncate, w.Name()); err != nil {
		return err
	}
	return w.File.Allocate(off, n)
}

func (w *faultFile) ZeroRange(off, n int64) error {
	if err := w.f.do(OpZero, w.Name()); err != nil {
		return err
	}
	return w.File.ZeroRange(off, n)
}

func (w *faultFile) Close() error {
	if err := w.f.do(OpClose, w.Name()); err != nil {
		return err
	}
	return w.File.Close()
}

func (w *faultFile) Resident(off, n int64) (resident, known bool) {
	w.f.mu.Lock()
	fn := w.f.resident
	w.f.mu.Unlock()
	if fn != nil {
		return fn(w.Name(), off, n)
	}
	return w.File.Resident(off, n)
}
