package volume

import (
	"maps"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// TestMain is also the program that does Calls, and those of mounts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == apart.Flag {
		calls := Calls()
		maps.Copy(calls, mount.Calls())
		os.Exit(apart.Main(os.Args[1:], calls, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}
