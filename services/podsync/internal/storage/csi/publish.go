package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Setup implements volume.Driver.
func (c *Volumes) Setup(ctx context.Context, r volume.Request) (volume.Made, error) {
	w := c.wantedBy(r)
	if err := c.check(&w); err != nil {
		return volume.Made{}, err
	}
	st, leave, err := c.enter(ctx, w.id())
	if err != nil {
		return volume.Made{}, err
	}
	defer leave()
	if w.block {
		return c.setUpDevice(ctx, st, &w)
	}
	target := filepath.Join(w.dir, mountName)
	mounted, err := c.deps.Mounter.Mounted(target)
	if err != nil {
		return volume.Made{}, err
	}
	made := volume.Made{Path: target, Labelled: st.labels[w.dir].Is != ""}
	if p := st.published[w.dir]; p != nil && mounted && p.end == nil {
		return made, nil
	}
	before := volume.Made{} // where it stands, whatever comes of it now
	if mounted {
		before = made
	}
	object, err := c.publish(ctx, st, &w, mounted)
	if err != nil {
		return before, err
	}
	st.forget(w.dir, false)
	st.published[w.dir] = &placed{wanted: w}
	c.selinux().Keep(st.labels, w.byLabel(), w.label)
	if isTrue(object.Spec.RequiresRepublish) {
		c.publishAgain(ctx, st, w)
	}
	made.Labelled = w.label.Is != ""
	return made, nil
}

// publish has a driver publish a volume, which is attached and staged before if need be,
// and gives its files to the pod's group. stood: something is mounted in its place
// already. The caller has the volume's turn.
func (c *Volumes) publish(ctx context.Context, st *state, w *wanted, stood bool) (object *storagev1.CSIDriver, err error) {
	driver, err := c.drivers.get(w.data.DriverName, w.pod.UID)
	if err != nil {
		return nil, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: %w", err)
	}
	defer func() { c.lost(driver, w.pod.UID, err) }()
	asking, cancel := context.WithTimeout(w.asking(ctx), c.cfg.Timeout)
	defer cancel()
	object, err = c.object(asking, w)
	if err != nil {
		return nil, fmt.Errorf("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: %w", err)
	}
	p, err := c.publication(asking, w, driver, object)
	if err != nil {
		return nil, err
	}
	before, err := readVolumeData(w.dir)
	begun := err == nil
	if begun && before.id() != w.id() {
		return nil, podstate.VolumeAsSaid.Wrap(fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed: %s is the place of the volume %q of driver %s, which the pod was given; delete the pod, and call no volume in its spec like a PersistentVolume of its claims", w.dir, before.VolumeHandle, before.DriverName))
	}
	if w.label, err = c.label(ctx, st, w, object, before, stood); err != nil {
		return nil, err
	}
	w.data.SELinuxMountContext = w.label.Is
	if p.staging != "" {
		if err := c.relabel(ctx, st, w, stood); err != nil {
			return nil, err
		}
	}
	if !begun || before != w.data {
		if err := w.data.write(w.dir); err != nil {
			return nil, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to save volume info data: %w", err)
		}
	}
	if p.staging != "" {
		if err := c.stage(ctx, st, w, driver, &p); err != nil {
			if peer.Final(err) && !begun && !stood {
				c.giveUp(ctx, w)
			}
			return nil, asMountDevice(err)
		}
	}
	if err := c.publishAt(ctx, driver, w, &p); err != nil {
		if peer.Final(err) && !stood && !w.persists() {
			c.giveUp(ctx, w) // a persistent one is its pod's still: what is staged is unstaged after that
		}
		return nil, err
	}
	if p.group == nil && w.givesAway(object) {
		if err := c.giveAway(ctx, w, p.target); err != nil {
			return nil, fmt.Errorf("applyFSGroup failed for vol %s: %w", w.data.VolumeHandle, err)
		}
	}
	return object, nil
}

// publishAt has the driver publish it.
func (c *Volumes) publishAt(ctx context.Context, driver *registered, w *wanted, p *publication) error {
	ctx, cancel := context.WithTimeout(w.asking(ctx), c.cfg.Timeout)
	defer cancel()
	return driver.Publish(ctx, peer.Publication{
		Handle: w.data.VolumeHandle, Target: p.target, Staging: p.staging, ReadOnly: w.readOnly, As: w.capability(p.can, p.group),
		Attachment: p.attachment, Context: p.context, Secret: p.secret,
	})
}

// giveUp removes what a volume was to be published in.
func (c *Volumes) giveUp(ctx context.Context, w *wanted) {
	if err := c.clean(w.dir); err != nil {
		w.log(ctx).Info("What a volume was to be published in cannot be removed; it is when the pod is gone", "path", w.dir, "err", err)
	}
}

// object is what the cluster says of a driver, if that lets it have such volumes. Of
// persistent ones nothing need be said.
func (c *Volumes) object(ctx context.Context, w *wanted) (*storagev1.CSIDriver, error) {
	name := w.data.DriverName
	object, err := c.deps.Objects.CSIDriver(ctx, name)
	switch mode := storagev1.VolumeLifecycleMode(w.data.VolumeLifecycleMode); {
	case apierrors.IsNotFound(err) && w.persists():
		return &storagev1.CSIDriver{}, nil
	case apierrors.IsNotFound(err):
		return nil, podstate.VolumeDriverMode.Wrap(fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, name))
	case err != nil:
		return nil, volume.FromCluster(err)
	case !slices.Contains(object.Spec.VolumeLifecycleModes, mode) && (len(object.Spec.VolumeLifecycleModes) > 0 || !w.persists()):
		return nil, podstate.VolumeDriverMode.Wrap(fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, name, object.Spec.VolumeLifecycleModes))
	}
	return object, nil
}

