package images

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/polylet/polylet/test/harness/registry"
)

// alpine is the first line of the real agnhost's release file, which a test of
// image volumes looks for.
const alpine = "NAME=\"Alpine Linux\"\nID=alpine\n"

// PushSuite stores, under their real names, the images that the upstream
// end-to-end suite uses. They hold the suite's own program (agnhost, a path),
// the machine's busybox, and bash, curl, dig, getent and nc of the machine. They are no copies of
// the published images: only what the tests look for is the same.
func PushSuite(ctx context.Context, r *registry.Registry, dir, agnhost string) error {
	s := suite{dir: dir, agnhost: agnhost}
	for _, build := range []struct {
		make  func(context.Context) (v1.Image, error)
		names []string
	}{
		{s.agnhostImage, []string{"e2e-test-images/agnhost:2.63.0", "e2e-test-images/agnhost:2.55"}},
		{s.busyBox(nil), []string{"e2e-test-images/busybox:1.37.0-1", "e2e-test-images/ipc-utils:1.4"}},
		{s.busyBox(func(c *config) { c.user = "1234" }), []string{"e2e-test-images/nonroot:1.5"}},
		{s.busyBox(func(c *config) { c.cmd = []string{"httpd", "-f", "-p", "80", "-h", "/tmp"} }), []string{
			"e2e-test-images/nginx:1.15-4", "e2e-test-images/nginx:1.27-0",
		}},
		{s.glibc, []string{"e2e-test-images/glibc-dns-testing:2.0.0"}},
		{s.noNewPrivileges, []string{"e2e-test-images/nonewprivs:1.4"}},
		{s.kitten, []string{"e2e-test-images/kitten:1.8"}},
		{s.nautilus, []string{"e2e-test-images/nautilus:1.8"}},
		{func(ctx context.Context) (v1.Image, error) { return pauseImage(ctx, dir) }, []string{"pause:3.10.2"}},
	} {
		img, err := build.make(ctx)
		if err != nil {
			return fmt.Errorf("build the suite's image %s: %w", build.names[0], err)
		}
		for _, name := range build.names {
			if err := r.Push(ctx, name, img); err != nil {
				return err
			}
		}
	}
	return nil
}

// SuitePackages are the Debian packages that PushSuite takes programs from, by
// a file that each brings.
func SuitePackages() map[string]string {
	return map[string]string{"/usr/bin/nc.openbsd": "netcat-openbsd", "/usr/bin/dig": "bind9-dnsutils", "/usr/bin/curl": "curl", "/usr/bin/bash": "bash"}
}

// suite builds the images of the suite.
type suite struct{ dir, agnhost string }

// kitten is mounted as a volume: two of its files are read.
func (s suite) kitten(context.Context) (v1.Image, error) {
	data, err := textFile(s.dir, "data.json", "{\"image\": \"kitten.jpg\"}\n")
	if err != nil {
		return nil, err
	}
	release, err := textFile(s.dir, "etc/os-release", alpine)
	if err != nil {
		return nil, err
	}
	return assemble(config{}, file{"etc/", "", 0o755}, data, release)
}

// nautilus is a web server whose one document is read.
func (s suite) nautilus(ctx context.Context) (v1.Image, error) {
	files, err := s.userland(ctx, "", "")
	if err != nil {
		return nil, err
	}
	data, err := textFile(s.dir, "www/data.json", "{\"image\": \"nautilus.jpg\"}\n")
	if err != nil {
		return nil, err
	}
	files = append(files, file{"www/", "", 0o755}, data)
	return assemble(config{cmd: []string{"httpd", "-f", "-p", "80", "-h", "/www"}, env: []string{searchPath}}, files...)
}

