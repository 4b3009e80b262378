//go:build !unix

package netloop

func endStream(int) {}

func readNow(int, []byte) int { return 0 }
