package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/internal/filter"
	"github.com/ringmq/ringmq/internal/segment"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// sqlData is consumerData with expressions; subs are topic, expression, version
// triples.
func sqlData(group string, subs ...any) *remoting.ConsumerData {
	d := consumerData(group, subs...)
	for i := range d.SubscriptionDataSet {
		d.SubscriptionDataSet[i].ExpressionType = filter.TypeSQL92
	}
	return d
}

func beat(t *testing.T, c *rpc.Conn, id string, data ...*remoting.ConsumerData) {
	t.Helper()
	hb := remoting.HeartbeatData{ClientID: id}
	for _, d := range data {
		hb.ConsumerDataSet = append(hb.ConsumerDataSet, *d)
	}
	call(t, c, remoting.ReqHeartBeat, remoting.Success, remoting.MarshalBody(hb))
}

// subscribed are the fields of a pull by a push consumer, which has subscribed by
// heartbeat.
func subscribed(group, topic string, offset, subVersion int64, more ...string) []string {
	return append(pullFields(topic, 0, offset, "consumerGroup", group, "sysFlag", "0", "subVersion", fmt.Sprint(subVersion)), more...)
}

// pullLater sends a pull whose answer may take its time.
func pullLater(t *testing.T, c *rpc.Conn, fields ...string) chan *remoting.Command {
	t.Helper()
	out := make(chan *remoting.Command, 1)
	req := remoting.NewRequest(int32(remoting.ReqPullMessage))
	for f := fields; len(f) > 0; f = f[2:] {
		req.Set(f[0], f[1])
	}
	if _, err := c.Go(req, func(resp *remoting.Command, err error) {
		if err == nil {
			resp = resp.Clone()
		}
		out <- resp
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func waitHeld(t *testing.T, b *Broker, n int64) {
	t.Helper()
	for range 5000 {
		if b.holds.held.Load() == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("held pulls: got %d, want %d", b.holds.held.Load(), n)
}

func wantBodies(t *testing.T, resp *remoting.Command, want ...string) {
	t.Helper()
	if got := bodies(t, resp); !slices.Equal(got, want) {
		t.Errorf("pulled %q, want %q", got, want)
	}
}

// Expressions over the stored properties, in pulls that carry them and in pulls
// of what a heartbeat has brought.
func TestSQL(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for i := range 6 {
		color := []string{"red", "blue", "green"}[i%3]
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, fmt.Append(nil, "m", i), sendFields("T", 0, fmt.Sprintf("a=%d;color=%s;TAGS=t%d", i, color, i))...)
	}
	for _, tt := range []struct {
		expr string
		want []string
	}{
		{"a BETWEEN 0 AND 3 AND color IN ('red','blue')", []string{"m0", "m1", "m3"}},
		{"TAGS = 't5'", []string{"m5"}},
		{"MSG_REGION = 'DefaultRegion' AND a > 4", []string{"m5"}}, // the broker's own properties too
		{"b IS NULL AND NOT (a > 0)", []string{"m0"}},
	} {
		got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0, "expressionType", "SQL92", "subscription", tt.expr)...)
		wantBodies(t, got, tt.want...)
		if got.GetString("nextBeginOffset") != "6" {
			t.Errorf("%s: next %s, want 6", tt.expr, got.GetString("nextBeginOffset"))
		}
		beat(t, c, "A", sqlData("g", "T", tt.expr, 1))
		wantBodies(t, call(t, c, remoting.ReqPullMessage, remoting.Success, nil, subscribed("g", "T", 0, 1)...), tt.want...)
	}
	none := call(t, c, remoting.ReqPullMessage, remoting.PullRetryImmediately, nil, pullFields("T", 0, 0, "expressionType", "SQL92", "subscription", "a > 10")...)
	if none.GetString("nextBeginOffset") != "6" {
		t.Errorf("nothing matches: next %s, want 6", none.GetString("nextBeginOffset"))
	}
}

// An expression that is none is answered 23 with its place, wherever it comes in.
func TestSQLErrors(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "a=1")...)
	const bad = "a > 1 AND b == 2"
	where := func(resp *remoting.Command) {
		t.Helper()
		if !strings.Contains(string(resp.Remark), `at character 14: got "=", want a property`) {
			t.Errorf("remark %q doesn't say where", resp.Remark)
		}
	}
	where(call(t, c, remoting.ReqPullMessage, remoting.SubscriptionParseFailed, nil, pullFields("T", 0, 0, "expressionType", "SQL92", "subscription", bad)...))
	beat(t, c, "A", sqlData("g", "T", bad, 1, "U", "a > 1", 1))
	where(call(t, c, remoting.ReqPullMessage, remoting.SubscriptionParseFailed, nil, subscribed("g", "T", 0, 1)...))
	where(call(t, c, remoting.ReqCheckClientConfig, remoting.SubscriptionParseFailed,
		remoting.MarshalBody(remoting.CheckClientBody{ClientID: "A", Group: "g", SubscriptionData: sqlData("g", "T", bad, 1).SubscriptionDataSet[0]})))
	// The next heartbeat has it right.
	beat(t, c, "A", sqlData("g", "T", "a = 1", 1))
	wantBodies(t, call(t, c, remoting.ReqPullMessage, remoting.Success, nil, subscribed("g", "T", 0, 1)...), "x")
}

