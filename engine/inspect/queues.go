package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ringmq/ringmq/consumequeue"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

const (
	// entriesAhead is how many entries of a queue are read at a time.
	entriesAhead = 256
	// queueFilesOpen bounds the ConsumeQueue files open at once.
	queueFilesOpen = 512
)

// queueCheck holds records against the entries of their queues.
type queueCheck struct {
	v       *verifier
	byTopic map[string]map[int32]*queue
	opened  []*queue // those with an open file, the one opened first in front
	deleted int64    // records of queues that aren't there
	older   int64    // records of a topic that was deleted and made again
}

// A queue is one ConsumeQueue as its files have it: of entries, of which the
// n-th is the n-th message's, or of batches, whose units follow each other as
// the records do.
type queue struct {
	topic   string
	id      int32
	dir     string
	files   []place
	size    int64 // of a file
	unit    int64 // bytes of an entry
	at      int64 // of batches: number of the unit to come
	file    vfs.File
	fileAt  int64 // base of file
	buf     []byte
	bufAt   int64 // position of buf in the queue
	seen    int64 // entries whose record was met
	missing int64 // entries that aren't on the disk yet
	end     int64 // behind the last entry
	wrong   bool  // a start has to make it anew
}

func itoa(id int32) string { return strconv.Itoa(int(id)) }

