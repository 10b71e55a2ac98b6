// Command rulesdoc writes docs/rules.md: each rule of the pod lifecycle with the
// tests that fail when it is broken. It reads the rules from docs/rules/*.txt,
// looks every named test up in the tree, and fails when one does not exist, when
// a row of a table is not there, or when more rules are without a test than
// docs/rules/gaps allows. It must never know a rule itself. `make docs` calls it.
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
	chapters, err := read(root)
	if err != nil {
		return err
	}
	if err := verify(root, chapters); err != nil {
		return err
	}
	allowed, err := allowedGaps(root)
	if err != nil {
		return err
	}
	rules, gaps := count(chapters)
	fmt.Printf("%d rules, %d without a test (%d allowed)\n", rules, gaps, allowed)
	switch {
	case gaps > allowed:
		return fmt.Errorf("%d rules have no test, docs/rules/gaps allows %d: name a test for each new rule; the number may only fall", gaps, allowed)
	case gaps < allowed:
		return fmt.Errorf("%d rules have no test, docs/rules/gaps still allows %d: write %d there, so that it cannot rise again", gaps, allowed, gaps)
	}
	return os.WriteFile(filepath.Join(root, "docs", "rules.md"), document(chapters), 0o644)
}
