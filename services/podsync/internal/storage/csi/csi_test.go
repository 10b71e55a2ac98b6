package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

func TestAVolumeOfAPodsSpecIsPublishedAndUnpublished(t *testing.T) {
	b := newBench(t, nil).register(t)
	target := filepath.Join(b.dir(), "mount")
	for range 2 { // the second finds it there
		made, err := b.Setup(t.Context(), b.request())
		if err != nil || made.Path != target {
			t.Fatal(made, err)
		}
	}
	if got := b.driver.Calls(); !slices.Equal(got, []string{"NodePublishVolume"}) {
		t.Errorf("the driver was asked for %v", got)
	}
	r := b.driver.Published()[0]
	// sha256 of "uid-1v"; the file as a kubelet 1.36 writes it.
	handle := "csi-" + sum("uid-1v")
	if r.GetVolumeId() != handle || r.GetTargetPath() != target || r.GetReadonly() || r.GetVolumeContext()["size"] != "1" || len(r.GetVolumeContext()) != 1 {
		t.Errorf("the request is %v", r)
	}
	if mode := r.GetVolumeCapability().GetAccessMode().GetMode(); mode != spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER {
		t.Errorf("access mode %v", mode)
	}
	raw, err := os.ReadFile(filepath.Join(b.dir(), "vol_data.json"))
	want := `{"specVolID":"v","volumeHandle":"` + handle + `","driverName":"csi.example.com","nodeName":"n1","attachmentID":"csi-` + sum(handle+driverOf+"n1") + `","volumeLifecycleMode":"Ephemeral"}` + "\n"
	if err != nil || string(raw) != want {
		t.Errorf("beside the volume lies %q %v, want %q", raw, err, want)
	}
	for range 2 {
		if err := b.Teardown(t.Context(), b.remains()); err != nil {
			t.Fatal(err)
		}
	}
	b.gone(t)
}

func TestADriverIsToldWhatItsObjectSays(t *testing.T) {
	b := newBench(t, func(c *fakecsi.Config) {
		c.Can = []spec.NodeServiceCapability_RPC_Type{spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP}
	}).register(t)
	yes, hour := true, int64(3600)
	b.cluster.driver.Spec.PodInfoOnMount = &yes
	b.cluster.driver.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault", ExpirationSeconds: &hour}, {}}
	b.cluster.secrets = map[string]map[string][]byte{"ns/s": {"key": []byte("value")}}
	r := b.request()
	group, fs := int64(77), "ext4"
	r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	r.Volume.CSI.NodePublishSecretRef, r.Volume.CSI.ReadOnly, r.Volume.CSI.FSType = &v1.LocalObjectReference{Name: "s"}, &yes, &fs
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got := b.driver.Published()[0]
	tokens := `{"":{"token":"token of sa for  0","expirationTimestamp":"2001-09-09T01:46:40Z"},"vault":{"token":"token of sa for vault 3600","expirationTimestamp":"2001-09-09T01:46:40Z"}}`
	for key, want := range map[string]string{
		"size": "1", "csi.storage.k8s.io/pod.name": "p", "csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.uid": "uid-1",
		"csi.storage.k8s.io/serviceAccount.name": "sa", "csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/serviceAccount.tokens": tokens,
	} {
		if is := got.GetVolumeContext()[key]; is != want {
			t.Errorf("%s is %q, want %q", key, is, want)
		}
	}
	volumeCap := got.GetVolumeCapability()
	if got.GetSecrets()["key"] != "value" || len(got.GetSecrets()) != 1 || !got.GetReadonly() || volumeCap.GetMount().GetFsType() != "ext4" ||
		volumeCap.GetMount().GetVolumeMountGroup() != "77" || volumeCap.GetAccessMode().GetMode() != spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
		t.Errorf("the request is %v", got)
	}
	if len(r.Volume.CSI.VolumeAttributes) != 1 {
		t.Errorf("the pod's spec was changed: %v", r.Volume.CSI.VolumeAttributes)
	}
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
	b.cluster.driver.Spec.ServiceAccountTokenInSecrets = &yes
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got = b.driver.Published()[1]
	if _, there := got.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"]; there || got.GetSecrets()["csi.storage.k8s.io/serviceAccount.tokens"] != tokens {
		t.Error("the tokens are not among the secrets alone")
	}
}

