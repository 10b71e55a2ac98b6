package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/registry"
)

// pluginScript is a credential provider: it notes what it is asked, and knows
// the password of the test's registry.
const pluginScript = `#!/bin/sh
cat >> %[1]s
echo >> %[1]s
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry","auth":{"%[2]s":{"username":"user","password":"secret"}}}'
`

const pluginConfig = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: plugin
  matchImages: ["%s/private"]
  defaultCacheDuration: 1h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
`

// TestImagesOnARealRuntime plays stories about images on one standalone node.
func TestImagesOnARealRuntime(t *testing.T) {
	bin := t.TempDir()
	h := build(t, plan{standalone: true, flags: []string{
		"--image-credential-provider-config=" + filepath.Join(bin, "config.yaml"), "--image-credential-provider-bin-dir=" + bin,
	}, overrides: map[string]any{
		"imageMaximumGCAge": "1m", "imageMinimumGCAge": "1s", "imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages",
	}, prepare: func(h *house) {
		h.must(os.WriteFile(filepath.Join(bin, "plugin"), fmt.Appendf(nil, pluginScript, filepath.Join(bin, "asked"), registry.LocalName), 0o755))
		h.must(os.WriteFile(filepath.Join(bin, "config.yaml"), fmt.Appendf(nil, pluginConfig, registry.LocalName), 0o600))
		h.must(images.PushTestApp(h.ctx, h.images, h.inst.Path("images"), "private/testapp:v1"))
		unused, err := random.Image(1024, 1)
		h.must(err)
		h.must(h.images.Push(h.ctx, "unused:v1", unused))
		h.images.SetFault(privateRepositories)
	}})
	h.pullBehindTheNode(registry.LocalName + "/unused:v1")
	imageVolume(h)
	missingImageVolumes(h)
	privateImage(h, filepath.Join(bin, "asked"))
	if os.Getenv("POLYLET_LONG_TESTS") != "" { // make soak: a pass comes every five minutes
		unusedImagesGo(h)
	}
}

// privateRepositories lets only the password of the plugin at what is private.
func privateRepositories(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/v2/private/") {
		return false
	}
	if user, password, _ := r.BasicAuth(); user == "user" && password == "secret" {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
	http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
	return true
}

// staticPod is a pod whose container's image has the test program, or a shell.
func staticPod(name, image string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr(int64(1)),
			Containers: []corev1.Container{{Name: "app", Image: image, Args: args, ImagePullPolicy: corev1.PullIfNotPresent}},
		},
	}
}

func (h *house) addPod(p *corev1.Pod) {
	h.Helper()
	data, err := json.Marshal(p)
	h.must(err)
	h.must(h.node.AddStaticPod(p.Name+".yaml", string(data)))
}

// waitStatic waits until a check of a static pod holds.
func (h *house) waitStatic(name, what string, within time.Duration, check func(*corev1.Pod) error) {
	h.Helper()
	h.eventually(within, what, func() error {
		pods, err := h.nodePods()
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if pods.Items[i].Name == name+"-"+nodeName {
				return check(&pods.Items[i])
			}
		}
		return fmt.Errorf("/pods has no %s", name)
	})
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		return boolError(p.Status.Phase == phase, "%s", describe(p))
	}
}

func waitsFor(reason, message string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason == reason && strings.Contains(w.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(p))
	}
}

// withImage mounts an image into the pod's container.
func withImage(p *corev1.Pod, name, image, subPath string) *corev1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: corev1.PullAlways},
	}})
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name, SubPath: subPath})
	return p
}

func imageVolume(h *house) {
	p := staticPod("volume", images.BusyBox, "sh", "-c", "test -x /whole/testapp && test -f /part/passwd && ! touch /whole/new")
	h.addPod(withImage(withImage(p, "whole", images.TestApp, ""), "part", images.BusyBox, "etc"))
	h.waitStatic("volume", "a container reads two image volumes, one by a sub path, and cannot write", 2*time.Minute, inPhase(corev1.PodSucceeded))
}

func missingImageVolumes(h *house) {
	h.addPod(withImage(staticPod("no-image", images.TestApp, "sleep"), "none", registry.LocalName+"/none:v1", ""))
	h.addPod(withImage(staticPod("no-path", images.TestApp, "sleep"), "part", images.BusyBox, "no/such/path"))
	h.waitStatic("no-image", "an image volume without an image backs off", time.Minute, waitsFor("ImagePullBackOff", "Back-off pulling image \""+registry.LocalName+"/none:v1\": ErrImagePull: "))
	h.waitStatic("no-path", "a sub path that is not in the image is an error of the container", time.Minute, waitsFor("CreateContainerError", "no/such/path"))
}

// privateImage pulls with what a plugin says, asks the plugin once, and notes
// that the image is for all.
func privateImage(h *house, asked string) {
	private := registry.LocalName + "/private/testapp:v1"
	for _, name := range []string{"private-a", "private-b"} {
		p := staticPod(name, private, "sleep")
		p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		h.addPod(p)
		h.waitStatic(name, name+" runs", time.Minute, inPhase(corev1.PodRunning))
	}
	data, err := os.ReadFile(asked)
	h.must(err)
	want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"` + registry.LocalName + `/private/testapp"}`
	if got := strings.TrimSpace(string(data)); got != want {
		h.Errorf("the plugin was asked %s, want once %s", got, want)
	}
	records, err := filepath.Glob(filepath.Join(h.node.RootDir, "image_manager", "pulled", "sha256-*"))
	h.must(err)
	text := ""
	for _, r := range records {
		data, err := os.ReadFile(r)
		h.must(err)
		text += string(data)
	}
	if !strings.Contains(text, `"`+registry.LocalName+`/private/testapp":{"nodePodsAccessible":true}`) || strings.Contains(text, "secret\"") {
		h.Errorf("records %s", text)
	}
}

// unusedImagesGo waits for the collection: what nobody uses goes, what a pod
// has, is pinned, or is in a volume of a pod that lives stays.
func unusedImagesGo(h *house) {
	h.eventually(7*time.Minute, "an image that nobody uses goes", func() error {
		here := h.imagesHere()
		return boolError(!slices.Contains(here, registry.LocalName+"/unused:v1"), "present are %s", here)
	})
	here := h.imagesHere()
	for _, want := range []string{images.Pause, images.TestApp, registry.LocalName + "/private/testapp:v1"} {
		if !slices.Contains(here, want) {
			h.Errorf("%s is gone; present are %s", want, here)
		}
	}
}

func (h *house) imagesHere() (names []string) {
	h.Helper()
	list, err := h.runtime.Images().ListImages(h.ctx, &runtimeapi.ListImagesRequest{})
	h.must(err)
	for _, i := range list.GetImages() {
		names = append(names, i.GetRepoTags()...)
	}
	return names
}

func (h *house) pullBehindTheNode(name string) {
	h.Helper()
	_, err := h.runtime.Images().PullImage(h.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	h.must(err)
}
