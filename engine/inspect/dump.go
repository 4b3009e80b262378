package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/message"
)

// A Selection says which records of the log to dump. Zero values select all.
type Selection struct {
	From, To int64 // log offsets, [From, To); To 0 is the end. A record must begin at From, or it is looked for
	Topic    string
	QueueID  int32 // -1 for all
	Key      string
	Limit    int
	Body     bool // with bodies
}

// A Record is one record of the log as dump shows it.
type Record struct {
	LogOffset      int64             `json:"logOffset"`
	Size           int32             `json:"size"`
	Topic          string            `json:"topic"`
	QueueID        int32             `json:"queueId"`
	QueueOffset    int64             `json:"queueOffset"`
	Flag           int32             `json:"flag"`
	SysFlag        int32             `json:"sysFlag"`
	BornTimestamp  int64             `json:"bornTimestamp"`
	BornHost       string            `json:"bornHost"`
	StoreTimestamp int64             `json:"storeTimestamp"`
	StoreHost      string            `json:"storeHost"`
	ReconsumeTimes int32             `json:"reconsumeTimes"`
	Prepared       int64             `json:"preparedTransactionOffset"`
	BodyCRC        uint32            `json:"bodyCRC"`
	CRCOK          bool              `json:"bodyCRCOK"`
	BodyBytes      int               `json:"bodyBytes"`
	Body           string            `json:"body,omitempty"`    // text
	BodyHex        string            `json:"bodyHex,omitempty"` // where it is none
	Properties     map[string]string `json:"properties"`
}

// String is the record in a line.
func (r *Record) String() string {
	s := fmt.Sprintf("%d %d bytes %s queue %d offset %d stored %s from %s", r.LogOffset, r.Size, r.Topic, r.QueueID, r.QueueOffset,
		time.UnixMilli(r.StoreTimestamp).Format("2006-01-02T15:04:05.000Z07:00"), r.BornHost)
	for _, name := range sorted(r.Properties) {
		s += fmt.Sprintf(" %s=%q", name, r.Properties[name])
	}
	if !r.CRCOK {
		s += " BODY CRC WRONG"
	}
	switch {
	case r.Body != "":
		s += fmt.Sprintf(" body %q", r.Body)
	case r.BodyHex != "":
		s += " body 0x" + r.BodyHex
	}
	return s
}

// errEnough ends a dump at its limit.
var errEnough = errors.New("enough")

