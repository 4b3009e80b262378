package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTransactionStores starts each broker over the other's store, stopped with transactions in every state, and back
// again: what is decided stays so, what is pending is asked for and can be decided, nothing comes twice. What the two
// brokers wrote is compared, record by record.
func TestTransactionStores(t *testing.T) {
	all := targets(t)
	if len(all) != 2 {
		t.Skip("INTEROP_TARGET leaves one out")
	}
	written := map[string]map[string]txnRecord{}
	for i, first := range all {
		t.Run(first+" first", func(t *testing.T) {
			written[first] = exchangeTransactions(t, first, all[1-i])
		})
	}
	for what, want := range written["apache"] {
		got, ok := written["ringmq"][what]
		if !ok || got.String() != want.String() {
			t.Errorf("%s: Apache wrote\n%v\nringmq\n%v", what, want, got)
		}
	}
}

// txnProducer is a producer over a raw connection, which notes what it is asked.
type txnProducer struct {
	t    *testing.T
	ctx  context.Context
	conn *Conn
	sent map[string]map[string]string // fields of END_TRANSACTION, by body
}

const txnTopic, txnGroup, halfTopic, opTopic = "TxnExchange", "txn_exchange", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"

func newTxnProducer(t *testing.T, s *Servers) *txnProducer {
	t.Helper()
	p := &txnProducer{t: t, ctx: t.Context(), sent: map[string]map[string]string{}}
	var err error
	if p.conn, err = dialAsked(p.ctx, s.Broker, make(chan *Frame, 1000)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.conn.Close)
	p.call(34, nil, []byte(`{"clientID":"txn","producerDataSet":[{"groupName":"`+txnGroup+`"}],"consumerDataSet":[]}`))
	return p
}

func (p *txnProducer) call(code int, fields map[string]string, body []byte) *Frame {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 20*time.Second)
	defer cancel()
	f, err := p.conn.Call(ctx, code, fields, body)
	if err != nil {
		p.t.Fatalf("code %d: %v", code, err)
	}
	if f.Code != 0 && code != 11 {
		p.t.Fatalf("code %d: answered %d %s", code, f.Code, f.Remark)
	}
	return f
}

