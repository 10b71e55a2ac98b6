package nodeinfo

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestTheHostsAddressesAreOneOfEachFamilyInternalOnesFirst(t *testing.T) {
	const in, ex = v1.NodeInternalIP, v1.NodeExternalIP
	for _, tc := range []struct {
		name  string
		found []v1.NodeAddress
		want  []string
	}{
		{"one", []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}, {Type: in, Address: "192.0.2.1"}}, []string{"192.0.2.1"}},
		{"two network cards", []v1.NodeAddress{{Type: in, Address: "192.0.2.1"}, {Type: in, Address: "192.0.2.2"}}, []string{"192.0.2.1"}},
		{"both families, twice", []v1.NodeAddress{{Type: in, Address: "2001:db8::1"}, {Type: in, Address: "2001:db8::2"}, {Type: in, Address: "192.0.2.1"}, {Type: in, Address: "192.0.2.2"}}, []string{"2001:db8::1", "192.0.2.1"}},
		{"external ones only", []v1.NodeAddress{{Type: ex, Address: "203.0.113.1"}}, []string{"203.0.113.1"}},
		{"external ones behind", []v1.NodeAddress{{Type: ex, Address: "203.0.113.1"}, {Type: ex, Address: "2001:db8::1"}, {Type: in, Address: "192.0.2.1"}}, []string{"192.0.2.1", "2001:db8::1"}},
		{"what is none", []v1.NodeAddress{{Type: in, Address: "none"}, {Type: in, Address: "192.0.2.1"}}, []string{"192.0.2.1"}},
		{"nothing", nil, nil},
	} {
		if got := hostAddresses(tc.found); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
