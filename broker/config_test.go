package broker

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/config"
)

func parseSettings(t *testing.T, text string) []config.Setting {
	t.Helper()
	s, err := config.Parse([]byte(text), config.Origin{Kind: config.FromFile, Name: "broker.conf"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The four files of the article's example: the masters are taken as they
// stand, the slaves are refused with the lines that say so.
func TestArticleFiles(t *testing.T) {
	for _, f := range []struct {
		name, brokerName string
		id               int64
		port             int
		refused          []string
	}{
		{"broker-a", "broker-a", 0, 10911, nil},
		{"broker-b", "broker-b", 0, 10921, nil},
		{"broker-a-s", "broker-a", 1, 11011, []string{`:6: brokerRole: got "SLAVE"`, `:3: brokerId: got "1"`, "do not exist yet"}},
		{"broker-b-s", "broker-b", 1, 11021, []string{`:6: brokerRole: got "SLAVE"`, `:3: brokerId: got "1"`, "do not exist yet"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			settings, err := config.ReadFile(filepath.Join("testdata", "article", f.name+".properties"))
			if err != nil {
				t.Fatal(err)
			}
			c, warnings, err := LoadConfig(settings)
			if len(warnings) > 0 {
				t.Errorf("warnings: %v", warnings)
			}
			if f.refused == nil && err != nil {
				t.Fatal(err)
			}
			for _, want := range f.refused {
				if err == nil || !errors.Is(err, config.ErrRefused) || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want a refusal with %q", err, want)
				}
			}
			addrs, err := c.NamesrvAddrs()
			if err != nil || !slices.Equal(addrs, []string{"192.168.1.100:9876", "192.168.1.101:9876", "192.168.1.102:9876"}) {
				t.Errorf("namesrvAddr: got %q, %v", addrs, err)
			}
			hours, err := c.DeleteHours()
			if err != nil || !slices.Equal(hours, []int{4}) || c.FileReservedTime != 48*time.Hour {
				t.Errorf("retention: got hours %v, %v, fileReservedTime %v", hours, err, c.FileReservedTime)
			}
			if c.BrokerName != f.brokerName || c.BrokerId != f.id || c.ListenPort != f.port || c.HaListenPort != f.port+1 ||
				c.BrokerClusterName != "DefaultCluster" || c.Sync() {
				t.Errorf("got %+v", c)
			}
		})
	}
}

// A dump of every key with its default, as updateBrokerConfig of Apache's
// writes it, is taken without a word.
func TestDefaultsLoad(t *testing.T) {
	def := DefaultConfig()
	c, warnings, err := LoadConfig(parseSettings(t, strings.Join(ConfigTable.Lines(&def), "\n")))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("got %v, %v, want neither", warnings, err)
	}
	c.Given, c.BrokerIP1Reason, def.BrokerIP1Reason = nil, "", ""
	if !reflect.DeepEqual(c, def) {
		t.Errorf("\n got %+v\nwant %+v", c, def)
	}
}

func TestConfigRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"brokerRole=SYNC_MASTER":                            `brokerRole: got "SYNC_MASTER", want ASYNC_MASTER: `,
		"brokerId=-1":                                       "want a whole number, at least 0",
		"aclEnable=true":                                    noAuth,
		"authenticationEnabled=true":                        noAuth,
		"authorizationEnabled = true ":                      noAuth,
		"tls.server.mode=enforcing":                         "permissive or disabled: " + noTLS,
		"enableDLegerCommitLog=true":                        "DLedger",
		"enableControllerMode=true":                         noController,
		"storeType=defaultRocksDB":                          noRocksDB,
		"storePathCommitLog=/a,/b":                          "one directory",
		"readOnlyCommitLogStorePaths=/c":                    noOtherPath,
		"minInSyncReplicas=2":                               noReplicas,
		"namesrvAddr=10.0.0.1:9876;10.0.0.2":                `one is "10.0.0.2"`,
		"namesrvAddr=h:99999":                               "ports of 1 to 65535",
		"deleteWhen=04;24":                                  `one is "24"`,
		"deleteWhen=;":                                      "at least one hour",
		"messageDelayLevel=1s 5x":                           `one is "5x"`,
		"messageDelayLevel=":                                "at least one level",
		"brokerName=a/b":                                    "brokerName",
		"brokerClusterName=..":                              "brokerClusterName",
		"brokerIP1=10.0.0.1:10911;x":                        "without a port",
		"bindAddress=localhost":                             "an IP address of this host",
		"mappedFileSizeCommitLog=65536":                     "so that a message of maxMessageSize 4194304 fits",
		"frameBytesMax=65536":                               "frameBytesMax",
		"connTotalBytesMax=1048576":                         "the bounds of one connection",
		"maxMessageSize=33554432":                           "want a whole number of bytes, 1 to 15728640",
		"flushDiskType=sync_flush":                          "one of ASYNC_FLUSH, SYNC_FLUSH",
		"fileReservedTime=two":                              "want a whole number of h",
		"a=1\nlistenPort=99999\nflushEngine=dpdk # not one": "broker.conf:3: flushEngine",
	} {
		_, _, err := LoadConfig(parseSettings(t, text))
		if err == nil || !errors.Is(err, config.ErrRefused) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "broker.conf:") {
			t.Errorf("%q:\n got %v\nwant a refusal with %q and its place", text, err, want)
		}
	}
}

