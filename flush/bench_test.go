package flush

import (
	"fmt"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmq/ringmq/internal/vfs"
)

// oneFile is a Log of one file, written by its writer.
type oneFile struct {
	file    vfs.File
	files   []vfs.File
	written atomic.Int64
}

func (l *oneFile) Written() int64 { return l.written.Load() }

func (l *oneFile) FilesIn(_, _ int64) ([]vfs.File, func()) { return l.files, func() {} }

func newOneFile(tb testing.TB, fs vfs.FS, dir string, zeroed int64) *oneFile {
	tb.Helper()
	f, err := fs.Open(filepath.Join(dir, "log"), vfs.ReadWrite|vfs.Create)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < zeroed; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros, off); err != nil {
			tb.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		tb.Fatal(err)
	}
	return &oneFile{file: f, files: []vfs.File{f}}
}

const benchFileBytes = 64 << 20

// devices are the engines that this machine has.
func devices(tb testing.TB) map[string]Device {
	tb.Helper()
	m := map[string]Device{EngineSyscall: NewSyscall()}
	r, err := NewRing(0)
	if err != nil {
		tb.Logf("without the ring: %v", err)
		return m
	}
	m[EngineRing] = r
	tb.Cleanup(func() { r.Close() })
	return m
}

func percentile(lat []time.Duration, p float64) time.Duration {
	sort.Slice(lat, func(i, j int) bool { return lat[i] < lat[j] })
	return lat[min(len(lat)-1, int(float64(len(lat))*p))]
}

// BenchmarkBare is the floor: write and sync on one goroutine.
func BenchmarkBare(b *testing.B) {
	for _, size := range []int{1200, 64 << 10} {
		for name, d := range devices(b) {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				l := newOneFile(b, vfs.OS(), b.TempDir(), benchFileBytes)
				rec := [][]byte{make([]byte, size)}
				lat := make([]time.Duration, 0, b.N)
				off := int64(0)
				for b.Loop() {
					start := time.Now()
					if err := d.WriteV(l.file, rec, off); err != nil {
						b.Fatal(err)
					}
					if err := d.Sync(l.files); err != nil {
						b.Fatal(err)
					}
					lat = append(lat, time.Since(start))
					off = (off + int64(size)) % (benchFileBytes - int64(size))
				}
				b.ReportMetric(float64(percentile(lat, 0.5).Nanoseconds()), "p50-ns")
			})
		}
	}
}

// BenchmarkDurable is what a lone producer waits for: write, Kick, the sync on
// the flusher's goroutine, and the wake-up; and what several share.
func BenchmarkDurable(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		for name, d := range devices(b) {
			b.Run(fmt.Sprintf("%s/%d", name, writers), func(b *testing.B) { durable(b, d, writers) })
		}
	}
}

func durable(b *testing.B, d Device, writers int) {
	const size = 1200
	l := newOneFile(b, vfs.OS(), b.TempDir(), benchFileBytes)
	type waiter struct {
		end  int64
		done chan struct{}
	}
	var mu sync.Mutex // the writer's token, and waiting
	var waiting []waiter
	f := Start(Config{Sync: true, Log: l, Device: d, OnDurable: func(off int64, err error) {
		if err != nil {
			b.Error(err)
		}
		mu.Lock()
		n := 0
		for n < len(waiting) && waiting[n].end <= off {
			waiting[n].done <- struct{}{}
			n++
		}
		waiting = append(waiting[:0], waiting[n:]...)
		mu.Unlock()
	}})
	defer f.Close()
	rec := [][]byte{make([]byte, size)}
	var left atomic.Int64
	left.Store(int64(b.N))
	lats := make([][]time.Duration, writers)
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			done := make(chan struct{}, 1)
			for left.Add(-1) >= 0 {
				start := time.Now()
				mu.Lock()
				at := l.written.Load()
				if err := d.WriteV(l.file, rec, at%(benchFileBytes-size)); err != nil {
					b.Error(err)
				}
				waiting = append(waiting, waiter{at + size, done})
				l.written.Store(at + size)
				mu.Unlock()
				f.Kick()
				<-done
				lats[w] = append(lats[w], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	var all []time.Duration
	for _, l := range lats {
		all = append(all, l...)
	}
	b.ReportMetric(float64(percentile(all, 0.5).Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "appends/s")
	b.ReportMetric(float64(f.Syncs())/float64(len(all)), "syncs/append")
}
