package volume

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
)

// TestMain is also the program that does Calls.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == apart.Flag {
		os.Exit(apart.Main(os.Args[1:], Calls(), os.Stdout))
	}
	goleak.VerifyTestMain(m)
}
