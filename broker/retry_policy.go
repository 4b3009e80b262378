package broker

import (
	"strconv"
	"time"

	"github.com/ringmq/ringmq/broker/meta"
	"github.com/ringmq/ringmq/message"
)

// A group's own retry policy (GroupRetryPolicy of SubscriptionGroupConfig) says
// how long a failed message waits that its consumer sends back without saying so.
// Apache has the policy obeyed by its proxy alone; here it counts for every client.
// A group without a list or a formula of its own goes by the delay levels, from
// the third on.

// retryLevel is the delay level of a group without a policy of its own, or 0 and
// the wait, ms, that its policy wants.
func (b *Broker) retryLevel(g *meta.Group, times int32) (level int32, millis int64) {
	millis, own := g.GroupRetryPolicy.Next(times)
	if !own {
		return firstRetryLevel + times, 0
	}
	for i, d := range b.levels.all() {
		if d.Milliseconds() == millis {
			return int32(i) + 1, 0
		}
	}
	return 0, millis
}

// waitUntil sends m to where messages wait for a time of their own, to come back
// at to after millis; at once when that is 0. It says false when there is no such
// place: timerWheelEnable=false, or the time is too far.
func (b *Broker) waitUntil(m *message.Message, props []byte, to target, millis int64) (target, bool) {
	if millis == 0 {
		m.Properties = props
		return to, true
	}
	now := b.now().UnixMilli()
	due := strconv.FormatInt(now+millis, 10)
	found := sentProps{timer: []byte(due), timerBy: byDeliverMs, real: true}
	props, err := b.postpone(message.AppendProperty(props, message.PropTimerDeliverMs, due), &found, &to, now)
	if err != nil {
		return to, false
	}
	m.Properties = props
	return to, true
}

// levelOf is the delay level that comes next to a wait: the shortest that isn't
// shorter, else the longest.
func (b *Broker) levelOf(millis int64) int32 {
	best := int32(0)
	all := b.levels.all()
	for i, d := range all {
		if best == 0 || nearer(d, all[best-1], millis) {
			best = int32(i) + 1
		}
	}
	return best
}

// nearer says whether a wait of d is better than one of best, where millis are
// wanted.
func nearer(d, best time.Duration, millis int64) bool {
	a, b := d.Milliseconds(), best.Milliseconds()
	if a >= millis && b >= millis {
		return a < b
	}
	return a > b
}
