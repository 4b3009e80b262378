package netloop

import (
	"bytes"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// noFd hides the descriptor of a file, as an in-memory file has none.
type noFd struct{ vfs.File }

func (noFd) Fd() (int, bool) { return 0, false }

func testFile(t testing.TB, size int) (vfs.File, []byte) {
	t.Helper()
	data := make([]byte, size)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := 0; i+8 <= size; i += 8 {
		v := rng.Uint64()
		for k := range 8 {
			data[i+k] = byte(v >> (8 * k))
		}
	}
	f, err := vfs.OS().Open(filepath.Join(t.TempDir(), "f"), vfs.ReadWrite|vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	return f, data
}

func bytesOf(rs []vfs.Range) (n int) {
	for _, r := range rs {
		n += r.Len
	}
	return n
}

func TestRangesOfFiles(t *testing.T) {
	file, data := testFile(t, 8<<20)
	for _, tt := range []struct {
		name string
		copy bool
		rs   []vfs.Range
	}{
		{"sendfile, one range", false, []vfs.Range{{File: file, Off: 100, Len: 5000}}},
		{"sendfile, several", false, []vfs.Range{{File: file, Off: 0, Len: 70_000}, {File: file, Off: 500_000, Len: 1}, {File: file, Off: 3, Len: 4096}}},
		{"sendfile, more than a socket takes", false, []vfs.Range{{File: file, Off: 17, Len: 8<<20 - 17}}},
		{"sendfile, no descriptor between", false, []vfs.Range{{File: file, Off: 0, Len: 99_999}, {File: noFd{file}, Off: 5, Len: 300_000}, {File: file, Off: 9, Len: 1000}}},
		{"copy, scattered", true, []vfs.Range{{File: file, Off: 1, Len: 10}, {File: noFd{file}, Off: 1000, Len: 10}, {File: file, Off: 99, Len: 200}}},
		{"copy, long", true, []vfs.Range{{File: file, Off: 0, Len: 4 << 20}}},
		{"nothing", false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := listen(t, Config{Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
				head := remoting.AppendReplyHead(nil, req.ReplyTo(), remoting.Success, "", nil, bytesOf(tt.rs))
				if tt.copy {
					c.SendCopy(head, tt.rs)
				} else {
					c.SendFile(head, tt.rs)
				}
			}}})
			var want []byte
			for _, r := range tt.rs {
				want = append(want, data[r.Off:r.Off+int64(r.Len)]...)
			}
			p := dial(t, s)
			p.send(bytes.Join([][]byte{request(1, 0, nil), request(1, 1, nil), request(1, 2, nil)}, nil))
			for i := range int32(3) {
				if got := p.mustRead(i); !bytes.Equal(got.Body, want) {
					t.Fatalf("answer %d: got %d bytes that differ from the %d wanted", i, len(got.Body), len(want))
				}
			}
		})
	}
}

func TestUnreadableRangeCloses(t *testing.T) {
	file, _ := testFile(t, 1000)
	for _, send := range []func(*Conn, []byte, []vfs.Range){(*Conn).SendFile, (*Conn).SendCopy} {
		causes := make(chan error, 1)
		s := listen(t, Config{Handler: &handler{
			serve: func(c *Conn, req *remoting.Command) {
				rs := []vfs.Range{{File: file, Off: 500, Len: 1000}}
				send(c, remoting.AppendReplyHead(nil, req.ReplyTo(), remoting.Success, "", nil, 1000), rs)
			},
			closed: func(_ *Conn, err error) { causes <- err },
		}})
		p := dial(t, s)
		p.send(request(1, 1, nil))
		if _, err := p.readFrame(); err == nil {
			t.Error("got a whole answer")
		}
		if err := <-causes; err == nil {
			t.Error("no cause")
		}
	}
}

func TestSendBytes(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 100_000)
	s := listen(t, Config{Handler: &handler{serve: func(c *Conn, req *remoting.Command) {
		n := int(req.Code)
		c.SendBytes(remoting.AppendReplyHead(nil, req.ReplyTo(), remoting.Success, "", nil, n), body[:n])
	}}})
	p := dial(t, s)
	for i, n := range []int32{0, 10, gatherBytes - 1, gatherBytes, 1_000_000, 3} {
		p.send(request(n, int32(i), nil))
		if got := p.mustRead(int32(i)); !bytes.Equal(got.Body, body[:n]) {
			t.Errorf("%d bytes: got %d", n, len(got.Body))
		}
	}
}

func TestSendToTheClosedIsDropped(t *testing.T) {
	file, _ := testFile(t, 1000)
	conns := make(chan *Conn, 1)
	gone := make(chan error, 1)
	s := listen(t, Config{Handler: &handler{
		open: func(c *Conn) { conns <- c },
		closed: func(c *Conn, err error) {
			c.SetOut(append(c.Out(), 1))
			c.SendFile([]byte{1}, []vfs.Range{{File: file, Len: 10}})
			c.SendBytes([]byte{1}, make([]byte, gatherBytes))
			c.Resume()
			gone <- err
		},
	}})
	p := dial(t, s)
	c := <-conns
	p.Close()
	if err := <-gone; err == nil {
		t.Error("no cause")
	}
	c.Send([]byte{1})
	c.Close(io.EOF)
	eventually(t, "nothing waits", func() bool { return s.Stats().WaitingBytes == 0 && s.Stats().Conns == 0 })
}
