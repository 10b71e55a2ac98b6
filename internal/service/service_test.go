package service

import (
	"slices"
	"testing"
)

func TestEachOrderHasEachServiceOnce(t *testing.T) {
	want := slices.Sorted(slices.Values(All()))
	if got := slices.Sorted(slices.Values(ServersFirst())); !slices.Equal(got, want) || len(slices.Compact(want)) != 5 {
		t.Errorf("%q, %q", got, want)
	}
	if got := slices.Sorted(slices.Values(append(Separate(), Podsync))); !slices.Equal(got, want) {
		t.Errorf("with a user of their own are %q", got)
	}
}

func TestNobodyChangesTheListForOthers(t *testing.T) {
	All()[0], ServersFirst()[0], Separate()[0] = "", "", ""
	if All()[0] == "" || ServersFirst()[0] == "" || Separate()[0] == "" {
		t.Error("a list is shared")
	}
}
