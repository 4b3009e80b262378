package config

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type sample struct {
	Name string `key:"name"`
	Nested
	Given Given
}

type Nested struct {
	Port  int           `key:"port"`
	Small int32         `key:"small"`
	On    bool          `key:"on"`
	Share float64       `key:"share"`
	Wait  time.Duration `key:"waitMs"`
	Keep  time.Duration `key:"keepHours"`
	Mode  string        `key:"mode"`
}

var sampleTable = New("sample", sample{}, []Key{
	{Name: "name", Kind: String, DefaultDoc: "host name", Section: "Who"},
	{Name: "port", Kind: Int, Default: "10911", Min: 1, Max: 65535, Section: "Who", Important: true, Meaning: "port | socket"},
	{Name: "small", Kind: Int, Default: "1", Section: "Who"},
	{Name: "on", Kind: Bool, Default: "true", RunTime: true, Section: "How"},
	{Name: "share", Kind: Float, Default: "0.5", Section: "How"},
	{Name: "waitMs", Kind: Duration, Unit: "ms", Default: "500", Min: 1, Max: 1000, RunTime: true, Section: "How"},
	{Name: "keepHours", Kind: Duration, Unit: "h", Default: "72", Section: "How"},
	{Name: "mode", Kind: String, Default: "a", Enum: []string{"a", "b"}, Section: "How"},
	{Name: "aclEnable", Kind: Bool, Default: "false", Class: Refused, Allow: []string{"false"}, Why: "there is none", Section: "Not"},
	{Name: "extraPath", Kind: String, Class: Refused, Why: "one path only", Section: "Not"},
	{Name: "threads", Kind: Int, Default: "8", Class: NoEffect, Section: "Not", Meaning: "no threads"},
	{Name: "home", Kind: String, DefaultDoc: "HOME", Class: NoEffect, Locked: true, Section: "Not"},
})

func file(text string) []Setting {
	s, err := Parse([]byte(text), Origin{Kind: FromFile, Name: "x.conf"})
	if err != nil {
		panic(err)
	}
	return s
}

func TestLoad(t *testing.T) {
	var c sample
	warnings, err := sampleTable.Load(&c, append(file("port=1\non = FALSE\nwaitMs= 1000\nkeepHours=48 \nmode=b\nport=10921\nshare=1\nsmall=-7"),
		Flag("-n", "name", "b")))
	if err != nil || len(warnings) != 0 {
		t.Fatalf("got %v, %v, want neither", warnings, err)
	}
	want := sample{Name: "b", Nested: Nested{Port: 10921, Small: -7, Share: 1, Wait: time.Second, Keep: 48 * time.Hour, Mode: "b"}}
	got := c
	got.Given = nil
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("config (-want +got):\n%s", d)
	}
	if o := c.Given["port"].Origin.String(); o != "x.conf:6" {
		t.Errorf("origin of port: got %s, want x.conf:6", o)
	}
}

func TestLoadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"port=x":            `x.conf:1: port: got "x", want a whole number, 1 to 65535`,
		"\nport=0":          `x.conf:2: port: got "0", want a whole number, 1 to 65535`,
		"port=":             `x.conf:1: port: got "", want a whole number, 1 to 65535`,
		"waitMs=1001":       `x.conf:1: waitMs: got "1001", want a whole number of ms, 1 to 1000`,
		"waitMs=1s":         `x.conf:1: waitMs: got "1s", want a whole number of ms, 1 to 1000`,
		"small=3000000000":  `x.conf:1: small: got "3000000000", want a whole number`,
		"keepHours=9999999": `x.conf:1: keepHours: got "9999999", want a whole number of h`,
		"on=yes":            `x.conf:1: on: got "yes", want true or false`,
		"share=NaN":         `x.conf:1: share: got "NaN", want a number`,
		"mode=B":            `x.conf:1: mode: got "B", want one of a, b`,
		"aclEnable = TRUE":  `x.conf:1: aclEnable: got "TRUE", want false: there is none`,
		"extraPath=/a":      `x.conf:1: extraPath: got "/a", want no value: one path only`,
	} {
		var c sample
		_, err := sampleTable.Load(&c, file(text))
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%q: the error does not wrap ErrRefused", text)
		}
	}
	var c sample
	_, err := sampleTable.Load(&c, file("port=x\nmode=c\naclEnable=false\nextraPath="))
	if n := len(strings.Split(err.Error(), "\n")); n != 2 {
		t.Errorf("two refusals: got %d lines: %v", n, err)
	}
}

func TestWarnings(t *testing.T) {
	var c sample
	warnings, err := sampleTable.Load(&c, file("prot=1\nprot=2\nthreads=9\nhome=/opt\nzzzzzzzzzz=1\nkeephours=3"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	want := []string{
		"x.conf:2: prot is not a sample key, the nearest one is port",
		"x.conf:3: threads is accepted and has no effect here",
		"x.conf:5: zzzzzzzzzz is not a sample key",
		"x.conf:6: keephours is not a sample key, the nearest one is keepHours",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
}

func TestUpdate(t *testing.T) {
	var c sample
	if _, err := sampleTable.Load(&c, file("port=5")); err != nil {
		t.Fatal(err)
	}
	next := c
	warnings, err := sampleTable.Update(&next, file("on=false\nport=6\nnone=1"))
	if err != nil {
		t.Fatal(err)
	}
	if next.On || next.Port != 5 || next.Given["port"].Value != "6" || c.Given["port"].Value != "5" || !c.On {
		t.Errorf("got on=%v port=%d given %v; before %v, want on=false at once, port 6 given only", next.On, next.Port, next.Given, c.Given)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0].Text, "after a restart") {
		t.Errorf("warnings: got %v, want one on port and one on none", warnings)
	}
	for _, text := range []string{"home=/x", "waitMs=0", "port=0", "aclEnable=true"} {
		broken := c
		if _, err := sampleTable.Update(&broken, file(text)); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: got %v, want a refusal", text, err)
		}
	}
}

func TestPrint(t *testing.T) {
	var c sample
	if _, err := sampleTable.Load(&c, file("waitMs=7\nunknown=1\nthreads=3")); err != nil {
		t.Fatal(err)
	}
	c.Name = "host-1"
	var out bytes.Buffer
	if err := sampleTable.Print(&out, &c, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"default: host name", "= 7", "ms", "x.conf:1", "(only false)", "(only empty)", "(no effect here)", "unknown  = 1  x.conf:2", "= 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
	out.Reset()
	if err := sampleTable.Print(&out, &c, true); err != nil || strings.Count(out.String(), "=") != 1 {
		t.Errorf("important keys: got %v\n%s\nwant port alone", err, &out)
	}
	lines := strings.Join(sampleTable.Lines(&c), "\n")
	want := "aclEnable=false\nextraPath=\nhome=\nkeepHours=72\nmode=a\nname=host-1\non=true\nport=10911\nshare=0.5\nsmall=1\nthreads=3\nunknown=1\nwaitMs=7"
	if d := cmp.Diff(want, lines); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}

// A row without its field, or a default out of bounds, is a broken program and
// must be found when it starts.
func TestNewPanics(t *testing.T) {
	for name, keys := range map[string][]Key{
		"no row":      {},
		"no field":    {{Name: "a", Default: "x"}, {Name: "b"}},
		"twice":       {{Name: "a"}, {Name: "a"}},
		"no unit":     {{Name: "a", Kind: Duration}},
		"bad default": {{Name: "a", Enum: []string{"x"}, Default: "y"}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			New("t", struct {
				A string `key:"a"`
			}{}, keys)
		}()
	}
}
