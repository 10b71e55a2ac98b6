package fakeapiserver

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// onePodIP does what the conversion does with the two fields for one thing: where they
// differ, podIP counts.
func onePodIP(st *corev1.PodStatus) {
	switch {
	case st.PodIP != "" && (len(st.PodIPs) == 0 || st.PodIPs[0].IP != st.PodIP):
		st.PodIPs = []corev1.PodIP{{IP: st.PodIP}}
	case len(st.PodIPs) > 0:
		st.PodIP = st.PodIPs[0].IP
	}
}

// checkStatus refuses what the validation of a pod's status refuses; old is never
// changed. What the API's own gates have off by default is not looked at.
func checkStatus(old, now *corev1.Pod) field.ErrorList {
	at := field.NewPath("status")
	st := &now.Status
	errs := checkConditions(st.Conditions, at.Child("conditions"))
	if st.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(at.Child("observedGeneration"), st.ObservedGeneration, "must be a non-negative integer"))
	}
	if st.QOSClass != old.Status.QOSClass {
		errs = append(errs, field.Invalid(at.Child("qosClass"), st.QOSClass, "field is immutable"))
	}
	if n := st.NominatedNodeName; n != "" && n != old.Status.NominatedNodeName && old.Spec.NodeName != "" {
		errs = append(errs, field.Forbidden(at.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node"))
	}
	for i, claim := range st.ResourceClaimStatuses {
		if !slices.ContainsFunc(old.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == claim.Name }) {
			errs = append(errs, field.Invalid(at.Child("resourceClaimStatuses").Index(i).Child("name"), claim.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
	}
	errs = append(errs, checkAddresses(&old.Status, st, at)...)
	for _, list := range containerLists(old, now) {
		at := at.Child(list.name)
		errs = append(errs, list.checkRestarts(&old.Spec, at)...)
		errs = append(errs, checkUsers(list.now, at)...)
		errs = append(errs, list.checkAllocated(at)...)
	}
	return errs
}

func checkConditions(conditions []corev1.PodCondition, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range conditions {
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Index(i).Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer"))
		}
		for _, why := range validation.IsQualifiedName(string(c.Type)) {
			errs = append(errs, field.Invalid(at.Index(i).Child("Type"), c.Type, why))
		}
	}
	return errs
}

func checkAddresses(old, now *corev1.PodStatus, at *field.Path) field.ErrorList {
	var had, have, hadHost, haveHost []string
	for _, ip := range old.PodIPs {
		had = append(had, ip.IP)
	}
	for _, ip := range now.PodIPs {
		have = append(have, ip.IP)
	}
	for _, ip := range old.HostIPs {
		hadHost = append(hadHost, ip.IP)
	}
	for _, ip := range now.HostIPs {
		haveHost = append(haveHost, ip.IP)
	}
	errs := checkFamilies(had, have, at.Child("podIPs"))
	if len(haveHost) > 0 && now.HostIP != haveHost[0] {
		errs = append(errs, field.Invalid(at.Child("hostIPs").Index(0).Child("ip"), haveHost[0], "must be equal to `hostIP`"))
	}
	return append(errs, checkFamilies(hadHost, haveHost, at.Child("hostIPs"))...)
}

// checkFamilies wants addresses, and one of each family at most.
func checkFamilies(had, have []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	families := map[bool]int{}
	for i, ip := range have {
		errs = append(errs, validation.IsValidIPForLegacyField(at.Index(i), ip, true, had)...)
		families[strings.Contains(ip, ":")]++
	}
	if families[false] > 1 || families[true] > 1 {
		errs = append(errs, field.Invalid(at, have, "may specify no more than one IP for each IP family"))
	}
	return errs
}

// containerList is one kind of containers.
type containerList struct {
	name     string
	old, now []corev1.ContainerStatus
	specs    []corev1.Container
	// once is set for containers that never run again.
	once bool
}

func containerLists(old, now *corev1.Pod) []containerList {
	return []containerList{
		{"containerStatuses", old.Status.ContainerStatuses, now.Status.ContainerStatuses, old.Spec.Containers, false},
		{"initContainerStatuses", old.Status.InitContainerStatuses, now.Status.InitContainerStatuses, old.Spec.InitContainers, false},
		{"ephemeralContainerStatuses", old.Status.EphemeralContainerStatuses, now.Status.EphemeralContainerStatuses, nil, true},
	}
}

func (l *containerList) spec(name string) *corev1.Container {
	for i := range l.specs {
		if l.specs[i].Name == name {
			return &l.specs[i]
		}
	}
	return nil
}

// checkRestarts: a container that has ended for good may not run again in the status. The
// path has its place in the old list, as that of the real one.
func (l *containerList) checkRestarts(pod *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !l.once && restartsAll(pod) {
		return nil
	}
	for i, o := range l.old {
		goesOn := func(n corev1.ContainerStatus) bool { return n.Name == o.Name && n.State.Terminated == nil }
		if o.State.Terminated == nil || !slices.ContainsFunc(l.now, goesOn) {
			continue
		}
		if c := l.spec(o.Name); c == nil || !mayRestart(pod.RestartPolicy, c, o.State.Terminated.ExitCode) {
			errs = append(errs, field.Forbidden(at.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}

// restartsAll says whether a rule of any container may restart what has ended for good.
// Source: KEP-5532.
func restartsAll(pod *corev1.PodSpec) bool {
	for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range list {
			for _, rule := range list[i].RestartPolicyRules {
				if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}

// mayRestart says whether a container may run again after an exit: by a rule of its own,
// by its own policy, or by the pod's. Source: KEP-5307.
func mayRestart(policy corev1.RestartPolicy, c *corev1.Container, code int32) bool {
	if c.RestartPolicy != nil {
		for _, rule := range c.RestartPolicyRules {
			if on := rule.ExitCodes; on != nil && slices.Contains(on.Values, code) == (on.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
				return true
			}
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && code != 0
}

func checkUsers(list []corev1.ContainerStatus, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range list {
		if c.User == nil || c.User.Linux == nil {
			continue
		}
		at, user := at.Index(i).Child("user", "linux"), c.User.Linux
		for _, why := range validation.IsValidUserID(user.UID) {
			errs = append(errs, field.Invalid(at.Child("uid"), user.UID, why))
		}
		for _, why := range validation.IsValidGroupID(user.GID) {
			errs = append(errs, field.Invalid(at.Child("gid"), user.GID, why))
		}
		for g, gid := range user.SupplementalGroups {
			for _, why := range validation.IsValidGroupID(gid) {
				errs = append(errs, field.Invalid(at.Child("supplementalGroups").Index(g), gid, why))
			}
		}
	}
	return errs
}

// checkAllocated: what a container says of its devices must be among what it asks for.
func (l *containerList) checkAllocated(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range l.now {
		at := at.Index(i).Child("allocatedResourcesStatus")
		if l.once {
			if len(c.AllocatedResourcesStatus) > 0 {
				errs = append(errs, field.Forbidden(at, "must not be specified in container status"))
			}
			continue
		}
		for j, allocated := range c.AllocatedResourcesStatus {
			at := at.Index(j)
			if spec := l.spec(c.Name); spec != nil && !asksFor(spec, string(allocated.Name)) {
				errs = append(errs, field.Invalid(at.Child("name"), allocated.Name, "must match one of the container's resource requests or claims"))
			}
			seen := sets.New[corev1.ResourceID]()
			for k, r := range allocated.Resources {
				at := at.Child("resources").Index(k)
				if known := []corev1.ResourceHealthStatus{corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown}; !slices.Contains(known, r.Health) {
					errs = append(errs, field.NotSupported(at.Child("health"), r.Health, known))
				}
				if seen.Has(r.ResourceID) {
					errs = append(errs, field.Duplicate(at.Child("resourceID"), r.ResourceID))
				}
				seen.Insert(r.ResourceID)
			}
		}
	}
	return errs
}

func asksFor(c *corev1.Container, name string) bool {
	if claim, ok := strings.CutPrefix(name, "claim:"); ok {
		return slices.ContainsFunc(c.Resources.Claims, func(r corev1.ResourceClaim) bool {
			return r.Name == claim && r.Request == "" || r.Name+"/"+r.Request == claim
		})
	}
	_, ok := c.Resources.Requests[corev1.ResourceName(name)]
	return ok
}
