// Package security maps security contexts of pods and containers to CRI.
//
// It is pure: it must never do I/O.
package security

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Config is what of the node the mapping depends on.
type Config struct {
	// SeccompRoot is where localhost seccomp profiles lie.
	SeccompRoot string
	// SeccompDefault gives RuntimeDefault to those that say nothing.
	SeccompDefault bool
	// ThrottlePaths are the machine's thermal throttle directories, masked by default.
	ThrottlePaths []string
	// Groups are those that may use the pod's volumes, beside those that its spec names.
	Groups []int64
}

// ImageUser is the user that an image names: a UID, or a name when UID is nil.
type ImageUser struct {
	UID  *int64
	Name string
}

// Namespaces are the pod's; targetID is the container whose process namespace
// an ephemeral container joins.
func Namespaces(pod *v1.Pod, targetID string) *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD, Ipc: runtimeapi.NamespaceMode_POD, Pid: runtimeapi.NamespaceMode_CONTAINER,
	}
	if pod.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		n.Pid = runtimeapi.NamespaceMode_NODE
	case targetID != "":
		n.Pid, n.TargetId = runtimeapi.NamespaceMode_TARGET, targetID
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	return n
}

// Sandbox is the context of a pod's sandbox.
func Sandbox(pod *v1.Pod) *runtimeapi.LinuxSandboxSecurityContext {
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: Namespaces(pod, ""),
		Privileged:       AnyPrivileged(pod),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return out
	}
	out.RunAsUser, out.RunAsGroup = number(sc.RunAsUser), number(sc.RunAsGroup)
	out.SelinuxOptions = selinux(sc.SELinuxOptions)
	out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(pod)
	return out
}

// AnyPrivileged says whether a container of the pod is privileged, one for debugging
// that was added later included: a runtime makes no such container in a sandbox whose
// configuration does not say so.
func AnyPrivileged(pod *v1.Pod) bool {
	for _, c := range podutil.Containers(pod) {
		if sc := c.SecurityContext; sc != nil && sc.Privileged != nil && *sc.Privileged {
			return true
		}
	}
	return false
}

// Container is the context of a container. image is asked only when the spec
// names no user.
func Container(cfg Config, pod *v1.Pod, c *v1.Container, targetID string, image func() (ImageUser, error)) (*runtimeapi.LinuxContainerSecurityContext, error) {
	eff := effective(pod, c)
	out := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: Namespaces(pod, targetID),
		RunAsUser:        number(eff.RunAsUser),
		RunAsGroup:       number(eff.RunAsGroup),
		SelinuxOptions:   selinux(eff.SELinuxOptions),
		Privileged:       eff.Privileged != nil && *eff.Privileged,
		ReadonlyRootfs:   eff.ReadOnlyRootFilesystem != nil && *eff.ReadOnlyRootFilesystem,
		NoNewPrivs:       eff.AllowPrivilegeEscalation != nil && !*eff.AllowPrivilegeEscalation,
	}
	if err := user(pod, c, eff, out, image); err != nil {
		return nil, err
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(pod)
	for _, group := range cfg.Groups {
		if sc := pod.Spec.SecurityContext; sc == nil || !slices.Contains(sc.SupplementalGroups, group) {
			out.SupplementalGroups = append(out.SupplementalGroups, group)
		}
	}
	if caps := eff.Capabilities; caps != nil {
		out.Capabilities = &runtimeapi.Capability{AddCapabilities: texts(caps.Add), DropCapabilities: texts(caps.Drop)}
	}
	if eff.ProcMount == nil || *eff.ProcMount == v1.DefaultProcMount {
		out.MaskedPaths, out.ReadonlyPaths = slices.Concat(maskedPaths(), cfg.ThrottlePaths), readOnlyPaths()
	}
	var err error
	if out.Seccomp, err = seccomp(cfg, eff.SeccompProfile); err != nil {
		return nil, err
	}
	if out.Apparmor, err = apparmor(pod, c, eff.AppArmorProfile); err != nil {
		return nil, err
	}
	if out.Apparmor != nil {
		// Runtimes before containerd 1.7 know only the text.
		out.ApparmorProfile = apparmorText(out.Apparmor) //nolint:staticcheck // still read by them
	}
	return out, nil
}

