package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// chapter is a part of the page.
type chapter struct {
	title string
	rules []rule
}

// rule is one promise, and the tests that fail when it is broken.
type rule struct {
	text  string
	tests []test
	// where it stands: file and line.
	where string
}

// test is a test's name within a folder, and the row of its table if one is meant.
type test struct{ folder, name, row string }

// files are read in this order.
var files = []string{"pods.txt", "containers.txt", "node.txt", "probes.txt"}

// read returns the chapters of all files.
func read(root string) ([]chapter, error) {
	var out []chapter
	for _, name := range files {
		path := filepath.Join(root, "docs", "rules", name)
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the rules: %w", err)
		}
		chapters, err := parse(name, string(data))
		if err != nil {
			return nil, err
		}
		out = append(out, chapters...)
	}
	return out, nil
}

// parse reads chapters ("# title"), rules (a line each) and their tests
// (indented by a tab: folder:TestName or folder:TestName/row).
func parse(file, text string) ([]chapter, error) {
	var out []chapter
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		where := fmt.Sprintf("docs/rules/%s:%d", file, i+1)
		switch {
		case strings.TrimSpace(line) == "":
		case strings.HasPrefix(line, "# "):
			out = append(out, chapter{title: line[2:]})
		case len(out) == 0:
			return nil, fmt.Errorf("%s: a rule before the first chapter; begin with a line \"# title\"", where)
		case strings.HasPrefix(line, "\t"):
			c := &out[len(out)-1]
			if len(c.rules) == 0 {
				return nil, fmt.Errorf("%s: a test before the first rule of its chapter", where)
			}
			named, err := parseTest(strings.TrimSpace(line))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", where, err)
			}
			r := &c.rules[len(c.rules)-1]
			r.tests = append(r.tests, named)
		default:
			if seen[line] {
				return nil, fmt.Errorf("%s: this rule stands there twice", where)
			}
			seen[line] = true
			c := &out[len(out)-1]
			c.rules = append(c.rules, rule{text: line, where: where})
		}
	}
	return out, nil
}

func parseTest(line string) (test, error) {
	folder, name, ok := strings.Cut(line, ":")
	if !ok {
		return test{}, fmt.Errorf("%q is not folder:TestName", line)
	}
	name, row, _ := strings.Cut(name, "/")
	if !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Fuzz") {
		return test{}, fmt.Errorf("%q is no name of a test", name)
	}
	return test{folder: folder, name: name, row: row}, nil
}

// allowedGaps is how many rules may be without a test.
func allowedGaps(root string) (int, error) {
	data, err := os.ReadFile(filepath.Join(root, "docs", "rules", "gaps"))
	if err != nil {
		return 0, fmt.Errorf("read how many rules may be without a test: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("docs/rules/gaps holds %q, which is no number", strings.TrimSpace(string(data)))
	}
	return n, nil
}

func count(chapters []chapter) (rules, gaps int) {
	for _, c := range chapters {
		for _, r := range c.rules {
			rules++
			if len(r.tests) == 0 {
				gaps++
			}
		}
	}
	return rules, gaps
}
