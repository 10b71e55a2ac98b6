package kubeletconfig

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

func TestEveryFieldSaysWhatItDoes(t *testing.T) {
	effects, fields := fieldEffects(), leaves(legacyDefaults())
	if len(fields) < 120 {
		t.Fatalf("only %d fields were found", len(fields))
	}
	for path := range fields {
		if e := effects[path]; e.State == 0 || e.Who == "" {
			t.Errorf("%s is in no list: say in effectfields.go who uses it, or which part is missing", path)
		}
	}
	for path := range effects {
		if _, there := fields[path]; !there {
			t.Errorf("%s is said to do something and is no field", path)
		}
	}
	sum := 0
	for _, part := range []map[string]Effect{servingEffects(), sourceEffects(), imageEffects(), resourceEffects(), managerEffects(), nodeEffects()} {
		sum += len(part)
	}
	if sum != len(effects) {
		t.Errorf("%d fields in the lists and %d in all: one is in two lists", sum, len(effects))
	}
}

func TestEveryFlagSaysWhatItDoes(t *testing.T) {
	fields, effects := fieldEffects(), flagEffects()
	seen := map[string]bool{}
	newFlagSet(defaultFlags(), legacyDefaults()).VisitAll(func(f *pflag.Flag) {
		seen[f.Name] = true
		own, path := effects[f.Name], fieldOf(f)
		switch {
		case path != "" && own.State != 0:
			t.Errorf("--%s sets %s and has an effect of its own: one of the two", f.Name, path)
		case path != "" && fields[path].State == 0:
			t.Errorf("--%s sets %s, which is no field", f.Name, path)
		case path == "" && (own.State == 0 || own.Who == ""):
			t.Errorf("--%s is in no list: say in effectflags.go who uses it, or which part is missing", f.Name)
		}
	})
	for name := range effects {
		if !seen[name] {
			t.Errorf("--%s is said to do something and is no flag", name)
		}
	}
}

func TestEveryGateOfTheKubeletSaysWhatItDoes(t *testing.T) {
	locked, seen := map[string]bool{}, map[string]bool{}
	for _, group := range gateGroups() {
		for name := range strings.FieldsSeq(group.names) {
			locked[name] = group.locked
		}
	}
	for _, group := range gateEffectGroups() {
		for name := range strings.FieldsSeq(group.names) {
			if isLocked, known := locked[name]; !known || isLocked {
				t.Errorf("%s is no gate that can be switched", name)
			}
			if seen[name] {
				t.Errorf("%s is in two lists", name)
			}
			seen[name] = true
		}
	}
}

func TestWhatIsSetAndDoesNothingIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		args []string
		want []string
	}{
		"nothing":                     {"", nil, nil},
		"a value that changes much":   {"maxPods: 7\nclusterDomain: x\n", []string{"--register-node=false", "--root-dir=/x"}, nil},
		"what happens anyway":         {"rotateCertificates: false\nshutdownGracePeriod: 0s\nregisterWithTaints: []\nreservedMemory: []\nlogging: {options: {text: {infoBufferSize: \"0\"}}}\n", []string{"--housekeeping-interval=10s"}, nil},
		"kubeadm's":                   {"rotateCertificates: true\n", []string{"--bootstrap-kubeconfig=/b"}, nil},
		"a field that nobody knows":   {"maxPodz: 7\nauthentication: {anonymus: {}}\n", nil, []string{"authentication.anonymus: in ", "maxPodz: in "}},
		"a field that is there twice": {"maxPods: 7\nmaxPods: 8\n", nil, []string{"maxPods: in "}},
		"a part of the effect":        {"cpuManagerPolicy: static\nkubeReserved: {cpu: 1m}\n", nil, []string{`cpuManagerPolicy: "static" has a part of its effect: Guaranteed`}},
		"nested":                      {"logging: {options: {json: {splitStream: true}}}\n", nil, []string{"logging.options.json.splitStream: true has no effect: all lines"}},
		"a flag that sets a field":    {"", []string{"--volume-plugin-dir=/x"}, []string{`volumePluginDir: "/x" has no effect yet`}},
		"nobody uses it":              {"hairpinMode: none\n", []string{"--storage-driver-db=x", "--streaming-connection-idle-timeout=1s"}, nil},
		"own flags":                   {"", []string{"--housekeeping-interval=3s"}, []string{"--housekeeping-interval: 3s has no effect: containers"}},
		"a gate without its part":     {"featureGates: {RuntimeClassInImageCriApi: true}\n", nil, []string{"featureGates.RuntimeClassInImageCriApi: true has no effect yet"}},
		"a gate that cannot be off":   {"featureGates: {KubeletSeparateDiskGC: false}\n", nil, []string{"featureGates.KubeletSeparateDiskGC: false has no effect"}},
		"a gate that is always on":    {"featureGates: {EventedPLEG: true}\n", nil, nil},
		"fields without their gate":   {"qosReserved: {memory: 50%}\nmemoryThrottlingFactor: 0.5\n", nil, []string{`qosReserved: {"memory":"50%"} has no effect: the gate QOSReserved`, "memoryThrottlingFactor: 0.5 has no effect: the gate MemoryQoS"}},
		"a field with its gate":       {"qosReserved: {memory: 50%}\nfeatureGates: {QOSReserved: true}\n", nil, nil},
		"a gate of another part":      {"featureGates: {GangScheduling: true, GenericWorkload: true}\n", nil, nil},
		"a gate whose part is a gap":  {"featureGates: {GracefulNodeShutdown: true}\n", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := header + tc.text
			l := mustLoad(t, append([]string{"--config=" + write(t, t.TempDir(), "c.yaml", text)}, tc.args...)...)
			var got []string
			for _, n := range l.WithoutEffect() {
				got = append(got, n.String())
			}
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("said %q, want %q", got, tc.want)
			}
		})
	}
}

// TestEachFieldWithoutEffectIsSaidWhenItIsSet changes every field that has no
// effect, one after the other, and looks for it in what is said.
func TestEachFieldWithoutEffectIsSaidWhenItIsSet(t *testing.T) {
	for path, effect := range fieldEffects() {
		c := actsAs()
		c.Tracing = &tracingapi.TracingConfiguration{}
		change := func(at string, _ reflect.StructField, v reflect.Value) {
			if at == path {
				if q, ok := v.Addr().Interface().(*resource.QuantityValue); ok {
					q.Quantity = resource.MustParse("1Ki")
					return
				}
				estrange(v)
				if v.Type() == reflect.TypeFor[*float64]() {
					v.Elem().SetFloat(0.5)
				}
				if v.Kind() == reflect.Pointer || v.IsZero() {
					fillIn(v)
				}
			}
		}
		walkFields("", reflect.ValueOf(c).Elem(), change)
		gates := standingGates()
		gates["MemoryQoS"], gates["QOSReserved"] = true, true // without which some fields have none
		said := slices.ContainsFunc((&Loaded{Config: c, gates: gates}).WithoutEffect(), func(n Notice) bool { return n.Setting == path })
		if want := effect.State == Later || effect.State == Ours || effect.Lacks != ""; said != want {
			t.Errorf("%s is changed and said is %v, want %v (value %v)", path, said, want, leaves(c)[path])
		}
	}
}

// fillIn gives an empty list, map or pointer something.
func fillIn(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("a").Convert(v.Type().Key()), reflect.New(v.Type().Elem()).Elem())
		v.Set(m)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	}
}
