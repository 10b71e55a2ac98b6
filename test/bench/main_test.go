package main

import (
	"slices"
	"strings"
	"testing"
)

func TestACommandIsFoundByNameOrByTheFlagThatItWas(t *testing.T) {
	for _, c := range []struct {
		args, name, flags string
	}{
		{"", "pods", ""},
		{"-agents polylet,kubelet -memory", "pods", "-agents polylet,kubelet -memory"},
		{"api -burst 20", "api", "-burst 20"},
		{"-api -burst 20", "api", "-burst 20"},
		{"-burst 3 -rows", "rows", "-burst 3"},
		{"-scale 500 -settle 1s", "scale", "-pods=500 -settle 1s"},
		{"--scale=110", "scale", "-pods=110"},
	} {
		name, flags := named(strings.Fields(c.args))
		if name != c.name || !slices.Equal(flags, strings.Fields(c.flags)) {
			t.Errorf("%q: %s with %q, want %s with %q", c.args, name, flags, c.name, c.flags)
		}
	}
}

func TestFlagsOfAnotherCommandAndUnknownCommandsAreRefused(t *testing.T) {
	for _, args := range []string{"api -burst 20 -requests 0", "pods -memory", "rows -idle-pods 4", "volumes -own 4 -driven 2", "scale -pods 10 -limits raised,default", "-rows -agents polylet,kubelet"} {
		if _, err := parse(strings.Fields(args)); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, args := range []string{"none", "pods -idle-pods 4", "rows -memory", "pods api"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}
