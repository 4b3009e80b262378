package message

import (
	"bytes"
	"strings"
	"testing"
)

// TestTornProperties takes each sector of a record away, as a crash does in a
// zero-filled file: Check or TornProperties must see it, wherever the record
// begins.
func TestTornProperties(t *testing.T) {
	for _, propsBytes := range []int{40, 300, 2000} {
		props := AppendProperty(nil, PropKeys, strings.Repeat("k", propsBytes))
		for _, bodyBytes := range []int{1, 400, 421, 1500} {
			for start := int64(0); start < 1024; start += 17 {
				rec, err := Append(nil, &Message{Topic: []byte("T"), Body: bytes.Repeat([]byte{'b'}, bodyBytes), Properties: props,
					BornHost: hostV4, StoreHost: hostV4})
				if err != nil {
					t.Fatal(err)
				}
				Stamp(rec, 0, LogOffset(start), 1)
				if TornProperties(rec, start) {
					t.Fatalf("whole record at %d: torn", start)
				}
				for sector := start / 512; sector*512 < start+int64(len(rec)); sector++ {
					torn := bytes.Clone(rec)
					from, to := max(0, sector*512-start), min(int64(len(rec)), (sector+1)*512-start)
					clear(torn[from:to])
					if bytes.Equal(torn, rec) {
						continue
					}
					if _, _, err := Check(torn, LogOffset(start), true); err == nil && !TornProperties(torn, start) {
						t.Fatalf("record at %d of body %d, properties %d, without bytes [%d, %d): not seen", start, bodyBytes, propsBytes, from, to)
					}
				}
			}
		}
	}
}
