package broker

import (
	"fmt"

	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// A request is one request of a client on its way through a cold handler.
// On the loop lane conn and cmd are those of netloop and valid until the
// handler returns; on the pool lane cmd is an owned copy.
type request struct {
	conn *netloop.Conn
	cmd  *remoting.Command
	lane netloop.Lane
}

// A response is what a cold handler answers. The zero value is SUCCESS with
// nothing in it. Body and field values are copied into the frame before the
// handler's caller goes on.
type response struct {
	code   remoting.ResponseCode
	remark string
	fields []remoting.Field
	body   []byte
}

// A handlerFunc serves one request code off the hot path. An error becomes a
// response code in one place, errorReply. A nil response with a nil error says
// that the handler answers by itself, now or later.
type handlerFunc func(b *Broker, r *request) (*response, error)

// refuse makes the error a handler returns to say no: the code the client
// branches on and a remark that says what, got and want.
func refuse(code remoting.ResponseCode, format string, args ...any) error {
	return &remoting.Error{Code: code, Remark: fmt.Sprintf(format, args...)}
}
