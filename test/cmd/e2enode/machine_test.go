package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestInAMachineSystemdMakesTheCgroupsAndTheControlPlaneIsElsewhere(t *testing.T) {
	r := &runner{options: options{agent: agentPolylet, seed: 1}}
	o := r.machineOrder(group{name: "serial", procs: 4, timeout: time.Hour, logind: true, swap: 1, lift: true})
	for _, want := range []string{"--start-services=false", "--host=https://" + reachedAt, "--bearer-token=" + o.Token, "--kubelet-flags=--runtime-cgroups=/system.slice/containerd.service"} {
		if !slices.Contains(o.Flags, want) {
			t.Errorf("%s is missing in %q", want, o.Flags)
		}
	}
	if o.Token == "" || o.Swap != 1 || !o.Logind || !o.Lift || !slices.Contains(o.Ginkgos, "--procs=1") || !slices.Contains(o.Ginkgos, "--timeout=4h0m0s") {
		t.Errorf("got %+v", o)
	}
	if text := kubeletConfig(o.cgroupDriver()); !strings.Contains(text, "cgroupDriver: systemd\n") {
		t.Errorf("the agent's configuration is\n%s", text)
	}
	if text := containerdConfig(o.Machine); strings.Count(text, "SystemdCgroup = true\n") != 2 {
		t.Errorf("the runtime's configuration is\n%s", text)
	}
}

func TestInNamespacesNothingIsAskedOfSystemd(t *testing.T) {
	flags := suiteFlags(order{}, group{})
	if slices.ContainsFunc(flags, func(f string) bool { return strings.Contains(f, "start-services") || strings.Contains(f, "host=") }) {
		t.Errorf("got %q", flags)
	}
	if text := kubeletConfig(order{}.cgroupDriver()); !strings.Contains(text, "cgroupDriver: cgroupfs\n") {
		t.Errorf("the agent's configuration is\n%s", text)
	}
	if text := containerdConfig(false); strings.Count(text, "SystemdCgroup = false\n") != 2 || strings.Contains(text, "@") {
		t.Errorf("the runtime's configuration is\n%s", text)
	}
}

func TestPodsThatTheSuiteLeavesDoNotHoldUpTheMachinesEnd(t *testing.T) {
	root := t.TempDir()
	kill := filepath.Join(root, "cgroup.kill")
	if err := os.WriteFile(kill, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := endPods(root); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(kill); err != nil || string(got) != "1" {
		t.Errorf("cgroup.kill has %q, %v", got, err)
	}
	if err := endPods(filepath.Join(root, "none")); err != nil {
		t.Errorf("without pods: %v", err)
	}
}
