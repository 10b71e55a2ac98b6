// Package defaults owns what the apiserver fills in on a pod that leaves a
// field open, for pods that never pass an apiserver. It must never change a
// field that is set, and never validate.
//
// Source: the "Defaults to" sentences of k8s.io/api/core/v1/types.go.
package defaults

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Pod fills in every default of a pod in place. Applying it twice changes
// nothing more.
func Pod(pod *v1.Pod) {
	spec := &pod.Spec
	podSpec(spec)
	for i := range spec.Volumes {
		volume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		container(&spec.InitContainers[i], spec.HostNetwork)
		appArmor(pod, &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		container(&spec.Containers[i], spec.HostNetwork)
		appArmor(pod, &spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		c := v1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		container(&c, spec.HostNetwork)
		spec.EphemeralContainers[i].EphemeralContainerCommon = v1.EphemeralContainerCommon(c)
	}
	podResources(pod)
	if pod.Status.Phase == "" {
		pod.Status.Phase = v1.PodPending
	}
	if pod.Status.QOSClass == "" {
		pod.Status.QOSClass = podutil.ComputeQOS(pod)
	}
}

func podSpec(spec *v1.PodSpec) {
	setString(&spec.DNSPolicy, v1.DNSClusterFirst)
	setString(&spec.RestartPolicy, v1.RestartPolicyAlways)
	setString(&spec.SchedulerName, v1.DefaultSchedulerName)
	setPointer(&spec.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
	setPointer(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	setPointer(&spec.SecurityContext, v1.PodSecurityContext{})
	setString(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	roundUp(spec.Overhead)
	// The priority admission plugin resolves the two classes that every cluster has.
	switch {
	case spec.Priority != nil:
	case spec.PriorityClassName == "system-node-critical":
		setPointer(&spec.Priority, 2000001000)
	case spec.PriorityClassName == "system-cluster-critical":
		setPointer(&spec.Priority, 2000000000)
	}
}

func container(c *v1.Container, hostNetwork bool) {
	setString(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	setString(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	setString(&c.ImagePullPolicy, PullPolicy(c.Image))
	for i := range c.Ports {
		setString(&c.Ports[i].Protocol, v1.ProtocolTCP)
		if hostNetwork && c.Ports[i].HostPort == 0 {
			c.Ports[i].HostPort = c.Ports[i].ContainerPort
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if from.FieldRef != nil {
			setString(&from.FieldRef.APIVersion, "v1")
		}
		if from.FileKeyRef != nil {
			setPointer(&from.FileKeyRef.Optional, false)
		}
	}
	containerResources(c)
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		probe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				httpGet(h.HTTPGet)
			}
		}
	}
}

func probe(p *v1.Probe) {
	if p == nil {
		return
	}
	setNumber(&p.TimeoutSeconds, 1)
	setNumber(&p.PeriodSeconds, 10)
	setNumber(&p.SuccessThreshold, 1)
	setNumber(&p.FailureThreshold, 3)
	httpGet(p.HTTPGet)
	if p.GRPC != nil {
		setPointer(&p.GRPC.Service, "")
	}
}

func httpGet(get *v1.HTTPGetAction) {
	if get != nil {
		setString(&get.Path, "/")
		setString(&get.Scheme, v1.URISchemeHTTP)
	}
}

// PullPolicy is Always for an image without a tag or with the tag latest, and
// IfNotPresent for any other tag and for a digest.
func PullPolicy(image string) v1.PullPolicy {
	if strings.Contains(image, "@") {
		return v1.PullIfNotPresent
	}
	name := image[strings.LastIndexByte(image, '/')+1:]
	colon := strings.LastIndexByte(name, ':')
	if colon < 0 || name[colon+1:] == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func containerResources(c *v1.Container) {
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for name, limit := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; !ok {
			if c.Resources.Requests == nil {
				c.Resources.Requests = v1.ResourceList{}
			}
			c.Resources.Requests[name] = limit.DeepCopy()
		}
	}
}

// podResources gives the pod's own resources the requests that are left open:
// what its containers ask for together, else its own limit.
func podResources(pod *v1.Pod) {
	r := pod.Spec.Resources
	if r == nil || len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	roundUp(r.Limits)
	roundUp(r.Requests)
	asked := podresource.AggregateContainerRequests(pod, podresource.PodResourcesOptions{})
	for name, q := range r.Limits {
		if _, set := r.Requests[name]; set || !podresource.IsSupportedPodLevelResource(name) {
			continue
		}
		if sum, some := asked[name]; some && !sum.IsZero() && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			q = sum
		}
		if r.Requests == nil {
			r.Requests = v1.ResourceList{}
		}
		r.Requests[name] = q.DeepCopy()
	}
}

// appArmor turns the older annotation of a container into its field.
func appArmor(pod *v1.Pod, c *v1.Container) {
	text, ok := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
	if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return
	}
	profile := &v1.AppArmorProfile{}
	local, isLocal := strings.CutPrefix(text, v1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case text == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		profile.Type = v1.AppArmorProfileTypeRuntimeDefault
	case text == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		profile.Type = v1.AppArmorProfileTypeUnconfined
	case isLocal && local != "":
		profile.Type, profile.LocalhostProfile = v1.AppArmorProfileTypeLocalhost, &local
	default:
		return // the checks refuse it
	}
	if c.SecurityContext == nil {
		c.SecurityContext = &v1.SecurityContext{}
	}
	c.SecurityContext.AppArmorProfile = profile
}

// roundUp rounds to milli units, the finest that the API keeps.
func roundUp(list v1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

func setString[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}

func setNumber(field *int32, value int32) {
	if *field == 0 {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
