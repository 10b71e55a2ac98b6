package images

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

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
	return eachOf(ctx, s.images(), func(name string, img v1.Image) error { return r.Push(ctx, name, img) })
}

// SaveNodeSuite builds into tar files in the directory saved what the upstream
// node suite uses, for PushDir where nothing can be built: the images of
// PushSuite and stand-ins for those that only have to be there.
func SaveNodeSuite(ctx context.Context, dir, agnhost, saved string) error {
	for _, made := range []string{dir, saved} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			return fmt.Errorf("save the suite's images: %w", err)
		}
	}
	return eachOfNodeSuite(ctx, dir, agnhost, func(reference string, img v1.Image) error { return save(saved, reference, img) })
}

// LayOutNodeSuite is SaveNodeSuite for registry.Open, which reads only what is asked for.
func LayOutNodeSuite(ctx context.Context, dir, agnhost, saved string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save the suite's images: %w", err)
	}
	return eachOfNodeSuite(ctx, dir, agnhost, func(reference string, img v1.Image) error { return registry.Save(saved, reference, img) })
}

func eachOfNodeSuite(ctx context.Context, dir, agnhost string, use func(reference string, img v1.Image) error) error {
	s := suite{dir: dir, agnhost: agnhost}
	return eachOf(ctx, append(s.images(), s.nodeImages()...), use)
}

// suiteImage is one image under all its names.
type suiteImage struct {
	make  func(context.Context) (v1.Image, error)
	names []string
}

func eachOf(ctx context.Context, all []suiteImage, use func(name string, img v1.Image) error) error {
	for _, build := range all {
		img, err := build.make(ctx)
		if err != nil {
			return fmt.Errorf("build the suite's image %s: %w", build.names[0], err)
		}
		for _, name := range build.names {
			own, err := named(img, name)
			if err != nil {
				return fmt.Errorf("build the suite's image %s: %w", name, err)
			}
			if err := use(name, own); err != nil {
				return err
			}
		}
	}
	return nil
}

// named makes an image differ from those with the same files: a runtime that has
// one image under two names says either of them, and tests tell images apart by
// what it says.
func named(img v1.Image, name string) (v1.Image, error) {
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := file.Config
	config.Labels = map[string]string{"name": name}
	return mutate.Config(img, config)
}

func (s suite) images() []suiteImage {
	return []suiteImage{
		{s.agnhostImage, []string{"e2e-test-images/agnhost:2.63.0", "e2e-test-images/agnhost:2.55"}},
		{s.busyBox(nil), []string{"e2e-test-images/busybox:1.37.0-1"}},
		{s.ipcUtils, []string{"e2e-test-images/ipc-utils:1.4"}},
		{s.busyBox(func(c *config) { c.user = "1234" }), []string{"e2e-test-images/nonroot:1.5"}},
		{s.nginx, []string{"e2e-test-images/nginx:1.15-4", "e2e-test-images/nginx:1.27-0"}},
		{s.glibc, []string{"e2e-test-images/glibc-dns-testing:2.0.0"}},
		{s.noNewPrivileges, []string{"e2e-test-images/nonewprivs:1.4"}},
		{s.kitten, []string{"e2e-test-images/kitten:1.8"}},
		{s.nautilus, []string{"e2e-test-images/nautilus:1.8"}},
		{s.pause, []string{"pause:3.10.2"}},
	}
}

// nodeImages are what only the node suite uses. It pulls all of them before its
// first test, and fails when one is missing.
func (s suite) nodeImages() []suiteImage {
	return []suiteImage{
		{s.busyBox(nil), []string{"e2e-test-images/perl:5.26", "e2e-test-images/busybox:1.36.1-1", "library/busybox:1.36"}},
		{s.pause, []string{
			"pause:3.10.1", "etcd:3.6.8-0",
			"e2e-test-images/node-perf/npb-ep:1.6.0", "e2e-test-images/node-perf/npb-is:1.7.0",
			"e2e-test-images/node-perf/pytorch-wide-deep:1.0.0", "e2e-test-images/volume/nfs:1.6.0",
			"e2e-test-images/sample-device-plugin:1.7", "node-problem-detector/node-problem-detector:v1.34.0",
			"cadvisor/cadvisor:v0.47.2", "nfvpe/sriov-device-plugin:v3.1",
		}},
	}
}

