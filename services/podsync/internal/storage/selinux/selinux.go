// Package selinux says with which label of SELinux the files of a volume are to be shown
// to a pod, where a whole volume is mounted with one instead of each of its files being
// given it.
//
// It owns that rule, and reads what the node's policy says of labels. It must never change
// a label, and never pass on as one what is none: it becomes part of a mount option, and a
// pod's author has written it.
// Source: KEP-1710.
package selinux

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Policy is the node's; see Host.
type Policy interface {
	// Enabled says whether the node has SELinux at all.
	Enabled() bool
	// File is the label of the files that containers use, as user:role:type:level; empty
	// when the policy names none.
	File() string
}

// ErrNoLabel says that a container's seLinuxOptions are no label.
var ErrNoLabel = errors.New("failed to construct SELinux label from context")

// Several says that containers of a pod want several labels for the files of one volume.
type Several struct{ Labels []string }

// Error names them, in the kubelet's words.
func (e *Several) Error() string {
	return "multiple SELinux labels found: " + strings.Join(e.Labels, ",")
}

// Of is the label that a pod's containers need the files of a volume to have; empty when
// they do not say, or the runtime is to choose a part of it. The error is ErrNoLabel, or
// Several.
func Of(policy Policy, pod *v1.Pod, volume string) (string, error) {
	var labels []string
	for _, c := range podutil.Containers(pod) {
		o := options(pod, c)
		if o == nil || !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume }) {
			continue
		}
		label, err := file(policy, o)
		if err != nil {
			return "", err
		}
		labels = append(labels, label)
	}
	slices.Sort(labels)
	labels = slices.Compact(labels)
	switch len(labels) {
	case 0:
		return "", nil
	case 1:
		return labels[0], nil
	}
	return "", &Several{labels}
}

// Recursive says whether a pod wants each file of its volumes to be given its label,
// instead.
func Recursive(pod *v1.Pod) bool {
	s := pod.Spec.SecurityContext
	return s != nil && s.SELinuxChangePolicy != nil && *s.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive
}

// options are a container's, or its pod's; nil for none.
func options(pod *v1.Pod, c *v1.Container) *v1.SELinuxOptions {
	if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
		return c.SecurityContext.SELinuxOptions
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.SELinuxOptions
	}
	return nil
}

// file is the label of the files that a process with these options may use: its user and
// level, and what the policy says of files. A process without a level gets one from the
// runtime that nobody else has: it cannot be known here.
func file(policy Policy, o *v1.SELinuxOptions) (string, error) {
	for name, part := range map[string]string{"user": o.User, "role": o.Role, "type": o.Type} {
		if strings.ContainsFunc(part, notOfAName) {
			return "", fmt.Errorf("%w: seLinuxOptions.%s %.64q has more than letters, digits, dots, dashes and underscores", ErrNoLabel, name, part)
		}
	}
	if strings.ContainsFunc(o.Level, notOfALevel) {
		return "", fmt.Errorf("%w: seLinuxOptions.level %.64q has more than letters, digits, dots, commas, colons, dashes and underscores", ErrNoLabel, o.Level)
	}
	parts := strings.SplitN(policy.File(), ":", 4)
	if o.Level == "" || len(parts) < 3 {
		return "", nil
	}
	if o.User != "" {
		parts[0] = o.User
	}
	return strings.Join(append(parts[:3:3], o.Level), ":"), nil
}

func notOfAName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}

func notOfALevel(r rune) bool { return notOfAName(r) && r != ',' && r != ':' }

// Acts says whether a volume of these access modes is mounted with a label: one that only
// one pod may use, and with all (the gate SELinuxMount) any of a claim. Of others it is only
// counted what would come of that.
func Acts(modes []v1.PersistentVolumeAccessMode, all bool) bool {
	return len(modes) > 0 && all || len(modes) == 1 && modes[0] == v1.ReadWriteOncePod
}

// ShownMode is what the metrics call the access modes of a claim's volume, or of one in a
// pod's own spec, which has none.
func ShownMode(modes []v1.PersistentVolumeAccessMode) string {
	for _, m := range []struct {
		mode  v1.PersistentVolumeAccessMode
		shown string
	}{{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"}, {v1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			return m.shown
		}
	}
	return "inline"
}

// MountOption has a filesystem shown with a label.
func MountOption(label string) string { return fmt.Sprintf("context=%q", label) }
