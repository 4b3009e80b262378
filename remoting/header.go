package remoting

import "fmt"

// FieldError says which field of a request's header is missing or unreadable. It
// is answered with SYSTEM_ERROR and this text.
type FieldError struct {
	Field string
	Got   string // "" when the field is missing
	Want  string // "a string", "an int32", ...
}

func (e *FieldError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("header field %s: missing, want %s", e.Field, e.Want)
	}
	return fmt.Sprintf("header field %s: got %.60q, want %s", e.Field, e.Got, e.Want)
}

// shown is a value for FieldError.Got: an empty value differs from a missing one.
func shown(v []byte) string {
	if v != nil && len(v) == 0 {
		return `""`
	}
	return string(v)
}

// reader reads the fields of one request by name and keeps the first error. It is
// for headers off the hot path: each get scans the fields.
type reader struct {
	c   *Command
	err error
}

func (r *reader) fail(key string, got []byte, want string) {
	if r.err == nil {
		r.err = &FieldError{Field: key, Got: shown(got), Want: want}
	}
}

// need returns a required text.
func (r *reader) need(key string) string {
	v, ok := r.c.Get(key)
	if !ok {
		r.fail(key, nil, "a string")
	}
	return string(v)
}

// opt returns an optional text, "" when absent.
func (r *reader) opt(key string) string { return r.c.GetString(key) }

func (r *reader) parse32(key string, v []byte) int32 {
	n, err := ParseInt32(v)
	if err != nil {
		r.fail(key, v, "an int32")
	}
	return n
}

func (r *reader) parse64(key string, v []byte) int64 {
	n, err := ParseInt64(v)
	if err != nil {
		r.fail(key, v, "an int64")
	}
	return n
}

func (r *reader) needInt32(key string) int32 {
	v, ok := r.c.Get(key)
	if !ok {
		r.fail(key, nil, "an int32")
		return 0
	}
	return r.parse32(key, v)
}

func (r *reader) needInt64(key string) int64 {
	v, ok := r.c.Get(key)
	if !ok {
		r.fail(key, nil, "an int64")
		return 0
	}
	return r.parse64(key, v)
}

func (r *reader) optInt32(key string, absent int32) int32 {
	v, ok := r.c.Get(key)
	if !ok || len(v) == 0 {
		return absent
	}
	return r.parse32(key, v)
}

func (r *reader) optInt64(key string, absent int64) int64 {
	v, ok := r.c.Get(key)
	if !ok || len(v) == 0 {
		return absent
	}
	return r.parse64(key, v)
}

func (r *reader) optBool(key string, absent bool) bool {
	v, ok := r.c.Get(key)
	if !ok {
		return absent
	}
	return ParseBool(v)
}

// A required field of a header that is decoded in one pass: its index in the
// header's table is its bit in the set of fields seen.
type required struct{ name, want string }

// missing names the first of the fields whose bit is not in seen, as a
// *FieldError; nil when all are.
func missing(seen int, fields []required) error {
	for i, f := range fields {
		if seen&(1<<i) == 0 {
			return &FieldError{Field: f.name, Want: f.want}
		}
	}
	return nil
}

// builder collects the fields of a request to be sent. Empty texts are left out,
// as Java leaves out nulls.
type builder struct{ fields []Field }

func (b *builder) text(key, v string) {
	if v != "" {
		b.fields = append(b.fields, Field{Key: []byte(key), Value: []byte(v)})
	}
}

func (b *builder) int(key string, v int64) {
	b.fields = append(b.fields, Field{Key: []byte(key), Value: AppendInt(nil, v)})
}

func (b *builder) bool(key string, v bool) {
	if v {
		b.text(key, "true")
	} else {
		b.text(key, "false")
	}
}

func (b *builder) command(code int32) *Command {
	c := NewRequest(code)
	c.Fields = b.fields
	return c
}