func (s suite) pause(ctx context.Context) (v1.Image, error) { return pauseImage(ctx, s.dir) }

// SuitePackages are the Debian packages that PushSuite takes programs from, by
// a file that each brings.
func SuitePackages() map[string]string {
	return map[string]string{"/usr/bin/nc.openbsd": "netcat-openbsd", "/usr/bin/dig": "bind9-dnsutils", "/usr/bin/curl": "curl", "/usr/bin/bash": "bash"}
}

// suite builds the images of the suite.
type suite struct{ dir, agnhost string }

// nginx is busybox's web server as a process of that name, whose number is where
// the real one writes it.
func (s suite) nginx(ctx context.Context) (v1.Image, error) {
	files, err := s.userland(ctx, "", "")
	if err != nil {
		return nil, err
	}
	program, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	files = append(files, file{"bin/nginx", program, 0o755}, file{"var/", "", 0o755}, file{"var/run/", "", 0o755})
	const serve = "echo $$ > /var/run/nginx.pid; exec -a busybox /bin/nginx httpd -f -p 80 -h /tmp"
	return assemble(config{cmd: []string{"bash", "-c", serve}, env: []string{searchPath}}, files...)
}

// kitten is mounted as a volume: three of its files are read.
func (s suite) kitten(context.Context) (v1.Image, error) {
	data, err := textFile(s.dir, "data.json", "{\"image\": \"kitten.jpg\"}\n")
	if err != nil {
		return nil, err
	}
	release, err := textFile(s.dir, "etc/os-release", alpine)
	if err != nil {
		return nil, err
	}
	accounts, err := accountFiles(s.dir, "", "")
	if err != nil {
		return nil, err
	}
	return assemble(config{}, append(accounts, data, release)...)
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
	// busybox's nc knows no UDP, and its nsenter runs its own programs, not those of where it enters.
	files, err := replacePrograms(ctx, all, "dig", "getent", "nc", "nsenter")
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
// place of busybox's, which has no getent. Tests of storage have its dd write past
// the cache, which busybox's cannot.
func (s suite) glibc(ctx context.Context) (v1.Image, error) {
	all, err := s.userland(ctx, "", "")
	if err != nil {
		return nil, err
	}
	files, err := replacePrograms(ctx, all, "dd", "dig", "getent", "hostname")
	if err != nil {
		return nil, err
	}
	return assemble(config{cmd: []string{"sh"}, env: []string{searchPath}}, files...)
}

// ipcUtils has the machine's ipcs.
func (s suite) ipcUtils(ctx context.Context) (v1.Image, error) {
	all, err := s.userland(ctx, "", "")
	if err != nil {
		return nil, err
	}
	files, err := replacePrograms(ctx, all, "ipcs")
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

// userland is busybox behind our own sh (see test/images/sh), nmeter, bash and
// curl.
func (s suite) userland(ctx context.Context, users, groups string) ([]file, error) {
	shell, nmeter := filepath.Join(s.dir, "sh"), filepath.Join(s.dir, "nmeter")
	for pkg, binary := range map[string]string{"test/images/sh": shell, "test/images/nmeter": nmeter} {
		if err := goBuild(ctx, pkg, binary); err != nil {
			return nil, err
		}
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
		if f.name != "bin/sh" && f.name != "bin/bash" && f.name != "bin/nmeter" {
			files = append(files, f)
		}
	}
	files = append(files, file{"bin/sh", shell, 0o755}, file{"bin/nmeter", nmeter, 0o755})
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