func TestComplete(t *testing.T) {
	c, _, err := LoadConfig(parseSettings(t, "listenPort=20911\nstorePathRootDir=/data/x\nbrokerIP1=broker.example.org\n"+
		"mappedFileSizeConsumeQueue=6000001\nregisterNameServerPeriod=1\ndiskSpaceWarningLevelRatio=99\ndiskSpaceCleanForciblyRatio=99"))
	if err != nil {
		t.Fatal(err)
	}
	if c.HaListenPort != 20912 || c.StorePathCommitLog != "/data/x/commitlog" || c.BrokerIP2 != "broker.example.org" ||
		c.MappedFileSizeConsumeQueue != 6000020 || c.RegisterNameServerPeriod != 10*time.Second ||
		c.DiskSpaceWarningLevelRatio != 90 || c.DiskSpaceCleanForciblyRatio != 85 || c.BrokerName == "" {
		t.Errorf("got %+v", c)
	}
	c.Complete()
	before := c
	if c.Complete(); !reflect.DeepEqual(before, c) {
		t.Error("completing twice changes something")
	}
}

func TestDelayLevels(t *testing.T) {
	c := DefaultConfig()
	levels, err := c.DelayLevels()
	if err != nil || len(levels) != 18 || levels[0] != time.Second || levels[4] != time.Minute || levels[17] != 2*time.Hour {
		t.Errorf("got %v, %v", levels, err)
	}
}

func TestChooseAddress(t *testing.T) {
	addr := func(iface, a string) hostAddr { return hostAddr{iface, netip.MustParseAddr(a)} }
	for _, c := range []struct {
		name, want, reason string
		all                []hostAddr
	}{
		{"none", "127.0.0.1", "no other address", nil},
		{"public before private", "203.0.113.7", "first public", []hostAddr{addr("eth0", "10.0.0.1"), addr("eth1", "203.0.113.7"), addr("eth2", "203.0.113.8")}},
		{"last private", "192.168.1.5", "last private", []hostAddr{addr("eth0", "10.0.0.1"), addr("eth1", "192.168.1.5")}},
		{"IPv4 before IPv6", "10.0.0.1", "private", []hostAddr{addr("eth0", "2001:db8::1"), addr("eth0", "10.0.0.1")}},
		{"IPv6 alone", "2001:db8::1", "no IPv4", []hostAddr{addr("eth0", "fe80::1"), addr("eth0", "fd00::1"), addr("eth0", "2001:db8::1")}},
		{"private IPv6", "fd00::1", "private IPv6", []hostAddr{addr("eth0", "fe80::1"), addr("eth0", "fd00::1")}},
		{"link-local reaches nobody", "127.0.0.1", "no other address", []hostAddr{addr("eth0", "169.254.1.1")}},
	} {
		got, reason := chooseAddress(c.all)
		if got != c.want || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: got %s (%s), want %s (… %s …)", c.name, got, reason, c.want, c.reason)
		}
	}
}

// Each field of Config is read by something that acts on it: a key that is
// only parsed must be listed as one without effect.
func TestEveryKeyActs(t *testing.T) {
	read := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../cmd/ringmq/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, more...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name == "Complete" || fn.Name.Name == "Validate" {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					read[s.Sel.Name] = true
				}
				return true
			})
		}
	}
	for _, k := range ConfigTable.Keys() {
		field := strings.ToUpper(k.Name[:1]) + k.Name[1:]
		if k.Class != config.Acts {
			continue
		}
		f, ok := fieldOf(reflect.TypeFor[Config](), k.Name)
		if !ok {
			t.Errorf("%s: no field %s", k.Name, field)
			continue
		}
		if !read[f] {
			t.Errorf("%s acts by its row, but nothing reads Config.%s", k.Name, f)
		}
	}
}

func fieldOf(typ reflect.Type, key string) (string, bool) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Tag.Get("key") == key {
			return f.Name, true
		}
		if f.Anonymous {
			if name, ok := fieldOf(f.Type, key); ok {
				return name, true
			}
		}
	}
	return "", false
}
