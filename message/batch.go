package message

import (
	"errors"
	"fmt"
)

// BatchItem is one message of a classic batch; its slices alias the body.
type BatchItem struct {
	Flag       int32
	Body       []byte
	Properties []byte
}

// batchItemFixed is totalSize, magic, bodyCRC, flag, bodyLen and propertiesLen.
const batchItemFixed = 22

// ErrBatch is the family of faults in the body of a batch.
var ErrBatch = errors.New("message: malformed batch")

// EachBatchItem calls fn for each message of a classic batch's body
//
//	int32 totalSize, int32 magic (0), int32 bodyCRC (0), int32 flag,
//	int32 bodyLen, body, int16 propertiesLen, properties
//
// until fn returns an error, which is returned. A malformed body gives an error
// that is ErrBatch and names item, field, got and want; items before it were
// already passed to fn, so check a batch with a first pass before acting on it.
// It does not allocate unless it fails.
func EachBatchItem(body []byte, fn func(BatchItem) error) error {
	for i := 0; len(body) > 0; i++ {
		it, n, err := parseBatchItem(body, i)
		if err != nil {
			return err
		}
		if err := fn(it); err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

func parseBatchItem(b []byte, i int) (BatchItem, int, error) {
	if len(b) < batchItemFixed {
		return BatchItem{}, 0, batchError(i, "bytes left", len(b), batchItemFixed)
	}
	size := int(int32(be.Uint32(b)))
	if size < batchItemFixed || size > len(b) {
		return BatchItem{}, 0, batchError(i, "totalSize", size, len(b))
	}
	bodyLen := int(int32(be.Uint32(b[16:])))
	if bodyLen < 0 || bodyLen > size-batchItemFixed {
		return BatchItem{}, 0, batchError(i, "bodyLen", bodyLen, size-batchItemFixed)
	}
	bodyTo := 20 + bodyLen
	propsLen := int(int16(be.Uint16(b[bodyTo:])))
	propsAt := bodyTo + 2
	if propsLen < 0 || propsAt+propsLen != size {
		return BatchItem{}, 0, batchError(i, "propertiesLen", propsLen, size-propsAt)
	}
	return BatchItem{
		Flag:       int32(be.Uint32(b[12:])),
		Body:       b[20:bodyTo:bodyTo],
		Properties: b[propsAt:size:size],
	}, size, nil
}

func batchError(item int, what string, got, want int) error {
	return fmt.Errorf("%w: item %d: %s: got %d, want %d", ErrBatch, item, what, got, want)
}

// AppendBatchItem appends one message to a batch's body, as producers do.
func AppendBatchItem(dst []byte, it BatchItem) ([]byte, error) {
	if len(it.Properties) > PropertiesBytesMax {
		return dst, fmt.Errorf("%w: properties %d bytes (max %d)", ErrTooLong, len(it.Properties), PropertiesBytesMax)
	}
	dst = be.AppendUint32(dst, uint32(batchItemFixed+len(it.Body)+len(it.Properties)))
	dst = be.AppendUint64(dst, 0) // magic and bodyCRC: the broker computes its own
	dst = be.AppendUint32(dst, uint32(it.Flag))
	dst = be.AppendUint32(dst, uint32(len(it.Body)))
	dst = append(dst, it.Body...)
	dst = be.AppendUint16(dst, uint16(len(it.Properties)))
	return append(dst, it.Properties...), nil
}
