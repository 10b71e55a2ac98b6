package images

import (
	"context"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/polylet/polylet/test/harness/registry"
)

// PushCSI stores, under their real names, the images of the upstream suite's CSI drivers:
// sidecars are programs by their name. What no module has is test/images/csistandin, and
// csihostpath beside it.
func PushCSI(ctx context.Context, r *registry.Registry, dir string, sidecars map[string]string) error {
	s := suite{dir: dir}
	standIn, hostPath := filepath.Join(dir, "csistandin"), filepath.Join(dir, "csihostpath")
	for _, program := range []string{standIn, hostPath} {
		if err := goBuild(ctx, "test/images/"+filepath.Base(program), program); err != nil {
			return err
		}
	}
	drivers := []file{{"csimock", sidecars["csimock"], 0o755}, {"csihostpath", hostPath, 0o755}}
	all := []suiteImage{
		{s.busyBox(nil), []string{"e2e-test-images/busybox:1.36.1-1"}},
		{single("csi-node-driver-registrar", standIn), []string{"sig-storage/csi-node-driver-registrar:v2.16.0"}},
		{single("hostpathplugin", standIn, drivers...), []string{"sig-storage/hostpathplugin:v1.17.1"}},
		{single("livenessprobe", standIn), []string{"sig-storage/livenessprobe:v2.18.0"}},
	}
	for name, version := range map[string]string{
		"csi-attacher": "v4.11.0", "csi-provisioner": "v6.1.1", "csi-resizer": "v2.1.0", "csi-snapshotter": "v8.5.0",
	} {
		all = append(all, suiteImage{single(name, sidecars[name]), []string{"sig-storage/" + name + ":" + version}})
	}
	return eachOf(ctx, all, func(name string, img v1.Image) error { return r.Push(ctx, name, img) })
}

// single is an image of one program, and of others that it calls.
func single(name, program string, others ...file) func(context.Context) (v1.Image, error) {
	return func(context.Context) (v1.Image, error) {
		return assemble(config{entrypoint: []string{"/" + name}}, append(others, file{name, program, 0o755})...)
	}
}
