package remoting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/klauspost/compress/zlib"
)

// Bits of a topic's perm.
const (
	PermInherit  = int32(1) // a template for topics created by a send
	PermWrite    = int32(2)
	PermRead     = int32(4)
	PermPriority = int32(8)
)

// Topic filter types.
const (
	FilterSingleTag = "SINGLE_TAG"
	FilterMultiTag  = "MULTI_TAG"
)

// TopicConfig is what a broker keeps of a topic: the body of 351 and an entry of
// topics.json and of registrations.
type TopicConfig struct {
	Attributes      map[string]string `json:"attributes"`
	Order           bool              `json:"order"`
	Perm            int32             `json:"perm"`
	ReadQueueNums   int32             `json:"readQueueNums"`
	TopicFilterType string            `json:"topicFilterType"`
	TopicName       string            `json:"topicName"`
	TopicSysFlag    int32             `json:"topicSysFlag"`
	WriteQueueNums  int32             `json:"writeQueueNums"`
}

// NewTopicConfig returns a topic's configuration with RocketMQ's defaults.
func NewTopicConfig(topic string) TopicConfig {
	return TopicConfig{
		Attributes:      map[string]string{},
		Perm:            PermRead | PermWrite,
		ReadQueueNums:   16,
		WriteQueueNums:  16,
		TopicFilterType: FilterSingleTag,
		TopicName:       topic,
	}
}

// TopicConfigList is the body of 18. The attributes' keys carry a sign, + or -.
type TopicConfigList struct {
	TopicConfigList []json.RawMessage `json:"topicConfigList"` // read each into NewTopicConfig
}

// TopicConfigTable is every topic of a broker: the body of 21's answer (Java's
// TopicConfigAndMappingSerializeWrapper). The mapping parts belong to static
// topics and are carried as they come.
type TopicConfigTable struct {
	DataVersion                DataVersion                `json:"dataVersion"`
	MappingDataVersion         DataVersion                `json:"mappingDataVersion"`
	TopicConfigTable           map[string]TopicConfig     `json:"topicConfigTable"`
	TopicQueueMappingDetailMap map[string]json.RawMessage `json:"topicQueueMappingDetailMap"`
	TopicQueueMappingInfoMap   map[string]json.RawMessage `json:"topicQueueMappingInfoMap"`
}

// filled replaces nil maps by empty ones: Java omits nulls, we write {}.
func (t TopicConfigTable) filled() TopicConfigTable {
	if t.TopicConfigTable == nil {
		t.TopicConfigTable = map[string]TopicConfig{}
	}
	if t.TopicQueueMappingDetailMap == nil {
		t.TopicQueueMappingDetailMap = map[string]json.RawMessage{}
	}
	if t.TopicQueueMappingInfoMap == nil {
		t.TopicQueueMappingInfoMap = map[string]json.RawMessage{}
	}
	return t
}

// Marshal writes the body of 21's answer.
func (t TopicConfigTable) Marshal() []byte { return MarshalBody(t.filled()) }

// RegisterBrokerBody is the body of REGISTER_BROKER (103).
type RegisterBrokerBody struct {
	FilterServerList            []string         `json:"filterServerList"`
	TopicConfigSerializeWrapper TopicConfigTable `json:"topicConfigSerializeWrapper"`
}

// BodyCRC32 is the checksum of a registration's body as sent, for bodyCrc32.
func BodyCRC32(body []byte) int32 { return int32(crc32.ChecksumIEEE(body) & 0x7FFFFFFF) }

// Marshal writes the plain body.
func (b RegisterBrokerBody) Marshal() []byte {
	b.TopicConfigSerializeWrapper = b.TopicConfigSerializeWrapper.filled()
	if b.FilterServerList == nil {
		b.FilterServerList = []string{}
	}
	return MarshalBody(b)
}

// MarshalCompressed writes the compressed body: a zlib stream of counted texts,
// topics in the order of their names. It loses order and topicSysFlag, as Java's
// form does.
func (b RegisterBrokerBody) MarshalCompressed() []byte {
	w := b.TopicConfigSerializeWrapper
	var raw []byte
	counted := func(s []byte) { raw = append(be.AppendUint32(raw, uint32(len(s))), s...) }
	counted(MarshalBody(w.DataVersion))
	raw = be.AppendUint32(raw, uint32(len(w.TopicConfigTable)))
	for _, name := range slices.Sorted(maps.Keys(w.TopicConfigTable)) {
		t := w.TopicConfigTable[name]
		if t.Attributes == nil {
			t.Attributes = map[string]string{}
		}
		counted(fmt.Appendf(nil, "%s %d %d %d %s %s", name, t.ReadQueueNums, t.WriteQueueNums, t.Perm,
			t.TopicFilterType, MarshalBody(t.Attributes)))
	}
	if b.FilterServerList == nil {
		b.FilterServerList = []string{}
	}
	counted(MarshalBody(b.FilterServerList))
	raw = be.AppendUint32(raw, uint32(len(w.TopicQueueMappingInfoMap)))
	for _, name := range slices.Sorted(maps.Keys(w.TopicQueueMappingInfoMap)) {
		counted(w.TopicQueueMappingInfoMap[name])
	}
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	_, err := z.Write(raw)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: compressing into memory failed: %v", err))
	}
	return out.Bytes()
}

