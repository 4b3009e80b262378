package interop

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// The versions of Apache's libraries. 4.9.8 has client and tools only; its servers are not to be had as jars.
const (
	Java4 = "4.9.8"
	Java5 = "5.3.3"
)

// moduleDir is the directory of this module.
var moduleDir = sync.OnceValue(func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
})

// targetDir holds what is built or fetched once and kept: jars, classes, ringmq's binary. Git ignores it.
func targetDir() string { return filepath.Join(moduleDir(), "target") }

// needTool finds a program, or says which Debian package has it: without it nothing here can be shown, so its lack is
// a failure and not a reason to skip.
func needTool(name, pkg string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("%s is missing: install the Debian package %s", name, pkg)
	}
	return nil
}

func needJava() error {
	return errors.Join(needTool("javac", "openjdk-17-jdk-headless"), needTool("mvn", "maven"))
}

var jarsMu sync.Mutex

// Jars returns the directory with the jars of a version, which Maven resolves at the first call.
func Jars(version string) (string, error) {
	jarsMu.Lock()
	defer jarsMu.Unlock()
	dir := filepath.Join(targetDir(), "jars", version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := needJava(); err != nil {
		return "", err
	}
	parts := []string{"client", "tools"}
	if version == Java5 {
		parts = append(parts, "namesrv", "broker")
	}
	var pom strings.Builder
	pom.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
		`<groupId>interop</groupId><artifactId>interop</artifactId><version>1</version><dependencies>`)
	for _, a := range parts {
		fmt.Fprintf(&pom, "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-%s</artifactId>"+
			"<version>%s</version></dependency>", a, version)
	}
	pom.WriteString("</dependencies></project>")
	work, err := os.MkdirTemp("", "interop-mvn-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), []byte(pom.String()), 0o644); err != nil {
		return "", err
	}
	part := dir + ".part" // renamed when whole, so that a broken download is never taken for the jars
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return "", err
	}
	cmd := exec.Command("mvn", "-q", "-B", "-f", filepath.Join(work, "pom.xml"),
		"dependency:copy-dependencies", "-DoutputDirectory="+part)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mvn could not copy the jars of %s: %w\n%s", version, err, out)
	}
	return dir, os.Rename(part, dir)
}

// Classes compiles the Java steps against the jars of a version and returns the class path.
func Classes(version string) (classPath string, err error) {
	jars, err := Jars(version)
	if err != nil {
		return "", err
	}
	if err := needJava(); err != nil {
		return "", err
	}
	var sources []string
	for _, d := range []string{"common", "v" + version[:1]} {
		found, err := filepath.Glob(filepath.Join(moduleDir(), "java", d, "interop", "*.java"))
		if err != nil {
			return "", err
		}
		sources = append(sources, found...)
	}
	if len(sources) == 0 {
		return "", fmt.Errorf("no Java sources below %s", moduleDir())
	}
	dir := filepath.Join(targetDir(), "classes-"+version)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	args := append([]string{"-nowarn", "-d", dir, "-cp", filepath.Join(jars, "*")}, sources...)
	if out, err := exec.Command("javac", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("javac with the jars of %s: %w\n%s", version, err, out)
	}
	return dir + string(os.PathListSeparator) + filepath.Join(jars, "*"), nil
}

// Ringmq builds ringmq's binary from the repository that this module lies in.
var Ringmq = sync.OnceValues(func() (string, error) {
	return buildGo(filepath.Dir(moduleDir()), "./cmd/ringmq", "ringmq")
})

func buildGo(dir, pkg, name string) (string, error) {
	bin := filepath.Join(targetDir(), name)
	cmd := exec.Command("go", "build", "-o", bin, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}
