package engine

import "github.com/ringmq/ringmq/message"

// indexRecord enters a record's UNIQ_KEY and each of its KEYS into the index;
// records that roll a transaction back are not indexed (IndexService#buildIndex).
// Holds dispatchMu.
func (s *Store) indexRecord(rec []byte, off message.LogOffset, storeMillis int64) {
	if !message.EntersIndex(rec) {
		return
	}
	topic := message.TopicOf(rec)
	message.EachKey(rec, func(key []byte) { s.indexKey(topic, key, off, storeMillis) })
}

// indexKey enters one key. A key that cannot be entered (a full disk) is lost
// to queries, not to consumers: it is counted, and the first is logged.
func (s *Store) indexKey(topic, key []byte, off message.LogOffset, storeMillis int64) {
	err := s.index.Put(topic, key, off, storeMillis)
	if err == nil {
		return
	}
	if s.indexFails.Add(1) == 1 {
		s.logger.Warn("keys cannot be indexed; queries by key will miss messages", "dir", s.cfg.Dir, "err", err)
	}
}
