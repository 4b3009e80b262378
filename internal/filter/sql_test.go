package filter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

func mustSQL(t testing.TB, expr string) *SQL {
	t.Helper()
	f, err := ParseSQL(expr)
	if err != nil {
		t.Fatalf("%q: %v", expr, err)
	}
	return f
}

// Where we are not Apache, on purpose: 0.0 is a number there is nothing wrong
// with, 0L too, and text behind an expression must not be without effect.
func TestUnlikeApache(t *testing.T) {
	for _, tt := range []struct {
		expr, props string
		want        bool
	}{
		{"a > 0.0", "a=0.5", true},
		{"a > 0.0", "a=-0.5", false},
		{"a >= 0e5", "a=0", true},
		{"a = 0L AND b = 1", "a=0;b=1", true},
		{"a = 0L AND b = 1", "a=0;b=2", false},
		{"a = 1 -- the end", "a=1", true},
	} {
		if got := mustSQL(t, tt.expr).MatchProperties([]byte(hide(tt.props))); got != tt.want {
			t.Errorf("%q over %q: got %v", tt.expr, tt.props, got)
		}
	}
}

// An error says where and what was expected.
func TestSyntaxErrors(t *testing.T) {
	deep := strings.Repeat("(", heightMax) + "a" + strings.Repeat(")", heightMax)
	for _, tt := range []struct{ expr, want string }{
		{"", "at character 1: got the end of the expression, want a property, a number, a string, TRUE, FALSE, NULL or ("},
		{"a", ""},
		{"a = 1 b = 2", `at character 7: got "b", want an operator or the end`},
		{"a = 007", `at character 6: got "0", want an operator or the end`},
		{"a = 1)", `at character 6: got ")", want an operator or the end`},
		{"(a = 1", "at character 7: got the end of the expression, want )"},
		{"größe = 1", `at character 3: got "ö", want a name, a number, a string in single quotes or an operator`},
		{"a = 'größe' AND ?", `at character 17: got "?", want a name`},
		{"a = 'x", "at character 5: got a string to the end of the expression, want a closing quote"},
		{"a = 1 /* x", "at character 7: got /* to the end of the expression, want */"},
		{"a > 'x'", `at character 5: got "'x'", want a number or a property`},
		{"a between 10 and 0", `at character 11: got "10", want a lower bound that is not above the upper one`},
		{"a = NULL", `at character 5: got "NULL", want IS NULL or IS NOT NULL`},
		{"a IN (1)", `at character 7: got "1", want a string in single quotes`},
		{"a IN 'x'", `at character 6: got "'x'", want (`},
		{"5 IN ('x')", `at character 1: got "5", want a property before IN`},
		{"a NOT LIKE 'x'", `at character 7: got "LIKE", want BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH behind NOT`},
		{"a IS 5", `at character 6: got "5", want NULL`},
		{"a = 1 OR 5", `at character 10: got "5", want something that is true or false`},
		{"TRUE = 1", `at character 8: got "1", want TRUE, FALSE or a property`},
		{"a > 9223372036854775808", `at character 5: got "9223372036854775808", want an integer of 64 bits`},
		{"a > 1e400", `at character 5: got "1e400", want a number that a double can hold`},
		{"a > 1e-400", `at character 5: got "1e-400", want a number that a double can hold`},
		{"a = '" + strings.Repeat("ü", 30) + "' b 'x'", `got "b", want an operator or the end`},
		{"a = 1 '" + strings.Repeat("x", 50) + "'", `got "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"…, want`},
		{"(" + deep + ")", "got an expression nested deeper than that, want at most 250 levels"},
		{strings.Repeat("(", 60_000), "want at most 250 levels"},
		{strings.Repeat("NOT ", 15_000) + "a", "want at most 250 levels"},
		{strings.Repeat("+", 60_000) + "5 = a", "want at most 250 levels"},
		{"a" + strings.Repeat(" = a", 300), "want at most 250 levels"},
		{"a" + strings.Repeat(" IS NULL", 300), "want at most 250 levels"},
		{"a = 1" + strings.Repeat(" ", exprBytesMax), "at character 1: got 65541 bytes, want at most 65536"},
		{"a = 1" + strings.Repeat(" OR a = 1", 5_000), ""}, // long, not deep
	} {
		_, err := ParseSQL(tt.expr)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%.60q: %v", tt.expr, err)
			}
			continue
		}
		if err == nil || !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60q: got %v, want %s", tt.expr, err, tt.want)
		}
	}
}

