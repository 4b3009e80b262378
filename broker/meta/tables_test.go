package meta

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

var system = SystemConfig{
	BrokerClusterName: "DefaultCluster", BrokerName: "broker-a.example", AutoCreateTopicEnable: true,
	ClusterTopicEnable: true, BrokerTopicEnable: true, DelayLevels: 18,
}

func openTables(t *testing.T, fs vfs.FS) *Tables {
	t.Helper()
	tables, err := Open(Config{FS: fs, Dir: "store/config", System: system, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func closeTables(t *testing.T, tables *Tables) {
	t.Helper()
	if err := tables.Close(); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, fs vfs.FS, name string, content []byte) {
	t.Helper()
	if err := vfs.MkdirAllSync(fs, "store/config"); err != nil {
		t.Fatal(err)
	}
	if err := fs.WriteFileAtomic("store/config/"+name, content); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, fs vfs.FS, name string) string {
	t.Helper()
	b, err := fs.ReadFile("store/config/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func offsetOf(tables *Tables, topic, group string, queue int32) int64 {
	v, ok := tables.Offsets.Get([]byte(topic), []byte(group), queue)
	if !ok {
		return -1
	}
	return v
}

func commit(tables *Tables, topic, group string, queue int32, offset int64) {
	tables.Offsets.Commit([]byte(topic), []byte(group), queue, offset)
}

// commitWritten commits and waits for the journal.
func commitWritten(t *testing.T, tables *Tables, topic, group string, queue int32, offset int64) {
	t.Helper()
	done := make(chan error, 1)
	tables.Offsets.CommitWritten([]byte(topic), []byte(group), queue, offset, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := openTables(t, vfs.NewMem())
		defer closeTables(t, tables)
		for _, tt := range []struct {
			name         string
			queues, perm int32
		}{
			{"TBW102", 8, 7}, {"SELF_TEST_TOPIC", 1, 6}, {"OFFSET_MOVED_EVENT", 1, 6}, {"BenchmarkTest", 1024, 6},
			{"SCHEDULE_TOPIC_XXXX", 18, 6}, {"DefaultCluster", 16, 7}, {"broker-a.example", 1, 7},
			{"RMQ_SYS_TRANS_HALF_TOPIC", 1, 6}, {"RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, 6}, {"rmq_sys_wheel_timer", 1, 6},
			{"DefaultCluster_REPLY_TOPIC", 1, 6}, {"rmq_sys_REVIVE_LOG_DefaultCluster", 8, 6},
			{"rmq_sys_SYNC_BROKER_MEMBER_broker-a.example", 1, 1},
		} {
			c := tables.Topics.Find(tt.name)
			if c == nil || c.ReadQueues != tt.queues || c.WriteQueues != tt.queues || c.Perm != tt.perm {
				t.Errorf("%s is %+v, want %d queues, perm %d", tt.name, c, tt.queues, tt.perm)
			}
			if !tables.System.Has(tt.name) {
				t.Errorf("%s is not a system topic", tt.name)
			}
		}
		if tables.Topics.Find(TraceTopic) != nil {
			t.Error("the trace topic is made without traceTopicEnable")
		}
		for _, name := range builtInGroups {
			if tables.Groups.Find(name) == nil {
				t.Errorf("group %s is missing", name)
			}
		}
	})
}

func TestTablesSurviveRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		_, created, err := tables.Topics.CreateOnSend("T", AutoCreateTopic, 4, false)
		if err != nil || !created {
			t.Fatal(created, err)
		}
		if _, err := tables.Groups.GetOrCreate("g"); err != nil {
			t.Fatal(err)
		}
		// Both are durable by now, so a crash leaves them.
		crashed := fs.CrashClone(vfs.CrashPolicy{}, nil)
		version := tables.Topics.Version()
		commit(tables, "T", "g", 0, 5)
		tables.Delay.SetProgress(DelayProgress{ScanFrom: 77, Next: map[int32]int64{1: 2, 18: 3}})
		closeTables(t, tables)

		for name, fs := range map[string]*vfs.Mem{"crash": crashed, "clean stop": fs} {
			tables := openTables(t, fs)
			if c := tables.Topics.Find("T"); c == nil || c.ReadQueues != 4 || c.WriteQueues != 4 || c.Perm != 6 {
				t.Errorf("%s: topic is %+v", name, c)
			}
			if tables.Topics.Version() != version {
				t.Errorf("%s: version %+v, was %+v", name, tables.Topics.Version(), version)
			}
			if g := tables.Groups.Find("g"); g == nil || g.RetryMaxTimes != 16 || g.GroupRetryPolicy.Type != "CUSTOMIZED" {
				t.Errorf("%s: group is %+v", name, g)
			}
			if name == "clean stop" {
				p := tables.Delay.Progress()
				if offsetOf(tables, "T", "g", 0) != 5 || p.ScanFrom != 77 || !maps.Equal(p.Next, map[int32]int64{1: 2, 18: 3}) {
					t.Errorf("offset %d, delay %+v", offsetOf(tables, "T", "g", 0), p)
				}
			}
			closeTables(t, tables)
		}
	})
}

func TestCreateOnSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := openTables(t, vfs.NewMem())
		defer closeTables(t, tables)
		for _, tt := range []struct {
			name, template string
			queues, want   int32 // want 0: refused
		}{
			{"A", "TBW102", 4, 4}, {"A", "TBW102", 8, 4}, {"B", "TBW102", 16, 8}, {"C", "TBW102", 0, 1}, {"D", "TBW102", -3, 1},
			{"E", "nothing", 4, 0}, {"F", "SELF_TEST_TOPIC", 4, 0}, {"../G", "TBW102", 4, 0}, {strings.Repeat("H", 128), "TBW102", 4, 0},
		} {
			c, _, err := tables.Topics.CreateOnSend(tt.name, tt.template, tt.queues, false)
			if tt.want == 0 {
				if err == nil || tables.Topics.Find(tt.name) != nil {
					t.Errorf("%s from %s: made %+v", tt.name, tt.template, c)
				}
				continue
			}
			if err != nil || c.ReadQueues != tt.want || c.WriteQueues != tt.want || c.Perm != 6 {
				t.Errorf("%s from %s with %d queues: %+v, %v", tt.name, tt.template, tt.queues, c, err)
			}
		}
	})
}

