package remoting

import "slices"

// Field is one entry of extFields.
type Field struct{ Key, Value []byte }

// SerializeType is how a frame's header is written.
type SerializeType uint8

// The two header serializations.
const (
	SerializeJSON   SerializeType = 0
	SerializeBinary SerializeType = 1 // Java calls it ROCKETMQ
)

func (s SerializeType) String() string {
	switch s {
	case SerializeJSON:
		return "JSON"
	case SerializeBinary:
		return "ROCKETMQ"
	}
	return "unknown"
}

// Language is the program behind a connection. An unknown name reads as
// LanguageOther: Java would read it as null.
type Language uint8

// Languages, by their code in a binary header.
const (
	LanguageJava Language = iota
	LanguageCPP
	LanguageDotNet
	LanguagePython
	LanguageDelphi
	LanguageErlang
	LanguageRuby
	LanguageOther
	LanguageHTTP
	LanguageGo
	LanguagePHP
	LanguageOMS
	LanguageRust
	LanguageNodeJS
)

var languageNames = [...]string{"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER",
	"HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"}

func (l Language) String() string {
	if int(l) < len(languageNames) {
		return languageNames[l]
	}
	return languageNames[LanguageOther]
}

// languageOf finds a language by its name.
func languageOf(name []byte) Language {
	for i, n := range languageNames {
		if string(name) == n {
			return Language(i)
		}
	}
	return LanguageOther
}

// Versions are ordinals of Java's MQVersion.
const (
	// Version is what every answer of ours carries: V5_3_3.
	Version = 479
	// VersionName is Version as tools print it.
	VersionName = "V5_3_3"

	VersionRegisterBody     = 37  // V3_0_11: a registration's body has two parts
	VersionMaxReconsume     = 121 // V3_4_9: maxReconsumeTimes is honoured
	VersionStrictJSONRoutes = 401 // V4_9_4: routes in strict JSON
	VersionV5               = 413 // V5_0_0
)

// Bits of Command.Flag.
const (
	FlagResponse = int32(1)
	FlagOneway   = int32(2)
)

// Command is one request or response. After Decode, Remark, Fields and Body
// alias the frame, or the command's own scratch where a value had to be
// unescaped: they are valid until the next Decode into the same Command and only
// as long as the frame's bytes are. Clone gives an owned copy.
//
// A Command may be reused; it belongs to one goroutine at a time.
type Command struct {
	Code      int32
	Language  Language
	Version   int32
	Opaque    int32
	Flag      int32
	Remark    []byte  // nil when absent
	Fields    []Field // extFields in wire order; of equal keys the last one counts
	Body      []byte
	Serialize SerializeType // as received; Append writes in it

	scratch []byte // unescaped values of the frame decoded last
	shapes  shapes // of headers decoded before
}

// Get returns the value of an ext field: of equal keys the last one. The value
// aliases what the Command aliases.
func (c *Command) Get(key string) ([]byte, bool) {
	for i := len(c.Fields) - 1; i >= 0; i-- {
		if string(c.Fields[i].Key) == key {
			return c.Fields[i].Value, true
		}
	}
	return nil, false
}

// GetString returns the value of an ext field as an owned string, "" when absent.
func (c *Command) GetString(key string) string {
	v, _ := c.Get(key)
	return string(v)
}

// Set replaces or adds an ext field; the value is copied.
func (c *Command) Set(key, value string) {
	for i := len(c.Fields) - 1; i >= 0; i-- {
		if string(c.Fields[i].Key) == key {
			c.Fields[i].Value = []byte(value)
			return
		}
	}
	c.Fields = append(c.Fields, Field{Key: []byte(key), Value: []byte(value)})
}

// IsResponse tells whether this answers a request.
func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }

// IsOneway tells whether the sender wants no answer.
func (c *Command) IsOneway() bool { return c.Flag&FlagOneway != 0 }

// ReplyTo returns what an answer needs to know of this request.
func (c *Command) ReplyTo() ReplyTo {
	return ReplyTo{Opaque: c.Opaque, Serialize: c.Serialize, Oneway: c.IsOneway()}
}

// Reset empties the command and keeps its memory for the next Decode.
func (c *Command) Reset() {
	*c = Command{Fields: c.Fields[:0], scratch: c.scratch[:0], shapes: c.shapes}
}

// Clone returns a copy that owns all its bytes, in two allocations.
func (c *Command) Clone() *Command {
	n := len(c.Remark) + len(c.Body)
	for _, f := range c.Fields {
		n += len(f.Key) + len(f.Value)
	}
	buf := make([]byte, 0, n)
	own := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		at := len(buf)
		buf = append(buf, b...)
		return buf[at:len(buf):len(buf)]
	}
	d := *c
	d.scratch, d.shapes = nil, shapes{}
	d.Remark, d.Body = own(c.Remark), own(c.Body)
	d.Fields = slices.Clone(c.Fields)
	for i, f := range d.Fields {
		d.Fields[i] = Field{Key: own(f.Key), Value: own(f.Value)}
	}
	return &d
}

// NewRequest returns a request in JSON with our language and version; the
// caller's client sets Opaque.
func NewRequest(code int32) *Command {
	return &Command{Code: code, Language: LanguageGo, Version: Version}
}
