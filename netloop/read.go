package netloop

import (
	"fmt"

	"github.com/ringmq/ringmq/remoting"
)

// receive takes bytes of frames as they come from the peer or out of its
// Transform. data is the caller's again when it returns.
func (c *Conn) receive(data []byte) {
	if c.deaf() || c.srv.draining.Load() {
		return // nobody will serve it
	}
	if !c.held() && !c.isReady {
		if len(c.in) > 0 {
			data = c.complete(data)
		}
		more := false
		if len(c.in) == 0 && len(data) > 0 && !c.deaf() {
			n := 0
			n, more = c.decode(data, len(data))
			data = data[n:]
		}
		if c.deaf() {
			return
		}
		if more {
			defer c.takeTurns()
		}
	}
	c.keep(data)
	c.account()
}

// complete adds to the piece of a frame in c.in what is missing of it, serves
// it when it is whole, and returns the rest of data. The rest is decoded in
// place: only the frame that was cut in two is ever copied.
func (c *Conn) complete(data []byte) (rest []byte) {
	for len(data) > 0 {
		total, ok, err := remoting.FrameSize(c.in, c.srv.cfg.FrameBytesMax)
		if err != nil {
			c.badFrame(err)
			return nil
		}
		if !ok {
			total = remoting.LengthBytes
		}
		n := min(total-len(c.in), len(data))
		c.in = append(c.in, data[:n]...)
		data = data[n:]
		if ok && len(c.in) == total {
			if n, _ := c.decode(c.in, total); n == total && !c.deaf() {
				c.dropIn()
			}
			return data
		}
	}
	return nil
}

// decode serves whole frames at the start of b, up to limit bytes of them, and
// returns how many bytes it has served. It stops early when frames must be held
// back, and with more when the connection has had its turn.
func (c *Conn) decode(b []byte, limit int) (n int, more bool) {
	l, frames := c.loop, 0
	begin := l.written
	for n < limit && !c.held() {
		total, ok, err := remoting.FrameSize(b[n:], c.srv.cfg.FrameBytesMax)
		if err == nil && (!ok || total > len(b)-n) {
			break
		}
		if more = l.written-begin > turnOutBytes; more {
			break
		}
		if err == nil {
			err = remoting.Decode(b[n:n+total], &l.cmd)
		}
		if err != nil {
			c.badFrame(err)
			break
		}
		n += total
		frames++
		c.serve(&l.cmd)
		if c.deaf() {
			break
		}
		c.pace()
	}
	if frames > 0 {
		l.reads++
		l.stats.frames.Add(int64(frames))
	}
	return n, more
}

func (c *Conn) serve(cmd *remoting.Command) {
	h := c.srv.cfg.Handler
	switch {
	case cmd.IsResponse():
		h.Response(c, cmd)
	case h.Lane(cmd.Code) == OnLoop:
		h.Serve(c, cmd)
	default:
		c.srv.pool.submit(c, cmd)
	}
}

// pace keeps the answers of one read event from piling up: pipelined requests
// with large answers are written as they are made, and no more are decoded
// when the peer does not take them.
func (c *Conn) pace() {
	if len(c.out) >= gatherBytes {
		c.flush()
	}
	if !c.stalled && c.outbound > c.srv.cfg.ConnOutboundBytesMax/2 {
		c.stalled = true
		c.loop.stats.stalls.Add(1)
	}
}

// decodeHeld serves one turn of the frames that were held back.
func (c *Conn) decodeHeld() {
	n, _ := c.decode(c.in[c.inOff:], turnInBytes)
	if c.deaf() {
		return
	}
	c.inOff += n
	left := len(c.in) - c.inOff
	total, ok, _ := remoting.FrameSize(c.in[c.inOff:], c.srv.cfg.FrameBytesMax)
	whole := ok && total <= left
	switch {
	case left == 0:
		c.dropIn()
	case !whole || c.inOff > left: // a piece alone begins at the start of c.in
		copy(c.in, c.in[c.inOff:])
		c.in, c.inOff = c.in[:left], 0
	}
	if whole {
		c.takeTurns()
	}
	c.account()
}

// keep copies bytes that cannot be decoded now behind c.in.
func (c *Conn) keep(data []byte) {
	if len(data) == 0 {
		return
	}
	if c.in == nil {
		c.in = c.loop.buffers.get()
	}
	held, limit := int64(len(c.in)-c.inOff+len(data)), c.srv.cfg.ConnInboundBytesMax
	if held > limit {
		c.overBound("bytes received and not decoded", c.srv.cfg.Keys.ConnInboundBytesMax, held, limit)
		c.leaving = false
		return
	}
	c.in = append(c.in, data...)
}

// dropIn gives the inbound buffer back.
func (c *Conn) dropIn() {
	c.loop.buffers.put(c.in)
	c.in, c.inOff = nil, 0
}

// badFrame closes the connection of a peer that speaks something else.
func (c *Conn) badFrame(err error) {
	c.fail(fmt.Errorf("%w: %w", ErrProtocol, err))
	c.srv.log.warn(logProtocol, "connection closed: not a frame of this protocol",
		"remote", c.remote, "local", c.local, "service", c.srv.cfg.ServiceName, "seen", err, "hint", c.srv.cfg.PortHint)
}
