package broker

import (
	"errors"

	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// queryBytesMax bounds the messages of one answer to a query: what fits a frame
// beside its header.
const queryBytesMax = remoting.MaxFrameBytes - 64<<10

// handleQueryMessage is QUERY_MESSAGE (12): messages of a topic by a key of
// their KEYS or by their UNIQ_KEY. (As QueryMessageProcessor#queryMessage, 5.3.)
func handleQueryMessage(b *Broker, r *request) (*response, error) {
	var h remoting.QueryMessageHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	most := min(int(h.MaxNum), b.cfg.MaxMsgsNumBatch)
	if h.UniqueKey {
		most = b.cfg.DefaultQueryMaxNum
	}
	recs, millis, offset, err := b.store.QueryByKey(h.Topic, h.Key, most, queryBytesMax, h.BeginTimestamp, h.EndTimestamp)
	if err != nil {
		return nil, err
	}
	if len(recs) == 0 {
		return nil, refuse(remoting.QueryNotFound, "can not find message, maybe time range not correct")
	}
	resp := &response{fields: []remoting.Field{
		intField("indexLastUpdateTimestamp", millis),
		intField("indexLastUpdatePhyoffset", int64(offset)),
	}}
	for _, rec := range recs {
		resp.body = append(resp.body, rec...)
	}
	return resp, nil
}

// handleViewMessage is VIEW_MESSAGE_BY_ID (33): the message at a log offset.
func handleViewMessage(b *Broker, r *request) (*response, error) {
	var h remoting.ViewMessageHeader
	if err := h.Decode(r.cmd); err != nil {
		return nil, err
	}
	rec, err := b.store.ByOffset(message.LogOffset(h.Offset))
	if errors.Is(err, engine.ErrNoRecord) {
		return nil, refuse(remoting.SystemError, "can not find message by the offset, %d", h.Offset)
	}
	if err != nil {
		return nil, err
	}
	return &response{body: rec}, nil
}