// ParseRegisterBrokerBody reads a registration's body as its header says:
// compressed or not, and by the version of the broker that sent it. No body is an
// empty table. The error is ErrBody.
func ParseRegisterBrokerBody(body []byte, compressed bool, version int32) (*RegisterBrokerBody, error) {
	b := &RegisterBrokerBody{}
	switch {
	case len(body) == 0:
	case compressed:
		if err := b.parseCompressed(body, version); err != nil {
			return nil, err
		}
	case version < VersionRegisterBody:
		if err := ParseBody(body, &b.TopicConfigSerializeWrapper); err != nil {
			return nil, err
		}
	default:
		if err := ParseBody(body, b); err != nil {
			return nil, err
		}
	}
	b.TopicConfigSerializeWrapper = b.TopicConfigSerializeWrapper.filled()
	for name, t := range b.TopicConfigSerializeWrapper.TopicConfigTable {
		if t.TopicName == "" { // the key is what counts
			t.TopicName = name
			b.TopicConfigSerializeWrapper.TopicConfigTable[name] = t
		}
	}
	return b, nil
}

// registerBytesMax bounds what a compressed registration may unfold to: 64 times
// the largest frame would be a bomb, not a broker.
const registerBytesMax = 256 << 20

func (b *RegisterBrokerBody) parseCompressed(body []byte, version int32) error {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: compressed registration: %w", ErrBody, err)
	}
	raw, err := io.ReadAll(io.LimitReader(z, registerBytesMax+1))
	if err != nil {
		return fmt.Errorf("%w: compressed registration: %w", ErrBody, err)
	}
	if len(raw) > registerBytesMax {
		return fmt.Errorf("%w: compressed registration unfolds to more than %d bytes", ErrBody, registerBytesMax)
	}
	p := countedReader{rest: raw}
	w := &b.TopicConfigSerializeWrapper
	if err := ParseBody(p.text("dataVersion"), &w.DataVersion); err != nil && p.err == nil {
		p.err = err
	}
	n := p.count("topics")
	w.TopicConfigTable = make(map[string]TopicConfig, min(n, 1<<16))
	for range n {
		t, err := parseTopicText(string(p.text("topic")))
		if p.err == nil {
			p.err = err
		}
		if p.err != nil {
			return p.err
		}
		w.TopicConfigTable[t.TopicName] = t
	}
	if s := p.text("filterServerList"); p.err == nil {
		p.err = ParseBody(s, &b.FilterServerList)
	}
	if version < VersionV5 || p.err != nil {
		return p.err
	}
	w.TopicQueueMappingInfoMap = map[string]json.RawMessage{}
	for range p.count("mappings") {
		s := RelaxJSON(p.text("mapping"))
		var info struct {
			Topic string `json:"topic"`
		}
		if p.err == nil {
			p.err = ParseBody(s, &info)
		}
		if p.err != nil {
			return p.err
		}
		w.TopicQueueMappingInfoMap[info.Topic] = slices.Clone(s)
	}
	return p.err
}

// countedReader reads int32 counts and counted texts and keeps the first error.
type countedReader struct {
	rest []byte
	err  error
}

func (p *countedReader) count(what string) int {
	if p.err != nil {
		return 0
	}
	if len(p.rest) < 4 {
		p.err = fmt.Errorf("%w: compressed registration ends before %s", ErrBody, what)
		return 0
	}
	n := int(int32(be.Uint32(p.rest)))
	p.rest = p.rest[4:]
	if n < 0 || n > len(p.rest) { // each item takes at least one byte
		p.err = fmt.Errorf("%w: compressed registration: %s: got %d, %d bytes left", ErrBody, what, n, len(p.rest))
		return 0
	}
	return n
}

func (p *countedReader) text(what string) []byte {
	n := p.count(what)
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

// parseTopicText reads "name readQ writeQ perm filterType [attributesJSON]".
func parseTopicText(s string) (TopicConfig, error) {
	f := strings.SplitN(s, " ", 6)
	bad := fmt.Errorf("%w: topic text: got %.80q, want name readQ writeQ perm filterType attributes", ErrBody, s)
	if len(f) < 5 {
		return TopicConfig{}, bad
	}
	t := NewTopicConfig(f[0])
	t.TopicFilterType = f[4]
	for i, to := range []*int32{&t.ReadQueueNums, &t.WriteQueueNums, &t.Perm} {
		n, err := ParseInt32([]byte(f[1+i]))
		if err != nil {
			return TopicConfig{}, bad
		}
		*to = n
	}
	if len(f) == 6 && f[5] != "" {
		if err := ParseBody([]byte(f[5]), &t.Attributes); err != nil {
			return TopicConfig{}, err
		}
	}
	return t, nil
}
