package filter

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// heightMax bounds the nesting of an expression, and so the stack of parser and
// evaluation.
const heightMax = 250

// wantEnd is what may stand behind a whole expression.
const wantEnd = "an operator or the end"

// fewListed is up to how many texts of an IN are compared one by one.
const fewListed = 8

// A parser makes a tree of an expression by recursive descent, a method a level
// of the grammar. What Apache refuses when it compiles is refused here, at the
// token that is wrong.
type parser struct {
	lexer
	tok   token // the next one
	depth int   // of unary, which all recursion passes
	names []string
	slots map[string]int
}

func (p *parser) parse() (root *node, err error) {
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			root, err = nil, b.err
		}
	}()
	if len(p.src) > exprBytesMax {
		p.fail(0, fmt.Sprintf("%d bytes", len(p.src)), fmt.Sprintf("at most %d", exprBytesMax))
	}
	p.slots = map[string]int{}
	p.advance()
	at := p.tok
	root = p.truth(p.or(), at)
	if p.tok.kind != tokEnd {
		p.failWant(wantEnd)
	}
	return root, nil
}

func (p *parser) advance() { p.tok = p.next() }

// accept takes the next token if it is k.
func (p *parser) accept(k tokenKind) bool {
	if p.tok.kind != k {
		return false
	}
	p.advance()
	return true
}

func (p *parser) expect(k tokenKind) {
	if !p.accept(k) {
		p.failWant(string(k))
	}
}

func (p *parser) failWant(want string) { p.fail(p.tok.at, p.describe(p.tok), want) }

// make finishes a node; at is where it began.
func (p *parser) make(at token, n *node) *node {
	for _, kid := range n.kids {
		n.height = max(n.height, kid.height)
	}
	if n.height++; n.height > heightMax {
		p.failDeep(at)
	}
	return n
}

func (p *parser) failDeep(at token) {
	p.fail(at.at, "an expression nested deeper than that", fmt.Sprintf("at most %d levels", heightMax))
}

func (p *parser) or() *node  { return p.join(opOr, "OR", p.and) }
func (p *parser) and() *node { return p.join(opAnd, "AND", p.equality) }

// join is one or many operands of AND or OR.
func (p *parser) join(op op, word tokenKind, operand func() *node) *node {
	at := p.tok
	first := operand()
	if p.tok.kind != word {
		return first
	}
	kids := []*node{p.truth(first, at)}
	for p.accept(word) {
		at := p.tok
		kids = append(kids, p.truth(operand(), at))
	}
	return p.make(at, &node{op: op, kids: kids})
}

// truth makes a truth value of n, which began at at.
func (p *parser) truth(n *node, at token) *node {
	switch {
	case n.isTruth():
		return n
	case n.op == opProperty:
		return p.make(at, &node{op: opCast, kids: []*node{n}})
	}
	p.fail(at.at, p.describe(at), "something that is true or false")
	return nil
}

// isTruth says whether a node gives TRUE, FALSE or NULL.
func (n *node) isTruth() bool {
	switch n.op {
	case opConst:
		return n.value.kind == kindBool || n.value.kind == kindNull
	case opProperty, opNegate:
		return false
	}
	return true
}

func (p *parser) equality() *node {
	at := p.tok
	left := p.comparison()
	for {
		switch p.tok.kind {
		case "=", "<>":
			not := p.tok.kind == "<>"
			p.advance()
			rightAt := p.tok
			right := p.comparison()
			p.checkEqual(left, at, right, rightAt)
			left = p.not(at, not, p.make(at, &node{op: opEqual, kids: []*node{left, right}}))
		case "IS":
			p.advance()
			not := p.accept("NOT")
			p.expect("NULL")
			left = p.not(at, not, p.make(at, &node{op: opEqual, kids: []*node{left, p.make(at, &node{op: opConst})}}))
		default:
			return left
		}
	}
}

// not puts NOT before n.
func (p *parser) not(at token, not bool, n *node) *node {
	if !not {
		return n
	}
	return p.make(at, &node{op: opNot, kids: []*node{n}})
}

// checkEqual refuses what = and <> can't compare.
func (p *parser) checkEqual(left *node, leftAt token, right *node, rightAt token) {
	for _, side := range []struct {
		n  *node
		at token
	}{{left, leftAt}, {right, rightAt}} {
		if side.n.op == opConst && side.n.value.kind == kindNull {
			p.fail(side.at.at, p.describe(side.at), "IS NULL or IS NOT NULL")
		}
	}
	if left.op == opConst && left.value.kind == kindBool && right.op == opConst && right.value.kind != kindBool {
		p.fail(rightAt.at, p.describe(rightAt), "TRUE, FALSE or a property")
	}
}

var comparisons = map[tokenKind]op{"<": opLess, "<=": opLessEqual, ">": opGreater, ">=": opGreaterEqual}

var searches = map[tokenKind]op{"CONTAINS": opContains, "STARTSWITH": opStartsWith, "ENDSWITH": opEndsWith}

