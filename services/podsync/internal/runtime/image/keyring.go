package image

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/runtime/image/reference"
)

// entry is one registry's credentials in a docker configuration file.
type entry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// keys maps what the file calls a registry ("https://index.docker.io/v1/",
// "*.example.com:5000/team") to credentials.
type keys map[string]entry

// parse reads a docker configuration: {"auths":{…}}, or the older form, which
// is what is inside of auths.
func parse(data []byte, wrapped bool) (keys, error) {
	var ks keys
	if wrapped {
		var file struct {
			Auths keys `json:"auths"`
		}
		if err := json.Unmarshal(data, &file); err != nil {
			return nil, fmt.Errorf("parse docker configuration: %w", err)
		}
		ks = file.Auths
	} else if err := json.Unmarshal(data, &ks); err != nil {
		return nil, fmt.Errorf("parse docker configuration: %w", err)
	}
	return ks, nil
}

func (e entry) auth() *runtimeapi.AuthConfig {
	a := &runtimeapi.AuthConfig{
		Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken,
	}
	if e.Auth != "" && a.Username == "" {
		decoded, err := base64.StdEncoding.DecodeString(e.Auth)
		if err != nil {
			decoded, err = base64.RawStdEncoding.DecodeString(e.Auth)
		}
		if user, password, ok := strings.Cut(string(decoded), ":"); err == nil && ok {
			a.Username, a.Password = user, password
		}
	}
	return a
}

// match returns the credentials that fit an image, the most specific first.
func (ks keys) match(image string) []*runtimeapi.AuthConfig {
	name, err := reference.Parse(image)
	if err != nil {
		return nil
	}
	var fitting []string
	for key := range ks {
		if fits(key, name.Domain, name.Path) {
			fitting = append(fitting, key)
		}
	}
	slices.SortFunc(fitting, func(a, b string) int {
		if d := len(strip(b)) - len(strip(a)); d != 0 {
			return d
		}
		return strings.Compare(b, a)
	})
	out := make([]*runtimeapi.AuthConfig, 0, len(fitting))
	for _, key := range fitting {
		out = append(out, ks[key].auth())
	}
	return out
}

// Fits tells whether a pattern such as "*.example.com:5000/team" is for an image.
func Fits(pattern, image string) bool {
	name, err := reference.Parse(image)
	return err == nil && fits(pattern, name.Domain, name.Path)
}

// fits tells whether a key is for an image: the host matches segment by segment
// (with wildcards), the port exactly, and the path is a prefix.
func fits(key, host, repo string) bool {
	key = strip(key)
	keyHost, keyPath, _ := strings.Cut(key, "/")
	if keyHost == "index.docker.io" || keyHost == "registry-1.docker.io" {
		keyHost = "docker.io"
	}
	if keyHost == "docker.io" && (keyPath == "v1" || keyPath == "v2") {
		keyPath = ""
	}
	wantHost, wantPort := split(keyHost)
	gotHost, gotPort := split(host)
	want, got := strings.Split(wantHost, "."), strings.Split(gotHost, ".")
	if wantPort != gotPort || len(want) != len(got) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], got[i]); err != nil || !ok {
			return false
		}
	}
	return strings.HasPrefix(repo, strings.TrimSuffix(keyPath, "/"))
}

func strip(key string) string {
	if u, err := url.Parse(key); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		key = u.Host + u.Path
	}
	return strings.TrimSuffix(key, "/")
}

func split(host string) (name, port string) {
	if h, p, err := net.SplitHostPort(host); err == nil {
		return h, p
	}
	return host, ""
}
