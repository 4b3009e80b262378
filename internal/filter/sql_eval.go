package filter

import "bytes"

// An op is what a node does.
type op uint8

const (
	opConst op = iota
	opProperty
	opNegate
	opNot
	opCast // a property where a truth value is due
	opAnd
	opOr
	opEqual
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opIn
	opContains
	opStartsWith
	opEndsWith
)

// A truth is what a condition comes to.
type truth uint8

const (
	isFalse truth = iota
	isTrue
	isNull
	isFailed // a text is not the number it is compared with: the message does not match, whatever the rest says
)

func truthOf(b bool) truth {
	if b {
		return isTrue
	}
	return isFalse
}

// negated is NOT.
func (t truth) negated() truth {
	switch t {
	case isFalse:
		return isTrue
	case isTrue:
		return isFalse
	}
	return t
}

// value is a truth as an operand of =.
func (t truth) value() value {
	switch t {
	case isNull:
		return value{}
	case isFailed:
		return value{kind: kindFailed}
	}
	return value{kind: kindBool, n: int64(t)}
}

// A node is a part of a compiled expression. It never changes.
type node struct {
	op     op
	not    bool // IN, CONTAINS …: NOT before it
	height int  // of the tree below, itself counted
	slot   int  // opProperty
	value  value
	text   []byte              // CONTAINS …: what is looked for
	list   [][]byte            // IN, a few
	set    map[string]struct{} // IN, many
	kids   []*node
}

// operand gives the value of a node that is compared.
func (n *node) operand(slots [][]byte) value {
	switch n.op {
	case opConst:
		return n.value
	case opProperty:
		if s := slots[n.slot]; s != nil {
			return value{kind: kindText, s: s}
		}
		return value{}
	case opNegate:
		return n.kids[0].operand(slots).negated()
	}
	return n.eval(slots).value()
}

// eval gives the truth of a node that is one (isTruth). It goes left to right and
// no further than needed, as Java does: what isn't reached can't fail.
func (n *node) eval(slots [][]byte) truth {
	switch n.op {
	case opConst:
		return n.value.truth()
	case opNot:
		return n.kids[0].eval(slots).negated()
	case opCast: // a text is never TRUE
		if slots[n.kids[0].slot] == nil {
			return isNull
		}
		return isFalse
	case opAnd:
		return n.join(slots, isFalse)
	case opOr:
		return n.join(slots, isTrue)
	case opEqual:
		return n.equal(slots)
	case opLess, opLessEqual, opGreater, opGreaterEqual:
		return n.compare(slots)
	case opIn:
		s := slots[n.kids[0].slot]
		if s == nil {
			return isNull
		}
		return truthOf(n.has(s) != n.not)
	case opContains, opStartsWith, opEndsWith:
		return n.search(slots)
	}
	panic("BUG: a node that is not true or false")
}

// join is AND and OR over all kids: ends is the truth that decides.
func (n *node) join(slots [][]byte, ends truth) truth {
	all := isTrue + isFalse - ends
	for _, kid := range n.kids {
		switch t := kid.eval(slots); t {
		case ends, isFailed:
			return t
		case isNull:
			all = isNull
		}
	}
	return all
}

func (n *node) equal(slots [][]byte) truth {
	l := n.kids[0].operand(slots)
	if l.kind == kindFailed {
		return isFailed
	}
	r := n.kids[1].operand(slots)
	switch {
	case r.kind == kindFailed:
		return isFailed
	case l.kind == kindNull && r.kind == kindNull:
		return isTrue
	case l.kind == kindNull:
		return isNull
	case r.kind == kindNull:
		return isFalse
	}
	c, ok := compare(&l, &r)
	if !ok {
		return isFailed
	}
	return truthOf(c == 0)
}

func (n *node) compare(slots [][]byte) truth {
	l := n.kids[0].operand(slots)
	if l.kind == kindFailed || l.kind == kindNull {
		return l.truth()
	}
	r := n.kids[1].operand(slots)
	if r.kind == kindFailed || r.kind == kindNull {
		return r.truth()
	}
	if l.kind == kindText && r.kind == kindText {
		l, r = l.double(), r.double()
		if l.kind == kindFailed || r.kind == kindFailed {
			return isFailed
		}
	}
	c, ok := compare(&l, &r)
	if !ok {
		return isFailed
	}
	switch n.op {
	case opLess:
		return truthOf(c < 0)
	case opLessEqual:
		return truthOf(c <= 0)
	case opGreater:
		return truthOf(c > 0)
	default:
		return truthOf(c >= 0)
	}
}

// has says whether IN's list holds s.
func (n *node) has(s []byte) bool {
	if n.set != nil {
		_, ok := n.set[string(s)]
		return ok
	}
	for _, x := range n.list {
		if bytes.Equal(x, s) {
			return true
		}
	}
	return false
}

// search is the CONTAINS family: FALSE, also after NOT, for an empty search and
// in what is no text.
func (n *node) search(slots [][]byte) truth {
	if len(n.text) == 0 {
		return isFalse
	}
	v := n.kids[0].operand(slots)
	switch {
	case v.kind == kindFailed:
		return isFailed
	case v.kind != kindText:
		return isFalse
	}
	var found bool
	switch n.op {
	case opContains:
		found = bytes.Contains(v.s, n.text)
	case opStartsWith:
		found = bytes.HasPrefix(v.s, n.text)
	case opEndsWith:
		found = bytes.HasSuffix(v.s, n.text)
	}
	return truthOf(found != n.not)
}
