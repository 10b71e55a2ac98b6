package fakeapiserver

import (
	"strings"

	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// onCreate does what the strategy of a kind does at creation.
func (s *Server) onCreate(obj runtime.Object) error {
	switch o := obj.(type) {
	case *corev1.Pod:
		defaultPod(&o.Spec)
		o.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosClass(&o.Spec)}
		if len(o.Spec.Containers) == 0 {
			return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), o.Name, field.ErrorList{
				field.Required(field.NewPath("spec", "containers"), ""),
			})
		}
	case *corev1.Namespace:
		o.Status.Phase = corev1.NamespaceActive
	case *corev1.Secret:
		setDefault(&o.Type, corev1.SecretTypeOpaque)
		for k, v := range o.StringData {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}
			o.Data[k] = []byte(v)
		}
		o.StringData = nil
	case *certv1.CertificateSigningRequest:
		s.signLocked(o)
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// defaultPod fills in what the apiserver's defaulting does. The service account volume is
// not added: a test that wants one says so.
func defaultPod(spec *corev1.PodSpec) {
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setPointer(&spec.TerminationGracePeriodSeconds, 30)
	setPointer(&spec.EnableServiceLinks, true)
	setPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i], spec.HostNetwork)
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i], spec.HostNetwork)
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	policy := corev1.PullIfNotPresent
	last := c.Image[strings.LastIndex(c.Image, "/")+1:]
	if strings.HasSuffix(last, ":latest") || !strings.ContainsAny(last, ":@") {
		policy = corev1.PullAlways
	}
	setDefault(&c.ImagePullPolicy, policy)
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			setDefault(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			setDefault(&from.FieldRef.APIVersion, "v1")
		}
	}
	for name, limit := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; !ok {
			if c.Resources.Requests == nil {
				c.Resources.Requests = corev1.ResourceList{}
			}
			c.Resources.Requests[name] = limit.DeepCopy()
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTP(h.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	setDefault(&p.TimeoutSeconds, 1)
	setDefault(&p.PeriodSeconds, 10)
	setDefault(&p.SuccessThreshold, 1)
	setDefault(&p.FailureThreshold, 3)
	defaultHTTP(p.HTTPGet)
	if p.GRPC != nil {
		setPointer(&p.GRPC.Service, "")
	}
}

func defaultHTTP(h *corev1.HTTPGetAction) {
	if h == nil {
		return
	}
	setDefault(&h.Path, "/")
	setDefault(&h.Scheme, corev1.URISchemeHTTP)
	setDefault(&h.Port, intstr.IntOrString{})
}

func defaultVolume(v *corev1.Volume) {
	const mode = int32(0o644)
	src := &v.VolumeSource
	switch {
	case src.Secret != nil:
		setPointer(&src.Secret.DefaultMode, mode)
	case src.ConfigMap != nil:
		setPointer(&src.ConfigMap.DefaultMode, mode)
	case src.DownwardAPI != nil:
		setPointer(&src.DownwardAPI.DefaultMode, mode)
		defaultItems(src.DownwardAPI.Items)
	case src.HostPath != nil:
		setPointer(&src.HostPath.Type, corev1.HostPathUnset)
	case src.Projected != nil:
		setPointer(&src.Projected.DefaultMode, mode)
		for i := range src.Projected.Sources {
			source := &src.Projected.Sources[i]
			if t := source.ServiceAccountToken; t != nil {
				setPointer(&t.ExpirationSeconds, 3600)
			}
			if d := source.DownwardAPI; d != nil {
				defaultItems(d.Items)
			}
		}
	}
	if *src == (corev1.VolumeSource{}) {
		src.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
}

func defaultItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			setDefault(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}

// qosClass follows the rules of the API: Guaranteed when every container has equal
// requests and limits of both resources, BestEffort when none has any.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, any := true, false
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range list {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				limit, limited := c.Resources.Limits[name]
				request, requested := c.Resources.Requests[name]
				any = any || limited && !limit.IsZero() || requested && !request.IsZero()
				if !limited || !requested || limit.Cmp(request) != 0 {
					guaranteed = false
				}
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// checkUpdate refuses the changes that the real validation would refuse and that an agent
// could plausibly try.
func checkUpdate(q *request, old, obj runtime.Object) error {
	op, ok := old.(*corev1.Pod)
	if !ok {
		return nil
	}
	np := obj.(*corev1.Pod)
	var errs field.ErrorList
	if q.Subresource == "status" {
		np.OwnerReferences = op.OwnerReferences
		setDefault(&np.Status.QOSClass, op.Status.QOSClass)
		setDefault(&np.Status.ObservedGeneration, op.Status.ObservedGeneration)
		onePodIP(&np.Status)
		errs = checkStatus(op, np)
	} else if np.Spec.NodeName != op.Spec.NodeName {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "nodeName"), "pod updates may not change fields other than the image"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(q.res.gvk.GroupKind(), q.Name, errs)
	}
	return nil
}
