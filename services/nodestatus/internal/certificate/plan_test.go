package certificate

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAServingCertificateIsForAllAddressesOfTheNode(t *testing.T) {
	at := func(kind v1.NodeAddressType, address string) v1.NodeAddress {
		return v1.NodeAddress{Type: kind, Address: address}
	}
	for name, tc := range map[string]struct {
		addresses []v1.NodeAddress
		dnsOnly   bool
		want      string
	}{
		"none":                          {nil, false, ""},
		"a name only":                   {[]v1.NodeAddress{at(v1.NodeHostName, "n")}, false, ""},
		"a name only, and that will do": {[]v1.NodeAddress{at(v1.NodeHostName, "n")}, true, "[n] []"},
		"all kinds": {[]v1.NodeAddress{
			at(v1.NodeHostName, "n"), at(v1.NodeInternalIP, "10.0.0.2"), at(v1.NodeInternalIP, "fd00::2"), at(v1.NodeExternalIP, "1.2.3.4"),
			at(v1.NodeInternalDNS, "n.local"), at(v1.NodeExternalDNS, "n.example"), at(v1.NodeInternalIP, "10.0.0.2"), at(v1.NodeInternalIP, ""),
		}, false, "[n n.example n.local] [1.2.3.4 10.0.0.2 fd00::2]"},
		"a hostname that is an address": {[]v1.NodeAddress{at(v1.NodeHostName, "10.0.0.9")}, false, "[] [10.0.0.9]"},
		"an address that is none":       {[]v1.NodeAddress{at(v1.NodeInternalIP, "x")}, true, ""},
	} {
		got, why := ServingRequest("n", tc.addresses, tc.dnsOnly)
		switch {
		case tc.want == "" && (got != nil || why == ""):
			t.Errorf("%s: %v, %q", name, got, why)
		case tc.want != "" && (got == nil || fmt.Sprint(got.DNSNames, " ", got.IPAddresses) != tc.want || why != ""):
			t.Errorf("%s: %+v, %q; want %s", name, got, why, tc.want)
		}
	}
}