// DumpLog calls fn with each selected record, in the order of the log.
func DumpLog(ctx context.Context, cfg Config, sel Selection, fn func(*Record) error) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	segments, _, err := listFiles(cfg.FS, cfg.CommitLogDir)
	if err != nil {
		return err
	}
	left := sel.Limit
	for _, s := range segments {
		if s.base+s.size <= sel.From || sel.To > 0 && s.base >= sel.To {
			continue
		}
		err := dumpSegment(ctx, &cfg, s, &sel, func(r *Record) error {
			if err := fn(r); err != nil {
				return err
			}
			if left--; left == 0 {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func dumpSegment(ctx context.Context, cfg *Config, s place, sel *Selection, fn func(*Record) error) (err error) {
	f, err := cfg.FS.Open(s.path, vfs.Read)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	start := max(0, sel.From-s.base)
	r := openSegment(f, s.base, start, s.size)
	defer r.close()
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at := s.base + r.at
		if sel.To > 0 && at >= sel.To {
			return nil
		}
		rec, blank, err := r.next(false)
		switch {
		case err == nil && blank, errors.Is(err, io.EOF), errors.Is(err, message.ErrUnwritten):
			return nil
		case errors.Is(err, message.ErrTorn):
			if _, found, err := r.resync(); err != nil || !found {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if out := sel.take(rec); out != nil {
			if err := fn(out); err != nil {
				return err
			}
		}
	}
}

// take gives a record as it is shown, nil when it isn't selected.
func (sel *Selection) take(rec []byte) *Record {
	if sel.Topic != "" && string(message.TopicOf(rec)) != sel.Topic || sel.QueueID >= 0 && sel.Topic != "" && message.QueueIDOf(rec) != sel.QueueID {
		return nil
	}
	if sel.Key != "" {
		has := false
		message.EachKey(rec, func(key []byte) { has = has || string(key) == sel.Key })
		if !has {
			return nil
		}
	}
	var m message.Message
	if _, err := message.Decode(rec, &m); err != nil {
		return nil
	}
	out := &Record{LogOffset: int64(m.PhysicalOffset), Size: m.Size, Topic: string(m.Topic), QueueID: m.QueueID, QueueOffset: int64(m.QueueOffset),
		Flag: m.Flag, SysFlag: m.SysFlag, BornTimestamp: m.BornMillis, BornHost: m.BornHost.String(), StoreTimestamp: m.StoreMillis,
		StoreHost: m.StoreHost.String(), ReconsumeTimes: m.ReconsumeTimes, Prepared: int64(m.PreparedTransactionOffset),
		BodyCRC: m.BodyCRC, CRCOK: m.BodyCRC == message.CRC(m.Body), BodyBytes: len(m.Body), Properties: map[string]string{}}
	message.EachProperty(m.Properties, func(name, value []byte) bool {
		out.Properties[string(name)] = string(value)
		return true
	})
	switch {
	case !sel.Body:
	case utf8.Valid(m.Body) && !bytes.ContainsRune(m.Body, 0):
		out.Body = string(m.Body)
	default:
		out.BodyHex = fmt.Sprintf("%x", m.Body)
	}
	return out
}

// A QueueEntry is one entry of a ConsumeQueue as dump shows it.
type QueueEntry struct {
	QueueOffset int64 `json:"queueOffset"`
	LogOffset   int64 `json:"logOffset"`
	Size        int32 `json:"size"`
	Count       int   `json:"messages,omitempty"` // in the record, of batch queues
	TagsCode    int64 `json:"tagsCode"`
	Filler      bool  `json:"filler,omitempty"` // stands for an offset without a record
}

// String is the entry in a line.
func (e QueueEntry) String() string {
	if e.Filler {
		return fmt.Sprintf("%d filler", e.QueueOffset)
	}
	if e.Count > 0 {
		return fmt.Sprintf("%d log offset %d size %d messages %d tagsCode %d", e.QueueOffset, e.LogOffset, e.Size, e.Count, e.TagsCode)
	}
	return fmt.Sprintf("%d log offset %d size %d tagsCode %d", e.QueueOffset, e.LogOffset, e.Size, e.TagsCode)
}

// DumpQueue calls fn with the entries of a queue from a queueOffset on, at most
// limit of them where that isn't 0.
func DumpQueue(cfg Config, topic string, id int32, from int64, limit int, fn func(QueueEntry) error) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	c := &queueCheck{v: &verifier{cfg: &cfg, report: &Report{most: cfg.FindingsMax}}, byTopic: map[string]map[int32]*queue{}}
	defer c.close()
	for _, kind := range kinds {
		dir := filepath.Join(cfg.Dir, kind.dir, topic, itoa(id))
		if _, err := cfg.FS.Stat(dir); err == nil {
			if err := c.add(topic, id, dir, kind.unit); err != nil {
				return err
			}
		}
	}
	q := c.byTopic[topic][id]
	if q == nil {
		return fmt.Errorf("topic %s queue %d: no such queue in %s", topic, id, cfg.Dir)
	}
	for n := q.first(); ; n++ {
		e, base, there, err := c.entry(q, n)
		if err != nil || !there {
			return err
		}
		if int64(base+e.Messages()) <= from {
			if n < from && !q.batches() {
				n = from - 1
			}
			continue
		}
		if err := fn(QueueEntry{int64(base), int64(e.LogOffset), e.Size, int(e.Count), e.TagsCode, e.Filler()}); err != nil {
			return err
		}
		if limit--; limit == 0 {
			return nil
		}
	}
}

// DumpTables gives the saved tables, strict JSON by file name.
func DumpTables(cfg Config) (map[string]json.RawMessage, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	names, err := tableNames(&cfg)
	if err != nil {
		return nil, err
	}
	out := map[string]json.RawMessage{}
	for _, name := range names {
		content, err := readTable(&cfg, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[filepath.Base(name)] = content
	}
	return out, nil
}
