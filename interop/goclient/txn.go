package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Transactions: what a producer decides, and what it says when it is asked; see java/common/interop/TxnSteps.java.
var txnSteps = []step{
	{"steady", "txn.commit", txnCommit},
	{"steady", "txn.rollback", txnRollback},
	{"steady", "txn.check", txnCheck},
}

// txnProducer decides by two functions, and remembers how often it was asked for each body.
type txnProducer struct {
	rocketmq.TransactionProducer
	decide func(body string) primitive.LocalTransactionState
	answer func(body string, times int) primitive.LocalTransactionState
	mu     sync.Mutex
	asked  map[string]int
	wrong  []string
}

func (e *env) txnProducer(group string, decide func(string) primitive.LocalTransactionState, answer func(string, int) primitive.LocalTransactionState) *txnProducer {
	p := &txnProducer{decide: decide, answer: answer, asked: map[string]int{}}
	var err error
	p.TransactionProducer, err = rocketmq.NewTransactionProducer(p, producer.WithNsResolver(e.resolver()), producer.WithInstanceName(e.instance()),
		producer.WithGroupName(e.prefix+"_tp_"+group), producer.WithSendMsgTimeout(10*time.Second))
	must("new transaction producer", err)
	must("start transaction producer", p.Start())
	return p
}

func (p *txnProducer) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return p.decide(string(m.Body))
}

func (p *txnProducer) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	p.mu.Lock()
	defer p.mu.Unlock()
	body := string(m.Body)
	p.asked[body]++
	if !strings.Contains(m.Topic, "_t_txn") || m.GetTags() != "t" || m.GetProperty("mine") != "kept" {
		p.wrong = append(p.wrong, m.String())
	}
	return p.answer(body, p.asked[body])
}

func (p *txnProducer) times(body string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[body]
}

func (p *txnProducer) end() {
	must("shutdown", p.Shutdown())
	p.mu.Lock()
	defer p.mu.Unlock()
	equal("what was asked wrongly", []string(nil), p.wrong)
}

func (p *txnProducer) send(e *env, topic, word string, from, to int) (all []*primitive.TransactionSendResult) {
	for i := from; i < to; i++ {
		m := primitive.NewMessage(topic, []byte(word+strconv.Itoa(i))).WithTag("t").WithKeys([]string{word + "key" + strconv.Itoa(i)})
		m.WithProperty("mine", "kept")
		r, err := p.SendMessageInTransaction(e.ctx, m)
		must("send in a transaction", err)
		equal("send status", primitive.SendOK, r.Status)
		all = append(all, r)
	}
	return all
}

func always(s primitive.LocalTransactionState) func(string) primitive.LocalTransactionState {
	return func(string) primitive.LocalTransactionState { return s }
}

func unknownState(string, int) primitive.LocalTransactionState { return primitive.UnkonwnState }

// byNumber commits bodies that end with an even digit, and rolls the others back.
func byNumber(body string) primitive.LocalTransactionState {
	if (body[len(body)-1]-'0')%2 == 0 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func txnCommit(e *env) string {
	topic := e.topic("txncommit", 1)
	p := e.txnProducer("commit", always(primitive.CommitMessageState), unknownState)
	sent := p.send(e, topic, "c", 0, 20)
	e.awaitStored(topic, 1, 20)
	got := e.drain(topic, 1)
	equal("messages", numbered("c", 0, 20), set(got))
	for _, m := range got { // the broker may take up commits in any order
		i, _ := strconv.Atoi(string(m.Body[1:]))
		equal("id", sent[i].MsgID, m.MsgId)
		equal("own property", "kept", m.GetProperty("mine"))
		equal("real topic", topic, m.GetProperty("REAL_TOPIC"))
		equal("type", int32(8), m.SysFlag&12)
	}
	p.end()
	return ""
}

func txnRollback(e *env) string {
	topic := e.topic("txnrollback", 1)
	p := e.txnProducer("rollback", byNumber, unknownState)
	p.send(e, topic, "r", 0, 10)
	e.awaitStored(topic, 1, 5)
	time.Sleep(5 * time.Second)
	equal("messages", []string{"r0", "r2", "r4", "r6", "r8"}, set(e.drain(topic, 1)))
	p.end()
	return ""
}

// txnCheck: the first answer decides nothing, the second does.
func txnCheck(e *env) string {
	topic := e.topic("txncheck", 1)
	p := e.txnProducer("check", always(primitive.UnkonwnState), func(body string, times int) primitive.LocalTransactionState {
		if times < 2 {
			return primitive.UnkonwnState
		}
		return byNumber(body)
	})
	p.send(e, topic, "u", 0, 10)
	e.awaitStored(topic, 1, 5)
	for i := range 10 {
		body := "u" + strconv.Itoa(i)
		e.await(20*time.Second, body+" was asked for twice", func() bool { return p.times(body) >= 2 })
	}
	time.Sleep(4500 * time.Millisecond) // nothing comes twice
	got := e.drain(topic, 1)
	equal("number of messages", 5, len(got))
	for _, m := range got {
		equal("decision on "+string(m.Body), primitive.CommitMessageState, byNumber(string(m.Body)))
		equal("checks", "2", m.GetProperty("TRANSACTION_CHECK_TIMES"))
	}
	p.end()
	return ""
}

// txnRestart: half messages that wait while the broker's process ends.
type txnRestart struct {
	round, topic string
	producer     *txnProducer
	mu           sync.Mutex
	decided      bool
}

func txnRestartSteps() (all []step) {
	for _, round := range []string{"stop", "kill"} {
		r := &txnRestart{round: round}
		all = append(all, step{"before " + round, "txn.prepare", r.prepare}, step{"after " + round, "txn.pending", r.after})
	}
	return all
}

func (r *txnRestart) prepare(e *env) string {
	r.topic = e.topic("txn"+r.round, 1)
	r.producer = e.txnProducer(r.round, func(body string) primitive.LocalTransactionState {
		switch body[0] {
		case 'c':
			return primitive.CommitMessageState
		case 'r':
			return primitive.RollbackMessageState
		}
		return primitive.UnkonwnState
	}, func(body string, _ int) primitive.LocalTransactionState {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.decided || body[0] != 'p' {
			return primitive.UnkonwnState
		}
		return byNumber(body)
	})
	r.producer.send(e, r.topic, "c", 0, 5)
	r.producer.send(e, r.topic, "r", 0, 5)
	r.producer.send(e, r.topic, "p", 0, 10)
	e.awaitStored(r.topic, 1, 5)
	e.await(20*time.Second, "the pending are asked for", func() bool { return r.producer.times("p9") > 0 })
	time.Sleep(time.Second) // decisions are written down
	return ""
}

// after: Apache's broker may make two of one half message by a kill.
func (r *txnRestart) after(e *env) string {
	r.mu.Lock()
	r.decided = true
	r.mu.Unlock()
	want := append(numbered("c", 0, 5), "p0", "p2", "p4", "p6", "p8")
	var got []string
	e.awaitf(45*time.Second, func() string { return fmt.Sprint("all come, lack ", missing(want, got)) }, func() bool {
		got = bodies(e.drain(r.topic, 1))
		return len(missing(want, got)) == 0
	})
	time.Sleep(4500 * time.Millisecond)
	all := e.drain(r.topic, 1)
	r.producer.end()
	equal("messages", want, set(all))
	check(r.round == "kill" || len(all) == 10, "some came twice: %v", bodies(all))
	return fmt.Sprint(len(all)-10, " doubled")
}
