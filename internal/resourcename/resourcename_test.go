package resourcename

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestWhatIsNotKubernetesOwnIsExtended(t *testing.T) {
	for name, want := range map[v1.ResourceName]bool{
		"cpu": false, "hugepages-2Mi": false, "kubernetes.io/batch": false, "node.kubernetes.io/x": false,
		"requests.example.com/gpu": false, "example.com/gpu": true,
	} {
		if got := Extended(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
