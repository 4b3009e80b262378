package netloop

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// TestSendCopy sends bodies of many scattered ranges, of files with a mapping
// and without, to a peer that reads late: what the socket doesn't take at once
// must come in order all the same.
func TestSendCopy(t *testing.T) {
	content := make([]byte, 4<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range content {
		content[i] = byte(rnd.Uint32())
	}
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	mem := vfs.NewMem()
	if err := mem.WriteFileAtomic("f", content); err != nil {
		t.Fatal(err)
	}
	mapped, err := vfs.OS().Open(name, vfs.Read)
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	plain, err := mem.Open("f", vfs.Read)
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]vfs.File{"mapped": mapped, "without a descriptor": plain} {
		t.Run(what, func(t *testing.T) {
			ranges := func(n int) (rs []vfs.Range, want []byte) {
				r := rand.New(rand.NewPCG(uint64(n), 3))
				for range 1 + n%40 {
					from := r.IntN(len(content) - 5000)
					size := 1 + r.IntN(5000)
					rs = append(rs, vfs.Range{File: f, Off: int64(from), Len: size})
					want = append(want, content[from:from+size]...)
				}
				return rs, want
			}
			s := listen(t, Config{Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
				if req.Opaque%3 == 0 { // something gathered before it
					echo(c, req)
				}
				rs, want := ranges(int(req.Opaque))
				c.SendCopy(remoting.AppendReplyHead(nil, req.ReplyTo(), remoting.Success, "", nil, len(want)), rs)
			}}})
			p := dial(t, s)
			const frames = 300
			var all []byte
			for i := range frames {
				all = append(all, request(1, int32(i), []byte("body"))...)
			}
			p.send(all)
			time.Sleep(50 * time.Millisecond) // the socket fills
			for i := range frames {
				if i%3 == 0 {
					p.mustRead(int32(i))
				}
				_, want := ranges(i)
				if got := p.mustRead(int32(i)); !bytes.Equal(got.Body, want) {
					t.Fatalf("body %d: got %d bytes, want %d, or others", i, len(got.Body), len(want))
				}
			}
		})
	}
}

// TestSendCopyCut: a range of a mapped file that was cut meanwhile closes the
// connection; it must not kill the process.
func TestSendCopyCut(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().Open(name, vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Map() == nil && haveSendfile {
		t.Fatal("no mapping")
	}
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	s := listen(t, Config{Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
		c.SendCopy(remoting.AppendReplyHead(nil, req.ReplyTo(), remoting.Success, "", nil, 1000), []vfs.Range{{File: f, Off: 1 << 19, Len: 1000}})
	}}})
	p := dial(t, s)
	p.send(request(1, 1, nil))
	p.mustEnd()
}
