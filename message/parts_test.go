package message

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// javaMap is MessageDecoder.string2messageProperties, written as Java has it.
func javaMap(s string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(s); {
		end := strings.IndexByte(s[i:], 2)
		if end < 0 {
			end = len(s)
		} else {
			end += i
		}
		if end-i >= 3 {
			sep := strings.IndexByte(s[i:], 1)
			if sep >= 0 {
				sep += i
			}
			if sep > i && sep < end-1 {
				m[s[i:sep]] = s[sep+1 : end]
			}
		}
		i = end + 1
	}
	return m
}

func goMap(s string) map[string]string {
	m := map[string]string{}
	EachProperty([]byte(s), func(name, value []byte) bool {
		m[string(name)] = string(value)
		return true
	})
	return m
}

var propertyTexts = []string{
	"", "a\x01b\x02", "a\x01b", "a\x01b\x02c\x01d", "a\x01b\x02\x02c\x01d\x02", "\x02\x02", "\x01", "\x01\x02", "a\x01\x02c\x01d\x02",
	"\x01b\x02c\x01d", "novalue\x02c\x01d\x02", "a\x01b\x01c\x02", "a\x01\x01\x02", "a\x01b\x02a\x01c\x02", "a\x02b\x01c\x02", "ab\x02\x01x\x02",
	"KEYS\x01k1 k2\x02UNIQ_KEY\x01C0A8\x02WAIT\x01true\x02", "名\x01前\x02",
}

func TestProperties(t *testing.T) {
	for _, s := range propertyTexts {
		want := javaMap(s)
		if d := cmp.Diff(want, goMap(s)); d != "" {
			t.Errorf("%q: -java +go:\n%s", s, d)
		}
		for k, v := range want {
			if got, ok := Property([]byte(s), k); !ok || string(got) != v {
				t.Errorf("%q: %s is %q, %v, want %q", s, k, got, ok, v)
			}
		}
		if _, ok := Property([]byte(s), "absent"); ok {
			t.Errorf("%q: found what is not there", s)
		}
		delete(want, "a")
		if d := cmp.Diff(want, goMap(string(DeleteProperty(nil, []byte(s), "a")))); d != "" {
			t.Errorf("%q without a: -want +got:\n%s", s, d)
		}
		want["new"] = "v"
		cut := DeleteProperty(nil, []byte(s), "a")
		if d := cmp.Diff(want, goMap(string(AppendProperty(cut, "new", "v")))); d != "" {
			t.Errorf("%q with new: -want +got:\n%s", s, d)
		}
	}
	if got := string(AppendProperty([]byte("a\x01b"), "c", "d")); got != "a\x01b\x02c\x01d\x02" {
		t.Errorf("the last pair was not closed: %q", got)
	}
	if got := string(AppendPropertyBytes([]byte("a\x01b"), "c", []byte("d"))); got != "a\x01b\x02c\x01d\x02" {
		t.Errorf("the last pair was not closed: %q", got)
	}
	if got := string(AppendProperty(nil, "a", "")); got != "" {
		t.Errorf("an empty value was written: %q", got)
	}
	in := []byte("a\x01b\x02c\x01d\x02e\x01f")
	if got := string(DeleteProperty(in[:0], in, "c")); got != "a\x01b\x02e\x01f\x02" && got != "a\x01b\x02e\x01f" {
		t.Errorf("in place: %q", got)
	}
	n := 0
	EachProperty([]byte("a\x01b\x02c\x01d\x02"), func(_, _ []byte) bool { n++; return false })
	if n != 1 {
		t.Errorf("went on after false: %d", n)
	}
}

func FuzzProperties(f *testing.F) {
	for _, s := range propertyTexts {
		f.Add(s, "a", "v")
	}
	f.Fuzz(func(t *testing.T, s, name, value string) {
		want := javaMap(s)
		if d := cmp.Diff(want, goMap(s)); d != "" {
			t.Fatalf("%q: -java +go:\n%s", s, d)
		}
		if strings.ContainsAny(name+value, "\x01\x02") || name == "" || value == "" {
			return
		}
		in := []byte(s)
		cut := DeleteProperty(in[:0], in, name)
		delete(want, name)
		if d := cmp.Diff(want, goMap(string(cut))); d != "" {
			t.Fatalf("%q without %q: -want +got:\n%s", s, name, d)
		}
		want[name] = value
		if d := cmp.Diff(want, goMap(string(AppendProperty(cut, name, value)))); d != "" {
			t.Fatalf("%q with %q: -want +got:\n%s", s, name, d)
		}
	})
}

