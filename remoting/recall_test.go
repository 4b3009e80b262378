package remoting

import (
	"encoding/base64"
	"testing"
)

func TestRecallHandle(t *testing.T) {
	h := RecallHandle{Topic: "T", BrokerName: "broker-a", Millis: "1700000000001", UniqKey: "7F00000100002A139A5512D51DAB0001"}
	// As java -cp rocketmq-common-5.3.3.jar's HandleV1.buildHandle gives it.
	const java = "djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAxIDdGMDAwMDAxMDAwMDJBMTM5QTU1MTJENTFEQUIwMDAx"
	if got := h.String(); got != java {
		t.Errorf("handle %q, want %q", got, java)
	}
	raw := func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) }
	for _, tt := range []struct {
		in   string
		want RecallHandle
		ok   bool
	}{
		{java, h, true},
		{raw("v1 T b 5 K"), RecallHandle{"T", "b", "5", "K"}, true},
		{raw("v1 T b 5 K more"), RecallHandle{"T", "b", "5", "K"}, true},
		{raw("v1 T b 5 "), RecallHandle{"T", "b", "5", ""}, true},
		{base64.RawURLEncoding.EncodeToString([]byte("v1 T b 5 KK")), RecallHandle{"T", "b", "5", "KK"}, true},
		{raw("v1 T b 5"), RecallHandle{}, false},
		{raw("v2 T b 5 K"), RecallHandle{}, false},
		{raw("v1 T b 5 K\x01"), RecallHandle{}, false},
		{"", RecallHandle{}, false}, {"=", RecallHandle{}, false}, {"====", RecallHandle{}, false},
		{java + "=", RecallHandle{}, false}, {java[:8] + "\n" + java[8:], RecallHandle{}, false}, {"+/+/", RecallHandle{}, false},
	} {
		got, err := ParseRecallHandle(tt.in)
		if (err == nil) != tt.ok || err == nil && *got != tt.want {
			t.Errorf("%q: %+v, %v, want %+v, ok=%v", tt.in, got, err, tt.want, tt.ok)
		}
	}
}

func TestRecallHeader(t *testing.T) {
	h := RecallHeader{ProducerGroup: "pg", Topic: "T", RecallHandle: "x"}
	var got RecallHeader
	if err := got.Decode(h.Command()); err != nil || got != h {
		t.Errorf("%+v, %v, want %+v", got, err, h)
	}
	for _, bad := range []RecallHeader{{Topic: "T"}, {RecallHandle: "x"}} {
		if err := got.Decode(bad.Command()); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func FuzzParseRecallHandle(f *testing.F) {
	f.Add("djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAxIEs=")
	f.Add("djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAxIEs")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseRecallHandle(s)
		if err != nil {
			return
		}
		again, err := ParseRecallHandle(h.String())
		if err != nil || *again != *h {
			t.Errorf("%q: %+v, then %+v, %v", s, h, again, err)
		}
	})
}
