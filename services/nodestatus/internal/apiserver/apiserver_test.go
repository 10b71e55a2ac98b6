package apiserver

import (
	"encoding/json"
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patched applies our patch as the apiserver does.
func patched(t *testing.T, old, wanted *v1.Node) (*v1.Node, string) {
	t.Helper()
	patch, err := statusPatch(old, wanted)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var out v1.Node
	if err := json.Unmarshal(after, &out); err != nil {
		t.Fatal(err)
	}
	return &out, string(patch)
}

func TestTwoAddressesOfOneTypeSurviveThePatch(t *testing.T) {
	old, wanted := &v1.Node{}, &v1.Node{}
	old.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeHostName, Address: "n"}}
	wanted.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.2"}, {Type: v1.NodeInternalIP, Address: "fd00::2"}, {Type: v1.NodeHostName, Address: "n"}}
	got, patch := patched(t, old, wanted)
	if len(got.Status.Addresses) != 3 || got.Status.Addresses[0].Address != "10.0.0.2" || got.Status.Addresses[1].Address != "fd00::2" {
		t.Errorf("addresses %v after patch %s", got.Status.Addresses, patch)
	}
}

// A float64 rounds such a size up to what no apiserver can decode: a runtime that says
// nonsense of an image would hold up all that is said of the node.
func TestALargeSizeOfAnImageSurvivesThePatchOfAddresses(t *testing.T) {
	old, wanted := &v1.Node{}, &v1.Node{}
	wanted.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.2"}}
	wanted.Status.Images = []v1.ContainerImage{{Names: []string{"a"}, SizeBytes: math.MaxInt64}}
	got, patch := patched(t, old, wanted)
	if len(got.Status.Images) != 1 || got.Status.Images[0].SizeBytes != math.MaxInt64 {
		t.Errorf("images %v after patch %s", got.Status.Images, patch)
	}
}

func TestConditionsOfOthersStay(t *testing.T) {
	old, wanted := &v1.Node{}, &v1.Node{}
	old.Status.Conditions = []v1.NodeCondition{{Type: "NetworkUnavailable", Status: "False"}, {Type: "Ready", Status: "False"}}
	wanted.Status.Conditions = []v1.NodeCondition{{Type: "NetworkUnavailable", Status: "False"}, {Type: "Ready", Status: "True"}}
	got, patch := patched(t, old, wanted)
	if len(got.Status.Conditions) != 2 || got.Status.Conditions[1].Status != "True" {
		t.Errorf("conditions %v after patch %s", got.Status.Conditions, patch)
	}
	if got, patch := patched(t, wanted, wanted); patch != "{}" || len(got.Status.Conditions) != 2 {
		t.Errorf("nothing changed and the patch is %s", patch)
	}
}

func TestOnlyLabelsThatAreMendedAreWritten(t *testing.T) {
	there, wanted := &v1.Node{}, &v1.Node{}
	there.Labels = map[string]string{"team": "perhaps changed since", "kubernetes.io/os": "x"}
	wanted.Labels = map[string]string{"team": "perhaps changed since", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
	there.Annotations, wanted.Annotations = map[string]string{"a": "b", "gone": "c"}, map[string]string{"a": "b"}
	patch, err := labelsPatch(there, wanted)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"metadata":{"annotations":{"gone":null},"labels":{"kubernetes.io/arch":"amd64","kubernetes.io/os":"linux"}}}`; string(patch) != want {
		t.Errorf("patch %s, want %s", patch, want)
	}
}
