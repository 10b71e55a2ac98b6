// Package images builds the container images of the tests from this repository's
// own static programs and the machine's static busybox. It must never pull an
// image from elsewhere.
package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/workspace"
)

// Names of the images as a pod's specification says them.
const (
	Pause   = "registry.k8s.io/pause:3.10.1"
	TestApp = registry.LocalName + "/testapp:v1"
	BusyBox = "docker.io/library/busybox:1.36"
)

//go:embed pause.c.txt
var pauseSource []byte

// builds are the images by their name in the registry.
var builds = []struct {
	name string
	make func(context.Context, string) (v1.Image, error)
}{
	{"pause:3.10.1", pauseImage},
	{"testapp:v1", testAppImage},
	{"library/busybox:1.36", busyBoxImage},
}

// each builds the images one after the other; the programs are built into dir.
func each(ctx context.Context, dir string, use func(reference string, img v1.Image) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("build test images: %w", err)
	}
	for _, build := range builds {
		img, err := build.make(ctx, dir)
		if err != nil {
			return fmt.Errorf("build test image %s: %w", build.name, err)
		}
		if err := use(build.name, img); err != nil {
			return err
		}
	}
	return nil
}

// PushAll builds the images and stores them in the registry. The programs are
// built into dir.
func PushAll(ctx context.Context, r *registry.Registry, dir string) error {
	return each(ctx, dir, func(reference string, img v1.Image) error { return r.Push(ctx, reference, img) })
}

// SaveAll builds the images and saves them in a directory, for registry.Open.
func SaveAll(ctx context.Context, dir, saved string) error {
	return each(ctx, dir, func(reference string, img v1.Image) error { return registry.Save(saved, reference, img) })
}

func save(saved, reference string, img v1.Image) error {
	tag, err := name.NewTag(registry.LocalName + "/" + reference)
	if err != nil {
		return fmt.Errorf("save test image %s: %w", reference, err)
	}
	return tarball.WriteToFile(savedName(saved, reference), tag, img)
}

// PushDir stores in the registry every image that was saved in a directory.
func PushDir(ctx context.Context, r *registry.Registry, saved string) error {
	files, err := filepath.Glob(filepath.Join(saved, "*.tar"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("push the saved test images: %s has none", saved)
	}
	for _, file := range files {
		reference := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".tar"), "_", "/")
		img, err := tarball.ImageFromPath(file, nil)
		if err != nil {
			return fmt.Errorf("read saved test image %s: %w", reference, err)
		}
		if err := r.Push(ctx, reference, img); err != nil {
			return err
		}
	}
	return nil
}

func savedName(saved, reference string) string {
	return filepath.Join(saved, strings.ReplaceAll(reference, "/", "_")+".tar")
}

// PushTestApp stores the test program under a further name, such as
// "testapp:v2", so that a test can pull an image that is not present yet.
func PushTestApp(ctx context.Context, r *registry.Registry, dir, reference string) error {
	img, err := testAppImage(ctx, dir)
	if err != nil {
		return fmt.Errorf("build test image %s: %w", reference, err)
	}
	return r.Push(ctx, reference, img)
}

func testAppImage(ctx context.Context, dir string) (v1.Image, error) {
	binary, err := testApp(ctx, dir)
	if err != nil {
		return nil, err
	}
	return assemble(config{entrypoint: []string{"/testapp"}, env: []string{"IMAGE_ENV=from-the-image"}},
		file{"testapp", binary, 0o755}, file{"tmp/", "", 0o1777})
}

func pauseImage(ctx context.Context, dir string) (v1.Image, error) {
	binary, err := pause(ctx, dir)
	if err != nil {
		return nil, err
	}
	return assemble(config{entrypoint: []string{"/pause"}, user: "65535:65535"}, file{"pause", binary, 0o755})
}

