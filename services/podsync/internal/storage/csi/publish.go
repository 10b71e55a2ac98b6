package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/container-storage-interface/spec/lib/go/csi"
	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Setup implements volume.Driver for volumes in a pod's own spec.
func (c *Volumes) Setup(ctx context.Context, r volume.Request) (volume.Made, error) {
	data := ephemeral(r.Pod.UID, r.Volume.Name, r.Volume.CSI.Driver, c.cfg.NodeName)
	st, leave, err := c.enter(ctx, data.id())
	if err != nil {
		return volume.Made{}, err
	}
	defer func() { leave(false) }()
	target := filepath.Join(r.Dir, mountName)
	mounted, err := c.deps.Mounter.Mounted(target)
	if err != nil {
		return volume.Made{}, err
	}
	made := volume.Made{Path: target}
	if st.published && mounted && st.again == nil {
		return made, nil
	}
	before := volume.Made{} // where it stands, whatever comes of it now
	if mounted {
		before = made
	}
	driver, err := c.publish(ctx, r, data, mounted)
	if err != nil {
		return before, err
	}
	st.published = true
	st.stopAgain()
	if driver.Spec.RequiresRepublish != nil && *driver.Spec.RequiresRepublish {
		c.publishAgain(ctx, st, r, data)
	}
	return made, nil
}

// publish has a driver publish a volume, and gives its files to the pod's group. stood:
// something is mounted in its place already.
func (c *Volumes) publish(ctx context.Context, r volume.Request, data volumeData, stood bool) (*storagev1.CSIDriver, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	driver, err := c.drivers.get(data.DriverName, r.Pod.UID)
	if err != nil {
		return nil, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: %w", err)
	}
	object, err := c.object(ctx, data.DriverName)
	if err != nil {
		return nil, fmt.Errorf("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: %w", err)
	}
	p, err := c.publication(ctx, r, data, driver, object)
	if err != nil {
		return nil, err
	}
	if before, readErr := readVolumeData(r.Dir); readErr != nil || before != data {
		err = data.write(r.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to save volume info data: %w", err)
	}
	if err := driver.publish(ctx, p); err != nil {
		if final(err) && !stood {
			if cleanErr := c.clean(r.Dir); cleanErr != nil {
				klog.FromContext(ctx).Info("What a volume was to be published in cannot be removed; it is when the pod is gone", "pod", klog.KObj(r.Pod), "path", r.Dir, "err", cleanErr)
			}
		}
		return nil, err
	}
	if p.group == nil && givesAway(r, object) {
		if err := c.giveAway(ctx, r, p.target); err != nil {
			return nil, fmt.Errorf("applyFSGroup failed for vol %s: %w", data.VolumeHandle, err)
		}
	}
	return object, nil
}

// object is what the cluster says of a driver, if that lets pods' specs have volumes.
func (c *Volumes) object(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	object, err := c.deps.Objects.CSIDriver(ctx, name)
	switch mode := storagev1.VolumeLifecycleEphemeral; {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, name)
	case err != nil:
		return nil, err
	case !slices.Contains(object.Spec.VolumeLifecycleModes, mode):
		return nil, fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, name, object.Spec.VolumeLifecycleModes)
	}
	return object, nil
}

