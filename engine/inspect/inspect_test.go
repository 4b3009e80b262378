package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	segmentBytes = 64 << 10
	queueBytes   = 20 * 100
	storeDir     = "/store"
)

var (
	quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
	host  = netip.MustParseAddrPort("192.168.1.100:10911")
)

func engineConfig(fs vfs.FS) engine.Config {
	return engine.Config{FS: fs, Dir: storeDir, SegmentBytes: segmentBytes, ConsumeQueueBytes: queueBytes, IndexSlots: 97, IndexEntries: 10000,
		FlushInterval: time.Millisecond, SweepInterval: time.Hour, CleanInterval: time.Hour, Logger: quiet,
		BatchTopic: func(topic string) (batch, known bool) { return topic == "Batches", true }}
}

func config(fs vfs.FS) Config {
	return Config{FS: fs, Dir: storeDir, IndexSlots: 97, IndexEntries: 10000}
}

type done chan struct{}

func (d done) PutDone(*engine.Batch) { d <- struct{}{} }

// fill puts n records of about 1 KB into two queues of a topic.
func fill(t *testing.T, s *engine.Store, topic string, n int) {
	t.Helper()
	for i := range n {
		var props []byte
		props = message.AppendProperty(props, message.PropUniqKey, fmt.Sprintf("U%s%d", topic, i))
		props = message.AppendProperty(props, message.PropKeys, fmt.Sprintf("k%d common", i))
		rec, err := message.Append(nil, &message.Message{Topic: []byte(topic), QueueID: int32(i % 2), Properties: props,
			Body: []byte(strings.Repeat(string(rune('a'+i%26)), 1000)), BornMillis: 1, BornHost: host, StoreHost: host})
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, rec, engine.Item{Len: int32(len(rec)), Count: 1, Queue: s.Queue(topic, int32(i%2))})
	}
}

// fillBatches puts n records of three messages each into a batch queue.
func fillBatches(t *testing.T, s *engine.Store, n int) {
	t.Helper()
	for i := range n {
		props := message.AppendProperty(nil, message.PropUniqKey, fmt.Sprintf("B%d", i))
		props = message.AppendProperty(props, message.PropInnerNum, "3")
		props = message.AppendInnerBase(props)
		rec, err := message.Append(nil, &message.Message{Topic: []byte("Batches"), Properties: props, Body: []byte("three messages"),
			SysFlag: message.SysFlagInnerBatch | message.SysFlagNeedUnwrap, BornMillis: 1, BornHost: host, StoreHost: host})
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, rec, engine.Item{Len: int32(len(rec)), Count: 1, Inner: 3, Queue: s.Queue("Batches", 0)})
	}
}

func put(t *testing.T, s *engine.Store, rec []byte, item engine.Item) {
	t.Helper()
	d := make(done, 1)
	b := &engine.Batch{Buf: rec, Wait: true, Done: d, Items: []engine.Item{item}}
	s.Put(b)
	<-d
	if b.Err != nil {
		t.Fatal(b.Err)
	}
}

// made is a store of several segments and queue files, cleanly stopped.
func made(t *testing.T) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	s, err := engine.Open(engineConfig(fs))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, "T", 300)
	fillBatches(t, s, 30)
	fill(t, s, "Other", 20)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := fs.MkdirAll(storeDir + "/config"); err != nil {
		t.Fatal(err)
	}
	table := []byte(`{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"offsetTable":{"T@g":{0:150,1:7}}}`)
	if err := fs.WriteFileAtomic(storeDir+"/config/consumerOffset.json", table); err != nil {
		t.Fatal(err)
	}
	return fs
}

