package meta

import (
	"maps"
	"sync"
	"time"

	"github.com/ringmq/ringmq/remoting"
)

// A FilterData is what a group wants of a topic by an expression that isn't tags,
// as Apache's ConsumerFilterData. Once in the table it is never changed, only
// replaced.
type FilterData struct {
	Topic          string
	Group          string
	Expression     string
	ExpressionType string
	ClientVersion  int64 // subVersion, chosen by the client
	BornMillis     int64 // when this expression came
	DeadMillis     int64 // when its last consumer left; 0: there is one
}

// sameFilter says whether two are one subscription, whoever has it.
func (d *FilterData) sameFilter(o *FilterData) bool {
	return d.Expression == o.Expression && d.ExpressionType == o.ExpressionType
}

// Filters is consumerFilter.json: the expressions of groups, kept so that a
// consumer's pull can be served after a restart before its heartbeat has come.
// Any goroutine may call any method; none waits for the disk.
type Filters struct {
	mu      sync.RWMutex
	byGroup map[string]map[string]*FilterData // group, topic
	version DataVersion                       // not in the file: says when to save

	keep  time.Duration // how long what nobody subscribes any more is kept
	now   func() time.Time
	saver *saver
}

// Find gives what was last subscribed, nil when nothing is known.
func (f *Filters) Find(group, topic string) *FilterData {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byGroup[group][topic]
}

// Sync takes all that a group's consumers subscribe now; of each, Topic,
// Expression, ExpressionType and ClientVersion are read. What the group had
// before and isn't among it is dead from now on.
func (f *Filters) Sync(group string, live []FilterData) {
	f.mu.Lock()
	defer f.mu.Unlock()
	nowMillis := f.now().UnixMilli()
	old := f.byGroup[group]
	topics := make(map[string]*FilterData, len(live))
	for i := range live {
		d := &live[i]
		d.Group, d.BornMillis, d.DeadMillis = group, nowMillis, 0
		if was := old[d.Topic]; was != nil && was.sameFilter(d) {
			d.BornMillis = was.BornMillis
		}
		topics[d.Topic] = d
	}
	for topic, was := range old {
		if topics[topic] == nil {
			dead := *was
			if dead.DeadMillis == 0 {
				dead.DeadMillis = nowMillis
			}
			topics[topic] = &dead
		}
	}
	if maps.EqualFunc(old, topics, func(a, b *FilterData) bool { return *a == *b }) {
		return
	}
	f.byGroup[group] = topics
	f.version = f.version.Next(nowMillis)
	f.saver.kick()
}

// forgotten says whether nobody has subscribed d for so long that it goes.
func (f *Filters) forgotten(d *FilterData) bool {
	return d.DeadMillis != 0 && f.now().UnixMilli()-d.DeadMillis >= f.keep.Milliseconds()
}

// Version counts the table's changes.
func (f *Filters) Version() DataVersion {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.version
}

// The types below are consumerFilter.json.
type (
	filtersFile struct {
		FilterDataByTopic map[string]topicFilters `json:"filterDataByTopic"`
	}
	topicFilters struct {
		GroupFilterData map[string]groupFilter `json:"groupFilterData"`
		Topic           string                 `json:"topic"`
	}
	groupFilter struct {
		BloomFilterData bloomData `json:"bloomFilterData"`
		BornTime        int64     `json:"bornTime"`
		ClientVersion   int64     `json:"clientVersion"`
		ConsumerGroup   string    `json:"consumerGroup"`
		Dead            bool      `json:"dead"`
		DeadTime        int64     `json:"deadTime"`
		Expression      string    `json:"expression"`
		ExpressionType  string    `json:"expressionType"`
		Topic           string    `json:"topic"`
	}
)

func (f *Filters) encode() ([]byte, DataVersion) {
	file, version := f.snapshot()
	return pretty(remoting.MarshalBody(file)), version
}

// snapshot is the table without what is long dead, which leaves the table too.
func (f *Filters) snapshot() (filtersFile, DataVersion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := filtersFile{FilterDataByTopic: map[string]topicFilters{}}
	for group, topics := range f.byGroup {
		maps.DeleteFunc(topics, func(_ string, d *FilterData) bool { return f.forgotten(d) })
		if len(topics) == 0 {
			delete(f.byGroup, group)
		}
		for topic, d := range topics {
			t, ok := file.FilterDataByTopic[topic]
			if !ok {
				t = topicFilters{GroupFilterData: map[string]groupFilter{}, Topic: topic}
				file.FilterDataByTopic[topic] = t
			}
			t.GroupFilterData[group] = groupFilter{
				BloomFilterData: bloomOf(group, topic), BornTime: d.BornMillis, ClientVersion: d.ClientVersion, ConsumerGroup: group,
				Dead: d.DeadMillis >= d.BornMillis, DeadTime: d.DeadMillis, Expression: d.Expression, ExpressionType: d.ExpressionType, Topic: topic,
			}
		}
	}
	return file, f.version
}

// loadedDeadAgo is how long those that were alive when the file was written are
// taken to be dead when it is read, as in Apache.
const loadedDeadAgo = 30 * time.Second

func (f *Filters) decode(content []byte) error {
	var file filtersFile
	if err := remoting.ParseBody(content, &file); err != nil {
		return err
	}
	byGroup := map[string]map[string]*FilterData{}
	for topic, t := range file.FilterDataByTopic {
		for group, g := range t.GroupFilterData {
			d := &FilterData{Topic: topic, Group: group, Expression: g.Expression, ExpressionType: g.ExpressionType,
				ClientVersion: g.ClientVersion, BornMillis: g.BornTime, DeadMillis: g.DeadTime}
			if d.DeadMillis == 0 {
				d.DeadMillis = max(f.now().Add(-loadedDeadAgo).UnixMilli(), d.BornMillis)
			}
			if f.forgotten(d) {
				continue
			}
			if byGroup[group] == nil {
				byGroup[group] = map[string]*FilterData{}
			}
			byGroup[group][topic] = d
		}
	}
	f.byGroup = byGroup
	return nil
}
