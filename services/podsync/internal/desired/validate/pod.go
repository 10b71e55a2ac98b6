// Package validate owns the checks of a static pod's definition that the
// apiserver does for pods that are made through it, with the same verdicts.
// It must never change the pod, and never decide whether this node can run it.
//
// Covered: metadata; restart, DNS, host names and aliases, deadlines, gates,
// scheduling fields (node selector, affinity, tolerations, topology spread),
// priority and runtime class names, operating system; security of pod and
// containers; containers of all kinds with ports, environment, mounts,
// resources, resize policies, restart rules, probes and hooks; pod-level
// resources; every volume that may be in a static pod. Not covered: fields of
// Windows beyond where they are forbidden, and fields of network file systems
// that have had no driver since Kubernetes 1.31.
//
// Source: the field comments of k8s.io/api/core/v1, the verdicts of
// kube-apiserver 1.36 (test/node, manifest tests).
package validate

import (
	"fmt"
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Pod returns what is wrong with a completed and defaulted static pod.
func Pod(pod *v1.Pod) field.ErrorList {
	c := &checker{pod: pod, spec: &pod.Spec}
	c.metadata()
	at := field.NewPath("spec")
	c.lifetime(at)
	c.names(at)
	c.dns(at)
	c.host(at)
	c.scheduling(at)
	c.podSecurity(at)
	c.volumes(at.Child("volumes"))
	c.containers(at)
	c.podResources(at)
	return c.errs
}

// checker collects what is wrong with one pod.
type checker struct {
	pod  *v1.Pod
	spec *v1.PodSpec
	// sources of the volumes by name.
	sources map[string]*v1.VolumeSource
	errs    field.ErrorList
}

func (c *checker) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

func (c *checker) all(list field.ErrorList) { c.errs = append(c.errs, list...) }

func (c *checker) required(at *field.Path, why string) { c.add(field.Required(at, why)) }

func (c *checker) forbidden(at *field.Path, why string) { c.add(field.Forbidden(at, why)) }

func (c *checker) invalid(at *field.Path, value any, format string, args ...any) {
	c.add(field.Invalid(at, value, fmt.Sprintf(format, args...)))
}

// named turns the complaints about one value into errors.
func (c *checker) named(at *field.Path, value string, complaints []string) {
	for _, text := range complaints {
		c.invalid(at, value, "%s", text)
	}
}

// requiredName is named for a value that must be there.
func (c *checker) requiredName(at *field.Path, value, why string, check func(string) []string) {
	if value == "" {
		c.required(at, why)
		return
	}
	c.named(at, value, check(value))
}

// optionalName is named for a value that may be empty.
func (c *checker) optionalName(at *field.Path, value string, check func(string) []string) {
	if value != "" {
		c.named(at, value, check(value))
	}
}

// oneOf checks an enumeration.
func oneOf[T ~string](c *checker, at *field.Path, value T, allowed ...T) bool {
	for _, a := range allowed {
		if value == a {
			return true
		}
	}
	c.add(field.NotSupported(at, value, allowed))
	return false
}

// optionalOneOf checks an enumeration that may be left out.
func optionalOneOf[T ~string](c *checker, at *field.Path, value *T, allowed ...T) {
	if value != nil {
		oneOf(c, at, *value, allowed...)
	}
}

func isSubdomain(s string) []string { return validation.IsDNS1123Subdomain(s) }

func isLabel(s string) []string { return validation.IsDNS1123Label(s) }

// longestUID is in bytes.
const longestUID = 128

// isPlainUID says whether a UID can name directories and cgroups.
func isPlainUID(uid string) bool {
	for i := range len(uid) {
		switch c := uid[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i == 0 || c != '.' && c != '_' && c != '-':
			return false
		}
	}
	return uid != "" && len(uid) <= longestUID
}

func (c *checker) metadata() {
	at := field.NewPath("metadata")
	c.all(apivalidation.ValidateObjectMeta(&c.pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, at))
	// Directories and cgroups have its name.
	if uid := string(c.pod.UID); !isPlainUID(uid) {
		c.invalid(at.Child("uid"), uid, "must be 1 to 128 letters, digits, dashes, dots and underscores, the first of them a letter or a digit; leave it out to have one made")
	}
	for key, value := range c.pod.Annotations {
		name, found := strings.CutPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !found {
			continue
		}
		if !c.has(name) {
			c.invalid(at.Child("annotations").Key(key), name, "names no container of this pod")
		}
		local, isLocal := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix)
		if value != "" && value != v1.DeprecatedAppArmorBetaProfileRuntimeDefault && value != v1.DeprecatedAppArmorBetaProfileNameUnconfined && (!isLocal || local == "") {
			c.invalid(at.Child("annotations").Key(key), value, "must be runtime/default, unconfined or localhost/<profile>")
		}
	}
}

func (c *checker) has(container string) bool {
	_, kind := podutil.Container(c.pod, container)
	return kind == podutil.Init || kind == podutil.Regular
}

func (c *checker) lifetime(at *field.Path) {
	oneOf(c, at.Child("restartPolicy"), c.spec.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	if d := c.spec.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		c.invalid(at.Child("activeDeadlineSeconds"), *d, "must be between 1 and %d", math.MaxInt32)
	}
	for i, gate := range c.spec.ReadinessGates {
		c.named(at.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName(string(gate.ConditionType)))
	}
	if len(c.spec.SchedulingGates) > 0 {
		c.forbidden(at.Child("schedulingGates"), "the pod has its node already, nobody schedules it; remove them")
	}
	if len(c.spec.EphemeralContainers) > 0 {
		c.forbidden(at.Child("ephemeralContainers"), "only a running pod gets ephemeral containers; remove them")
	}
}

