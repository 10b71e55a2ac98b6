package reference

import (
	_ "crypto/sha256"
	_ "crypto/sha512"
	"strings"
	"testing"

	"github.com/distribution/reference"
)

const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func names() []string {
	return []string{
		"", "busybox", "busybox:1.36", "library/busybox", "docker.io/busybox", "index.docker.io/busybox:x", "team/app",
		"localhost/app", "localhost:5000/app:v1", "localhost", "registry.k8s.io/pause:3.10", "a.b/c/d/e__f/g---h/i.j/k_l",
		"[::1]:5000/app", "[::1]/app", "[fe80::1%eth0]/app", "1.2.3.4/app", "Registry/app", "UPPER", "a/UPPER", "a.b/Up:x", "a.b/up:X",
		"foo__bar.x/app", "-a.b/c", "a-.b/c", "a..b/c", "a.b:/c", "a.b:x/c", "a:5000/c", "a_b:5000/c", "a.b/", "/a", "a//b", "a.b//c", "a/b/",
		"app@sha256:" + sum, "app:v1@sha256:" + sum, "app@sha256:" + sum[:63], "app@sha256:" + sum + "0", "app@sha256:" + strings.ToUpper(sum),
		"app@SHA256:" + sum, "app@md5:" + sum[:32], "app@sha512:" + sum + sum, "app@sha384:" + sum + sum[:32], "app@a+b.c_d-e:" + sum, "app@a++b:" + sum,
		"app@sha256:" + sum[:31], "app@1a:" + sum, "app@", "app:@sha256:" + sum, "app:", "app:.x", "app:-x", "app:_x", "app:" + strings.Repeat("x", 128),
		"app:" + strings.Repeat("x", 129), sum, sum[:63], strings.ToUpper(sum), strings.Repeat("a", 255), "docker.io/" + strings.Repeat("a", 248), "a.b/" + strings.Repeat("a", 256),
		"app ", " app", "app\n", "äpp", "a.b/äpp", "App.b/c:1", "a___b/c", "a._b/c", "a.b/c._d", "a.b/c:1:2", "a.b/c@d@e", "x.y/a_/b", "http://a.b/c", "a.B/c_/d",
	}
}

// agree compares with the library that the runtimes use too.
func agree(t *testing.T, name string) {
	t.Helper()
	got, err := Parse(name)
	want, wantErr := reference.ParseNormalizedNamed(name)
	if err != nil || wantErr != nil {
		if err == nil || wantErr == nil || err.Error() != wantErr.Error() {
			t.Errorf("%q: %v; the library says %v", name, err, wantErr)
		}
		return
	}
	full := Name{Domain: reference.Domain(want), Path: reference.Path(want)}
	if tagged, ok := want.(reference.Tagged); ok {
		full.Tag = tagged.Tag()
	}
	if digested, ok := want.(reference.Digested); ok {
		full.Digest = digested.Digest().String()
	}
	if got != full || got.Repository() != want.Name() {
		t.Errorf("%q: %+v, %s; the library says %+v, %s", name, got, got.Repository(), full, want.Name())
	}
	pulled, err := reference.ParseDockerRef(name)
	if err != nil {
		return
	}
	if got.Pulled() != pulled.String() {
		t.Errorf("%q is pulled as %s; the library says %s", name, got.Pulled(), pulled)
	}
}

func TestNamesAreReadAsTheRuntimesReadThem(t *testing.T) {
	for _, name := range names() {
		agree(t, name)
	}
}

func TestAShortNameIsOfDockerHub(t *testing.T) {
	got, err := Parse("busybox")
	if want := (Name{Domain: "docker.io", Path: "library/busybox"}); err != nil || got != want || got.Pulled() != "docker.io/library/busybox:latest" {
		t.Errorf("%+v, %v, %s", got, err, got.Pulled())
	}
}

func FuzzNamesAreReadAsTheRuntimesReadThem(f *testing.F) {
	for _, name := range names() {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) { agree(t, name) })
}
