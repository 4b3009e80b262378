package netloop

const (
	bufferBytesMin = 4 << 10 // what a new buffer starts with
	bufferBytesMax = 1 << 20 // larger ones are left to the collector
	bufferListMax  = 4 << 20 // bytes that one loop keeps for reuse
)

// bufferList keeps the buffers that connections borrow while they have
// something gathered or held back, so that an idle connection has none. It
// belongs to one loop.
type bufferList struct {
	free  [][]byte // the latest last: it is warm
	bytes int      // sum of cap over free
}

func (b *bufferList) get() []byte {
	n := len(b.free) - 1
	if n < 0 {
		return make([]byte, 0, bufferBytesMin)
	}
	buf := b.free[n]
	b.free[n] = nil
	b.free = b.free[:n]
	b.bytes -= cap(buf)
	return buf
}

func (b *bufferList) put(buf []byte) {
	if cap(buf) == 0 || cap(buf) > bufferBytesMax || b.bytes+cap(buf) > bufferListMax {
		return
	}
	b.bytes += cap(buf)
	b.free = append(b.free, buf[:0])
}
