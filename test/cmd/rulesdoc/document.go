package main

import (
	"bytes"
	"fmt"
	"strings"
)

const preface = `# Rules

Each rule of the pod lifecycle, and the tests that fail when it is broken: rows of tables, promises of the simulation's judge (each with a sabotage that it must find), and tests on real parts (folder ` + "`node`" + `). The names are looked up in the tree when this page is written; a rule without a test is a gap, and the number of gaps may only fall.

Generated from docs/rules/*.txt; edit those, then ` + "`make docs`" + `. A folder is below services/podsync/internal, services, test or the root.
`

// document is the page.
func document(chapters []chapter) []byte {
	var b bytes.Buffer
	b.WriteString(preface)
	rules, gaps := count(chapters)
	fmt.Fprintf(&b, "\n%d rules, %d without a test.\n", rules, gaps)
	for _, c := range chapters {
		fmt.Fprintf(&b, "\n## %s\n\n| rule | tests |\n|---|---|\n", c.title)
		for _, r := range c.rules {
			fmt.Fprintf(&b, "| %s | %s |\n", cell(r.text), names(r.tests))
		}
	}
	return b.Bytes()
}

func names(tests []test) string {
	if len(tests) == 0 {
		return "**none yet**"
	}
	out := make([]string, 0, len(tests))
	for _, t := range tests {
		s := "`" + t.folder + "` " + t.name
		if t.row != "" {
			s += ": " + cell(t.row)
		}
		out = append(out, s)
	}
	return strings.Join(out, "<br>")
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