// publication is what the driver is asked for.
func (c *Volumes) publication(ctx context.Context, r volume.Request, data volumeData, driver *registered, object *storagev1.CSIDriver) (publication, error) {
	source := r.Volume.CSI
	p := publication{
		handle: data.VolumeHandle, target: filepath.Join(r.Dir, mountName), readOnly: isTrue(source.ReadOnly),
		context: map[string]string{}, secret: map[string]string{},
	}
	if source.FSType != nil {
		p.fsType = *source.FSType
	}
	maps.Copy(p.context, source.VolumeAttributes)
	if ref := source.NodePublishSecretRef; ref != nil {
		secret, err := c.deps.Objects.Secret(ctx, r.Pod.Namespace, ref.Name)
		if err != nil {
			return p, fmt.Errorf("fetching NodePublishSecretRef %s/%s failed: kubernetes.io/csi: failed to find the secret %s in the namespace %s with error: %w", r.Pod.Namespace, ref.Name, ref.Name, r.Pod.Namespace, err)
		}
		for key, value := range secret.Data {
			p.secret[key] = string(value)
		}
	}
	if isTrue(object.Spec.PodInfoOnMount) {
		maps.Copy(p.context, podInfo(r.Pod))
	}
	if len(object.Spec.TokenRequests) > 0 {
		tokens, err := c.tokens(ctx, r.Pod, object.Spec.TokenRequests)
		if err != nil {
			return p, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: %w", err)
		}
		into := p.context
		if isTrue(object.Spec.ServiceAccountTokenInSecrets) {
			into = p.secret
		}
		into["csi.storage.k8s.io/serviceAccount.tokens"] = tokens
	}
	var err error
	if p.can, err = driver.abilities(ctx); err != nil {
		return p, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability: %w", err)
	}
	if p.can[csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] {
		p.group = ownership.Of(r.Pod)
	}
	return p, nil
}

// podInfo is what a driver is told of a pod.
func podInfo(pod *v1.Pod) map[string]string {
	return map[string]string{
		"csi.storage.k8s.io/pod.name":            pod.Name,
		"csi.storage.k8s.io/pod.namespace":       pod.Namespace,
		"csi.storage.k8s.io/pod.uid":             string(pod.UID),
		"csi.storage.k8s.io/serviceAccount.name": pod.Spec.ServiceAccountName,
		"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(true),
	}
}

// tokens are the pod's, by their audience, as a driver reads them.
func (c *Volumes) tokens(ctx context.Context, pod *v1.Pod, wanted []storagev1.TokenRequest) (string, error) {
	all := map[string]authv1.TokenRequestStatus{}
	for _, w := range wanted {
		r := serviceaccount.Request{
			Namespace: pod.Namespace, ServiceAccount: pod.Spec.ServiceAccountName, Audience: w.Audience,
			PodName: pod.Name, PodUID: pod.UID,
		}
		if w.ExpirationSeconds != nil {
			r.ExpirationSeconds = *w.ExpirationSeconds
		}
		token, err := c.deps.Tokens.Get(ctx, r)
		if err != nil {
			return "", err
		}
		all[w.Audience] = authv1.TokenRequestStatus{Token: token.Value, ExpirationTimestamp: metav1.NewTime(token.Expires)}
	}
	raw, err := json.Marshal(all)
	return string(raw), err
}

// givesAway says whether the files are given to the pod's group here.
// Source: https://kubernetes-csi.github.io/docs/support-fsgroup.html; a volume in a
// pod's spec counts as ReadWriteOnce.
func givesAway(r volume.Request, object *storagev1.CSIDriver) bool {
	if isTrue(r.Volume.CSI.ReadOnly) {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if object.Spec.FSGroupPolicy != nil {
		policy = *object.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.NoneFSGroupPolicy:
		return false
	}
	return r.Volume.CSI.FSType != nil && *r.Volume.CSI.FSType != ""
}

// giveAway gives the files to the pod's group. What does not let itself be given stays
// as it is, as with the kubelet: not every file system knows groups.
func (c *Volumes) giveAway(ctx context.Context, r volume.Request, target string) error {
	change := ownership.Change{Group: ownership.Of(r.Pod)}
	if security := r.Pod.Spec.SecurityContext; security != nil && security.FSGroupChangePolicy != nil {
		change.OnMismatch = *security.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
	}
	failed := 0
	var first error
	change.Skip = func(err error) {
		if failed++; first == nil {
			first = err
		}
	}
	if c.deps.Events != nil {
		change.Given = &atomic.Int64{}
		defer ownership.TellSlow(c.deps.Events, r.Pod, target, change.Given.Load)()
	}
	err := change.Apply(ctx, target)
	if failed > 0 {
		klog.FromContext(ctx).Info("Some files of a volume cannot be given to the pod's group", "pod", klog.KObj(r.Pod), "failures", failed, "err", first)
	}
	return err
}

func isTrue(b *bool) bool { return b != nil && *b }
