package validate

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) scheduling(at *field.Path) {
	c.all(metavalidation.ValidateLabels(c.spec.NodeSelector, at.Child("nodeSelector")))
	for i, t := range c.spec.Tolerations {
		c.toleration(at.Child("tolerations").Index(i), t)
	}
	if a := c.spec.Affinity; a != nil {
		to := at.Child("affinity")
		c.nodeAffinity(to.Child("nodeAffinity"), a.NodeAffinity)
		if p := a.PodAffinity; p != nil {
			c.podAffinity(to.Child("podAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if p := a.PodAntiAffinity; p != nil {
			c.podAffinity(to.Child("podAntiAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	c.spread(at.Child("topologySpreadConstraints"))
}

func (c *checker) toleration(at *field.Path, t v1.Toleration) {
	c.optionalName(at.Child("key"), t.Key, validation.IsQualifiedName)
	if t.Key == "" && t.Operator != v1.TolerationOpExists {
		c.invalid(at.Child("operator"), t.Operator, "must be Exists without a key, which means any key and any value")
	}
	if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
		c.invalid(at.Child("effect"), t.Effect, "must be NoExecute beside tolerationSeconds")
	}
	switch t.Operator {
	case v1.TolerationOpEqual, "":
		c.named(at.Child("operator"), t.Value, validation.IsValidLabelValue(t.Value))
	case v1.TolerationOpExists:
		if t.Value != "" {
			c.invalid(at.Child("operator"), t.Operator, "must not stand beside a value; remove the value")
		}
	default:
		oneOf(c, at.Child("operator"), t.Operator, v1.TolerationOpEqual, v1.TolerationOpExists)
	}
	if t.Effect != "" {
		oneOf(c, at.Child("effect"), t.Effect, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
	}
}

func (c *checker) nodeAffinity(at *field.Path, a *v1.NodeAffinity) {
	if a == nil {
		return
	}
	if r := a.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		to := at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if len(r.NodeSelectorTerms) == 0 {
			c.required(to, "name at least one term")
		}
		for i := range r.NodeSelectorTerms {
			c.nodeTerm(to.Index(i), &r.NodeSelectorTerms[i])
		}
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		p, to := &a.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		c.weight(to.Child("weight"), p.Weight)
		c.nodeTerm(to.Child("preference"), &p.Preference)
	}
}

func (c *checker) weight(at *field.Path, weight int32) {
	if weight < 1 || weight > 100 {
		c.invalid(at, weight, "must be between 1 and 100")
	}
}

func (c *checker) nodeTerm(at *field.Path, term *v1.NodeSelectorTerm) {
	for i, r := range term.MatchExpressions {
		to := at.Child("matchExpressions").Index(i)
		c.named(to.Child("key"), r.Key, validation.IsQualifiedName(r.Key))
		switch r.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				c.required(to.Child("values"), "In and NotIn need values")
			}
			for j, value := range r.Values {
				c.named(to.Child("values").Index(j), value, validation.IsValidLabelValue(value))
			}
		case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				c.forbidden(to.Child("values"), "Exists and DoesNotExist take none")
			}
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				c.required(to.Child("values"), "Gt and Lt take exactly one")
			} else if _, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil {
				c.named(to.Child("values").Index(0), r.Values[0], validation.IsValidLabelValue(r.Values[0]))
			}
		default:
			oneOf(c, to.Child("operator"), r.Operator, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt)
		}
	}
	for i, r := range term.MatchFields {
		to := at.Child("matchFields").Index(i)
		oneOf(c, to.Child("operator"), r.Operator, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn)
		if len(r.Values) != 1 {
			c.required(to.Child("values"), "exactly one value is taken")
		}
		if oneOf(c, to.Child("key"), r.Key, "metadata.name") {
			for j, value := range r.Values {
				c.named(to.Child("values").Index(j), value, isSubdomain(value))
			}
		}
	}
}

func (c *checker) podAffinity(at *field.Path, must []v1.PodAffinityTerm, should []v1.WeightedPodAffinityTerm) {
	for i := range must {
		c.podTerm(at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i), &must[i])
	}
	for i := range should {
		to := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		c.weight(to.Child("weight"), should[i].Weight)
		c.podTerm(to.Child("podAffinityTerm"), &should[i].PodAffinityTerm)
	}
}