// An expression that a pull carries is compiled once.
func TestExpressionCostsNothing(t *testing.T) {
	b := &Broker{cfg: &Config{PullConfig: PullConfig{EnablePropertyFilter: true}}}
	for _, tt := range []struct{ kind, expr string }{{"", "*"}, {"TAG", "a || b"}, {"SQL92", "a > 1 AND color IN ('red','blue','a text of more than thirty-two bytes')"}} {
		state, kind, expr := &loopState{}, []byte(tt.kind), []byte(tt.expr)
		first, err := b.expression(state, kind, expr)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			if f, err := b.expression(state, kind, expr); f == nil && first != nil || err != nil {
				t.Fatal(f, err)
			}
		}); n != 0 {
			t.Errorf("%s %s: %v allocations", tt.kind, tt.expr, n)
		}
	}
	// The table is bounded, and a text is not taken for the other kind's.
	state := &loopState{}
	for i := range 3 * filtersKept {
		if _, err := b.expression(state, []byte("SQL92"), fmt.Append(nil, "a = ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(state.filters) > filtersKept {
		t.Errorf("%d expressions are kept", len(state.filters))
	}
	sql, _ := b.expression(state, []byte("SQL92"), []byte("a"))
	tags, _ := b.expression(state, []byte("TAG"), []byte("a"))
	if _, isSQL := sql.(*filter.SQL); !isSQL {
		t.Errorf("SQL92 gave a %T", sql)
	}
	if _, isTags := tags.(filter.Tags); !isTags {
		t.Errorf("TAG gave a %T", tags)
	}
}

func TestPropertyFilterOff(t *testing.T) {
	b := startBroker(t, func(c *Config) { c.EnablePropertyFilter = false })
	c := dial(t, b)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "a=1")...)
	beat(t, c, "A", sqlData("g", "T", "a = 1", 1), consumerData("tags", "T", "*", 1))
	for _, resp := range []*remoting.Command{
		call(t, c, remoting.ReqPullMessage, remoting.SystemError, nil, pullFields("T", 0, 0, "expressionType", "SQL92", "subscription", "a = 1")...),
		call(t, c, remoting.ReqPullMessage, remoting.SystemError, nil, subscribed("g", "T", 0, 1)...),
		call(t, c, remoting.ReqCheckClientConfig, remoting.SystemError, remoting.MarshalBody(remoting.CheckClientBody{SubscriptionData: remoting.SubscriptionData{SubString: "==", ExpressionType: "SQL92"}})),
	} {
		if !strings.Contains(string(resp.Remark), "does not support consumer to filter message by SQL92") {
			t.Errorf("remark %q", resp.Remark)
		}
	}
	wantBodies(t, call(t, c, remoting.ReqPullMessage, remoting.Success, nil, subscribed("tags", "T", 0, 1)...), "x")
}

