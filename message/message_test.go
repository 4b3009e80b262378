package message

import (
	"bytes"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	hostV4   = netip.MustParseAddrPort("10.1.2.3:10911")
	hostV6   = netip.MustParseAddrPort("[2001:db8::1]:34567")
	hostIn6  = netip.MustParseAddrPort("[::ffff:10.1.2.3]:10911")
	sameAddr = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
)

func sample() Message {
	return Message{QueueID: 3, Flag: -2, QueueOffset: 0x0102030405060708, PhysicalOffset: 0x1112131415161718, SysFlag: 0x8,
		BornMillis: 0x2122232425262728, BornHost: hostV4, StoreMillis: 0x3132333435363738, StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"),
		ReconsumeTimes: 7, PreparedTransactionOffset: 0x4142434445464748, Body: []byte("hello"), Topic: []byte("TopicTest"), Properties: []byte("TAGS\x01TagA\x02")}
}

// TestPinnedLayout spells a record out, field by field.
func TestPinnedLayout(t *testing.T) {
	m := sample()
	got, err := Append(nil, &m)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"00000073", "daa320a7", "3610a686", "00000003", "fffffffe", "0102030405060708", "1112131415161718", "00000008",
		"2122232425262728", "0a010203", "00002a9f", "3132333435363738", "7f000001", "00002a9f", "00000007", "4142434445464748",
		"00000005", hex.EncodeToString([]byte("hello")), "09", hex.EncodeToString([]byte("TopicTest")), "000a", hex.EncodeToString([]byte("TAGS\x01TagA\x02")),
	}, "")
	if hex.EncodeToString(got) != want {
		t.Errorf("\n got %x\nwant %s", got, want)
	}
	if len(got) != EncodedSize(&m) || len(got) != MinBytes+5+9+10 {
		t.Errorf("size %d, EncodedSize %d", len(got), EncodedSize(&m))
	}
}

func TestRoundTrip(t *testing.T) {
	long := strings.Repeat("t", 200)
	tests := []struct {
		name  string
		set   func(m *Message)
		magic uint32
		flags int32
	}{
		{"v4", func(*Message) {}, MagicV1, 0x8},
		{"born v6", func(m *Message) { m.BornHost = hostV6 }, MagicV1, 0x8 | SysFlagBornIPv6},
		{"store v6", func(m *Message) { m.StoreHost = hostV6 }, MagicV1, 0x8 | SysFlagStoreIPv6},
		{"both v6", func(m *Message) { m.BornHost, m.StoreHost = hostV6, hostV6 }, MagicV1, 0x8 | SysFlagBornIPv6 | SysFlagStoreIPv6},
		{"mapped v4", func(m *Message) { m.BornHost = hostIn6 }, MagicV1, 0x8},
		{"stale host bits", func(m *Message) { m.SysFlag |= SysFlagBornIPv6 | SysFlagStoreIPv6 }, MagicV1, 0x8},
		{"v2 topic", func(m *Message) { m.Topic = []byte(long) }, MagicV2, 0x8},
		{"v2 topic, v6", func(m *Message) { m.Topic, m.BornHost = []byte(long), hostV6 }, MagicV2, 0x8 | SysFlagBornIPv6},
		{"longest v1 topic", func(m *Message) { m.Topic = []byte(long[:127]) }, MagicV1, 0x8},
		{"shortest v2 topic", func(m *Message) { m.Topic = []byte(long[:128]) }, MagicV2, 0x8},
		{"empty everything", func(m *Message) { *m = Message{} }, MagicV1, 0},
		{"longest properties", func(m *Message) { m.Properties = bytes.Repeat([]byte("p"), PropertiesBytesMax) }, MagicV1, 0x8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := sample()
			tt.set(&m)
			rec, err := Append([]byte("before"), &m)
			if err != nil {
				t.Fatal(err)
			}
			rec = rec[len("before"):]
			var got Message
			n, err := Decode(append(bytes.Clone(rec), "more"...), &got)
			if err != nil || n != len(rec) {
				t.Fatalf("got %d, %v, want %d", n, err, len(rec))
			}
			want := m
			want.Size, want.Magic, want.SysFlag, want.BodyCRC = int32(len(rec)), tt.magic, tt.flags, CRC(m.Body)
			want.BornHost, want.StoreHost = stored(m.BornHost), stored(m.StoreHost)
			if d := cmp.Diff(want, got, sameAddr, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			checkPeeks(t, rec, &got)

			Stamp(rec, 77, 88, 99)
			if _, err := Decode(rec, &got); err != nil || got.QueueOffset != 77 || got.PhysicalOffset != 88 || got.StoreMillis != 99 {
				t.Errorf("after Stamp: %v, %+v", err, got)
			}
			if size, blank, err := Check(rec, 88, true); size != len(rec) || blank || err != nil {
				t.Errorf("Check: %d, %v, %v", size, blank, err)
			}
		})
	}
}

