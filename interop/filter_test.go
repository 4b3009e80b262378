package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestFilter has internal/filter compare itself with Apache's filter: its recorded answers, and random expressions.
func TestFilter(t *testing.T) {
	classPath, err := Classes(Java5)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "Apache$", "./internal/filter")
	cmd.Dir = filepath.Dir(moduleDir())
	cmd.Env = append(os.Environ(), "RINGMQ_FILTER_ORACLE="+classPath)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	t.Logf("%s", out)
}
