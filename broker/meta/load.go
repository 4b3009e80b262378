package meta

import (
	"errors"
	"io/fs"
	"maps"
	"strings"

	"github.com/ringmq/ringmq/remoting"
)

// offsetsFile is what is read of consumerOffset.json; its groupTopicMap is
// derived and ignored.
type offsetsFile struct {
	DataVersion DataVersion       `json:"dataVersion"`
	OffsetTable map[string]intMap `json:"offsetTable"`
}

// delayFile is delayOffset.json.
type delayFile struct {
	DataVersion DataVersion `json:"dataVersion"`
	OffsetTable intMap      `json:"offsetTable"`
}

// load reads the two JSON files and the journal, and leaves a journal open for
// appending. See the package comment for who wins.
func (k *keeper) load() error {
	var offsets offsetsFile
	var delay delayFile
	if err := k.loadJSON(fileOffsets, &offsets); err != nil {
		return err
	}
	if err := k.loadJSON(fileDelay, &delay); err != nil {
		return err
	}
	if err := k.loadFile(fileTimer, func(b []byte) error { return decodeTimerCheck(b, &k.timer.p) }, &k.timerCheck); err != nil {
		return err
	}
	k.version, k.delayVersion = offsets.DataVersion, delay.DataVersion
	for key, queues := range offsets.OffsetTable {
		if strings.Count(strings.TrimSuffix(key, BroadcastSuffix), string(keySeparator)) == 1 && len(key) <= keyBytesMax {
			k.offsets.load(key, queues)
		}
	}
	k.delay.p.Next = maps.Clone(delay.OffsetTable)

	journal, err := k.cfg.FS.ReadFile(k.journalPath())
	if errors.Is(err, fs.ErrNotExist) {
		return k.startJournal()
	}
	if err != nil {
		return err
	}
	found := baseFinder{files: k.files, continues: map[byte]bool{}, next: k.delay.p.Next}
	whole, torn := replayJournal(journal, &found)
	if torn != nil {
		k.log.Warn("progress journal has a torn tail, cut", "file", k.journalPath(), "bytes", len(journal)-whole, "error", torn)
	}
	if whole > 0 {
		// The error is the same as above.
		_, _ = replayJournal(journal[:whole], &loader{k: k, continues: found.continues})
	}
	if found.continues[fileOffsets] && found.continues[fileDelay] && found.continues[fileTimer] {
		if err := k.openJournal(int64(whole)); err != nil {
			return err
		}
		k.unfolded = found.changes
		k.offsets.Continued = true
		return nil
	}
	k.log.Info("saved offsets are not those this broker wrote last, the JSON files win",
		"dir", k.cfg.Dir, "offsetsFromJournal", found.continues[fileOffsets], "delayFromJournal", found.continues[fileDelay], "timerFromJournal", found.continues[fileTimer])
	return k.fold()
}

// loadJSON reads one of the files and remembers its fingerprint.
func (k *keeper) loadJSON(file byte, into any) error {
	var content []byte
	return k.loadFile(file, func(b []byte) error { return remoting.ParseBody(b, into) }, &content)
}

func (k *keeper) loadFile(file byte, decode func([]byte) error, content *[]byte) (err error) {
	f := k.files[file]
	*content, err = loadFile(k.cfg, f.name, decode)
	f.main = fingerprintOf(*content)
	return err
}

// baseFinder looks for the loaded JSON files among a journal's bases.
type baseFinder struct {
	files     map[byte]*savedFile
	continues map[byte]bool
	next      map[int32]int64 // delay progress of the JSON file
	changes   bool            // there is something that isn't in the files
}

func (b *baseFinder) base(file byte, f fingerprint) {
	if known := b.files[file]; known != nil && known.main == f {
		b.continues[file] = true
	}
}
func (b *baseFinder) commit(string, int32, int64)          { b.changes = true }
func (b *baseFinder) reset(string, int32, int64)           { b.changes = true }
func (b *baseFinder) forget(string)                        { b.changes = true }
func (b *baseFinder) delay(p DelayProgress)                { b.changes = b.changes || !maps.Equal(p.Next, b.next) }
func (b *baseFinder) lock(LockKey, string)                 {}
func (b *baseFinder) subscriber(SubscriberKey, Subscriber) {}
func (b *baseFinder) timer(TimerProgress)                  { b.changes = true }

// loader puts a journal's records into the tables.
type loader struct {
	k         *keeper
	continues map[byte]bool
}

func (l *loader) base(byte, fingerprint) {}

func (l *loader) commit(key string, queue int32, offset int64) {
	if l.continues[fileOffsets] {
		l.k.offsets.load(key, map[int32]int64{queue: offset})
	}
}

func (l *loader) reset(key string, queue int32, offset int64) {
	if l.continues[fileOffsets] {
		l.k.offsets.loadReset(key, queue, offset)
	}
}

func (l *loader) forget(key string) {
	if l.continues[fileOffsets] {
		l.k.offsets.unload(key)
	}
}

func (l *loader) delay(p DelayProgress) {
	if l.continues[fileDelay] {
		l.k.delay.p = p
	}
}

func (l *loader) timer(p TimerProgress) {
	if l.continues[fileTimer] {
		l.k.timer.p = p
	}
}

// lock counts only where no other broker had the store meanwhile.
func (l *loader) lock(key LockKey, clientID string) {
	if l.continues[fileOffsets] {
		l.k.locks.load(key, clientID)
	}
}

// subscriber counts as lock does.
func (l *loader) subscriber(key SubscriberKey, s Subscriber) {
	if l.continues[fileOffsets] {
		l.k.subscribers.load(key, s)
	}
}

// encodeOffsets gives consumerOffset.json's content.
func (k *keeper) encodeOffsets() []byte {
	table := k.offsets.snapshot()
	k.version = k.version.Next(k.cfg.Now().UnixMilli())
	groups := map[string][]string{}
	keys := sortedKeys(table)
	for _, key := range keys {
		if topic, group, _ := strings.Cut(key, string(keySeparator)); !strings.HasSuffix(group, BroadcastSuffix) {
			groups[group] = append(groups[group], topic)
		}
	}
	b := remoting.MarshalBody(struct {
		DataVersion   DataVersion         `json:"dataVersion"`
		GroupTopicMap map[string][]string `json:"groupTopicMap"`
	}{k.version, groups})
	b = append(b[:len(b)-1], `,"offsetTable":{`...)
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(remoting.AppendJSONString(b, key), ':')
		b = table[key].appendTo(b)
	}
	return pretty(append(b, "}}"...))
}

// encodeDelay gives delayOffset.json's content.
func (k *keeper) encodeDelay() []byte {
	k.delayVersion = k.delayVersion.Next(k.cfg.Now().UnixMilli())
	b := append([]byte(`{"dataVersion":`), remoting.MarshalBody(k.delayVersion)...)
	b = append(b, `,"offsetTable":`...)
	b = intMap(k.delay.Progress().Next).appendTo(b)
	return pretty(append(b, '}'))
}
