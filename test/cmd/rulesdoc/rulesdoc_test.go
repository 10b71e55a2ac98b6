package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `# One
A rule with a row.
	plan:TestTable/a row
A rule without a test.
`

// tree is a repository with one test file.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "services", "podsync", "internal", "worker", "plan")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	body := "package plan\n\nimport \"testing\"\n\nfunc TestTable(t *testing.T) { t.Run(\"a row\", nil) }\n"
	if err := os.WriteFile(filepath.Join(dir, "plan_test.go"), []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestARuleNamesTestsThatExist(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"as it is":         {"plan:TestTable/a row", ""},
		"the test alone":   {"plan:TestTable", ""},
		"another test":     {"plan:TestOther", "has no test TestOther"},
		"another row":      {"plan:TestTable/another", `no row "another"`},
		"another folder":   {"plane:TestTable", "no folder plane"},
		"more of its path": {"worker/plan:TestTable", ""},
		"the same, whole":  {"services/podsync/internal/worker/plan:TestTable", ""},
	} {
		t.Run(name, func(t *testing.T) {
			chapters, err := parse("x.txt", "# One\nA rule.\n\t"+tc.line+"\n")
			if err != nil {
				t.Fatal(err)
			}
			err = verify(tree(t), chapters)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestAPageShowsRulesTestsAndGaps(t *testing.T) {
	chapters, err := parse("x.txt", sample)
	if err != nil {
		t.Fatal(err)
	}
	if rules, gaps := count(chapters); rules != 2 || gaps != 1 {
		t.Errorf("%d rules, %d gaps; want 2 and 1", rules, gaps)
	}
	page := string(document(chapters))
	for _, want := range []string{"2 rules, 1 without a test.", "## One", "| A rule with a row. | `plan` TestTable: a row |", "| A rule without a test. | **none yet** |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestWhatIsNoRuleIsRefusedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"A rule.\n":                 "docs/rules/x.txt:1",
		"# One\n\tplan:TestTable\n": "docs/rules/x.txt:2",
		"# One\nA.\n\tTestTable\n":  "not folder:TestName",
		"# One\nA.\n\tplan:table\n": "no name of a test",
		"# One\nA.\nB.\nA.\n":       "docs/rules/x.txt:4: this rule stands there twice",
	} {
		if _, err := parse("x.txt", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
