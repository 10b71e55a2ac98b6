package podutil

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
)

func TestAHashIsOverTheDumpThatKubeletsMake(t *testing.T) {
	for _, data := range []string{"", "{", `{"image":"a","name":"b"}`, "\x00\x0f\xff und mehr \u00e4"} {
		if got, want := string(dumped([]byte(data))), dump.ForHash([]byte(data)); got != want {
			t.Errorf("%q is dumped as %s, want %s", data, got, want)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	c := &v1.Container{Name: "container", Image: "registry.k8s.io/some/image:v1.2.3"}
	for b.Loop() {
		Hash(c)
	}
}
