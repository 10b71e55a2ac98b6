package admission

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	podresource "k8s.io/component-helpers/resource"

	nodesysctl "k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	featuretypes "k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// safeSysctls may be set by any pod: they are the pod's own and harm nobody.
// Source: https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/
func safeSysctl(name string) bool {
	switch name {
	case "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
		"net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports",
		"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
		"net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem":
		return true
	}
	return false
}

// checkSysctls refuses what is neither safe nor allowed by the operator, and
// what would not be the pod's own.
func checkSysctls(in Input) (Answer, bool) {
	if in.Pod.Spec.SecurityContext == nil {
		return fine()
	}
	for _, s := range in.Pod.Spec.SecurityContext.Sysctls {
		name := nodesysctl.NormalizeName(s.Name)
		network := strings.HasPrefix(name, "net.")
		switch {
		case !safeSysctl(name) && !allowed(name, in.Host.AllowedUnsafeSysctls):
			return rejected(reasonSysctl, "forbidden sysctl: %q not allowlisted", name)
		case network && in.Pod.Spec.HostNetwork:
			return rejected(reasonSysctl, "forbidden sysctl: %q not allowed with host Net enabled", name)
		case !network && in.Pod.Spec.HostIPC:
			return rejected(reasonSysctl, "forbidden sysctl: %q not allowed with host IPC enabled", name)
		}
	}
	return fine()
}

func allowed(name string, patterns []string) bool {
	for _, p := range patterns {
		p = nodesysctl.NormalizeName(p)
		if prefix, wild := strings.CutSuffix(p, "*"); name == p || wild && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// checkAppArmor refuses a pod whose profile nobody would enforce, or that has no name. Whether a
// profile is loaded the runtime says when a container is created, which is tried again: whoever
// loads profiles may be a pod that comes later.
func checkAppArmor(in Input) (Answer, bool) {
	for _, p := range appArmorProfiles(in.Pod) {
		switch {
		case p.Type == v1.AppArmorProfileTypeUnconfined:
		case in.Host.NoAppArmor:
			return rejected(reasonAppArmor, "Cannot enforce AppArmor: AppArmor is not enabled on the host")
		case p.Type == v1.AppArmorProfileTypeLocalhost && (p.LocalhostProfile == nil || strings.TrimSpace(*p.LocalhostProfile) == ""):
			return rejected(reasonAppArmor, "Cannot enforce AppArmor: invalid empty AppArmor profile name: %q", &p)
		}
	}
	return fine()
}

// NeedsAppArmor says whether the pod asks for any profile.
func NeedsAppArmor(pod *v1.Pod) bool { return len(appArmorProfiles(pod)) > 0 }

// appArmorAnnotation names a container's profile in the older spelling.
const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/"

// appArmorProfiles are the profiles that the pod or its containers ask for.
func appArmorProfiles(pod *v1.Pod) []v1.AppArmorProfile {
	var out []v1.AppArmorProfile
	if sc := pod.Spec.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		out = append(out, *sc.AppArmorProfile)
	}
	for _, c := range podutil.Containers(pod) {
		if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
			out = append(out, *sc.AppArmorProfile)
		} else if text, ok := pod.Annotations[appArmorAnnotation+c.Name]; ok {
			out = append(out, annotatedProfile(text))
		}
	}
	return out
}

func annotatedProfile(text string) v1.AppArmorProfile {
	switch name, local := strings.CutPrefix(text, "localhost/"); {
	case local:
		return v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	case text == "runtime/default":
		return v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	default:
		return v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	}
}

func checkPodLevel(in Input) (Answer, bool) {
	if in.Host.NoPodLevelResources && podresource.IsPodLevelResourcesSet(in.Pod) {
		return rejected(reasonPodLevel, "pod-level resources are not supported on this node: the feature gate PodLevelResources is off")
	}
	return fine()
}

// checkFeatures compares what the pod can only use on a node that says so with
// what this node says.
// Source: KEP-5328.
func checkFeatures(in Input) (Answer, bool) {
	if in.Host.DeclaredFeatures == nil {
		return fine()
	}
	missing, err := missingFeatures(in)
	switch {
	case err != nil:
		return rejected(reasonFeature, "%v", err)
	case len(missing) > 0:
		return rejected(reasonFeature, "Pod requires node features that are not available: %s", strings.Join(missing, ", "))
	}
	return fine()
}

func missingFeatures(in Input) ([]string, error) {
	return unmet(in.Host.DeclaredFeatures, in.Host.Release, func(release *version.Version) (nodedeclaredfeatures.FeatureSet, error) {
		return nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(featuresOf(in.Pod), release)
	})
}

// UnmetByUpdate names what the update of a pod needs on a node that says that it
// can do only what is declared, and stands for a release. Nil declares nothing
// and asks for nothing: the gate NodeDeclaredFeatures is off.
// Source: KEP-5328.
func UnmetByUpdate(declared []string, release string, old, now *v1.Pod) ([]string, error) {
	if declared == nil {
		return nil, nil
	}
	return unmet(declared, release, func(release *version.Version) (nodedeclaredfeatures.FeatureSet, error) {
		return nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(featuresOf(old), featuresOf(now), release)
	})
}

func featuresOf(pod *v1.Pod) *featuretypes.PodInfo {
	return &featuretypes.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}

func unmet(declared []string, release string, infer func(*version.Version) (nodedeclaredfeatures.FeatureSet, error)) ([]string, error) {
	parsed, err := version.Parse(release)
	if err != nil {
		return nil, fmt.Errorf("find out which features the pod needs: this node's release %q: %w", release, err)
	}
	need, err := infer(parsed)
	if err != nil {
		return nil, fmt.Errorf("find out which features the pod needs: %w", err)
	}
	framework := nodedeclaredfeatures.DefaultFramework
	result, err := framework.MatchNodeFeatureSet(need, framework.TryMap(declared))
	if err != nil {
		return nil, fmt.Errorf("compare the features that the pod needs with this node's: %w", err)
	}
	return result.UnsatisfiedRequirements, nil
}

func checkShutdown(in Input) (Answer, bool) {
	if in.Host.ShuttingDown {
		return rejected(reasonShutdown, "Pod was rejected as the node is shutting down.")
	}
	return fine()
}