// A held pull goes on waiting over what its expression drops, and is asked again
// when its client wants something else.
func TestSQLHold(t *testing.T) {
	b := startBroker(t, nil)
	c, producer := dial(t, b), dial(t, b)
	send := func(body, props string) {
		t.Helper()
		call(t, producer, remoting.ReqSendMessageV2, remoting.Success, []byte(body), sendFields("T", 0, props)...)
	}
	send("first", "a=0")
	answer := pullLater(t, c, pullFields("T", 0, 1, "sysFlag", "6", "suspendTimeoutMillis", "20000", "expressionType", "SQL92", "subscription", "a > 5")...)
	waitHeld(t, b, 1)
	for range 3 {
		send("other", "a=5")
	}
	send("wanted", "a=6")
	got := <-answer
	wantBodies(t, got, "wanted")
	if got.GetString("nextBeginOffset") != "5" {
		t.Errorf("next %s, want 5", got.GetString("nextBeginOffset"))
	}
	waitHeld(t, b, 0)

	// The same version, another expression: the pull that waits is answered, the
	// next one gets by the new.
	beat(t, c, "A", sqlData("g", "T", "a > 5", 3))
	answer = pullLater(t, c, subscribed("g", "T", 5, 3, "sysFlag", "2", "suspendTimeoutMillis", "20000")...)
	waitHeld(t, b, 1)
	beat(t, c, "A", sqlData("g", "T", "a < 5", 3))
	if got := <-answer; got.Code != int32(remoting.PullRetryImmediately) || got.GetString("nextBeginOffset") != "5" {
		t.Errorf("after a change: code %d, next %s, want 20 and 5", got.Code, got.GetString("nextBeginOffset"))
	}
	answer = pullLater(t, c, subscribed("g", "T", 5, 3, "sysFlag", "2", "suspendTimeoutMillis", "20000")...)
	waitHeld(t, b, 1)
	send("high", "a=6")
	send("low", "a=4")
	wantBodies(t, <-answer, "low")
	// Nothing has changed: a held pull stays.
	answer = pullLater(t, c, subscribed("g", "T", 7, 3, "sysFlag", "2", "suspendTimeoutMillis", "20000")...)
	waitHeld(t, b, 1)
	beat(t, c, "A", sqlData("g", "T", "a < 5", 4))
	send("lower", "a=3")
	wantBodies(t, <-answer, "lower")
}

