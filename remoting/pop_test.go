package remoting

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestPopHeaders(t *testing.T) {
	type header interface{ Decode(*Command) error }
	for _, tt := range []struct {
		in      *Command
		out, as header
	}{
		{(&PopHeader{[]byte("g"), []byte("t"), -1, 32, 60_000, 15_000, 1 << 40, PopInitMax, []byte("TAG"), []byte("a"), true, []byte("at")}).Command(),
			&PopHeader{}, &PopHeader{[]byte("g"), []byte("t"), -1, 32, 60_000, 15_000, 1 << 40, PopInitMax, []byte("TAG"), []byte("a"), true, []byte("at")}},
		{(&AckHeader{[]byte("g"), []byte("t"), 2, []byte("0 1 2 3 0 b 2 7"), 7, 0}).Command(ReqAckMessage),
			&AckHeader{}, &AckHeader{[]byte("g"), []byte("t"), 2, []byte("0 1 2 3 0 b 2 7"), 7, 0}},
		{(&AckHeader{[]byte("g"), []byte("t"), 2, []byte("0 1 2 3 0 b 2 7"), 7, 500}).Command(ReqChangeMessageInvisibleTime),
			&AckHeader{}, &AckHeader{[]byte("g"), []byte("t"), 2, []byte("0 1 2 3 0 b 2 7"), 7, 500}},
		{(&NotificationHeader{[]byte("g"), []byte("t"), -1, 15_000, 9, true, []byte("at")}).Command(),
			&NotificationHeader{}, &NotificationHeader{[]byte("g"), []byte("t"), -1, 15_000, 9, true, []byte("at")}},
		{(&PeekHeader{"g", "t", -1, 5}).Command(ReqPeekMessage), &PeekHeader{}, &PeekHeader{"g", "t", -1, 5}},
		{(&PeekHeader{"g", "t", -1, 0}).Command(ReqPollingInfo), &PeekHeader{}, &PeekHeader{"g", "t", -1, 0}},
	} {
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
	// Each field but the optional ones is missed by name.
	full := (&PopHeader{ConsumerGroup: []byte("g"), Topic: []byte("t")}).Command()
	optional := []string{"bornTime", "expType", "exp", "order", "attemptId"}
	for i, f := range full.Fields {
		c := *full
		c.Fields = slices.Delete(slices.Clone(full.Fields), i, i+1)
		err := (&PopHeader{}).Decode(&c)
		var fe *FieldError
		if slices.Contains(optional, string(f.Key)) {
			if err != nil {
				t.Errorf("without %s: got %v", f.Key, err)
			}
		} else if !errors.As(err, &fe) || fe.Field != string(f.Key) {
			t.Errorf("without %s: got %v", f.Key, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		var h PopHeader
		if h.Decode(full) != nil {
			t.Error("not decoded")
		}
	}); n != 0 {
		t.Errorf("decoding a pop's header: got %v allocations, want 0", n)
	}
	ack := (&AckHeader{[]byte("g"), []byte("t"), 2, []byte("0 1 2 3 0 b 2 7"), 7, 0}).Command(ReqAckMessage)
	if n := testing.AllocsPerRun(100, func() {
		var h AckHeader
		var ck PopCK
		if h.Decode(ack) != nil || ck.Parse(h.ExtraInfo) != nil {
			t.Error("not decoded")
		}
	}); n != 0 {
		t.Errorf("decoding an acknowledgement: got %v allocations, want 0", n)
	}
}

func TestPopCK(t *testing.T) {
	var ck PopCK
	const text = "100 1700000000000 60000 3 1 broker-a 5 103"
	if err := ck.Parse([]byte(text)); err != nil {
		t.Fatal(err)
	}
	want := PopCK{100, 1_700_000_000_000, 60_000, 3, '1', []byte("broker-a"), 5, 103}
	if d := cmp.Diff(want, ck); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := string(ck.Append(nil)); got != text {
		t.Errorf("written again: %q", got)
	}
	if err := ck.Parse([]byte("100 1700000000000 60000 3 1 broker-a 5")); err != nil || ck.Offset != -1 {
		t.Errorf("seven items: got %v, offset %d", err, ck.Offset)
	}
	for _, bad := range []string{"", " ", "1 2 3 4 0 b", "1 2 3 4 3 b 5 6", "1 2 3 4 00 b 5 6", "1 2 3 4 0  5 6", "1 2 3 4 0 b 5 6 7",
		"x 2 3 4 0 b 5 6", "1 2 3 9999999999 0 b 5 6", "1 2 3 4 0 b 5 6x"} {
		var fe *FieldError
		if err := ck.Parse([]byte(bad)); !errors.As(err, &fe) || fe.Field != "extraInfo" {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

// Bit sets as Java's BitSet writes them: BitSet{0, 9, 16}.toByteArray() is 01 02 01.
func TestBitSet(t *testing.T) {
	var s BitSet
	for _, i := range []int{16, 0, 9} {
		s.Set(i)
	}
	body := MarshalBody(BatchAckBody{BrokerName: "b", Acks: []BatchAck{{Bits: s, Retry: "0"}}})
	const want = `{"acks":[{"b":"AQIB","c":"","it":0,"pt":0,"q":0,"r":"0","rq":0,"so":0,"t":""}],"brokerName":"b"}`
	if string(body) != want {
		t.Errorf("got %s\nwant %s", body, want)
	}
	var again BatchAckBody
	if err := ParseBody(body, &again); err != nil {
		t.Fatal(err)
	}
	var got []int
	again.Acks[0].Bits.Each(func(i int) bool { got = append(got, i); return i < 9 })
	if !slices.Equal(got, []int{0, 9}) {
		t.Errorf("got %v, want 0 and 9, then the end", got)
	}
	for _, bad := range []string{`{"acks":[{"b":5}]}`, `{"acks":[{"b":"%"}]}`} {
		if err := ParseBody([]byte(bad), &again); !errors.Is(err, ErrBody) {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}
