//go:build !linux

package netloop

import "github.com/ringmq/ringmq/internal/vfs"

// gather: elsewhere ranges are copied.
type gather struct{}

func (c *Conn) sendMapped([]byte, []vfs.Range) bool { return false }
