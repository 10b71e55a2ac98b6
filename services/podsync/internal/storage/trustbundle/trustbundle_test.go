package trustbundle

import (
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func block(der string, headers ...string) string {
	b := &pem.Block{Type: "CERTIFICATE", Bytes: []byte(der)}
	if len(headers) > 0 {
		b.Headers = map[string]string{"Said": headers[0]}
	}
	return string(pem.EncodeToMemory(b))
}

func bundle(name, signer, pem string, labels map[string]string) certificatesv1beta1.ClusterTrustBundle {
	return certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: pem},
	}
}

func TestAFileHoldsEveryAnchorOfTheChosenBundlesOnceAndNothingElse(t *testing.T) {
	live := map[string]string{"live": "yes"}
	bundles := []certificatesv1beta1.ClusterTrustBundle{
		bundle("lone", "", "words before\n"+block("b", "hello")+"words between\n"+block("a")+block("b"), nil),
		bundle("s:1", "s/s", block("c")+block("a"), live), bundle("s:2", "s/s", block("a")+block("d"), live),
		bundle("s:3", "s/s", block("e"), nil), bundle("t:1", "t/t", block("f"), live),
	}
	byName := func(name string) *v1.ClusterTrustBundleProjection {
		return &v1.ClusterTrustBundleProjection{Name: &name}
	}
	bySigner := func(signer string, s *metav1.LabelSelector) *v1.ClusterTrustBundleProjection {
		return &v1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: s}
	}
	optional := func(p *v1.ClusterTrustBundleProjection) *v1.ClusterTrustBundleProjection {
		p.Optional = ptr.To(true)
		return p
	}
	chosen := &metav1.LabelSelector{MatchLabels: live}
	for name, c := range map[string]struct {
		src  *v1.ClusterTrustBundleProjection
		want []string
		err  string
	}{
		"by name":                               {src: byName("lone"), want: []string{"a", "b"}},
		"by signer and labels":                  {src: bySigner("s/s", chosen), want: []string{"a", "c", "d"}},
		"an empty selector chooses all":         {src: bySigner("s/s", &metav1.LabelSelector{}), want: []string{"a", "c", "d", "e"}},
		"no selector chooses none":              {src: bySigner("s/s", nil), err: "combination of signerName and labelSelector matched zero ClusterTrustBundles"},
		"no such name":                          {src: byName("x"), err: `while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "x" not found`},
		"no such signer":                        {src: bySigner("u/u", &metav1.LabelSelector{}), err: "matched zero"},
		"optional, no such name":                {src: optional(byName("x"))},
		"optional, no such signer":              {src: optional(bySigner("u/u", chosen))},
		"neither":                               {src: &v1.ClusterTrustBundleProjection{}, err: "requires either name or signerName to be set"},
		"optional hides nothing but an absence": {src: optional(bySigner("s/s", &metav1.LabelSelector{MatchLabels: map[string]string{"-": ""}})), err: "while parsing label selector"},
		"a selector that is too long":           {src: bySigner("s/s", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: many()}}}), err: "is larger than 102400"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := File(bundles, c.src)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("the error is %v", err)
				}
				return
			}
			want := ""
			for _, der := range c.want {
				want += block(der)
			}
			if err != nil || string(got) != want {
				t.Errorf("the file is %q, %v", got, err)
			}
		})
	}
	if _, err := File(bundles, byName("x")); !apierrors.IsNotFound(err) {
		t.Errorf("a name that is not there is %v", err)
	}
}

func many() []string {
	values := make([]string, 2000)
	for i := range values {
		values[i] = strings.Repeat("v", 50) + strings.Repeat("w", i%13)
	}
	for i := range values {
		values[i] = values[i][:50] + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
	}
	return values
}
