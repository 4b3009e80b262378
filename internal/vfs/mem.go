package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that knows what a crash would leave of it:
// CrashClone gives the tree as it could be found after a power cut. Files are
// kept by 4 KiB pages, and pages that are all zero cost nothing, so a 1 GiB
// segment takes only what was really written. Safe for any number of
// goroutines.
type Mem struct {
	// mu guards the tree (every memDir) and locks. It is held to read by every
	// operation on a file's bytes, so that CrashClone, which holds it to write,
	// sees one moment of the whole tree. A node's own lock nests inside it.
	mu    sync.RWMutex
	root  *memDir
	locks map[string]bool
	total int64
	now   func() time.Time
}

// memTotal is the size Usage claims: far above what a test writes.
const memTotal = int64(1) << 40

// NewMem gives an empty tree: the root and "." are there.
func NewMem() *Mem {
	return &Mem{root: newMemDir(), locks: map[string]bool{}, total: memTotal, now: time.Now}
}

// memEntry is what a name stands for: a file or a directory.
type memEntry struct {
	file *memNode
	dir  *memDir
}

// memDir is a directory: the names now, the names a crash is sure to leave,
// and what was done since.
type memDir struct {
	entries map[string]memEntry
	synced  map[string]memEntry
	pending []*dirOp
	modTime time.Time
}

func newMemDir() *memDir {
	return &memDir{entries: map[string]memEntry{}, synced: map[string]memEntry{}}
}

// dirOp is one change of names that no SyncDir made durable yet. A rename
// between directories is pending in both of them.
type dirOp struct {
	kind    dirOpKind
	e       memEntry
	dir     *memDir // where name is added (create, rename) or removed
	name    string
	from    *memDir // rename: where oldName is removed
	oldName string
	// added is set when the new name is durable already and only the removal
	// of the old one is left.
	added bool
}

type dirOpKind uint8

const (
	opCreate dirOpKind = iota
	opRemove
	opRename
)

// journal puts op down in each directory it changes.
func (op *dirOp) journal() {
	op.dir.pending = append(op.dir.pending, op)
	if op.kind == opRename && op.from != op.dir {
		op.from.pending = append(op.from.pending, op)
	}
}

// sync makes the names of d durable.
func (d *memDir) sync() {
	for _, op := range d.pending {
		if op.kind != opRename || op.from == op.dir {
			continue
		}
		if op.dir == d {
			op.added = true
			continue
		}
		// The removal is durable, so the addition is: a rename never loses the
		// file altogether.
		delete(op.from.synced, op.oldName)
		if !op.added {
			op.settle()
		}
	}
	d.synced = cloneMap(d.entries)
	d.pending = nil
}

// settle makes the new name of a rename durable in its directory, over all that
// became of that name before.
func (op *dirOp) settle() {
	d := op.dir
	d.synced[op.name] = op.e
	at := slices.Index(d.pending, op)
	for _, p := range d.pending[:at] {
		if p.kind == opRename && p.dir == d && p.name == op.name {
			p.added = true
		}
	}
	earlier := slices.DeleteFunc(slices.Clone(d.pending[:at]), func(p *dirOp) bool {
		return p.kind != opRename && p.name == op.name
	})
	d.pending = append(earlier, d.pending[at+1:]...)
}

