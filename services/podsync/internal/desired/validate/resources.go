package validate

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podresource "k8s.io/component-helpers/resource"
)

func (c *checker) containerResources(at *field.Path, r *v1.ResourceRequirements) {
	for name, q := range r.Limits {
		c.amount(at.Child("limits").Key(string(name)), name, q)
	}
	for name, q := range r.Requests {
		to := at.Child("requests").Key(string(name))
		c.amount(to, name, q)
		limit, limited := r.Limits[name]
		switch {
		case limited && !overcommits(name) && q.Cmp(limit) != 0:
			c.invalid(to, q.String(), "must be equal to %s limit of %s", name, limit.String())
		case limited && q.Cmp(limit) > 0:
			c.invalid(to, q.String(), "must be less than or equal to %s limit of %s", name, limit.String())
		case !limited && !overcommits(name):
			c.required(at.Child("limits").Key(string(name)), "Limit must be set for non overcommitable resources")
		}
	}
	c.pagesNeedMore(at, r)
	for i := range r.Claims {
		c.add(field.NotFound(at.Child("claims").Index(i), r.Claims[i].Name))
	}
}

// pagesNeedMore refuses huge pages without cpu or memory.
func (c *checker) pagesNeedMore(at *field.Path, r *v1.ResourceRequirements) {
	pages, ordinary := false, false
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			pages = pages || isPages(name)
			ordinary = ordinary || name == v1.ResourceCPU || name == v1.ResourceMemory
		}
	}
	if pages && !ordinary {
		c.forbidden(at, "HugePages require cpu or memory")
	}
}

func isPages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// native resources are Kubernetes' own.
func native(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// overcommits says whether requests may be less than limits.
func overcommits(name v1.ResourceName) bool { return native(name) && !isPages(name) }

// amount checks one entry of a resource list.
func (c *checker) amount(at *field.Path, name v1.ResourceName, q resource.Quantity) {
	c.named(at, string(name), validation.IsQualifiedName(string(name)))
	switch {
	case !strings.Contains(string(name), "/"):
		switch name {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		default:
			if !isPages(name) {
				c.invalid(at, name, "must be a standard resource for containers")
			}
		}
	case !native(name) && strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix):
		c.invalid(at, name, "must not begin with requests.")
	}
	if q.Sign() < 0 {
		c.invalid(at, q.String(), "must be greater than or equal to 0")
	}
	if !native(name) && q.MilliValue()%1000 != 0 {
		c.invalid(at, q.String(), "must be an integer")
	}
	if isPages(name) {
		c.pages(at, name, q)
	}
}

// pages checks that huge pages are whole ones.
func (c *checker) pages(at *field.Path, name v1.ResourceName, q resource.Quantity) {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	switch {
	case err != nil || size.Sign() <= 0:
		c.invalid(at, name, "must name a page size, such as hugepages-2Mi")
	case q.MilliValue()%size.MilliValue() != 0:
		c.invalid(at, q.String(), "must be a multiple of the page size %s", size.String())
	}
}

// podResources checks the pod's own resources against its containers'.
func (c *checker) podResources(spec *field.Path) {
	for name, q := range c.spec.Overhead {
		c.amount(spec.Child("overhead").Key(string(name)), name, q)
	}
	r, at := c.spec.Resources, spec.Child("resources")
	if r == nil {
		return
	}
	if c.spec.OS != nil && c.spec.OS.Name == v1.Windows {
		c.forbidden(at, "not in a pod of windows")
	}
	if len(r.Claims) > 0 {
		c.forbidden(at.Child("claims"), "claims stand in containers")
	}
	for kind, list := range map[string]v1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for name := range list {
			if !podresource.IsSupportedPodLevelResource(name) {
				c.add(field.NotSupported(at.Child(kind), name, []string{"cpu", "memory", "hugepages-<size>"}))
			}
		}
	}
	own := *r
	own.Claims = nil
	c.containerResources(at, &own)
	asked := podresource.AggregateContainerRequests(c.pod, podresource.PodResourcesOptions{})
	for name, sum := range asked {
		if own, ok := r.Requests[name]; ok && sum.Cmp(own) > 0 {
			c.invalid(at.Child("requests").Key(string(name)), own.String(), "must be greater than or equal to aggregate container requests of %s", sum.String())
		}
	}
	for kind, list := range map[string][]v1.Container{"containers": c.spec.Containers, "initContainers": c.spec.InitContainers} {
		for i := range list {
			for name, limit := range list[i].Resources.Limits {
				if own, ok := r.Limits[name]; ok && limit.Cmp(own) > 0 {
					c.invalid(spec.Child(kind).Index(i).Child("resources", "limits").Key(string(name)), limit.String(), "must be less than or equal to pod limits of %s", own.String())
				}
			}
		}
	}
}
