package filter

import (
	"sync"

	"github.com/ringmq/ringmq/message"
)

// SQL is a compiled SQL92 expression over a message's properties.
//
// The language is that of Apache's SelectorParser (5.3.3), with its meaning to
// the letter:
//
//	or         = and { OR and }
//	and        = equality { AND equality }
//	equality   = comparison { ("=" | "<>") comparison | IS [NOT] NULL }
//	comparison = unary { (">" | ">=" | "<" | "<=") unary
//	                   | [NOT] BETWEEN unary AND unary
//	                   | [NOT] IN "(" string { "," string } ")"
//	                   | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string }
//	unary      = { "+" | "-" | NOT } ( literal | property | "(" or ")" )
//	literal    = string | integer | decimal | TRUE | FALSE | NULL
//
// Keywords are read in any case, property names as they stand. A quote within a
// string is written twice. -- begins a comment to the end of the line, /* */
// encloses one. NOT binds to the operand behind it, tighter than a comparison:
// write NOT (a = 1).
//
// A property is a text, or NULL where the message has none of that name. Beside
// a number it is read as a number of that kind (32-bit, 64-bit, double), beside
// TRUE or FALSE as a truth value; two properties are compared by < and > as
// doubles, by = as texts. A text that is no such number ends the evaluation: the
// message does not match, whatever the rest says. AND, OR and NOT know three
// values; what is not TRUE in the end does not match. = beside NULL is NULL on
// the left and FALSE on the right, and TRUE for two; the CONTAINS family is
// FALSE for NULL.
type SQL struct {
	root  *node
	names []string       // of the properties, by slot
	slots map[string]int // the same by name, where they are many; else nil
}

// exprBytesMax bounds an expression.
const exprBytesMax = 64 << 10

// slotsInline is how many properties are kept on the stack and looked up one by
// one; more are rare.
const slotsInline = 8

// ParseSQL compiles an expression. The error is a *SyntaxError, which says where.
func ParseSQL(expr string) (*SQL, error) {
	p := parser{lexer: lexer{src: expr}}
	root, err := p.parse()
	if err != nil {
		return nil, err
	}
	f := &SQL{root: root, names: p.names}
	if len(f.names) > slotsInline {
		f.slots = p.slots
	}
	return f, nil
}

// MatchCode is true: a tag says nothing of other properties.
func (f *SQL) MatchCode(int64) bool { return true }

// NeedsProperties is true.
func (f *SQL) NeedsProperties() bool { return true }

// MatchProperties evaluates the expression over a property string. It goes
// through the string once and does not allocate.
func (f *SQL) MatchProperties(props []byte) bool {
	if f.slots != nil {
		return f.matchMany(props)
	}
	var slots [slotsInline][]byte
	for len(props) > 0 {
		name, value, rest, ok := message.NextProperty(props)
		if props = rest; !ok {
			continue
		}
		for i := range f.names {
			if f.names[i] == string(name) {
				slots[i] = value // the last one counts, as in Java's map
				break
			}
		}
	}
	return f.root.eval(slots[:]) == isTrue
}

// manySlots keeps the slots of expressions with many properties.
var manySlots = sync.Pool{New: func() any { return new([][]byte) }}

func (f *SQL) matchMany(props []byte) bool {
	kept := manySlots.Get().(*[][]byte)
	if cap(*kept) < len(f.names) {
		*kept = make([][]byte, len(f.names))
	}
	slots := (*kept)[:len(f.names)]
	for len(props) > 0 {
		name, value, rest, ok := message.NextProperty(props)
		if props = rest; !ok {
			continue
		}
		if i, wanted := f.slots[string(name)]; wanted {
			slots[i] = value
		}
	}
	match := f.root.eval(slots) == isTrue
	clear(slots) // keeps no record alive
	manySlots.Put(kept)
	return match
}
