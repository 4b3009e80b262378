package interop

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Frame is a remoting command in the JSON serialization, written here once more on purpose: a fault in ringmq's own
// remoting package must not hide itself from this suite.
//
//	int32 length of what follows | int8 0 (JSON) int24 header length | header JSON | body
type Frame struct {
	Code      int               `json:"code"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Opaque    int32             `json:"opaque"`
	Flag      int               `json:"flag"` // bit 0: response, bit 1: one-way
	Remark    string            `json:"remark,omitempty"`
	ExtFields map[string]string `json:"extFields,omitempty"`
	Body      []byte            `json:"-"`
}

// append encodes the frame behind dst.
func (f *Frame) append(dst []byte) ([]byte, error) {
	head, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(4+len(head)+len(f.Body)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(head)))
	return append(append(dst, head...), f.Body...), nil
}

// readFrame reads one frame in the JSON serialization.
func readFrame(r io.Reader) (*Frame, error) {
	var lens [8]byte
	if _, err := io.ReadFull(r, lens[:]); err != nil {
		return nil, err
	}
	total, head := binary.BigEndian.Uint32(lens[:4]), binary.BigEndian.Uint32(lens[4:])
	if head>>24 != 0 || total > 64<<20 || head+4 > total {
		return nil, fmt.Errorf("frame lengths %x", lens)
	}
	b := make([]byte, total-4)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	f := &Frame{Body: b[head:]}
	return f, json.Unmarshal(b[:head], f)
}

// Conn is a raw connection that pairs answers with requests by opaque. Call may run on many goroutines; requests of
// the server's own go to asked. Close ends its reader.
type Conn struct {
	c     net.Conn
	next  atomic.Int32
	done  chan struct{} // closed by the reader when the connection is over
	asked chan *Frame   // gets the server's own requests, when not nil; those it has no room for are dropped

	mu      sync.Mutex // of the fields below, and one writer at a time
	waiting map[int32]chan *Frame
	err     error
}

// Dial connects.
func Dial(ctx context.Context, addr string) (*Conn, error) { return dialAsked(ctx, addr, nil) }

// dialAsked connects; asked gets the server's own requests.
func dialAsked(ctx context.Context, addr string, asked chan *Frame) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{c: nc, done: make(chan struct{}), asked: asked, waiting: map[int32]chan *Frame{}}
	go c.read()
	return c, nil
}

func (c *Conn) read() {
	defer close(c.done)
	r := bufio.NewReaderSize(c.c, 64<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			c.mu.Lock()
			c.err = err
			for _, w := range c.waiting {
				close(w)
			}
			c.waiting = map[int32]chan *Frame{}
			c.mu.Unlock()
			return
		}
		if f.Flag&1 == 0 {
			select {
			case c.asked <- f:
			default:
			}
			continue
		}
		c.mu.Lock()
		w := c.waiting[f.Opaque]
		delete(c.waiting, f.Opaque)
		c.mu.Unlock()
		if w != nil {
			w <- f
		}
	}
}

// Call sends one request and waits for its answer.
func (c *Conn) Call(ctx context.Context, code int, fields map[string]string, body []byte) (*Frame, error) {
	f := &Frame{Code: code, Language: "GO", Version: 479, Opaque: c.next.Add(1), ExtFields: fields, Body: body}
	b, err := f.append(nil)
	if err != nil {
		return nil, err
	}
	w := make(chan *Frame, 1)
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		return nil, err
	}
	c.waiting[f.Opaque] = w
	_, err = c.c.Write(b)
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case r, ok := <-w:
		if !ok {
			c.mu.Lock()
			defer c.mu.Unlock()
			return nil, c.err
		}
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the connection and its reader.
func (c *Conn) Close() {
	c.c.Close()
	<-c.done
}

// Ask makes one request over a connection of its own.
func Ask(ctx context.Context, addr string, code int, fields map[string]string, body []byte) (*Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Call(ctx, code, fields, body)
}

// ping succeeds when the server answers a request, whatever the code: 105 of a topic name that nobody has.
func ping(ctx context.Context, addr string) error {
	_, err := Ask(ctx, addr, 105, map[string]string{"topic": "interop_ping"}, nil)
	return err
}

// HasRoute succeeds when the NameServer knows a broker for the topic.
func HasRoute(ctx context.Context, namesrv, topic string) error {
	f, err := Ask(ctx, namesrv, 105, map[string]string{"topic": topic}, nil)
	if err == nil && f.Code != 0 {
		err = fmt.Errorf("route of %s: code %d %s", topic, f.Code, f.Remark)
	}
	return err
}

// CreateTopic is request 17, as mqadmin updateTopic sends it.
func CreateTopic(ctx context.Context, broker, topic string, queues int) error {
	q := strconv.Itoa(queues)
	f, err := Ask(ctx, broker, 17, map[string]string{"topic": topic, "defaultTopic": "TBW102", "readQueueNums": q,
		"writeQueueNums": q, "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}, nil)
	if err == nil && f.Code != 0 {
		err = fmt.Errorf("create topic %s: code %d %s", topic, f.Code, f.Remark)
	}
	return err
}

// CreateBatchTopic creates a topic whose queues are batch queues.
func CreateBatchTopic(ctx context.Context, broker, topic string, queues int) error {
	q := strconv.Itoa(queues)
	f, err := Ask(ctx, broker, 17, map[string]string{"topic": topic, "defaultTopic": "TBW102", "readQueueNums": q, "writeQueueNums": q,
		"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "+queue.type=BatchCQ"}, nil)
	if err == nil && f.Code != 0 {
		err = fmt.Errorf("create topic %s: code %d %s", topic, f.Code, f.Remark)
	}
	return err
}

// record is what this suite looks at in a stored message.
type record struct {
	queueID     int32
	queueOffset int64
	physical    int64
	body        []byte
}

// parseRecords splits the body of a pull's answer into records (v1 layout; v2 differs in the topic's length field).
func parseRecords(b []byte) ([]record, error) {
	var out []record
	for len(b) > 0 {
		if len(b) < 91 {
			return nil, fmt.Errorf("%d bytes left, less than a record", len(b))
		}
		size := int(binary.BigEndian.Uint32(b))
		if size > len(b) || size < 91 {
			return nil, fmt.Errorf("record of %d bytes, %d are left", size, len(b))
		}
		if m := binary.BigEndian.Uint32(b[4:]); m != 0xDAA320A7 {
			return nil, fmt.Errorf("record magic %x", m)
		}
		r := record{queueID: int32(binary.BigEndian.Uint32(b[12:])), queueOffset: int64(binary.BigEndian.Uint64(b[20:])),
			physical: int64(binary.BigEndian.Uint64(b[28:]))}
		at := 48 // past sysFlag (36) and born time (40)
		sys := binary.BigEndian.Uint32(b[36:])
		for _, bit := range []uint32{16, 32} { // born host; store time; store host
			at += 8
			if sys&bit != 0 {
				at += 12
			}
			if bit == 16 {
				at += 8
			}
		}
		at += 12 // reconsume times, prepared transaction offset
		if at+4 > size {
			return nil, errors.New("record ends before its body")
		}
		n := int(binary.BigEndian.Uint32(b[at:]))
		if at+4+n > size {
			return nil, errors.New("body passes the end of its record")
		}
		r.body = b[at+4 : at+4+n]
		out = append(out, r)
		b = b[size:]
	}
	return out, nil
}