func verify(t *testing.T, cfg Config) *Report {
	t.Helper()
	r, err := Verify(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func segmentName(i int) string {
	return filepath.Join(storeDir, "commitlog", segment.Name(int64(i*segmentBytes)))
}

func overwrite(t *testing.T, fs vfs.FS, name string, off int64, b string) {
	t.Helper()
	f, err := fs.Open(name, vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(b), off); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, fs vfs.FS, name string, size int64) {
	t.Helper()
	f, err := fs.Open(name, vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

func TestSoundStore(t *testing.T) {
	fs := made(t)
	var last, total int64
	cfg := config(fs)
	cfg.Progress = func(done, of int64) { last, total = done, of }
	r := verify(t, cfg)
	if !r.OK() || !r.Clean || len(r.Findings) != 0 {
		t.Fatalf("findings in a sound store: %v", r.Findings)
	}
	if r.Records != 350 || r.Queues != 5 || r.Entries != 350 || r.IndexEntries != 3*320+30 || r.Tables != 1 || r.Segments < 5 {
		t.Errorf("counts: %+v", r)
	}
	if last != total || total == 0 {
		t.Errorf("progress ended at %d of %d", last, total)
	}
}

// TestDamage damages a sound store in one way each, and looks for the finding,
// for what a repair does, and whether a broker's store opens afterwards with
// what must be there.
func TestDamage(t *testing.T) {
	const queueFile = storeDir + "/consumequeue/T/1/00000000000000000000"
	for _, c := range []struct {
		name    string
		damage  func(t *testing.T, fs *vfs.Mem)
		find    Severity
		what    string // in the finding
		repair  []Choice
		action  string // "" for none
		waits   Choice // what the action waits for without repair's choices
		records int    // of T after a repair and a start; -1: not looked at
	}{
		{name: "a body's byte", find: Damage, what: "bodyCRC", action: "skipped", repair: []Choice{SkipDamaged}, waits: SkipDamaged, records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) { overwrite(t, fs, segmentName(1), 500, "#") }},
		{name: "half a segment", find: Damage, what: "bytes are no records", action: "skipped", repair: []Choice{SkipDamaged}, waits: SkipDamaged, records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) {
				overwrite(t, fs, segmentName(1), 5000, strings.Repeat("\xee", 20000))
			}},
		{name: "a zeroed hole", find: Damage, what: "bytes are no records", action: "skipped", repair: []Choice{SkipDamaged}, waits: SkipDamaged, records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) {
				overwrite(t, fs, segmentName(1), 4096, strings.Repeat("\x00", 8192))
			}},
		{name: "a segment in the middle", find: Damage, what: "segment missing", repair: []Choice{KeepNewer},
			action: "aside", waits: KeepNewer, records: -1,
			damage: func(t *testing.T, fs *vfs.Mem) { remove(t, fs, segmentName(2)) }},
		{name: "a segment in the middle, older kept", find: Damage, what: "segment missing", repair: []Choice{KeepOlder},
			action: "aside", waits: KeepNewer, records: -1,
			damage: func(t *testing.T, fs *vfs.Mem) { remove(t, fs, segmentName(2)) }},
		{name: "a cut segment", find: Damage, what: "bytes long", action: "extend", repair: []Choice{SkipDamaged}, records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) { truncate(t, fs, segmentName(1), segmentBytes/2) }},
		{name: "an empty newest segment", find: Repairs, what: "empty newest segment", action: "remove", records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) {
				files, _, err := listFiles(fs, storeDir+"/commitlog")
				if err != nil {
					t.Fatal(err)
				}
				f, err := fs.Open(segmentName(len(files)), vfs.ReadWrite|vfs.Create)
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
			}},
		{name: "a queue entry", find: Damage, what: "is wrong: it points at 77", action: "move", records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) {
				overwrite(t, fs, queueFile, 20*10, "\x00\x00\x00\x00\x00\x00\x00\x4d")
			}},
		{name: "a queue's end", find: Damage, what: "is wrong: there is none", action: "move", records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) {
				overwrite(t, fs, queueFile, 20*50, strings.Repeat("\x00", 20*50))
			}},
		{name: "entries behind the log", find: Damage, what: "point behind the log's end", action: "", records: -1,
			damage: func(t *testing.T, fs *vfs.Mem) {
				overwrite(t, fs, storeDir+"/consumequeue/Other/1/00000000000000000000", 20*10, "\x00\x00\x00\x00\x7f\x00\x00\x00\x00\x00\x00\x64\x00\x00\x00\x00\x00\x00\x00\x00")
			}},
		{name: "a batch queue's unit", find: Damage, what: "for message 31", action: "move", records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) {
				overwrite(t, fs, storeDir+"/batchconsumequeue/Batches/0/00000000000000000000", 46*10+28+7, "\x1f")
			}},
		{name: "an index entry", find: Damage, what: "keys of records are not in it", action: "move", records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) { overwrite(t, fs, indexFile(t, fs), 40+4*97+20*33, "\x11\x11\x11\x11") }},
		{name: "an index file's header", find: Repairs, what: "its header says", records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) { overwrite(t, fs, indexFile(t, fs), 36, "\x7f") }},
		{name: "a table with a backup", find: Repairs, what: ".bak is used", records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) {
				name := storeDir + "/config/consumerOffset.json"
				b, err := fs.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if err := fs.WriteFileAtomic(name+".bak", b); err != nil {
					t.Fatal(err)
				}
				truncate(t, fs, name, 20)
			}},
		{name: "a table", find: Damage, what: "no .bak", action: "move", repair: []Choice{Tables}, waits: Tables, records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) { truncate(t, fs, storeDir+"/config/consumerOffset.json", 20) }},
		{name: "a stray file", find: Note, what: "not a segment", records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) {
				if err := fs.WriteFileAtomic(storeDir+"/commitlog/notes.txt", []byte("x")); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "a consumer beyond the end", find: Note, what: "group g is at 900", records: 300,
			damage: func(t *testing.T, fs *vfs.Mem) {
				if err := fs.WriteFileAtomic(storeDir+"/config/consumerOffset.json", []byte(`{"offsetTable":{"T@g":{0:900}}}`)); err != nil {
					t.Fatal(err)
				}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := made(t)
			c.damage(t, fs)
			r := verify(t, config(fs))
			if !has(r, c.find, c.what) {
				t.Fatalf("want %s: %q among %d findings:\n%v", c.find, c.what, len(r.Findings), r.Findings)
			}
			if r.OK() != (c.find != Damage) {
				t.Errorf("OK() is %v with %v", r.OK(), r.Findings)
			}
			steps := Plan(r)
			if c.action == "" {
				if len(steps) > 0 {
					t.Errorf("steps where nothing can be done: %+v", steps)
				}
				return
			}
			if len(steps) == 0 || !strings.Contains(steps[0].Action, c.action) || steps[0].Choice != c.waits {
				t.Fatalf("steps %+v, want one that says %q and waits for %q", steps, c.action, c.waits)
			}
			if _, err := Repair(context.Background(), config(fs), func(Step) {}, c.repair...); err != nil {
				t.Fatal(err)
			}
			if again := verify(t, config(fs)); has(again, c.find, c.what) {
				t.Errorf("still there after the repair: %v", again.Findings)
			}
			reopen(t, fs, c.records)
		})
	}
}

