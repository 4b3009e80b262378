//go:build linux

package compare

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pageCacheFile is the sparse file in the scratch directory.
const pageCacheFile = "pagecache"

// fillPageCache reads a sparse file until hardly any memory is free, as on a
// machine that has been up for a while. On a virtual machine memory that the
// guest has not touched lately must first be given by its host, which was seen
// to take 5 to 17 µs a page and to double the CPU of a message for whoever
// happened to write it; pages taken from a full cache cost both systems the
// same.
//
// The file must stay open and linked as long as its pages are to stay: it is
// the scratch directory's, removed at the end.
func fillPageCache(ctx context.Context, dir string) error {
	total, free, err := memoryOf("/proc/meminfo")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, pageCacheFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(total); err != nil {
		return fmt.Errorf("compare: sparse file of %d bytes: %w", total, err)
	}
	buf := make([]byte, 1<<20)
	for off := int64(0); off < total && free > total/16; off += int64(len(buf)) {
		if _, err := f.ReadAt(buf, off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if off%(64<<20) == 0 {
			if _, free, err = memoryOf("/proc/meminfo"); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// memoryOf reads the bytes of memory there are and that are free.
func memoryOf(name string) (total, free int64, err error) {
	in, err := os.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer in.Close()
	for s := bufio.NewScanner(in); s.Scan(); {
		f := strings.Fields(s.Text())
		kb, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "MemTotal:":
			total = kb << 10
		case "MemFree:":
			free = kb << 10
		}
	}
	return total, free, nil
}
