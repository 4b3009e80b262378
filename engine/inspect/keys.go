package inspect

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/ringmq/ringmq/engine/index"
	"github.com/ringmq/ringmq/message"
)

// keyCheck holds the keys of records against the index files, whose entries
// follow each other as the records do.
type keyCheck struct {
	v     *verifier
	files []string
	file  *index.FileReader

	hash    int32 // the entry to come
	off     int64
	have    bool
	first   int64 // log offset of the first entry there is; -1 for none
	last    int64 // of the entry before, so that repetitions are seen
	again   int64 // entries that repeat what was indexed before
	missing int64 // keys that must be there and aren't
	strays  int64 // entries that point at no record with such a key
	where   string
}

func openKeys(v *verifier) (*keyCheck, error) {
	c := &keyCheck{v: v, first: -1, last: -1}
	var err error
	c.files, err = index.FileNames(v.cfg.FS, filepath.Join(v.cfg.Dir, "index"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	v.report.IndexFiles = len(c.files)
	c.advance()
	c.first = -1
	if c.have {
		c.first = c.off
	}
	return c, nil
}

// advance moves to the next entry; the files are gone through one by one.
func (c *keyCheck) advance() {
	for {
		if c.file == nil {
			if len(c.files) == 0 {
				c.have = false
				return
			}
			name := c.files[0]
			c.files = c.files[1:]
			r, err := index.OpenFile(c.v.cfg.FS, name, c.v.cfg.IndexSlots, c.v.cfg.IndexEntries)
			if err != nil {
				c.v.report.add(Repairs, name, -1, "%v; it is set aside and made anew", err)
				continue
			}
			c.file = r
		}
		hash, off, ok, err := c.file.Next()
		if err != nil {
			c.v.report.add(Repairs, c.file.Name(), -1, "%v; it is set aside and made anew", err)
		}
		if !ok {
			c.closeFile()
			continue
		}
		c.v.report.IndexEntries++
		if int64(off) < c.last { // a Java broker indexes again what it recovers
			c.again++
			continue
		}
		c.hash, c.off, c.have, c.last = hash, int64(off), true, int64(off)
		return
	}
}

func (c *keyCheck) closeFile() {
	_ = c.file.Close() // only read
	c.file = nil
}

// record holds the keys of one record against the entries to come.
func (c *keyCheck) record(s place, at int64, rec []byte) {
	if !message.EntersIndex(rec) {
		return
	}
	for c.have && c.off < at {
		c.stray()
	}
	if c.first < 0 || at < c.first {
		return // older than the index
	}
	topic := message.TopicOf(rec)
	message.EachKey(rec, func(key []byte) {
		if c.have && c.off == at && c.hash == index.KeyHash(topic, key) {
			c.advance()
			return
		}
		if at < c.v.indexed || c.v.report.Clean && !c.v.cfg.Live && c.v.indexed < 0 {
			c.missing++
			c.where = s.path
		}
	})
	for c.have && c.off == at {
		c.stray()
	}
}

// stray counts an entry that nobody asked for. Entries below the log are of
// records that have been deleted.
func (c *keyCheck) stray() {
	if c.off >= c.v.report.From {
		c.strays++
	}
	c.advance()
}

func (c *keyCheck) finish() {
	dir := filepath.Join(c.v.cfg.Dir, "index")
	for c.have {
		c.stray()
	}
	if c.missing > 0 {
		c.v.report.add(Damage, dir, -1, "%d keys of records are not in it (the last in %s): queries by key miss them", c.missing, c.where).fix = fix{aside: dir}
	}
	if c.strays > 0 {
		c.v.report.add(Note, dir, -1, "%d entries point at no record with such a key: queries pass over them", c.strays)
	}
	if c.again > 0 {
		c.v.report.add(Note, dir, -1, "%d entries are there twice, as a Java broker leaves them after a kill", c.again)
	}
}

func (c *keyCheck) close() {
	if c.file != nil {
		c.closeFile()
	}
}
