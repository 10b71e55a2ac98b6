package kubeletconfig

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
)

// origins are the names of those who have set a field of the configuration's
// top level, by the field's name in JSON; what went on top is last.
type origins map[string][]string

// layer notes what a file or a drop-in says. Objects are laid over each other
// key by key and keep who has set them before; null takes a field back.
func (o origins) layer(name string, raw []byte) {
	document, _, err := toJSON(raw)
	if err != nil {
		return // who decodes it says what is wrong
	}
	var fields map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(document, &fields) != nil {
		return
	}
	for field, value := range fields {
		switch value.(type) {
		case nil:
			delete(o, field)
		case map[string]any:
			o[field] = append(o[field], name)
		default:
			o[field] = []string{name}
		}
	}
	delete(o, "kind")
	delete(o, "apiVersion")
}

// flags notes what the command line says on top of the layers below: a flag is
// tried alone, and what it changes is its field. One of the two configurations
// that it is tried on has another value than the flag's. config is the one in
// effect.
func (o origins) flags(args []string, config *kubeletv1beta1.KubeletConfiguration) {
	given := map[string][]string{}
	// Load has parsed them before.
	_ = newFlagSet(defaultFlags(), legacyDefaults()).ParseAll(args, func(f *pflag.Flag, value string) error {
		given[f.Name] = append(given[f.Name], value)
		return nil
	})
	effect := topLevel(config)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		changed := map[string]bool{}
		for _, base := range []*kubeletv1beta1.KubeletConfiguration{legacyDefaults(), strange()} {
			alone := newFlagSet(defaultFlags(), base) // logging gets defaults by that
			before := topLevel(base)
			for _, value := range given[name] {
				_ = alone.Set(name, value) // it was parsed before
			}
			for field, value := range topLevel(base) {
				if !reflect.DeepEqual(before[field], value) {
					changed[field] = true
				}
				delete(before, field)
			}
			for field := range before { // what is empty now is left out
				changed[field] = true
			}
		}
		for field := range changed {
			o.flag(field, "flag --"+name, effect[field])
		}
	}
}

// strange is a configuration with values that nobody gives.
func strange() *kubeletv1beta1.KubeletConfiguration {
	c := legacyDefaults()
	estrange(reflect.ValueOf(c).Elem())
	return c
}

func estrange(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		estrange(v.Elem())
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			estrange(field)
		}
	case !v.CanSet():
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		v.SetString("strange")
	case v.CanInt() && v.Type().Bits() >= 32:
		v.SetInt(7919)
	case v.Kind() == reflect.Map || v.Kind() == reflect.Slice:
		v.SetZero()
	}
}

// flag puts a flag on top of a field, which has this value then.
func (o origins) flag(field, name string, value any) {
	if _, object := value.(map[string]any); object {
		o[field] = append(o[field], name)
		return
	}
	o[field] = []string{name}
}

func topLevel(c *kubeletv1beta1.KubeletConfiguration) map[string]any {
	var fields map[string]any
	raw, err := json.Marshal(c)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &fields)
	}
	if err != nil {
		return nil // a decoded configuration can be encoded; its types allow no other
	}
	return fields
}

// Origins says who has set each field of the configuration's top level, by its
// name in JSON: "flag --max-pods", "file /path", "drop-in /path", joined by
// commas in the order in which they were laid over each other. What is missing
// has its default. The first call takes milliseconds per flag.
func (l *Loaded) Origins() map[string]string {
	if said := l.slice.said(); said != nil {
		return said
	}
	l.said.Do(func() { l.setBy = l.whoSet() })
	return maps.Clone(l.setBy)
}

func (l *Loaded) whoSet() map[string]string {
	from := origins{}
	for field, names := range l.origins {
		from[field] = slices.Clone(names)
	}
	from.flags(l.Args, l.Config)
	out := map[string]string{}
	for field, names := range from {
		out[field] = strings.Join(names, ", ")
	}
	return out
}
