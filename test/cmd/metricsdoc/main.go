// Command metricsdoc writes docs/metrics.md from what the processes register:
// from the golden lists that each service's tests hold to its registry, from the
// list of the kubelet's metrics, and from the reasons why some of those are not
// there. It fails when the three disagree; it must never decide which is
// right. `make docs` calls it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/polylet/polylet/test/harness/workspace"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	root, err := workspace.Root()
	if err != nil {
		return err
	}
	text, err := document(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs", "metrics.md"), text, 0o644)
}