func openQueues(v *verifier) (*queueCheck, error) {
	c := &queueCheck{v: v, byTopic: map[string]map[int32]*queue{}}
	for _, kind := range kinds {
		if err := c.addAll(kind.dir, kind.unit); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// kinds are the two kinds of queues, by directory.
var kinds = []struct {
	dir  string
	unit int64
}{{"consumequeue", consumequeue.EntryBytes}, {"batchconsumequeue", consumequeue.BatchUnitBytes}}

// addAll finds the queues of one kind.
func (c *queueCheck) addAll(name string, unit int64) error {
	v, dir := c.v, filepath.Join(c.v.cfg.Dir, name)
	topics, err := v.cfg.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, t := range topics {
		if !t.IsDir {
			v.report.add(Note, filepath.Join(dir, t.Name), -1, "not a topic's directory: brokers leave it alone")
			continue
		}
		ids, err := v.cfg.FS.ReadDir(filepath.Join(dir, t.Name))
		if err != nil {
			return err
		}
		for _, e := range ids {
			path := filepath.Join(dir, t.Name, e.Name)
			id, err := strconv.ParseInt(e.Name, 10, 32)
			if !e.IsDir || err != nil || id < 0 {
				v.report.add(Note, path, -1, "not a queue's directory: brokers leave it alone")
				continue
			}
			if err := c.add(t.Name, int32(id), path, unit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *queueCheck) add(topic string, id int32, dir string, unit int64) error {
	files, strays, err := listFiles(c.v.cfg.FS, dir)
	if err != nil {
		return err
	}
	for _, s := range strays {
		c.v.report.add(Note, s, -1, "not a ConsumeQueue file: brokers leave it alone")
	}
	q := &queue{topic: topic, id: id, dir: dir, files: files, size: usualSize(files), unit: unit}
	q.at = q.first()
	for i, f := range files {
		if f.size != q.size && (f.size != 0 || i < len(files)-1) {
			c.v.report.add(Repairs, f.path, -1, "%d bytes long, the queue's other files have %d: made anew from the log", f.size, q.size)
		}
		if i > 0 && f.base != files[i-1].base+q.size {
			c.v.report.add(Repairs, f.path, -1, "file missing before it: made anew from the log")
		}
	}
	if c.byTopic[topic] == nil {
		c.byTopic[topic] = map[int32]*queue{}
	}
	c.byTopic[topic][id] = q
	c.v.report.Queues++
	return nil
}

// record holds one record against its entry.
func (c *queueCheck) record(s place, at int64, rec []byte) error {
	if !message.EntersQueue(rec) {
		return nil
	}
	q := c.byTopic[string(message.TopicOf(rec))][message.QueueIDOf(rec)]
	if q == nil {
		c.deleted++
		return nil
	}
	n, off := int64(message.QueueOffsetOf(rec)), message.QueueOffsetOf(rec)
	if q.batches() {
		if err := c.seek(q, at); err != nil {
			return err
		}
		n = q.at
	}
	e, base, there, err := c.entry(q, n)
	if err != nil {
		return err
	}
	end := at + int64(len(rec))
	switch {
	case there && int64(e.LogOffset) == at && int(e.Size) == len(rec) && base == off && (!q.batches() || e.Count == message.InnerNum(rec)):
		q.seen++
		q.at++
	case there && int64(e.LogOffset) > at && !e.Filler():
		c.older++
	case !there && !c.v.known(end):
		q.missing++
	case !there && n < q.first():
		c.older++ // the queue has been deleted from the front
	default:
		got := "there is none"
		if there {
			got = fmt.Sprintf("it points at %d, size %d, for message %d", e.LogOffset, e.Size, base)
		}
		c.v.report.add(Damage, q.dir, n*q.unit, "the entry of message %d (log offset %d, size %d, %s) is wrong: %s", off, at, len(rec), filepath.Base(s.path), got)
		q.wrong = true
	}
	return nil
}

func (q *queue) batches() bool { return q.unit == consumequeue.BatchUnitBytes }

// seek passes over the units of records below at: they are deleted, or damaged.
func (c *queueCheck) seek(q *queue, at int64) error {
	for {
		e, _, there, err := c.entry(q, q.at)
		if err != nil || !there || int64(e.LogOffset) >= at {
			return err
		}
		q.at++
	}
}

// first is the number of the first entry the files have room for.
func (q *queue) first() int64 {
	if len(q.files) == 0 {
		return 0
	}
	return q.files[0].base / q.unit
}

// entry reads the n-th entry, and the queueOffset it is for; there is false
// where nothing was written.
func (c *queueCheck) entry(q *queue, n int64) (e consumequeue.Entry, base message.QueueOffset, there bool, err error) {
	pos := n * q.unit
	if !q.has(pos) {
		if err := c.fill(q, pos); err != nil || !q.has(pos) {
			return e, 0, false, err
		}
	}
	b := q.buf[pos-q.bufAt:]
	if q.batches() {
		e, base = consumequeue.DecodeBatchUnit(b)
	} else {
		e, base = consumequeue.DecodeEntry(b), message.QueueOffset(n)
	}
	return e, base, e.Valid(), nil
}

// has says whether buf holds the entry at pos.
func (q *queue) has(pos int64) bool {
	return pos >= q.bufAt && pos+q.unit <= q.bufAt+int64(len(q.buf))
}

// fill reads entries from pos on.
func (c *queueCheck) fill(q *queue, pos int64) error {
	q.buf = q.buf[:0]
	i, found := slices.BinarySearchFunc(q.files, pos, func(f place, pos int64) int {
		switch {
		case pos < f.base:
			return 1
		case pos >= f.base+q.size:
			return -1
		}
		return 0
	})
	if !found {
		return nil
	}
	f := q.files[i]
	if err := c.open(q, f); err != nil {
		return err
	}
	n := min(entriesAhead*q.unit, f.base+f.size-pos)
	if n <= 0 {
		return nil
	}
	if cap(q.buf) < int(n) {
		q.buf = make([]byte, 0, entriesAhead*q.unit)
	}
	got, err := q.file.ReadAt(q.buf[:n], pos-f.base)
	if got < int(n) && err != nil {
		c.v.report.add(Damage, f.path, pos-f.base, "can't be read: %v", err)
	}
	q.buf, q.bufAt = q.buf[:int64(got)/q.unit*q.unit], pos
	return nil
}

// open makes f the queue's open file; the one opened longest ago is closed when
// there are too many.
func (c *queueCheck) open(q *queue, f place) (err error) {
	if q.file != nil && q.fileAt == f.base {
		return nil
	}
	if q.file != nil {
		err = q.file.Close()
		q.file = nil
		c.opened = slices.DeleteFunc(c.opened, func(o *queue) bool { return o == q })
	}
	if len(c.opened) >= queueFilesOpen {
		old := c.opened[0]
		err = errors.Join(err, old.file.Close())
		old.file = nil
		c.opened = slices.Delete(c.opened, 0, 1)
	}
	if err != nil {
		return err
	}
	if q.file, err = c.v.cfg.FS.Open(f.path, vfs.Read); err != nil {
		return err
	}
	q.fileAt = f.base
	c.opened = append(c.opened, q)
	return nil
}

// finish looks for entries without a record.
func (c *queueCheck) finish() error {
	for _, topic := range sorted(c.byTopic) {
		for _, id := range sorted(c.byTopic[topic]) {
			q := c.byTopic[topic][id]
			if err := c.strayEntries(q); err != nil {
				return err
			}
			if q.wrong {
				c.v.report.add(Repairs, q.dir, -1, "moved aside, the next start makes this queue anew from the log").fix = fix{aside: q.dir}
			}
			if q.missing > 0 {
				c.v.report.add(Repairs, q.dir, -1, "%d entries are not on the disk yet: made from the log at the next start", q.missing)
			}
		}
	}
	if c.deleted > 0 {
		c.v.report.add(Note, filepath.Join(c.v.cfg.Dir, "consumequeue"), -1, "%d records belong to queues that aren't there: their topics were deleted, or the queues are lost and a start makes them anew where the topics are known", c.deleted)
	}
	if c.older > 0 {
		c.v.report.add(Note, filepath.Join(c.v.cfg.Dir, "consumequeue"), -1, "%d records are of topics that were deleted and made again", c.older)
	}
	return nil
}

// strayEntries reads a queue's entries, and finds those that point into the log
// where none of its records was met.
func (c *queueCheck) strayEntries(q *queue) error {
	var stray, first, entries int64
	from, to := c.v.report.From, c.v.report.To
	for n := q.first(); ; n++ {
		e, base, there, err := c.entry(q, n)
		if err != nil {
			return err
		}
		if !there {
			break
		}
		q.end = int64(base + e.Messages())
		if e.Filler() {
			continue
		}
		c.v.report.Entries++
		if int64(e.LogOffset) >= from && int64(e.End()) <= to {
			entries++
		}
		if int64(e.End()) > to {
			if stray == 0 {
				first = n
			}
			stray++
		}
	}
	if stray > 0 && !c.v.cfg.Live {
		severity := Repairs
		if c.v.report.Clean {
			severity = Damage
		}
		c.v.report.add(severity, q.dir, first*q.unit, "%d entries point behind the log's end %d", stray, to)
	}
	lost := entries - q.seen
	switch {
	case lost <= 0 || c.v.cfg.Live:
	case c.v.hurt:
		c.v.report.add(Note, q.dir, -1, "%d of %d entries point at damaged records; where those are skipped, this queue is made anew without them", lost, entries).fix = fix{aside: q.dir, choice: SkipDamaged}
	default:
		c.v.report.add(Damage, q.dir, -1, "%d of %d entries point at no record of this queue", lost, entries)
		q.wrong = true
	}
	return nil
}

func (c *queueCheck) close() {
	for _, q := range c.opened {
		_ = q.file.Close() // only read
	}
}
