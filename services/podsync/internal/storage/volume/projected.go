package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/cluster/podcertificate"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/storage/atomicwriter"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
	"github.com/polylet/polylet/services/podsync/internal/storage/trustbundle"
)

// mostFailed is how many sources of a volume are named that fail: there may be
// thousands, each with a call of its own.
const mostFailed = 10

// projected puts the files of all sources together, later ones over earlier
// ones. Others are looked at though one fails, so that the error names them, too.
func (b *builder) projected(ctx context.Context, sources []v1.VolumeProjection) error {
	var failed []error
	for i := range sources {
		if b.over() {
			break // files says so
		}
		err := b.source(ctx, i, &sources[i])
		if err == nil {
			continue
		}
		if failed = append(failed, err); len(failed) >= mostFailed && i+1 < len(sources) {
			failed = append(failed, fmt.Errorf("%d more sources were not looked at", len(sources)-i-1))
			break
		}
	}
	return bracketed(failed)
}

// bracketed joins errors as Kubernetes' aggregates read: [a, b].
func bracketed(errs []error) error {
	if len(errs) <= 1 {
		return errors.Join(errs...)
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return &failures{text: "[" + strings.Join(texts, ", ") + "]", errs: errs}
}

func (b *builder) source(ctx context.Context, i int, p *v1.VolumeProjection) error {
	switch {
	case p.ConfigMap != nil:
		return b.configMap(ctx, p.ConfigMap.Name, p.ConfigMap.Items, p.ConfigMap.Optional)
	case p.Secret != nil:
		return b.secret(ctx, p.Secret.Name, p.Secret.Items, p.Secret.Optional)
	case p.DownwardAPI != nil:
		return b.downward(p.DownwardAPI.Items)
	case p.ServiceAccountToken != nil:
		return b.token(ctx, p.ServiceAccountToken)
	case p.ClusterTrustBundle != nil:
		return b.trustBundle(ctx, p.ClusterTrustBundle)
	case p.PodCertificate != nil:
		return b.certificate(ctx, i, p.PodCertificate)
	}
	return nil // the apiserver makes such a source of one whose feature gate is off there; a kubelet leaves it out, too
}

func (b *builder) token(ctx context.Context, src *v1.ServiceAccountTokenProjection) error {
	r := serviceaccount.Request{
		Namespace: b.pod.Namespace, ServiceAccount: b.pod.Spec.ServiceAccountName,
		Audience: src.Audience, PodName: b.pod.Name, PodUID: b.pod.UID,
	}
	if src.ExpirationSeconds != nil {
		r.ExpirationSeconds = *src.ExpirationSeconds
	}
	t, err := b.set.deps.Tokens.Get(ctx, r)
	if err != nil {
		return FromCluster(fmt.Errorf("service account token for path %q: %w", src.Path, err))
	}
	b.own(src.Path, []byte(t.Value))
	b.again(t.Refresh)
	return nil
}

// trustBundle shows the trust anchors of the cluster's bundles that a source names.
func (b *builder) trustBundle(ctx context.Context, src *v1.ClusterTrustBundleProjection) error {
	if !b.set.cfg.TrustBundles {
		return podstate.VolumeUnsupported.Wrap(errors.New("ClusterTrustBundle projection is not supported in static kubelet mode, nor while this node's feature gate ClusterTrustBundleProjection is off"))
	}
	all, err := b.set.deps.Objects.TrustBundles(ctx)
	if err != nil {
		return FromCluster(err)
	}
	data, err := trustbundle.File(all, src)
	if err != nil {
		return ofBundles(err)
	}
	b.own(src.Path, data)
	return nil
}

// certificate shows a key of the pod's with its certificates.
func (b *builder) certificate(ctx context.Context, i int, src *v1.PodCertificateProjection) error {
	if b.set.deps.Certificates == nil {
		return podstate.VolumeUnsupported.Wrap(errors.New("the projected source podCertificate is not supported while this node's feature gate PodCertificateRequest is off"))
	}
	cred, err := b.set.deps.Certificates.Get(ctx, podcertificate.Request{Pod: b.pod, Volume: b.volume, Index: i, Source: src})
	if err != nil {
		return ofCertificate(err)
	}
	if src.CredentialBundlePath != "" {
		b.own(src.CredentialBundlePath, slices.Concat(cred.Key, cred.Chain))
	}
	if src.KeyPath != "" {
		b.own(src.KeyPath, cred.Key)
	}
	if src.CertificateChainPath != "" {
		b.own(src.CertificateChainPath, cred.Chain)
	}
	b.again(cred.Refresh)
	return nil
}

// again has the files made again at a time.
func (b *builder) again(at time.Time) {
	if b.refresh.IsZero() || at.Before(b.refresh) {
		b.refresh = at
	}
}

// own adds a file that is for the pod's user alone, where that is known.
func (b *builder) own(path string, data []byte) {
	file := atomicwriter.File{Data: data, Mode: uint32(b.mode), UID: commonUser(b.pod)}
	if file.UID != nil || ownership.Of(b.pod) != nil {
		file.Mode = 0o600
	}
	b.add(path, file)
}

// commonUser is the user that all containers of the pod run as; nil when they
// differ or one leaves it to its image.
func commonUser(pod *v1.Pod) *int64 {
	var common *int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		common = sc.RunAsUser
	}
	var user *int64
	same := true
	look := func(sc *v1.SecurityContext) {
		mine := common
		if sc != nil && sc.RunAsUser != nil {
			mine = sc.RunAsUser
		}
		switch {
		case mine == nil, user != nil && *user != *mine:
			same = false
		default:
			user = mine
		}
	}
	for _, c := range podutil.Containers(pod) {
		look(c.SecurityContext)
	}
	if !same {
		return nil
	}
	return user
}

type failures struct {
	text string
	errs []error
}

func (f *failures) Error() string   { return f.text }
func (f *failures) Unwrap() []error { return f.errs }