func TestWhatKeepsAVolumeFromBeingPublishedIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *bench, r volume.Request)
		want   string
		cause  podstate.VolumeCause
	}{
		"no object": {func(b *bench, _ volume.Request) { b.cluster.driver = nil }, `volume mode "Ephemeral" not supported by driver csi.example.com (no CSIDriver object)`, podstate.VolumeDriverMode},
		"not ephemeral": {func(b *bench, _ volume.Request) {
			b.cluster.driver.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
		}, `volume mode "Ephemeral" not supported by driver csi.example.com (only supports ["Persistent"])`, podstate.VolumeDriverMode},
		"of no mode":   {func(b *bench, _ volume.Request) { b.cluster.driver.Spec.VolumeLifecycleModes = nil }, `volume mode "Ephemeral" not supported by driver csi.example.com (only supports [])`, podstate.VolumeDriverMode},
		"no apiserver": {func(b *bench, _ volume.Request) { b.cluster.err = errors.New("away") }, "mounter.SetupAt failed to check volume lifecycle mode: away", podstate.VolumeAPIServer},
		"no secret": {func(_ *bench, r volume.Request) {
			r.Volume.CSI.NodePublishSecretRef = &v1.LocalObjectReference{Name: "s"}
		}, `fetching NodePublishSecretRef ns/s failed: kubernetes.io/csi: failed to find the secret s in the namespace ns with error: secrets "s" not found`, podstate.VolumeObjectMissing},
		"the driver": {func(b *bench, _ volume.Request) {
			b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.Internal, "broken") })
		}, "rpc error: code = Internal desc = broken", podstate.VolumeDriverRefused},
		"what the driver does not find": {func(b *bench, _ volume.Request) {
			b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.NotFound, "volume h-1 not found") })
		}, "rpc error: code = NotFound desc = volume h-1 not found", podstate.VolumeDriverRefused},
		"a driver that has ended": {func(b *bench, _ volume.Request) {
			b.fault("NodeGetCapabilities", func(context.Context) error {
				return status.Error(codes.Unavailable, "connection error: dial unix: connection refused")
			})
		}, "failed to determine if the node service has VOLUME_MOUNT_GROUP capability: rpc error: code = Unavailable", podstate.VolumeDriverSilent},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil).register(t)
			r := b.request()
			c.change(b, r)
			made, err := b.Setup(t.Context(), r)
			if err == nil || !strings.Contains(err.Error(), c.want) || made.Path != "" {
				t.Errorf("%q, %v", made.Path, err)
			}
			if got := podstate.VolumeCauseOf(err); got != c.cause {
				t.Errorf("%v: cause %d, want %d", err, got, c.cause)
			}
			b.gone(t)
		})
	}
}

func TestAVolumeWaitsForItsDriver(t *testing.T) {
	b := newBench(t, nil)
	_, err := b.Setup(t.Context(), b.request())
	if err == nil || err.Error() != "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name csi.example.com not found in the list of registered CSI drivers" || podstate.VolumeCauseOf(err) != podstate.VolumeDriverAway {
		t.Fatalf("the error is %v", err)
	}
	b.register(t)
	if uid := <-b.woken; uid != "uid-1" {
		t.Errorf("%s is woken", uid)
	}
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	b.Deregister(b.plugin)
	err = b.Teardown(t.Context(), b.remains())
	if err == nil || !strings.Contains(err.Error(), "driver name csi.example.com not found in the list of registered CSI drivers; start the driver on this node") {
		t.Fatalf("the error is %v", err)
	}
	if len(b.mounts.Mounts()) != 1 {
		t.Error("it is not mounted any more, though nobody unpublished it")
	}
	b.register(t)
	if uid := <-b.woken; uid != "uid-1" {
		t.Errorf("%s is woken", uid)
	}
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
	b.gone(t)
	b.Deregister(b.plugin)
	if _, err := b.Setup(t.Context(), b.request()); err == nil {
		t.Fatal("published without a driver")
	}
	b.Forget("uid-1")
	if n := len(b.drivers.waiting); n != 0 {
		t.Errorf("pods that are gone wait for %d drivers", n)
	}
}

