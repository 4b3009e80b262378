package interop

import (
	"runtime"
	"syscall"
)

func lockThread() { runtime.LockOSThread() }

func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