func batchOf(t testing.TB, items ...BatchItem) []byte {
	var b []byte
	for _, it := range items {
		var err error
		if b, err = AppendBatchItem(b, it); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestBatch(t *testing.T) {
	want := []BatchItem{{Flag: 1, Body: []byte("one"), Properties: []byte("a\x01b\x02")}, {Flag: -1, Body: []byte{}, Properties: []byte{}}, {Body: bytes.Repeat([]byte("x"), 5000)}}
	body := batchOf(t, want...)
	if got, want := fmt.Sprintf("%x", body[:29]), "0000001d"+"00000000"+"00000000"+"00000001"+"00000003"+"6f6e65"+"0004"+"61016202"; got != want {
		t.Errorf("first item: got %s, want %s", got, want)
	}
	var got []BatchItem
	if err := EachBatchItem(body, func(it BatchItem) error { got = append(got, it); return nil }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	stop := errors.New("stop")
	if err := EachBatchItem(body, func(BatchItem) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if _, err := AppendBatchItem(nil, BatchItem{Properties: make([]byte, PropertiesBytesMax+1)}); !errors.Is(err, ErrTooLong) {
		t.Errorf("properties too long: %v", err)
	}

	one := batchOf(t, want[0])
	for n := 1; n < len(one); n++ {
		if err := EachBatchItem(one[:n], func(BatchItem) error { return nil }); !errors.Is(err, ErrBatch) {
			t.Errorf("%d of %d bytes: %v", n, len(one), err)
		}
	}
	for at, to := range map[int]byte{0: 0xFF, 3: 21, 16: 0xFF, 19: 100, 23: 0x80, 24: 9} {
		bad := bytes.Clone(one)
		bad[at] = to
		if err := EachBatchItem(bad, func(BatchItem) error { return nil }); !errors.Is(err, ErrBatch) {
			t.Errorf("byte %d = %x: %v", at, to, err)
		}
	}
}

func FuzzBatch(f *testing.F) {
	f.Add(batchOf(f, BatchItem{Flag: 1, Body: []byte("one"), Properties: []byte("a\x01b\x02")}, BatchItem{}))
	f.Fuzz(func(t *testing.T, body []byte) {
		var again []byte
		err := EachBatchItem(body, func(it BatchItem) error {
			var err error
			again, err = AppendBatchItem(again, it)
			return err
		})
		if err != nil {
			if !errors.Is(err, ErrBatch) {
				t.Fatalf("error of another family: %v", err)
			}
			return
		}
		if len(again) != len(body) {
			t.Fatalf("%d bytes read, %d written again", len(body), len(again))
		}
	})
}

func TestOffsetIDs(t *testing.T) {
	tests := []struct {
		host netip.AddrPort
		off  LogOffset
		id   string
	}{
		{netip.MustParseAddrPort("127.0.0.1:10911"), 0x1234ABCD, "7F00000100002A9F000000001234ABCD"},
		{hostIn6, 1, "0A01020300002A9F0000000000000001"},
		{hostV6, -1, "20010DB800000000000000000000000100008707FFFFFFFFFFFFFFFF"},
	}
	for _, tt := range tests {
		if got := string(AppendOffsetID(nil, tt.host, tt.off)); got != tt.id {
			t.Errorf("got %s, want %s", got, tt.id)
		}
		host, off, err := ParseOffsetID(tt.id)
		if err != nil || host != stored(tt.host) || off != tt.off {
			t.Errorf("%s: got %v, %d, %v", tt.id, host, off, err)
		}
	}
	for _, id := range []string{"", "7F00", strings.Repeat("G", 32), strings.Repeat("F", 33), "7F000001FFFFFFFF000000001234ABCD"} {
		if _, _, err := ParseOffsetID(id); !errors.Is(err, ErrOffsetID) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		var buf [64]byte
		_ = AppendOffsetID(buf[:0], hostV4, 5)
	}); n != 0 {
		t.Errorf("%v allocations an id, want 0", n)
	}
}

func TestIDs(t *testing.T) {
	g := NewIDs(netip.MustParseAddr("10.1.2.3"))
	now := time.Date(2024, 2, 1, 0, 0, 1, 0, time.Local).UnixMilli()
	id := string(g.AppendAt(nil, now))
	if len(id) != 32 || !strings.HasPrefix(id, "0A010203") || id[20:] != "000003E8"+"0000" || strings.ToUpper(id) != id {
		t.Errorf("got %s", id)
	}
	if next := string(g.AppendAt(nil, now+5)); next[20:] != "000003ED"+"0001" {
		t.Errorf("got %s", next)
	}
	// The end of February in a leap year, then March.
	if id := string(g.AppendAt(nil, time.Date(2024, 3, 1, 0, 0, 0, 0, time.Local).UnixMilli())); id[20:28] != "00000000" {
		t.Errorf("a new month begins at %s", id[20:28])
	}
	if id := string(g.AppendAt(nil, now)); id[20:28] != "000003E8" {
		t.Errorf("a clock set back a month gives %s", id[20:28])
	}
	if id := string(NewIDs(hostV6.Addr()).AppendTo(nil)); len(id) != 56 {
		t.Errorf("IPv6: %s", id)
	}

	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				id := string(g.AppendAt(nil, now))
				mu.Lock()
				if seen[id] {
					t.Errorf("%s came twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var buf [64]byte
	if n := testing.AllocsPerRun(100, func() { _ = g.AppendAt(buf[:0], now) }); n != 0 {
		t.Errorf("%v allocations an id, want 0", n)
	}
}
