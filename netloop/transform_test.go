package netloop

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// xor is a toy Transform: the peer says "XOR!" and then every byte is flipped.
type xor struct{}

func (xor) Name() string { return "xor" }

func (xor) Match(first []byte) Verdict {
	const magic = "XOR!"
	switch {
	case len(first) >= len(magic) && string(first[:4]) == magic:
		return Mine
	case len(first) < len(magic) && string(first) == magic[:len(first)]:
		return NeedMore
	}
	return NotMine
}

func (xor) Wrap(raw net.Conn) (net.Conn, error) {
	var magic [4]byte
	if _, err := io.ReadFull(raw, magic[:]); err != nil {
		return nil, err
	}
	return xorConn{raw}, nil
}

type xorConn struct{ net.Conn }

func (c xorConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	flip(p[:n])
	return n, err
}

func (c xorConn) Write(p []byte) (int, error) {
	q := bytes.Clone(p)
	flip(q)
	return c.Conn.Write(q)
}

func flip(b []byte) {
	for i := range b {
		b[i] ^= 0x55
	}
}

// under checks requests of all kinds over a Transform, and plain ones beside.
func under(t *testing.T, transforms []Transform, dialTo func(s *Server) net.Conn) *Server {
	t.Helper()
	file, data := testFile(t, 2<<20)
	s := listen(t, Config{Transforms: transforms, Loops: 2, Handler: &handler{
		lane: func(code int32) Lane { return Lane(min(code, 1)) },
		serve: func(c *Conn, req *remoting.Command) {
			switch req.Code {
			case 0:
				if len(req.Body) == 1 {
					c.SendFile(remoting.AppendReplyHead(nil, req.ReplyTo(), remoting.Success, "", nil, len(data)),
						[]vfs.Range{{File: file, Len: len(data)}})
					return
				}
				echo(c, req)
			default:
				c.Send(remoting.AppendReply(nil, req.ReplyTo(), remoting.Success, "", nil, req.Body))
			}
		},
	}})
	plain := dial(t, s)
	nc := dialTo(s)
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	p := &peer{Conn: nc, t: t}
	for i := range int32(20) {
		body := make([]byte, 2+int(i)*5000)
		for _, x := range []*peer{p, plain} {
			x.send(request(i%2, i, body))
			if got := x.mustRead(i); !bytes.Equal(got.Body, body) {
				t.Fatalf("answer %d: got %d bytes, want %d", i, len(got.Body), len(body))
			}
		}
	}
	p.send(request(0, 99, []byte{1}))
	if got := p.mustRead(99); !bytes.Equal(got.Body, data) {
		t.Errorf("the file: got %d bytes that differ", len(got.Body))
	}
	return s
}

func TestTransformXOR(t *testing.T) {
	s := under(t, []Transform{xor{}}, func(s *Server) net.Conn {
		p := dial(t, s)
		p.send([]byte("XO")) // not enough to tell
		p.send([]byte("R!"))
		return xorConn{p.Conn}
	})
	p := dial(t, s)
	p.send([]byte("XOX!abcdefgh"))
	p.mustEnd()
}

// tlsTransform is what a broker with a certificate would give.
type tlsTransform struct{ cfg *tls.Config }

func (tlsTransform) Name() string { return "TLS" }

func (tlsTransform) Match(first []byte) Verdict {
	if first[0] == 0x16 {
		return Mine
	}
	return NotMine
}

func (t tlsTransform) Wrap(raw net.Conn) (net.Conn, error) { return tls.Server(raw, t.cfg), nil }

func TestTransformTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	under(t, []Transform{xor{}, tlsTransform{cfg}}, func(s *Server) net.Conn {
		return tls.Client(dial(t, s).Conn, &tls.Config{InsecureSkipVerify: true})
	})
}

func TestTransformThatFails(t *testing.T) {
	causes := make(chan error, 2)
	s := listen(t, Config{Transforms: []Transform{tlsTransform{&tls.Config{}}},
		Handler: &handler{closed: func(_ *Conn, err error) { causes <- err }}})
	p := dial(t, s)
	p.send([]byte("\x16\x03\x01\x00\x05hello"))
	p.mustEnd()
	if err := <-causes; !errors.Is(err, ErrProtocol) {
		t.Errorf("cause: got %v, want ErrProtocol", err)
	}
	p = dial(t, s)
	p.send([]byte("\x16\x03\x01"))
	p.Close()
	if err := <-causes; !errors.Is(err, ErrPeerClosed) {
		t.Errorf("cause: got %v, want ErrPeerClosed", err)
	}
}
