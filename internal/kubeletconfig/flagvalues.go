package kubeletconfig

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// mapValue is a flag "key=value,key=value" (or another separator). The first
// use replaces what was there, further uses add.
type mapValue struct {
	target    *map[string]string
	separator string
	used      bool
}

func (m *mapValue) Set(text string) error {
	if !m.used || *m.target == nil {
		*m.target, m.used = map[string]string{}, true
	}
	for _, pair := range split(text, ",") {
		key, val, ok := strings.Cut(pair, m.separator)
		if !ok || strings.TrimSpace(key) == "" {
			return fmt.Errorf("%q is not key%svalue", pair, m.separator)
		}
		(*m.target)[strings.TrimSpace(key)] = strings.TrimSpace(val)
	}
	return nil
}

func (m *mapValue) String() string {
	if m.target == nil {
		return ""
	}
	pairs := make([]string, 0, len(*m.target))
	for k, v := range *m.target {
		pairs = append(pairs, k+m.separator+v)
	}
	sort.Strings(pairs)
	return strings.Join(pairs, ",")
}

func (m *mapValue) Type() string { return "mapStringString" }

// gatesValue is --feature-gates: it adds to the file's map, key by key.
type gatesValue struct{ target *map[string]bool }

func (g gatesValue) Set(text string) error {
	if *g.target == nil {
		*g.target = map[string]bool{}
	}
	for _, pair := range split(text, ",") {
		key, val, ok := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(strings.TrimSpace(val))
		if !ok || err != nil {
			return fmt.Errorf("%q is not Name=true or Name=false", pair)
		}
		(*g.target)[strings.TrimSpace(key)] = on
	}
	return nil
}

func (g gatesValue) String() string {
	if g.target == nil {
		return ""
	}
	pairs := make([]string, 0, len(*g.target))
	for k, v := range *g.target {
		pairs = append(pairs, k+"="+strconv.FormatBool(v))
	}
	sort.Strings(pairs)
	return strings.Join(pairs, ",")
}

func (gatesValue) Type() string { return "mapStringBool" }

// taintsValue is --register-with-taints: "key=value:effect,key:effect".
type taintsValue struct{ target *[]v1.Taint }

func (t taintsValue) Set(text string) error {
	taints := []v1.Taint{}
	for _, item := range split(text, ",") {
		taint, err := parseTaint(item)
		if err != nil {
			return err
		}
		taints = append(taints, taint)
	}
	*t.target = taints
	return nil
}

func parseTaint(text string) (v1.Taint, error) {
	colon := strings.LastIndex(text, ":")
	if colon <= 0 {
		return v1.Taint{}, fmt.Errorf("taint %q is not key=value:effect", text)
	}
	key, val, _ := strings.Cut(text[:colon], "=")
	effect := v1.TaintEffect(text[colon+1:])
	switch effect {
	case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
		return v1.Taint{Key: key, Value: val, Effect: effect}, nil
	default:
		return v1.Taint{}, fmt.Errorf("taint %q: effect is NoSchedule, PreferNoSchedule or NoExecute", text)
	}
}

func (t taintsValue) String() string {
	if t.target == nil {
		return ""
	}
	items := make([]string, 0, len(*t.target))
	for _, taint := range *t.target {
		items = append(items, taint.ToString())
	}
	return strings.Join(items, ",")
}

func (taintsValue) Type() string { return "taints" }

// headersValue is --manifest-url-header: "name:value,name:value".
type headersValue struct {
	target *map[string][]string
	used   bool
}

func (h *headersValue) Set(text string) error {
	if !h.used || *h.target == nil {
		*h.target, h.used = map[string][]string{}, true
	}
	for _, pair := range split(text, ",") {
		name, val, ok := strings.Cut(pair, ":")
		if !ok || name == "" {
			return fmt.Errorf("header %q is not name:value", pair)
		}
		(*h.target)[name] = append((*h.target)[name], strings.TrimSpace(val))
	}
	return nil
}

// String leaves the values out: they may be secrets and land in help texts.
func (h *headersValue) String() string { return "" }

func (*headersValue) Type() string { return "colonSeparatedMultimap" }

// reservedMemoryValue is --reserved-memory: "0:memory=1Gi,hugepages-2Mi=2Gi;1:memory=1Gi".
type reservedMemoryValue struct {
	target *[]kubeletv1beta1.MemoryReservation
}

func (r reservedMemoryValue) Set(text string) error {
	all := []kubeletv1beta1.MemoryReservation{}
	for _, node := range split(text, ";") {
		number, rest, ok := strings.Cut(node, ":")
		numa, err := strconv.ParseInt(strings.TrimSpace(number), 10, 32)
		if !ok || err != nil || numa < 0 {
			return fmt.Errorf("%q is not <numa node>:<resource>=<quantity>,…", node)
		}
		limits := v1.ResourceList{}
		for _, pair := range split(rest, ",") {
			name, amount, ok := strings.Cut(pair, "=")
			quantity, err := resource.ParseQuantity(amount)
			if !ok || err != nil {
				return fmt.Errorf("%q is not <resource>=<quantity>", pair)
			}
			limits[v1.ResourceName(strings.TrimSpace(name))] = quantity
		}
		all = append(all, kubeletv1beta1.MemoryReservation{NumaNode: int32(numa), Limits: limits})
	}
	*r.target = all
	return nil
}

func (reservedMemoryValue) String() string { return "" }

func (reservedMemoryValue) Type() string { return "reserved-memory" }

// textValue binds a flag to a field whose type is a kind of string.
type textValue[T ~string] struct{ target *T }

func (v textValue[T]) Set(text string) error { *v.target = T(text); return nil }

func (v textValue[T]) String() string {
	if v.target == nil {
		return ""
	}
	return string(*v.target)
}

func (textValue[T]) Type() string { return "string" }

func split(text, separator string) []string {
	var out []string
	for _, item := range strings.Split(text, separator) {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
