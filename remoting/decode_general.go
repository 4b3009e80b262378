package remoting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// decodeJSONGeneral reads any JSON header that encoding/json accepts. Keys are
// compared exactly; of equal keys the last one counts; unknown keys are skipped.
// fastjson's leniency that peers may rely on is kept: integers in strings, ext
// values that are numbers or booleans (taken as their text) or null (no field).
func decodeJSONGeneral(header []byte, c *Command) error {
	body := c.Body
	c.Reset()
	c.Body = body
	if !json.Valid(header) {
		return fmt.Errorf("%w: not JSON: %.80q", ErrHeader, header)
	}
	d := json.NewDecoder(bytes.NewReader(header))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%w: got %.80q, want a JSON object", ErrHeader, header)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrHeader, err)
		}
		key, _ := t.(string)
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return fmt.Errorf("%w: %w", ErrHeader, err)
		}
		if err := c.setGeneral(key, raw); err != nil {
			return err
		}
	}
	return nil
}

// setGeneral takes one member of a header.
func (c *Command) setGeneral(key string, raw json.RawMessage) (err error) {
	switch key {
	case "code":
		c.Code, err = generalInt(key, raw)
	case "version":
		c.Version, err = generalInt(key, raw)
	case "opaque":
		c.Opaque, err = generalInt(key, raw)
	case "flag":
		c.Flag, err = generalInt(key, raw)
	case "language":
		s, ok := generalText(raw)
		if c.Language = languageOf([]byte(s)); !ok {
			c.Language = LanguageOther
		}
	case "remark":
		s, ok := generalText(raw)
		if c.Remark = nil; ok {
			c.Remark = []byte(s)
		}
	case "extFields":
		return c.setFieldsGeneral(raw)
	}
	return err
}

// generalInt reads an int32 that may stand in a string; null is 0.
func generalInt(key string, raw json.RawMessage) (int32, error) {
	if string(raw) == "null" {
		return 0, nil
	}
	if s, ok := generalText(raw); ok {
		if n, err := strconv.ParseInt(s, 10, 32); err == nil {
			return int32(n), nil
		}
	}
	return 0, fmt.Errorf("%w: %s: got %.40s, want an int32", ErrHeader, key, raw)
}

// generalText reads a string, or the text of a number or boolean; ok is false
// for null, objects and arrays.
func generalText(raw json.RawMessage) (s string, ok bool) {
	switch raw[0] {
	case '"':
		return s, json.Unmarshal(raw, &s) == nil
	case '{', '[', 'n':
		return "", false
	}
	return string(raw), true
}

func (c *Command) setFieldsGeneral(raw json.RawMessage) error {
	c.Fields = c.Fields[:0]
	if string(raw) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%w: extFields: got %.40s, want an object", ErrHeader, raw)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("%w: extFields: %w", ErrHeader, err)
		}
		key, _ := t.(string)
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return fmt.Errorf("%w: extFields: %w", ErrHeader, err)
		}
		if string(v) == "null" {
			continue
		}
		s, ok := generalText(v)
		if !ok {
			return fmt.Errorf("%w: extFields: %.40q: got %.40s, want a string", ErrHeader, key, v)
		}
		c.Fields = append(c.Fields, Field{Key: []byte(key), Value: []byte(s)})
	}
	return nil
}
