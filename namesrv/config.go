package namesrv

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/ringmq/ringmq/internal/config"
)

// Config is everything a NameServer can be told. Fields are RocketMQ's
// property names with a capital; what each means, its default and its bounds
// are in ConfigTable. A Config is plain data.
type Config struct {
	BindAddress                     string `key:"bindAddress"`
	ListenPort                      int    `key:"listenPort"`
	ServerChannelMaxIdleTimeSeconds int64  `key:"serverChannelMaxIdleTimeSeconds"`

	KvConfigPath    string `key:"kvConfigPath"`
	ConfigStorePath string `key:"configStorePath"`

	ScanNotActiveBrokerInterval       time.Duration `key:"scanNotActiveBrokerInterval"`
	OrderMessageEnable                bool          `key:"orderMessageEnable"`
	ReturnOrderTopicConfigToBroker    bool          `key:"returnOrderTopicConfigToBroker"`
	SupportActingMaster               bool          `key:"supportActingMaster"`
	NotifyMinBrokerIdChanged          bool          `key:"notifyMinBrokerIdChanged"`
	EnableAllTopicList                bool          `key:"enableAllTopicList"`
	EnableTopicList                   bool          `key:"enableTopicList"`
	NeedWaitForService                bool          `key:"needWaitForService"`
	WaitSecondsForService             int64         `key:"waitSecondsForService"`
	DeleteTopicWithBrokerRegistration bool          `key:"deleteTopicWithBrokerRegistration"`

	ConnInboundBytesMax  int64  `key:"connInboundBytesMax"`
	ConnOutboundBytesMax int64  `key:"connOutboundBytesMax"`
	ConnTotalBytesMax    int64  `key:"connTotalBytesMax"`
	ConnsMax             int    `key:"connsMax"`
	EventLoops           int    `key:"eventLoops"` // 0: netloop's choice
	PoolQueueMax         int    `key:"poolQueueMax"`
	LogLevel             string `key:"logLevel"`

	// File is the configuration file, "" when there is none. Updates over the
	// wire are written into it, else into ConfigStorePath.
	File  string
	Given config.Given
}

// DefaultConfig returns the defaults, completed.
func DefaultConfig() Config {
	var c Config
	ConfigTable.SetDefaults(&c)
	c.Complete()
	return c
}

// LoadConfig makes a complete, checked Config of settings, the last one of a
// key winning. The error names every refused setting with its place.
func LoadConfig(settings []config.Setting) (Config, []config.Warning, error) {
	var c Config
	warnings, err := ConfigTable.Load(&c, settings)
	c.Complete()
	return c, warnings, errors.Join(err, c.Validate())
}

// Complete fills what is still empty and derived from the host.
func (c *Config) Complete() {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	if c.KvConfigPath == "" {
		c.KvConfigPath = filepath.Join(home, "namesrv", "kvConfig.json")
	}
	if c.ConfigStorePath == "" {
		c.ConfigStorePath = filepath.Join(home, "namesrv", "namesrv.properties")
	}
}

// Validate refuses what each key alone cannot show to be senseless.
func (c *Config) Validate() error {
	var errs []error
	refuse := func(key, got, want string) {
		s, ok := c.Given[key]
		if !ok {
			s = config.Setting{Key: key}
		}
		s.Value = got
		errs = append(errs, &config.KeyError{Setting: s, Want: want})
	}
	if _, err := netip.ParseAddr(c.BindAddress); err != nil {
		refuse("bindAddress", c.BindAddress, "an IP address of this host, or 0.0.0.0 for all")
	}
	return errors.Join(errs...)
}
