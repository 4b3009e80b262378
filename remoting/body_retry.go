package remoting

import (
	"encoding/json"
	"fmt"
	"math"
)

// Types of a GroupRetryPolicy.
const (
	RetryCustomized  = "CUSTOMIZED"
	RetryExponential = "EXPONENTIAL"
)

// retryMillisMax bounds the spaces of a retry policy: ten years.
const retryMillisMax = 10 * 365 * 24 * 3600 * 1000

// GroupRetryPolicy says how a group's redeliveries are spaced.
type GroupRetryPolicy struct {
	CustomizedRetryPolicy  *CustomizedRetryPolicy  `json:"customizedRetryPolicy,omitempty"`
	ExponentialRetryPolicy *ExponentialRetryPolicy `json:"exponentialRetryPolicy,omitempty"`
	Type                   string                  `json:"type"` // CUSTOMIZED or EXPONENTIAL
}

// CustomizedRetryPolicy lists the spaces, ms.
type CustomizedRetryPolicy struct {
	Next []int64 `json:"next"`
}

// ExponentialRetryPolicy multiplies them, ms.
type ExponentialRetryPolicy struct {
	Initial    int64 `json:"initial"`
	Max        int64 `json:"max"`
	Multiplier int64 `json:"multiplier"`
}

// UnmarshalJSON reads the policy; what is absent has Java's default.
func (p *CustomizedRetryPolicy) UnmarshalJSON(b []byte) error {
	type plain CustomizedRetryPolicy
	const s, m, h = 1000, 60_000, 3_600_000
	q := plain{Next: []int64{s, 5 * s, 10 * s, 30 * s, m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m, 7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, h, 2 * h}}
	if err := json.Unmarshal(b, &q); err != nil {
		return err
	}
	*p = CustomizedRetryPolicy(q)
	return nil
}

// UnmarshalJSON reads the policy; what is absent has Java's default.
func (p *ExponentialRetryPolicy) UnmarshalJSON(b []byte) error {
	type plain ExponentialRetryPolicy
	q := plain{Initial: 5_000, Max: 7_200_000, Multiplier: 2}
	if err := json.Unmarshal(b, &q); err != nil {
		return err
	}
	*p = ExponentialRetryPolicy(q)
	return nil
}

// Check says what of the policy makes no sense: an unknown type, a list without
// an entry, a space below 0 or above ten years, a multiplier below 1.
func (p *GroupRetryPolicy) Check() error {
	if p.Type != RetryCustomized && p.Type != RetryExponential {
		return fmt.Errorf("groupRetryPolicy.type: got %.40q, want %s or %s", p.Type, RetryCustomized, RetryExponential)
	}
	if c := p.CustomizedRetryPolicy; c != nil {
		if len(c.Next) == 0 {
			return fmt.Errorf("customizedRetryPolicy.next: got no entry, want at least one")
		}
		for i, millis := range c.Next {
			if millis < 0 || millis > retryMillisMax {
				return fmt.Errorf("customizedRetryPolicy.next[%d]: got %d ms, want 0 to %d", i, millis, int64(retryMillisMax))
			}
		}
	}
	if e := p.ExponentialRetryPolicy; e != nil && (e.Initial < 0 || e.Initial > retryMillisMax || e.Max < 0 || e.Max > retryMillisMax || e.Multiplier < 1) {
		return fmt.Errorf("exponentialRetryPolicy: got initial %d, max %d, multiplier %d, want 0 to %d ms for the first two and a multiplier of at least 1",
			e.Initial, e.Max, e.Multiplier, int64(retryMillisMax))
	}
	return nil
}

// Next gives the space, ms, before the redelivery of a message that has been
// redelivered times times. ok is false where the policy has no list of its own,
// so that the broker's delay levels count. (As
// CustomizedRetryPolicy#nextDelayDuration and its exponential brother, 5.3: the
// list's first two entries are passed over, as the first two delay levels are.)
func (p *GroupRetryPolicy) Next(times int32) (millis int64, ok bool) {
	times = max(times, 0)
	switch {
	case p.Type == RetryExponential && p.ExponentialRetryPolicy != nil:
		e := p.ExponentialRetryPolicy
		space := float64(e.Initial) * math.Pow(float64(e.Multiplier), float64(min(times, 32)))
		return int64(min(space, float64(e.Max))), true
	case p.Type == RetryCustomized && p.CustomizedRetryPolicy != nil && len(p.CustomizedRetryPolicy.Next) > 0:
		next := p.CustomizedRetryPolicy.Next
		return next[min(int64(times)+2, int64(len(next)-1))], true
	}
	return 0, false
}