func (p *txnProducer) half(body, more string) {
	p.t.Helper()
	props := "TRAN_MSG\x01true\x02PGROUP\x01" + txnGroup + "\x02TAGS\x01t\x02KEYS\x01k" + body + "\x02UNIQ_KEY\x01U" + body + "\x02mine\x01kept\x02" + more
	r := p.call(310, map[string]string{"a": txnGroup, "b": txnTopic, "c": "TBW102", "d": "4", "e": "1", "f": "4", "g": fmt.Sprint(time.Now().UnixMilli()),
		"h": "5", "i": props, "j": "0", "k": "false", "m": "false"}, []byte(body))
	at, err := strconv.ParseInt(r.ExtFields["msgId"][16:], 16, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	p.sent[body] = map[string]string{"producerGroup": txnGroup, "tranStateTableOffset": r.ExtFields["queueOffset"], "commitLogOffset": fmt.Sprint(at),
		"fromTransactionCheck": "false", "msgId": "U" + body, "transactionId": "U" + body}
}

func (p *txnProducer) end(body, how string) {
	p.t.Helper()
	fields := maps.Clone(p.sent[body])
	fields["commitOrRollback"] = how
	p.call(37, fields, nil)
}

// awaitAsked takes checks until each of the bodies was asked for, and remembers how to answer. Others are a fault.
func (p *txnProducer) awaitAsked(bodies ...string) {
	p.t.Helper()
	left := slices.Clone(bodies)
	for deadline := time.After(40 * time.Second); len(left) > 0; {
		select {
		case f := <-p.conn.asked:
			body := p.take(f)
			if !slices.Contains(bodies, body) {
				p.t.Errorf("asked for %s, want %v", body, bodies)
			}
			left = slices.DeleteFunc(left, func(s string) bool { return s == body })
		case <-deadline:
			p.t.Fatalf("never asked for %v", left)
		}
	}
}

func (p *txnProducer) take(f *Frame) (body string) {
	rs, err := parseRecords(f.Body)
	if err != nil || len(rs) != 1 {
		p.t.Fatalf("body of a check: %d records, %v", len(rs), err)
	}
	body = string(rs[0].body)
	p.sent[body] = map[string]string{"producerGroup": txnGroup, "tranStateTableOffset": f.ExtFields["tranStateTableOffset"],
		"commitLogOffset": f.ExtFields["commitLogOffset"], "fromTransactionCheck": "true"}
	return body
}

// quiet waits for some rounds of checks, in which nothing may be asked.
func (p *txnProducer) quiet() {
	p.t.Helper()
	time.Sleep(6 * time.Second)
	for {
		select {
		case f := <-p.conn.asked:
			p.t.Errorf("asked for %s", p.take(f))
		default:
			return
		}
	}
}

func (p *txnProducer) pull(topic string, queue int) (all []txnRecord) {
	p.t.Helper()
	for next := 0; ; {
		f := p.call(11, map[string]string{"consumerGroup": "txn_look", "topic": topic, "queueId": fmt.Sprint(queue), "queueOffset": fmt.Sprint(next),
			"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}, nil)
		if f.Code != 0 {
			return all
		}
		for b := f.Body; len(b) > 0; b = b[binary.BigEndian.Uint32(b):] {
			all = append(all, parseTxnRecord(b))
		}
		next, _ = strconv.Atoi(f.ExtFields["nextBeginOffset"])
	}
}

func (p *txnProducer) want(bodies ...string) {
	p.t.Helper()
	var got []string
	for _, r := range p.pull(txnTopic, 1) {
		got = append(got, r.body)
	}
	slices.Sort(got)
	if slices.Sort(bodies); !slices.Equal(got, bodies) {
		p.t.Errorf("the topic holds %q, want %q", got, bodies)
	}
}

// txnRecord is what two brokers must write alike.
type txnRecord struct {
	topic, body   string
	queue         int32
	flag, sysFlag int32
	prepared      int64
	props         map[string]string
}

func (r txnRecord) String() string {
	return fmt.Sprintf("%s-%d flag %d sysFlag %d body %q %v", r.topic, r.queue, r.flag, r.sysFlag, r.body, r.props)
}

// parseTxnRecord reads a record of IPv4 hosts.
func parseTxnRecord(b []byte) (r txnRecord) {
	be := binary.BigEndian
	r.queue, r.flag, r.sysFlag = int32(be.Uint32(b[12:])), int32(be.Uint32(b[16:])), int32(be.Uint32(b[36:]))
	r.prepared = int64(be.Uint64(b[76:]))
	at := 84
	n := int(be.Uint32(b[at:]))
	r.body = string(b[at+4 : at+4+n])
	at += 4 + n
	n = int(b[at])
	r.topic = string(b[at+1 : at+1+n])
	at += 1 + n
	n = int(be.Uint16(b[at:]))
	r.props = map[string]string{}
	for pair := range bytes.SplitSeq(b[at+2:at+2+n], []byte{2}) {
		if name, value, ok := bytes.Cut(pair, []byte{1}); ok {
			r.props[string(name)] = string(value)
		}
	}
	return r
}

// exchangeTransactions is one way there and back; it gives what the first broker wrote.
func exchangeTransactions(t *testing.T, first, second string) map[string]txnRecord {
	dir := t.TempDir()
	run := func(target string, steps func(p *txnProducer)) {
		s, err := NewServers(target, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err, s.Logs())
		}
		steps(newTxnProducer(t, s))
		if t.Failed() {
			t.Log(s.Logs())
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	written := map[string]txnRecord{}
	var immune map[string]string
	run(first, func(p *txnProducer) {
		p.half("commit", "")
		p.half("rollback", "")
		p.half("p0", "")
		p.half("p1", "")
		p.half("immune", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01600\x02")
		immune = p.sent["immune"]
		p.end("commit", "8")
		p.end("rollback", "12")
		p.awaitAsked("p0", "p1")
		time.Sleep(time.Second) // decisions are written down
		p.want("commit")
		for _, r := range p.pull(halfTopic, 0) {
			what := fmt.Sprintf("half message %s of %s checks", r.body, r.props["TRANSACTION_CHECK_TIMES"])
			if _, seen := written[what]; !seen && r.props["TRAN_PREPARED_QUEUE_OFFSET"] == "" {
				if strings.Contains(what, " 1 ") {
					r.flag = 5 // Apache's copies lose it
				}
				if len(r.props["TRANSACTION_CHECK_TIMES"]) == 0 || r.props["TRANSACTION_CHECK_TIMES"] == "1" {
					written[what] = r
				}
			}
		}
		for _, r := range p.pull(txnTopic, 1) {
			written["committed "+r.body] = r
		}
		for _, r := range p.pull(opTopic, 0) {
			if r.body != "" && !strings.Contains(r.props["TAGS"], "d") {
				t.Errorf("op record %v", r)
			}
			r.body = "" // how many it names is the broker's choice
			written["op record"] = r
		}
	})
	run(second, func(p *txnProducer) {
		p.awaitAsked("p0", "p1")
		p.sent["immune"] = immune
		p.end("p0", "8")
		p.end("p1", "12")
		p.end("immune", "8")
		time.Sleep(2 * time.Second)
		for len(p.conn.asked) > 0 {
			<-p.conn.asked
		}
		p.quiet()
		p.want("commit", "p0", "immune")
	})
	run(first, func(p *txnProducer) {
		p.quiet()
		p.want("commit", "p0", "immune")
	})
	return written
}
