package filter

import (
	"bufio"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "ask Apache's filter for the answers in testdata/apache.txt")

// oracleVariable holds the class path with interop.FilterOracle, Apache's own
// filter behind two pipes; interop's TestFilter sets it.
const oracleVariable = "RINGMQ_FILTER_ORACLE"

// TestRecordedFromApache compares with what Apache's filter answered; where it can
// be asked, it must still answer so.
func TestRecordedFromApache(t *testing.T) {
	const file = "testdata/apache.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var ask func(expr, props string) string
	if os.Getenv(oracleVariable) != "" {
		ask = startOracle(t)
	} else if *rewrite {
		t.Fatalf("-rewrite asks Apache's filter: %s is not set", oracleVariable)
	}
	var out strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if line == "" || line[0] == '#' {
			fmt.Fprintln(&out, line)
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) < 2 {
			t.Fatalf("%s:%d: want expression, properties and answer with tabs between", file, i+1)
		}
		expr, err := strconv.Unquote(fields[0])
		if err != nil {
			t.Fatalf("%s:%d: %v", file, i+1, err)
		}
		props, err := strconv.Unquote(fields[1])
		if err != nil {
			t.Fatalf("%s:%d: %v", file, i+1, err)
		}
		props = hide(props)
		if *rewrite {
			fields = append(fields[:2], ask(expr, props))
			fmt.Fprintln(&out, strings.Join(fields, "\t"))
		} else if ask != nil && ask(expr, props) != fields[2] {
			t.Errorf("%s:%d: Apache answers %s", file, i+1, ask(expr, props))
		}
		if d := differs(expr, props, fields[2]); d != "" {
			t.Errorf("%s:%d: %s", file, i+1, d)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAgainstApache compares random expressions over random properties.
func TestAgainstApache(t *testing.T) {
	if os.Getenv(oracleVariable) == "" {
		t.Skip("needs Apache's filter: interop's TestFilter runs it")
	}
	ask := startOracle(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	const pairs = 20_000
	answers := map[string]int{}
	for range pairs {
		expr, props := g.expression(), g.properties()
		answer := ask(expr, props)
		answers[answer]++
		if d := differs(expr, props, answer); d != "" {
			t.Error(d)
		}
	}
	t.Logf("of %d: %v", pairs, answers)
	for _, a := range []string{"error", "true", "false", "null", "thrown"} {
		if answers[a] < pairs/200 {
			t.Errorf("only %d of %d answers are %s: the generator shows too little", answers[a], pairs, a)
		}
	}
}

// differs compares our answer with Apache's. Text behind a whole expression is
// the one deliberate difference: Apache ignores it.
func differs(expr, props, apache string) string {
	f, err := ParseSQL(expr)
	var se *SyntaxError
	if errors.As(err, &se) && se.Want == wantEnd && apache != "error" {
		f, err = ParseSQL(expr[:se.At])
	}
	got := "error"
	if err == nil {
		got = fmt.Sprint(f.MatchProperties([]byte(props)))
	}
	want := apache
	if want == "null" || want == "thrown" {
		want = "false"
	}
	if got == want {
		return ""
	}
	return fmt.Sprintf("%q over %q: got %s (%v), Apache says %s", expr, props, got, err, apache)
}

// startOracle runs Apache's filter until the test ends.
func startOracle(t *testing.T) (ask func(expr, props string) string) {
	t.Helper()
	cmd := exec.Command("java", "-Xmx128m", "-Xss512k", "-XX:+UseSerialGC", "-cp", os.Getenv(oracleVariable), "interop.FilterOracle")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewReader(out)
	return func(expr, props string) string {
		t.Helper()
		enc := base64.StdEncoding.EncodeToString
		if _, err := io.WriteString(in, enc([]byte(expr))+" "+enc([]byte(props))+"\n"); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(line, "\n")
	}
}

// hide puts the separators of a property string in place of = and ;.
func hide(s string) string { return strings.NewReplacer("=", "\x01", ";", "\x02").Replace(s) }

// A generator makes expressions, most of them whole, and properties that they
// may be about.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) name() string {
	return g.pick("a", "b", "c", "a", "b", "Missing", "TAGS", "$x_1", "A")
}

func (g generator) text() string {
	return "'" + g.pick("red", "blue", "", "it''s", "1", "x y", "größe", "true", "''", "-5") + "'"
}

func (g generator) number() string {
	return g.pick("0", "1", "3", "5", "10", "42", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
		"7L", "12l", "1.5", ".5", "5.", "1e3", "2.5E-3", "1e400", "3.0", "1.0", "42.0")
}

func (g generator) operand(depth int) string {
	switch g.IntN(12) {
	case 0, 1, 2, 3, 4:
		return g.name()
	case 5, 6, 7:
		return g.number()
	case 8:
		return g.text()
	case 9:
		return g.pick(" -", "+", " - ", "NOT ") + g.operand(depth+1) // not --, a comment
	case 10:
		return g.pick("TRUE", "false", "NULL", "True")
	}
	if depth > 4 {
		return g.name()
	}
	return "(" + g.condition(depth+1) + ")"
}

// numeric is mostly what may stand beside < and >.
func (g generator) numeric(depth int) string {
	switch g.IntN(8) {
	case 0:
		return g.operand(depth)
	case 1, 2, 3:
		return g.name()
	}
	return g.pick("", "", "", " -") + g.number()
}

func (g generator) condition(depth int) string {
	if depth < 4 && g.IntN(3) == 0 {
		return g.condition(depth+1) + g.pick(" AND ", " or ", "\tOR\n", " And ") + g.condition(depth+1)
	}
	not := g.pick("", "", "NOT ", "not ")
	switch g.IntN(16) {
	case 0, 1, 2:
		return g.operand(depth) + g.pick("=", " = ", "<>", " <> ") + g.operand(depth)
	case 3, 4, 5:
		return g.numeric(depth) + g.pick("<", ">", " <= ", ">=", " > ") + g.numeric(depth)
	case 6, 7:
		return g.name() + " " + not + "BETWEEN " + g.numeric(depth) + " AND " + g.numeric(depth)
	case 8, 9:
		list := g.text()
		for range g.IntN(12) {
			list += g.pick(",", " , ") + g.text()
		}
		return g.pick(g.name(), g.name(), g.operand(depth)) + " " + not + "IN (" + list + ")"
	case 10:
		return g.operand(depth) + " IS " + not + "NULL"
	case 11, 12:
		return g.operand(depth) + " " + not + g.pick("CONTAINS ", "startswith ", "EndsWith ") + g.text()
	case 13:
		return "NOT (" + g.condition(depth+1) + ")"
	case 14:
		return g.operand(depth) + " " + g.pick("/* ** / */", "-- to here\n", "") + " = " + g.operand(depth)
	}
	return g.operand(depth)
}

// expression is a condition, at times with something taken out or put in.
func (g generator) expression() string {
	e := g.condition(0)
	switch at := g.IntN(len(e) + 1); g.IntN(12) {
	case 0:
		return e[:at]
	case 1:
		return e[:at] + g.pick("(", ")", " AND ", "!", ";", "\"", "ü", "\x00", " 5 ", " IS ") + e[at:]
	}
	return e
}

func (g generator) properties() string {
	var s strings.Builder
	for range g.IntN(6) {
		value := g.pick("red", "blue", "it's", "1", "3", "5", "42", "-5", "+7", " 3", "3 ", "1.5", "1e3", "0x1p3", "0x10", "NaN", "Infinity", "-Infinity",
			"-0", "-0.0", "0.0", "2147483648", "9223372036854775808", "-9223372036854775808", "true", "TRUE", "false", "x y", "größe", "5f", "5d", "5L",
			".", "e", "1e", "--1", "1_000", "inf", "''", "1.5.2", "", "4.9E-324", "1e999", "0xp1", "0x.8p1f")
		fmt.Fprintf(&s, "%s%s%s%s", g.name(), g.pick("\x01", "\x01", "\x01", "\x01\x01", ""), value, g.pick("\x02", "\x02", "\x02", "\x02\x02"))
	}
	return strings.TrimSuffix(s.String(), g.pick("\x02", "-"))
}
