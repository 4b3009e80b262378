package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmq/ringmq/internal/config"
)

// commonFlags are those of every command that runs a part.
type commonFlags struct {
	file      string
	print     bool
	important bool
	logLevel  string
	drain     time.Duration
}

func (f *commonFlags) add(c *cobra.Command, fileHelp string) {
	c.Flags().StringVarP(&f.file, "config", "c", "", fileHelp)
	c.Flags().BoolVarP(&f.print, "print", "p", false, "print every key, its value, unit and origin, and exit")
	c.Flags().BoolVarP(&f.important, "print-important", "m", false, "print the important keys so, and exit")
	c.Flags().StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error; instead of the key logLevel")
	c.Flags().DurationVar(&f.drain, "drain", 10*time.Second, "longest wait for requests under way when stopping")
}

// settings reads the file and puts the flags behind it.
func (f *commonFlags) settings() ([]config.Setting, error) {
	if f.file == "" {
		return nil, nil
	}
	return config.ReadFile(f.file)
}

func (f *commonFlags) flagSettings() []config.Setting {
	if f.logLevel == "" {
		return nil
	}
	return []config.Setting{config.Flag("--log-level", "logLevel", f.logLevel)}
}

func (f *commonFlags) printing() bool { return f.print || f.important }

// printTable prints a configuration as -p and -m do.
func (f *commonFlags) printTable(w io.Writer, t *config.Table, cfg any) error {
	return t.Print(w, cfg, !f.print)
}

// warn logs what the configuration's owner should know.
func warn(log *slog.Logger, warnings []config.Warning) {
	for _, w := range warnings {
		log.Warn("configuration", "warning", w.Text)
	}
}

// environment is the settings of environment variables, with a warning for
// each that stands above one of the file.
func environment(file []config.Setting, variables map[string]string) ([]config.Setting, []config.Warning) {
	env := config.Env(variables)
	var warnings []config.Warning
	for _, e := range env {
		for _, s := range file {
			if s.Key == e.Key && s.Value != e.Value {
				warnings = append(warnings, config.Warning{Setting: e, Text: fmt.Sprintf("%s is overridden by the %s (%s)", s.Origin, e.Origin, e.Key)})
			}
		}
	}
	return env, warnings
}

// split parts the settings of a file that serves two rooms: those whose keys
// begin with prefix, without it, and the others.
func split(settings []config.Setting, prefix string) (with, without []config.Setting) {
	for _, s := range settings {
		if key, ok := strings.CutPrefix(s.Key, prefix); ok {
			s.Key, s.Prefix = key, prefix
			with = append(with, s)
			continue
		}
		without = append(without, s)
	}
	return with, without
}
