package config

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Value gives the text of a key's present value in config, a pointer to the
// table's struct: for keys that act that of the field (a default that was
// found at start included), for others what was given, else the default.
func (t *Table) Value(config any, name string) (string, bool) {
	v := t.value(config)
	k := t.byName[name]
	if k == nil || k.Class != Acts {
		if s, ok := t.givenOf(v)[name]; ok {
			return s.Value, true
		}
		if k == nil {
			return "", false
		}
		return k.Default, true
	}
	f := v.FieldByIndex(t.fields[name])
	switch k.Kind {
	case Bool:
		return strconv.FormatBool(f.Bool()), true
	case Int:
		return strconv.FormatInt(f.Int(), 10), true
	case Float:
		return strconv.FormatFloat(f.Float(), 'g', -1, 64), true
	case Duration:
		return strconv.FormatInt(int64(f.Interface().(time.Duration)/unitOf(k.Unit)), 10), true
	}
	return f.String(), true
}

// Lines gives `key=value` of every key of the table and of every unknown key
// that was given, sorted: the body of the requests that read a configuration.
func (t *Table) Lines(config any) []string {
	v := t.value(config)
	out := make([]string, 0, len(t.keys))
	for i := range t.keys {
		text, _ := t.Value(config, t.keys[i].Name)
		out = append(out, t.keys[i].Name+"="+text)
	}
	for name, s := range t.givenOf(v) {
		if t.byName[name] == nil {
			out = append(out, name+"="+s.Value)
		}
	}
	sort.Strings(out)
	return out
}

// origin says where a key's present value comes from.
func (t *Table) origin(v reflect.Value, config any, k *Key) string {
	if s, ok := t.givenOf(v)[k.Name]; ok {
		return s.Origin.String()
	}
	if text, _ := t.Value(config, k.Name); k.Class == Acts && text != k.Default {
		if k.DefaultDoc != "" {
			return "default: " + k.DefaultDoc
		}
		return "set by this command"
	}
	return "default"
}

// Print writes key, value, unit, origin and, where it is not a key that acts,
// a note: one line a key, in the table's order. important limits it to the
// keys marked so.
func (t *Table) Print(w io.Writer, config any, important bool) error {
	v := t.value(config)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	section := ""
	for i := range t.keys {
		k := &t.keys[i]
		if important && !k.Important {
			continue
		}
		if k.Section != section {
			section = k.Section
			fmt.Fprintf(tw, "# %s\n", section)
		}
		text, _ := t.Value(config, k.Name)
		unit := k.Unit
		if unit == "" {
			unit = "-"
		}
		fmt.Fprintf(tw, "%s\t= %s\t%s\t%s%s\n", k.Name, text, unit, t.origin(v, config, k), k.note())
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return t.printUnknown(w, v, important)
}

func (t *Table) printUnknown(w io.Writer, v reflect.Value, important bool) error {
	var names []string
	for name := range t.givenOf(v) {
		if t.byName[name] == nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 || important {
		return nil
	}
	sort.Strings(names)
	if _, err := fmt.Fprintln(w, "# unknown"); err != nil {
		return err
	}
	for _, name := range names {
		s := t.givenOf(v)[name]
		if _, err := fmt.Fprintf(w, "%s  = %s  %s\n", name, s.Value, s.Origin); err != nil {
			return err
		}
	}
	return nil
}

// Markdown writes the table's documentation: the keys that act and those that
// are refused by section, then the names that have no effect.
func (t *Table) Markdown(w io.Writer) error {
	b := bufio.NewWriter(w)
	section, open := "", false
	for i := range t.keys {
		k := &t.keys[i]
		if k.Section != section {
			section, open = k.Section, false
		}
		if k.Class == NoEffect {
			continue
		}
		if !open {
			open = true
			fmt.Fprintf(b, "\n### %s\n\n| key | default | unit | bounds | run time | meaning |\n|---|---|---|---|---|---|\n", section)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, k.defaultDoc(), k.Unit, cell(k.Bounds()), yes(k.RunTime), cell(k.meaning()))
	}
	fmt.Fprintf(b, "\n### Accepted without effect\n\nNames that Apache's %s knows and that have no meaning here; a line is logged when one is changed from its default.\n\n| key | Apache's default | unit | why |\n|---|---|---|---|\n", t.name)
	for i := range t.keys {
		if k := &t.keys[i]; k.Class == NoEffect {
			fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", k.Name, k.defaultDoc(), k.Unit, cell(k.Meaning))
		}
	}
	return b.Flush()
}

// note marks keys that do not act.
func (k *Key) note() string {
	switch {
	case k.Class == NoEffect:
		return " (no effect here)"
	case k.Class == Refused && len(k.Allow) > 0:
		return " (only " + strings.Join(k.Allow, " or ") + ")"
	case k.Class == Refused:
		return " (only empty)"
	}
	return ""
}

func (k *Key) meaning() string {
	if k.Class != Refused {
		return k.Meaning
	}
	only := "Must be empty: "
	if len(k.Allow) > 0 {
		only = "Only " + strings.Join(k.Allow, " or ") + " is accepted: "
	}
	if k.Meaning == "" {
		return only + k.Why
	}
	return k.Meaning + ". " + only + k.Why
}

func (k *Key) defaultDoc() string {
	if k.DefaultDoc != "" {
		return cell(k.DefaultDoc)
	}
	if k.Default == "" {
		return "-"
	}
	return "`" + k.Default + "`"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func cell(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "|", "\\|"), "\n", " ")
}