// Errors after which a volume may be there, or come, leave what is needed to take it back.
func TestAfterAnUncertainErrorTheVolumeIsUnpublished(t *testing.T) {
	for _, when := range []string{"NodePublishVolume", "NodePublishVolume done"} {
		for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Unavailable, codes.Aborted, codes.ResourceExhausted, codes.Canceled} {
			b := newBench(t, nil).register(t)
			b.fault(when, func(context.Context) error { return status.Error(code, "who knows") })
			made, err := b.Setup(t.Context(), b.request())
			if err == nil || made.Path != "" {
				t.Fatal(made, err)
			}
			again := b.restarted(t)
			if err := again.Register(t.Context(), b.plugin); err != nil {
				t.Fatal(err)
			}
			if err := again.Teardown(t.Context(), b.remains()); err != nil {
				t.Fatal(err)
			}
			if got := b.driver.Calls(); !slices.Contains(got, "NodeUnpublishVolume") {
				t.Errorf("%s failed with %s, and the driver was asked for %v only", when, code, got)
			}
			b.gone(t)
		}
	}
}

// TestWhatADriverHasRefusedLeavesNothingToAskItFor: after a final error nothing is there or comes.
func TestWhatADriverHasRefusedLeavesNothingToAskItFor(t *testing.T) {
	b := newBench(t, nil).register(t)
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.InvalidArgument, "no such thing") })
	if _, err := b.Setup(t.Context(), b.request()); err == nil {
		t.Fatal("it is published")
	}
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
	if got := b.driver.Calls(); !slices.Equal(got, []string{"NodePublishVolume"}) {
		t.Errorf("the driver was asked for %v", got)
	}
	b.gone(t)
}

// What a SIGKILL leaves at any step is taken down, and can be set up again.
func TestWhateverACrashLeavesIsTakenDownAndSetUp(t *testing.T) {
	data := ephemeral("uid-1", "v", driverOf, "n1")
	for name, left := range map[string]func(b *bench) error{
		"the directory": func(b *bench) error { return os.MkdirAll(b.dir(), 0o750) },
		"half of the file": func(b *bench) error {
			return errors.Join(os.MkdirAll(b.dir(), 0o750), os.WriteFile(filepath.Join(b.dir(), ".vol_data.json.tmp-123"), []byte("{"), 0o600))
		},
		"the file": func(b *bench) error { return data.write(b.dir()) },
		"the target": func(b *bench) error {
			return errors.Join(data.write(b.dir()), os.Mkdir(filepath.Join(b.dir(), "mount"), 0o750))
		},
		"the mount": func(b *bench) error {
			return errors.Join(data.write(b.dir()), os.Mkdir(filepath.Join(b.dir(), "mount"), 0o750), b.mounts.Bind("x", filepath.Join(b.dir(), "mount")))
		},
		"a damaged file": func(b *bench) error {
			return errors.Join(data.write(b.dir()), os.WriteFile(filepath.Join(b.dir(), "vol_data.json"), []byte("{"), 0o600),
				os.Mkdir(filepath.Join(b.dir(), "mount"), 0o750), b.mounts.Bind("x", filepath.Join(b.dir(), "mount")))
		},
		"a mount without a file": func(b *bench) error {
			return errors.Join(os.MkdirAll(filepath.Join(b.dir(), "mount"), 0o750), b.mounts.Bind("x", filepath.Join(b.dir(), "mount")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, setUp := range []bool{false, true} {
				b := newBench(t, nil).register(t)
				if err := left(b); err != nil {
					t.Fatal(err)
				}
				if setUp {
					if made, err := b.Setup(t.Context(), b.request()); err != nil || made.Path == "" {
						t.Fatal(made, err)
					}
					if n := len(b.mounts.Mounts()); n != 1 {
						t.Fatalf("%d mounts", n)
					}
				}
				if err := b.Teardown(t.Context(), b.remains()); err != nil {
					t.Fatal(err)
				}
				b.gone(t)
			}
		})
	}
}

func TestAVolumeStandsWhenItCannotBePublishedAgain(t *testing.T) {
	b := newBench(t, nil).register(t)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(c *Volumes){
		"the driver is away": func(*Volumes) {},
		"the driver fails": func(c *Volumes) {
			b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.Internal, "broken") })
			if err := c.Register(t.Context(), b.plugin); err != nil {
				t.Fatal(err)
			}
		},
	} {
		again := b.restarted(t)
		change(again)
		made, err := again.Setup(t.Context(), b.request())
		if err == nil || made.Path != filepath.Join(b.dir(), "mount") {
			t.Errorf("%s: %q, %v", name, made.Path, err)
		}
		if len(b.mounts.Mounts()) != 1 {
			t.Errorf("%s: the volume is gone", name)
		}
	}
}