func cloneMap(m map[string]memEntry) map[string]memEntry {
	c := make(map[string]memEntry, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func pathErr(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// split cleans a path into its elements; the root and "." have none.
func split(name string) []string {
	name = filepath.ToSlash(filepath.Clean(name))
	name = strings.TrimPrefix(name, filepath.VolumeName(name))
	name = strings.Trim(name, "/")
	if name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

// dir walks to a directory; mu is held.
func (m *Mem) dir(elems []string) (*memDir, error) {
	d := m.root
	for _, el := range elems {
		e, ok := d.entries[el]
		if !ok {
			return nil, syscall.ENOENT
		}
		if e.dir == nil {
			return nil, syscall.ENOTDIR
		}
		d = e.dir
	}
	return d, nil
}

// parent walks to the directory that holds name; mu is held.
func (m *Mem) parent(name string) (*memDir, string, error) {
	elems := split(name)
	if len(elems) == 0 {
		return nil, "", syscall.EISDIR
	}
	d, err := m.dir(elems[:len(elems)-1])
	return d, elems[len(elems)-1], err
}

// Open implements FS.
func (m *Mem) Open(name string, flag Flag) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(name)
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	e, ok := d.entries[base]
	switch {
	case ok && flag&Create != 0 && flag&Excl != 0:
		return nil, pathErr("open", name, syscall.EEXIST)
	case ok && e.dir != nil:
		return nil, pathErr("open", name, syscall.EISDIR)
	case !ok && flag&Create == 0:
		return nil, pathErr("open", name, syscall.ENOENT)
	case !ok:
		e = memEntry{file: newMemNode(m.now())}
		d.entries[base] = e
		(&dirOp{kind: opCreate, e: e, dir: d, name: base}).journal()
		d.modTime = m.now()
	}
	return &memFile{m: m, n: e.file, name: name, write: flag&ReadWrite != 0}, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(name)
	if err != nil {
		return pathErr("remove", name, err)
	}
	e, ok := d.entries[base]
	if !ok {
		return pathErr("remove", name, syscall.ENOENT)
	}
	if e.dir != nil && len(e.dir.entries) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	delete(d.entries, base)
	(&dirOp{kind: opRemove, e: e, dir: d, name: base}).journal()
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	od, ob, err := m.parent(oldName)
	if err != nil {
		return pathErr("rename", oldName, err)
	}
	nd, nb, err := m.parent(newName)
	if err != nil {
		return pathErr("rename", newName, err)
	}
	e, ok := od.entries[ob]
	if !ok {
		return pathErr("rename", oldName, syscall.ENOENT)
	}
	if old, ok := nd.entries[nb]; ok {
		if old == e {
			return nil
		}
		if old.dir != nil && (e.dir == nil || len(old.dir.entries) > 0) {
			return pathErr("rename", newName, syscall.EEXIST)
		}
		if old.file != nil && e.dir != nil {
			return pathErr("rename", newName, syscall.ENOTDIR)
		}
	}
	delete(od.entries, ob)
	nd.entries[nb] = e
	(&dirOp{kind: opRename, e: e, dir: nd, name: nb, from: od, oldName: ob}).journal()
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.root
	for _, el := range split(dir) {
		e, ok := d.entries[el]
		if !ok {
			e = memEntry{dir: newMemDir()}
			d.entries[el] = e
			(&dirOp{kind: opCreate, e: e, dir: d, name: el}).journal()
		}
		if e.dir == nil {
			return pathErr("mkdir", dir, syscall.ENOTDIR)
		}
		d = e.dir
	}
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(dir string) ([]DirEntry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d, err := m.dir(split(dir))
	if err != nil {
		return nil, pathErr("readdir", dir, err)
	}
	out := make([]DirEntry, 0, len(d.entries))
	for name, e := range d.entries {
		out = append(out, e.info(name))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func (e memEntry) info(name string) Info {
	if e.dir != nil {
		return Info{Name: name, IsDir: true, ModTime: e.dir.modTime}
	}
	e.file.mu.RLock()
	defer e.file.mu.RUnlock()
	return Info{Name: name, Size: e.file.size, ModTime: e.file.modTime}
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	elems := split(name)
	if len(elems) == 0 {
		return Info{Name: filepath.Base(name), IsDir: true}, nil
	}
	d, err := m.dir(elems[:len(elems)-1])
	if err != nil {
		return Info{}, pathErr("stat", name, err)
	}
	e, ok := d.entries[elems[len(elems)-1]]
	if !ok {
		return Info{}, pathErr("stat", name, syscall.ENOENT)
	}
	return e.info(elems[len(elems)-1]), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.dir(split(dir))
	if err != nil {
		return pathErr("syncdir", dir, err)
	}
	d.sync()
	return nil
}

// Lock implements FS. A clone made by CrashClone has no lock held.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.RLock()
	taken := m.locks[strings.Join(split(name), "/")]
	m.mu.RUnlock()
	if taken {
		return nil, pathErr("lock", name, ErrLocked)
	}
	f, err := m.Open(name, ReadWrite|Create)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte("lock"), 0); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.Join(split(name), "/")
	if m.locks[key] {
		return nil, pathErr("lock", name, ErrLocked)
	}
	m.locks[key] = true
	return &memLock{m: m, key: key}, nil
}

type memLock struct {
	m    *Mem
	key  string
	once sync.Once
}

func (l *memLock) Close() error {
	err := fs.ErrClosed
	l.once.Do(func() {
		l.m.mu.Lock()
		delete(l.m.locks, l.key)
		l.m.mu.Unlock()
		err = nil
	})
	return err
}

// SetTotal sets the size of the device that Usage tells; writes are not held
// to it (Fault gives ENOSPC).
func (m *Mem) SetTotal(bytes int64) {
	m.mu.Lock()
	m.total = bytes
	m.mu.Unlock()
}

// Usage implements FS: what is free is the total less the pages in use.
func (m *Mem) Usage(string) (total, free int64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	used := int64(0)
	m.root.walk("", func(_ string, e memEntry) {
		if e.file != nil {
			used += e.file.used()
		}
	})
	return m.total, max(0, m.total-used), nil
}

// walk visits every entry below d in the order of names; mu is held.
func (d *memDir) walk(prefix string, fn func(path string, e memEntry)) {
	names := make([]string, 0, len(d.entries))
	for name := range d.entries {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		e := d.entries[name]
		fn(prefix+name, e)
		if e.dir != nil {
			e.dir.walk(prefix+name+"/", fn)
		}
	}
}

// ReadFile implements FS.
func (m *Mem) ReadFile(name string) ([]byte, error) {
	f, err := m.Open(name, Read)
	if err != nil {
		return nil, err
	}
	size, _ := f.Size()
	if size > math.MaxInt32 {
		return nil, pathErr("read", name, syscall.EFBIG)
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return b[:n], nil
}

// WriteFileAtomic implements FS.
func (m *Mem) WriteFileAtomic(name string, data []byte) error {
	return writeFileAtomic(m, name, data)
}

// String lists the tree, one entry a line with its size, for failed tests.
func (m *Mem) String() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var b strings.Builder
	m.root.walk("", func(path string, e memEntry) {
		if e.dir != nil {
			fmt.Fprintf(&b, "%s/\n", path)
			return
		}
		fmt.Fprintf(&b, "%s %d\n", path, e.info("").Size)
	})
	return b.String()
}
