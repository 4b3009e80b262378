//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// benchCommand says that the load generator is Linux only (epoll, /proc).
func benchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "bench",
		Short: "Load a running broker or NameServer (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("bench needs Linux: it uses epoll and /proc")
		},
	}
}
