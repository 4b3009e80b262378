package namesrv

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ringmq/ringmq/netloop"
	"github.com/ringmq/ringmq/remoting"
)

// handler is the Server as netloop sees it.
type handler Server

func (h *handler) server() *Server { return (*Server)(h) }

// Open gives the connection its peer.
func (h *handler) Open(c *netloop.Conn) {
	c.User = &peer{link: c, brokers: map[brokerKey]*live{}}
}

// Closed drops the brokers of the connection at once.
func (h *handler) Closed(c *netloop.Conn, _ error) { h.reg.closed(c.User.(*peer)) }

// Lane is netloop's question where a request is served.
func (h *handler) Lane(code int32) netloop.Lane {
	if r := routeOf[code]; r != nil {
		return r.lane
	}
	return netloop.OnLoop
}

// Response: a NameServer asks nothing on connections of others.
func (h *handler) Response(*netloop.Conn, *remoting.Command) {}

// ReadEnd has nothing to submit: every request is answered by itself.
func (h *handler) ReadEnd(*netloop.Loop) {}

// Serve serves one request on the lane of its row.
func (h *handler) Serve(c *netloop.Conn, cmd *remoting.Command) {
	if cmd.Code == remoting.ReqGetRouteInfoByTopic {
		h.server().serveRoute(c, cmd)
		return
	}
	r := routeOf[cmd.Code]
	if r == nil {
		h.answer(c, cmd, netloop.OnLoop, &response{code: remoting.RequestCodeNotSupported,
			remark: fmt.Sprintf(" request type %d not supported", cmd.Code)})
		return
	}
	resp, err := h.call(r, c, cmd)
	if err != nil {
		resp = refusal(err)
	}
	h.answer(c, cmd, r.lane, resp)
}

// call runs a handler. One that panics has met something nobody thought of:
// that request is answered 1, and all others stay well.
func (h *handler) call(r *route, c *netloop.Conn, cmd *remoting.Command) (resp *response, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("BUG: a handler panicked", "code", cmd.Code, "remote", c.Remote(), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("BUG: %v", p)
		}
	}()
	return r.handle(h.server(), &request{cmd: cmd, peer: c.User.(*peer), remote: c.Remote().String()})
}

func refusal(err error) *response {
	var e *remoting.Error
	if errors.As(err, &e) {
		return &response{code: e.Code, remark: e.Remark}
	}
	return &response{code: remoting.SystemError, remark: err.Error()}
}

func (h *handler) answer(c *netloop.Conn, cmd *remoting.Command, lane netloop.Lane, r *response) {
	if cmd.IsOneway() {
		return
	}
	if lane == netloop.OnLoop {
		c.SetOut(remoting.AppendReply(c.Out(), cmd.ReplyTo(), r.code, r.remark, r.fields, r.body))
		return
	}
	c.Send(remoting.AppendReply(nil, cmd.ReplyTo(), r.code, r.remark, r.fields, r.body))
}

// serveRoute answers a route query on the loop, without allocation while the
// topic does not change. As ClientRequestProcessor#getRouteInfoByTopic, 5.3.
func (s *Server) serveRoute(c *netloop.Conn, cmd *remoting.Command) {
	if cmd.IsOneway() {
		return
	}
	to := cmd.ReplyTo()
	cfg := s.cfg.Load()
	if cfg.NeedWaitForService && s.now().Sub(s.since) < time.Duration(cfg.WaitSecondsForService)*time.Second {
		c.SetOut(remoting.AppendReply(c.Out(), to, remoting.SystemError, "name server not ready", nil, nil))
		return
	}
	name, ok := cmd.Get("topic")
	if !ok {
		err := &remoting.FieldError{Field: "topic", Want: "a string"}
		c.SetOut(remoting.AppendReply(c.Out(), to, remoting.SystemError, err.Error(), nil, nil))
		return
	}
	body := s.findRoute(cmd, name)
	if body == nil {
		c.SetOut(remoting.AppendReply(c.Out(), to, remoting.TopicNotExist, noRoute+string(name)+faq, nil, nil))
		return
	}
	c.SetOut(remoting.AppendReply(c.Out(), to, remoting.Success, "", nil, body))
}

const (
	noRoute = "No topic route info in name server for the topic: "
	faq     = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

func (s *Server) findRoute(cmd *remoting.Command, name []byte) []byte {
	if v, ok := cmd.Get("__ZONE_MODE"); ok && remoting.ParseBool(v) {
		if zone := strings.TrimSpace(cmd.GetString("__ZONE_NAME")); zone != "" {
			return s.reg.zoneRoute(name, zone)
		}
	}
	form := formLenient
	if cmd.Version >= remoting.VersionStrictJSONRoutes {
		form = formStrict
	} else if v, ok := cmd.Get("acceptStandardJsonOnly"); ok && remoting.ParseBool(v) {
		form = formStrict
	}
	return s.reg.route(name, form)
}
