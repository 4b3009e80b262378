//go:build !linux

package interop

import "syscall"

func lockThread() {}

// Elsewhere a child outlives a test process that is killed; a test that ends in order still ends its children.
func dieWithParent() *syscall.SysProcAttr { return nil }
