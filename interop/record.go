package interop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Exchange is one request and its answer as they went over the wire, for golden tests of the remoting package.
type Exchange struct {
	Server   string `json:"server"`             // "namesrv" or "broker"
	From     string `json:"from"`               // who asked: "client" or "server"; the broker is the NameServer's client
	Code     int    `json:"code"`               // request code
	Answer   *int   `json:"answer,omitempty"`   // response code; none for one-way requests
	Header   string `json:"header"`             // the request's header when it is JSON, to read
	Reply    string `json:"reply,omitempty"`    // the answer's header when it is JSON
	Request  []byte `json:"request"`            // the whole frame, its length field included
	Response []byte `json:"response,omitempty"` // the same of the answer
}

// Recorder is a proxy between clients and servers that keeps some exchanges of each kind.
type Recorder struct {
	mu        sync.Mutex
	seen      map[string]int
	exchanges []Exchange
	listeners []net.Listener
	conns     map[net.Conn]bool
	wg        sync.WaitGroup
}

const (
	recordEach  = 2        // exchanges kept for one server, side, code and answer
	recordBytes = 12 << 10 // frames above are not kept
)

// NewRecorder makes a recorder without any proxy.
func NewRecorder() *Recorder {
	return &Recorder{seen: map[string]int{}, conns: map[net.Conn]bool{}}
}

// Proxy passes connections on addr to the server at to, keeping exchanges. In what the server sends, the bytes old are
// replaced by new (of the same length) after the frame was kept: so a NameServer's routes lead to the broker's proxy.
func (r *Recorder) Proxy(addr, server, to, old, new string) error {
	if len(old) != len(new) {
		return fmt.Errorf("%q and %q differ in length", old, new)
	}
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		return err
	}
	r.listeners = append(r.listeners, l)
	r.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp4", to)
			if err != nil {
				c.Close()
				continue
			}
			p := &recordedConn{r: r, server: server, pending: map[string]pendingFrame{}}
			r.track(c, s)
			r.wg.Go(func() { p.pump(s, c, "client", "", "") })
			r.wg.Go(func() { p.pump(c, s, "server", old, new) })
		}
	})
	return nil
}

func (r *Recorder) track(cs ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range cs {
		r.conns[c] = true
	}
}

// Close ends the proxies and returns what was kept.
func (r *Recorder) Close() []Exchange {
	for _, l := range r.listeners {
		l.Close()
	}
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
	return r.exchanges
}

type pendingFrame struct {
	code  int
	frame []byte
}

// recordedConn is one proxied connection; both directions share the requests that wait for their answers.
type recordedConn struct {
	r       *Recorder
	server  string
	mu      sync.Mutex
	pending map[string]pendingFrame // by asking side and opaque
}

func (p *recordedConn) pump(dst, src net.Conn, side, old, new string) {
	defer dst.Close()
	defer src.Close()
	for {
		var length [4]byte
		if _, err := io.ReadFull(src, length[:]); err != nil {
			return
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(length[:]))
		copy(frame, length[:])
		if _, err := io.ReadFull(src, frame[4:]); err != nil {
			return
		}
		p.keep(side, bytes.Clone(frame))
		if old != "" {
			frame = bytes.ReplaceAll(frame, []byte(old), []byte(new))
		}
		if _, err := dst.Write(frame); err != nil {
			return
		}
	}
}

func (p *recordedConn) keep(side string, frame []byte) {
	h, err := headOf(frame)
	if err != nil {
		return // a fixture is made of what can be understood; the frame itself passes untouched
	}
	other := map[string]string{"client": "server", "server": "client"}[side]
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case h.flag&1 != 0:
		key := fmt.Sprint(other, h.opaque)
		if q, ok := p.pending[key]; ok {
			delete(p.pending, key)
			p.r.add(Exchange{Server: p.server, From: other, Code: q.code, Answer: &h.code, Request: q.frame, Response: frame})
		}
	case h.flag&2 != 0:
		p.r.add(Exchange{Server: p.server, From: side, Code: h.code, Request: frame})
	default:
		p.pending[fmt.Sprint(side, h.opaque)] = pendingFrame{h.code, frame}
	}
}

func (r *Recorder) add(e Exchange) {
	answer := "oneway"
	if e.Answer != nil {
		answer = fmt.Sprint(*e.Answer)
	}
	if len(e.Request) > recordBytes || len(e.Response) > recordBytes {
		return
	}
	key := fmt.Sprint(e.Server, e.From, e.Code, answer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[key]++; r.seen[key] > recordEach {
		return
	}
	e.Header, e.Reply = jsonHeader(e.Request), jsonHeader(e.Response)
	r.exchanges = append(r.exchanges, e)
}

type frameHead struct {
	code, flag int
	opaque     int32
}

// headOf reads code, flag and opaque of a frame in either serialization. Binary header: int16 code, int8 language,
// int16 version, int32 opaque, int32 flag.
func headOf(frame []byte) (h frameHead, err error) {
	if len(frame) < 8 {
		return h, errors.New("short frame")
	}
	kind, n := frame[4], int(binary.BigEndian.Uint32(frame[4:])&0xffffff)
	if 8+n > len(frame) {
		return h, errors.New("header passes the frame")
	}
	head := frame[8 : 8+n]
	switch {
	case kind == 0:
		var f Frame
		err = json.Unmarshal(head, &f)
		return frameHead{f.Code, f.Flag, f.Opaque}, err
	case kind == 1 && n >= 13:
		return frameHead{int(int16(binary.BigEndian.Uint16(head))), int(binary.BigEndian.Uint32(head[9:])),
			int32(binary.BigEndian.Uint32(head[5:]))}, nil
	}
	return h, fmt.Errorf("serialization %d", kind)
}

func jsonHeader(frame []byte) string {
	if len(frame) < 8 || frame[4] != 0 {
		return ""
	}
	return string(frame[8 : 8+binary.BigEndian.Uint32(frame[4:])])
}
