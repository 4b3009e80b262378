package remoting

import (
	"fmt"
	"testing"
)

func TestGroupRetryPolicy(t *testing.T) {
	for _, tt := range []struct {
		body string
		want string // spaces before redeliveries 0, 1, 2, 3 and 100; "levels" when the delay levels count; else why it is refused
	}{
		{`{"type":"CUSTOMIZED"}`, "levels"},
		{`{"type":"EXPONENTIAL"}`, "levels"},
		{`{"type":"CUSTOMIZED","exponentialRetryPolicy":{}}`, "levels"},
		{`{"type":"CUSTOMIZED","customizedRetryPolicy":{}}`, "[10000 30000 60000 120000 7200000]"},
		{`{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[7]}}`, "[7 7 7 7 7]"},
		{`{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[0,0,1,2,3]}}`, "[1 2 3 3 3]"},
		{`{"type":"EXPONENTIAL","exponentialRetryPolicy":{}}`, "[5000 10000 20000 40000 7200000]"},
		{`{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1,"max":1000,"multiplier":1}}`, "[1 1 1 1 1]"},
		{`{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":3600000,"multiplier":9223372036854775807}}`, "[1000 3600000 3600000 3600000 3600000]"},
		{`{"type":"exponential"}`, `groupRetryPolicy.type: got "exponential", want CUSTOMIZED or EXPONENTIAL`},
		{`{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[]}}`, "customizedRetryPolicy.next: got no entry, want at least one"},
		{`{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1,-2]}}`, "customizedRetryPolicy.next[1]: got -2 ms, want 0 to 315360000000"},
		{`{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":-1}}`, "exponentialRetryPolicy: got initial -1, max 7200000, multiplier 2, want 0 to 315360000000 ms for the first two and a multiplier of at least 1"},
	} {
		g := NewSubscriptionGroupConfig("g")
		if err := ParseBody([]byte(`{"groupRetryPolicy":`+tt.body+`}`), &g); err != nil {
			t.Fatal(err)
		}
		got := "levels"
		if err := g.GroupRetryPolicy.Check(); err != nil {
			got = err.Error()
		} else if _, own := g.GroupRetryPolicy.Next(0); own {
			var spaces []int64
			for _, times := range []int32{-1, 1, 2, 3, 100} {
				space, _ := g.GroupRetryPolicy.Next(times)
				spaces = append(spaces, space)
			}
			got = fmt.Sprint(spaces)
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.body, got, tt.want)
		}
	}
	var g SubscriptionGroupConfig
	for _, bad := range []string{`{"customizedRetryPolicy":{"next":"x"}}`, `{"exponentialRetryPolicy":{"max":"x"}}`} {
		if err := ParseBody([]byte(`{"groupRetryPolicy":`+bad+`}`), &g); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}