// reopen opens the store as a broker does, and counts what topic T's queues
// have.
func reopen(t *testing.T, fs vfs.FS, records int) {
	t.Helper()
	s, err := engine.Open(engineConfig(fs))
	if err != nil {
		t.Fatalf("a broker doesn't start after the repair: %v", err)
	}
	n := 0
	for id := range int32(2) {
		if q := s.FindQueue("T", id); q != nil {
			n += int(q.Max() - q.Min())
		}
	}
	fill(t, s, "New", 3)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if records >= 0 && n != records {
		t.Errorf("%d messages of T after the repair, want %d", n, records)
	}
	if r := verify(t, config(fs)); records >= 0 && !r.OK() {
		t.Errorf("findings after repair and start: %v", r.Findings)
	}
}

func remove(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	if err := fs.Remove(name); err != nil {
		t.Fatal(err)
	}
}

func indexFile(t *testing.T, fs vfs.FS) string {
	t.Helper()
	entries, err := fs.ReadDir(storeDir + "/index")
	if err != nil || len(entries) != 1 {
		t.Fatalf("index files: %v, %v", entries, err)
	}
	return filepath.Join(storeDir, "index", entries[0].Name)
}

func has(r *Report, s Severity, what string) bool {
	for _, f := range r.Findings {
		if f.Severity == s && strings.Contains(f.What, what) {
			return true
		}
	}
	return false
}

// TestUnclean looks at a store as a crash leaves it: nothing of it is damage.
func TestUnclean(t *testing.T) {
	fs := made(t)
	s, err := engine.Open(engineConfig(fs))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, "T", 40)
	if _, err := Verify(context.Background(), config(fs)); !errors.Is(err, ErrInUse) {
		t.Errorf("an open store: got %v, want ErrInUse", err)
	}
	live := config(fs)
	live.Live = true
	if r := verify(t, live); !r.OK() {
		t.Errorf("live: %v", r.Findings)
	}
	crashed := fs.CrashClone(vfs.CrashPolicy{}, nil)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := verify(t, config(crashed))
	if r.Clean || !r.OK() {
		t.Errorf("clean %v: %v", r.Clean, r.Findings)
	}
	reopen(t, crashed, -1)
}

func TestDump(t *testing.T) {
	fs := made(t)
	var got []string
	sel := Selection{Topic: "T", QueueID: 1, Limit: 2, Body: true}
	if err := DumpLog(context.Background(), config(fs), sel, func(r *Record) error {
		got = append(got, fmt.Sprintf("%s/%d/%d %s %v %s", r.Topic, r.QueueID, r.QueueOffset, r.Properties["UNIQ_KEY"], r.CRCOK, r.Body[:3]))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := "T/1/0 UT1 true bbb,T/1/1 UT3 true ddd"; strings.Join(got, ",") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	n := 0
	if err := DumpLog(context.Background(), config(fs), Selection{QueueID: -1, Key: "k7", From: 1}, func(*Record) error { n++; return nil }); err != nil || n != 2 {
		t.Errorf("records with key k7: %d, %v", n, err)
	}
	var entries []QueueEntry
	if err := DumpQueue(config(fs), "T", 0, 149, 0, func(e QueueEntry) error { entries = append(entries, e); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].QueueOffset != 149 || entries[0].LogOffset == 0 {
		t.Errorf("entries: %v", entries)
	}
	tables, err := DumpTables(config(fs))
	if err != nil || !strings.Contains(string(tables["consumerOffset.json"]), `"0":150`) {
		t.Errorf("tables: %s, %v", tables, err)
	}
	if err := DumpQueue(config(fs), "Nothing", 0, 0, 0, nil); err == nil {
		t.Error("a queue that isn't there: no error")
	}
}

// TestEnds holds the end of a Verify by its context, and a directory that is
// none.
func TestEnds(t *testing.T) {
	fs := made(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Verify(ctx, config(fs)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if _, err := Verify(context.Background(), Config{FS: fs, Dir: "/elsewhere"}); err == nil {
		t.Error("no error for a directory that isn't there")
	}
}
