package filter

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ringmq/ringmq/message"
)

func TestParseTags(t *testing.T) {
	tests := []struct {
		expr string
		want []string
		err  error
	}{
		{"*", nil, nil},
		{"", nil, nil},
		{"A", []string{"A"}, nil},
		{"A || B", []string{"A", "B"}, nil},
		{"B||A||B", []string{"A", "B"}, nil},
		{"  A  ||||  B || ", []string{"A", "B"}, nil},
		{"A|B", []string{"A|B"}, nil},
		{"A || *", []string{"*", "A"}, nil}, // as Java: * is a tag among others
		{"||", nil, ErrSyntax},
		{"  ", nil, ErrSyntax},
	}
	for _, tt := range tests {
		got, err := ParseTags(tt.expr)
		if !errors.Is(err, tt.err) {
			t.Errorf("%q: got %v, want %v", tt.expr, err, tt.err)
		}
		if d := cmp.Diff(tt.want, got.List(), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%q: -want +got:\n%s", tt.expr, d)
		}
		if got.All() != (len(tt.want) == 0) || len(got.Codes()) > len(tt.want) {
			t.Errorf("%q: All %v, codes %v", tt.expr, got.All(), got.Codes())
		}
	}
}

func TestMatch(t *testing.T) {
	// Aa and BB share their hash.
	aa, bb := message.TagsCode([]byte("Aa")), message.TagsCode([]byte("BB"))
	if aa != bb {
		t.Fatal("the example no longer collides")
	}
	tests := []struct {
		expr, props string
		code        int64
		matchCode   bool
		matchProps  bool
	}{
		{"*", "", 0, true, true},
		{"*", "TAGS\x01x\x02", 120, true, true},
		{"Aa", "TAGS\x01Aa\x02", aa, true, true},
		{"Aa", "TAGS\x01BB\x02", bb, true, false},
		{"Aa || C", "TAGS\x01C\x02", message.TagsCode([]byte("C")), true, true},
		{"Aa", "TAGS\x01D\x02", message.TagsCode([]byte("D")), false, false},
		{"Aa", "KEYS\x01Aa\x02", 0, false, false},
		{"Aa", "TAGS\x01Aa\x02", aa | 1<<40, true, true}, // low 32 bits, as Java
	}
	for _, tt := range tests {
		f, err := Parse(TypeTag, tt.expr)
		if err != nil {
			t.Fatal(err)
		}
		props := []byte(tt.props)
		if got := f.MatchCode(tt.code); got != tt.matchCode {
			t.Errorf("%q, code %d: MatchCode is %v", tt.expr, tt.code, got)
		}
		if got := f.MatchProperties(props); got != tt.matchProps {
			t.Errorf("%q, %q: MatchProperties is %v", tt.expr, tt.props, got)
		}
		if f.NeedsProperties() != (tt.expr != SubAll) {
			t.Errorf("%q: NeedsProperties is %v", tt.expr, f.NeedsProperties())
		}
		if n := testing.AllocsPerRun(50, func() { _ = f.MatchCode(tt.code) && f.MatchProperties(props) }); n != 0 {
			t.Errorf("%q: %v allocations a record, want 0", tt.expr, n)
		}
	}
}

func TestParseTypes(t *testing.T) {
	if _, err := Parse("", "A"); err != nil {
		t.Errorf("no type: %v", err)
	}
	if f, err := Parse(TypeSQL92, "a > 1"); err != nil || !f.NeedsProperties() || !f.MatchCode(1) {
		t.Errorf("SQL92: %v", err)
	}
	if f, err := Parse("JS", "a"); f != nil || !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), `"JS"`) {
		t.Errorf("an unknown type: %v", err)
	}
	var se *SyntaxError
	if f, err := Parse(TypeSQL92, "a >"); f != nil || !errors.As(err, &se) {
		t.Errorf("bad SQL92: %v", err)
	}
	if _, err := Parse(TypeTag, "||"); !errors.Is(err, ErrSyntax) {
		t.Errorf("bad tags: %v", err)
	}
}
