// Package filter answers one question: does a subscription want this record?
// A filter is asked twice: with the tagsCode of a ConsumeQueue entry, which
// costs nothing but may collide, then, where NeedsProperties says so, with the
// record's properties. Filters are immutable: any goroutine may use them; they do not
// allocate when matching.
package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringmq/ringmq/message"
)

// SubAll is the subscription to everything.
const SubAll = "*"

// Expression types of a subscription. An empty type means TypeTag.
const (
	TypeTag   = "TAG"
	TypeSQL92 = "SQL92"
)

// Filter decides what leaves the broker.
type Filter interface {
	// MatchCode tells whether an entry with this tagsCode may match.
	MatchCode(tagsCode int64) bool
	// NeedsProperties tells whether MatchProperties must be asked as well.
	NeedsProperties() bool
	// MatchProperties tells whether a record with these properties, as it holds
	// them, matches.
	MatchProperties(props []byte) bool
}

// IsTag says whether an expression type, as clients spell it, means tags.
func IsTag(expressionType string) bool { return expressionType == "" || expressionType == TypeTag }

// ErrSyntax is returned for an expression that cannot be parsed.
var ErrSyntax = errors.New("filter: bad expression")

// Parse compiles an expression of the given type. Errors are ErrSyntax, those of
// SQL92 a *SyntaxError.
func Parse(expressionType, expr string) (Filter, error) {
	var f Filter
	var err error
	switch {
	case IsTag(expressionType):
		f, err = ParseTags(expr)
	case expressionType == TypeSQL92:
		f, err = ParseSQL(expr)
	default:
		err = fmt.Errorf("%w: got expression type %q, want %s or %s", ErrSyntax, expressionType, TypeTag, TypeSQL92)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Tags is a subscription to some tags, or to everything.
type Tags struct {
	tags  []string // sorted; empty: everything
	codes []int64  // TagsCode of each tag, sorted
}

// ParseTags reads "*", an empty text (both: everything) or tags joined by "||".
// Blanks around a tag do not count; as in Java's FilterAPI, empty tags between
// separators are skipped and a text of separators alone is ErrSyntax.
func ParseTags(expr string) (Tags, error) {
	if expr == "" || expr == SubAll {
		return Tags{}, nil
	}
	var t Tags
	for tag := range strings.SplitSeq(expr, "||") {
		if tag = strings.TrimSpace(tag); tag != "" {
			t.tags = append(t.tags, tag)
		}
	}
	if len(t.tags) == 0 {
		return Tags{}, fmt.Errorf("%w: %q: got no tag, want TAG || TAG or *", ErrSyntax, expr)
	}
	slices.Sort(t.tags)
	t.tags = slices.Compact(t.tags)
	for _, tag := range t.tags {
		t.codes = append(t.codes, message.TagsCode([]byte(tag)))
	}
	slices.Sort(t.codes)
	t.codes = slices.Compact(t.codes)
	return t, nil
}

// All tells whether every record matches.
func (t Tags) All() bool { return len(t.tags) == 0 }

// List returns the tags, sorted; the caller must not change it.
func (t Tags) List() []string { return t.tags }

// Codes returns the tags' codes, sorted; the caller must not change it.
func (t Tags) Codes() []int64 { return t.codes }

// MatchCode compares the low 32 bits, as Java does.
func (t Tags) MatchCode(tagsCode int64) bool {
	if len(t.tags) == 0 {
		return true
	}
	want := int64(int32(tagsCode))
	for _, c := range t.codes {
		if c == want {
			return true
		}
	}
	return false
}

// NeedsProperties is true unless everything matches: two tags may share a code.
func (t Tags) NeedsProperties() bool { return len(t.tags) > 0 }

// MatchProperties compares the TAGS property with the tags.
func (t Tags) MatchProperties(props []byte) bool {
	if len(t.tags) == 0 {
		return true
	}
	tag, _ := message.Property(props, message.PropTags)
	for _, want := range t.tags {
		if string(tag) == want {
			return true
		}
	}
	return false
}
