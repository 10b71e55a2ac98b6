package plan

import (
	"strings"
	"testing"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAdviceIsAboutWhatIsTheMatter(t *testing.T) {
	for _, c := range []struct {
		kind    podstate.Kind
		message string
		want    string
	}{
		{podstate.PullImage, "dial tcp: connection refused", "registry"},
		{podstate.MakeSandbox, "make the pod's directory: mkdir /var/lib/kubelet/pods/u: no space left on device", "df -i"},
		{podstate.MakeSandbox, "mkdir /var/lib/kubelet/pods/u: disk quota exceeded", "make room"},
		{podstate.MakeSandbox, "mkdir /var/lib/kubelet/pods/u: read-only file system", "dmesg"},
		{podstate.MakeSandbox, "open /var/lib/kubelet/pods/u/etc-hosts: too many open files", "open"},
		{podstate.MakeSandbox, "fork/exec /usr/bin/runc: cannot allocate memory", "memory"},
		{podstate.MakeSandbox, `failed to setup network: plugin type="bridge" failed`, "CNI"},
		{podstate.SetupVolumes, `MountVolume.SetUp failed for volume "e" : mkdir /v: no space left on device`, "df -i"},
		{podstate.StartContainer, "write /var/log/pods/u/c/0.log: no space left on device", "make room"},
		{podstate.StartContainer, "mkdirat /rootfs/data: read-only file system", "check the container"},
		{podstate.PullImage, "write /var/lib/containerd/blob: no space left on device", "image filesystem"},
		{podstate.RemoveSandbox, "it hangs", "runtime's log"},
	} {
		if got := advice(c.kind, Failure{Message: c.message}); !strings.Contains(got, c.want) {
			t.Errorf("%v, %s: the advice is %q, want %q in it", c.kind, c.message, got, c.want)
		}
	}
	hangs := Failure{Reason: "ImageInspectError", Message: `Failed to inspect image "app:1": rpc error: code = DeadlineExceeded desc = context deadline exceeded`}
	if got := advice(podstate.PullImage, hangs); !strings.Contains(got, "container runtime") {
		t.Errorf("of a runtime that hangs the advice is %q", got)
	}
}
