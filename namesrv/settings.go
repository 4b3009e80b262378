package namesrv

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ringmq/ringmq/internal/config"
	"github.com/ringmq/ringmq/internal/vfs"
	"github.com/ringmq/ringmq/remoting"
)

// getConfig answers 319: every key and value, sorted.
func getConfig(s *Server, _ *request) (*response, error) {
	lines := ConfigTable.Lines(s.cfg.Load())
	return &response{body: []byte(strings.Join(lines, "\n") + "\n")}, nil
}

// updateConfig answers 318. Apache ignores values that do not parse; here they
// are answered 1 and nothing is changed. The changed keys alone are written
// into the configuration file. On the registrar.
func updateConfig(s *Server, q *request) (*response, error) {
	if len(q.cmd.Body) == 0 {
		return &response{}, nil
	}
	settings, err := config.Parse(q.cmd.Body, config.Origin{Kind: config.FromWire, Name: "request 318"})
	if err != nil {
		return nil, refuse(remoting.SystemError, "string2Properties error: "+err.Error())
	}
	var known []config.Setting
	for _, set := range settings {
		k := ConfigTable.Key(set.Key)
		switch {
		case k == nil:
			s.log.Warn("configuration update ignored: unknown key", "key", set.Key, "nearest", ConfigTable.Nearest(set.Key), "remote", q.remote)
		case k.Locked:
			return nil, refuse(remoting.NoPermission, "Can not update config in black list.")
		default:
			known = append(known, set)
		}
	}
	next := *s.cfg.Load()
	warnings, err := ConfigTable.Update(&next, known)
	if err == nil {
		err = next.Validate()
	}
	if err != nil {
		return nil, refuse(remoting.SystemError, err.Error())
	}
	if len(known) == 0 {
		return &response{}, nil
	}
	if err := s.saveConfig(&next, known); err != nil {
		return nil, err
	}
	s.cfg.Store(&next)
	s.reg.forgetAnswers()
	for _, w := range warnings {
		s.log.Warn("configuration update", "warning", w.Text)
	}
	s.log.Info("configuration updated", "keys", len(known), "file", next.saveSettings(), "remote", q.remote)
	return &response{}, nil
}

// saveConfig writes the changed settings into the configuration file.
func (s *Server) saveConfig(cfg *Config, changed []config.Setting) error {
	path := cfg.saveSettings()
	old, err := s.fs.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("configuration not saved: %w", err)
	}
	text, err := config.Edit(old, changed)
	if err != nil {
		return fmt.Errorf("configuration not saved: %s: %w", path, err)
	}
	if err := vfs.MkdirAllSync(s.fs, filepath.Dir(path)); err != nil {
		return fmt.Errorf("configuration not saved: %w", err)
	}
	if err := s.fs.WriteFileAtomic(path, text); err != nil {
		return fmt.Errorf("configuration not saved: %w", err)
	}
	return nil
}