// A consumer goes on after a restart of the broker before its heartbeat has come,
// by what it had subscribed and by nothing else.
func TestFilterAfterRestart(t *testing.T) {
	dir := t.TempDir()
	b := startBrokerIn(t, dir, nil)
	c := dial(t, b)
	for _, a := range []int{1, 2} {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, fmt.Append(nil, "a", a), sendFields("T", 0, fmt.Sprintf("a=%d", a))...)
	}
	beat(t, c, "A", sqlData("g", "T", "a > 1", 7), consumerData("tags", "T", "x", 7))
	if err := b.tables.Save(); err != nil {
		t.Fatal(err)
	}
	stopBroker(t, b)

	b = startBrokerIn(t, dir, nil)
	c = dial(t, b)
	wantBodies(t, call(t, c, remoting.ReqPullMessage, remoting.Success, nil, subscribed("g", "T", 0, 7)...), "a2")
	for _, tt := range []struct {
		name, group, topic string
		version            int64
		want               remoting.ResponseCode
	}{
		{"subscribed anew meanwhile", "g", "T", 8, remoting.FilterDataNotLatest},
		{"an older subscription than the one known", "g", "T", 6, remoting.SubscriptionNotExist},
		{"no version, as the Go client", "g", "T", 0, remoting.SubscriptionNotExist},
		{"tags aren't kept", "tags", "T", 7, remoting.SubscriptionNotExist},
		{"another group", "h", "T", 7, remoting.SubscriptionNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			call(t, c, remoting.ReqPullMessage, tt.want, nil, subscribed(tt.group, tt.topic, 0, tt.version)...)
		})
	}
	beat(t, c, "A", sqlData("g", "T", "a < 2", 8))
	wantBodies(t, call(t, c, remoting.ReqPullMessage, remoting.Success, nil, subscribed("g", "T", 0, 8)...), "a1")
	if d := b.tables.Filters.Find("g", "T"); d == nil || d.Expression != "a < 2" || d.DeadMillis != 0 {
		t.Errorf("kept: %+v", d)
	}
	c.Close()
	for range 2000 {
		if d := b.tables.Filters.Find("g", "T"); d.DeadMillis != 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if d := b.tables.Filters.Find("g", "T"); d.DeadMillis == 0 {
		t.Error("alive without a consumer")
	}
	stopBroker(t, b)

	// What cannot be compiled is 27.
	file := filepath.Join(dir, "config", "consumerFilter.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "a < 2", "a << 2", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	b = startBrokerIn(t, dir, nil)
	call(t, dial(t, b), remoting.ReqPullMessage, remoting.FilterDataNotExist, nil, subscribed("g", "T", 0, 8)...)
}

// Two clients of one group that subscribe differently: each gets by its own
// subscription; it is counted, and can be seen.
func TestDifferentSubscriptionsOfOneGroup(t *testing.T) {
	b := startBroker(t, nil)
	first, second := dial(t, b), dial(t, b)
	for _, tag := range []string{"x", "y"} {
		call(t, first, remoting.ReqSendMessageV2, remoting.Success, []byte(tag), sendFields("T", 0, "a=1;TAGS="+tag)...)
	}
	beat(t, first, "A", consumerData("g", "T", "x", 1, "%RETRY%g", "*", 1))
	beat(t, second, "B", consumerData("g", "T", " x ", 5, "%RETRY%g", "*", 5)) // the same, written otherwise
	if n := b.clients.conflictsSeen.Load(); n != 0 || b.clients.conflicts("g") != nil {
		t.Errorf("%d conflicts, and %+v now, between equal subscriptions", n, b.clients.conflicts("g"))
	}
	beat(t, second, "B", sqlData("g", "T", "TAGS = 'y'", 6, "U", "a IS NULL", 6))
	beat(t, second, "B", sqlData("g", "T", "TAGS = 'y'", 6, "U", "a IS NULL", 6)) // says it once
	wantBodies(t, call(t, first, remoting.ReqPullMessage, remoting.Success, nil, subscribed("g", "T", 0, 1)...), "x")
	wantBodies(t, call(t, second, remoting.ReqPullMessage, remoting.Success, nil, subscribed("g", "T", 0, 6)...), "y")
	want := []subscriptionConflict{
		{"g", "T", []subscriptionVariant{{"SQL92 TAGS = 'y'", []string{"B"}}, {"x", []string{"A"}}}},
		{"g", "U", []subscriptionVariant{{"", []string{"A"}}, {"SQL92 a IS NULL", []string{"B"}}}},
	}
	if got := b.clients.conflicts("g"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("conflicts\n%+v, want\n%+v", got, want)
	}
	if s := want[1].describe(); s != `"not subscribed" by 1, one is A; "SQL92 a IS NULL" by 1, one is B` {
		t.Errorf("in the log: %s", s)
	}
	if n := b.clients.conflictsSeen.Load(); n != 2 {
		t.Errorf("%d conflicts counted, want 2", n)
	}
	second.Close()
	for range 2000 {
		if b.clients.conflicts("g") == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("conflicts with nobody: %+v", b.clients.conflicts("g"))
}

// Tags with one hash are told apart.
func TestTagsWithOneHash(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for _, tag := range []string{"Aa", "BB", "Aa"} {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte(tag), sendFields("T", 0, "TAGS="+tag)...)
	}
	got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0, "subscription", "BB")...)
	wantBodies(t, got, "BB")
	got = call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0, "subscription", "Aa || C")...)
	wantBodies(t, got, "Aa", "Aa")
	call(t, c, remoting.ReqPullMessage, remoting.PullRetryImmediately, nil, pullFields("T", 0, 0, "subscription", "C#")...) // Aa's hash too
}

