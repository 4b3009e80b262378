package netloop

// TrySend writes a whole frame to the socket at once, on the caller's
// goroutine, and says whether it did: false leaves the frame to the caller, who
// sends it the common way. It is for a lone answer that would otherwise wait
// for the loop to wake up, which on an idle processor takes longer than
// everything else in it.
//
// It writes only while the loop has nothing to write there itself: nothing
// gathered, nothing waiting for the peer, no Transform. Any goroutine; it does
// not block. The frame is the caller's again when it returns.
func (c *Conn) TrySend(frame []byte) bool {
	if !c.quiet.Load() || !c.direct.TryLock() {
		return false
	}
	defer c.direct.Unlock()
	// Once more: the loop takes quiet away first, and then waits for direct.
	if !c.quiet.Load() || c.closed.Load() {
		return false
	}
	n, err := writeNow(c.fd, frame, false)
	if err != nil || n == 0 {
		return false // the loop meets the same error, and closes the connection
	}
	if n < len(frame) {
		c.rest = append(c.rest[:0], frame[n:]...)
		c.quiet.Store(false)
		c.loop.Post((*restTask)(c))
	}
	c.loop.stats.bytesOut.Add(int64(n))
	c.loop.stats.replies.Add(1)
	c.lastTick.Store(c.srv.tick.Load())
	return true
}

// restTask has the loop write what a TrySend could not.
type restTask Conn

// RunOnLoop gathers nothing of its own: claim brings the rest, the round writes
// it.
func (t *restTask) RunOnLoop(*Loop) {
	c := (*Conn)(t)
	if !c.silent() {
		c.SetOut(c.Out())
		c.replies--
	}
}

// claim ends TrySend for the connection before the loop gathers or writes
// anything for it; what a TrySend has left over comes first. On the loop.
func (c *Conn) claim() {
	if !c.quiet.Load() && len(c.rest) == 0 {
		return
	}
	c.quiet.Store(false)
	c.direct.Lock() // waits for the one write of a TrySend under way
	if len(c.rest) > 0 {
		c.out = append(c.out, c.rest...)
		c.rest = nil
	}
	c.direct.Unlock()
}

// settle lets TrySend in again, at the end of a round.
func (c *Conn) settle() {
	if c.mode == modePlain && c.outbound == 0 && len(c.out) == 0 && !c.failing() && !c.mute {
		c.quiet.Store(true)
	}
}
