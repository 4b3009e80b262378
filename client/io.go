package client

import (
	"errors"
	"fmt"
	"io"

	"github.com/ringmq/ringmq/remoting"
)

const (
	readBytes    = 64 << 10 // what one read may bring
	keepOutBytes = 1 << 20  // a larger write buffer is not kept
)

// write is the writer's goroutine: all frames that gathered while the last
// write ran leave with the next one.
func (c *Conn) write() {
	var buf []byte
	for {
		c.mu.Lock()
		for len(c.out) == 0 && c.cause == nil {
			c.more.Wait()
		}
		if c.cause != nil {
			c.mu.Unlock()
			return
		}
		if cap(buf) > keepOutBytes {
			buf = nil
		}
		buf, c.out = c.out, buf[:0]
		c.mu.Unlock()
		if _, err := c.nc.Write(buf); err != nil {
			c.lost(err)
			return
		}
	}
}

// read is the reader's goroutine.
func (c *Conn) read() {
	err := c.readFrames()
	if errors.Is(err, io.EOF) {
		err = errors.New("closed by the server")
	}
	c.lost(err) // unless this side has ended it
	c.mu.Lock()
	pending, cause := c.pending, c.cause
	c.pending = nil // nothing is added any more
	c.mu.Unlock()
	for _, done := range pending {
		done(nil, cause)
	}
	close(c.done)
	if c.opt.OnClose != nil {
		c.opt.OnClose(c, cause)
	}
}

func (c *Conn) readFrames() error {
	var cmd remoting.Command
	buf := make([]byte, 0, readBytes)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := c.nc.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		used, ferr := c.cut(buf, &cmd)
		if ferr != nil {
			return ferr
		}
		if err != nil {
			return err
		}
		switch left := len(buf) - used; {
		case left == 0 && cap(buf) > readBytes:
			buf = make([]byte, 0, readBytes) // a large frame is over
		case used > 0:
			buf = buf[:copy(buf, buf[used:])]
		}
	}
}

// cut serves the whole frames at the start of b and returns their bytes.
func (c *Conn) cut(b []byte, cmd *remoting.Command) (used int, err error) {
	for {
		total, ok, err := remoting.FrameSize(b[used:], c.opt.FrameBytesMax)
		if err != nil {
			return used, err
		}
		if !ok || total > len(b)-used {
			return used, nil
		}
		if err := remoting.Decode(b[used:used+total], cmd); err != nil {
			return used, fmt.Errorf("bad frame: %w", err)
		}
		used += total
		c.serve(cmd)
	}
}

func (c *Conn) serve(cmd *remoting.Command) {
	if !cmd.IsResponse() {
		if c.opt.OnRequest != nil {
			c.opt.OnRequest(c, cmd)
		}
		return
	}
	c.mu.Lock()
	done := c.pending[cmd.Opaque]
	delete(c.pending, cmd.Opaque)
	c.mu.Unlock()
	if done != nil { // else it came too late
		done(cmd, nil)
	}
}