// stored is an address as a record gives it back.
func stored(h netip.AddrPort) netip.AddrPort {
	if !h.Addr().IsValid() {
		return netip.MustParseAddrPort("0.0.0.0:0")
	}
	return netip.AddrPortFrom(h.Addr().Unmap(), h.Port())
}

func checkPeeks(t *testing.T, rec []byte, m *Message) {
	t.Helper()
	if Size(rec) != m.Size || Magic(rec) != m.Magic || QueueIDOf(rec) != m.QueueID || QueueOffsetOf(rec) != m.QueueOffset ||
		PhysicalOffsetOf(rec) != m.PhysicalOffset || SysFlagOf(rec) != m.SysFlag || StoreMillisOf(rec) != m.StoreMillis || BornMillisOf(rec) != m.BornMillis {
		t.Errorf("a peek differs from %+v", m)
	}
	if !bytes.Equal(BodyOf(rec), m.Body) || !bytes.Equal(TopicOf(rec), m.Topic) || !bytes.Equal(PropertiesOf(rec), m.Properties) {
		t.Errorf("a peeked part differs: %q %q %q", BodyOf(rec), TopicOf(rec), PropertiesOf(rec))
	}
	var tail Tail
	if err := tail.Find(rec[:min(len(rec), HeadBytes)], m.PhysicalOffset, len(rec)); err != nil {
		t.Error(err)
	} else if props, err := tail.Properties(rec[tail.From:tail.To]); err != nil || !bytes.Equal(props, m.Properties) {
		t.Errorf("properties from the tail: %q, %v", props, err)
	}
	if h := StoreHostOf(rec); parseHost(h, len(h)) != m.StoreHost {
		t.Errorf("store host %x, want %v", h, m.StoreHost)
	}
}

func TestAppendTooLong(t *testing.T) {
	for _, m := range []Message{{Topic: make([]byte, TopicBytesMaxV2+1)}, {Properties: make([]byte, PropertiesBytesMax+1)}} {
		if out, err := Append(nil, &m); !errors.Is(err, ErrTooLong) || len(out) != 0 {
			t.Errorf("got %d bytes, %v", len(out), err)
		}
	}
}

// readTail reads a record's properties by its head and its tail.
func readTail(rec []byte) error {
	var tail Tail
	if err := tail.Find(rec[:min(len(rec), HeadBytes)], 1000, len(rec)); err != nil {
		return err
	}
	_, err := tail.Properties(rec[tail.From:tail.To])
	return err
}

func TestCheck(t *testing.T) {
	m := sample()
	m.PhysicalOffset = 1000
	good, err := Append(nil, &m)
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int, to ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		return b
	}
	tests := []struct {
		name string
		in   []byte
		what string
		also error
	}{
		{"zeros", make([]byte, 100), "magic", ErrUnwritten},
		{"nothing", nil, "totalSize", ErrShort},
		{"cut", good[:len(good)-1], "totalSize", ErrShort},
		{"wrong magic", change(7, 0xA8), "magic", nil},
		{"size too small", change(0, 0, 0, 0, 90), "totalSize", nil},
		{"size negative", change(0, 0xFF), "totalSize", nil},
		{"size too large", change(0, 0, 0, 1), "totalSize", ErrShort},
		{"hosts longer than the record", change(36, 0, 0, 0, 0x30), "bodyLen", nil},
		{"body too long", change(84, 0x7F), "bodyLen", nil},
		{"body negative", change(84, 0xFF), "bodyLen", nil},
		{"topic too long", change(93, 127), "topicLen", nil},
		{"topic negative", change(93, 0x80), "topicLen", nil},
		{"properties too long", change(103, 0x01), "propertiesLen", nil},
		{"properties negative", change(103, 0x80), "propertiesLen", nil},
		{"elsewhere", change(28, 0, 0, 0, 0, 0, 0, 3, 0xE9), "physicalOffset", nil},
		{"body changed", change(88, 'H'), "bodyCRC", nil},
		{"blank too small", AppendBlank(nil, 7), "blank size", nil},
	}
	for _, tt := range tests {
		_, _, err := Check(tt.in, 1000, true)
		var re *RecordError
		if !errors.Is(err, ErrTorn) || !errors.As(err, &re) || re.What != tt.what || re.At != 1000 {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.what)
			continue
		}
		if tt.what != "bodyCRC" && tt.what != "blank size" { // not looked at
			if err := readTail(tt.in); !errors.As(err, &re) || re.What != tt.what || re.At != 1000 {
				t.Errorf("%s: tail: got %v, want %s", tt.name, err, tt.what)
			}
		}
		if short := errors.Is(err, ErrShort); short != (tt.also == ErrShort) {
			t.Errorf("%s: ErrShort is %v", tt.name, short)
		}
		if un := errors.Is(err, ErrUnwritten); un != (tt.also == ErrUnwritten) {
			t.Errorf("%s: ErrUnwritten is %v", tt.name, un)
		}
	}
	if _, _, err := Check(change(88, 'H'), 1000, false); err != nil {
		t.Errorf("without crc: %v", err)
	}
	if size, blank, err := Check(AppendBlank(nil, 1<<20), 5, true); size != 1<<20 || !blank || err != nil {
		t.Errorf("blank: %d, %v, %v", size, blank, err)
	}
	if got := hex.EncodeToString(AppendBlank(nil, 258)); got != "00000102cbd43194" {
		t.Errorf("blank is %s", got)
	}
}

