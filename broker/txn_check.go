package broker

import (
	"errors"
	"strconv"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/engine"
	"github.com/ringmq/ringmq/message"
	"github.com/ringmq/ringmq/remoting"
)

// A verdict is what a check finds of a half message.
type verdict uint8

const (
	tooYoung verdict = iota
	toAsk            // a copy is appended, and its producer asked
	toGiveUp         // it is moved to TRANS_CHECK_MAX_TIME_TOPIC
)

// A checkUp is a half message on its way through a check.
type checkUp struct {
	half    *half
	verdict verdict
	m       message.Message // what is appended for it
	group   string
	to      checkTarget // its producer; nil when none is there
}

// check is one round: it asks the producers of all half messages that wait for
// longer than they should, and gives up those that were asked often enough.
// Young ones don't keep those behind them waiting. (As
// TransactionalMessageServiceImpl#check, 5.3; see docs/compatibility.md.)
func (t *transactions) check() {
	list := t.pending()
	now := t.b.now().UnixMilli()
	for len(list) > 0 {
		select {
		case <-t.stop:
			return
		default:
		}
		var ups []checkUp
		size := 0
		for len(list) > 0 && len(ups) < deliveryCountMax && size < deliveryBytesMax {
			h := list[0]
			list = list[1:]
			up, err := t.examine(h, now)
			if err != nil {
				t.fail("a half message can't be read", err)
				return
			}
			if up.verdict != tooYoung {
				ups = append(ups, up)
				size += len(up.m.Body) + len(up.m.Properties)
			}
		}
		if ups = t.take(ups); len(ups) > 0 && !t.appendChecked(ups) {
			return
		}
		t.writeDueOps()
	}
}

// examine reads a half message and says what is due for it. The error is the
// disk's.
func (t *transactions) examine(h *half, now int64) (up checkUp, err error) {
	if h.due > now {
		return up, nil
	}
	rec, err := t.b.store.ByOffset(h.at)
	if errors.Is(err, engine.ErrNoRecord) {
		return up, t.forget(h, err)
	}
	if err != nil {
		return up, err
	}
	up = checkUp{half: h}
	if _, err := message.Decode(rec, &up.m); err != nil {
		return checkUp{}, t.forget(h, err)
	}
	up.verdict, h.due = t.judge(&up.m, h, now)
	group, _ := message.Property(up.m.Properties, message.PropProducerGroup)
	up.group = string(group)
	if up.verdict == toAsk {
		var online bool
		if up.to, online = t.producer(up.group); up.to == nil && online {
			up.verdict = tooYoung // all of them are busy reading: next time
			return up, nil
		}
		t.stampCheck(&up.m)
		up.m.PreparedTransactionOffset = h.origin + 1
		if len(up.m.Properties) > message.PropertiesBytesMax {
			up.verdict = toGiveUp
			up.m.Properties = message.PropertiesOf(rec)
		}
	}
	return up, nil
}

// judge says what is due for a half message, and until when it needs not be
// looked at. A born time in the future counts as the time it was stored.
func (t *transactions) judge(m *message.Message, h *half, now int64) (v verdict, due int64) {
	if h.stored == 0 {
		h.stored = m.StoreMillis
	}
	checks, asked := checkTimes(m.Properties)
	tooOld := h.stored + t.b.cfg.FileReservedTime.Milliseconds() + 1
	if asked && checks >= int64(t.b.cfg.TransactionCheckMax) || now >= tooOld {
		return toGiveUp, 0
	}
	if m.StoreMillis >= now {
		return tooYoung, 0
	}
	since := m.BornMillis
	if since > now {
		since = m.StoreMillis
	}
	patience := t.b.cfg.TransactionTimeOut.Milliseconds()
	if s, ok := message.Property(m.Properties, message.PropCheckImmunityTime); ok {
		if n, err := strconv.ParseInt(string(s), 10, 64); err == nil && n != -1 {
			patience = secondsToMillis(n)
		}
	}
	if now-since < patience {
		return tooYoung, min(since+patience, tooOld)
	}
	return toAsk, 0
}

// checkTimes reads how often the producer was asked.
func checkTimes(props []byte) (n int64, asked bool) {
	v, ok := message.Property(props, message.PropTransactionCheckTimes)
	if !ok {
		return 0, false
	}
	i, err := remoting.ParseInt32(v)
	if err != nil {
		return -1, true
	}
	return int64(i), true
}

// stampCheck makes m the next copy of its half message.
func (t *transactions) stampCheck(m *message.Message) {
	n, _ := checkTimes(m.Properties)
	m.Properties = setProperty(m.Properties, message.PropTransactionCheckTimes, strconv.FormatInt(n+1, 10))
}

// forget drops a half message whose record is gone or no record.
func (t *transactions) forget(h *half, why error) error {
	t.lock()
	defer t.mu.Unlock()
	if h.state != halfPending || t.halves[h.origin] != h {
		return nil
	}
	t.log.Warn("a half message can't be read any more, it is passed over", "commitLogOffset", h.at, "queueOffset", h.queue, "error", why)
	delete(t.halves, h.origin)
	t.through(opEntry{queue: h.queue, scan: scanNothing})
	return nil
}