// Every change moves the version; no change doesn't.
func TestTopicVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := openTables(t, vfs.NewMem())
		defer closeTables(t, tables)
		var told []string
		tables.Topics.OnChange(func(name string) { told = append(told, name) })
		before := tables.Topics.Version()
		moved := func(want bool, what string) {
			t.Helper()
			if now := tables.Topics.Version(); (now != before) != want {
				t.Errorf("%s: version %+v, was %+v", what, now, before)
			} else {
				before = now
			}
		}
		tables.Topics.Put(NewTopic("T", 4, 6))
		moved(true, "create")
		tables.Topics.Put(NewTopic("T", 4, 6))
		moved(false, "the same again")
		tables.Topics.Put(NewTopic("T", 8, 6))
		moved(true, "more queues")
		tables.Topics.Delete("T")
		moved(true, "delete")
		tables.Topics.Delete("T")
		moved(false, "delete what isn't there")
		tables.Topics.Bump()
		moved(true, "bump")
		if want := []string{"T", "T", "T"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// What the journal holds survives a killed process at once, and a lost page
// cache after a second.
func TestOffsetsSurviveCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		defer closeTables(t, tables)
		commitWritten(t, tables, "T", "g", 0, 5)
		killed := openTables(t, fs.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil))
		if got := offsetOf(killed, "T", "g", 0); got != 5 {
			t.Errorf("after kill: offset %d, want 5", got)
		}
		closeTables(t, killed)

		commit(tables, "T", "g", 0, 6)
		tables.Delay.SetProgress(DelayProgress{ScanFrom: 9, Next: map[int32]int64{3: 4}})
		time.Sleep(2 * time.Second)
		lost := openTables(t, fs.CrashClone(vfs.CrashPolicy{}, nil))
		if got := offsetOf(lost, "T", "g", 0); got != 6 {
			t.Errorf("after power loss: offset %d, want 6", got)
		}
		if p := lost.Delay.Progress(); p.ScanFrom != 9 || p.Next[3] != 4 {
			t.Errorf("after power loss: delay %+v", p)
		}
		closeTables(t, lost)
	})
}

