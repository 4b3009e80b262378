package config

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/magiconair/properties"
)

// OriginKind says from which kind of source a setting came.
type OriginKind uint8

// The origins, weakest first.
const (
	FromDefault OriginKind = iota
	FromFile
	FromEnv
	FromFlag
	FromWire // an update request (codes 25 and 318)
)

// Origin is the place a setting was written at.
type Origin struct {
	Kind OriginKind
	Name string // file name, environment variable, flag or peer
	Line int    // 1-based line of a file, else 0
}

// String gives the origin as it is shown in messages and by -p.
func (o Origin) String() string {
	switch o.Kind {
	case FromFile:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case FromEnv:
		return "environment " + o.Name
	case FromFlag:
		return "flag " + o.Name
	case FromWire:
		return "update by " + o.Name
	}
	return "default"
}

// Setting is one key given a value somewhere.
type Setting struct {
	Key    string
	Value  string
	Origin Origin
	// Prefix is what stood before Key where it was written (`namesrv.` in a
	// file that serves two rooms); it is shown in messages only.
	Prefix string
}

// Flag makes a setting from a command line flag, e.g. Flag("-n", "namesrvAddr", addrs).
func Flag(flag, key, value string) Setting {
	return Setting{Key: key, Value: value, Origin: Origin{Kind: FromFlag, Name: flag}}
}

// Env makes settings from those of the named environment variables that are
// set and not blank; pairs maps variable to key.
func Env(pairs map[string]string) []Setting {
	var out []Setting
	for name, key := range pairs {
		if v := strings.TrimSpace(os.Getenv(name)); v != "" {
			out = append(out, Setting{Key: key, Value: v, Origin: Origin{Kind: FromEnv, Name: name}})
		}
	}
	return out
}

// ReadFile reads a .properties file. See Parse.
func ReadFile(name string) ([]Setting, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	return Parse(data, Origin{Kind: FromFile, Name: name})
}

// Parse reads the text of a .properties file as java.util.Properties does:
// comments after # and !, `=`, `:` or blanks between key and value, blanks
// around them, lines continued by a backslash, \uXXXX. Nothing is expanded.
// Trailing blanks are cut off every value: Java keeps them, and Apache then
// silently ignores a number written so. Text that is not UTF-8 is read as
// ISO 8859-1. The settings come in the order of the file, repeated keys
// included; the origin's Line counts from 1.
func Parse(data []byte, origin Origin) ([]Setting, error) {
	text := decodeText(data)
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	var out []Setting
	for _, l := range logicalLines(text) {
		origin.Line = l.number
		if l.text[0] == '=' || l.text[0] == ':' {
			// Java takes the empty key. The library gives up on it and leaves a
			// goroutine behind.
			return nil, fmt.Errorf("%s: not a property line: %q: no key before the %q", origin, l.text, l.text[:1])
		}
		// One logical line at a time, because the library keeps no line
		// numbers and a message without one is of little use.
		p, err := loader.LoadBytes([]byte(l.text))
		if err != nil {
			return nil, fmt.Errorf("%s: not a property line: %q: %w", origin, l.text, err)
		}
		for _, key := range p.Keys() {
			v, _ := p.Get(key)
			out = append(out, Setting{Key: key, Value: strings.TrimRight(v, " \t\f\r\n"), Origin: origin})
		}
	}
	return out, nil
}

func decodeText(data []byte) string {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if utf8.Valid(data) {
		return string(data)
	}
	runes := make([]rune, len(data))
	for i, b := range data {
		runes[i] = rune(b)
	}
	return string(runes)
}

// blanks are what Java's Properties takes as white space within a line.
const blanks = " \t\f"

type logicalLine struct {
	number int // first natural line, from 1
	last   int // last natural line
	text   string
}

// logicalLines joins natural lines that end in an odd number of backslashes
// with their successors, less the blanks these begin with, and leaves out
// blank and comment lines. Line ends are \n, \r\n or \r.
func logicalLines(text string) []logicalLine {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	var out []logicalLine
	open := false // the last one goes on
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimLeft(line, blanks)
		if !open {
			if line == "" || line[0] == '#' || line[0] == '!' {
				continue
			}
			out = append(out, logicalLine{number: i + 1})
		}
		open = continued(line)
		if open {
			line = line[:len(line)-1]
		}
		cur := &out[len(out)-1]
		cur.text += line
		cur.last = i + 1
	}
	return slices.DeleteFunc(out, func(l logicalLine) bool { return l.text == "" })
}

func continued(line string) bool {
	n := 0
	for n < len(line) && line[len(line)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// Edit returns the text of a .properties file in which each setting stands
// exactly once: the lines that set it are replaced (the last one) or dropped
// (the others), and what is not there yet is added at the end. Comments and
// all other lines stay as they are: Apache rewrites the file as a dump of
// every key and so loses what its owner wrote.
func Edit(data []byte, settings []Setting) ([]byte, error) {
	text := strings.ReplaceAll(decodeText(data), "\r\n", "\n")
	natural := strings.Split(text, "\n")
	want := map[string]string{}
	for _, s := range settings {
		want[s.Key] = s.Value
	}
	place := map[string]int{} // key: natural line (from 0) that carries the new value
	drop := map[int]bool{}
	for _, l := range logicalLines(text) {
		set, err := Parse([]byte(l.text), Origin{Kind: FromFile, Line: l.number})
		if err != nil {
			return nil, err
		}
		if len(set) != 1 {
			continue
		}
		if _, ok := want[set[0].Key]; !ok {
			continue
		}
		if at, ok := place[set[0].Key]; ok {
			drop[at] = true
		}
		place[set[0].Key] = l.number - 1
		for i := l.number; i < l.last; i++ {
			drop[i] = true
		}
	}
	at := map[int]string{}
	for key, i := range place {
		at[i] = key
	}
	var b strings.Builder
	for i, line := range natural {
		switch key, ok := at[i]; {
		case ok && !drop[i]:
			b.WriteString(escapeKey(key) + "=" + escapeValue(want[key]) + "\n")
		case drop[i]:
		case i == len(natural)-1 && line == "":
		default:
			b.WriteString(line + "\n")
		}
	}
	for _, s := range settings {
		if v, ok := want[s.Key]; ok {
			if _, placed := place[s.Key]; !placed {
				b.WriteString(escapeKey(s.Key) + "=" + escapeValue(v) + "\n")
				delete(want, s.Key)
			}
		}
	}
	return []byte(b.String()), nil
}

func escapeKey(key string) string {
	return strings.NewReplacer(`\`, `\\`, " ", `\ `, "=", `\=`, ":", `\:`, "#", `\#`, "!", `\!`,
		"\n", `\n`, "\r", `\r`, "\t", `\t`, "\f", `\f`).Replace(key)
}

func escapeValue(v string) string {
	v = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\f", `\f`).Replace(v)
	if strings.HasPrefix(v, " ") {
		v = `\` + v
	}
	return v
}
