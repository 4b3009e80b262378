package remoting

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestFrameSize(t *testing.T) {
	whole := frameOf(`{"code":1}`, "body")
	tests := []struct {
		name  string
		in    string
		total int
		ok    bool
		seen  string
	}{
		{"empty", "", 0, false, ""},
		{"part of the length", "\x00\x00", 0, false, ""},
		{"length alone", "\x00\x00\x00\x14", 24, true, ""},
		{"whole", string(whole), len(whole), true, ""},
		{"whole and more", string(whole) + "\x00", len(whole), true, ""},
		{"largest", "\x00\xff\xff\xfc", 1 << 24, true, ""},
		{"too large", "\x00\xff\xff\xfd", 0, false, "frame too large"},
		{"negative", "\xff\xff\xff\xff", 0, false, "bad length"},
		{"shorter than its head", "\x00\x00\x00\x03", 0, false, "bad length"},
		{"unknown serialize type", "\x00\x00\x00\x14\x02\x00\x00\x00", 0, false, "unknown serialize type"},
		{"header beyond frame", "\x00\x00\x00\x14\x00\x00\x00\x11", 0, false, "header longer than the frame"},
		{"http", "GET / HTTP/1.1\r\n", 0, false, "HTTP request"},
		{"http, few bytes", "GET", 0, false, "HTTP request"},
		{"http2", "PRI * HTTP/2.0\r\n\r\nSM", 0, false, "HTTP/2 preface"},
		{"tls", "\x16\x03\x01\x02\x00\x01\x00", 0, false, "TLS handshake"},
		{"tls, one byte", "\x16", 0, false, "TLS handshake"},
		{"proxy", "PROXY TCP4 ", 0, false, "PROXY protocol header"},
		{"proxy v2", "\r\n\r\n\x00\r\nQUIT\n", 0, false, "PROXY protocol header"},
	}
	for _, tt := range tests {
		total, ok, err := FrameSize([]byte(tt.in), MaxFrameBytes)
		var fe *FrameError
		seen := ""
		if errors.As(err, &fe) {
			seen = fe.Seen
		}
		if total != tt.total || ok != tt.ok || seen != tt.seen {
			t.Errorf("%s: got %d, %v, %v; want %d, %v, %q", tt.name, total, ok, err, tt.total, tt.ok, tt.seen)
		}
	}
}

