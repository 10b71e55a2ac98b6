package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/polylet/polylet/test/harness/registry"
)

// ClusterPrograms are the programs of a cluster that kubeadm makes, and the images
// that it runs them from.
type ClusterPrograms struct {
	// Binaries are paths by the program's name.
	Binaries map[string]string
	// Names are the images' names and tags, without the registry, by the program's
	// name.
	Names map[string]string
	// Pause is the sandbox image's name and tag.
	Pause string
}

// PushCluster stores the images of a cluster that kubeadm makes: each is one
// static program. kube-proxy's has the machine's iptables too.
func PushCluster(ctx context.Context, r *registry.Registry, dir string, p ClusterPrograms) error {
	return p.each(ctx, dir, func(reference string, img v1.Image) error { return r.Push(ctx, reference, img) })
}

// SaveCluster builds the same and saves them in a directory, for registry.Open.
func SaveCluster(ctx context.Context, dir, saved string, p ClusterPrograms) error {
	return p.each(ctx, dir, func(reference string, img v1.Image) error { return registry.Save(saved, reference, img) })
}

// each builds the images one after the other; the programs are built into dir.
func (p ClusterPrograms) each(ctx context.Context, dir string, use func(reference string, img v1.Image) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("build the cluster's images: %w", err)
	}
	for program, name := range p.Names {
		img, err := clusterImage(ctx, program, p.Binaries[program])
		if err != nil {
			return fmt.Errorf("build image %s: %w", name, err)
		}
		if err := use(name, img); err != nil {
			return err
		}
	}
	pause, err := pauseImage(ctx, dir)
	if err != nil {
		return fmt.Errorf("build image %s: %w", p.Pause, err)
	}
	return use(p.Pause, pause)
}

// clusterImage has the program where kubeadm's manifests and the upstream images
// have it: on the path, CoreDNS at the root.
func clusterImage(ctx context.Context, program, binary string) (v1.Image, error) {
	const path = "PATH=/usr/local/bin:/bin"
	if binary == "" {
		return nil, fmt.Errorf("no program %s", program)
	}
	if program == "coredns" {
		return assemble(config{entrypoint: []string{"/coredns"}}, file{"coredns", binary, 0o755})
	}
	files := []file{
		{"usr/", "", 0o755}, {"usr/local/", "", 0o755}, {"usr/local/bin/", "", 0o755},
		{"usr/local/bin/" + program, binary, 0o755}, {"tmp/", "", 0o1777},
	}
	if program == "kube-proxy" {
		var err error
		if files, err = appendFirewall(ctx, files); err != nil {
			return nil, err
		}
	}
	return assemble(config{entrypoint: []string{"/usr/local/bin/" + program}, env: []string{path}}, files...)
}

// appendFirewall adds the machine's iptables, under all its names, with what it
// loads.
func appendFirewall(ctx context.Context, files []file) ([]file, error) {
	shared := map[string]bool{}
	var err error
	if files, err = appendProgram(ctx, append(files, file{"bin/", "", 0o755}), shared, "iptables"); err != nil {
		return nil, err
	}
	for _, name := range []string{"iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		files = append(files, file{"bin/" + name, "iptables", 0})
	}
	modules, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return nil, err
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("find iptables' modules: none in /usr/lib/*/xtables")
	}
	out, err := exec.CommandContext(ctx, "ldd", modules...).Output()
	if err != nil {
		return nil, fmt.Errorf("ask which libraries iptables' modules load: %w", err)
	}
	for _, path := range slices.Concat(modules, libraries(string(out))) {
		// ldd names each of several files, with a colon, before its libraries.
		if !strings.HasSuffix(path, ":") && !shared[path] {
			shared[path] = true
			files = append(files, file{strings.TrimPrefix(path, "/"), path, 0o755})
		}
	}
	return files, nil
}