func (p *parser) comparison() *node {
	at := p.tok
	left := p.unary()
	for {
		if op, is := comparisons[p.tok.kind]; is {
			p.checkNumber(left, at)
			p.advance()
			left = p.pair(at, op, left, p.numeric())
			continue
		}
		not := p.accept("NOT")
		op, is := searches[p.tok.kind]
		switch {
		case is:
			p.advance()
			left = p.make(at, &node{op: op, not: not, kids: []*node{left}, text: []byte(p.text())})
		case p.tok.kind == "BETWEEN":
			left = p.between(left, at, not)
		case p.tok.kind == "IN":
			left = p.in(left, at, not)
		case not:
			p.failWant("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH behind NOT")
		default:
			return left
		}
	}
}

func (p *parser) pair(at token, op op, left, right *node) *node {
	return p.make(at, &node{op: op, kids: []*node{left, right}})
}

// numeric is an operand that may stand beside < and >.
func (p *parser) numeric() *node {
	at := p.tok
	n := p.unary()
	p.checkNumber(n, at)
	return n
}

// checkNumber refuses what < and > can't compare: texts, truth values.
func (p *parser) checkNumber(n *node, at token) {
	number := n.op == opConst && (n.value.kind == kindInt || n.value.kind == kindLong || n.value.kind == kindDouble)
	if !number && n.op != opProperty && n.op != opNegate {
		p.fail(at.at, p.describe(at), "a number or a property")
	}
}

func (p *parser) between(left *node, at token, not bool) *node {
	p.advance()
	lowAt := p.tok
	low := p.numeric()
	p.expect("AND")
	high := p.numeric()
	p.checkNumber(left, at)
	if low.op == opConst && high.op == opConst && !not {
		if c, ok := compare(&low.value, &high.value); ok && c > 0 {
			p.fail(lowAt.at, p.describe(lowAt), "a lower bound that is not above the upper one")
		}
	}
	if not {
		return p.make(at, &node{op: opOr, kids: []*node{p.pair(at, opLess, left, low), p.pair(at, opGreater, left, high)}})
	}
	return p.make(at, &node{op: opAnd, kids: []*node{p.pair(at, opGreaterEqual, left, low), p.pair(at, opLessEqual, left, high)}})
}

func (p *parser) in(left *node, at token, not bool) *node {
	if left.op != opProperty {
		p.fail(at.at, p.describe(at), "a property before IN")
	}
	p.advance()
	p.expect("(")
	n := &node{op: opIn, not: not, kids: []*node{left}, list: [][]byte{[]byte(p.text())}}
	for p.accept(",") {
		n.list = append(n.list, []byte(p.text()))
	}
	p.expect(")")
	if len(n.list) > fewListed {
		n.set = make(map[string]struct{}, len(n.list))
		for _, s := range n.list {
			n.set[string(s)] = struct{}{}
		}
		n.list = nil
	}
	return p.make(at, n)
}

// text is a string in single quotes.
func (p *parser) text() string {
	if p.tok.kind != tokString {
		p.failWant("a string in single quotes")
	}
	t := p.tok
	p.advance()
	return strings.ReplaceAll(p.src[t.at+1:t.end-1], "''", "'")
}

func (p *parser) unary() *node {
	at := p.tok
	if p.depth++; p.depth > heightMax {
		p.failDeep(at)
	}
	defer func() { p.depth-- }()
	switch {
	case p.accept("+"):
		return p.unary()
	case p.accept("-"):
		return p.make(at, &node{op: opNegate, kids: []*node{p.unary()}})
	case p.accept("NOT"):
		operandAt := p.tok
		return p.make(at, &node{op: opNot, kids: []*node{p.truth(p.unary(), operandAt)}})
	case p.accept("("):
		n := p.or()
		p.expect(")")
		return n
	}
	return p.operand()
}

// operand is a literal or a property.
func (p *parser) operand() *node {
	t := p.tok
	n := &node{op: opConst}
	switch t.kind {
	case tokName:
		name := p.src[t.at:t.end]
		slot, known := p.slots[name]
		if !known {
			slot = len(p.names)
			p.slots[name] = slot
			p.names = append(p.names, name)
		}
		n.op, n.slot = opProperty, slot
	case tokString:
		n.value = value{kind: kindText, s: []byte(p.text())}
		return p.make(t, n)
	case tokInteger:
		n.value = p.integer(t)
	case tokDecimal:
		n.value = p.decimal(t)
	case "TRUE", "FALSE":
		n.value = truthOf(t.kind == "TRUE").value()
	case "NULL":
	default:
		p.failWant("a property, a number, a string, TRUE, FALSE, NULL or (")
	}
	p.advance()
	return p.make(t, n)
}

// integer is a literal of the least kind that holds it.
func (p *parser) integer(t token) value {
	digits := strings.TrimRight(p.src[t.at:t.end], "lL")
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case err != nil:
		p.failWant("an integer of 64 bits")
	case n <= math.MaxInt32:
		return value{kind: kindInt, n: n}
	}
	return value{kind: kindLong, n: n}
}

func (p *parser) decimal(t token) value {
	f, err := strconv.ParseFloat(p.src[t.at:t.end], 64)
	if err != nil || f == 0 && strings.Trim(mantissa(p.src[t.at:t.end]), "0.") != "" {
		p.failWant("a number that a double can hold")
	}
	return value{kind: kindDouble, f: f}
}

// mantissa is a decimal literal without its exponent.
func mantissa(s string) string {
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		return s[:i]
	}
	return s
}
