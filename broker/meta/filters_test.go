package meta

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// Places in the bitmap that Apache's BloomFilter gives, for each length of the
// hash's tail.
func TestBloomIsApaches(t *testing.T) {
	for _, tt := range []struct {
		group, topic string
		want         []int32
	}{
		{"g", "T", []int32{90, 68, 28}},
		{"group-1", "topic-1", []int32{63, 48, 110}},
		{"größe", "üü", []int32{90, 84, 33}},
		{"group-1", "TopicA", []int32{60, 32, 18}},
		{"a-group-with-a-long-name", "a-topic-with-a-long-name", []int32{106, 60, 97}},
	} {
		if got := bloomOf(tt.group, tt.topic); got.BitNum != 112 || !slices.Equal(got.BitPos, tt.want) {
			t.Errorf("%s#%s: %+v, want %v", tt.group, tt.topic, got, tt.want)
		}
	}
}

func TestFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		tables := openTables(t, fs)
		if tables.Filters.Find("g", "T") != nil {
			t.Error("a filter out of nothing")
		}
		born := time.Now().UnixMilli()
		two := []FilterData{{Topic: "T", Expression: "a > 1", ExpressionType: "SQL92", ClientVersion: 7}, {Topic: "U", Expression: "b", ExpressionType: "SQL92", ClientVersion: 7}}
		tables.Filters.Sync("g", slices.Clone(two))
		time.Sleep(time.Second)
		version := tables.Filters.Version()
		tables.Filters.Sync("g", slices.Clone(two))
		if tables.Filters.Version() != version {
			t.Error("what has not changed is saved again")
		}
		// A new version of the same keeps its birth, another expression doesn't, a
		// topic nobody subscribes any more is dead.
		two[0].ClientVersion = 8
		tables.Filters.Sync("g", slices.Clone(two[:1]))
		if d := tables.Filters.Find("g", "T"); d.ClientVersion != 8 || d.BornMillis != born || d.DeadMillis != 0 {
			t.Errorf("the same with a new version: %+v", d)
		}
		if d := tables.Filters.Find("g", "U"); d.DeadMillis != born+1000 {
			t.Errorf("not subscribed any more: %+v", d)
		}
		two[0].Expression = "a > 2"
		tables.Filters.Sync("g", slices.Clone(two[:1]))
		if d := tables.Filters.Find("g", "T"); d.Expression != "a > 2" || d.BornMillis != born+1000 {
			t.Errorf("another expression: %+v", d)
		}
		if err := tables.Save(); err != nil {
			t.Fatal(err)
		}
		closeTables(t, tables)

		time.Sleep(time.Hour)
		tables = openTables(t, fs)
		if d := tables.Filters.Find("g", "T"); d == nil || d.Expression != "a > 2" || d.ClientVersion != 8 || d.Group != "g" ||
			d.DeadMillis != time.Now().Add(-30*time.Second).UnixMilli() {
			t.Errorf("after a restart: %+v", d)
		}
		// It comes alive again with its consumer.
		tables.Filters.Sync("g", slices.Clone(two[:1]))
		if d := tables.Filters.Find("g", "T"); d.DeadMillis != 0 || d.BornMillis != born+1000 {
			t.Errorf("subscribed again: %+v", d)
		}
		tables.Filters.Sync("g", nil)
		time.Sleep(24 * time.Hour)
		tables.Filters.Sync("h", slices.Clone(two[:1]))
		closeTables(t, tables)
		if got := read(t, fs, "consumerFilter.json"); strings.Contains(got, `"g"`) || !strings.Contains(got, `"h"`) {
			t.Errorf("what is dead for a day is kept: %s", got)
		}
		time.Sleep(25 * time.Hour)
		tables = openTables(t, fs)
		if d := tables.Filters.Find("h", "T"); d == nil {
			t.Error("it was alive when the file was written")
		}
		closeTables(t, tables)
	})
}

// The file a Java broker wrote is taken, and ours has its form.
func TestJavaFilters(t *testing.T) {
	java, err := os.ReadFile("testdata/java/consumerFilter.json")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		put(t, fs, "consumerFilter.json", java)
		tables := openTables(t, fs)
		d := tables.Filters.Find("group-1", "TopicA")
		if d == nil || d.Expression != "a > 1 AND color = 'red'" || d.ExpressionType != "SQL92" || d.ClientVersion != 1700000000001 {
			t.Fatalf("group-1: %+v", d)
		}
		if d := tables.Filters.Find("group-2", "TopicA"); d == nil || d.DeadMillis != d.BornMillis+1 {
			t.Errorf("group-2, which was dead: %+v", d)
		}
		live := []FilterData{*d, *tables.Filters.Find("group-1", "TopicB")}
		tables.Filters.Sync("group-1", live)
		closeTables(t, tables)
		var want, got any
		ours := read(t, fs, "consumerFilter.json")
		if json.Unmarshal(java, &want) != nil || json.Unmarshal([]byte(ours), &got) != nil {
			t.Fatalf("not JSON: %s", ours)
		}
		if w, g := string(mustJSON(t, want)), string(mustJSON(t, got)); w != g {
			t.Errorf("what we write\n%s\nwhat Java wrote\n%s", g, w)
		}
		if strings.Count(ours, "\n") != strings.Count(string(java), "\n") {
			t.Error("the layout isn't Java's")
		}
	})
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A broken file keeps nobody from starting: heartbeats bring it all again.
func TestBrokenFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		put(t, fs, "consumerFilter.json", []byte(`{"filterDataByTopic":[`))
		tables := openTables(t, fs)
		tables.Filters.Sync("g", []FilterData{{Topic: "T", Expression: "a", ExpressionType: "SQL92"}})
		closeTables(t, tables)
		tables = openTables(t, fs)
		if tables.Filters.Find("g", "T") == nil {
			t.Error("not saved over a broken file")
		}
		closeTables(t, tables)
	})
}
