// Package meta keeps what a broker must remember beside its messages: topics,
// consumer groups, their filters, consumer offsets, the progress of delayed
// messages and the queue locks of orderly consumers. Its files are Apache 5.3.3's (storePathRootDir/config/*.json, facts:
// store §8), so that a Java broker can follow after a clean stop, and ringmq can
// follow a Java broker.
//
// Two goroutines, both owned by Tables, whose Close waits for them:
//
//   - the saver writes topics.json, subscriptionGroup.json,
//     consumerFilter.json and messageRequestMode.json whole when they have
//     changed (a temporary file, synced, renamed, the directory synced);
//   - the keeper appends consumer offsets, delay progress and locks to a journal, one
//     write for all that has changed, syncs it every second, and folds it into
//     consumerOffset.json, delayOffset.json and timercheck now and then and at
//     Close.
//
// Every other file in the directory stays untouched.
//
// The journal, config/ringmq-progress.journal, is ours; Java ignores it. All
// numbers are big-endian:
//
//	magic    "RMQJ" 00 00 00 01
//	record   length of payload int32 | CRC-32C of payload int32 | payload
//
//	payload  1 base     file int8 (1 consumerOffset.json, 2 delayOffset.json, 3 timercheck) | length int64 | CRC-32C int32
//	         2 commit   length of key int16 | topic@group | (queueId int32 | offset int64)...
//	         3 forget   topic@group
//	         4 delay    log offset to scan from int64 | (level int32 | next queue offset int64)...
//	         5 lock     queueId int32 | group | topic | brokerName | client id, each length int16 and bytes
//	         6 reset    as 2: the offset was set by an operator, and no consumer was told yet
//	         7 subscriber  fingerprint int32 | group | client id, each length int16 and bytes | ConsumerData as JSON
//	         8 timer    done: due ms int64, log offset int64 | loaded, lowest queue offset int64 | log offset to scan from int64
//
// A base record names, by length and CRC, a version of a JSON file that the
// journal continues. At load the JSON file (or its .bak) that is there is
// looked for among them: found, the journal's records apply on top of it; not
// found, a Java broker or a person wrote the file later, and it wins. A torn
// tail is cut.
package meta

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// Config says where the tables are and how they are kept.
type Config struct {
	FS     vfs.FS
	Dir    string           // storePathRootDir/config; made when missing
	Now    func() time.Time // wall clock; time.Now when nil
	Logger *slog.Logger     // slog.Default when nil

	SyncInterval    time.Duration // how often the journal is synced; 1 s when 0
	FoldInterval    time.Duration // how often a changed journal is folded into the JSON files; 30 s when 0
	JournalBytesMax int64         // folded at once when longer; 16 MiB when 0

	ManualGroups bool // autoCreateSubscriptionGroup=false

	FilterKeep time.Duration // filterDataCleanTimeSpan; 24 h when 0

	System SystemConfig
}

func (c *Config) setDefaults() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.SyncInterval = cmp.Or(c.SyncInterval, time.Second)
	c.FoldInterval = cmp.Or(c.FoldInterval, 30*time.Second)
	c.JournalBytesMax = cmp.Or(c.JournalBytesMax, 16<<20)
	c.FilterKeep = cmp.Or(c.FilterKeep, 24*time.Hour)
	c.System.DefaultTopicQueueNums = cmp.Or(c.System.DefaultTopicQueueNums, 8)
}

// Tables are all tables of a broker.
type Tables struct {
	Topics      *Topics
	Groups      *Groups
	Filters     *Filters
	Offsets     *Offsets
	Delay       *Delay
	Locks       *Locks
	Modes       *Modes
	Subscribers *Subscribers
	System      *SystemSet
	Timer       *Timer

	saver  *saver
	keeper *keeper
}

// Open loads the tables, creates the system topics and built-in groups that are
// missing, and starts the two goroutines. It blocks on the disk. A file that is
// broken is replaced by its .bak; when that is broken too, Open refuses and
// names both.
func Open(cfg Config) (*Tables, error) {
	cfg.setDefaults()
	if err := vfs.MkdirAllSync(cfg.FS, cfg.Dir); err != nil {
		return nil, fmt.Errorf("open tables: %w", err)
	}
	t := &Tables{saver: newSaver(cfg.FS, cfg.Logger), keeper: newKeeper(&cfg), System: newSystemSet(&cfg.System)}
	t.Topics = &Topics{byName: map[string]*Topic{}, now: cfg.Now, saver: t.saver}
	t.Groups = &Groups{byName: map[string]*Group{}, autoCreate: !cfg.ManualGroups, now: cfg.Now, saver: t.saver}
	t.Filters = &Filters{byGroup: map[string]map[string]*FilterData{}, keep: cfg.FilterKeep, now: cfg.Now, saver: t.saver}
	t.Modes = &Modes{byTopic: map[string]map[string]remoting.MessageRequestMode{}, now: cfg.Now, saver: t.saver}
	t.Offsets, t.Delay, t.Timer = t.keeper.offsets, t.keeper.delay, t.keeper.timer
	t.Locks, t.Subscribers = t.keeper.locks, t.keeper.subscribers
	if err := t.loadTables(&cfg); err != nil {
		return nil, err
	}
	if err := t.keeper.load(); err != nil {
		return nil, err
	}
	t.createBuiltIns(&cfg.System)
	go t.saver.run()
	go t.keeper.run()
	return t, nil
}