// publication is how a volume is published.
type publication struct {
	target string
	// staging is where it is staged; empty for a driver that does not stage.
	staging         string
	context, secret map[string]string
	attachment      map[string]string // what its attachment says
	group           *int64            // nil when it is not the driver's to give the files to it
	can             peer.Abilities
}

// publication is what the driver is asked for.
func (c *Volumes) publication(ctx context.Context, w *wanted, driver *registered, object *storagev1.CSIDriver) (p publication, err error) {
	p = publication{target: filepath.Join(w.dir, mountName), context: map[string]string{}}
	maps.Copy(p.context, w.attributes)
	if p.secret, err = c.secret(ctx, "NodePublishSecretRef", w.publishSecret); err != nil {
		return p, err
	}
	if isTrue(object.Spec.PodInfoOnMount) {
		maps.Copy(p.context, podInfo(w))
	}
	if len(object.Spec.TokenRequests) > 0 {
		tokens, err := c.tokens(ctx, w.pod, object.Spec.TokenRequests)
		if err != nil {
			return p, volume.FromCluster(fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: %w", err))
		}
		into := p.context
		if isTrue(object.Spec.ServiceAccountTokenInSecrets) {
			into = p.secret
		}
		into["csi.storage.k8s.io/serviceAccount.tokens"] = tokens
	}
	if p.can, err = driver.Abilities(ctx); err != nil {
		return p, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability: %w", err)
	}
	if p.can.MountGroup {
		p.group = ownership.Of(w.pod)
	}
	if !w.persists() {
		return p, nil
	}
	if p.can.StageUnstage {
		p.staging = filepath.Join(c.stagingDir(w.id()), globalMount)
	}
	p.attachment, err = c.attachment(ctx, w, object)
	return p, err
}

// secret is what a driver is given of a secret; what names it.
func (c *Volumes) secret(ctx context.Context, what string, ref *v1.SecretReference) (map[string]string, error) {
	data := map[string]string{}
	if ref == nil {
		return data, nil
	}
	secret, err := c.deps.Objects.Secret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, volume.FromCluster(fmt.Errorf("fetching %s %s/%s failed: kubernetes.io/csi: failed to find the secret %s in the namespace %s with error: %w", what, ref.Namespace, ref.Name, ref.Name, ref.Namespace, err))
	}
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data, nil
}

// podInfo is what a driver is told of a pod.
func podInfo(w *wanted) map[string]string {
	pod := w.pod
	return map[string]string{
		"csi.storage.k8s.io/pod.name":            pod.Name,
		"csi.storage.k8s.io/pod.namespace":       pod.Namespace,
		"csi.storage.k8s.io/pod.uid":             string(pod.UID),
		"csi.storage.k8s.io/serviceAccount.name": pod.Spec.ServiceAccountName,
		"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(!w.persists()),
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

func isTrue(b *bool) bool { return b != nil && *b }
