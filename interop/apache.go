package interop

import (
	"os"
	"os/exec"
	"path/filepath"
)

// apache starts Apache's servers from Maven's jars. ROCKETMQ_HOME and user.home are the servers' directory, where
// logs go (logs/rocketmqlogs) and where the broker wants a conf/tools.yml for its request hooks.
type apache struct{}

func (apache) command(s *Servers, args ...string) (*exec.Cmd, error) {
	jars, err := Jars(Java5)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(s.Dir, "conf")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(conf, "tools.yml"), []byte("accessKey:\nsecretKey:\n"), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command("java", append([]string{"-Duser.home=" + s.Dir, "-cp", filepath.Join(jars, "*")}, args...)...)
	cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+s.Dir)
	cmd.Dir = s.Dir
	return cmd, nil
}

func (a apache) namesrv(s *Servers) (*Process, error) {
	conf, err := s.writeFile("namesrv.conf", s.namesrvConfig(""))
	if err != nil {
		return nil, err
	}
	cmd, err := a.command(s, "-Xms128m", "-Xmx128m", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", conf)
	if err != nil {
		return nil, err
	}
	return StartProcess("apache-namesrv", s.Dir, cmd)
}

func (a apache) broker(s *Servers) (*Process, error) {
	conf, err := s.writeFile("broker.conf", s.brokerConfig())
	if err != nil {
		return nil, err
	}
	cmd, err := a.command(s, "-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g",
		"--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.base/java.nio=ALL-UNNAMED",
		"org.apache.rocketmq.broker.BrokerStartup", "-c", conf)
	if err != nil {
		return nil, err
	}
	return StartProcess("apache-broker", s.Dir, cmd)
}