func (t *Tables) loadTables(cfg *Config) error {
	skipped := func(err error) { cfg.Logger.Warn("name in saved table breaks the rules, left out", "error", err) }
	topics := &savedTable{name: filepath.Join(cfg.Dir, "topics.json"), version: t.Topics.Version, encode: t.Topics.encode}
	groups := &savedTable{name: filepath.Join(cfg.Dir, "subscriptionGroup.json"), version: t.Groups.Version, encode: t.Groups.encode}
	filters := &savedTable{name: filepath.Join(cfg.Dir, "consumerFilter.json"), version: t.Filters.Version, encode: t.Filters.encode}
	modes := &savedTable{name: filepath.Join(cfg.Dir, "messageRequestMode.json"), version: t.Modes.stateVersion, encode: t.Modes.encode}
	_, err := loadFile(cfg, topics.name, func(b []byte) error { return t.Topics.decode(b, t.System.Has, skipped) })
	if err != nil {
		return err
	}
	if _, err := loadFile(cfg, groups.name, func(b []byte) error { return t.Groups.decode(b, skipped) }); err != nil {
		return err
	}
	if _, err := loadFile(cfg, modes.name, t.Modes.decode); err != nil {
		return err
	}
	if _, err := loadFile(cfg, filters.name, t.Filters.decode); err != nil {
		cfg.Logger.Warn("saved filters are broken; consumers bring theirs by heartbeat", "error", err)
	}
	topics.saved, groups.saved = t.Topics.Version(), t.Groups.Version()
	t.saver.tables = []*savedTable{topics, groups, filters, modes}
	return nil
}

// createBuiltIns adds what is missing. The file of a Java broker keeps its own
// version of a system topic, but for TBW102 without the right to be copied,
// which is how Apache stores autoCreateTopicEnable=false.
func (t *Tables) createBuiltIns(sys *SystemConfig) {
	for _, c := range sys.topics() {
		have, created := t.Topics.PutAbsent(c)
		if !created && c.Name == AutoCreateTopic && have.Perm != c.Perm {
			t.Topics.Put(c)
		}
	}
	for _, name := range builtInGroups {
		t.Groups.PutAbsent(NewGroup(name))
	}
}

// AfterSave calls done once every change made to topics and groups before the
// call is durable, or could not be saved. done runs on the saver's goroutine
// (or on the caller's after Close) and must not block.
func (t *Tables) AfterSave(done func(error)) { t.saver.after(done) }

// Save blocks until every change made before the call is durable.
func (t *Tables) Save() error { return t.saver.wait() }

// Fold writes offsets and delay progress to their JSON files now, and blocks
// until they are durable.
func (t *Tables) Fold() error {
	reply := make(chan error)
	select {
	case t.keeper.folds <- reply:
		return <-reply
	case <-t.keeper.done:
		return ErrClosed
	}
}

// Close saves everything and stops the goroutines. Changes made after it are
// lost. The error says what could not be saved.
func (t *Tables) Close() error {
	return errors.Join(t.saver.close(), t.keeper.close())
}

// loadFile reads a JSON file through decode, or its .bak where the file is
// missing, empty or broken, as Apache's ConfigManager does. content is what was
// taken, nil when there is neither.
func loadFile(cfg *Config, name string, decode func([]byte) error) (content []byte, err error) {
	var failed error
	for _, try := range []string{name, name + ".bak"} {
		b, err := cfg.FS.ReadFile(try)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
			continue
		}
		if err == nil {
			err = decode(b)
		}
		if err == nil {
			if failed != nil {
				cfg.Logger.Warn("table is broken, its backup is used", "file", name, "error", failed)
			}
			return b, nil
		}
		failed = errors.Join(failed, fmt.Errorf("load %s: %w", try, err))
	}
	return nil, failed
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
