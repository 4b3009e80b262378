package filter

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A SyntaxError says where and why an expression can't be compiled. It is
// ErrSyntax to errors.Is.
type SyntaxError struct {
	At   int    // byte offset in the expression
	Char int    // the same as people count: the first character is 1
	Got  string // what stands there
	Want string // what may stand there, or the rule that is broken
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("filter: bad expression at character %d: got %s, want %s", e.Char, e.Got, e.Want)
}

// Is makes every SyntaxError an ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }

// A tokenKind is a kind of token: one of these, or the symbol or keyword (in
// capitals) itself.
type tokenKind string

const (
	tokEnd     tokenKind = ""
	tokName    tokenKind = "name"
	tokString  tokenKind = "string"
	tokInteger tokenKind = "integer"
	tokDecimal tokenKind = "decimal"
)

var keywords = []tokenKind{"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}

var symbols = []tokenKind{"<>", "<=", ">=", "<", ">", "=", "(", ")", ",", "+", "-"} // the longer first

// A token is src[at:end].
type token struct {
	kind    tokenKind
	at, end int
}

// A lexer cuts an expression into tokens.
type lexer struct {
	src string
	pos int
}

// next gives the next token. Errors leave as a bailout.
func (l *lexer) next() token {
	l.skip()
	at, rest := l.pos, l.src[l.pos:]
	if rest == "" {
		return token{at: at, end: at}
	}
	c := rest[0]
	switch {
	case isDigit(c), c == '.' && len(rest) > 1 && isDigit(rest[1]):
		return l.number()
	case isNameByte(c):
		n := 1
		for n < len(rest) && (isNameByte(rest[n]) || isDigit(rest[n])) {
			n++
		}
		l.pos += n
		for _, k := range keywords {
			if len(k) == n && strings.EqualFold(string(k), rest[:n]) {
				return token{k, at, l.pos}
			}
		}
		return token{tokName, at, l.pos}
	case c == '\'':
		return l.string()
	}
	for _, s := range symbols {
		if strings.HasPrefix(rest, string(s)) {
			l.pos += len(s)
			return token{s, at, l.pos}
		}
	}
	_, n := utf8.DecodeRuneInString(rest)
	l.fail(at, l.quote(at, at+n), "a name, a number, a string in single quotes or an operator")
	return token{}
}

// skip passes over blanks and comments.
func (l *lexer) skip() {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		switch {
		case strings.IndexByte(" \t\n\r\f", rest[0]) >= 0:
			l.pos++
		case strings.HasPrefix(rest, "--"):
			if n := strings.IndexAny(rest, "\r\n"); n >= 0 {
				l.pos += n
			} else {
				l.pos = len(l.src)
			}
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				l.fail(l.pos, "/* to the end of the expression", "*/ behind the comment")
			}
			l.pos += 2 + n + 2
		default:
			return
		}
	}
}

// number takes digits, and a point, an exponent or the L of a long.
func (l *lexer) number() token {
	t := token{kind: tokInteger, at: l.pos}
	l.digits()
	if l.peek() == '.' {
		t.kind = tokDecimal
		l.pos++
		l.digits()
	}
	if l.peek()|0x20 == 'e' {
		n := l.pos + 1
		if n < len(l.src) && (l.src[n] == '+' || l.src[n] == '-') {
			n++
		}
		if n < len(l.src) && isDigit(l.src[n]) {
			t.kind, l.pos = tokDecimal, n
			l.digits()
		}
	}
	if t.kind == tokInteger && l.src[t.at] == '0' {
		l.pos = t.at + 1 // an integer has no zeros in front: what follows is another token
	}
	if t.kind == tokInteger && l.peek()|0x20 == 'l' {
		l.pos++
	}
	t.end = l.pos
	return t
}

func (l *lexer) digits() {
	for isDigit(l.peek()) {
		l.pos++
	}
}

// peek is the byte at the lexer's place, 0 at the end.
func (l *lexer) peek() byte {
	if l.pos < len(l.src) {
		return l.src[l.pos]
	}
	return 0
}

// string takes a text in single quotes, in which two stand for one.
func (l *lexer) string() token {
	at := l.pos
	for l.pos++; ; l.pos++ {
		switch {
		case l.pos >= len(l.src):
			l.fail(at, "a string to the end of the expression", "a closing quote")
		case l.src[l.pos] != '\'':
		case strings.HasPrefix(l.src[l.pos:], "''"):
			l.pos++
		default:
			l.pos++
			return token{tokString, at, l.pos}
		}
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
}

// describe is a token as an error shows it.
func (l *lexer) describe(t token) string {
	if t.kind == tokEnd {
		return "the end of the expression"
	}
	return l.quote(t.at, t.end)
}

func (l *lexer) quote(at, end int) string {
	const shown = 40
	if end-at > shown {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(l.src[at:at+shown], ""))
	}
	return fmt.Sprintf("%q", l.src[at:end])
}

// A bailout carries an error out of lexer and parser; parse recovers it.
type bailout struct{ err *SyntaxError }

func (l *lexer) fail(at int, got, want string) {
	panic(bailout{&SyntaxError{At: at, Char: utf8.RuneCountInString(l.src[:at]) + 1, Got: got, Want: want}})
}
