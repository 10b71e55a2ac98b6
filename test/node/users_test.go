package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/node"
)

// ownUsersScript checks, in a pod with a user namespace, that root is root of
// its files only: those of volumes, also of the group's, the hosts file, and
// the termination log, where it leaves its range.
const ownUsersScript = `set -e
read inside outside length < /proc/self/uid_map
test "$inside $length" = "0 65536"
test "$outside" -ge 65536
touch /empty/file /memory/file
test "$(stat -c %u:%g /empty/file /memory/file | sort -u)" = "0:1234"
test "$(stat -c %u /etc/hosts)" = 0
test "$(stat -c %u /host/theirs)" = 4321
printf %s "$outside" > /dev/termination-log
`

func ownUsersPod(name, host string) *corev1.Pod {
	p := staticPod(name, images.BusyBox, "sh", "-c", ownUsersScript)
	p.Spec.HostUsers = ptr(false)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(1234))}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}},
	}
	c := &p.Spec.Containers[0]
	c.TerminationMessagePath = "/dev/termination-log"
	for _, v := range p.Spec.Volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return p
}

// TestPodsWithTheirOwnUsers runs pods with hostUsers: false where the runtime
// can, and wants them refused with the reason where it cannot.
func TestPodsWithTheirOwnUsers(t *testing.T) {
	h := build(t, plan{standalone: true})
	host := h.inst.Path("host")
	h.must(os.Mkdir(host, 0o755))
	h.must(os.WriteFile(filepath.Join(host, "theirs"), nil, 0o644))
	h.must(os.Chown(filepath.Join(host, "theirs"), 4321, 4321))
	h.addPod(ownUsersPod("one", host))
	if !h.hasUserNamespaces() {
		h.Log("this runtime has no user namespaces (runc 1.2 has, see POLYLET_TEST_RUNC); the pod must be refused")
		h.eventually(time.Minute, "a pod with its own users is refused", func() error {
			return boolError(strings.Contains(h.node.Logs(5000), "does not support user namespaces"), "no log says so")
		})
		return
	}
	h.waitStatic("one", "a pod has its own users", time.Minute, inPhase(corev1.PodSucceeded))
	h.killService(node.Podsync)
	h.addPod(ownUsersPod("two", host))
	h.waitStatic("two", "another has, after podsync was killed", time.Minute, inPhase(corev1.PodSucceeded))
	one, two := h.lastWords("one"), h.lastWords("two")
	if one == two || one == "" {
		h.Errorf("the first ids of the pods are %q and %q, want different ones", one, two)
	}
}

func (h *house) hasUserNamespaces() bool {
	h.Helper()
	status, err := h.runtime.Runtime().Status(h.ctx, &runtimeapi.StatusRequest{})
	h.must(err)
	for _, handler := range status.GetRuntimeHandlers() {
		if handler.GetName() == "" {
			return handler.GetFeatures().GetUserNamespaces()
		}
	}
	return false
}

// lastWords are what the pod's container has left in its termination log.
func (h *house) lastWords(name string) (message string) {
	h.Helper()
	h.waitStatic(name, name+" has left a message", time.Minute, func(p *corev1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Terminated != nil {
				message = c.State.Terminated.Message
			}
		}
		return boolError(message != "", "%s", describe(p))
	})
	return message
}