// Many commits between two writes are one write, and the journal is folded and
// emptied now and then.
func TestJournalStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		for i := range 100_000 {
			commit(tables, "T", "g", int32(i%8), int64(i))
		}
		time.Sleep(time.Second)
		if n := len(read(t, fs, journalName)); n > 1000 {
			t.Errorf("journal has %d bytes after commits to 8 queues", n)
		}
		time.Sleep(time.Minute)
		if n := len(read(t, fs, journalName)); n > 200 {
			t.Errorf("journal has %d bytes after a fold", n)
		}
		if !strings.Contains(read(t, fs, "consumerOffset.json"), "0:99992,1:99993") {
			t.Errorf("folded: %s", read(t, fs, "consumerOffset.json"))
		}
		closeTables(t, tables)
	})
}

// A consumerOffset.json that this broker didn't write last wins over the
// journal, each file by itself.
func TestJavaWroteLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		commit(tables, "T", "g", 0, 5)
		tables.Delay.SetProgress(DelayProgress{ScanFrom: 9, Next: map[int32]int64{3: 4}})
		if err := tables.Fold(); err != nil {
			t.Fatal(err)
		}
		commitWritten(t, tables, "T", "g", 0, 6)
		commitWritten(t, tables, "U", "g", 0, 1)
		crashed := fs.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil)
		closeTables(t, tables)

		// Same DataVersion, other offsets: Apache moves its version only with
		// every 500th commit.
		java := strings.Replace(read(t, crashed, "consumerOffset.json"), "0:5", "0:50", 1)
		put(t, crashed, "consumerOffset.json", []byte(java))
		tables = openTables(t, crashed)
		if got := offsetOf(tables, "T", "g", 0); got != 50 {
			t.Errorf("offset %d, want Java's 50", got)
		}
		if got := offsetOf(tables, "U", "g", 0); got != -1 {
			t.Errorf("offset %d of a topic Java's file doesn't have", got)
		}
		if p := tables.Delay.Progress(); p.ScanFrom != 9 || p.Next[3] != 4 {
			t.Errorf("delay %+v, want the journal's", p)
		}
		closeTables(t, tables)
	})
}

// Files as Apache 5.3.3's classes write them: taken, and written back the same
// but for versions, the order of keys, and what is new.
func TestJavaFiles(t *testing.T) {
	lines := func(content string) map[string]bool {
		out := map[string]bool{}
		for line := range strings.SplitSeq(content, "\n") {
			if line = strings.TrimSuffix(line, ","); !strings.Contains(line, "counter") && !strings.Contains(line, "timestamp") {
				out[line] = true
			}
		}
		return out
	}
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		for _, name := range []string{"topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json"} {
			b, err := os.ReadFile("testdata/java/" + name)
			if err != nil {
				t.Fatal(err)
			}
			put(t, fs, name, b)
		}
		other := []byte("{\n\t\"messageRequestModeMap\":{}\n}")
		put(t, fs, "messageRequestMode.json", other)
		tables := openTables(t, fs)
		if c := tables.Topics.Find("TopicA"); c == nil || c.ReadQueues != 8 || c.Perm != 6 || c.MultiTag || c.Attributes["message.type"] != "NORMAL" {
			t.Errorf("TopicA is %+v", c)
		}
		if g := tables.Groups.Find("groupA"); g == nil || g.RetryMaxTimes != 3 || !g.ConsumeEnable || g.GroupRetryPolicy.ExponentialRetryPolicy == nil {
			t.Errorf("groupA is %+v", g)
		}
		if got := offsetOf(tables, "TopicA", "groupA", 1); got != 6 {
			t.Errorf("offset %d, want 6", got)
		}
		if p := tables.Delay.Progress(); p.Next[3] != 20 || p.ScanFrom != -1 {
			t.Errorf("delay %+v", p)
		}
		commit(tables, "TopicNew", "groupA", 0, 1)
		tables.Delay.SetProgress(DelayProgress{Next: map[int32]int64{1: 10, 3: 20}})
		closeTables(t, tables)
		for _, name := range []string{"topics.json", "subscriptionGroup.json", "delayOffset.json", "consumerOffset.json"} {
			java, err := os.ReadFile("testdata/java/" + name)
			if err != nil {
				t.Fatal(err)
			}
			ours := lines(read(t, fs, name))
			for line := range lines(string(java)) {
				if !ours[line] && !strings.Contains(line, "groupA\":[") { // has one more topic now
					t.Errorf("%s: %q isn't in what we write", name, line)
				}
			}
		}
		if got := read(t, fs, "messageRequestMode.json"); got != string(other) {
			t.Errorf("messageRequestMode.json was touched: %q", got)
		}
	})
}

