// Package remoting answers one question: what do the bytes on a connection say?
// It holds the whole wire language: frames, the two header serializations,
// request and response codes, typed request headers and bodies. It does no I/O
// and starts no goroutine; functions may be called from any goroutine, a Command
// belongs to one at a time.
//
// A frame, all integers big-endian:
//
//	0  total      int32  bytes that follow: 4 + headerLen + bodyLen
//	4  serialize  int8   0 JSON, 1 ROCKETMQ (binary)
//	5  headerLen  int24
//	8  header
//	   body       opaque
//
// A JSON header is one object: code, language, version, opaque, flag, remark and
// extFields, whose values are all strings. A binary header:
//
//	code int16, language int8, version int16, opaque int32, flag int32,
//	remarkLen int32, remark,
//	extLen int32, then repeated: keyLen int16, key, valueLen int32, value
//
// Sends, pulls and their answers are read and written by hand without
// allocation; whatever is unusual goes through the general decoder, which says
// the same, slower. Bodies are JSON as Java's fastjson writes it.
package remoting
