package vfs

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math/rand/v2"
	"slices"
	"sort"
)

// Fate is what a crash does to one kind of unsynced change.
type Fate uint8

// Fates. Torn decides by chance: for bytes sector by sector (512 bytes), for a
// length and for each change of a name as a whole.
const (
	Dropped Fate = iota
	Kept
	Torn
)

// CrashPolicy says what becomes of what was not synced: bytes and lengths of
// files (Data), and names (Entries). The zero value drops everything, which is
// what a sync is for.
type CrashPolicy struct {
	Data    Fate
	Entries Fate
}

const sectorBytes = 512

// CrashClone gives the tree as it would be found after a crash at this moment.
// It is independent of m, whose open files stay usable, and holds no locks;
// everything in it is durable. rng decides what policy leaves to chance, may be
// nil where it leaves nothing, and is used by this call alone; the same tree
// and the same seed give the same clone.
func (m *Mem) CrashClone(policy CrashPolicy, rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &crasher{policy: policy, rng: rng, nodes: map[*memNode]*memNode{}, ops: map[*dirOp]bool{}}
	out := NewMem()
	out.total, out.now = m.total, m.now
	out.root = c.dir(m.root)
	return out
}

// crasher carries the decisions of one crash, so that a file with two names
// and a rename in two directories have one fate each.
type crasher struct {
	policy CrashPolicy
	rng    *rand.Rand
	nodes  map[*memNode]*memNode
	ops    map[*dirOp]bool
}

func (c *crasher) keep(f Fate) bool {
	return f == Kept || f == Torn && c.rng.IntN(2) == 0
}

// keepOp decides one change of a name, once.
func (c *crasher) keepOp(op *dirOp) bool {
	k, ok := c.ops[op]
	if !ok {
		k = c.keep(c.policy.Entries)
		c.ops[op] = k
	}
	return k
}

func (c *crasher) dir(d *memDir) *memDir {
	names := cloneMap(d.synced)
	for _, op := range d.pending {
		if !c.keepOp(op) {
			continue
		}
		switch {
		case op.kind == opCreate:
			names[op.name] = op.e
		case op.kind == opRemove:
			if names[op.name] == op.e {
				delete(names, op.name)
			}
		default: // rename, whose halves may lie in two directories
			if op.dir == d && !op.added {
				names[op.name] = op.e
			}
			if op.from == d && names[op.oldName] == op.e {
				delete(names, op.oldName)
			}
		}
	}
	out := newMemDir()
	out.modTime = d.modTime
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	sort.Strings(sorted)
	for _, name := range sorted {
		e := names[name]
		if e.dir != nil {
			out.entries[name] = memEntry{dir: c.dir(e.dir)}
		} else {
			out.entries[name] = memEntry{file: c.node(e.file)}
		}
	}
	out.synced = cloneMap(out.entries)
	return out
}

func (c *crasher) node(n *memNode) *memNode {
	if out, ok := c.nodes[n]; ok {
		return out
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	out := newMemNode(n.modTime)
	c.nodes[n] = out
	out.size = n.syncedSize
	if n.size != n.syncedSize && c.keep(c.policy.Data) {
		out.size = n.size
	}
	for i, p := range n.synced {
		out.synced[i] = p
	}
	if c.policy.Data != Dropped {
		dirty := make([]int64, 0, len(n.dirty))
		for i := range n.dirty {
			dirty = append(dirty, i)
		}
		slices.Sort(dirty) // the order of chance must not depend on the map's
		for _, i := range dirty {
			out.synced[i] = c.page(n, i)
		}
	}
	// What is kept behind the end that was kept is gone with the length.
	out.truncateCrashed()
	out.syncedSize = out.size
	return out
}

// page mixes the synced and the dirty version of a page by sectors.
func (c *crasher) page(n *memNode, i int64) *memPage {
	now := n.page(i)
	if c.policy.Data == Kept {
		p := *now
		return &p
	}
	p := zeroPage
	if old := n.synced[i]; old != nil {
		p = *old
	}
	for s := 0; s < pageBytes; s += sectorBytes {
		if c.keep(Torn) {
			copy(p[s:s+sectorBytes], now[s:])
		}
	}
	return &p
}

// truncateCrashed drops the pages behind size and zeroes the rest of the last.
func (n *memNode) truncateCrashed() {
	for i, p := range n.synced {
		start := i * pageBytes
		switch {
		case start >= n.size:
			delete(n.synced, i)
		case start+pageBytes > n.size:
			q := *p
			clear(q[n.size-start:])
			n.synced[i] = &q
		}
	}
}

// Sum is a hash of every name, length and byte of the tree as it reads now: two
// trees that read alike have one Sum.
func (m *Mem) Sum() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	h := sha256.New()
	m.root.walk("", func(path string, e memEntry) {
		h.Write([]byte(path))
		h.Write([]byte{0})
		if e.file != nil {
			e.file.sum(h)
		}
	})
	return hex.EncodeToString(h.Sum(nil))
}

func (n *memNode) sum(h hash.Hash) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var b [8]byte
	put := func(v int64) {
		binary.BigEndian.PutUint64(b[:], uint64(v))
		h.Write(b[:])
	}
	put(n.size)
	idx := make([]int64, 0, len(n.synced)+len(n.dirty))
	for i := range n.synced {
		idx = append(idx, i)
	}
	for i := range n.dirty {
		idx = append(idx, i)
	}
	slices.Sort(idx)
	for _, i := range slices.Compact(idx) {
		if p := n.page(i); *p != zeroPage {
			put(i)
			h.Write(p[:])
		}
	}
}
