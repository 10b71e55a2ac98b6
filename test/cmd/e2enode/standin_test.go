package main

import (
	"reflect"
	"testing"
)

func TestTheSuitesWayToStartItsKubeletIsUnderstood(t *testing.T) {
	got, err := parseRun([]string{
		"-p", "Delegate=true", "-p", "StandardError=append:/logs/kubelet.log", "--unit=kubelet-20261122T100000.service",
		"--slice=runtime.slice", "--remain-after-exit", "/bin/kubelet", "--root-dir", "/var/lib/kubelet", "--x=50%%", "$$HOME", "-p",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := unitRequest{
		Verb: verbStart, Unit: "kubelet-20261122T100000", Slice: "runtime.slice", Log: "/logs/kubelet.log",
		Command: []string{"/bin/kubelet", "--root-dir", "/var/lib/kubelet", "--x=50%", "$HOME", "-p"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, args := range [][]string{{"--unit=x"}, {"program"}, {"--scope", "--unit=x", "program"}} {
		if r, err := parseRun(args); err == nil {
			t.Errorf("%q became %+v, want an error", args, r)
		}
	}
}
