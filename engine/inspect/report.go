package inspect

import (
	"fmt"
	"time"
)

// Severity says what a finding means.
type Severity string

// Severities.
const (
	// Damage is something that was stored and can't be read, or tells wrong
	// things.
	Damage Severity = "damage"
	// Repairs is something that the next start of a broker puts right by itself.
	Repairs Severity = "repaired-at-start"
	// Note is worth knowing and harmless.
	Note Severity = "note"
)

// A Finding is one thing that isn't as it should be.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Offset   int64    `json:"offset"` // in the file; -1 for the file as a whole
	What     string   `json:"what"`

	fix fix // what a repair does about it
}

// String is the finding in a line.
func (f Finding) String() string {
	if f.Offset < 0 {
		return fmt.Sprintf("%s: %s: %s", f.Severity, f.File, f.What)
	}
	return fmt.Sprintf("%s: %s at %d: %s", f.Severity, f.File, f.Offset, f.What)
}

// A Report is what Verify saw.
type Report struct {
	Dir          string        `json:"dir"`
	Clean        bool          `json:"cleanStop"` // the last broker here stopped cleanly
	From         int64         `json:"fromLogOffset"`
	To           int64         `json:"toLogOffset"` // behind the last record
	Segments     int           `json:"segments"`
	Records      int64         `json:"records"`
	Bytes        int64         `json:"recordBytes"`
	Queues       int           `json:"queues"`
	Entries      int64         `json:"queueEntries"`
	IndexFiles   int           `json:"indexFiles"`
	IndexEntries int64         `json:"indexEntries"`
	Tables       int           `json:"tables"`
	Damaged      int64         `json:"damaged"` // findings of this severity, those not kept included
	Repairs      int64         `json:"repairedAtStart"`
	Notes        int64         `json:"notes"`
	Findings     []Finding     `json:"findings"`
	Elapsed      time.Duration `json:"elapsedNanos"`

	most int
}

// OK says that nothing is damaged.
func (r *Report) OK() bool { return r.Damaged == 0 }

// add notes a finding. What it returns may be given a fix; a finding too many
// is not kept.
func (r *Report) add(s Severity, file string, off int64, format string, args ...any) *Finding {
	switch s {
	case Damage:
		r.Damaged++
	case Repairs:
		r.Repairs++
	default:
		r.Notes++
	}
	f := Finding{Severity: s, File: file, Offset: off, What: fmt.Sprintf(format, args...)}
	if len(r.Findings) >= r.most {
		return &f
	}
	r.Findings = append(r.Findings, f)
	return &r.Findings[len(r.Findings)-1]
}
