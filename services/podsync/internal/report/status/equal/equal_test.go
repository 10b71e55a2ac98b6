package equal

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// filler fills a value with something in every field, and the leaf number
// change with something else.
type filler struct {
	leaves, change int
	changed        string
}

func (f *filler) leaf(path string) bool {
	f.leaves++
	if f.leaves == f.change {
		f.changed = path
	}
	return f.leaves == f.change
}

func (f *filler) fill(v reflect.Value, path string) {
	pick := func(a, b any) {
		value := reflect.ValueOf(a)
		if f.leaf(path) {
			value = reflect.ValueOf(b)
		}
		v.Set(value.Convert(v.Type()))
	}
	switch v.Interface().(type) {
	case metav1.Time:
		pick(metav1.Unix(1, 0), metav1.Unix(2, 0))
		return
	case resource.Quantity:
		pick(resource.MustParse("1"), resource.MustParse("2"))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), path)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, path+" key")
		f.fill(value, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		pick("a", "b")
	case reflect.Bool:
		pick(false, true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		pick(1, 2)
	default:
		panic(fmt.Sprintf("%s is a %v", path, v.Kind()))
	}
}

func filled(change int) (v1.PodStatus, filler) {
	var st v1.PodStatus
	f := filler{change: change}
	f.fill(reflect.ValueOf(&st).Elem(), "status")
	return st, f
}

func TestEveryFieldOfAStatusCounts(t *testing.T) {
	a, all := filled(0)
	if b, _ := filled(0); !Equal(a, b) {
		t.Fatal("two equal statuses are not")
	}
	if all.leaves < 100 {
		t.Fatalf("only %d fields were filled", all.leaves)
	}
	for n := 1; n <= all.leaves; n++ {
		if b, f := filled(n); Equal(a, b) || Equal(b, a) {
			t.Errorf("a change of %s is not seen", f.changed)
		}
	}
}

func TestInstantsAndEmptyListsAreComparedByMeaning(t *testing.T) {
	now := metav1.NewTime(time.Unix(100, 0).UTC())
	elsewhere := metav1.NewTime(time.Unix(100, 0).In(time.FixedZone("there", 3600)))
	for name, pair := range map[string][2]v1.PodStatus{
		"an empty list and none":   {{Conditions: []v1.PodCondition{}}, {}},
		"one instant in two zones": {{StartTime: &now}, {StartTime: &elsewhere}},
		"no start and one":         {{StartTime: &now}, {}},
		"a state and none": {
			{ContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}},
			{ContainerStatuses: []v1.ContainerStatus{{}}},
		},
		"two states": {
			{ContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}}}},
			{ContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := Equal(pair[0], pair[1]), equality.Semantic.DeepEqual(pair[0], pair[1]); got != want {
				t.Errorf("equal is %v, want %v", got, want)
			}
		})
	}
}

func benchmark(b *testing.B, equal func(a, b v1.PodStatus) bool) {
	one := func() v1.PodStatus {
		now := metav1.Unix(100, 0)
		st := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, StartTime: &now}
		for _, t := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.PodScheduled, v1.PodReadyToStartContainers} {
			st.Conditions = append(st.Conditions, v1.PodCondition{Type: t, Status: v1.ConditionTrue, LastTransitionTime: now})
		}
		for i := range 3 {
			st.ContainerStatuses = append(st.ContainerStatuses, v1.ContainerStatus{
				Name: fmt.Sprint("c", i), Image: "registry.k8s.io/pause:3.10", ContainerID: "containerd://0123456789abcdef",
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
			})
		}
		return st
	}
	x, y := one(), one()
	b.ReportAllocs()
	for b.Loop() {
		if !equal(x, y) {
			b.Fatal("not equal")
		}
	}
}

func BenchmarkEqual(b *testing.B) { benchmark(b, Equal) }

func BenchmarkByReflection(b *testing.B) {
	benchmark(b, func(x, y v1.PodStatus) bool { return equality.Semantic.DeepEqual(x, y) })
}
