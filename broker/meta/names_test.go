package meta

import (
	"errors"
	"strings"
	"testing"

	"github.com/ringmq/ringmq/remoting"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct {
		what  string
		check func(string) error
		name  string
		ok    bool
	}{
		{"topic", CheckTopic[string], "T", true},
		{"topic", CheckTopic[string], "ns%T-1_a|b", true},
		{"topic", CheckTopic[string], long[:127], true},
		{"topic", CheckTopic[string], long[:128], false},
		{"topic", CheckTopic[string], "", false},
		{"topic", CheckTopic[string], " ", false},
		{"topic", CheckTopic[string], "..", false},
		{"topic", CheckTopic[string], "../../etc", false},
		{"topic", CheckTopic[string], "a/b", false},
		{"topic", CheckTopic[string], "a\x00", false},
		{"topic", CheckTopic[string], "a@b", false},
		{"topic", CheckTopic[string], "主题", false},
		{"topic", CheckTopic[string], "%RETRY%" + long[:248], true},
		{"topic", CheckTopic[string], "%RETRY%" + long[:249], false},
		{"topic", CheckTopic[string], "%DLQ%" + long[:250], true},
		{"topic", CheckTopic[string], "%LMQ%" + long[:123], false},
		{"group", CheckGroup[string], long[:120], true},
		{"group", CheckGroup[string], long[:121], false},
		{"group", CheckLiveGroup[string], long[:121], true},
		{"group", CheckLiveGroup[string], long[:248], true},
		{"group", CheckLiveGroup[string], long[:249], false},
		{"group", CheckLiveGroup[string], "a b", false},
	}
	for _, tt := range tests {
		err := tt.check(tt.name)
		if (err == nil) != tt.ok {
			t.Errorf("%s %q: %v, want ok=%v", tt.what, tt.name, err, tt.ok)
		}
		var e *remoting.Error
		if err != nil && (!errors.As(err, &e) || e.Code != remoting.InvalidParameter || !strings.HasPrefix(e.Remark, "The specified "+tt.what)) {
			t.Errorf("%s %q: error %#v", tt.what, tt.name, err)
		}
		if tt.ok && tt.what == "group" && CheckTopic(RetryTopic(tt.name)) != nil {
			t.Errorf("group %q passes but its retry topic does not", tt.name)
		}
	}
}

func TestGoodNameCostsNothing(t *testing.T) {
	name := []byte("%RETRY%some-consumer-group")
	if n := testing.AllocsPerRun(100, func() { _ = CheckTopic(name) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