func FuzzDecode(f *testing.F) {
	for _, set := range []func(*Message){func(*Message) {}, func(m *Message) { m.BornHost = hostV6 }, func(m *Message) { m.Topic = bytes.Repeat([]byte("t"), 130) }} {
		m := sample()
		set(&m)
		rec, err := Append(nil, &m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(rec)
	}
	f.Add(AppendBlank(nil, 8))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		n, err := Decode(b, &m)
		if err == nil {
			rec := b[:n]
			checkPeeks(t, rec, &m)
			// What decodes can be written again; where the writer's rules were kept
			// (its CRC, its version, 16-bit ports) it is the same record.
			out, err := Append(nil, &m)
			if err != nil {
				t.Fatalf("decoded, but not encoded: %v", err)
			}
			var again Message
			if _, err := Decode(out, &again); err != nil {
				t.Fatal(err)
			}
			again.Size, again.Magic, again.BodyCRC, again.SysFlag = m.Size, m.Magic, m.BodyCRC, m.SysFlag
			again.BornHost, again.StoreHost = m.BornHost, m.StoreHost
			if d := cmp.Diff(m, again, sameAddr); d != "" {
				t.Fatalf("-first +again:\n%s", d)
			}
			if _, _, err := Check(rec, m.PhysicalOffset, false); err != nil {
				t.Fatalf("Decode accepts what Check refuses: %v", err)
			}
			Stamp(rec, 1, 2, 3)
			if StoreMillisOf(rec) != 3 {
				t.Fatal("Stamp and StoreMillisOf disagree")
			}
		} else if !errors.Is(err, ErrTorn) {
			t.Fatalf("error of another family: %v", err)
		}
		if _, _, err := Check(b, 0, true); err != nil && !errors.Is(err, ErrTorn) {
			t.Fatalf("Check: error of another family: %v", err)
		}
	})
}

func TestJavaHash(t *testing.T) {
	// Values of Java's String.hashCode.
	for s, want := range map[string]int32{"": 0, "a": 97, "TagA": 2598919, "TagB": 2598920, "Aa": 2112, "BB": 2112,
		"polygenelubricants": -2147483648, "中文": 646394, "😀": 1772899, "é": 233} {
		if got := JavaHash([]byte(s)); got != want {
			t.Errorf("JavaHash(%q): got %d, want %d", s, got, want)
		}
	}
	if got := TagsCode([]byte("polygenelubricants")); got != -1<<31 {
		t.Errorf("not sign-extended: %d", got)
	}
	if TagsCode(nil) != 0 {
		t.Error("no tags do not give 0")
	}
}

func TestRecordAllocs(t *testing.T) {
	m := sample()
	buf := make([]byte, 0, 4096)
	var out Message
	props := []byte("KEYS\x01k\x02UNIQ_KEY\x01x\x02WAIT\x01true\x02")
	if n := testing.AllocsPerRun(100, func() {
		buf, _ = Append(buf[:0], &m)
		Stamp(buf, 1, 2, 3)
		if _, err := Decode(buf, &out); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Check(buf, 2, true); err != nil {
			t.Fatal(err)
		}
		_, _ = Property(props, PropWait)
		EachProperty(props, func(name, value []byte) bool { return len(value) > 0 })
		_ = TagsCode(out.Topic)
	}); n != 0 {
		t.Errorf("%v allocations a record, want 0", n)
	}
}

func TestCRC(t *testing.T) {
	body := []byte("0123456789") // the IEEE sum has its top bit set
	if sum := crc32.ChecksumIEEE(body); sum>>31 != 1 || CRC(body) != sum&0x7FFFFFFF {
		t.Errorf("sum %x, CRC %x", sum, CRC(body))
	}
	if CRC(nil) != 0 {
		t.Error("the CRC of nothing is not 0")
	}
}

func BenchmarkAppend1K(b *testing.B) {
	m := sample()
	m.Body = make([]byte, 1024)
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = Append(buf[:0], &m)
	}
}
