package image

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// readings counts how often secrets are read.
type readings struct {
	*fake
	times int
}

func (r *readings) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	r.times++
	return r.fake.Secret(ctx, namespace, name)
}

// fitting is a pull secret with so many keys that all fit example.com/team/app.
func fitting(keys int) *v1.Secret {
	var auths []string
	for i := range keys {
		auths = append(auths, fmt.Sprintf(`"e%sxample.com": {"username": "u%d", "password": "p"}`, strings.Repeat("*", i), i))
	}
	return &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{
		v1.DockerConfigJsonKey: []byte(`{"auths": {` + strings.Join(auths, ",") + `}}`),
	}}
}

func TestASecretIsReadOnceHoweverOftenAPodNamesIt(t *testing.T) {
	f, p := setup(1)
	f.secrets["one"], f.secrets["two"] = secretFor("1", "one", "a"), secretFor("2", "two", "b")
	counted := &readings{fake: f}
	p.deps.Secrets = counted
	pod := &v1.Pod{}
	for range 20_000 {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: "one"}, v1.LocalObjectReference{Name: "two"})
	}
	got := p.credentials(t.Context(), pod, "reg.io/app")
	if len(got) != 2 || got[0].auth.GetPassword() != "a" || got[1].auth.GetPassword() != "b" {
		t.Errorf("%d credentials, want those of one and two", len(got))
	}
	if counted.times != 2 {
		t.Errorf("two secrets were read %d times", counted.times)
	}
}

func TestOfPullSecretsWithoutEndFewAreLookedAt(t *testing.T) {
	f, p := setup(1)
	counted := &readings{fake: f}
	p.deps.Secrets = counted
	pod := &v1.Pod{}
	for i := range 2000 {
		name := fmt.Sprint(i)
		f.secrets[name] = secretFor(name, name, name)
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
	}
	got := p.credentials(t.Context(), pod, "reg.io/app")
	if len(got) != mostOfSecrets || got[0].auth.GetPassword() != "0" {
		t.Errorf("%d credentials, want the first %d", len(got), mostOfSecrets)
	}
	p.credentials(t.Context(), pod, "elsewhere.example/app")
	if counted.times > mostSecrets+mostOfSecrets {
		t.Errorf("secrets were read %d times", counted.times)
	}
}

func TestOfKeysWithoutEndFewAreTried(t *testing.T) {
	f, p := setup(1)
	f.secrets["many"] = fitting(1000)
	pod := &v1.Pod{Spec: v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{{Name: "many"}}}}
	if got := p.credentials(t.Context(), pod, "example.com/team/app"); len(got) != mostOfSecrets {
		t.Errorf("%d credentials of one secret, want %d", len(got), mostOfSecrets)
	}
}