// Property strings that are none, or nearly: pairs that can't be read are left
// out, the others hold, for tags as for expressions.
func TestOddProperties(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for i, tt := range []struct {
		props string // = and ; stand for the separators
		expr  string // matches
	}{
		{"a=1;b=2", "a = 1 AND b = 2"},              // no separator at the end
		{"a=1;;b=2;;", "a = 1 AND b = 2"},           // doubled
		{";;a=1;", "a = 1"},                         // at the beginning
		{"a==1;b=2;", "a <> b AND b = 2"},           // a name-value separator in the value
		{"x=y=z;b=2;", "x <> b AND b = 2"},          // the same
		{"a;b=2;", "a IS NULL AND b = 2"},           // none at all
		{"a=;b=2;", "a IS NULL AND b = 2"},          // an empty value
		{"=1;b=2;", "b = 2"},                        // an empty name
		{"a=1;2=;b=2;", "a = 1 AND b = 2"},          // a separator in a value: cut there
		{"a=1;a=3;b=2;", "a = 3 AND b = 2"},         // twice: the last one counts
		{"b=2;TAGS=it's", "TAGS = 'it''s'"},         // a quote
		{"b=2;größe=x;a=ß", "a = 'ß' AND b = 2"},    // not ASCII
		{"b=2;TAGS=last", "TAGS = 'last'"},          // last, and open
		{strings.Repeat(";", 300) + "b=2", "b = 2"}, // nothing but separators
		{"b=2;" + strings.Repeat("k=v;", 2000), "k = 'v'"},
	} {
		topic := fmt.Sprint("T", i)
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("single"), sendFields(topic, 0, tt.props)...)
		item, err := message.AppendBatchItem(nil, message.BatchItem{Body: []byte("batch"), Properties: hide(tt.props)})
		if err != nil {
			t.Fatal(err)
		}
		call(t, c, remoting.ReqSendBatchMessage, remoting.Success, item, sendFields(topic, 0, "", "m", "true")...)
		got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields(topic, 0, 0, "expressionType", "SQL92", "subscription", tt.expr)...)
		if s := fmt.Sprint(bodies(t, got)); s != "[single batch]" {
			t.Errorf("%.60q by %s: pulled %s", tt.props, tt.expr, s)
		}
	}
}

// Properties up to the last byte that a record holds are stored whole, alone and
// in a batch; with one more nothing is, and the queue goes on.
func TestLongestProperties(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	with := func(n int) string {
		return "a=1;UNIQ_KEY=0123456789ABCDEF;long=" + strings.Repeat("v", n) + ";TAGS=end"
	}
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("probe"), sendFields("T", 0, with(1))...)
	first := pullOne(t, c, "T", 0)
	room := message.PropertiesBytesMax - len(first.Properties)
	send := func(batch bool, n int, want remoting.ResponseCode) {
		t.Helper()
		if !batch {
			call(t, c, remoting.ReqSendMessageV2, want, []byte("x"), sendFields("T", 0, with(n))...)
			return
		}
		var items []byte
		for _, n := range []int{1, n} {
			var err error
			if items, err = message.AppendBatchItem(items, message.BatchItem{Body: []byte("x"), Properties: hide(with(n))}); err != nil {
				t.Fatal(err)
			}
		}
		call(t, c, remoting.ReqSendBatchMessage, want, items, sendFields("T", 0, "", "m", "true")...)
	}
	for at, tt := range []struct {
		batch  bool
		stored int64 // messages after it
	}{{false, 2}, {true, 4}} {
		send(tt.batch, 1+room, remoting.Success)
		send(tt.batch, 1+room+1, remoting.MessageIllegal)
		m := pullOne(t, c, "T", tt.stored-1)
		if len(m.Properties) != message.PropertiesBytesMax {
			t.Errorf("%d: %d bytes of properties stored, want %d", at, len(m.Properties), message.PropertiesBytesMax)
		}
		props(t, &m, map[string]string{"long": strings.Repeat("v", 1+room), "TAGS": "end"})
		got := call(t, c, remoting.ReqGetMaxOffset, remoting.Success, nil, "topic", "T", "queueId", "0")
		if got.GetString("offset") != fmt.Sprint(tt.stored) {
			t.Errorf("%d: max offset %s, want %d", at, got.GetString("offset"), tt.stored)
		}
	}
	got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 0, 0, "expressionType", "SQL92", "subscription", "TAGS = 'end' AND long CONTAINS 'vvv'")...)
	wantBodies(t, got, "x", "x")
	for _, n := range []string{"32767", "32768", "65536", "131072"} { // far beyond: lengths that wrap
		var size int
		fmt.Sscan(n, &size)
		send(false, size, remoting.MessageIllegal)
	}
}

