package env

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/cputime"
)

func fromSecret(prefix, name string) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, SecretRef: &v1.SecretEnvSource{LocalObjectReference: local(name)}}
}

// TestASecretIsCopiedOnlyAsOftenAsThereIsRoom: the variables of a secret of a megabyte, by
// thirty thousand prefixes, are more than a machine has.
func TestASecretIsCopiedOnlyAsOftenAsThereIsRoom(t *testing.T) {
	c := &v1.Container{}
	for i := range 1000 {
		c.EnvFrom = append(c.EnvFrom, fromSecret(fmt.Sprintf("P%d_", i), "large"))
	}
	in, reads := input(c), 0
	in.Secret = func(string) (*v1.Secret, error) {
		reads++
		return &v1.Secret{Data: map[string][]byte{"k": make([]byte, 1<<20)}}, nil
	}
	if _, err := Build(in); !errors.Is(err, ErrTooLarge) {
		t.Errorf("it is built: %v", err)
	}
	if reads > Most>>20+1 {
		t.Errorf("the secret was read %d times, though %d of it are too large", reads, Most>>20)
	}
}

func TestWhatIsNamedAgainIsSetOnceAndAsIfItWereOften(t *testing.T) {
	c := &v1.Container{}
	for range 20_000 {
		c.EnvFrom = append(c.EnvFrom, fromSecret("", "s"), fromSecret("", "other"))
	}
	c.EnvFrom = append(c.EnvFrom, fromSecret("", "s"))
	in, reads := input(c), 0
	in.Secret = func(name string) (*v1.Secret, error) {
		reads++
		return &v1.Secret{Data: map[string][]byte{"k": []byte(name), name: []byte("x")}}, nil
	}
	in.Services = nil
	got, err := Build(in)
	if want := map[string]string{"k": "s", "s": "x", "other": "x"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("it is %v, %v; want %v", got, err, want)
	}
	if reads != 2 {
		t.Errorf("two secrets were read %d times", reads)
	}
}

func TestVariablesThatAreSetAnewAreNotCountedTwice(t *testing.T) {
	c := &v1.Container{EnvFrom: []v1.EnvFromSource{fromSecret("", "a"), fromSecret("", "b"), fromSecret("", "c")}}
	in := input(c)
	in.Secret = func(string) (*v1.Secret, error) {
		return &v1.Secret{Data: map[string][]byte{"k": make([]byte, Most/2), "l": make([]byte, Most/3)}}, nil
	}
	if _, err := Build(in); err != nil {
		t.Error(err)
	}
}

func fileVar(i int, path string) v1.EnvVar {
	return v1.EnvVar{Name: fmt.Sprintf("V%d", i), ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: path, Key: fmt.Sprintf("K%d", i)}}}
}

func TestAFileIsReadOnceHoweverManyVariablesAreOfIt(t *testing.T) {
	c, text := &v1.Container{}, strings.Builder{}
	for i := range 1000 {
		c.Env = append(c.Env, fileVar(i, "file"))
		fmt.Fprintf(&text, "K%d='%d'\n", i, i)
	}
	in, reads := input(c), 0
	in.File = func(string, string) (string, bool, error) {
		reads++
		return text.String(), true, nil
	}
	got, err := Build(in)
	if err != nil || got["V999"] != "999" || reads != 1 {
		t.Errorf("V999 is %q, and the file was read %d times: %v", got["V999"], reads, err)
	}
}

func TestFilesWithoutEndAreNotRead(t *testing.T) {
	c := &v1.Container{}
	for i := range 100 {
		c.Env = append(c.Env, fileVar(i, fmt.Sprint(i)))
	}
	in, reads := input(c), 0
	in.File = func(_, path string) (string, bool, error) {
		reads++
		return "K" + path + "=''\n" + strings.Repeat("#", 1<<20), true, nil
	}
	if _, err := Build(in); err == nil || !strings.Contains(err.Error(), "8388608 bytes together") {
		t.Errorf("it is built: %v", err)
	}
	if reads > mostFiles>>20+1 {
		t.Errorf("%d files of a megabyte were read", reads)
	}
}

// TestReferencesThatDoNotEndAreLookedForOnce: each of half a million would be looked
// for in the whole text behind it.
func TestReferencesThatDoNotEndAreLookedForOnce(t *testing.T) {
	text := strings.Repeat("$(", 1<<20/2)
	took := cputime.Of(t, func() {
		got, err := Expand(text, func(string) (string, bool) { return "", false })
		if err != nil || got != text {
			t.Errorf("%d bytes became %d: %v", len(text), len(got), err)
		}
	})
	if took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
