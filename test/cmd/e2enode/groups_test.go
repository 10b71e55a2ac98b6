package main

import (
	"regexp"
	"slices"
	"testing"
)

func TestEveryGroupsExpressionsCompileAndItsNameIsItsOwn(t *testing.T) {
	var names []string
	for _, g := range groups {
		if slices.Contains(names, g.name) {
			t.Errorf("two groups are called %s", g.name)
		}
		names = append(names, g.name)
		for _, e := range slices.Concat(g.files, g.focus, g.skip) {
			if _, err := regexp.Compile(e); err != nil {
				t.Errorf("%s: %v", g.name, err)
			}
		}
		if g.procs < 1 || g.timeout <= 0 || len(g.files) == 0 || g.about == "" {
			t.Errorf("group %s says too little: %+v", g.name, g)
		}
	}
}

func TestWhatComesLaterRunsOnlyWhenAsked(t *testing.T) {
	all, err := chooseGroups("")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		if g.later != "" {
			t.Errorf("%s runs unasked", g.name)
		}
	}
	asked, err := chooseGroups("dra,par")
	if err != nil || len(asked) != 2 || asked[0].name != "dra" || asked[1].name != "par" {
		t.Errorf("got %v, %v", asked, err)
	}
	if _, err := chooseGroups("par,nothing"); err == nil {
		t.Error("a group that is not there was taken")
	}
}

func TestAFocusWithinAGroupMatchesInEitherOrder(t *testing.T) {
	for name, want := range map[string]bool{
		"[sig-node] [Serial] restarts": true, "[sig-node] restarts [Serial]": true, "[sig-node] restarts": false, "[Serial]": false,
	} {
		got := slices.ContainsFunc(bothOrders([]string{`\[Serial\]`}, "restarts|stops"), func(e string) bool { return regexp.MustCompile(e).MatchString(name) })
		if got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
