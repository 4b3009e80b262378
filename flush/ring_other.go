//go:build !linux

package flush

import (
	"fmt"
	"runtime"
)

// NewRing has no ring to open: io_uring is Linux's.
func NewRing(entries int) (Device, error) {
	return nil, fmt.Errorf("%w: %s has none", ErrRingUnavailable, runtime.GOOS)
}
