package broker

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// NamesrvAddrs splits namesrvAddr at `;`; blanks around the items and empty
// items are dropped. Each item is host:port.
func (c *Config) NamesrvAddrs() ([]string, error) {
	var out []string
	for item := range strings.SplitSeq(c.NamesrvAddr, ";") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		host, port, err := net.SplitHostPort(item)
		if err != nil || host == "" {
			return nil, fmt.Errorf("host:port items separated by `;`, but one is %q", item)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("ports of 1 to 65535, but one item is %q", item)
		}
		out = append(out, item)
	}
	return out, nil
}

// DeleteHours parses deleteWhen: hours of the day, separated by `;`.
func (c *Config) DeleteHours() ([]int, error) {
	var out []int
	for item := range strings.SplitSeq(c.DeleteWhen, ";") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		h, err := strconv.Atoi(item)
		if err != nil || h < 0 || h > 23 {
			return nil, fmt.Errorf("hours from 00 to 23 separated by `;`, but one is %q", item)
		}
		out = append(out, h)
	}
	if len(out) == 0 {
		return nil, errors.New("at least one hour from 00 to 23")
	}
	return out, nil
}

// DelayLevels parses messageDelayLevel: level n is item n-1. Units are s, m, h
// and d, separators blanks.
func (c *Config) DelayLevels() ([]time.Duration, error) { return parseDelayLevels(c.MessageDelayLevel) }

func parseDelayLevels(text string) ([]time.Duration, error) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	var out []time.Duration
	for _, item := range strings.Fields(text) {
		unit, ok := units[item[len(item)-1]]
		n, err := strconv.ParseInt(item[:len(item)-1], 10, 32)
		if !ok || err != nil || n < 0 || n > int64(math.MaxInt64/unit) {
			return nil, fmt.Errorf("items like 1s 5m 2h 1d separated by blanks, but one is %q", item)
		}
		out = append(out, time.Duration(n)*unit)
	}
	if len(out) == 0 {
		return nil, errors.New("at least one level like 1s")
	}
	return out, nil
}

// localAddress chooses the address told to clients where brokerIP1 is not
// set, as Apache's NetworkUtil#getLocalInetAddress, 5.3: the first public IPv4
// address of this host, else the last private one, else an IPv6 address;
// loopback, bridges and point-to-point interfaces do not count. Link-local
// addresses do not count here either, because they reach nobody without an
// interface name. The reason is for people.
func localAddress() (addr, reason string) {
	ifaces, err := net.Interfaces()
	if err != nil {
		return "127.0.0.1", "interfaces of this host cannot be listed: " + err.Error()
	}
	return chooseAddress(hostAddresses(ifaces))
}

// hostAddr is one address of an interface that others may reach this host by.
type hostAddr struct {
	iface string
	addr  netip.Addr
}

func hostAddresses(ifaces []net.Interface) []hostAddr {
	var out []hostAddr
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&(net.FlagLoopback|net.FlagPointToPoint) != 0 || isBridge(i.Name) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // this interface vanished meanwhile
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				out = append(out, hostAddr{i.Name, p.Addr().Unmap()})
			}
		}
	}
	return out
}

// isBridge tells whether containers and virtual machines of this host hang on
// the interface: such addresses are the same on every host and reach nobody.
func isBridge(name string) bool {
	_, err := os.Stat("/sys/class/net/" + name + "/bridge")
	return err == nil
}

func chooseAddress(all []hostAddr) (addr, reason string) {
	var private, six, privateSix hostAddr
	for _, a := range all {
		switch {
		case a.addr.IsLoopback(), a.addr.IsLinkLocalUnicast(), a.addr.IsUnspecified():
		case a.addr.Is4() && !a.addr.IsPrivate():
			return a.addr.String(), "first public IPv4 address, on " + a.iface
		case a.addr.Is4():
			private = a
		case !a.addr.IsPrivate() && !six.addr.IsValid():
			six = a
		case a.addr.IsPrivate():
			privateSix = a
		}
	}
	switch {
	case private.addr.IsValid():
		return private.addr.String(), "last private IPv4 address, on " + private.iface
	case six.addr.IsValid():
		return six.addr.String(), "first IPv6 address, on " + six.iface + "; there is no IPv4 address"
	case privateSix.addr.IsValid():
		return privateSix.addr.String(), "last private IPv6 address, on " + privateSix.iface + "; there is no IPv4 address"
	}
	return "127.0.0.1", "this host has no other address, so only clients on this host can connect"
}