func (s suite) agnhostImage(ctx context.Context) (v1.Image, error) {
	all, err := s.userland(ctx,
		"user-defined-in-image:x:1000:1000::/home:/bin/sh\n",
		"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
	if err != nil {
		return nil, err
	}
	// busybox's nc knows no UDP.
	files, err := replacePrograms(ctx, all, "dig", "getent", "nc")
	if err != nil {
		return nil, err
	}
	release, err := textFile(s.dir, "etc/os-release", alpine)
	if err != nil {
		return nil, err
	}
	pair, err := certificateFiles(s.dir)
	if err != nil {
		return nil, err
	}
	files = append(files, pair...)
	content, err := s.registryFiles(ctx)
	if err != nil {
		return nil, err
	}
	files = append(files, content...)
	files = append(files, release,
		file{"agnhost", s.agnhost, 0o755}, file{"agnhost-2", "agnhost", 0}, file{"uploads/", "", 0o777})
	return assemble(config{
		entrypoint: []string{"/agnhost"}, cmd: []string{"pause"}, env: []string{searchPath},
	}, files...)
}

// registryFiles are what agnhost's own registry serves: the image
// pause:testing, one file per manifest and blob, named by its digest, and one
// that says which digest the tag is.
func (s suite) registryFiles(ctx context.Context) ([]file, error) {
	img, err := pauseImage(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	configDigest, err := img.ConfigName()
	if err != nil {
		return nil, err
	}
	contents := map[string][]byte{
		"manifests/testing": []byte(digest.String() + "\n"), registryPath("manifests", digest): manifest, registryPath("blobs", configDigest): config,
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		digest, data, err := blob(layer)
		if err != nil {
			return nil, err
		}
		contents[registryPath("blobs", digest)] = data
	}
	var files []file
	for path, data := range contents {
		f, err := textFile(s.dir, "var/registry/pause/"+path, string(data))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func registryPath(kind string, digest v1.Hash) string {
	return strings.Join([]string{kind, digest.Algorithm, digest.Hex[:2], digest.Hex, "data"}, "/")
}

// blob is a layer as a registry serves it.
func blob(layer v1.Layer) (v1.Hash, []byte, error) {
	digest, err := layer.Digest()
	if err != nil {
		return digest, nil, err
	}
	packed, err := layer.Compressed()
	if err != nil {
		return digest, nil, err
	}
	defer packed.Close()
	data, err := io.ReadAll(packed)
	return digest, data, err
}

// busyBox returns a builder of the busybox image with its configuration changed.
func (s suite) busyBox(change func(*config)) func(context.Context) (v1.Image, error) {
	return func(ctx context.Context) (v1.Image, error) {
		files, err := s.userland(ctx, "", "")
		if err != nil {
			return nil, err
		}
		c := config{cmd: []string{"sh"}, env: []string{searchPath}}
		if change != nil {
			change(&c)
		}
		return assemble(c, files...)
	}
}

// glibc is for tests that ask the C library for names: its hostname takes the
// place of busybox's, which has no getent.
func (s suite) glibc(ctx context.Context) (v1.Image, error) {
	all, err := s.userland(ctx, "", "")
	if err != nil {
		return nil, err
	}
	files, err := replacePrograms(ctx, all, "dig", "getent", "hostname")
	if err != nil {
		return nil, err
	}
	return assemble(config{cmd: []string{"sh"}, env: []string{searchPath}}, files...)
}

func (s suite) noNewPrivileges(ctx context.Context) (v1.Image, error) {
	binary := filepath.Join(s.dir, "nnp")
	if err := goBuild(ctx, "test/images/nnp", binary); err != nil {
		return nil, err
	}
	files, err := s.userland(ctx, "", "")
	if err != nil {
		return nil, err
	}
	const setUserAndGroup = 0o6755
	files = append(files, file{"bin/nnp", binary, setUserAndGroup})
	return assemble(config{cmd: []string{"nnp"}, env: []string{searchPath}}, files...)
}

// userland is busybox behind our own sh (see test/images/sh), bash and curl.
func (s suite) userland(ctx context.Context, users, groups string) ([]file, error) {
	shell := filepath.Join(s.dir, "sh")
	if err := goBuild(ctx, "test/images/sh", shell); err != nil {
		return nil, err
	}
	tools, err := busyBoxFiles(ctx)
	if err != nil {
		return nil, err
	}
	files, err := accountFiles(s.dir, users, groups)
	if err != nil {
		return nil, err
	}
	for _, f := range tools {
		if f.name != "bin/sh" && f.name != "bin/bash" {
			files = append(files, f)
		}
	}
	files = append(files, file{"bin/sh", shell, 0o755})
	shared := map[string]bool{}
	for _, program := range []string{"bash", "curl"} {
		if files, err = appendProgram(ctx, files, shared, program); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// replacePrograms puts programs of the machine, and the libraries that they
// load, in the place of busybox's of the same name.
func replacePrograms(ctx context.Context, all []file, names ...string) ([]file, error) {
	var files []file
	shared := map[string]bool{}
	for _, f := range all {
		if !slices.Contains(names, strings.TrimPrefix(f.name, "bin/")) {
			files = append(files, f)
		}
		shared["/"+f.name] = true
	}
	for _, name := range names {
		var err error
		if files, err = appendProgram(ctx, files, shared, name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// appendProgram adds a program of the machine and the libraries that it loads.
func appendProgram(ctx context.Context, files []file, shared map[string]bool, name string) ([]file, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w; install the package %s", name, err, name)
	}
	out, err := exec.CommandContext(ctx, "ldd", path).Output()
	if err != nil {
		return nil, fmt.Errorf("ask which libraries %s loads: %w", path, err)
	}
	files = append(files, file{"bin/" + name, path, 0o755})
	for _, library := range libraries(string(out)) {
		if !shared[library] {
			shared[library] = true
			files = append(files, file{strings.TrimPrefix(library, "/"), library, 0o755})
		}
	}
	return files, nil
}

// libraries returns the paths in what ldd prints.
func libraries(printed string) []string {
	var paths []string
	for _, line := range strings.Split(printed, "\n") {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				paths = append(paths, word)
				break
			}
		}
	}
	return paths
}
