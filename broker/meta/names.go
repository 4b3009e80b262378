package meta

import (
	"fmt"

	"github.com/ringmq/ringmq/remoting"
)

// Lengths of names in bytes, as Apache's TopicValidator and Validators have
// them (facts: broker-client §11).
const (
	TopicBytesMax        = 127 // a plain topic
	DerivedTopicBytesMax = 255 // %RETRY%group and %DLQ%group; also what a directory name can hold
	GroupBytesMax        = 120 // a group an administrator creates

	// LiveGroupBytesMax bounds a group that appears by a heartbeat, a pull or
	// a commit. Apache lets clients use up to 255 there (Go's client allows
	// it), but then %RETRY%group is no legal name any more; this is the longest
	// group whose retry topic is one.
	LiveGroupBytesMax = DerivedTopicBytesMax - len(RetryPrefix)
)

// Prefixes of the topics a group owns.
const (
	RetryPrefix = "%RETRY%"
	DLQPrefix   = "%DLQ%"
)

// CheckTopic says whether name may be a topic: characters % | - _ A-Z a-z 0-9,
// at most 127 bytes, 255 with the prefix %RETRY% or %DLQ%. Every name passes
// here before it becomes a file name. It doesn't allocate when the name is
// good. The error is a *remoting.Error, INVALID_PARAMETER (29).
func CheckTopic[S ~string | ~[]byte](name S) error {
	limit := TopicBytesMax
	if HasPrefix(name, RetryPrefix) || HasPrefix(name, DLQPrefix) {
		limit = DerivedTopicBytesMax
	}
	return checkName("topic", name, limit)
}

// CheckGroup is CheckTopic for a group an administrator creates: at most 120
// bytes.
func CheckGroup[S ~string | ~[]byte](name S) error {
	return checkName("group", name, GroupBytesMax)
}

// CheckLiveGroup is CheckGroup for a group that a client's own request names:
// at most LiveGroupBytesMax bytes.
func CheckLiveGroup[S ~string | ~[]byte](name S) error {
	return checkName("group", name, LiveGroupBytesMax)
}

func checkName[S ~string | ~[]byte](what string, name S, limit int) error {
	if len(name) == 0 {
		return nameError(what, "is blank")
	}
	if len(name) > limit {
		return nameError(what, "%.150q... is too long: got %d bytes, want at most %d", name, len(name), limit)
	}
	for i := 0; i < len(name); i++ {
		if !nameByte[name[i]] {
			return nameError(what, "%q contains illegal characters, allowing only ^[%%|a-zA-Z0-9_-]+$", name)
		}
	}
	return nil
}

func nameError(what, format string, args ...any) error {
	return &remoting.Error{Code: remoting.InvalidParameter, Remark: "The specified " + what + " " + fmt.Sprintf(format, args...)}
}

// nameByte holds the characters of ^[%|a-zA-Z0-9_-]+$.
var nameByte = func() (t [256]bool) {
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for _, c := range "%|-_" {
		t[c] = true
	}
	return t
}()

// HasPrefix is strings.HasPrefix for either kind of text.
func HasPrefix[S ~string | ~[]byte](s S, prefix string) bool {
	return len(s) >= len(prefix) && string(s[:len(prefix)]) == prefix
}

// RetryTopic names the topic a group's failed messages come back on.
func RetryTopic(group string) string { return RetryPrefix + group }

// DLQTopic names the topic of a group's dead letters.
func DLQTopic(group string) string { return DLQPrefix + group }