// Programs builds what runs in the images into a directory, for
// workspace.BuiltVariable.
func Programs(ctx context.Context, dir string) error {
	for _, build := range []func(context.Context, string) (string, error){testApp, pause} {
		if _, err := build(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

func testApp(ctx context.Context, dir string) (string, error) {
	if built := workspace.Built("testapp"); built != "" {
		return built, nil
	}
	binary := filepath.Join(dir, "testapp")
	return binary, goBuild(ctx, "test/images/testapp", binary)
}

func pause(ctx context.Context, dir string) (string, error) {
	if built := workspace.Built("pause"); built != "" {
		return built, nil
	}
	binary := filepath.Join(dir, "pause")
	if compilePause(ctx, binary) == nil {
		return binary, nil
	}
	return binary, goBuild(ctx, "test/images/pause", binary)
}

// compilePause fails where the machine has no C compiler.
func compilePause(ctx context.Context, binary string) error {
	source := binary + ".c"
	if err := os.WriteFile(source, pauseSource, 0o644); err != nil {
		return err
	}
	return exec.CommandContext(ctx, "gcc", "-static", "-Os", "-s", "-o", binary, source).Run()
}

func busyBoxImage(ctx context.Context, dir string) (v1.Image, error) {
	tools, err := busyBoxFiles(ctx)
	if err != nil {
		return nil, err
	}
	accounts, err := accountFiles(dir, "", "")
	if err != nil {
		return nil, err
	}
	return assemble(config{cmd: []string{"sh"}, env: []string{searchPath}}, append(accounts, tools...)...)
}

// searchPath finds the programs of busybox.
const searchPath = "PATH=/bin:/sbin:/usr/bin:/usr/sbin"

// busyBoxFiles are the machine's static busybox and a link for each of its
// programs.
func busyBoxFiles(ctx context.Context) ([]file, error) {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("find busybox: %w; install the package busybox-static", err)
	}
	out, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("ask busybox for its applets: %w", err)
	}
	files := []file{
		{"bin/", "", 0o755},
		{"bin/busybox", program, 0o755},
		{"root/", "", 0o700},
		{"tmp/", "", 0o1777},
	}
	for _, applet := range strings.Fields(string(out)) {
		if applet != "busybox" {
			files = append(files, file{"bin/" + applet, "busybox", 0})
		}
	}
	return files, nil
}

// accountFiles are /etc with root, nobody and the further lines given.
func accountFiles(dir, users, groups string) ([]file, error) {
	files := []file{{"etc/", "", 0o755}}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n" + users,
		"group":  "root:x:0:\nnobody:x:65534:\n" + groups,
	} {
		f, err := textFile(dir, "etc/"+name, text)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// textFile is a file of an image with this text, kept in dir until then.
func textFile(dir, name, text string) (file, error) {
	temp, err := os.CreateTemp(dir, filepath.Base(name)+"-*")
	if err != nil {
		return file{}, err
	}
	defer temp.Close()
	if _, err := temp.WriteString(text); err != nil {
		return file{}, err
	}
	return file{name, temp.Name(), 0o644}, nil
}

func goBuild(ctx context.Context, pkg, binary string) error {
	root, err := workspace.Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, ".")
	cmd.Dir = filepath.Join(root, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// config is what of an image's configuration the tests need.
type config struct {
	entrypoint, cmd, env []string
	user                 string
}

// file is one entry of an image: a directory (name ends with /), a symbolic
// link (mode 0, source is its target), or a copy of the file at source.
type file struct {
	name, source string
	mode         int64
}

func assemble(c config, files ...file) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range files {
		if err := f.write(w); err != nil {
			return nil, fmt.Errorf("add %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, made)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, configFile(img, c))
}

func configFile(img v1.Image, c config) *v1.ConfigFile {
	cf, err := img.ConfigFile()
	if err != nil {
		cf = &v1.ConfigFile{}
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", runtime.GOARCH
	cf.Config = v1.Config{Entrypoint: c.entrypoint, Cmd: c.cmd, Env: c.env, User: c.user}
	return cf
}

func (f file) write(w *tar.Writer) error {
	switch {
	case strings.HasSuffix(f.name, "/"):
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: f.name, Mode: f.mode})
	case f.mode == 0:
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: f.name, Linkname: f.source, Mode: 0o777})
	}
	data, err := os.ReadFile(f.source)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}
