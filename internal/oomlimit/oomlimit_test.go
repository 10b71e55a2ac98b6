package oomlimit

import "testing"

// enforceNodeAllocatable limits all pods together by default: who is killed for that may be
// far from his own limit, or have none.
func TestWhoseLimitWasUsedUpIsSaid(t *testing.T) {
	const uid = "6a5c2a4e-1b5a-4b5e-9a53-0d4ab8e5a111"
	const container = "/kubepods/burstable/pod" + uid + "/c0ffee"
	const scope = "/kubepods.slice/kubepods-pod6a5c2a4e_1b5a_4b5e_9a53_0d4ab8e5a111.slice"
	for name, c := range map[string]struct{ cgroup, limit, want string }{
		"its own":                        {container, container, "its memory limit"},
		"one that it has made within":    {container + "/app", container + "/app", "its memory limit"},
		"its own, of a process within":   {container + "/app", container, "its memory limit"},
		"its pod's":                      {container, "/kubepods/burstable/pod" + uid, "the memory limit of its pod"},
		"its pod's, as systemd calls it": {scope + "/cri-containerd-c0ffee.scope", scope, "the memory limit of its pod"},
		"that of all pods":               {container, "/kubepods", "the memory limit of cgroup /kubepods, in which other pods are, too,"},
		"that of all pods, with systemd": {scope + "/cri-containerd-c0ffee.scope", "/kubepods.slice", "the memory limit of cgroup /kubepods.slice, in which other pods are, too,"},
		"that of a class":                {container, "/kubepods/burstable", "the memory limit of cgroup /kubepods/burstable, in which other pods are, too,"},
		"its own, where pods have none":  {"/c0ffee", "/c0ffee", "its memory limit"},
		"not known":                      {container, "", "its memory limit"},
		"a pod whose name is longer":     {container, "/kubepods/burstable/pod" + uid + "0", "the memory limit of cgroup /kubepods/burstable/pod" + uid + "0, in which other pods are, too,"},
	} {
		if got := UsedUp(uid, false, c.cgroup, c.limit); got != c.want {
			t.Errorf("%s: %q\nwant %q", name, got, c.want)
		}
		if got := UsedUp(uid, true, c.cgroup, c.limit); got != "the node's memory" {
			t.Errorf("%s, and the machine had none: %q", name, got)
		}
	}
}