func TestDecodeBadFrames(t *testing.T) {
	good := frameOf(`{"code":1}`, "body")
	binary := Append(nil, &Command{Code: 1, Serialize: SerializeBinary, Remark: []byte("r"), Fields: []Field{{[]byte("k"), []byte("v")}}})
	var c Command
	for n := range good {
		if err := Decode(good[:n], &c); err == nil {
			t.Errorf("%d of %d bytes decoded", n, len(good))
		}
	}
	for i := 8; i < len(binary); i++ {
		for _, x := range []byte{0xFF, 0x80, 0x7F} {
			bad := bytes.Clone(binary)
			bad[i] = x
			checkAgainstGeneral(t, bad) // must not panic; mostly an error
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, s := range []string{"0", "-0", "+7", "007", "2147483647", "2147483648", "-2147483648", "-2147483649",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
		"00000000000000000000000000001", "99999999999999999999", "", "-", "+", "1 ", " 1", "1.0", "0x1", "１"} {
		n32, err32 := ParseInt32([]byte(s))
		w32, want32 := strconv.ParseInt(s, 10, 32)
		if (err32 == nil) != (want32 == nil) || err32 == nil && int64(n32) != w32 {
			t.Errorf("ParseInt32(%q): got %d, %v; want %d, %v", s, n32, err32, w32, want32)
		}
		n64, err64 := ParseInt64([]byte(s))
		w64, want64 := strconv.ParseInt(s, 10, 64)
		if (err64 == nil) != (want64 == nil) || err64 == nil && n64 != w64 {
			t.Errorf("ParseInt64(%q): got %d, %v; want %d, %v", s, n64, err64, w64, want64)
		}
	}
	for s, want := range map[string]bool{"true": true, "TRUE": true, "True": true, "false": false, "": false, "1": false, "truee": false, "t": false} {
		if got := ParseBool([]byte(s)); got != want {
			t.Errorf("ParseBool(%q): got %v", s, got)
		}
	}
}

func FuzzJSONString(f *testing.F) {
	for _, s := range []string{"", "plain", "a\x01b\x02", `q"\`, "\n\r\t\b\f\x00\x1f\x7f", "日本語 text", "bad\xffutf\xe2\x82", "12345678\x0112345678", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, out := range [][]byte{AppendJSONString(nil, s), AppendJSONBytes(nil, []byte(s)), appendRouteText(nil, s, true)} {
			var back string
			if err := json.Unmarshal(out, &back); err != nil {
				t.Fatalf("%q: written as %q: %v", s, out, err)
			}
			if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && back != want {
				t.Fatalf("%q: read again as %q", s, back)
			}
		}
	})
}

func TestReplies(t *testing.T) {
	fields := []Field{{[]byte("queueId"), []byte("3")}, {[]byte(`odd"key`), []byte("a\x01b")}}
	for _, s := range []SerializeType{SerializeJSON, SerializeBinary} {
		to := ReplyTo{Opaque: -9, Serialize: s}
		want := Command{Code: 17, Language: LanguageGo, Version: Version, Opaque: -9, Flag: FlagResponse,
			Remark: []byte("topic \"x\"\n not there"), Fields: fields, Body: []byte("body"), Serialize: s}
		out := AppendReply([]byte("before"), to, TopicNotExist, string(want.Remark), fields, want.Body)
		var got Command
		if err := Decode(out[len("before"):], &got); err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		if d := cmp.Diff(want, got, sameCommand...); d != "" {
			t.Errorf("%v: -want +got:\n%s", s, d)
		}
		head := AppendReplyHead(nil, to, TopicNotExist, string(want.Remark), fields, len(want.Body))
		if !bytes.Equal(append(head, want.Body...), out[len("before"):]) {
			t.Errorf("%v: head and body differ from the whole", s)
		}
		w := BeginReply(nil, to, Success, "")
		w.Int("n", math.MinInt64)
		w.Bool("b", true)
		w.Bytes("s", []byte("é"))
		if err := Decode(w.End(0), &got); err != nil {
			t.Fatal(err)
		}
		if got.GetString("n") != "-9223372036854775808" || got.GetString("b") != "true" || got.GetString("s") != "é" || got.Remark != nil {
			t.Errorf("%v: got %q", s, got.Fields)
		}
		if err := Decode(AppendError(nil, to, &Error{SystemBusy, "full"}), &got); err != nil || got.Code != int32(SystemBusy) || string(got.Remark) != "full" {
			t.Errorf("%v: error answer: %v, %+v", s, err, got)
		}
	}
	// Java's send path dereferences extFields: the key must be there.
	if out := AppendReply(nil, ReplyTo{}, Success, "", nil, nil); !bytes.Contains(out, []byte(`"extFields":{}`)) {
		t.Errorf("no extFields in %q", out)
	}
}

// TestAppendAsJava pins the frame byte by byte: a decoded Java request written
// again is the same text.
func TestAppendAsJava(t *testing.T) {
	for _, h := range []string{java53Send, java49Send, javaPull} {
		frame := frameOf(h, "body")
		var c Command
		if err := Decode(frame, &c); err != nil {
			t.Fatal(err)
		}
		if got := Append(nil, &c); !bytes.Equal(got, frame) {
			t.Errorf("got  %q\nwant %q", got, frame)
		}
	}
}

func TestBinaryFallsBackToJSON(t *testing.T) {
	c := Command{Code: ReqPopMessage, Serialize: SerializeBinary}
	out := Append(nil, &c)
	if out[4] != byte(SerializeJSON) {
		t.Fatal("a code of more than 16 bits was written in a binary header")
	}
	var back Command
	if err := Decode(out, &back); err != nil || back.Code != ReqPopMessage {
		t.Errorf("got %+v, %v", back, err)
	}
}

func TestSendHeader(t *testing.T) {
	want := SendHeader{ProducerGroup: []byte("PG"), Topic: []byte("TopicTest"), DefaultTopic: []byte("TBW102"),
		DefaultTopicQueueNums: 4, QueueID: 3, SysFlag: 8, BornMillis: 1732960000123, Flag: -1,
		Properties: []byte("a\x01b\x02"), ReconsumeTimes: 2, UnitMode: true, MaxReconsumeTimes: 16, Batch: true, BrokerName: []byte("b")}
	for _, code := range []int32{ReqSendMessage, ReqSendMessageV2, ReqSendBatchMessage, ReqSendReplyMessage, ReqSendReplyMessageV2} {
		c := want.Command(code, []byte("body"))
		var got SendHeader
		if err := got.Decode(c); err != nil {
			t.Fatalf("%d: %v", code, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d: -want +got:\n%s", code, d)
		}
	}
	// 320 with long names, as very old clients may send it.
	c := want.Command(ReqSendMessage, nil)
	c.Code = ReqSendBatchMessage
	var got SendHeader
	if err := got.Decode(c); err != nil || string(got.Topic) != "TopicTest" {
		t.Errorf("320 with long names: %v, %q", err, got.Topic)
	}
}

func TestHeaderErrors(t *testing.T) {
	tests := []struct {
		name   string
		header string
		into   interface{ Decode(*Command) error }
		field  string
		got    string
	}{
		{"send, nothing", `{"code":310}`, &SendHeader{}, "a (producerGroup)", ""},
		{"send, long, nothing", `{"code":10}`, &SendHeader{}, "producerGroup", ""},
		{"send, no flag", `{"code":10,"extFields":{"producerGroup":"g","topic":"t","defaultTopic":"","defaultTopicQueueNums":"4","queueId":"0","sysFlag":"0","bornTimestamp":"1"}}`, &SendHeader{}, "flag", ""},
		{"send, bad queueId", `{"code":310,"extFields":{"a":"g","e":"x"}}`, &SendHeader{}, "e", "x"},
		{"send, empty queueId", `{"code":310,"extFields":{"a":"g","e":""}}`, &SendHeader{}, "e", `""`},
		{"send, time too long", `{"code":310,"extFields":{"g":"9223372036854775808"}}`, &SendHeader{}, "g", "9223372036854775808"},
		{"pull, no group", `{"code":11}`, &PullHeader{}, "consumerGroup", ""},
		{"pull, bad offset", `{"code":11,"extFields":{"queueOffset":"-"}}`, &PullHeader{}, "queueOffset", "-"},
		{"query offset", `{"code":14,"extFields":{"consumerGroup":"g","topic":"t"}}`, &QueryConsumerOffsetHeader{}, "queueId", ""},
		{"update offset", `{"code":15,"extFields":{"consumerGroup":"g","topic":"t","queueId":"1.5"}}`, &UpdateConsumerOffsetHeader{}, "queueId", "1.5"},
		{"register", `{"code":103}`, &RegisterBrokerHeader{}, "brokerName", ""},
	}
	for _, tt := range tests {
		var c Command
		if err := Decode(frameOf(tt.header, ""), &c); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		var fe *FieldError
		if err := tt.into.Decode(&c); !errors.As(err, &fe) || fe.Field != tt.field || fe.Got != tt.got {
			t.Errorf("%s: got %v, want field %q, got %q", tt.name, err, tt.field, tt.got)
		} else if !strings.Contains(fe.Error(), tt.field) {
			t.Errorf("%s: %q does not name the field", tt.name, fe.Error())
		}
	}
}

// TestHeadersRoundTrip sends every typed header through Command and back.
func TestHeadersRoundTrip(t *testing.T) {
	type header interface{ Decode(*Command) error }
	tests := []struct {
		in  *Command
		out header
		as  header
	}{
		{(&PullHeader{ConsumerGroup: []byte("g"), Topic: []byte("t"), QueueID: 1, QueueOffset: 1 << 40, MaxMsgNums: 32, SysFlag: PullSuspend | PullSubscription, CommitOffset: 5, SuspendMillis: 15000, Subscription: []byte("A || B"), SubVersion: 7, ExpressionType: []byte("TAG"), MaxMsgBytes: 9}).Command(ReqPullMessage),
			&PullHeader{}, &PullHeader{ConsumerGroup: []byte("g"), Topic: []byte("t"), QueueID: 1, QueueOffset: 1 << 40, MaxMsgNums: 32, SysFlag: PullSuspend | PullSubscription, CommitOffset: 5, SuspendMillis: 15000, Subscription: []byte("A || B"), SubVersion: 7, ExpressionType: []byte("TAG"), MaxMsgBytes: 9, RequestSource: -1}},
		{(&TopicQueueHeader{"t", 3}).Command(ReqGetMaxOffset), &TopicQueueHeader{}, &TopicQueueHeader{"t", 3}},
		{(&QueryConsumerOffsetHeader{"g", "t", 1, false}).Command(), &QueryConsumerOffsetHeader{}, &QueryConsumerOffsetHeader{"g", "t", 1, false}},
		{(&UpdateConsumerOffsetHeader{"g", "t", 1, 99}).Command(), &UpdateConsumerOffsetHeader{}, &UpdateConsumerOffsetHeader{"g", "t", 1, 99}},
		{(&SearchOffsetHeader{"t", 1, 5, "upper"}).Command(), &SearchOffsetHeader{}, &SearchOffsetHeader{"t", 1, 5, "upper"}},
		{(&QueryMessageHeader{"t", "k", 32, 1, 2, true}).Command(), &QueryMessageHeader{}, &QueryMessageHeader{"t", "k", 32, 1, 2, true}},
		{(&SendBackHeader{Offset: 5, Group: "g", DelayLevel: -1, OriginMsgID: "x", OriginTopic: "t", MaxReconsumeTimes: 16}).Command(), &SendBackHeader{}, &SendBackHeader{Offset: 5, Group: "g", DelayLevel: -1, OriginMsgID: "x", OriginTopic: "t", MaxReconsumeTimes: 16}},
		{(&EndTransactionHeader{"t", "g", 1, 2, 8, true, "m", "x"}).Command(), &EndTransactionHeader{}, &EndTransactionHeader{"t", "g", 1, 2, 8, true, "m", "x"}},
		{(&GroupForbiddenHeader{"g", "t", nil}).Command(), &GroupForbiddenHeader{}, &GroupForbiddenHeader{"g", "t", nil}},
		{(&GroupForbiddenHeader{"g", "t", new(bool)}).Command(), &GroupForbiddenHeader{}, &GroupForbiddenHeader{"g", "t", new(bool)}},
		{(&CheckTransactionHeader{"t", 1, 2, "m", "x", "o", "b"}).Command(), &CheckTransactionHeader{}, &CheckTransactionHeader{"t", 1, 2, "m", "x", "o", "b"}},
		{(&UnregisterClientHeader{"c", "", "g"}).Command(), &UnregisterClientHeader{}, &UnregisterClientHeader{"c", "", "g"}},
		{(&CreateTopicHeader{Topic: "t", DefaultTopic: "TBW102", ReadQueueNums: 8, WriteQueueNums: 4, Perm: 6, TopicFilterType: FilterSingleTag, Attributes: "+a=b"}).Command(), &CreateTopicHeader{}, &CreateTopicHeader{Topic: "t", DefaultTopic: "TBW102", ReadQueueNums: 8, WriteQueueNums: 4, Perm: 6, TopicFilterType: FilterSingleTag, Attributes: "+a=b"}},
		{(&AllTopicConfigHeader{-1, "", -1}).Command(), &AllTopicConfigHeader{}, &AllTopicConfigHeader{-1, "", -1}},
		{(&AllTopicConfigHeader{0, "", 100}).Command(), &AllTopicConfigHeader{}, &AllTopicConfigHeader{0, "", 100}},
		{(&RegisterBrokerHeader{BrokerName: "b", BrokerAddr: "a:1", ClusterName: "c", HAServerAddr: "a:2", BrokerID: 1, HeartbeatTimeoutMillis: 10000, ActingMasterSent: true, Compressed: true, BodyCRC32: 77}).Command(), &RegisterBrokerHeader{}, &RegisterBrokerHeader{BrokerName: "b", BrokerAddr: "a:1", ClusterName: "c", HAServerAddr: "a:2", BrokerID: 1, HeartbeatTimeoutMillis: 10000, ActingMasterSent: true, Compressed: true, BodyCRC32: 77}},
		{(&RegisterBrokerHeader{BrokerName: "b", BrokerAddr: "a:1", ClusterName: "c"}).Command(), &RegisterBrokerHeader{}, &RegisterBrokerHeader{BrokerName: "b", BrokerAddr: "a:1", ClusterName: "c"}},
		{(&RouteHeader{Topic: "t", AcceptStandardJSONOnly: true}).Command(), &RouteHeader{}, &RouteHeader{Topic: "t", AcceptStandardJSONOnly: true}},
		{(&KVHeader{"n", "k", "v"}).Command(ReqPutKVConfig), &KVHeader{}, &KVHeader{"n", "k", "v"}},
		{(&BrokerHeartbeatHeader{"c", "b", "a", 0, 1, 2, 3, 4, -1}).Command(), &BrokerHeartbeatHeader{}, &BrokerHeartbeatHeader{"c", "b", "a", 0, 1, 2, 3, 4, -1}},
		{(&ResetOffsetHeader{"t", "g", -1, -1, -1, true}).Command(ReqInvokeBrokerToResetOffset), &ResetOffsetHeader{}, &ResetOffsetHeader{"t", "g", -1, -1, -1, true}},
	}
	for _, tt := range tests {
		for _, s := range []SerializeType{SerializeJSON, SerializeBinary} {
			tt.in.Serialize = s
			var c Command
			if err := Decode(Append(nil, tt.in), &c); err != nil {
				t.Fatalf("%T: %v", tt.out, err)
			}
			if err := tt.out.Decode(&c); err != nil {
				t.Errorf("%T: %v", tt.out, err)
				continue
			}
			if d := cmp.Diff(tt.as, tt.out, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%T, %v: -want +got:\n%s", tt.out, s, d)
			}
		}
	}
}

func TestCodes(t *testing.T) {
	if n := RequestCode(ReqSendMessageV2).Name(); n != "SEND_MESSAGE_V2" {
		t.Errorf("310 is called %s", n)
	}
	if n := RequestCode(9999).Name(); n != "9999" || RequestCode(9999).Known() {
		t.Errorf("9999 is called %s", n)
	}
	if n := PullOffsetMoved.Name(); n != "PULL_OFFSET_MOVED" {
		t.Errorf("21 is called %s", n)
	}
	if len(RequestCodes()) != len(requestNames) {
		t.Error("RequestCodes lists another number of codes than have names")
	}
	for c, want := range map[ResponseCode]bool{SystemBusy: true, ServiceNotAvailable: true, MessageIllegal: false, Success: false} {
		if c.Retriable() != want {
			t.Errorf("%s: Retriable is %v", c.Name(), !want)
		}
	}
	for i, n := range languageNames {
		if l := languageOf([]byte(n)); l != Language(i) || l.String() != n {
			t.Errorf("language %s reads as %v", n, l)
		}
	}
	if languageOf([]byte("COBOL")) != LanguageOther {
		t.Error("an unknown language is not OTHER")
	}
}