// effective is the container's context with the pod's in the places it leaves open.
func effective(pod *v1.Pod, c *v1.Container) *v1.SecurityContext {
	eff := &v1.SecurityContext{}
	if c.SecurityContext != nil {
		*eff = *c.SecurityContext
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return eff
	}
	if eff.RunAsUser == nil {
		eff.RunAsUser = p.RunAsUser
	}
	if eff.RunAsGroup == nil {
		eff.RunAsGroup = p.RunAsGroup
	}
	if eff.RunAsNonRoot == nil {
		eff.RunAsNonRoot = p.RunAsNonRoot
	}
	if eff.SELinuxOptions == nil {
		eff.SELinuxOptions = p.SELinuxOptions
	}
	if eff.SeccompProfile == nil {
		eff.SeccompProfile = p.SeccompProfile
	}
	if eff.AppArmorProfile == nil {
		eff.AppArmorProfile = p.AppArmorProfile
	}
	return eff
}

// user settles whom the container runs as, and that it is not root where that
// is demanded.
func user(pod *v1.Pod, c *v1.Container, eff *v1.SecurityContext, out *runtimeapi.LinuxContainerSecurityContext, image func() (ImageUser, error)) error {
	nonRoot := eff.RunAsNonRoot != nil && *eff.RunAsNonRoot
	who := fmt.Sprintf("(pod: %q, container: %s)", fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID), c.Name)
	if eff.RunAsUser != nil {
		if nonRoot && *eff.RunAsUser == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", who)
		}
		return nil
	}
	u, err := image()
	if err != nil {
		return err
	}
	if u.UID == nil && u.Name == "" {
		u.UID = new(int64)
	}
	switch {
	case nonRoot && u.UID != nil && *u.UID == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", who)
	case nonRoot && u.UID != nil && (*u.UID < 0 || *u.UID > math.MaxInt32):
		// A runtime may cut such a number down, to root's for one (CVE-2024-40635).
		return fmt.Errorf("container has runAsNonRoot and image has user %d, which is beyond %d, cannot verify user is non-root %s", *u.UID, math.MaxInt32, who)
	case nonRoot && u.UID == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", u.Name, who)
	}
	out.RunAsUser = number(u.UID)
	if u.UID == nil {
		out.RunAsUsername = u.Name
	}
	return nil
}

func groups(pod *v1.Pod) ([]int64, runtimeapi.SupplementalGroupsPolicy) {
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return nil, runtimeapi.SupplementalGroupsPolicy_Merge
	}
	var list []int64
	if sc.FSGroup != nil {
		list = append(list, *sc.FSGroup)
	}
	list = append(list, sc.SupplementalGroups...)
	if sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
		return list, runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return list, runtimeapi.SupplementalGroupsPolicy_Merge
}

func seccomp(cfg Config, p *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	switch {
	case p == nil && cfg.SeccompDefault, p != nil && p.Type == v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p == nil, p.Type == v1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case p.Type == v1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost")
		}
		if !filepath.IsLocal(*p.LocalhostProfile) {
			return nil, fmt.Errorf("localhostProfile %q must lie below %s", *p.LocalhostProfile, cfg.SeccompRoot)
		}
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: filepath.Join(cfg.SeccompRoot, *p.LocalhostProfile),
		}, nil
	}
	return nil, fmt.Errorf("unknown seccompProfile type %q", p.Type)
}

const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/"

// apparmor is the profile of the field, else of the annotation that came before it.
func apparmor(pod *v1.Pod, c *v1.Container, p *v1.AppArmorProfile) (*runtimeapi.SecurityProfile, error) {
	if p == nil {
		text, ok := pod.Annotations[appArmorAnnotation+c.Name]
		if !ok {
			return nil, nil
		}
		return apparmorFromText(text)
	}
	switch p.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case v1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return nil, errors.New("localhostProfile must be set if appArmorProfile type is Localhost")
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}, nil
	}
	return nil, fmt.Errorf("unknown appArmorProfile type %q", p.Type)
}

func apparmorFromText(text string) (*runtimeapi.SecurityProfile, error) {
	switch {
	case text == "runtime/default":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case text == "unconfined":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case strings.HasPrefix(text, "localhost/"):
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: strings.TrimPrefix(text, "localhost/")}, nil
	case text == "":
		return nil, nil
	}
	return nil, fmt.Errorf("invalid AppArmor profile name: %q", text)
}

func apparmorText(p *runtimeapi.SecurityProfile) string {
	switch p.ProfileType {
	case runtimeapi.SecurityProfile_RuntimeDefault:
		return "runtime/default"
	case runtimeapi.SecurityProfile_Unconfined:
		return "unconfined"
	}
	return "localhost/" + p.LocalhostRef
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func number(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

func texts(caps []v1.Capability) []string {
	out := make([]string, len(caps))
	for i, c := range caps {
		out[i] = string(c)
	}
	return out
}

// maskedPaths are hidden from containers whose proc mount is the default one.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
}

// readOnlyPaths cannot be written in containers whose proc mount is the default one.
func readOnlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
