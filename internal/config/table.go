package config

import (
	"fmt"
	"reflect"
	"sort"
	"time"
)

// Kind is the type of a key's value.
type Kind uint8

// The kinds. A Duration is a whole number in the key's unit.
const (
	String Kind = iota
	Bool
	Int
	Float
	Duration
)

var kindNames = [...]string{"text", "true or false", "whole number", "number", "whole number"}

// String gives the kind in words.
func (k Kind) String() string { return kindNames[k] }

// Class says what a key does in this program.
type Class uint8

const (
	// Acts: the value is used.
	Acts Class = iota
	// NoEffect: accepted, listed, and without meaning here.
	NoEffect
	// Refused: only the harmless values of Allow are accepted. Any other one
	// asks for protection or a behaviour that does not exist here, and starting
	// without it would be a silently different server.
	Refused
)

// Key is one row of a Table.
type Key struct {
	Name    string
	Kind    Kind
	Unit    string // "ms", "s", "h", "bytes", "%", …; a Duration needs one of ms, s, min, h
	Default string // as text, in the unit
	// DefaultDoc says in words how the default is found where it is not a constant.
	DefaultDoc string
	Min, Max   int64    // bounds of Int, Float and Duration in the unit; both 0: none
	Enum       []string // the only values, where not empty
	RunTime    bool     // acts when updated at run time
	Important  bool     // shown by -m
	Locked     bool     // may not be updated over the wire (configBlackList)
	Class      Class
	Allow      []string // Refused: values that are accepted (the empty one always is)
	Why        string   // Refused: why, and what to do instead
	Section    string
	Meaning    string
}

// Given holds what was set explicitly: key to the setting that won, unknown
// keys included. A Config embeds it as a field of this type; Load and Update
// fill it.
type Given map[string]Setting

// Table joins a Config type with its keys.
type Table struct {
	name   string
	typ    reflect.Type
	keys   []Key
	byName map[string]*Key
	fields map[string][]int // key to field index path
	given  []int            // index path of the Given field
}

// New makes a table for the type of config, a struct value. name stands in
// messages ("broker"). It panics when fields and rows do not agree, which is a
// broken program.
func New(name string, config any, keys []Key) *Table {
	t := &Table{name: name, typ: reflect.TypeOf(config), keys: keys,
		byName: map[string]*Key{}, fields: map[string][]int{}}
	t.collect(t.typ, nil)
	for i := range keys {
		k := &keys[i]
		if t.byName[k.Name] != nil {
			panic("BUG: configuration key " + k.Name + " has two rows")
		}
		t.byName[k.Name] = k
		_, bound := t.fields[k.Name]
		if bound != (k.Class == Acts) {
			panic("BUG: configuration key " + k.Name + ": a field must exist exactly for keys that act")
		}
		if k.Kind == Duration && unitOf(k.Unit) == 0 {
			panic("BUG: configuration key " + k.Name + " has no unit of time")
		}
	}
	for name := range t.fields {
		if t.byName[name] == nil {
			panic("BUG: configuration field " + name + " has no row")
		}
	}
	// Defaults obey the same rules as settings.
	probe := reflect.New(t.typ)
	for i := range keys {
		if k := &keys[i]; k.Class == Acts && k.Default != "" {
			if err := t.assign(probe.Elem(), k, k.Default); err != nil {
				panic(fmt.Sprintf("BUG: default of configuration key %s: %v", k.Name, err))
			}
		}
	}
	return t
}

func (t *Table) collect(typ reflect.Type, path []int) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		at := append(append([]int(nil), path...), i)
		switch {
		case f.Type == reflect.TypeFor[Given]():
			t.given = at
		case f.Tag.Get("key") != "":
			t.fields[f.Tag.Get("key")] = at
		case f.Type.Kind() == reflect.Struct:
			t.collect(f.Type, at)
		}
	}
}

// Keys returns the rows in the table's order. They must not be changed.
func (t *Table) Keys() []Key { return t.keys }

// Key finds a row by name, or nil.
func (t *Table) Key(name string) *Key { return t.byName[name] }

// SetDefaults gives every field of config, a pointer to the table's struct,
// its default.
func (t *Table) SetDefaults(config any) {
	v := t.value(config)
	for i := range t.keys {
		k := &t.keys[i]
		if k.Class == Acts && k.Default != "" {
			if err := t.assign(v, k, k.Default); err != nil {
				panic("BUG: " + err.Error()) // New has tried it
			}
		}
	}
}

func (t *Table) value(config any) reflect.Value {
	v := reflect.ValueOf(config)
	if v.Kind() != reflect.Pointer || v.Elem().Type() != t.typ {
		panic(fmt.Sprintf("BUG: configuration table %s used with %T", t.name, config))
	}
	return v.Elem()
}

func (t *Table) givenOf(v reflect.Value) Given {
	if t.given == nil {
		return nil
	}
	g, _ := v.FieldByIndex(t.given).Interface().(Given)
	return g
}

func (t *Table) setGiven(v reflect.Value, g Given) {
	if t.given != nil {
		v.FieldByIndex(t.given).Set(reflect.ValueOf(g))
	}
}

// names returns all key names, sorted.
func (t *Table) names() []string {
	out := make([]string, 0, len(t.keys))
	for i := range t.keys {
		out = append(out, t.keys[i].Name)
	}
	sort.Strings(out)
	return out
}

func unitOf(unit string) time.Duration {
	switch unit {
	case "ms":
		return time.Millisecond
	case "s":
		return time.Second
	case "min":
		return time.Minute
	case "h":
		return time.Hour
	}
	return 0
}
