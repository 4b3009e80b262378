package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ringmq/ringmq/broker"
	"github.com/ringmq/ringmq/internal/config"
)

func brokerCommand() *cobra.Command {
	var f commonFlags
	var addrs string
	c := &cobra.Command{
		Use:   "broker",
		Short: "Run a broker",
		Long: `Runs a broker: clients connect to listenPort (10911) and listenPort-2, and it
registers with every NameServer of namesrvAddr. The file holds Apache's property
names, as mqbroker -c takes it; docs/config.md lists them. A key that is not
known is named with the nearest known one; a value that makes no sense, or a key
that asks for something this version does not have, refuses to start.

Where a key is given twice, flags win over the environment (NAMESRV_ADDR) and
that over the file.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			file, err := f.settings()
			if err != nil {
				return err
			}
			flags := f.flagSettings()
			if addrs != "" {
				flags = append(flags, config.Flag("-n", "namesrvAddr", addrs))
			}
			cfg, warnings, err := loadBroker(file, flags)
			if err != nil {
				return err
			}
			if f.printing() {
				return f.printTable(c.OutOrStdout(), broker.ConfigTable, &cfg)
			}
			log, err := newLog(c.ErrOrStderr(), cfg.LogLevel)
			if err != nil {
				return err
			}
			warn(log, warnings)
			if cfg.NamesrvAddr == "" {
				log.Warn("no NameServer: clients find this broker only by its address; give -n host:port or namesrvAddr")
			}
			limitMemory(log, "/")
			spareProcs(log)
			return serve(c.Context(), log, f.drain, []opener{openBroker(cfg, log)}, func(parts []part) {
				describe(c.OutOrStdout(), parts)
			})
		},
	}
	f.add(c, "property file, as mqbroker -c takes it")
	c.Flags().StringVarP(&addrs, "namesrvAddr", "n", "", "NameServers, host:port separated by `;`; instead of the key namesrvAddr")
	return c
}

// loadBroker makes a broker's configuration: file, environment, flags.
func loadBroker(file, flags []config.Setting) (broker.Config, []config.Warning, error) {
	env, warnings := environment(file, map[string]string{"NAMESRV_ADDR": "namesrvAddr", "ROCKETMQ_HOME": "rocketmqHome"})
	cfg, more, err := broker.LoadConfig(append(append(append([]config.Setting{}, file...), env...), flags...))
	return cfg, append(warnings, more...), err
}

func openBroker(cfg broker.Config, log *slog.Logger) opener {
	return opener{"broker", func() (part, error) {
		b, err := broker.New(cfg, log)
		if err != nil {
			return nil, err
		}
		return b, nil
	}}
}

var _ part = (*broker.Broker)(nil)