// Our files are Java's, byte for byte but for the order of map keys.
func TestFilesLookLikeJavas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		tables.Topics.Put(&Topic{Name: "T", ReadQueues: 4, WriteQueues: 4, Perm: 6, Attributes: map[string]string{"message.type": "NORMAL"}})
		tables.Groups.Put(NewGroup("g"))
		commit(tables, "T", "g", 0, 5)
		commit(tables, "T", "g", 1, 6)
		tables.Delay.SetProgress(DelayProgress{Next: map[int32]int64{1: 10, 3: 20}})
		closeTables(t, tables)
		for name, want := range map[string]string{
			"topics.json":             "\t\t\"T\":{\n\t\t\t\"attributes\":{\n\t\t\t\t\"message.type\":\"NORMAL\"\n\t\t\t},\n\t\t\t\"order\":false,\n\t\t\t\"perm\":6,\n\t\t\t\"readQueueNums\":4,\n\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n\t\t\t\"topicName\":\"T\",\n\t\t\t\"topicSysFlag\":0,\n\t\t\t\"writeQueueNums\":4\n\t\t}",
			"subscriptionGroup.json":  "\t\"forbiddenTable\":{},\n\t\"subscriptionGroupTable\":{",
			"subscriptionGroup.json ": "\t\t\"g\":{\n\t\t\t\"attributes\":{},\n\t\t\t\"brokerId\":0,\n\t\t\t\"consumeBroadcastEnable\":true,\n\t\t\t\"consumeEnable\":true,\n\t\t\t\"consumeFromMinEnable\":true,\n\t\t\t\"consumeMessageOrderly\":false,\n\t\t\t\"consumeTimeoutMinute\":15,\n\t\t\t\"groupName\":\"g\",\n\t\t\t\"groupRetryPolicy\":{\n\t\t\t\t\"type\":\"CUSTOMIZED\"\n\t\t\t},\n\t\t\t\"groupSysFlag\":0,\n\t\t\t\"notifyConsumerIdsChangedEnable\":true,\n\t\t\t\"retryMaxTimes\":16,\n\t\t\t\"retryQueueNums\":1,\n\t\t\t\"whichBrokerWhenConsumeSlowly\":1\n\t\t}",
			"consumerOffset.json":     "\t\"offsetTable\":{\n\t\t\"T@g\":{0:5,1:6\n\t\t}\n\t}\n}",
			"delayOffset.json":        "\t\"offsetTable\":{1:10,3:20\n\t}\n}",
		} {
			if got := read(t, fs, strings.TrimSpace(name)); !strings.Contains(got, want) || strings.HasSuffix(got, "\n") {
				t.Errorf("%s:\n%s\nwants\n%s", name, got, want)
			}
		}
	})
}

func TestBackups(t *testing.T) {
	good := []byte(`{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"offsetTable":{"T@g":{0:5}}}`)
	tests := []struct {
		name      string
		main, bak []byte
		want      int64 // -2: refuses to open
	}{
		{"neither", nil, nil, -1},
		{"main", good, []byte("broken"), 5},
		{"empty main", []byte{}, good, 5},
		{"no main", nil, good, 5},
		{"broken main", []byte(`{"offsetTable":{"T@g":{0:`), good, 5},
		{"both broken", []byte("{"), []byte("["), -2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewMem()
				if tt.main != nil {
					put(t, fs, "consumerOffset.json", tt.main)
				}
				if tt.bak != nil {
					put(t, fs, "consumerOffset.json.bak", tt.bak)
				}
				tables, err := Open(Config{FS: fs, Dir: "store/config", System: system, Logger: slog.New(slog.DiscardHandler)})
				if tt.want == -2 {
					if err == nil || !strings.Contains(err.Error(), "consumerOffset.json.bak") {
						t.Fatalf("error %v, want one that names both files", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := offsetOf(tables, "T", "g", 0); got != tt.want {
					t.Errorf("offset %d, want %d", got, tt.want)
				}
				closeTables(t, tables)
			})
		})
	}
}

