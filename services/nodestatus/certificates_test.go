package nodestatus

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/services/nodestatus/internal/certificate"
)

func TestACertificateIsAskedForWithTheOneThatIsGoodAndElseWithTheBootstrapKubeconfig(t *testing.T) {
	const node, bootstrap = "the node's client certificate", "the bootstrap kubeconfig"
	valid := func(name string, left time.Duration) *nodecert.Pair {
		return &nodecert.Pair{Leaf: &x509.Certificate{Subject: certificate.Subject(name), NotAfter: time.Now().Add(left)}}
	}
	for name, tc := range map[string]struct {
		current   *nodecert.Pair
		bootstrap bool
		want      []string
	}{
		"a good one":               {valid("n1", time.Hour), true, []string{node, bootstrap}},
		"a good one and no other":  {valid("n1", time.Hour), false, []string{node}},
		"one that has ended":       {valid("n1", -time.Hour), true, []string{bootstrap, node}},
		"one that has ended alone": {valid("n1", -time.Hour), false, []string{node}},
		"one of another node":      {valid("n2", time.Hour), true, []string{bootstrap, node}},
		"none":                     {nil, true, []string{bootstrap}},
		"none of either":           {nil, false, nil},
	} {
		deps := Deps{}
		if tc.bootstrap {
			deps.Bootstrap = func() (kubernetes.Interface, error) { return nil, nil }
		}
		var got []string
		for _, c := range clientsFor(tc.current, certificate.ClientRequest("n1"), deps) {
			got = append(got, c.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q; want %q", name, got, tc.want)
		}
	}
}
