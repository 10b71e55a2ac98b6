package images

import (
	"context"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/polylet/polylet/test/harness/registry"
)

// PushCSI stores, under their real names, the images of the upstream suite's mock CSI
// driver: sidecars are programs by their name. What no module has is test/images/csistandin.
func PushCSI(ctx context.Context, r *registry.Registry, dir string, sidecars map[string]string) error {
	s := suite{dir: dir}
	standIn := filepath.Join(dir, "csistandin")
	if err := goBuild(ctx, "test/images/csistandin", standIn); err != nil {
		return err
	}
	all := []suiteImage{
		{s.busyBox(nil), []string{"e2e-test-images/busybox:1.36.1-1"}},
		{single("csi-node-driver-registrar", standIn), []string{"sig-storage/csi-node-driver-registrar:v2.16.0"}},
		{single("hostpathplugin", standIn, file{"csimock", sidecars["csimock"], 0o755}), []string{"sig-storage/hostpathplugin:v1.17.1"}},
	}
	for name, version := range map[string]string{"csi-attacher": "v4.11.0", "csi-provisioner": "v6.1.1", "csi-resizer": "v2.1.0"} {
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