// A journal that got broken in the middle gives what is in front of the break.
func TestTornJournalIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		commitWritten(t, tables, "T", "g", 0, 5)
		whole := len(read(t, fs, journalName))
		commitWritten(t, tables, "T", "g", 0, 6)
		crashed := fs.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil)
		closeTables(t, tables)

		b := []byte(read(t, crashed, journalName))
		put(t, crashed, journalName, append(b[:len(b)-1], b[len(b)-1]^1))
		tables = openTables(t, crashed)
		if got := offsetOf(tables, "T", "g", 0); got != 5 {
			t.Errorf("offset %d, want 5", got)
		}
		if n := len(read(t, crashed, journalName)); n != whole {
			t.Errorf("journal has %d bytes, want it cut to %d", n, whole)
		}
		commitWritten(t, tables, "T", "g", 0, 7)
		again := openTables(t, crashed.CrashClone(vfs.CrashPolicy{Data: vfs.Kept, Entries: vfs.Kept}, nil))
		if got := offsetOf(again, "T", "g", 0); got != 7 {
			t.Errorf("offset %d after the cut, want 7", got)
		}
		closeTables(t, again)
		closeTables(t, tables)
	})
}

// Random commits, deletions, folds, restarts and crashes against a model: after
// a crash each offset is one the queue had at or after the last moment known to
// be durable.
func TestCrashesAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		history := map[string][]int64{} // per queue, all values since the last durable one, that first
		key := func(topic string, q int32) string { return fmt.Sprint(topic, q) }
		durable := func() {
			for k, h := range history {
				history[k] = h[len(h)-1:]
			}
		}
		for range 2000 {
			topic, queue := string(rune('A'+rng.IntN(4))), rng.Int32N(3)
			k := key(topic, queue)
			switch n := rng.IntN(100); {
			case n < 80:
				offset := rng.Int64N(1000)
				if len(history[k]) == 0 {
					history[k] = []int64{-1}
				}
				history[k] = append(history[k], offset)
				commit(tables, topic, "g", queue, offset)
			case n < 82:
				tables.Offsets.DeleteTopic(topic)
				for q := range int32(3) {
					if k := key(topic, q); len(history[k]) > 0 {
						history[k] = append(history[k], -1)
					}
				}
			case n < 85:
				if err := tables.Fold(); err != nil {
					t.Fatal(err)
				}
				durable()
			case n < 95:
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
			case n < 97:
				time.Sleep(3 * time.Second)
				durable()
			default:
				crashed := fs.CrashClone(vfs.CrashPolicy{Data: vfs.Torn, Entries: vfs.Torn}, rng)
				closeTables(t, tables)
				fs, tables = crashed, openTables(t, crashed)
				for k, h := range history {
					got := offsetOf(tables, k[:1], "g", int32(k[1]-'0'))
					if !slices.Contains(h, got) {
						t.Fatalf("seed %d: queue %s is %d after a crash, want one of %v", seed, k, got, h)
					}
					history[k] = []int64{got}
				}
			}
		}
		closeTables(t, tables)
	})
}

func TestClosedTablesSayNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := openTables(t, vfs.NewMem())
		closeTables(t, tables)
		var got error
		tables.Offsets.CommitWritten([]byte("T"), []byte("g"), 0, 1, func(err error) { got = err })
		if got != ErrClosed {
			t.Errorf("commit after close: %v", got)
		}
		if err := tables.Save(); err != ErrClosed {
			t.Errorf("save after close: %v", err)
		}
		if err := tables.Fold(); err != ErrClosed {
			t.Errorf("fold after close: %v", err)
		}
		if err := tables.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

func TestPrettyFilesParse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		for i := range 50 {
			tables.Topics.Put(NewTopic(fmt.Sprintf("T%d", i), int32(i+1), 6))
			commit(tables, fmt.Sprintf("T%d", i), "g", int32(i), int64(i))
		}
		closeTables(t, tables)
		before := read(t, fs, "consumerOffset.json")
		again := openTables(t, fs)
		if again.Topics.Len() != tables.Topics.Len() || again.Offsets.Len() != 50 {
			t.Errorf("%d topics and %d offsets, want %d and 50", again.Topics.Len(), again.Offsets.Len(), tables.Topics.Len())
		}
		closeTables(t, again)
		if after := read(t, fs, "consumerOffset.json"); !bytes.Equal([]byte(before), []byte(after)) {
			t.Error("a restart without commits rewrote consumerOffset.json")
		}
	})
}
