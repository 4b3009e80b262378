package remoting

// ReplyTo is what an answer needs of its request: small, copied freely, kept
// while a request waits.
type ReplyTo struct {
	Opaque    int32
	Serialize SerializeType
	Oneway    bool // no answer may be written; the Append functions do not check it
}

// ReplyWriter writes one answer field by field, without a slice of Fields:
//
//	w := BeginReply(dst, to, Success, "")
//	w.Int("queueOffset", n)
//	dst = w.End(len(body))
//	dst = append(dst, body...)
//
// The answer is serialized as the request was: flag response, language GO, our
// Version. Every JSON answer carries extFields, if empty ones: Java's send path
// dereferences them. Nothing is allocated unless dst is too small; nothing is
// kept. Keys are written as they are: give constants without characters that
// JSON escapes.
type ReplyWriter struct {
	dst    []byte
	at     int // where the frame begins
	extAt  int // binary: where extLen stands; JSON: where the first field begins
	to     ReplyTo
	remark string
}

// BeginReply starts an answer behind dst.
func BeginReply(dst []byte, to ReplyTo, code ResponseCode, remark string) ReplyWriter {
	w := ReplyWriter{at: len(dst), to: to, remark: remark}
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	if to.Serialize == SerializeBinary {
		dst = be.AppendUint16(dst, uint16(code))
		dst = append(dst, byte(LanguageGo), byte(Version>>8), byte(Version&0xFF))
		dst = be.AppendUint32(dst, uint32(to.Opaque))
		dst = be.AppendUint32(dst, uint32(FlagResponse))
		dst = be.AppendUint32(dst, uint32(len(remark)))
		dst = append(dst, remark...)
		w.extAt = len(dst)
		w.dst = append(dst, 0, 0, 0, 0)
		return w
	}
	dst = append(dst, `{"code":`...)
	dst = AppendInt(dst, int64(code))
	dst = append(dst, `,"extFields":{`...)
	w.extAt = len(dst)
	w.dst = dst
	return w
}

// key writes a key and the place for the value of n bytes (binary only).
func (w *ReplyWriter) key(k string, n int) {
	if w.to.Serialize == SerializeBinary {
		w.dst = be.AppendUint16(w.dst, uint16(len(k)))
		w.dst = append(w.dst, k...)
		w.dst = be.AppendUint32(w.dst, uint32(n))
		return
	}
	if len(w.dst) > w.extAt {
		w.dst = append(w.dst, ',')
	}
	w.dst = append(w.dst, '"')
	w.dst = append(w.dst, k...)
	w.dst = append(w.dst, '"', ':')
}

// String adds a field.
func (w *ReplyWriter) String(key, value string) {
	w.key(key, len(value))
	if w.to.Serialize == SerializeBinary {
		w.dst = append(w.dst, value...)
		return
	}
	w.dst = AppendJSONString(w.dst, value)
}

// Bytes adds a field.
func (w *ReplyWriter) Bytes(key string, value []byte) {
	w.key(key, len(value))
	if w.to.Serialize == SerializeBinary {
		w.dst = append(w.dst, value...)
		return
	}
	w.dst = AppendJSONBytes(w.dst, value)
}

// Int adds a field in decimal.
func (w *ReplyWriter) Int(key string, value int64) {
	w.key(key, 0)
	if w.to.Serialize == SerializeBinary {
		at := len(w.dst)
		w.dst = AppendInt(w.dst, value)
		be.PutUint32(w.dst[at-4:], uint32(len(w.dst)-at))
		return
	}
	w.dst = append(w.dst, '"')
	w.dst = AppendInt(w.dst, value)
	w.dst = append(w.dst, '"')
}

// Bool adds a field, "true" or "false".
func (w *ReplyWriter) Bool(key string, value bool) {
	if value {
		w.String(key, "true")
		return
	}
	w.String(key, "false")
}

// End finishes the header and returns the longer slice. The body, bodyLen bytes,
// follows: appended by the caller, or sent right behind.
func (w *ReplyWriter) End(bodyLen int) []byte {
	dst := w.dst
	if w.to.Serialize == SerializeBinary {
		be.PutUint32(dst[w.extAt:], uint32(len(dst)-w.extAt-4))
		return finish(dst, w.at, SerializeBinary, 0, bodyLen)
	}
	dst = append(dst, `},"flag":1,"language":"GO","opaque":`...)
	dst = AppendInt(dst, int64(w.to.Opaque))
	if w.remark != "" {
		dst = AppendJSONString(append(dst, `,"remark":`...), w.remark)
	}
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":479}`...)
	return finish(dst, w.at, SerializeJSON, 0, bodyLen)
}

// AppendReply appends a whole answer to dst; see ReplyWriter. Field keys may be
// any text here.
func AppendReply(dst []byte, to ReplyTo, code ResponseCode, remark string, fields []Field, body []byte) []byte {
	return append(AppendReplyHead(dst, to, code, remark, fields, len(body)), body...)
}

// AppendReplyHead is AppendReply for a body of bodyLen bytes that the caller
// sends right behind it, such as by sendfile.
func AppendReplyHead(dst []byte, to ReplyTo, code ResponseCode, remark string, fields []Field, bodyLen int) []byte {
	w := BeginReply(dst, to, code, remark)
	for i := range fields {
		w.field(&fields[i])
	}
	return w.End(bodyLen)
}

// field adds a field whose key may need escaping.
func (w *ReplyWriter) field(f *Field) {
	if w.to.Serialize == SerializeBinary {
		w.dst = be.AppendUint16(w.dst, uint16(len(f.Key)))
		w.dst = append(w.dst, f.Key...)
		w.dst = be.AppendUint32(w.dst, uint32(len(f.Value)))
		w.dst = append(w.dst, f.Value...)
		return
	}
	if len(w.dst) > w.extAt {
		w.dst = append(w.dst, ',')
	}
	w.dst = append(AppendJSONBytes(w.dst, f.Key), ':')
	w.dst = AppendJSONBytes(w.dst, f.Value)
}

// AppendError appends the answer to a refused request.
func AppendError(dst []byte, to ReplyTo, e *Error) []byte {
	return AppendReply(dst, to, e.Code, e.Remark, nil, nil)
}
