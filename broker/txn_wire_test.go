package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	rpc "github.com/ringmq/ringmq/client"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

func endFields(group string, sent *remoting.Command, how int, check bool) []string {
	_, at, err := message.ParseOffsetID(sent.GetString("msgId"))
	if err != nil {
		panic(err)
	}
	return []string{"producerGroup", group, "commitLogOffset", fmt.Sprint(int64(at)), "tranStateTableOffset", sent.GetString("queueOffset"),
		"commitOrRollback", fmt.Sprint(how), "fromTransactionCheck", fmt.Sprint(check), "msgId", "u", "transactionId", sent.GetString("transactionId")}
}

const tranProps = "TRAN_MSG=true;PGROUP=pg;TAGS=a;UNIQ_KEY=u"

// A producer's half message, its decision, and a consumer that waits for it.
func TestTransactionOverTheWire(t *testing.T) {
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			b := startBroker(t, func(c *Config) { c.FlushDiskType = flush })
			c, consumer := dial(t, b), dial(t, b)
			call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("plain"), sendFields("T", 2, "")...)
			sent := call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 2, tranProps, "f", "4")...)
			for key, want := range map[string]string{"queueId": "2", "queueOffset": "0", "transactionId": "u"} {
				if got := sent.GetString(key); got != want {
					t.Errorf("answer's %s: got %q, want %q", key, got, want)
				}
			}
			call(t, consumer, remoting.ReqPullMessage, remoting.PullNotFound, nil, pullFields("T", 2, 1)...)
			answer := make(chan []string, 1)
			go func() {
				resp := call(t, consumer, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 2, 1, "sysFlag", "6", "suspendTimeoutMillis", "8000")...)
				answer <- bodies(t, resp)
			}()
			for b.holds.held.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			call(t, c, remoting.ReqEndTransaction, remoting.SystemError, nil, endFields("wrong", sent, 8, false)...)
			call(t, c, remoting.ReqEndTransaction, remoting.Success, nil, endFields("pg", sent, 8, false)...)
			if got := fmt.Sprint(<-answer); got != "[x]" {
				t.Errorf("the waiting consumer got %s", got)
			}
			call(t, c, remoting.ReqEndTransaction, remoting.SystemError, nil, endFields("pg", sent, 12, false)...)
			call(t, c, remoting.ReqEndTransaction, remoting.SystemError, nil, "producerGroup", "pg", "commitOrRollback", "8")
		})
	}
}

