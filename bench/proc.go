//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what a process has used so far, and what it holds.
type Usage struct {
	CPU     time.Duration // user and system time of all its threads, ended ones too
	RSSAnon int64         // bytes
	RSSFile int64
	Threads int
}

// clockTick is USER_HZ: 100 on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// UsageOf reads /proc/PID. The kernel scales utime and stime to the exact time
// its threads ran, so that their sum is right to a tick.
func UsageOf(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("bench: %w", err)
	}
	// The second field may hold blanks; it ends with the last parenthesis.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 18 {
		return Usage{}, fmt.Errorf("bench: /proc/%d/stat: got %d fields", pid, len(f))
	}
	var u Usage
	for _, i := range []int{11, 12} { // utime, stime
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("bench: /proc/%d/stat: %w", pid, err)
		}
		u.CPU += time.Duration(n) * clockTick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("bench: %w", err)
	}
	u.RSSAnon = statusValue(status, "RssAnon:") << 10
	u.RSSFile = statusValue(status, "RssFile:") << 10
	u.Threads = int(statusValue(status, "Threads:"))
	return u, nil
}

func statusValue(status []byte, key string) int64 {
	s := bufio.NewScanner(bytes.NewReader(status))
	for s.Scan() {
		if rest, ok := strings.CutPrefix(s.Text(), key); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				n, err := strconv.ParseInt(f[0], 10, 64)
				if err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// selfCPU is the generator's own CPU time.
func selfCPU() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// Disk is what a block device has done so far.
type Disk struct {
	Writes  int64 // completed
	Bytes   int64 // written
	Flushes int64 // completed
}

// Device is the block device that holds a directory.
type Device struct {
	Name string
	// major:minor of the whole disk: partitions do not count flushes.
	major, minor uint32
}

// DeviceOf finds the device of a directory's file system.
func DeviceOf(dir string) (*Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, fmt.Errorf("bench: stat %s: %w", dir, err)
	}
	d := &Device{major: unix.Major(st.Dev), minor: unix.Minor(st.Dev)}
	sys, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", d.major, d.minor))
	if err != nil {
		return nil, fmt.Errorf("bench: %s is on no block device: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(sys, "partition")); err == nil {
		sys = filepath.Dir(sys)
		b, err := os.ReadFile(filepath.Join(sys, "dev"))
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		if _, err := fmt.Sscanf(string(b), "%d:%d", &d.major, &d.minor); err != nil {
			return nil, fmt.Errorf("bench: %s/dev: %w", sys, err)
		}
	}
	d.Name = filepath.Base(sys)
	return d, nil
}

// Read reads the device's line of /proc/diskstats.
func (d *Device) Read() (Disk, error) {
	b, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return Disk{}, fmt.Errorf("bench: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 19 || f[0] != strconv.Itoa(int(d.major)) || f[1] != strconv.Itoa(int(d.minor)) {
			continue
		}
		var n [3]int64
		for i, at := range []int{7, 9, 18} { // writes completed, sectors written, flushes completed
			if n[i], err = strconv.ParseInt(f[at], 10, 64); err != nil {
				return Disk{}, fmt.Errorf("bench: /proc/diskstats: %w", err)
			}
		}
		return Disk{Writes: n[0], Bytes: n[1] * 512, Flushes: n[2]}, nil
	}
	return Disk{}, fmt.Errorf("bench: /proc/diskstats has no line for %d:%d with flushes (kernel before 5.5?)", d.major, d.minor)
}