// Many properties are looked up by name; the last of a name counts.
func TestManyProperties(t *testing.T) {
	var expr, props strings.Builder
	for i := range 100 {
		if i > 0 {
			expr.WriteString(" AND ")
		}
		fmt.Fprintf(&expr, "p%d = %d", i, i)
		fmt.Fprintf(&props, "p%d=x;p%d=%d;q%d=1;", i, i, i, i)
	}
	f := mustSQL(t, expr.String())
	all := []byte(hide(props.String()))
	var tasks sync.WaitGroup
	for range 4 { // a filter may be used by all loops at once
		tasks.Go(func() {
			for range 200 {
				if !f.MatchProperties(all) {
					t.Error("100 equal properties do not match")
				}
				if f.MatchProperties(all[:len(all)/2]) {
					t.Error("what the message before had is still there")
				}
			}
		})
	}
	tasks.Wait()
}

// What a filter is asked a million times a second.
const benchExpr = "a BETWEEN 0 AND 3 AND color IN ('red','blue')"

// benchProps is what a message of a Java client looks like when it is stored.
var benchProps = []byte(hide("KEYS=order-1000234;UNIQ_KEY=7F00000109CA18B4AAC2785E3B1E0000;WAIT=true;TAGS=TagA;a=2;color=blue;region=eu-west;" +
	"MSG_REGION=DefaultRegion;TRACE_ON=true;CLUSTER=DefaultCluster;"))

func TestEvaluationDoesNotAllocate(t *testing.T) {
	for _, expr := range []string{
		benchExpr,
		"a > 1.5 OR b > 2", "a < UNIQ_KEY", "TAGS = TRUE", "NOT (color CONTAINS 'x')", "a > 1 AND TAGS > 5",
		"color IN ('1','2','3','4','5','6','7','8','9','10')",
		"b1 = 1 OR b2 = 2 OR b3 = 3 OR b4 = 4 OR b5 = 5 OR b6 = 6 OR b7 = 7 OR b8 = 8 OR b9 = 9 OR a = 2",
	} {
		f := mustSQL(t, expr)
		if n := testing.AllocsPerRun(200, func() { f.MatchProperties(benchProps) }); n != 0 {
			t.Errorf("%s: %v allocations a message", expr, n)
		}
	}
}

func BenchmarkSQL(b *testing.B) {
	f := mustSQL(b, benchExpr)
	if !f.MatchProperties(benchProps) {
		b.Fatal("does not match")
	}
	b.ReportAllocs()
	for b.Loop() {
		f.MatchProperties(benchProps)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "evaluations/s")
}

// No text makes the parser panic or recurse without bound, and what it makes of
// one can be evaluated over anything.
func FuzzSQL(f *testing.F) {
	g := generator{rand.New(rand.NewPCG(1, 2))}
	for range 50 {
		f.Add(g.expression(), g.properties())
	}
	f.Add(strings.Repeat("(", 1000), "a\x011")
	f.Add("a = 'x", "\x01\x02")
	f.Fuzz(func(t *testing.T, expr, props string) {
		s, err := ParseSQL(expr)
		if err != nil {
			var se *SyntaxError
			if !errors.As(err, &se) || se.At < 0 || se.At > len(expr) || se.Char > se.At+1 || se.Got == "" || se.Want == "" {
				t.Fatalf("%q: %#v", expr, err)
			}
			return
		}
		match := s.MatchProperties([]byte(props))
		again, err := ParseSQL("(" + expr + "\n)") // a comment ends with the line
		if err == nil && again.MatchProperties([]byte(props)) != match {
			t.Fatalf("%q over %q: parentheses change the answer", expr, props)
		}
	})
}
