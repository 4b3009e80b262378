package flush

import "errors"

// ErrRingUnavailable is wrapped by NewRing's error where io_uring cannot be
// used; the text says why: the kernel has none (ENOSYS), a seccomp filter or
// the sysctl kernel.io_uring_disabled forbids it (EPERM), memory is short.
var ErrRingUnavailable = errors.New("io_uring is not available")

// DefaultRingEntries is enough for the writer's one write and for the syncs of
// as many segments as a group can touch.
const DefaultRingEntries = 16