func TestADriverThatHangsHoldsUpItsVolumeOnlyAndCanBeCutShort(t *testing.T) {
	b := newBench(t, nil).register(t)
	begun := make(chan struct{})
	b.fault("NodePublishVolume", func(ctx context.Context) error {
		b.fault("NodePublishVolume", nil)
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Setup(ctx, b.request())
		ended <- err
	}()
	<-begun
	other := b.request()
	other.Pod.UID, other.Dir = "uid-2", filepath.Join(b.root, "pods", "uid-2", "volumes", "kubernetes.io~csi", "v")
	if _, err := b.Setup(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := b.Teardown(t.Context(), volume.Remains{UID: "uid-2", Name: "v", Dir: other.Dir}); err != nil {
		t.Fatal(err)
	}
	cancel() // the pod was deleted
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	for range 3000 { // the driver may not have noticed yet
		if err := b.Teardown(t.Context(), b.remains()); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.gone(t)
}

func TestAVolumeIsNotForgottenBeforeItIsUnpublished(t *testing.T) {
	b := newBench(t, nil).register(t)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	b.fault("NodeUnpublishVolume", func(context.Context) error { return status.Error(codes.Internal, "busy") })
	for range 3 {
		if err := b.Teardown(t.Context(), b.remains()); err == nil || !strings.Contains(err.Error(), `volume "v": kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = Internal desc = busy`) {
			t.Fatal(err)
		}
	}
	b.fault("NodeUnpublishVolume", nil)
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
	b.gone(t)
}

func TestADriverThatLeavesItsMountIsAskedAgainAndNothingIsRemoved(t *testing.T) {
	leave := true
	b := newBench(t, func(c *fakecsi.Config) {
		unmount := c.Unmount
		c.Unmount = func(target string) error {
			if leave {
				return nil
			}
			return unmount(target)
		}
	}).register(t)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(b.dir(), "mount", "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Teardown(t.Context(), b.remains()); err == nil {
		t.Fatal("taken down though it is mounted")
	}
	if _, err := os.Lstat(precious); err != nil {
		t.Fatal(err)
	}
	leave = false
	if err := os.Remove(precious); err != nil {
		t.Fatal(err)
	}
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
	b.gone(t)
}

func TestTheFilesAreThePodsGroupsAsTheDriversObjectSays(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	group, fs := int64(4242), "ext4"
	for name, c := range map[string]struct {
		policy *storagev1.FSGroupPolicy
		change func(v *v1.CSIVolumeSource)
		want   bool
	}{
		"File":                                    {policy(storagev1.FileFSGroupPolicy), nil, true},
		"None":                                    {policy(storagev1.NoneFSGroupPolicy), func(v *v1.CSIVolumeSource) { v.FSType = &fs }, false},
		"ReadWriteOnceWithFSType without fsType":  {policy(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), nil, false},
		"ReadWriteOnceWithFSType with fsType":     {policy(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), func(v *v1.CSIVolumeSource) { v.FSType = &fs }, true},
		"read-only volumes are never given away":  {policy(storagev1.FileFSGroupPolicy), func(v *v1.CSIVolumeSource) { yes := true; v.ReadOnly = &yes }, false},
		"nothing said, and a file system is said": {nil, func(v *v1.CSIVolumeSource) { v.FSType = &fs }, true},
	} {
		b := newBench(t, nil).register(t)
		b.cluster.driver.Spec.FSGroupPolicy = c.policy
		r := b.request()
		r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		if c.change != nil {
			c.change(r.Volume.CSI)
		}
		made, err := b.Setup(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if got := groupOf(t, made.Path) == uint32(group); got != c.want {
			t.Errorf("%s: given to the group: %v, want %v", name, got, c.want)
		}
	}
}

func policy(p storagev1.FSGroupPolicy) *storagev1.FSGroupPolicy { return &p }