// names checks what refers to other objects by name, and the pod's own names.
func (c *checker) names(at *field.Path) {
	c.optionalName(at.Child("serviceAccountName"), c.spec.ServiceAccountName, isSubdomain)
	c.optionalName(at.Child("priorityClassName"), c.spec.PriorityClassName, isSubdomain)
	if name := c.spec.RuntimeClassName; name != nil {
		c.named(at.Child("runtimeClassName"), *name, isSubdomain(*name))
	}
	c.optionalName(at.Child("hostname"), c.spec.Hostname, isLabel)
	c.optionalName(at.Child("subdomain"), c.spec.Subdomain, isLabel)
	optionalOneOf(c, at.Child("preemptionPolicy"), c.spec.PreemptionPolicy, v1.PreemptLowerPriority, v1.PreemptNever)
	override := c.spec.HostnameOverride
	if override == nil {
		return
	}
	to := at.Child("hostnameOverride")
	if len(*override) > 64 {
		c.invalid(to, *override, "must have at most 64 characters")
	}
	c.named(to, *override, isSubdomain(*override))
	if c.spec.SetHostnameAsFQDN != nil && *c.spec.SetHostnameAsFQDN {
		c.forbidden(to, "must not stand beside setHostnameAsFQDN; remove one of them")
	}
	if c.spec.HostNetwork {
		c.forbidden(to, "a pod in the host's network has the host's name; remove one of them")
	}
}

// The bounds of v1.PodSpec.dnsConfig.
// Source: https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
const (
	mostNameservers, mostSearches, mostSearchCharacters = 3, 32, 2048
)

func (c *checker) dns(at *field.Path) {
	oneOf(c, at.Child("dnsPolicy"), c.spec.DNSPolicy, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)
	to, config := at.Child("dnsConfig"), c.spec.DNSConfig
	if c.spec.DNSPolicy == v1.DNSNone && (config == nil || len(config.Nameservers) == 0) {
		c.required(to.Child("nameservers"), "dnsPolicy None needs at least one")
	}
	if config != nil {
		c.dnsConfig(to, config)
	}
	for i, alias := range c.spec.HostAliases {
		entry := at.Child("hostAliases").Index(i)
		c.all(validation.IsValidIPForLegacyField(entry.Child("ip"), alias.IP, false, nil))
		for j, name := range alias.Hostnames {
			c.named(entry.Child("hostnames").Index(j), name, isSubdomain(name))
		}
	}
}

func (c *checker) dnsConfig(at *field.Path, config *v1.PodDNSConfig) {
	if len(config.Nameservers) > mostNameservers {
		c.invalid(at.Child("nameservers"), config.Nameservers, "must not be more than %d", mostNameservers)
	}
	for i, ip := range config.Nameservers {
		c.all(validation.IsValidIPForLegacyField(at.Child("nameservers").Index(i), ip, false, nil))
	}
	if len(config.Searches) > mostSearches {
		c.invalid(at.Child("searches"), config.Searches, "must not be more than %d", mostSearches)
	}
	if len(strings.Join(config.Searches, " ")) > mostSearchCharacters {
		c.invalid(at.Child("searches"), config.Searches, "must not have more than %d characters together", mostSearchCharacters)
	}
	for i, search := range config.Searches {
		if search == "." {
			continue
		}
		c.named(at.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(search, ".")))
	}
	for i, option := range config.Options {
		if option.Name == "" {
			c.required(at.Child("options").Index(i), "name the option")
		}
	}
}

// host checks what a pod shares with the host, and its operating system.
func (c *checker) host(at *field.Path) {
	if os := c.spec.OS; os != nil {
		oneOf(c, at.Child("os", "name"), os.Name, v1.Linux, v1.Windows)
	}
	if share := c.spec.ShareProcessNamespace; c.spec.HostPID && share != nil && *share {
		c.invalid(at.Child("shareProcessNamespace"), *share, "must not stand beside hostPID; remove one of them")
	}
	if users := c.spec.HostUsers; users != nil && !*users {
		for name, on := range map[string]bool{"hostNetwork": c.spec.HostNetwork, "hostIPC": c.spec.HostIPC, "hostPID": c.spec.HostPID} {
			if on {
				c.forbidden(at.Child(name), "not with hostUsers: false; remove one of them")
			}
		}
	}
	ports := sets.New[string]()
	for kind, list := range map[string][]v1.Container{"containers": c.spec.Containers, "initContainers": c.spec.InitContainers} {
		ports.Clear()
		for i := range list {
			for j, p := range list[i].Ports {
				to := at.Child(kind).Index(i).Child("ports").Index(j).Child("hostPort")
				if c.spec.HostNetwork && p.HostPort != p.ContainerPort {
					c.invalid(to, p.HostPort, "must be the containerPort in a pod of the host's network")
				}
				if key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort); p.HostPort != 0 {
					if ports.Has(key) {
						c.add(field.Duplicate(to, key))
					}
					ports.Insert(key)
				}
			}
		}
	}
}
