package namesrv

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// kvTable is namespace to key to value. A published one is never changed.
type kvTable map[string]map[string]string

// kvStore is the key/value configuration, in Apache's file:
//
//	{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}
//
// Each change is on the disk before it shows. Reads never wait.
type kvStore struct {
	fs    vfs.FS
	path  string
	table atomic.Pointer[kvTable]
	mu    sync.Mutex // one change at a time
}

type kvFile struct {
	ConfigTable kvTable `json:"configTable"`
}

// openKV reads the file, if there is one. One that cannot be read is an error:
// the next change would overwrite it.
func openKV(fsys vfs.FS, path string) (*kvStore, error) {
	s := &kvStore{fs: fsys, path: path}
	s.table.Store(&kvTable{})
	data, err := fsys.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kvConfigPath: %w", err)
	}
	if len(data) == 0 { // Apache creates it empty
		return s, nil
	}
	var file kvFile
	if err := remoting.ParseBody(data, &file); err != nil {
		return nil, fmt.Errorf("kvConfigPath %s: %w", path, err)
	}
	if file.ConfigTable != nil {
		s.table.Store(&file.ConfigTable)
	}
	return s, nil
}

// get returns a value.
func (s *kvStore) get(namespace, key string) (string, bool) {
	v, ok := (*s.table.Load())[namespace][key]
	return v, ok
}

// namespace returns all keys and values of a namespace; they must not be changed.
func (s *kvStore) namespace(name string) (map[string]string, bool) {
	t, ok := (*s.table.Load())[name]
	return t, ok
}

// put sets a value. It waits for the disk.
func (s *kvStore) put(namespace, key, value string) error {
	return s.change(namespace, func(t map[string]string) { t[key] = value })
}

// remove deletes a key, if it is there. It waits for the disk.
func (s *kvStore) remove(namespace, key string) error {
	if _, ok := s.get(namespace, key); !ok {
		return nil
	}
	return s.change(namespace, func(t map[string]string) { delete(t, key) })
}

func (s *kvStore) change(namespace string, edit func(map[string]string)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.table.Load())
	t := maps.Clone(next[namespace])
	if t == nil {
		t = map[string]string{}
	}
	edit(t)
	next[namespace] = t
	if err := vfs.MkdirAllSync(s.fs, filepath.Dir(s.path)); err != nil {
		return fmt.Errorf("kvConfigPath: %w", err)
	}
	if err := s.fs.WriteFileAtomic(s.path, remoting.MarshalBody(kvFile{next})); err != nil {
		return fmt.Errorf("kvConfigPath: %w", err)
	}
	s.table.Store(&next)
	return nil
}