func (c *checker) podTerm(at *field.Path, term *v1.PodAffinityTerm) {
	c.selector(at.Child("labelSelector"), term.LabelSelector)
	c.selector(at.Child("namespaceSelector"), term.NamespaceSelector)
	for i, ns := range term.Namespaces {
		c.named(at.Child("namespaces").Index(i), ns, isLabel(ns))
	}
	c.requiredName(at.Child("topologyKey"), term.TopologyKey, "say which label of nodes makes a group", validation.IsQualifiedName)
	c.labelKeys(at.Child("matchLabelKeys"), term.MatchLabelKeys, term.LabelSelector)
	c.labelKeys(at.Child("mismatchLabelKeys"), term.MismatchLabelKeys, term.LabelSelector)
	both := sets.New(term.MatchLabelKeys...)
	for i, key := range term.MismatchLabelKeys {
		if both.Has(key) {
			c.invalid(at.Child("mismatchLabelKeys").Index(i), key, "is in matchLabelKeys too; remove one of them")
		}
	}
}

func (c *checker) selector(at *field.Path, s *metav1.LabelSelector) {
	c.all(metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at))
}

// labelKeys checks keys that the apiserver turns into a selector's expressions.
func (c *checker) labelKeys(at *field.Path, keys []string, s *metav1.LabelSelector) {
	if len(keys) == 0 {
		return
	}
	if s == nil {
		c.forbidden(at, "must not be set without labelSelector")
		return
	}
	for i, key := range keys {
		c.named(at.Index(i), key, validation.IsQualifiedName(key))
		for _, e := range s.MatchExpressions {
			if e.Key == key {
				c.invalid(at.Index(i), key, "is in labelSelector too; remove one of them")
			}
		}
		if _, there := s.MatchLabels[key]; there {
			c.invalid(at.Index(i), key, "is in labelSelector too; remove one of them")
		}
	}
}

func (c *checker) spread(at *field.Path) {
	seen := sets.New[string]()
	for i := range c.spec.TopologySpreadConstraints {
		t, to := &c.spec.TopologySpreadConstraints[i], at.Index(i)
		if t.MaxSkew <= 0 {
			c.invalid(to.Child("maxSkew"), t.MaxSkew, "must be more than 0")
		}
		c.requiredName(to.Child("topologyKey"), t.TopologyKey, "say which label of nodes makes a group", validation.IsQualifiedName)
		oneOf(c, to.Child("whenUnsatisfiable"), t.WhenUnsatisfiable, v1.DoNotSchedule, v1.ScheduleAnyway)
		key := t.TopologyKey + "/" + string(t.WhenUnsatisfiable)
		if seen.Has(key) {
			c.add(field.Duplicate(to.Child("topologyKey"), key))
		}
		seen.Insert(key)
		if m := t.MinDomains; m != nil {
			if *m <= 0 {
				c.invalid(to.Child("minDomains"), *m, "must be more than 0")
			}
			if t.WhenUnsatisfiable != v1.DoNotSchedule {
				c.invalid(to.Child("minDomains"), *m, "only with whenUnsatisfiable: DoNotSchedule")
			}
		}
		optionalOneOf(c, to.Child("nodeAffinityPolicy"), t.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore)
		optionalOneOf(c, to.Child("nodeTaintsPolicy"), t.NodeTaintsPolicy, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore)
		c.labelKeys(to.Child("matchLabelKeys"), t.MatchLabelKeys, t.LabelSelector)
		c.selector(to.Child("labelSelector"), t.LabelSelector)
	}
}
