package interop

import (
	"os"
	"os/exec"
	"path/filepath"
)

// ringmq starts ringmq's NameServer and broker as separate processes, with the files that Apache's would take.
type ringmq struct{}

func (ringmq) start(s *Servers, name, conf, text string, args ...string) (*Process, error) {
	bin, err := Ringmq()
	if err != nil {
		return nil, err
	}
	path, err := s.writeFile(conf, text)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, append([]string{name, "-c", path}, args...)...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), "HOME="+s.Dir)
	return StartProcess("ringmq-"+name, s.Dir, cmd)
}

func (r ringmq) namesrv(s *Servers) (*Process, error) {
	return r.start(s, "namesrv", "namesrv.conf",
		s.namesrvConfig(""))
}

func (r ringmq) broker(s *Servers) (*Process, error) {
	return r.start(s, "broker", "broker.conf", s.brokerConfig())
}

// ringmqServer is `ringmq server`: both in one process, the newcomer's way.
type ringmqServer struct{}

func (ringmqServer) namesrv(*Servers) (*Process, error) { return nil, nil }

func (ringmqServer) broker(s *Servers) (*Process, error) {
	conf := s.brokerConfig() + s.namesrvConfig("namesrv.")
	return ringmq{}.start(s, "server", "server.conf", conf, "--data", filepath.Join(s.Dir, "data"))
}
