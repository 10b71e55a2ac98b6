package vm

import (
	"fmt"
	"testing"
)

// A kubelet takes kubeReservedCgroup's last element for the name of a slice, with or without
// .slice, and each dash in it for a level.
func TestJoinedReservedCgroupsAreTheSlicesThatAKubeletTakes(t *testing.T) {
	client := joinedCluster(t)
	const ofSystem, ofKube = "runtime.slice", "kube.slice/kube-reserved.slice"
	slices := []string{"runtime.slice", "kube-reserved.slice"}
	if err := run("systemctl", append([]string{"start"}, slices...)...); err != nil {
		t.Fatal(err)
	}
	before := reconfigure(t, map[string]string{
		"enforceNodeAllocatable": "[pods, system-reserved, kube-reserved]",
		"systemReserved":         "{memory: 96Mi, cpu: 100m, pid: '900'}", "systemReservedCgroup": "/runtime",
		"kubeReserved": "{memory: 128Mi, cpu: 200m, pid: '1000'}", "kubeReservedCgroup": "/kube-reserved",
	}, "")
	defer func() {
		restart(t, before)
		if err := run("systemctl", append([]string{"stop"}, slices...)...); err != nil {
			t.Error(err)
		}
	}()
	isReady(t, client)
	limited := func() error {
		for path, want := range map[string]map[string]string{
			ofSystem: {"memory.max": "100663296", "pids.max": "900"},
			ofKube:   {"memory.max": "134217728", "pids.max": "1000"},
		} {
			for file, want := range want {
				if got := files(t, path, file); got != want {
					return fmt.Errorf("%s/%s: %s, want %s", path, file, got, want)
				}
			}
		}
		return nil
	}
	eventually(t, "both are limited", limited)
	if err := run("systemctl", "daemon-reload"); err != nil {
		t.Fatal(err)
	}
	if err := limited(); err != nil {
		t.Errorf("after systemd has read its units again: %v", err)
	}
}
