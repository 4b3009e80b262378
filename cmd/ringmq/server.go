package main

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringmq/ringmq/broker"
	"github.com/ringmq/ringmq/internal/config"
	"github.com/ringmq/ringmq/namesrv"
)

// namesrvPrefix marks the NameServer's keys in the file of `ringmq server`.
const namesrvPrefix = "namesrv."

func serverCommand() *cobra.Command {
	var f commonFlags
	var data string
	c := &cobra.Command{
		Use:   "server",
		Short: "Run a NameServer and a broker in one process",
		Long: `Runs a NameServer (port 9876) and a broker (port 10911) in one process. Without
flags and files everything is kept in ./data.

The file is a broker's, as mqbroker -c takes it; keys for the NameServer carry
the prefix namesrv., such as namesrv.listenPort=9876.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := loadServer(&f, data)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if f.printing() {
				fmt.Fprintf(out, "## broker\n")
				if err := f.printTable(out, broker.ConfigTable, &s.broker); err != nil {
					return err
				}
				fmt.Fprintf(out, "## NameServer, with the prefix %s in the file\n", namesrvPrefix)
				return f.printTable(out, namesrv.ConfigTable, &s.namesrv)
			}
			log, err := newLog(c.ErrOrStderr(), s.broker.LogLevel)
			if err != nil {
				return err
			}
			warn(log, s.warnings)
			limitMemory(log, "/")
			spareProcs(log)
			return serve(c.Context(), log, f.drain, []opener{openNamesrv(s.namesrv, log), openBroker(s.broker, log)}, func(parts []part) {
				describe(out, parts)
				s.firstMessage(out)
			})
		},
	}
	f.add(c, "property file of the broker; NameServer keys carry the prefix namesrv.")
	c.Flags().StringVar(&data, "data", "data", "directory for everything that the file does not place elsewhere")
	return c
}

// serverConfig is what `ringmq server` runs.
type serverConfig struct {
	broker   broker.Config
	namesrv  namesrv.Config
	warnings []config.Warning
}

// loadServer makes both configurations. The broker registers with the
// NameServer of this process, and with those of namesrvAddr.
func loadServer(f *commonFlags, data string) (*serverConfig, error) {
	file, err := f.settings()
	if err != nil {
		return nil, err
	}
	forNamesrv, forBroker := split(file, namesrvPrefix)
	base := []config.Setting{
		config.Flag("--data", "kvConfigPath", filepath.Join(data, "namesrv", "kvConfig.json")),
		config.Flag("--data", "configStorePath", filepath.Join(data, "namesrv", "namesrv.properties")),
	}
	s := &serverConfig{}
	// Updates over the wire never go into the broker's file.
	s.namesrv, s.warnings, err = loadNamesrv(append(base, forNamesrv...), f.flagSettings(), "")
	if err != nil {
		return nil, err
	}
	base = []config.Setting{config.Flag("--data", "storePathRootDir", filepath.Join(data, "store"))}
	cfg, warnings, err := loadBroker(append(base, forBroker...), f.flagSettings())
	if err != nil {
		return nil, err
	}
	own := ownAddress(&s.namesrv)
	addrs, err := cfg.NamesrvAddrs()
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(addrs, func(a string) bool { return sameServer(a, own, cfg.BrokerIP1) }) {
		cfg.NamesrvAddr = strings.Join(append([]string{own}, addrs...), ";")
	}
	s.broker, s.warnings = cfg, append(s.warnings, warnings...)
	return s, nil
}

// ownAddress is how this process reaches its own NameServer.
func ownAddress(cfg *namesrv.Config) string {
	host := cfg.BindAddress
	switch host {
	case "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, strconv.Itoa(cfg.ListenPort))
}

// sameServer tells whether an address of namesrvAddr is this process's own.
func sameServer(addr, own, brokerIP string) bool {
	host, port, err := net.SplitHostPort(addr)
	ownHost, ownPort, ownErr := net.SplitHostPort(own)
	if err != nil || ownErr != nil || port != ownPort {
		return false
	}
	return slices.Contains([]string{ownHost, "127.0.0.1", "localhost", "::1", brokerIP}, host)
}

// firstMessage says how to send one.
func (s *serverConfig) firstMessage(w io.Writer) {
	fmt.Fprintf(w, "send a first message: give any RocketMQ client the NameServer address %s and send to a topic of your choice,\n", ownAddress(&s.namesrv))
	fmt.Fprintf(w, "or send some for a second: ringmq bench send --duration 1s --addr %s\n", net.JoinHostPort(s.broker.BrokerIP1, strconv.Itoa(s.broker.ListenPort)))
}
