package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version says what this binary was built from, as the linker recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "ringmq, built without build information by " + runtime.Version()
	}
	return describeBuild(info)
}

func describeBuild(info *debug.BuildInfo) string {
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	name := info.Main.Version
	if name == "" || name == "(devel)" {
		name = "development build"
	}
	lines := []string{"ringmq " + name}
	if rev := set["vcs.revision"]; rev != "" {
		line := "commit  " + rev
		if t := set["vcs.time"]; t != "" {
			line += " of " + t
		}
		if set["vcs.modified"] == "true" {
			line += ", with local changes"
		}
		lines = append(lines, line)
	}
	build := fmt.Sprintf("built   %s for %s/%s", info.GoVersion, set["GOOS"], set["GOARCH"])
	if cgo := set["CGO_ENABLED"]; cgo == "0" {
		build += ", static"
	}
	return strings.Join(append(lines, build), "\n")
}
