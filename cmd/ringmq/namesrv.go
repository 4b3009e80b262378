package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ringmq/ringmq/internal/config"
	"github.com/ringmq/ringmq/namesrv"
)

func namesrvCommand() *cobra.Command {
	var f commonFlags
	c := &cobra.Command{
		Use:   "namesrv",
		Short: "Run a NameServer",
		Long: `Runs a NameServer on port 9876. Brokers register with it, clients ask it where
topics are. The file holds Apache's property names, as mqnamesrv -c takes it;
docs/config.md lists them.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := f.settings()
			if err != nil {
				return err
			}
			cfg, warnings, err := loadNamesrv(settings, f.flagSettings(), f.file)
			if err != nil {
				return err
			}
			if f.printing() {
				return f.printTable(c.OutOrStdout(), namesrv.ConfigTable, &cfg)
			}
			log, err := newLog(c.ErrOrStderr(), cfg.LogLevel)
			if err != nil {
				return err
			}
			warn(log, warnings)
			limitMemory(log, "/")
			spareProcs(log)
			return serve(c.Context(), log, f.drain, []opener{openNamesrv(cfg, log)}, func(parts []part) {
				describe(c.OutOrStdout(), parts)
			})
		},
	}
	f.add(c, "property file")
	c.Flags().StringP("namesrvAddr", "n", "", "accepted as mqnamesrv does, without effect")
	return c
}

// loadNamesrv makes a NameServer's configuration: file, environment, flags.
// Without a file that of earlier updates over the wire is read, if it exists.
func loadNamesrv(file, flags []config.Setting, name string) (namesrv.Config, []config.Warning, error) {
	env, warnings := environment(file, map[string]string{"ROCKETMQ_HOME": "rocketmqHome"})
	all := append(append(append([]config.Setting{}, file...), env...), flags...)
	cfg, more, err := namesrv.LoadConfig(all)
	if err == nil && name == "" {
		stored, rerr := config.ReadFile(cfg.ConfigStorePath)
		switch {
		case errors.Is(rerr, fs.ErrNotExist):
		case rerr != nil:
			return cfg, nil, rerr
		default:
			cfg, more, err = namesrv.LoadConfig(append(stored, all...))
		}
	}
	cfg.File = name
	return cfg, append(warnings, more...), err
}

func openNamesrv(cfg namesrv.Config, log *slog.Logger) opener {
	return opener{"NameServer", func() (part, error) {
		s, err := namesrv.New(cfg, log.With("room", "namesrv"))
		if err != nil {
			return nil, err
		}
		return s, nil
	}}
}

// describe prints what the parts say of themselves.
func describe(w io.Writer, parts []part) {
	for _, p := range parts {
		for _, line := range p.Describe() {
			fmt.Fprintln(w, line)
		}
	}
}

var _ part = (*namesrv.Server)(nil)
