package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/test/harness/images"
)

// TestAContainerWithTheServicesNumberIsRefused runs pods with the numbers of
// the gateway, and root, that have the directory of the sockets: none may call
// what the gateway may, and with the gateway's user and group alone not even the
// copies of keys can be seen.
func TestAContainerWithTheServicesNumberIsRefused(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet has no sockets between processes")
	}
	h := build(t, plan{standalone: true, supervised: true})
	uid, gid, group := h.gatewaysNumbers()
	for _, c := range []struct {
		name     string
		uid, gid int64
		groups   []int64
		args     []string
		want     string
	}{
		{"number", uid, gid, []int64{group}, []string{"call", "socket=/sockets/podsync.sock", "method=" + podsyncv1.PodSyncService_ExecSync_FullMethodName}, "PermissionDenied"},
		{"root", 0, 0, nil, []string{"call", "socket=/sockets/podsync.sock", "method=" + podsyncv1.PodSyncService_ListDesiredPods_FullMethodName}, "PermissionDenied"},
		{"outside", uid, gid, nil, []string{"call", "socket=/sockets/podsync.sock", "method=" + podsyncv1.PodSyncService_ExecSync_FullMethodName}, "permission denied"},
		{"keys", uid, gid, nil, []string{"stat", "path=/sockets/gateway/tls.key"}, "permission denied"},
	} {
		p := staticPod(c.name, images.TestApp, c.args...)
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &c.uid, RunAsGroup: &c.gid, SupplementalGroups: c.groups}
		p.Spec.Volumes = []corev1.Volume{{Name: "sockets", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: h.node.SocketDir}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "sockets", MountPath: "/sockets", ReadOnly: true}}
		p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		h.addPod(p)
		name := c.name + "-" + nodeName
		h.waitStatic(c.name, c.name+" has ended", time.Minute, func(p *corev1.Pod) error {
			return boolError(p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed, "%s", describe(p))
		})
		if said := h.lastWords(c.name); !strings.Contains(said, c.want) {
			t.Errorf("%s (uid %d, groups %v) hears %q, want %q", name, c.uid, c.groups, said, c.want)
		}
	}
}

// gatewaysNumbers are the gateway's user and group and the group of the sockets.
func (h *house) gatewaysNumbers() (uid, gid, group int64) {
	h.Helper()
	var pid int
	h.quietly(time.Minute, "the gateway runs", func() (err error) {
		pid, err = childOf(h.node.Processes["run"].Pid(), "gateway")
		return err
	})
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	h.must(err)
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "Uid":
			uid = int64(number(h.T, value))
		case "Gid":
			gid = int64(number(h.T, value))
		case "Groups":
			group, err = strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			h.must(err)
		}
	}
	if uid == 0 || gid == group {
		h.Fatalf("the gateway has uid %d, gid %d, group %d", uid, gid, group)
	}
	if info, err := os.Stat(filepath.Join(h.node.SocketDir, "gateway", "tls.key")); err != nil || info.Mode().Perm() != 0o640 {
		h.Fatalf("the gateway's copy of the key: %v, %v", info, err)
	}
	return uid, gid, group
}
