package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// EffectState says whether a setting does something.
type EffectState int

// Used settings do what Kubernetes documents, as far as Lacks says nothing
// else. Later ones have no effect yet: a part is missing. Ours have none since
// the work is done in another way here. Idle ones have none in the kubelet either.
const (
	Used EffectState = iota + 1
	Later
	Ours
	Idle
)

// Effect is what one setting does.
type Effect struct {
	State EffectState
	// Who uses it: services, for Used ones. Why it has no effect, or which part
	// is missing, for the others.
	Who string
	// Lacks is what of a Used setting has no effect yet; empty when nothing.
	Lacks string
}

func used(who string) Effect          { return Effect{State: Used, Who: who} }
func partly(who, lacks string) Effect { return Effect{State: Used, Who: who, Lacks: lacks} }
func later(part string) Effect        { return Effect{State: Later, Who: part} }
func ours(why string) Effect          { return Effect{State: Ours, Who: why} }
func idle(why string) Effect          { return Effect{State: Idle, Who: why} }

// text says in a sentence what a setting lacks; empty when nothing.
func (e Effect) text() string {
	switch {
	case e.State == Later:
		return "has no effect yet: " + e.Who
	case e.State == Ours:
		return "has no effect: " + e.Who
	case e.Lacks != "":
		return "has a part of its effect: " + e.Lacks
	}
	return ""
}

// Notice is a setting that does not do what it says.
type Notice struct {
	// Setting is a field's path in JSON (evictionHard, logging.options.json.splitStream),
	// a flag (--housekeeping-interval) or a gate (featureGates.SELinuxMount).
	Setting string
	// Value is the one in effect, as JSON or as the flag's text.
	Value string
	// Text says what does not happen, and why.
	Text string
	// Default says that nobody has set it: the kubelet's default asks for it.
	Default bool
}

// String is "setting: value text"; "(default)" stands behind the value of one
// that nobody has set.
func (n Notice) String() string {
	value := n.Value
	if n.Default {
		value += " (default)"
	}
	return fmt.Sprintf("%s: %s %s", n.Setting, value, n.Text)
}

// WithoutEffect returns the settings in effect that ask for something the node
// does not do, in order: what the files say and nobody understands, fields, flags,
// feature gates. A value that asks for what happens anyway is not among them.
func (l *Loaded) WithoutEffect() []Notice {
	return slices.Concat(l.ignored, l.idleFields(), l.idleFlags(), l.idleGates(), l.idleGiven())
}

func (l *Loaded) idleFields() []Notice {
	var out []Notice
	acted := leaves(actsAs())
	have := leaves(l.Config)
	effects := fieldEffects()
	set := l.Origins()
	for _, path := range slices.Sorted(maps.Keys(effects)) {
		text := effects[path].text()
		if text == "" || equality.Semantic.DeepEqual(plain(have[path]), plain(acted[path])) {
			continue
		}
		top, _, _ := strings.Cut(path, ".")
		_, said := set[top]
		out = append(out, Notice{Setting: path, Value: compactJSON(have[path]), Text: text, Default: !said})
	}
	return out
}

func (l *Loaded) idleFlags() []Notice {
	var out []Notice
	fs := newFlagSet(defaultFlags(), legacyDefaults())
	_ = fs.Parse(l.Args) // Load has parsed them before
	effects := flagEffects()
	fs.Visit(func(f *pflag.Flag) {
		if text := effects[f.Name].text(); text != "" && f.Value.String() != f.DefValue {
			out = append(out, Notice{Setting: "--" + f.Name, Value: f.Value.String(), Text: text})
		}
	})
	return out
}

func (l *Loaded) idleGates() []Notice {
	var out []Notice
	standing := standingGates()
	effects := gateEffects()
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		text, on := effects[name].text(), l.gates[name]
		if text != "" && on != standing[name] && on != actsAsGate(effects[name]) {
			out = append(out, Notice{Setting: "featureGates." + name, Value: fmt.Sprint(on), Text: text})
		}
	}
	return out
}

// actsAs is a configuration that asks for what the node does in the fields that
// have no effect: their defaults.
func actsAs() *kubeletv1beta1.KubeletConfiguration {
	c := &kubeletv1beta1.KubeletConfiguration{}
	setDefaults(c)
	return c
}

// leaves are the fields of a configuration by their paths in JSON; lists, maps
// and what has a text form of its own stand as a whole. A field below a nil
// pointer is nil.
func leaves(c *kubeletv1beta1.KubeletConfiguration) map[string]any {
	out := map[string]any{}
	walkFields("", reflect.ValueOf(c).Elem(), func(path string, _ reflect.StructField, v reflect.Value) {
		if v.IsValid() {
			out[path] = v.Interface()
		}
	})
	delete(out, "kind")
	delete(out, "apiVersion")
	return out
}

// walkFields calls see with each leaf. v may be invalid below a nil pointer;
// fields of its type are not reached then, unless walkTypes makes them.
func walkFields(prefix string, v reflect.Value, see func(path string, field reflect.StructField, v reflect.Value)) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		path, below := prefix+name, v.Field(i)
		nested := field.Type
		if nested.Kind() == reflect.Pointer {
			nested = nested.Elem()
			if below.IsNil() && isBranch(nested) {
				below = reflect.Zero(field.Type.Elem())
			} else if isBranch(nested) {
				below = below.Elem()
			}
		}
		switch {
		case !isBranch(nested):
			see(path, field, below)
		case name == "":
			walkFields(prefix, below, see)
		default:
			walkFields(path+".", below, see)
		}
	}
}

// isBranch says whether a type has fields that are settings of their own.
func isBranch(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for _, leaf := range []reflect.Type{reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]()} {
		if t == leaf {
			return false
		}
	}
	return !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// plain makes an empty list or map equal to none.
func plain(v any) any {
	r := reflect.ValueOf(v)
	if r.IsValid() && (r.Kind() == reflect.Map || r.Kind() == reflect.Slice) && r.Len() == 0 {
		return nil
	}
	return v
}

func compactJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

// Effects are what all settings do: fields by their paths in JSON, flags that
// set no field, and the feature gates that a kubelet looks at and that can be
// switched, by name.
func Effects() (fields, flags, gates map[string]Effect) {
	return fieldEffects(), flagEffects(), gateEffects()
}
