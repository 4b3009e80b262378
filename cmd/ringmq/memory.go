package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// heapShare is the part of the container's memory that Go may fill before it
// collects as often as it must: the rest is the page cache that consumers are
// served from, which the container's limit counts too.
const heapShare = 0.6

// limitMemory sets the soft limit of Go's heap from the memory limit of the
// container, where there is one and GOMEMLIMIT does not say otherwise. GOGC
// stays as it is: the hot paths allocate nothing, so that collections are rare,
// and a larger heap would only delay their cost. The number of processors
// follows the container by itself (Go 1.25).
func limitMemory(log *slog.Logger, root string) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, from := containerLimit(root)
	if limit <= 0 {
		return
	}
	soft := int64(float64(limit) * heapShare)
	debug.SetMemoryLimit(soft)
	log.Info("heap limit follows the container's memory limit", "heapBytes", soft, "limitBytes", limit, "file", from)
}

// containerLimit reads the smallest memory limit of this process's cgroup and
// those above it; 0 where there is none. root is / except in tests.
func containerLimit(root string) (limit int64, from string) {
	data, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0, ""
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		switch {
		case f[1] == "": // version 2
		case strings.Contains(","+f[1]+",", ",memory,"):
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// Inside a container the path may not exist: the mount's root is the
		// process's own group then.
		for dir := filepath.Clean("/" + f[2]); ; dir = filepath.Dir(dir) {
			name := filepath.Join(root, base, dir, file)
			if n := readLimit(name); n > 0 && (limit == 0 || n < limit) {
				limit, from = n, name
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit, from
}

// readLimit reads a limit file; "max" and the huge number that version 1
// writes for none are 0.
func readLimit(name string) int64 {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n >= 1<<60 {
		return 0
	}
	return n
}
