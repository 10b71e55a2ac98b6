package validate

import (
	"math"
	"path"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) podSecurity(at *field.Path) {
	sc, to := c.spec.SecurityContext, at.Child("securityContext")
	if sc == nil {
		return
	}
	c.id(to.Child("runAsUser"), sc.RunAsUser)
	c.id(to.Child("runAsGroup"), sc.RunAsGroup)
	c.id(to.Child("fsGroup"), sc.FSGroup)
	for i := range sc.SupplementalGroups {
		c.id(to.Child("supplementalGroups").Index(i), &sc.SupplementalGroups[i])
	}
	optionalOneOf(c, to.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy, v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	optionalOneOf(c, to.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy, v1.FSGroupChangeAlways, v1.FSGroupChangeOnRootMismatch)
	optionalOneOf(c, to.Child("seLinuxChangePolicy"), sc.SELinuxChangePolicy, v1.SELinuxChangePolicyMountOption, v1.SELinuxChangePolicyRecursive)
	c.seccomp(to.Child("seccompProfile"), sc.SeccompProfile)
	c.appArmor(to.Child("appArmorProfile"), sc.AppArmorProfile)
	c.sysctls(to.Child("sysctls"), sc.Sysctls)
	if sc.WindowsOptions != nil && c.spec.OS != nil && c.spec.OS.Name == v1.Linux {
		c.forbidden(to.Child("windowsOptions"), "not in a pod of linux")
	}
}

// sysctlName is a sysctl's name, of which the parts are joined by dots or slashes.
const sysctlName = `^[a-z0-9]([-_a-z0-9]*[a-z0-9])?((\.|/)[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`

func (c *checker) sysctls(at *field.Path, list []v1.Sysctl) {
	seen := sets.New[string]()
	if len(list) == 0 {
		return
	}
	spelling := regexp.MustCompile(sysctlName)
	for i, s := range list {
		to := at.Index(i).Child("name")
		if s.Name == "" {
			c.required(to, "name the sysctl")
		} else if !spelling.MatchString(s.Name) || len(s.Name) > 253 {
			c.invalid(to, s.Name, "must be a sysctl's name, at most 253 of a-z, 0-9, - and _ in parts joined by . or /")
		}
		name := strings.ReplaceAll(s.Name, "/", ".")
		if seen.Has(s.Name) {
			c.add(field.Duplicate(to, s.Name))
		}
		seen.Insert(s.Name)
		switch {
		case c.spec.HostNetwork && strings.HasPrefix(name, "net."):
			c.invalid(to, s.Name, "not in a pod of the host's network")
		case c.spec.HostIPC && (strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || name == "kernel.sem" || strings.HasPrefix(name, "fs.mqueue.")):
			c.invalid(to, s.Name, "not in a pod of the host's IPC")
		}
	}
}

func (c *checker) id(at *field.Path, id *int64) {
	if id != nil && (*id < 0 || *id > math.MaxInt32) {
		c.invalid(at, *id, "must be between 0 and %d", math.MaxInt32)
	}
}

func (c *checker) seccomp(at *field.Path, p *v1.SeccompProfile) {
	if p == nil {
		return
	}
	if p.Type == "" {
		c.required(at.Child("type"), "say which kind of profile")
		return
	}
	if !oneOf(c, at.Child("type"), p.Type, v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined) {
		return
	}
	to := at.Child("localhostProfile")
	switch {
	case p.Type == v1.SeccompProfileTypeLocalhost && p.LocalhostProfile == nil:
		c.required(to, "name the profile")
	case p.Type == v1.SeccompProfileTypeLocalhost:
		c.below(to, *p.LocalhostProfile)
	case p.LocalhostProfile != nil:
		c.invalid(to, *p.LocalhostProfile, "only with type: Localhost")
	}
}

func (c *checker) appArmor(at *field.Path, p *v1.AppArmorProfile) {
	if p == nil {
		return
	}
	to := at.Child("localhostProfile")
	switch p.Type {
	case v1.AppArmorProfileTypeLocalhost:
		switch {
		case p.LocalhostProfile == nil:
			c.required(to, "name the profile")
		case strings.TrimSpace(*p.LocalhostProfile) != *p.LocalhostProfile:
			c.invalid(to, *p.LocalhostProfile, "must not begin or end with spaces")
		case *p.LocalhostProfile == "":
			c.required(to, "name the profile")
		case len(*p.LocalhostProfile) > 4095:
			c.add(field.TooLong(to, *p.LocalhostProfile, 4095))
		}
	case v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			c.invalid(to, *p.LocalhostProfile, "only with type: Localhost")
		}
	case "":
		c.required(at.Child("type"), "say which kind of profile")
	default:
		oneOf(c, at.Child("type"), p.Type, v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined)
	}
}

// below checks a relative path that stays below where it begins.
func (c *checker) below(at *field.Path, text string) {
	if path.IsAbs(text) {
		c.invalid(at, text, "must be a relative path")
	}
	c.noDotDot(at, text)
}

func (c *checker) noDotDot(at *field.Path, text string) {
	for part := range strings.SplitSeq(text, "/") {
		if part == ".." {
			c.invalid(at, text, "must not contain '..'")
			return
		}
	}
}

func (c *checker) containerSecurity(at *field.Path, sc *v1.SecurityContext) {
	if sc == nil {
		return
	}
	c.id(at.Child("runAsUser"), sc.RunAsUser)
	c.id(at.Child("runAsGroup"), sc.RunAsGroup)
	c.seccomp(at.Child("seccompProfile"), sc.SeccompProfile)
	c.appArmor(at.Child("appArmorProfile"), sc.AppArmorProfile)
	if p := sc.ProcMount; p != nil {
		oneOf(c, at.Child("procMount"), *p, v1.DefaultProcMount, v1.UnmaskedProcMount)
		if users := c.spec.HostUsers; *p == v1.UnmaskedProcMount && (users == nil || *users) {
			c.invalid(at.Child("procMount"), *p, "Unmasked needs hostUsers: false")
		}
	}
	if sc.WindowsOptions != nil && c.spec.OS != nil && c.spec.OS.Name == v1.Linux {
		c.forbidden(at.Child("windowsOptions"), "not in a pod of linux")
	}
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return
	}
	if sc.Privileged != nil && *sc.Privileged {
		c.invalid(at, sc, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
	}
	if sc.Capabilities != nil {
		for _, capability := range sc.Capabilities.Add {
			if capability == "CAP_SYS_ADMIN" {
				c.invalid(at, sc, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
			}
		}
	}
}
