package inspect

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringmq/ringmq/remoting"
)

// tables reads the saved tables.
func (v *verifier) tables() error {
	names, err := tableNames(v.cfg)
	if err != nil {
		return err
	}
	for _, name := range names {
		v.report.Tables++
		content, err := readTable(v.cfg, name)
		if err == nil {
			if filepath.Base(name) == "consumerOffset.json" {
				v.offsets(name, content)
			}
			continue
		}
		if _, bakErr := readTable(v.cfg, name+".bak"); bakErr == nil {
			v.report.add(Repairs, name, -1, "%v; its .bak is used", err)
			continue
		}
		v.report.add(Damage, name, -1, "%v; it has no .bak that could stand in", err).fix = fix{aside: name, choice: Tables}
	}
	return nil
}

// tableNames gives the JSON files under config/.
func tableNames(c *Config) (names []string, err error) {
	dir := filepath.Join(c.Dir, "config")
	entries, err := c.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !e.IsDir && strings.HasSuffix(e.Name, ".json") {
			names = append(names, filepath.Join(dir, e.Name))
		}
	}
	return names, err
}

// readTable reads a table and gives it as strict JSON.
func readTable(c *Config, name string) (json.RawMessage, error) {
	b, err := c.FS.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var content json.RawMessage
	err = remoting.ParseBody(b, &content)
	return content, err
}

// offsets looks for consumers that are further than their queues.
func (v *verifier) offsets(name string, content json.RawMessage) {
	var table struct {
		OffsetTable map[string]map[string]int64 `json:"offsetTable"`
	}
	if err := json.Unmarshal(content, &table); err != nil {
		v.report.add(Damage, name, -1, "not a table of offsets: %v", err).fix = fix{aside: name, choice: Tables}
		return
	}
	for _, key := range sorted(table.OffsetTable) {
		topic, group, _ := strings.Cut(key, "@")
		for id, q := range v.queues.byTopic[topic] {
			offset, known := table.OffsetTable[key][itoa(id)]
			if known && offset > q.end && q.missing == 0 {
				v.report.add(Note, name, -1, "group %s is at %d of topic %s queue %d, which ends at %d: its next pull is told to go back", group, offset, topic, id, q.end)
			}
		}
	}
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
