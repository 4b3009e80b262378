package meta

import (
	"slices"
	"testing"
)

// loneOffsets is a table whose keeper doesn't run.
func loneOffsets() *Offsets {
	cfg := Config{Dir: "config"}
	cfg.setDefaults()
	return newKeeper(&cfg).offsets
}

func TestOffsets(t *testing.T) {
	o := loneOffsets()
	commit := func(topic, group string, q int32, offset int64) { o.Commit([]byte(topic), []byte(group), q, offset) }
	get := func(topic, group string, q int32) int64 {
		v, ok := o.Get([]byte(topic), []byte(group), q)
		if !ok {
			return -1
		}
		return v
	}
	commit("T", "g", 3, 30)
	commit("T", "g", 0, 10)
	commit("T", "g", 3, 20) // backwards is allowed
	commit("T", "h", 0, 7)
	commit("U", "g", 1, 0)
	commit("T", "g", -1, 5)
	commit("T", "g", QueueIDMax+1, 5)
	commit("T", "g", 1, -5)
	for _, tt := range []struct {
		topic, group string
		queue        int32
		want         int64
	}{
		{"T", "g", 0, 10}, {"T", "g", 3, 20}, {"T", "g", 1, -1}, {"T", "h", 0, 7}, {"U", "g", 1, 0},
		{"U", "h", 0, -1}, {"T", "g", -1, -1}, {"T", "g", QueueIDMax + 1, -1},
	} {
		if got := get(tt.topic, tt.group, tt.queue); got != tt.want {
			t.Errorf("%s@%s queue %d = %d, want %d", tt.topic, tt.group, tt.queue, got, tt.want)
		}
	}
	if got, want := o.Topics("g"), []string{"T", "U"}; !slices.Equal(got, want) {
		t.Errorf("Topics(g) = %v, want %v", got, want)
	}
	if got, want := o.Groups("T"), []string{"g", "h"}; !slices.Equal(got, want) {
		t.Errorf("Groups(T) = %v, want %v", got, want)
	}
	o.DeleteTopic("T")
	commit("T", "g", 0, 1)
	o.DeleteGroup("h")
	if get("T", "h", 0) != -1 || get("T", "g", 3) != -1 || get("T", "g", 0) != 1 || get("U", "g", 1) != 0 {
		t.Error("deletion took the wrong offsets")
	}
	// The journal says the same: what was deleted stays so, what came after is there.
	b, _ := o.drain([]byte(journalMagic))
	var r recorder
	if _, err := replayJournal(b, &r); err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	for _, line := range r.got {
		var key string
		if k, ok := cutPrefix(line, "forget "); ok {
			delete(state, k)
		} else if k, ok := cutPrefix(line, "commit "); ok {
			key = k[:3]
			state[key] += k[3:] + ";"
		}
	}
	if len(state) != 2 || state["T@g"] != " 0 1;" || state["U@g"] != " 1 0;" {
		t.Errorf("journal replays to %q", state)
	}
}

func cutPrefix(s, p string) (string, bool) {
	if len(s) >= len(p) && s[:len(p)] == p {
		return s[len(p):], true
	}
	return s, false
}

func TestCommitCostsNothing(t *testing.T) {
	o := loneOffsets()
	topic, group := []byte("topic"), []byte("group")
	o.Commit(topic, group, 0, 0)
	offset := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		offset++
		o.Commit(topic, group, 0, offset)
		o.Get(topic, group, 0)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkCommit(b *testing.B) {
	o := loneOffsets()
	topic, group := []byte("some-topic"), []byte("some-consumer-group")
	b.RunParallel(func(p *testing.PB) {
		var offset int64
		for p.Next() {
			offset++
			o.Commit(topic, group, int32(offset&7), offset)
		}
	})
}