// take claims the halves of a check that are still undecided.
func (t *transactions) take(ups []checkUp) (taken []checkUp) {
	if len(ups) == 0 {
		return nil
	}
	scan := t.b.store.Marks().Written
	t.lock()
	defer t.mu.Unlock()
	for _, up := range ups {
		h := up.half
		if h.state != halfPending || t.halves[h.origin] != h {
			continue
		}
		if up.verdict == toGiveUp {
			h.state, h.scan = halfEnding, scan
			t.ending[h] = true
		} else {
			h.state = halfChecking
		}
		taken = append(taken, up)
	}
	if len(taken) > 0 {
		t.checked = make(chan struct{})
	}
	return taken
}

// appendChecked appends what a check makes of its half messages, and asks their
// producers. False when the log doesn't take it now.
func (t *transactions) appendChecked(ups []checkUp) bool {
	t.batch.Reset()
	var failed error
	for i := range ups {
		up := &ups[i]
		tags, _ := message.Property(up.m.Properties, message.PropTags)
		item := engine.Item{Queue: t.half, TagsCode: message.TagsCode(tags)}
		if up.verdict == toGiveUp {
			topic, _, err := t.b.topics.Ensure(meta.NewTopic(meta.TransCheckMaxTopic, 1, remoting.PermRead|remoting.PermWrite))
			if failed = err; err != nil {
				break
			}
			up.m.Topic, up.m.QueueID, up.m.PreparedTransactionOffset = []byte(topic.Name), 0, up.half.at+1
			item.Queue = t.b.store.Queue(topic.Name, 0)
		}
		if failed = t.add(&up.m, item); failed != nil {
			break
		}
	}
	if failed == nil {
		t.append()
		failed = t.batch.Err
	} else {
		t.batch.Items = t.batch.Items[:0] // nothing of it was put
	}
	t.settleChecked(ups)
	stored := 0
	for i := range t.batch.Items {
		if !t.batch.Items[i].Status.Stored() {
			continue
		}
		stored++
		if up := &ups[i]; up.verdict == toAsk && up.to != nil {
			t.ask(up, &t.batch.Items[i])
		}
	}
	if failed != nil {
		t.fail("the log takes no half messages", failed)
		return stored > 0
	}
	t.failing.Store(false)
	return true
}

// settleChecked takes in what became of a check's half messages.
func (t *transactions) settleChecked(ups []checkUp) {
	t.lock()
	defer t.mu.Unlock()
	close(t.checked)
	t.checked = nil
	before := t.stats.GivenUp
	for i := range ups {
		up, h := &ups[i], ups[i].half
		stored := i < len(t.batch.Items) && t.batch.Items[i].Status.Stored()
		switch {
		case up.verdict == toGiveUp && stored:
			t.end(h, givenUp, nil)
		case up.verdict == toGiveUp:
			h.state = halfPending
			delete(t.ending, h)
		case stored:
			item := &t.batch.Items[i]
			t.through(opEntry{queue: h.queue, scan: scanNothing})
			h.at, h.queue, h.state = item.LogOffset, item.QueueOffset, halfPending
			if h.queue >= t.seen {
				t.ahead[h.queue] = false
			}
			t.stats.Checks++
			if up.to != nil {
				t.stats.Asked++
			}
		default:
			h.state = halfPending
		}
	}
	if n := t.stats.GivenUp - before; n > 0 {
		t.log.Warn("transactions given up: their producers were asked too often, or they are too old",
			"transactions", n, "to", meta.TransCheckMaxTopic, "lastGroup", ups[len(ups)-1].group)
	}
}

// ask sends CHECK_TRANSACTION_STATE (39), one-way, to a producer. The body is the
// copy as it would be in its real topic. (As
// AbstractTransactionalMessageCheckListener#sendCheckMessage, 5.3.)
func (t *transactions) ask(up *checkUp, item *engine.Item) {
	uniq, _ := message.Property(up.m.Properties, message.PropUniqKey)
	h := remoting.CheckTransactionHeader{
		Topic: meta.HalfTopic, TranStateTableOffset: int64(item.QueueOffset), CommitLogOffset: int64(item.LogOffset),
		MsgID: string(uniq), TransactionID: string(uniq),
		OffsetMsgID: string(message.AppendOffsetID(nil, t.b.addr, item.LogOffset)), BrokerName: t.b.cfg.BrokerName,
	}
	m := up.m
	topic, _ := message.Property(m.Properties, message.PropRealTopic)
	id, _ := message.Property(m.Properties, message.PropRealQueueID)
	n, _ := remoting.ParseInt32(id)
	m.Topic, m.QueueID, m.StoreMillis, m.PreparedTransactionOffset = topic, n, item.StoreMillis, 0
	m.QueueOffset, m.PhysicalOffset = item.QueueOffset, item.LogOffset
	body, err := message.Append(nil, &m)
	if err != nil {
		t.log.Error("BUG: a copy that was stored can't be encoded", "error", err)
		return
	}
	cmd := h.Command()
	cmd.Flag |= remoting.FlagOneway
	cmd.Body = body
	up.to.Send(remoting.Append(nil, cmd))
}
