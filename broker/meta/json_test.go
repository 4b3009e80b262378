package meta

import (
	"encoding/json"
	"testing"
)

func TestPretty(t *testing.T) {
	tests := []struct{ compact, want string }{
		{`{}`, `{}`},
		{`[]`, `[]`},
		{`{"a":1}`, "{\n\t\"a\":1\n}"},
		{`{"a":{},"b":[]}`, "{\n\t\"a\":{},\n\t\"b\":[]\n}"},
		{`{"a":["x","y"]}`, "{\n\t\"a\":[\"x\",\"y\"]\n}"},
		{`{"t":{0:5,1:6}}`, "{\n\t\"t\":{0:5,1:6\n\t}\n}"},
		{`{"a":"{,}[]\"\\"}`, "{\n\t\"a\":\"{,}[]\\\"\\\\\"\n}"},
	}
	for _, tt := range tests {
		if got := string(pretty([]byte(tt.compact))); got != tt.want {
			t.Errorf("pretty(%s) = %q, want %q", tt.compact, got, tt.want)
		}
	}
}

func TestIntMap(t *testing.T) {
	m := intMap{3: 20, 1: 10, 17: 1 << 40}
	if got, want := string(m.appendTo(nil)), "{1:10,3:20,17:1099511627776}"; got != want {
		t.Errorf("appendTo = %s, want %s", got, want)
	}
	for _, tt := range []struct {
		in string
		ok bool
	}{
		{`{"0":5}`, true}, {`{}`, true}, {`{"x":5}`, false}, {`{"0":"a"}`, false}, {`{"0":1.5}`, false}, {`{"99999999999":1}`, false}, {`[]`, false},
	} {
		var got intMap
		if err := json.Unmarshal([]byte(tt.in), &got); (err == nil) != tt.ok {
			t.Errorf("%s: %v, want ok=%v", tt.in, err, tt.ok)
		}
	}
}
