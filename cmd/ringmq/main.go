// Command ringmq is a message broker and its NameServer in one binary, with a
// sub-command for each way to run it. It is thin: sub-commands read the
// configuration, start the rooms that do the work, and stop them in order.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code: 0, or 1 after one
// clear line on stderr.
func run(args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	if !errors.Is(err, errSaid) {
		for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
			fmt.Fprintf(stderr, "ringmq: %s\n", line)
		}
	}
	return 1
}

// errSaid ends the process with code 1 where the reason has been written.
var errSaid = errors.New("already said")

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "ringmq",
		Short: "A message broker and NameServer that speak Apache RocketMQ's protocols",
		Long: `ringmq is a message broker and its NameServer in one binary. RocketMQ clients,
tools and configuration files work with it unchanged.

  ringmq server                   NameServer and broker in one process, data in ./data
  ringmq namesrv -c FILE          a NameServer
  ringmq broker -c FILE -n ADDRS  a broker
  ringmq store verify DIR         is everything in a store as it should be?`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(serverCommand(), namesrvCommand(), brokerCommand(), storeCommand(), benchCommand())
	return root
}
