package source

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate checks of a completed static pod what the apiserver would have
// checked and what the rest of podsync relies on.
func validate(pod *v1.Pod) field.ErrorList {
	errs := validateMetadata(pod)
	errs = append(errs, validateSpec(pod)...)
	errs = append(errs, references(pod)...)
	volumes, more := validateVolumes(pod.Spec.Volumes)
	errs = append(errs, more...)
	names := sets.New[string]()
	eachContainer(pod, func(c *v1.Container, path *field.Path) {
		if names.Has(c.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
		}
		names.Insert(c.Name)
		errs = append(errs, validateContainer(c, path, volumes)...)
	})
	return errs
}

func validateMetadata(pod *v1.Pod) field.ErrorList {
	var errs field.ErrorList
	meta := field.NewPath("metadata")
	if pod.Name == "" {
		errs = append(errs, field.Required(meta.Child("name"), "give the pod a name; the node's name is appended to it"))
	} else {
		errs = append(errs, named(meta.Child("name"), pod.Name, validation.IsDNS1123Subdomain(pod.Name))...)
	}
	errs = append(errs, named(meta.Child("namespace"), pod.Namespace, validation.IsDNS1123Label(pod.Namespace))...)
	for key, value := range pod.Labels {
		errs = append(errs, named(meta.Child("labels"), key, validation.IsQualifiedName(key))...)
		errs = append(errs, named(meta.Child("labels").Key(key), value, validation.IsValidLabelValue(value))...)
	}
	for key := range pod.Annotations {
		errs = append(errs, named(meta.Child("annotations"), key, validation.IsQualifiedName(strings.ToLower(key)))...)
	}
	return errs
}

// named turns the complaints about one value into errors.
func named(path *field.Path, value string, complaints []string) field.ErrorList {
	var errs field.ErrorList
	for _, c := range complaints {
		errs = append(errs, field.Invalid(path, value, c))
	}
	return errs
}

func validateSpec(pod *v1.Pod) field.ErrorList {
	var errs field.ErrorList
	path, spec := field.NewPath("spec"), &pod.Spec
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), "give the pod at least one container"))
	}
	if len(spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "only a running pod gets ephemeral containers; remove them"))
	}
	errs = append(errs, oneOf(path.Child("restartPolicy"), spec.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)...)
	errs = append(errs, oneOf(path.Child("dnsPolicy"), spec.DNSPolicy, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)...)
	if spec.DNSPolicy == v1.DNSNone && (spec.DNSConfig == nil || len(spec.DNSConfig.Nameservers) == 0) {
		errs = append(errs, field.Required(path.Child("dnsConfig", "nameservers"), "dnsPolicy None needs at least one"))
	}
	if g := spec.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *g, "must not be negative"))
	}
	if d := spec.ActiveDeadlineSeconds; d != nil && *d < 1 {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *d, "must be at least 1"))
	}
	if spec.Hostname != "" {
		errs = append(errs, named(path.Child("hostname"), spec.Hostname, validation.IsDNS1123Label(spec.Hostname))...)
	}
	if spec.Subdomain != "" {
		errs = append(errs, named(path.Child("subdomain"), spec.Subdomain, validation.IsDNS1123Label(spec.Subdomain))...)
	}
	return errs
}

func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func validateContainer(c *v1.Container, path *field.Path, volumes sets.Set[string]) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "give the container a name"))
	} else {
		errs = append(errs, named(path.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
	}
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(path.Child("image"), "name the image to run"))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not begin or end with spaces"))
	}
	errs = append(errs, oneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	errs = append(errs, oneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, path.Child("ports"))...)
	for i, e := range c.Env {
		at := path.Child("env").Index(i)
		if e.Name == "" || strings.Contains(e.Name, "=") {
			errs = append(errs, field.Invalid(at.Child("name"), e.Name, "must be a name without '='"))
		}
		if e.Value != "" && e.ValueFrom != nil {
			errs = append(errs, field.Invalid(at.Child("valueFrom"), "", "must not stand beside value; remove one of them"))
		}
	}
	errs = append(errs, validateMounts(c, path, volumes)...)
	errs = append(errs, validateResources(c, path.Child("resources"))...)
	errs = append(errs, validateHandlers(c, path)...)
	return errs
}

func validatePorts(ports []v1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			errs = append(errs, named(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))...)
			if names.Has(p.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names.Insert(p.Name)
		}
		errs = append(errs, named(at.Child("containerPort"), fmt.Sprint(p.ContainerPort), validation.IsValidPortNum(int(p.ContainerPort)))...)
		if p.HostPort != 0 {
			errs = append(errs, named(at.Child("hostPort"), fmt.Sprint(p.HostPort), validation.IsValidPortNum(int(p.HostPort)))...)
		}
		errs = append(errs, oneOf(at.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)...)
	}
	return errs
}

func validateMounts(c *v1.Container, path *field.Path, volumes sets.Set[string]) field.ErrorList {
	var errs field.ErrorList
	places := sets.New[string]()
	for i, m := range c.VolumeMounts {
		at := path.Child("volumeMounts").Index(i)
		if !volumes.Has(m.Name) {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(at.Child("mountPath"), "say where in the container the volume is to be"))
		}
		if places.Has(m.MountPath) {
			errs = append(errs, field.Duplicate(at.Child("mountPath"), m.MountPath))
		}
		places.Insert(m.MountPath)
		if strings.HasPrefix(m.SubPath, "/") || hasDotDot(m.SubPath) {
			errs = append(errs, field.Invalid(at.Child("subPath"), m.SubPath, "must be relative and without '..'"))
		}
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "must not stand beside subPath; remove one of them"))
		}
	}
	return errs
}

func hasDotDot(path string) bool {
	for _, part := range strings.Split(path, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

func validateResources(c *v1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, q := range c.Resources.Requests {
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), q.String(), "must not be negative"))
		}
		if limit, ok := c.Resources.Limits[name]; ok && q.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), q.String(), "must not be more than the limit "+limit.String()))
		}
	}
	for name, q := range c.Resources.Limits {
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(path.Child("limits").Key(string(name)), q.String(), "must not be negative"))
		}
	}
	return errs
}

func validateVolumes(list []v1.Volume) (sets.Set[string], field.ErrorList) {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, v := range list {
		at := field.NewPath("spec", "volumes").Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "give the volume a name"))
		} else {
			errs = append(errs, named(at.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))...)
		}
		if names.Has(v.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		names.Insert(v.Name)
		if n := sources(v.VolumeSource); n != 1 {
			errs = append(errs, field.Invalid(at, v.Name, fmt.Sprintf("has %d sources; keep exactly one", n)))
		}
		if h := v.HostPath; h != nil && (h.Path == "" || hasDotDot(h.Path)) {
			errs = append(errs, field.Invalid(at.Child("hostPath", "path"), h.Path, "must be a path of the host without '..'"))
		}
	}
	return names, errs
}
