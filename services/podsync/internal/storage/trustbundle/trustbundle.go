// Package trustbundle makes the file of a projected clusterTrustBundle of the cluster's
// trust bundles.
//
// It owns which bundles a source names and what the file looks like. It must never read
// a bundle from anywhere itself.
package trustbundle

import (
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mostSelector bounds a label selector, in bytes of its text.
const mostSelector = 100 * 1024

// File is what a source shows of these bundles: the trust anchors of all that it names,
// each once, as PEM without anything between them. Their order follows from what they
// are alone: whoever reads the file must not rely on one, and it does not change as long
// as the anchors are the same. Empty when there is none and the source is optional.
//
// Source: https://kubernetes.io/docs/concepts/storage/projected-volumes/#clustertrustbundle
func File(bundles []certificatesv1beta1.ClusterTrustBundle, src *v1.ClusterTrustBundleProjection) ([]byte, error) {
	var named []certificatesv1beta1.ClusterTrustBundle
	var err error
	switch {
	case src.Name != nil:
		named, err = byName(bundles, *src.Name)
	case src.SignerName != nil:
		named, err = bySigner(bundles, *src.SignerName, src.LabelSelector)
	default:
		err = errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
	}
	if IsMissing(err) && src.Optional != nil && *src.Optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return anchors(named), nil
}

// missing says that no bundle is there which a source names.
type missing struct{ error }

// IsMissing says whether an error is that no bundle is there which a source names.
func IsMissing(err error) bool {
	_, is := errors.AsType[*missing](err)
	return is
}

// Unwrap returns the reason.
func (m *missing) Unwrap() error { return m.error }

func byName(bundles []certificatesv1beta1.ClusterTrustBundle, name string) ([]certificatesv1beta1.ClusterTrustBundle, error) {
	for i := range bundles {
		if bundles[i].Name == name {
			return bundles[i : i+1], nil
		}
	}
	return nil, &missing{fmt.Errorf("while getting ClusterTrustBundle: %w",
		apierrors.NewNotFound(schema.GroupResource{Group: certificatesv1beta1.GroupName, Resource: "clustertrustbundle"}, name))}
}

// bySigner chooses by labels, too: a selector that is nil chooses none, and an empty
// one all.
func bySigner(bundles []certificatesv1beta1.ClusterTrustBundle, signer string, by *metav1.LabelSelector) ([]certificatesv1beta1.ClusterTrustBundle, error) {
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil {
		return nil, fmt.Errorf("while parsing label selector: %w", err)
	}
	if n := len(selector.String()); n > mostSelector {
		return nil, fmt.Errorf("label selector length (%d) is larger than %d", n, mostSelector)
	}
	var chosen []certificatesv1beta1.ClusterTrustBundle
	for i := range bundles {
		if bundles[i].Spec.SignerName == signer && selector.Matches(labels.Set(bundles[i].Labels)) {
			chosen = append(chosen, bundles[i])
		}
	}
	if len(chosen) == 0 {
		return nil, &missing{errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")}
	}
	return chosen, nil
}

// anchors writes every certificate once.
func anchors(bundles []certificatesv1beta1.ClusterTrustBundle) []byte {
	all := map[string]struct{}{}
	for i := range bundles {
		rest := []byte(bundles[i].Spec.TrustBundle)
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			all[string(block.Bytes)] = struct{}{}
		}
	}
	var file []byte
	for _, der := range slices.Sorted(maps.Keys(all)) {
		file = append(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(der)})...)
	}
	return file
}