// A request that decides nothing is never answered.
func TestUndecidedIsNotAnswered(t *testing.T) {
	c := dial(t, startBroker(t, nil))
	sent := call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 2, tranProps)...)
	req := remoting.NewRequest(remoting.ReqEndTransaction)
	for f := endFields("pg", sent, 0, false); len(f) > 0; f = f[2:] {
		req.Set(f[0], f[1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if resp, err := c.Call(ctx, req); err == nil {
		t.Errorf("answered with %d %s", resp.Code, resp.Remark)
	}
}

// A producer that is silent is asked on its connection, again after a restart of
// the broker; its answer counts.
func TestCheckOverTheWire(t *testing.T) {
	dir := t.TempDir()
	often := func(c *Config) {
		c.TransactionCheckInterval, c.TransactionTimeOut, c.TransactionCheckMax = 50*time.Millisecond, 0, 1000
	}
	b := startBrokerIn(t, dir, often)
	call(t, dial(t, b), remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 2, tranProps)...)
	for b.transactions.Stats().Checks == 0 {
		time.Sleep(time.Millisecond)
	}
	stopBroker(t, b)
	b = startBrokerIn(t, dir, often)
	asked := make(chan sentHalf, 1000)
	c, err := rpc.Dial(t.Context(), b.Addrs()[0].String(), rpc.Options{OnRequest: func(_ *rpc.Conn, req *remoting.Command) {
		if req.Code == remoting.ReqCheckTransactionState {
			s, _ := answer(req)
			asked <- s
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	call(t, c, remoting.ReqHeartBeat, remoting.Success, remoting.MarshalBody(remoting.HeartbeatData{
		ClientID: "p", ProducerDataSet: []remoting.ProducerData{{GroupName: "pg"}}}))
	s := <-asked
	if s.body != "x" {
		t.Errorf("asked for %q", s.body)
	}
	call(t, c, remoting.ReqEndTransaction, remoting.Success, nil, "producerGroup", "pg", "commitLogOffset", fmt.Sprint(int64(s.at)),
		"tranStateTableOffset", fmt.Sprint(int64(s.queue)), "commitOrRollback", "8", "fromTransactionCheck", "true")
	got := call(t, c, remoting.ReqPullMessage, remoting.Success, nil, pullFields("T", 2, 0)...)
	if s := fmt.Sprint(bodies(t, got)); s != "[x]" {
		t.Errorf("pulled %s", s)
	}
	if st := b.transactions.Stats(); st.Pending != 0 || st.Committed != 1 || st.Asked == 0 {
		t.Errorf("counts %+v", st)
	}
}

// Each producer of the group is asked in turn.
func TestProducersAreAskedInTurn(t *testing.T) {
	b := startBroker(t, nil)
	for _, id := range []string{"a", "b"} {
		call(t, dial(t, b), remoting.ReqHeartBeat, remoting.Success, remoting.MarshalBody(remoting.HeartbeatData{
			ClientID: id, ProducerDataSet: []remoting.ProducerData{{GroupName: "pg"}}}))
	}
	count := map[uint64]int{}
	for turn := range uint64(10) {
		c, online := b.clients.askedProducer("pg", turn, 0)
		if c == nil || !online {
			t.Fatal("no producer found")
		}
		count[c.ID()]++
	}
	if len(count) != 2 {
		t.Errorf("asked %v, want two in turn", count)
	}
	for id, n := range count {
		if n != 5 {
			t.Errorf("connection %d was asked %d times, want 5", id, n)
		}
	}
	if c, online := b.clients.askedProducer("pg", 0, -1); c != nil || !online {
		t.Errorf("busy ones: got %v %v, want none, and that they are there", c, online)
	}
	if c, online := b.clients.askedProducer("none", 0, 0); c != nil || online {
		t.Errorf("nobody: got %v %v", c, online)
	}
}

// A time of its own counts from the commit on.
func TestCommitWithTimer(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	sent := call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, tranProps+";TIMER_DELAY_MS=300")...)
	time.Sleep(400 * time.Millisecond)
	began := time.Now()
	call(t, c, remoting.ReqEndTransaction, remoting.Success, nil, endFields("pg", sent, 8, false)...)
	m := pullOne(t, c, "T", 0)
	if took := time.Since(began); string(m.Body) != "x" || took < 290*time.Millisecond {
		t.Errorf("%q came after %v", m.Body, took)
	}
	props(t, &m, map[string]string{"TRAN_MSG": "", "PGROUP": "pg"})
}

func TestTransactionalSends(t *testing.T) {
	b := startBroker(t, nil)
	c := dial(t, b)
	heartbeat(t, c, "A", "g", "T", "*")
	half := func() string {
		return call(t, c, remoting.ReqGetMaxOffset, remoting.Success, nil, "topic", "RMQ_SYS_TRANS_HALF_TOPIC", "queueId", "0").GetString("offset")
	}
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "TRAN_MSG=false")...)
	// What a consumer sends back that was transactional once is none of these.
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("%RETRY%g", 0, "TRAN_MSG=true;DELAY=1", "j", "1")...)
	if got := half(); got != "0" {
		t.Errorf("%s half messages, want none", got)
	}
	call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "TRAN_MSG=TRUE")...)
	sent := call(t, c, remoting.ReqSendMessageV2, remoting.Success, []byte("x"), sendFields("T", 0, "TRAN_MSG=true;DELAY=1")...)
	if got := half(); got != "2" {
		t.Errorf("%s half messages, want 2", got)
	}
	call(t, c, remoting.ReqEndTransaction, remoting.Success, nil, endFields("pg", sent, 12, false)...) // the group of its header
	call(t, c, remoting.ReqSendMessageV2, remoting.MessageIllegal, []byte("x"), sendFields("T", 0, "TRAN_MSG=true;DELAY=x")...)
	long := fmt.Sprintf("TRAN_MSG=true;P=%0*d", 32767-200, 0)
	call(t, c, remoting.ReqSendMessageV2, remoting.MessageIllegal, []byte("x"), sendFields("T", 0, long)...)
	call(t, c, remoting.ReqSendMessageV2, remoting.NoPermission, []byte("x"), sendFields("RMQ_SYS_TRANS_HALF_TOPIC", 0, "")...)

	b = startBroker(t, func(c *Config) { c.RejectTransactionMessage = true })
	call(t, dial(t, b), remoting.ReqSendMessageV2, remoting.NoPermission, []byte("x"), sendFields("T", 0, tranProps)...)
}
