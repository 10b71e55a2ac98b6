package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// An image that the registry gives to those with the right password only, pods
// that have it in a secret, and strangers that have not: what one may use of
// what another has pulled is verified (KEP-2535).
const (
	privateImage  = "registry.local/private:1"
	rightPassword = "sesame"
	private       = "private image"
	stranger      = "stranger to a private image"
	// strangersSecret has the wrong password, until it is given the right one.
	strangersSecret = "stranger"
)

func pullSecrets() map[string]string {
	return map[string]string{"puller": rightPassword, "puller-copy": rightPassword, strangersSecret: "wrong"}
}

func pullSecret(name, password string) *v1.Secret {
	config := fmt.Sprintf(`{"auths":{"registry.local":{"username":"me","password":%q}}}`, password)
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(config)},
	}
}

// ofPrivate makes a pod that asks for the private image.
func (m *maker) ofPrivate() {
	m.main(m.forever()).Image = privateImage
	secrets := []string{"puller", "puller-copy"}
	if m.shape == stranger {
		secrets, m.end = []string{"", strangersSecret}, waits
	}
	if name := secrets[m.rng.IntN(2)]; name != "" {
		m.spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: name}}
	}
}

// secrecy adds, to some scenarios, pods with a private image and strangers to it.
func (s *scenario) secrecy(seed int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 5))
	if s.alwaysVerify = rng.IntN(2) == 0; rng.IntN(4) > 0 {
		return
	}
	shapes := []string{private, stranger, private, stranger}[:2+rng.IntN(3)]
	for i, shape := range shapes {
		grace := int64([]int{0, 2, 10, 30}[rng.IntN(4)])
		sub := newPod(shape, fmt.Sprint("s", i), &grace, rng)
		s.put(sub)
		s.life(rng, sub)
	}
	if rng.IntN(3) == 0 {
		s.add(time.Duration(rng.Int64N(int64(s.noisy))), "the stranger is told the password", func(w *world) { w.admit() })
	}
	if rng.IntN(3) == 0 {
		s.add(time.Duration(rng.Int64N(int64(s.noisy))), "the records of pulls are damaged", func(w *world) { w.damageRecords(rng.IntN) })
	}
}

// admit gives the strangers the right password.
func (w *world) admit() {
	w.judge.admitted()
	_, err := w.api.Admin().CoreV1().Secrets(namespace).Update(w.t.Context(), pullSecret(strangersSecret, rightPassword), metav1.UpdateOptions{})
	w.must(err)
}

// admitted notes that those who have the strangers' secret may run from now on.
func (j *judge) admitted() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, sub := range j.w.scenario.subjects {
		if sub.shape == stranger && len(sub.pod.Spec.ImagePullSecrets) > 0 {
			sub.end = runs
		}
	}
}

// damageRecords spoils what podsync knows of who has pulled what.
func (w *world) damageRecords(pick func(int) int) {
	files, _ := filepath.Glob(filepath.Join(w.dir, "root", "image_manager", "pull*", "sha256-*"))
	for _, f := range files {
		switch pick(3) {
		case 0:
			w.must(os.WriteFile(f, []byte(`{"half`), 0o600))
		case 1:
			w.must(os.Truncate(f, 0))
		case 2:
			w.must(os.Remove(f))
			w.must(os.MkdirAll(filepath.Join(f, "x"), 0o700))
		}
	}
	w.crash("damage")
}

// entitled checks that who runs from the private image has shown the password.
func (j *judge) entitled(tr fakecri.Transition, f *facts, image string) {
	if image == privateImage && f.sub.shape == stranger && f.sub.end != runs {
		j.violationLocked("container %s of pod %s runs from a private image that others have pulled", tr.Name, tr.Pod)
	}
}

// verification is the node's policy.
func (s *scenario) verification() kubeletv1beta1.ImagePullCredentialsVerificationPolicy {
	if s.alwaysVerify {
		return kubeletv1beta1.AlwaysVerify
	}
	return kubeletv1beta1.NeverVerifyPreloadedImages
}
