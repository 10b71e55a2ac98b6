package validate

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func (c *checker) containers(at *field.Path) {
	if len(c.spec.Containers) == 0 {
		c.required(at.Child("containers"), "give the pod at least one container")
	}
	names := sets.New[string]()
	for kind, list := range map[string][]v1.Container{"containers": c.spec.Containers, "initContainers": c.spec.InitContainers} {
		for i := range list {
			to := at.Child(kind).Index(i)
			if names.Has(list[i].Name) {
				c.add(field.Duplicate(to.Child("name"), list[i].Name))
			}
			names.Insert(list[i].Name)
			c.container(to, &list[i], kind == "initContainers")
		}
	}
}

func (c *checker) container(at *field.Path, k *v1.Container, init bool) {
	c.requiredName(at.Child("name"), k.Name, "give the container a name", isLabel)
	switch {
	case k.Image == "":
		c.required(at.Child("image"), "name the image to run")
	case strings.TrimSpace(k.Image) != k.Image:
		c.invalid(at.Child("image"), k.Image, "must not begin or end with spaces")
	}
	oneOf(c, at.Child("imagePullPolicy"), k.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(c, at.Child("terminationMessagePolicy"), k.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	c.ports(at.Child("ports"), k.Ports)
	for i := range k.Env {
		c.env(at.Child("env").Index(i), &k.Env[i])
	}
	for i := range k.EnvFrom {
		c.envFrom(at.Child("envFrom").Index(i), &k.EnvFrom[i])
	}
	c.mounts(at, k)
	c.containerResources(at.Child("resources"), &k.Resources)
	c.resize(at.Child("resizePolicy"), k)
	c.restart(at, k, init)
	c.handlers(at, k, init)
	c.containerSecurity(at.Child("securityContext"), k.SecurityContext)
}

func (c *checker) ports(at *field.Path, ports []v1.ContainerPort) {
	names := sets.New[string]()
	for i, p := range ports {
		to := at.Index(i)
		if p.Name != "" {
			c.named(to.Child("name"), p.Name, validation.IsValidPortName(p.Name))
			if names.Has(p.Name) {
				c.add(field.Duplicate(to.Child("name"), p.Name))
			}
			names.Insert(p.Name)
		}
		c.portNumber(to.Child("containerPort"), p.ContainerPort)
		if p.HostPort != 0 {
			c.portNumber(to.Child("hostPort"), p.HostPort)
		}
		oneOf(c, to.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	}
}

func (c *checker) portNumber(at *field.Path, port int32) {
	for _, text := range validation.IsValidPortNum(int(port)) {
		c.invalid(at, port, "%s", text)
	}
}

func (c *checker) env(at *field.Path, e *v1.EnvVar) {
	c.requiredName(at.Child("name"), e.Name, "name the variable", validation.IsRelaxedEnvVarName)
	from, to := e.ValueFrom, at.Child("valueFrom")
	if from == nil {
		return
	}
	switch n := sources(*from); {
	case n != 1:
		c.invalid(to, n, "must have exactly one source")
	case e.Value != "":
		c.invalid(to, "", "must not stand beside value; remove one of them")
	}
	switch {
	case from.FieldRef != nil:
		c.fieldRef(to.Child("fieldRef"), from.FieldRef, func(path string) bool {
			switch path {
			case "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs":
				return true
			}
			return false
		})
	case from.ResourceFieldRef != nil:
		c.resourceRef(to.Child("resourceFieldRef"), from.ResourceFieldRef, false)
	case from.FileKeyRef != nil:
		c.fileRef(to.Child("fileKeyRef"), from.FileKeyRef)
	}
}

// fieldRef checks a reference to a field of the pod: those of the metadata, and
// what more says.
func (c *checker) fieldRef(at *field.Path, ref *v1.ObjectFieldSelector, more func(path string) bool) {
	if ref.APIVersion != "v1" {
		c.invalid(at.Child("apiVersion"), ref.APIVersion, "must be v1")
	}
	to := at.Child("fieldPath")
	if ref.FieldPath == "" {
		c.required(to, "name the field")
		return
	}
	path, rest, keyed := strings.Cut(ref.FieldPath, "['")
	switch key, ok := strings.CutSuffix(rest, "']"); {
	case keyed && ok && path == "metadata.annotations":
		c.named(to, key, validation.IsQualifiedName(strings.ToLower(key)))
	case keyed && ok && path == "metadata.labels":
		c.named(to, key, validation.IsQualifiedName(key))
	case ref.FieldPath == "metadata.name" || ref.FieldPath == "metadata.namespace" || ref.FieldPath == "metadata.uid":
	case !more(ref.FieldPath):
		c.invalid(to, ref.FieldPath, "is no field that can be referred to here")
	}
}

// resourceRef checks a reference to a container's request or limit.
func (c *checker) resourceRef(at *field.Path, ref *v1.ResourceFieldSelector, inVolume bool) {
	if inVolume && ref.ContainerName == "" {
		c.required(at.Child("containerName"), "name the container")
	}
	to := at.Child("resource")
	if ref.Resource == "" {
		c.required(to, "name the resource")
		return
	}
	_, name, _ := strings.Cut(ref.Resource, ".")
	known := strings.HasPrefix(ref.Resource, "limits.") || strings.HasPrefix(ref.Resource, "requests.")
	var divisors []string
	switch {
	case known && name == "cpu":
		divisors = []string{"0", "1m", "1"}
	case known && (name == "memory" || name == "ephemeral-storage" || strings.HasPrefix(name, v1.ResourceHugePagesPrefix)):
		divisors = []string{"0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	default:
		c.add(field.NotSupported(to, ref.Resource, []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"}))
		return
	}
	for _, d := range divisors {
		if ref.Divisor.String() == d {
			return
		}
	}
	c.invalid(at.Child("divisor"), ref.Divisor.String(), "must be one of %s", strings.Join(divisors[1:], ", "))
}

func (c *checker) fileRef(at *field.Path, ref *v1.FileKeySelector) {
	c.requiredName(at.Child("key"), ref.Key, "name the variable in the file", validation.IsRelaxedEnvVarName)
	if ref.VolumeName == "" {
		c.required(at.Child("volumeName"), "name the volume that holds the file")
	} else if src, ok := c.sources[ref.VolumeName]; !ok {
		c.add(field.NotFound(at.Child("volumeName"), ref.VolumeName))
	} else if src.EmptyDir == nil {
		c.invalid(at.Child("volumeName"), ref.VolumeName, "must be an emptyDir volume")
	}
	if ref.Path == "" {
		c.required(at.Child("path"), "name the file in the volume")
	} else {
		c.below(at.Child("path"), ref.Path)
	}
}

func (c *checker) envFrom(at *field.Path, from *v1.EnvFromSource) {
	c.optionalName(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName)
	if n := sources(*from); n != 1 {
		c.invalid(at, n, "must have exactly one source")
	}
}

func (c *checker) mounts(at *field.Path, k *v1.Container) {
	places := sets.New[string]()
	for i := range k.VolumeMounts {
		m, to := &k.VolumeMounts[i], at.Child("volumeMounts").Index(i)
		if m.Name == "" {
			c.required(to.Child("name"), "name the volume")
		} else if _, ok := c.sources[m.Name]; !ok {
			c.add(field.NotFound(to.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			c.required(to.Child("mountPath"), "say where in the container the volume is to be")
		}
		if places.Has(m.MountPath) {
			c.invalid(to.Child("mountPath"), m.MountPath, "must be unique")
		}
		places.Insert(m.MountPath)
		c.below(to.Child("subPath"), m.SubPath)
		c.below(to.Child("subPathExpr"), m.SubPathExpr)
		if m.SubPath != "" && m.SubPathExpr != "" {
			c.invalid(to.Child("subPathExpr"), m.SubPathExpr, "must not stand beside subPath; remove one of them")
		}
		c.propagation(to, m, k.SecurityContext)
	}
	for i, d := range k.VolumeDevices {
		// Only claims have devices, which a static pod must not have.
		c.add(field.NotFound(at.Child("volumeDevices").Index(i).Child("name"), d.Name))
	}
}

func (c *checker) propagation(at *field.Path, m *v1.VolumeMount, sc *v1.SecurityContext) {
	if p := m.MountPropagation; p != nil {
		oneOf(c, at.Child("mountPropagation"), *p, v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
		if privileged := sc != nil && sc.Privileged != nil && *sc.Privileged; *p == v1.MountPropagationBidirectional && !privileged {
			c.forbidden(at.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers")
		}
	}
	r := m.RecursiveReadOnly
	if r == nil {
		return
	}
	to := at.Child("recursiveReadOnly")
	oneOf(c, to, *r, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
	if *r == v1.RecursiveReadOnlyDisabled {
		return
	}
	if !m.ReadOnly {
		c.forbidden(to, "only with readOnly: true")
	}
	if p := m.MountPropagation; p != nil && *p != v1.MountPropagationNone {
		c.forbidden(to, "only with mountPropagation: None or without it")
	}
}

func (c *checker) resize(at *field.Path, k *v1.Container) {
	seen := sets.New[v1.ResourceName]()
	for i, p := range k.ResizePolicy {
		to := at.Index(i)
		if seen.Has(p.ResourceName) {
			c.add(field.Duplicate(to, p.ResourceName))
		}
		seen.Insert(p.ResourceName)
		oneOf(c, to.Child("resourceName"), p.ResourceName, v1.ResourceCPU, v1.ResourceMemory)
		oneOf(c, to.Child("restartPolicy"), p.RestartPolicy, v1.NotRequired, v1.RestartContainer)
		if c.spec.RestartPolicy == v1.RestartPolicyNever && p.RestartPolicy == v1.RestartContainer {
			c.invalid(to.Child("restartPolicy"), p.RestartPolicy, "must be NotRequired in a pod that is never restarted")
		}
	}
}

// mostRules is how many restart rules a container may have, and mostCodes how
// many exit codes a rule.
// Source: KEP-5307.
const mostRules, mostCodes = 20, 255

func (c *checker) restart(at *field.Path, k *v1.Container, init bool) {
	optionalOneOf(c, at.Child("restartPolicy"), k.RestartPolicy, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	to := at.Child("restartPolicyRules")
	switch {
	case len(k.RestartPolicyRules) == 0:
		return
	case k.RestartPolicy == nil:
		c.required(at.Child("restartPolicy"), "restartPolicyRules need it")
	case init && podutil.Sidecar(k):
		c.forbidden(to, "not in a sidecar, which always restarts")
	}
	if len(k.RestartPolicyRules) > mostRules {
		c.add(field.TooMany(to, len(k.RestartPolicyRules), mostRules))
	}
	for i, r := range k.RestartPolicyRules {
		rule := to.Index(i)
		oneOf(c, rule.Child("action"), r.Action, v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)
		if r.ExitCodes == nil {
			c.required(rule.Child("exitCodes"), "say for which exit codes")
			continue
		}
		codes := rule.Child("exitCodes")
		oneOf(c, codes.Child("operator"), r.ExitCodes.Operator, v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(r.ExitCodes.Values); n > mostCodes {
			c.add(field.TooMany(codes.Child("values"), n, mostCodes))
		}
	}
}