// A client that moves only when it is told 21, or 20, is never left where there
// will be nothing: NO_NEW_MSG (19) leaves the offset as it was asked for.
func TestNoNewMessageKeepsTheOffset(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	for range 3 {
		call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "TAGS=a;a=1")...)
	}
	for _, tt := range []struct {
		queue  int
		offset int64
		kind   string
		expr   string
		want   []remoting.ResponseCode // until it finds or waits
	}{
		{0, 3, "TAG", "*", []remoting.ResponseCode{remoting.PullNotFound}},
		{0, 9, "TAG", "*", []remoting.ResponseCode{remoting.PullOffsetMoved, remoting.PullNotFound}},
		{0, -1, "TAG", "*", []remoting.ResponseCode{remoting.PullOffsetMoved, remoting.Success, remoting.PullNotFound}},
		{0, 0, "TAG", "b", []remoting.ResponseCode{remoting.PullRetryImmediately, remoting.PullNotFound}},
		{0, 0, "SQL92", "a = 2", []remoting.ResponseCode{remoting.PullRetryImmediately, remoting.PullNotFound}},
		{0, 9, "SQL92", "a = 2", []remoting.ResponseCode{remoting.PullOffsetMoved, remoting.PullNotFound}},
		{1, 0, "TAG", "*", []remoting.ResponseCode{remoting.PullNotFound}},
		{1, 7, "TAG", "*", []remoting.ResponseCode{remoting.PullOffsetMoved, remoting.PullNotFound}},
		{1, -1, "SQL92", "a = 1", []remoting.ResponseCode{remoting.PullOffsetMoved, remoting.PullNotFound}},
	} {
		at := tt.offset
		for i, want := range tt.want {
			resp := call(t, c, remoting.ReqPullMessage, want, nil, pullFields("T", tt.queue, at, "expressionType", tt.kind, "subscription", tt.expr)...)
			var next int64
			if _, err := fmt.Sscan(resp.GetString("nextBeginOffset"), &next); err != nil {
				t.Fatal(err)
			}
			if moved := next != at; moved == (want == remoting.PullNotFound) {
				t.Errorf("queue %d from %d, answer %d: %s with next %d for %d", tt.queue, tt.offset, i, want, next, at)
			}
			at = next
		}
	}
}

// A record that can't be read now makes a pull wait, at its place and without
// trying over and over.
func TestUnreadableWaits(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	b := startOver(t, fault, "ASYNC_FLUSH")
	t.Cleanup(func() { stopBroker(t, b) })
	t.Cleanup(fault.Clear)
	c := dial(t, b)
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "a=1")...)
	pull := pullFields("T", 0, 0, "expressionType", "SQL92", "subscription", "a = 1", "sysFlag", "6", "suspendTimeoutMillis", "500")
	wantBodies(t, call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pull...), "x")
	fault.Add(vfs.Rule{Ops: vfs.OpRead, Path: segment.Name(0), Err: errors.New("bad disk")})
	before := fault.Count(vfs.OpRead)
	began := time.Now()
	resp := call(t, c, remoting.ReqPullMessage, remoting.PullNotFound, nil, pull...)
	if took := time.Since(began); took < 450*time.Millisecond {
		t.Errorf("held for %v, want 500 ms", took)
	}
	if next := resp.GetString("nextBeginOffset"); next != "0" {
		t.Errorf("next %s, want 0", next)
	}
	if n := fault.Count(vfs.OpRead) - before; n > 10 {
		t.Errorf("tried %d times", n)
	}
	fault.Clear()
	wantBodies(t, call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pull...), "x")
}
