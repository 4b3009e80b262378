//go:build unix

package netloop

import "golang.org/x/sys/unix"

// endStream shuts the writing half of a socket. An error says that the peer is
// gone already.
func endStream(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) }

// readNow reads what a socket has, 0 or less when it has nothing more.
func readNow(fd int, buf []byte) int {
	n, _ := unix.Read(fd, buf)
	return n
}
