//go:build linux

package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// apacheVersion is the release the figures are promised against.
const apacheVersion = "5.3.3"

// fetchJars returns a directory that holds Apache's jars: dir, if they are there,
// else Maven copies them into it (into the user's cache when dir is "").
func fetchJars(ctx context.Context, dir string, progress io.Writer) (_ string, err error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("compare: %w", err)
		}
		dir = filepath.Join(cache, "ringmq-bench", "jars", apacheVersion)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("compare: %w", err)
	}
	if have, err := filepath.Glob(filepath.Join(dir, "rocketmq-broker-*.jar")); err == nil && len(have) > 0 {
		return dir, nil
	}
	if progress != nil {
		_, _ = fmt.Fprintf(progress, "copying Apache RocketMQ %s to %s with Maven\n", apacheVersion, dir)
	}
	tmp, err := os.MkdirTemp("", "ringmq-bench-*")
	if err != nil {
		return "", fmt.Errorf("compare: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	var pom bytes.Buffer
	pom.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
		`<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version><dependencies>`)
	for _, a := range []string{"rocketmq-broker", "rocketmq-namesrv"} {
		fmt.Fprintf(&pom, "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>%s</artifactId><version>%s</version></dependency>", a, apacheVersion)
	}
	pom.WriteString(`</dependencies></project>`)
	file := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(file, pom.Bytes(), 0o644); err != nil {
		return "", fmt.Errorf("compare: %w", err)
	}
	// A half-copied directory must not pass for a whole one.
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return "", fmt.Errorf("compare: %w", err)
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+part)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compare: mvn: %w\n%s", err, out)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(part, dir)); err != nil {
		return "", fmt.Errorf("compare: %w", err)
	}
	return dir, nil
}
