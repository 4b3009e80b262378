package interop

import (
	"bufio"
	"net"
	"testing"
)

// TestRecorder passes frames through a proxy in both directions and looks at what was kept and what went on.
func TestRecorder(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			defer c.Close()
			for r := bufio.NewReader(c); ; {
				f, err := readFrame(r)
				if err != nil {
					return nil // the client is done
				}
				if f.Flag&2 != 0 {
					continue
				}
				b, err := (&Frame{Code: 7, Opaque: f.Opaque, Flag: 1, Body: []byte("at 10.0.0.1:80")}).append(nil)
				if err != nil {
					return err
				}
				if _, err := c.Write(b); err != nil {
					return err
				}
			}
		}()
	}()
	r := NewRecorder()
	if err := r.Proxy("127.0.0.1:0", "broker", l.Addr().String(), "10.0.0.1:80", "10.9.9.9:81"); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), r.listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f, err := c.Call(t.Context(), 34, map[string]string{"k": "v"}, []byte("body"))
		if err != nil {
			t.Fatal(err)
		}
		if string(f.Body) != "at 10.9.9.9:81" {
			t.Errorf("the client got %q", f.Body)
		}
	}
	c.Close()
	all := r.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if len(all) != recordEach {
		t.Fatalf("kept %d exchanges, want %d of one kind", len(all), recordEach)
	}
	e := all[0]
	if e.Code != 34 || e.Answer == nil || *e.Answer != 7 || e.From != "client" || e.Server != "broker" {
		t.Errorf("kept %+v", e)
	}
	if h, err := headOf(e.Response); err != nil || h.code != 7 || string(e.Response[len(e.Response)-14:]) != "at 10.0.0.1:80" {
		t.Errorf("the kept answer is not as it was sent: %v %+v %q", err, h, e.Response)
	}
	if err := r.Proxy("127.0.0.1:0", "broker", "", "long", "short"); err == nil {
		t.Error("a replacement of another length was taken")
	}
}
