package message

import (
	"math"
	"net/netip"
	"strconv"
	"testing"
)

func innerRecord(t *testing.T, topic string, num string) []byte {
	t.Helper()
	host := netip.MustParseAddrPort("10.0.0.1:10911")
	props := AppendProperty(nil, PropUniqKey, "0A")
	props = AppendInnerBase(AppendProperty(props, PropInnerNum, num))
	rec, err := Append(nil, &Message{Topic: []byte(topic), SysFlag: SysFlagInnerBatch | SysFlagNeedUnwrap, Body: []byte("body"), Properties: props, BornHost: host, StoreHost: host})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// A stamped inner batch is what encoding it with its offset would have given:
// Apache writes INNER_BASE without leading zeros.
func TestStampInnerBase(t *testing.T) {
	long := string(make([]byte, 200)) // a V2 record
	for _, topic := range []string{"T", long} {
		for _, base := range []QueueOffset{0, 9, 10, 123456, math.MaxInt64} {
			rec := innerRecord(t, topic, "3")
			if !HasInnerBase(rec) {
				t.Fatal("record has no room for INNER_BASE")
			}
			Stamp(rec, base, 4096, 77)
			rec = rec[:StampInnerBase(rec, base)]
			size, _, err := Check(rec, 4096, true)
			if err != nil || size != len(rec) {
				t.Fatalf("base %d: size %d of %d: %v", base, size, len(rec), err)
			}
			var m Message
			if _, err := Decode(rec, &m); err != nil {
				t.Fatal(err)
			}
			want, err := Append(nil, &Message{Topic: m.Topic, SysFlag: m.SysFlag, Body: m.Body, BornHost: m.BornHost, StoreHost: m.StoreHost,
				QueueOffset: base, PhysicalOffset: 4096, StoreMillis: 77,
				Properties: AppendProperty([]byte("UNIQ_KEY\x010A\x02INNER_NUM\x013\x02"), PropInnerBase, strconv.FormatInt(int64(base), 10))})
			if err != nil || string(want) != string(rec) {
				t.Errorf("base %d: record is\n%q, want\n%q", base, rec, want)
			}
		}
	}
}

func TestInnerNum(t *testing.T) {
	for num, want := range map[string]int16{"1": 1, "3": 3, "32767": InnerNumMax, "32768": 1, "0": 1, "-4": 1, "x": 1} {
		rec := innerRecord(t, "T", num)
		if got := InnerNum(rec); got != want {
			t.Errorf("INNER_NUM=%s counts as %d, want %d", num, got, want)
		}
		if allocs := testing.AllocsPerRun(10, func() { InnerNum(rec) }); allocs != 0 && want > 1 {
			t.Errorf("InnerNum allocates %v times", allocs)
		}
	}
	host := netip.MustParseAddrPort("10.0.0.1:10911")
	rec, err := Append(nil, &Message{Topic: []byte("T"), Properties: []byte("INNER_NUM\x019\x02"), BornHost: host, StoreHost: host})
	if err != nil || InnerNum(rec) != 1 {
		t.Errorf("a record without the flag counts as %d: %v", InnerNum(rec), err)
	}
}
