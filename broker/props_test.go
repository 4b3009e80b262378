package broker

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ringmq/ringmq/message"
)

func propsBroker() *Broker {
	return &Broker{stamp: propsStamp("R", true, "C"), ids: message.NewIDs(netip.MustParseAddr("127.0.0.1"))}
}

// show makes the separators visible: = and ;.
func show(props []byte) string {
	return strings.NewReplacer("\x01", "=", "\x02", ";").Replace(string(props))
}

func hide(s string) []byte {
	return []byte(strings.NewReplacer("=", "\x01", ";", "\x02").Replace(s))
}

func TestStoredProps(t *testing.T) {
	const stamp = "MSG_REGION=R;TRACE_ON=true;CLUSTER=C;"
	for _, tc := range []struct{ name, in, want string }{
		{"as Java sends them", "UNIQ_KEY=u;WAIT=true;TAGS=a", "UNIQ_KEY=u;WAIT=true;TAGS=a;" + stamp},
		{"closed by a separator", "UNIQ_KEY=u;TAGS=a;", "UNIQ_KEY=u;TAGS=a;" + stamp},
		{"doubled separators", "UNIQ_KEY=u;;;TAGS=a;", "UNIQ_KEY=u;TAGS=a;" + stamp},
		{"a name without value, a value without name", "UNIQ_KEY=u;A=;=b;C;", "UNIQ_KEY=u;" + stamp},
		{"a value with a name's separator", "UNIQ_KEY=u;A=b=c;", "UNIQ_KEY=u;A=b=c;" + stamp},
		{"the broker's own, as a retried message brings them", "MSG_REGION=X;UNIQ_KEY=u;TRACE_ON=false;CLUSTER=Y;", "UNIQ_KEY=u;" + stamp},
		{"a pop receipt is not stored", "POP_CK=0 1 2;UNIQ_KEY=u;", "UNIQ_KEY=u;" + stamp},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var found sentProps
			got := propsBroker().appendStoredProps(nil, hide(tc.in), &found)
			if show(got) != tc.want {
				t.Errorf("stored properties: got %s, want %s", show(got), tc.want)
			}
			if string(found.uniqKey) != "u" {
				t.Errorf("unique key: got %q, want u", found.uniqKey)
			}
		})
	}
}

func TestStoredPropsFinds(t *testing.T) {
	var found sentProps
	got := propsBroker().appendStoredProps(nil, hide("TAGS=t;KEYS=k1 k2;WAIT=false;DELAY=3;TRAN_MSG=true;TIMER_DELAY_MS=5"), &found)
	if string(found.tags) != "t" || string(found.delay) != "3" || string(found.tran) != "true" || string(found.timer) != "5" || !found.noWait {
		t.Errorf("found: got %+v", found)
	}
	key, ok := message.Property(got, message.PropUniqKey)
	if !ok || string(key) != string(found.uniqKey) || len(key) != 32 {
		t.Errorf("a unique key is made where there is none: got %q, stored %q", found.uniqKey, key)
	}
}

func TestStoredPropsDoesNotAllocate(t *testing.T) {
	b, props := propsBroker(), hide("UNIQ_KEY=7F0000010000;WAIT=true;TAGS=a;KEYS=k")
	dst := make([]byte, 0, 1024)
	var found sentProps
	if n := testing.AllocsPerRun(100, func() { dst = b.appendStoredProps(dst[:0], props, &found) }); n != 0 {
		t.Errorf("allocations: got %v, want 0", n)
	}
}
