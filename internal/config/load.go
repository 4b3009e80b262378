package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Warning is something about a setting that its owner should know and that
// does not keep the process from starting.
type Warning struct {
	Setting Setting
	Text    string
}

// String gives the warning in one line.
func (w Warning) String() string { return w.Text }

// ErrRefused is wrapped by every error about a setting.
var ErrRefused = errors.New("configuration refused")

// KeyError says which setting was refused, what it was and what was wanted.
type KeyError struct {
	Setting Setting
	Want    string
}

// Error names the place, the key, what was got and what was wanted.
func (e *KeyError) Error() string {
	return fmt.Sprintf("%s: %s%s: got %q, want %s", e.Setting.Origin, e.Setting.Prefix, e.Setting.Key, e.Setting.Value, e.Want)
}

// Unwrap makes errors.Is(err, ErrRefused) true.
func (e *KeyError) Unwrap() error { return ErrRefused }

// Load sets defaults and then the settings, in order, the last one of a key
// winning, into config, a pointer to the table's struct. The error joins a
// *KeyError for each refused setting; warnings name unknown keys once each,
// and keys that were changed from their default without having an effect.
func (t *Table) Load(config any, settings []Setting) ([]Warning, error) {
	v := t.value(config)
	t.SetDefaults(config)
	given := Given{}
	for _, s := range settings {
		given[s.Key] = s
	}
	t.setGiven(v, given)
	var warnings []Warning
	var errs []error
	seen := map[string]bool{}
	for _, s := range settings {
		if seen[s.Key] {
			continue
		}
		seen[s.Key] = true
		w, err := t.set(v, given[s.Key])
		if w != nil {
			warnings = append(warnings, *w)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return warnings, errors.Join(errs...)
}

// Update sets settings into config at run time, as the update requests do. It
// stops at the first refusal, and then config must be thrown away: work on a
// copy. Its Given map is replaced, not changed. Unknown keys are returned as
// warnings and not kept; keys that act only after a restart are set in the
// Given map alone and warned of.
func (t *Table) Update(config any, settings []Setting) ([]Warning, error) {
	v := t.value(config)
	given := maps.Clone(t.givenOf(v))
	if given == nil {
		given = Given{}
	}
	var warnings []Warning
	for _, s := range settings {
		k := t.byName[s.Key]
		switch {
		case k == nil:
			warnings = append(warnings, t.unknown(s))
			continue
		case k.Locked:
			return nil, &KeyError{Setting: s, Want: "no update of this key over the wire"}
		case k.Class == Acts && !k.RunTime:
			if err := t.check(k, s); err != nil {
				return nil, err
			}
			warnings = append(warnings, Warning{s, fmt.Sprintf("%s acts after a restart", s.Key)})
		default:
			w, err := t.set(v, s)
			if err != nil {
				return nil, err
			}
			if w != nil {
				warnings = append(warnings, *w)
			}
		}
		given[s.Key] = s
	}
	t.setGiven(v, given)
	return warnings, nil
}

// check tells whether the setting could be assigned, without doing it.
func (t *Table) check(k *Key, s Setting) error {
	_, err := t.set(reflect.New(t.typ).Elem(), s)
	return err
}

// set puts one setting into the struct v.
func (t *Table) set(v reflect.Value, s Setting) (*Warning, error) {
	k := t.byName[s.Key]
	if k == nil {
		w := t.unknown(s)
		return &w, nil
	}
	switch k.Class {
	case NoEffect:
		if s.Value == k.Default || s.Value == "" || (k.Default == "" && k.DefaultDoc != "") {
			return nil, nil
		}
		return &Warning{s, fmt.Sprintf("%s: %s%s is accepted and has no effect here", s.Origin, s.Prefix, s.Key)}, nil
	case Refused:
		if s.Value == "" || allowed(k.Allow, s.Value) {
			return nil, nil
		}
		want := "no value: " + k.Why
		if len(k.Allow) > 0 {
			want = strings.Join(k.Allow, " or ") + ": " + k.Why
		}
		return nil, &KeyError{Setting: s, Want: want}
	}
	if err := t.assign(v, k, s.Value); err != nil {
		return nil, &KeyError{Setting: s, Want: err.Error()}
	}
	return nil, nil
}

func allowed(values []string, got string) bool {
	for _, a := range values {
		if strings.EqualFold(a, got) {
			return true
		}
	}
	return false
}

// assign parses text for k into its field of v. The error is what was wanted.
func (t *Table) assign(v reflect.Value, k *Key, text string) error {
	f := v.FieldByIndex(t.fields[k.Name])
	switch k.Kind {
	case String:
		if len(k.Enum) > 0 && !contains(k.Enum, text) {
			return fmt.Errorf("one of %s", strings.Join(k.Enum, ", "))
		}
		f.SetString(text)
	case Bool:
		switch {
		case strings.EqualFold(text, "true"):
			f.SetBool(true)
		case strings.EqualFold(text, "false"):
			f.SetBool(false)
		default:
			return errors.New("true or false")
		}
	case Float:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || k.outside(n) {
			return errors.New(k.wantNumber("a number"))
		}
		f.SetFloat(n)
	case Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || k.outside(float64(n)) || f.OverflowInt(n) {
			return errors.New(k.wantNumber("a whole number"))
		}
		f.SetInt(n)
	case Duration:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || k.outside(float64(n)) || n > math.MaxInt64/int64(unitOf(k.Unit)) {
			return errors.New(k.wantNumber("a whole number"))
		}
		f.Set(reflect.ValueOf(time.Duration(n) * unitOf(k.Unit)))
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (k *Key) bounded() bool { return k.Min != 0 || k.Max != 0 }

func (k *Key) outside(n float64) bool {
	return k.bounded() && (n < float64(k.Min) || (k.Max != 0 && n > float64(k.Max)))
}

func (k *Key) wantNumber(what string) string {
	if k.Unit != "" {
		what += " of " + k.Unit
	}
	if r := k.Bounds(); r != "" {
		what += ", " + r
	}
	return what
}

// Bounds gives the bounds in words, or nothing.
func (k *Key) Bounds() string {
	switch {
	case len(k.Enum) > 0:
		return strings.Join(k.Enum, ", ")
	case !k.bounded():
		return ""
	case k.Max == 0 || k.Max == math.MaxInt64:
		return fmt.Sprintf("at least %d", k.Min)
	}
	return fmt.Sprintf("%d to %d", k.Min, k.Max)
}

func (t *Table) unknown(s Setting) Warning {
	text := fmt.Sprintf("%s: %s%s is not a %s key", s.Origin, s.Prefix, s.Key, t.name)
	if n := t.Nearest(s.Key); n != "" {
		text += ", the nearest one is " + s.Prefix + n
	}
	return Warning{s, text}
}

// Nearest finds the known name that is closest to key by edits, without
// regard to case, or "" when none is close enough to be a likely meaning.
func (t *Table) Nearest(key string) string {
	best, bestDist := "", len(key)/2+1
	for _, name := range t.names() {
		d := distance(strings.ToLower(key), strings.ToLower(name))
		if d < bestDist {
			best, bestDist = name, d
		}
	}
	return best
}

// distance is the number of single-byte edits and neighbour swaps between a and b.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
